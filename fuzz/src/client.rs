//! Targets for a program of a service: what it and the broker say to each other ([`messages`]),
//! and its streams ([`played`]).

#[path = "client/messages.rs"]
pub mod messages;
#[path = "client/played.rs"]
pub mod played;
#[path = "script.rs"]
pub mod script;

/// A target's name, which is its corpus directory's too, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of this module.
pub const TARGETS: &[Target] = &[("client_messages", messages::messages), ("client_played", played::played)];
