//! System calls and mapped files, each behind safe functions.
//!
//! This room upholds: every pointer that is passed to the kernel comes from a
//! reference that outlives the call, with its true length; structures that the kernel
//! fills are plain data for which zeros are a value; descriptors are owned at once.
#![allow(unsafe_code)]

pub mod mapped;
pub mod packet;
