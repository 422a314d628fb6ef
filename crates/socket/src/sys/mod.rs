//! The unsafe code of this crate.

pub(crate) mod large_pages;
