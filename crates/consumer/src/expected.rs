//! The connections that are expected to arrive.

use crate::moved::{Adoption, Brought};
use crate::stream::Rings;

/// One of them, until its queues and the engine's announcement are both here.
#[derive(Debug)]
pub(crate) struct Expected {
    pub adoption: Adoption,
    /// Its queue pair, once the engine has announced it.
    pub qp: Option<u32>,
    /// Its queues, once they are here, with the buffers that they take.
    pub brought: Option<(Brought, Rings)>,
}

/// The expected connections.
#[derive(Debug, Default)]
pub(crate) struct Adoptions(pub Vec<Expected>);
