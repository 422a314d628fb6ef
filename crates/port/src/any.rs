//! Any port, chosen when the program runs: `tap:NAME`, `xdp:IFACE`, `memory`, `pcap:FILE`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use baton_engine::frame_io::{Capabilities, FrameIo, PortError};

use crate::error::OpenError;
use crate::link;
use crate::memory::{MemoryOptions, MemoryPort};
use crate::pcap_file::PcapFile;
use crate::tap::{Tap, TapOptions};
use crate::wait::Waitable;
use crate::xdp::{CopyMode, XdpOptions, XdpPort};

/// A port to open, as written on a command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortSpec {
    /// `tap:NAME[,novnet][,nomerge]`
    Tap {
        /// The device's name.
        name: String,
        /// How it is opened.
        options: TapOptions,
    },
    /// `xdp:IFACE[,generic][,copy|,zerocopy][,queues=N]`
    Xdp {
        /// The interface's name.
        interface: String,
        /// How it is opened.
        options: XdpOptions,
    },
    /// `memory`
    Memory,
    /// `pcap:FILE`
    Pcap {
        /// The capture's path.
        path: String,
    },
}

/// Why a port's description is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// There is no kind of port of that name.
    #[error("no port is called `{0}`: write tap:NAME, xdp:INTERFACE, pcap:FILE or memory")]
    Kind(String),
    /// The kind needs a name.
    #[error("`{kind}:` needs {needs} behind it, as in {example}")]
    Name {
        /// Kind of the port, the word before the colon.
        kind: &'static str,
        /// The missing part.
        needs: &'static str,
        /// A port written in full.
        example: &'static str,
    },
    /// The kind has no such option.
    #[error("`{kind}:` has no option `{option}`; it has {known}")]
    Option {
        /// Kind of the port, the word before the colon.
        kind: &'static str,
        /// The option as written.
        option: String,
        /// The options that it has.
        known: &'static str,
    },
    /// The value of an option is invalid.
    #[error("`{0}`: the number of queues is 1 to 64")]
    Queues(String),
}

impl FromStr for PortSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "tap" => parse_tap(rest),
            "xdp" => parse_xdp(rest),
            "pcap" if rest.is_empty() => {
                Err(SpecError::Name { kind: "pcap", needs: "a file", example: "pcap:capture.pcapng" })
            }
            "pcap" => Ok(Self::Pcap { path: rest.to_owned() }),
            _ => Err(SpecError::Kind(text.to_owned())),
        }
    }
}

fn parse_tap(rest: &str) -> Result<PortSpec, SpecError> {
    let mut words = rest.split(',');
    let name = words.next().unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(SpecError::Name { kind: "tap", needs: "a device", example: "tap:baton0" });
    }
    let mut options = TapOptions::default();
    for word in words {
        match word {
            "novnet" => options.vnet_hdr = false,
            "nomerge" => options.merge = false,
            _ => return Err(SpecError::Option { kind: "tap", option: word.to_owned(), known: "novnet, nomerge" }),
        }
    }
    Ok(PortSpec::Tap { name, options })
}

fn parse_xdp(rest: &str) -> Result<PortSpec, SpecError> {
    let mut words = rest.split(',');
    let interface = words.next().unwrap_or_default().to_owned();
    if interface.is_empty() {
        return Err(SpecError::Name { kind: "xdp", needs: "an interface", example: "xdp:eth1" });
    }
    let mut options = XdpOptions::default();
    for word in words {
        match (word, word.strip_prefix("queues=")) {
            ("generic", _) => options.generic = true,
            ("copy", _) => options.copy = CopyMode::Copy,
            ("zerocopy", _) => options.copy = CopyMode::ZeroCopy,
            (_, Some(number)) => {
                let queues = number.parse().ok().filter(|n| (1..=64).contains(n));
                options.queues = Some(queues.ok_or_else(|| SpecError::Queues(word.to_owned()))?);
            }
            _ => {
                let known = "generic, copy, zerocopy, queues=N";
                return Err(SpecError::Option { kind: "xdp", option: word.to_owned(), known });
            }
        }
    }
    Ok(PortSpec::Xdp { interface, options })
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => write!(f, "memory"),
            Self::Pcap { path } => write!(f, "pcap:{path}"),
            Self::Tap { name, options } => {
                let vnet = if options.vnet_hdr { "" } else { ",novnet" };
                write!(f, "tap:{name}{vnet}{}", if options.merge { "" } else { ",nomerge" })
            }
            Self::Xdp { interface, options } => {
                write!(f, "xdp:{interface}{}", if options.generic { ",generic" } else { "" })?;
                match options.copy {
                    CopyMode::Auto => {}
                    CopyMode::Copy => write!(f, ",copy")?,
                    CopyMode::ZeroCopy => write!(f, ",zerocopy")?,
                }
                options.queues.map_or(Ok(()), |queues| write!(f, ",queues={queues}"))
            }
        }
    }
}

