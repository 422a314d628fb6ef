//! Where the engine of a program's connections runs.

use std::fmt;
use std::str::FromStr;

/// See the file's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// In a process of the service, one an interface, for all programs.
    #[default]
    Service,
    /// Inside the program.
    Direct,
}

impl Placement {
    /// Their names, as on command lines.
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
            _ => Err(format!("'{name}' is no place for an engine; there are service and direct")),
        }
    }
}
