//! The services that `baton serve` offers: echo (RFC 862), discard (RFC 863),
//! chargen (RFC 864) and HTTP/1.1 for the files of a directory.

mod basic;
pub mod http;
mod line;
pub mod ramp;

pub use basic::{Chargen, Discard, Echo};
pub use line::Line;

use crate::fail::usage;
use crate::net::{Accept, Handler};
use std::path::PathBuf;
use std::rc::Rc;
use std::str::FromStr;

/// A service and its parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Sends back what it receives.
    Echo,
    /// Receives and discards.
    Discard,
    /// Sends the ramp (see [`ramp`]) until the peer closes.
    Chargen,
    /// Serves the files of this directory over HTTP.
    Http(PathBuf),
}

/// Bytes per read of discard and per write of chargen: the message size of a measurement. The
/// default is as many as possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message(pub usize);

impl Default for Message {
    fn default() -> Message {
        Message(usize::MAX)
    }
}

/// A service and the port that it listens on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// Which service it is.
    pub kind: Kind,
    /// TCP port.
    pub port: u16,
}

impl Kind {
    /// The port registered for the protocol.
    pub fn default_port(&self) -> u16 {
        match self {
            Kind::Echo => 7,
            Kind::Discard => 9,
            Kind::Chargen => 19,
            Kind::Http(_) => 80,
        }
    }

    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Echo => "echo",
            Kind::Discard => "discard",
            Kind::Chargen => "chargen",
            Kind::Http(_) => "http",
        }
    }

    /// Makes a kind from its name and, for `http`, a directory.
    ///
    /// # Errors
    /// A usage error if the name is unknown, or if the directory is missing, superfluous or does not
    /// exist.
    pub fn new(name: &str, dir: Option<PathBuf>) -> anyhow::Result<Kind> {
        let kind = match (name, dir) {
            ("echo", None) => Kind::Echo,
            ("discard", None) => Kind::Discard,
            ("chargen", None) => Kind::Chargen,
            ("http", Some(dir)) if dir.is_dir() => Kind::Http(dir),
            ("http", Some(dir)) => {
                return Err(usage(
                    format!("{} is not a directory", dir.display()),
                    "name a directory that can be read",
                ));
            }
            ("http", None) => return Err(usage("http needs a directory", "write: baton serve … http DIR")),
            ("echo" | "discard" | "chargen", Some(_)) => {
                return Err(usage(format!("{name} takes no directory"), format!("write: baton serve … {name}")));
            }
            _ => {
                return Err(usage(
                    format!("there is no service '{name}'"),
                    "choose echo, discard, chargen or http DIR",
                ));
            }
        };
        Ok(kind)
    }

    /// Returns a function that makes handlers for this service.
    ///
    /// # Errors
    /// If the directory of `http` cannot be resolved.
    pub fn accept(&self, message: Message) -> std::io::Result<Accept> {
        Ok(match self {
            Kind::Echo => Box::new(|_| Box::new(Echo::new()) as Box<dyn Handler>),
            Kind::Discard => Box::new(move |_| Box::new(Discard::new(message))),
            Kind::Chargen => Box::new(move |_| Box::new(Chargen::new(message))),
            Kind::Http(dir) => {
                let site = Rc::new(http::Site::new(dir)?);
                Box::new(move |_| Box::new(http::Http::new(site.clone())))
            }
        })
    }
}

impl FromStr for Spec {
    type Err = anyhow::Error;

    /// Parses `NAME[=DIR][@PORT]`.
    fn from_str(text: &str) -> anyhow::Result<Spec> {
        let (rest, port) = match text.rsplit_once('@') {
            Some((rest, port)) => match port.parse() {
                Ok(port) => (rest, Some(port)),
                Err(_) => return Err(usage(format!("'{port}' is not a TCP port"), "write NAME[=DIR][@PORT]")),
            },
            None => (text, None),
        };
        let (name, dir) = match rest.split_once('=') {
            Some((name, dir)) => (name, Some(PathBuf::from(dir))),
            None => (rest, None),
        };
        let kind = Kind::new(name, dir)?;
        Ok(Spec { port: port.unwrap_or(kind.default_port()), kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_with_directory_and_port() {
        assert_eq!("echo".parse::<Spec>().unwrap(), Spec { kind: Kind::Echo, port: 7 });
        assert_eq!("chargen@1900".parse::<Spec>().unwrap(), Spec { kind: Kind::Chargen, port: 1900 });
        assert_eq!("http=/@8080".parse::<Spec>().unwrap(), Spec { kind: Kind::Http("/".into()), port: 8080 });
        for bad in ["", "ftp", "echo@70000", "echo=/", "http", "http=/no/such/dir", "echo@"] {
            assert!(bad.parse::<Spec>().is_err(), "{bad}");
        }
    }
}
