//! Why a connection stays where it is, as its program is told.

use baton_kernel::kernel_side::KernelError;
use baton_policy::Refusal;

/// Why a move does not happen. Programs get both fields in
/// [`Reply::Stays`](baton_socket::service::message::Reply::Stays).
#[derive(Clone, Debug)]
pub(super) struct StayReason {
    /// A word that programs can compare.
    pub code: &'static str,
    /// A sentence for people.
    pub text: String,
}

impl StayReason {
    /// A reason of the broker's own.
    pub fn new(code: &'static str, text: impl Into<String>) -> StayReason {
        StayReason { code, text: text.into() }
    }
}

impl From<Refusal> for StayReason {
    fn from(refusal: Refusal) -> StayReason {
        StayReason::new(refusal.code(), refusal.to_string())
    }
}

impl From<&KernelError> for StayReason {
    fn from(error: &KernelError) -> StayReason {
        StayReason::new(error.refusal().map_or("failed", Refusal::code), error.to_string())
    }
}
