//! Where the engine of a program's connections runs.

use std::fmt;
use std::str::FromStr;

/// Where a program's engine runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Placement {
    /// In a process of the service: one engine per interface, shared by all programs.
    #[default]
    Service,
    /// Inside the program.
    Direct,
}

impl Placement {
    /// Names of the placements on command lines, in the order of their declaration.
    pub const NAMES: [&str; 2] = ["service", "direct"];
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Placement::NAMES[*self as usize])
    }
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(name: &str) -> Result<Placement, String> {
        match name {
            "service" => Ok(Placement::Service),
            "direct" => Ok(Placement::Direct),
            _ => Err(format!("'{name}' is not a placement; use service or direct")),
        }
    }
}
