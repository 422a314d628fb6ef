//! What the kernel lets the programs see, for `baton doctor`.

use super::attach;
use super::error::SteerError;
use super::gap::Gaps;
use baton_port::doctor::Finding;

/// What is seen with the kernel's own structures, of which the loader takes the layout from its
/// BTF.
pub fn findings() -> [Finding; 2] {
    let guard = Sight {
        name: "engines inside programs",
        yes: "can be kept from sending what is not theirs, so --engine direct works",
        not_tried: "what keeps them from sending what is not theirs cannot be loaded",
        no: "cannot be kept from sending what is not theirs: the service's engine serves programs (--engine service)",
    };
    let gaps = Sight {
        name: "gaps in what was received",
        yes: "can be seen: a connection moves once the packet that was lost has come",
        not_tried: "what sees them cannot be loaded",
        no: "cannot be seen: what was received behind a lost packet is sent again when a connection moves, which takes time",
    };
    [guard.found(attach::try_guard()), gaps.found(Gaps::open().map(drop))]
}

/// Something that a program of ours looks at, and what there is to say of it.
struct Sight {
    name: &'static str,
    yes: &'static str,
    /// It is not the kernel that forbids it.
    not_tried: &'static str,
    no: &'static str,
}

impl Sight {
    fn found(self, loaded: Result<(), SteerError>) -> Finding {
        match loaded {
            Ok(()) => Finding::yes(self.name, self.yes),
            Err(error @ (SteerError::NotBuilt | SteerError::NotPermitted { .. })) => {
                Finding::no(self.name, self.not_tried, error.to_string())
            }
            Err(_) => Finding::no(
                self.name,
                self.no,
                "use a kernel with CONFIG_DEBUG_INFO_BTF that is not locked down (confidentiality)",
            ),
        }
    }
}
