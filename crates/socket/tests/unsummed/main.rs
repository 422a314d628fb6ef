//! Two hosts on one link that may go without checksums (LA §4.2), and what stands between them.

mod corruption;
mod negotiation;
mod world;
