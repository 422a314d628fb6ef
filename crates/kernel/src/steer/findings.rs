//! Reports for `baton doctor` what the kernel lets the programs see.

use super::attach;
use super::error::SteerError;
use super::gap::Gaps;
use baton_port::doctor::Finding;

/// Reports on the programs that read the kernel's own structures, whose layout the loader takes
/// from the kernel's BTF.
pub fn findings() -> [Finding; 2] {
    let guard = Sight {
        name: "engines inside programs",
        yes: "can be kept from sending foreign frames, so --engine direct works",
        not_tried: "the program that keeps them from sending foreign frames cannot be loaded",
        no: "cannot be kept from sending foreign frames: the service's engine serves programs (--engine service)",
    };
    let gaps = Sight {
        name: "gaps in what was received",
        yes: "can be detected: a connection moves once the lost packet has arrived",
        not_tried: "the program that detects them cannot be loaded",
        no: "cannot be detected: what was received after a lost packet is sent again when a connection moves, which takes time",
    };
    [guard.found(attach::try_guard()), gaps.found(Gaps::open().map(drop))]
}

/// Something that a program of ours examines, and what to report about it.
struct Sight {
    name: &'static str,
    yes: &'static str,
    /// The report if something other than the kernel prevents it.
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
