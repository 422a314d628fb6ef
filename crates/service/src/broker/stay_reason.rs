//! The reason that a program is given when its connection stays where it is.

use baton_kernel::kernel_side::KernelError;
use baton_policy::{Reason, Refusal};

/// Why a move does not happen. Both fields are sent to the program in
/// [`Reply::Stays`](baton_ipc::message::Reply::Stays).
#[derive(Clone, Debug)]
pub(super) struct StayReason {
    /// A code that programs can compare.
    pub code: Reason,
    /// An explanation for people.
    pub text: String,
}

impl StayReason {
    /// A reason that only the broker knows.
    pub fn new(code: Reason, text: impl Into<String>) -> StayReason {
        StayReason { code, text: text.into() }
    }
}

impl From<Refusal> for StayReason {
    fn from(refusal: Refusal) -> StayReason {
        StayReason::new(refusal.into(), refusal.to_string())
    }
}

impl From<&KernelError> for StayReason {
    fn from(error: &KernelError) -> StayReason {
        StayReason::new(error.refusal().map_or(Reason::Failed, Reason::from), error.to_string())
    }
}