/// A port of any kind.
pub enum AnyPort {
    /// One end of an in-memory wire.
    Memory(MemoryPort),
    /// A TAP device.
    Tap(Tap),
    /// An AF_XDP port.
    Xdp(Box<XdpPort>),
    /// A capture file.
    Pcap(PcapFile),
}

impl AnyPort {
    /// Opens the port that `spec` describes. `memory` gets one end of a wire whose other end is
    /// unused; use [`MemoryPort::pair`] to get both.
    ///
    /// # Errors
    /// As the port's `open`.
    pub fn open(spec: &PortSpec) -> Result<Self, OpenError> {
        Ok(match spec {
            PortSpec::Memory => Self::Memory(MemoryPort::pair(MemoryOptions::default()).0),
            PortSpec::Tap { name, options } => Self::Tap(Tap::open(name, *options)?),
            PortSpec::Xdp { interface, options } => Self::Xdp(Box::new(XdpPort::open(interface, *options)?)),
            PortSpec::Pcap { path } => Self::Pcap(PcapFile::open(path)?),
        })
    }

    /// Tells the port an address of the endpoint's own. Only a port that shares its
    /// interface with the kernel has to know.
    ///
    /// # Errors
    /// [`PortError`] when its table is full.
    pub fn add_address(&mut self, address: IpAddr) -> Result<(), PortError> {
        match self {
            Self::Xdp(port) => port.add_address(address),
            Self::Memory(_) | Self::Tap(_) | Self::Pcap(_) => Ok(()),
        }
    }

    /// The link-layer address that an endpoint on this port must use: that of the
    /// interface, if it shares one with the kernel. Otherwise any will do, but for a
    /// TAP device the kernel's ([`link::address`]).
    pub fn required_link_address(&self) -> Option<[u8; 6]> {
        match self {
            Self::Xdp(port) => link::address(port.name()).ok(),
            Self::Memory(_) | Self::Tap(_) | Self::Pcap(_) => None,
        }
    }
}

/// Calls a method of whichever port it is.
macro_rules! each {
    ($self:expr, $port:ident => $call:expr) => {
        match $self {
            AnyPort::Memory($port) => $call,
            AnyPort::Tap($port) => $call,
            AnyPort::Xdp($port) => $call,
            AnyPort::Pcap($port) => $call,
        }
    };
}

impl FrameIo for AnyPort {
    fn capabilities(&self) -> Capabilities {
        each!(self, port => port.capabilities())
    }

    forward_frames!(each);
}

impl Waitable for AnyPort {
    forward_waits!(each);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_written_as_it_is_read() {
        for text in [
            "memory",
            "tap:baton0",
            "tap:baton%d,novnet",
            "tap:baton%d,nomerge",
            "tap:baton%d,novnet,nomerge",
            "xdp:eth1",
            "xdp:eth1,generic,copy,queues=2",
            "xdp:eth1,zerocopy",
            "pcap:a,b:c.pcapng",
        ] {
            assert_eq!(text.parse::<PortSpec>().unwrap().to_string(), text);
        }
        let spec: PortSpec = "xdp:eth1,queues=2,copy".parse().unwrap();
        let options = XdpOptions { generic: false, copy: CopyMode::Copy, queues: Some(2) };
        assert_eq!(spec, PortSpec::Xdp { interface: "eth1".into(), options });
    }

    #[test]
    fn what_is_wrong_with_a_port_is_named() {
        for (text, named) in [
            ("", "no port is called ``"),
            ("tun:baton0", "no port is called `tun:baton0`"),
            ("memory:1", "no port is called `memory:1`"),
            ("tap", "needs a device"),
            ("tap:,novnet", "needs a device"),
            ("tap:baton0,vnet", "no option `vnet`; it has novnet, nomerge"),
            ("xdp:", "needs an interface"),
            ("xdp:eth1,driver", "no option `driver`"),
            ("xdp:eth1,queues=0", "`queues=0`"),
            ("xdp:eth1,queues=many", "`queues=many`"),
            ("pcap:", "needs a file"),
        ] {
            let error = text.parse::<PortSpec>().unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
