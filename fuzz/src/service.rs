//! Targets for the processes of the service: what they say to each other, and a broker to
//! which programs say anything.

#[path = "service/messages.rs"]
pub mod messages;
#[path = "service/programs.rs"]
pub mod programs;
#[path = "script.rs"]
pub mod script;

/// A target's name, which is its corpus directory's too, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of this module.
pub const TARGETS: &[Target] = &[("service_messages", messages::messages), ("service_programs", programs::programs)];
