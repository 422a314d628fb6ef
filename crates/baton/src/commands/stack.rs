//! The arguments that choose a stack, common to `serve` and `get`.

use crate::fail::usage;
use crate::net::Net;
use crate::net::kernel::KernelNet;
use anyhow::Context;
use std::net::IpAddr;
use std::str::FromStr;

/// Connections that are open at once, at most.
const MAX_CONNECTIONS: usize = 65_536;

/// Which stack to run on, and as whom.
#[derive(clap::Args, Debug)]
pub struct StackArgs {
    /// Where frames come from and go to: 'kernel' uses the kernel's sockets
    #[arg(long, value_name = "PORT")]
    pub port: PortSpec,

    /// Own address with prefix length; repeat it for several. On kernel sockets
    /// the address to listen on
    #[arg(long = "addr", value_name = "ADDR/LEN")]
    pub addrs: Vec<Cidr>,
}

/// A source and sink of frames, as named on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortSpec {
    /// No frames at all: the kernel's own TCP.
    Kernel,
}

impl FromStr for PortSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<PortSpec, String> {
        match text {
            "kernel" => Ok(PortSpec::Kernel),
            _ => Err("a port is 'kernel'".to_owned()),
        }
    }
}

/// An address and the length of its network's prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cidr {
    /// The address.
    pub addr: IpAddr,
    /// Prefix length in bits.
    pub prefix: u8,
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Cidr, String> {
        let (addr, prefix) = text.split_once('/').map_or((text, None), |(addr, prefix)| (addr, Some(prefix)));
        let addr: IpAddr = addr.parse().map_err(|_| format!("'{addr}' is no IP address"))?;
        let longest = if addr.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => longest,
            Some(prefix) => prefix
                .parse()
                .ok()
                .filter(|&prefix| prefix <= longest)
                .ok_or_else(|| format!("'{prefix}' is no prefix length from 0 to {longest}"))?,
        };
        Ok(Cidr { addr, prefix })
    }
}

impl StackArgs {
    /// Opens the stack.
    ///
    /// # Errors
    /// A usage error with its remedy if the machine does not allow it.
    pub fn open(&self) -> anyhow::Result<Box<dyn Net>> {
        match self.port {
            PortSpec::Kernel => Ok(Box::new(KernelNet::new(MAX_CONNECTIONS).context("cannot make an epoll instance")?)),
        }
    }

    /// The addresses to listen on: all of the kernel's if none was named.
    pub fn local_addrs(&self) -> Vec<IpAddr> {
        match self.addrs.as_slice() {
            [] => vec![IpAddr::from([0u16; 8])],
            addrs => addrs.iter().map(|cidr| cidr.addr).collect(),
        }
    }
}

/// Says what to do about an address that cannot be listened on.
pub fn listen_error(addr: std::net::SocketAddr, error: &std::io::Error) -> anyhow::Error {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    let what = format!("cannot listen on {addr}: {error}");
    match error.kind() {
        AddrInUse => usage(what, "choose another port with --listen, or end the program that has it (ss -ltnp)"),
        PermissionDenied => usage(what, "choose a port above 1023 with --listen, or run as root"),
        AddrNotAvailable => usage(what, "give --addr an address of this machine (ip addr)"),
        _ => usage(what, "check --addr and --listen"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_prefix() {
        assert_eq!("10.77.0.2/24".parse(), Ok(Cidr { addr: [10, 77, 0, 2].into(), prefix: 24 }));
        assert_eq!("fd77::2/64".parse::<Cidr>().unwrap().prefix, 64);
        assert_eq!("::1".parse::<Cidr>().unwrap().prefix, 128);
        for bad in ["", "10.77.0/24", "10.77.0.2/33", "10.77.0.2/", "::1/129", "10.77.0.2/-1"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }
}
