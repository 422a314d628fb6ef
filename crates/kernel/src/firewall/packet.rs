//! Fields that a firewall can see in the packets of an established connection, and which of them are
//! the same in all of them.

use super::registers::{Answer, Bits, Registers, Span};
use baton_wire::addr::{Addr, Tuple};
use std::net::IpAddr;

/// Netfilter's hooks that a connection's packets pass (`enum nf_inet_hooks`, `nf_dev_hooks`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Hook {
    Ingress,
    Prerouting,
    Input,
    Output,
    Postrouting,
    Egress,
}

impl Hook {
    /// The hooks of packets that arrive, then of those that leave, in the order in which packets
    /// pass them.
    pub const ALL: [Hook; 6] =
        [Hook::Ingress, Hook::Prerouting, Hook::Input, Hook::Output, Hook::Postrouting, Hook::Egress];

    /// Returns true if arriving packets pass this hook.
    pub fn is_inbound(self) -> bool {
        self <= Hook::Input
    }
}

/// The connection whose packets are examined.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub tuple: Tuple,
    /// The interface that its packets pass in both directions.
    pub interface: u32,
    pub interface_name: String,
    /// `SO_MARK` of its socket.
    pub mark: u32,
    /// Conntrack has an entry for it.
    pub tracked: bool,
}

/// One field of a packet, or of what the kernel knows of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Field {
    /// The `ip` or `ip6` header, from an offset on.
    Network(usize),
    /// The TCP header, from an offset on.
    Transport(usize),
    /// A key of `enum nft_meta_keys`.
    Meta(u32),
    CtState,
    /// The result and the flags of a route lookup (`enum nft_fib_result`, `nft_fib_flags`).
    Fib(u32, u32),
    /// A field whose value is unknown.
    Other,
}

/// The keys of `enum nft_meta_keys` (`linux/netfilter/nf_tables.h`) whose values are known.
mod meta {
    pub const PROTOCOL: u32 = 1;
    pub const MARK: u32 = 3;
    pub const IIF: u32 = 4;
    pub const OIF: u32 = 5;
    pub const IIFNAME: u32 = 6;
    pub const OIFNAME: u32 = 7;
    pub const IIFTYPE: u32 = 8;
    pub const OIFTYPE: u32 = 9;
    pub const NFPROTO: u32 = 15;
    pub const L4PROTO: u32 = 16;
}

/// `NF_CT_STATE_BIT(IP_CT_ESTABLISHED)`.
pub(crate) const ESTABLISHED: u32 = 2;
/// `NF_CT_STATE_UNTRACKED_BIT`.
const UNTRACKED: u32 = 64;
/// Address types of `linux/rtnetlink.h`.
pub(crate) const UNICAST: u32 = 1;
pub(crate) const LOCAL: u32 = 2;
const ARPHRD_ETHER: u16 = 1;
const TCP: u8 = 6;
/// TCP flags (byte 13 of the header) that are the same in all packets: value and mask. SYN is
/// clear, ACK is set.
const FLAGS: (u8, u8) = (0x10, 0x12);

/// A packet of the connection at a hook.
#[derive(Clone, Debug)]
pub(crate) struct Packet<'a> {
    connection: &'a Connection,
    hook: Hook,
    network: Bits,
    transport: Bits,
    /// No earlier rule can have set its mark.
    pub mark_is_known: bool,
    /// No earlier rule has removed it from conntrack.
    is_tracked: bool,
}

impl Packet<'_> {
    pub fn new(connection: &Connection, hook: Hook) -> Packet<'_> {
        let (network, transport) = (Bits::unknown(0), Bits::unknown(0));
        let mut packet = Packet { connection, hook, network, transport, mark_is_known: true, is_tracked: true };
        packet.enter(hook);
        packet
    }

    /// Moves the packet on to another hook.
    pub fn enter(&mut self, hook: Hook) {
        self.hook = hook;
        (self.network, self.transport) = (self.network_header(), self.transport_header());
    }

    pub fn is_v4(&self) -> bool {
        self.connection.tuple.local.is_v4()
    }

    /// The source and the destination, each with address and port.
    pub fn ends(&self) -> [(Addr, u16); 2] {
        let Tuple { local, remote, local_port, remote_port } = self.connection.tuple;
        let (ours, theirs) = ((local, local_port), (remote, remote_port));
        if self.hook.is_inbound() { [theirs, ours] } else { [ours, theirs] }
    }

    /// The indexes of the interfaces by which it arrived and leaves; 0 for none.
    fn interfaces(&self) -> [u32; 2] {
        let index = self.connection.interface;
        if self.hook.is_inbound() { [index, 0] } else { [0, index] }
    }

    /// The names of these interfaces, padded with zeros to 16 bytes.
    pub fn interface_names(&self) -> [[u8; 16]; 2] {
        let mut name = [0; 16];
        for (to, from) in name[..15].iter_mut().zip(self.connection.interface_name.bytes()) {
            *to = from;
        }
        self.interfaces().map(|index| if index == 0 { [0; 16] } else { name })
    }

    /// The packet's mark: 0 on arrival, the socket's when it leaves. `None` if unknown.
    pub fn mark(&self) -> Option<u32> {
        let mark = if self.hook.is_inbound() { 0 } else { self.connection.mark };
        self.mark_is_known.then_some(mark)
    }

    /// The types of its source and destination address.
    pub fn address_types(&self) -> [u32; 2] {
        if self.hook.is_inbound() { [UNICAST, LOCAL] } else { [LOCAL, UNICAST] }
    }

    /// Its conntrack state, as a bit.
    fn state(&self) -> u32 {
        if self.is_tracked { ESTABLISHED } else { UNTRACKED }
    }

    /// A rule may remove the packet from conntrack, which has an effect if the connection has no
    /// entry there.
    pub fn untrack(&mut self) {
        self.is_tracked &= self.connection.tracked;
    }

    /// Whether its conntrack state is one of the bits in `mask`.
    pub fn is_in_state(&self, mask: u32) -> Answer {
        Answer::of(mask & self.state() != 0)
    }

    /// The TCP flags.
    pub fn flags(&self) -> Bits {
        Bits { value: vec![FLAGS.0], known: vec![FLAGS.1] }
    }

    /// Loads the first bytes of a field into registers.
    pub fn load(&self, field: &Field, to: Span, registers: &mut Registers) {
        let known = match field {
            Field::Network(offset) => return cut(&self.network, *offset, to, registers),
            Field::Transport(offset) => return cut(&self.transport, *offset, to, registers),
            Field::Meta(key) => self.meta(*key),
            Field::CtState => Some(self.state().to_ne_bytes().to_vec()),
            Field::Fib(result, flags) => self.fib(*result, *flags),
            Field::Other => None,
        };
        match known.filter(|known| known.len() == to.len) {
            Some(known) => registers.set(to.at, &Bits::known(&known)),
            None => registers.forget(to),
        }
    }

    fn meta(&self, key: u32) -> Option<Vec<u8>> {
        let side = |pair: [u32; 2]| Some(pair[usize::from(matches!(key, meta::OIF))].to_ne_bytes().to_vec());
        match key {
            meta::PROTOCOL => Some(if self.is_v4() { vec![0x08, 0x00] } else { vec![0x86, 0xdd] }),
            meta::MARK => Some(self.mark()?.to_ne_bytes().to_vec()),
            meta::IIF | meta::OIF => side(self.interfaces()),
            meta::IIFNAME => Some(self.interface_names()[0].to_vec()),
            meta::OIFNAME => Some(self.interface_names()[1].to_vec()),
            meta::IIFTYPE if self.hook.is_inbound() => Some(ARPHRD_ETHER.to_ne_bytes().to_vec()),
            meta::OIFTYPE if !self.hook.is_inbound() => Some(ARPHRD_ETHER.to_ne_bytes().to_vec()),
            meta::NFPROTO => Some(vec![if self.is_v4() { libc::AF_INET } else { libc::AF_INET6 } as u8]),
            meta::L4PROTO => Some(vec![TCP]),
            _ => None,
        }
    }

    /// The result of a route lookup. A route back to the source leads over the interface by which
    /// the packet came; otherwise the connection would not be steered.
    fn fib(&self, result: u32, flags: u32) -> Option<Vec<u8>> {
        const SADDR: u32 = 1;
        const PRESENT: u32 = 32;
        const OIF: u32 = 1;
        const OIFNAME: u32 = 2;
        const ADDRTYPE: u32 = 3;
        let of_source = flags & SADDR != 0;
        match result {
            ADDRTYPE => Some(self.address_types()[usize::from(!of_source)].to_ne_bytes().to_vec()),
            OIF | OIFNAME if !of_source || !self.hook.is_inbound() => None,
            OIF | OIFNAME if flags & PRESENT != 0 => Some(vec![1]),
            OIF => Some(self.connection.interface.to_ne_bytes().to_vec()),
            OIFNAME => Some(self.interface_names()[0].to_vec()),
            _ => None,
        }
    }

    fn network_header(&self) -> Bits {
        let [(source, _), (destination, _)] = self.ends();
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = Bits::unknown(20);
                put(&mut header, 0, &[0x45]);
                // Not a fragment: neither MF nor an offset. DF may be set.
                (header.value[6], header.known[6]) = (0, 0xbf);
                put(&mut header, 7, &[0]);
                put(&mut header, 9, &[TCP]);
                put(&mut header, 12, &source.octets());
                put(&mut header, 16, &destination.octets());
                header
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut header = Bits::unknown(40);
                (header.value[0], header.known[0]) = (0x60, 0xf0);
                put(&mut header, 6, &[TCP]);
                put(&mut header, 8, &source.octets());
                put(&mut header, 24, &destination.octets());
                header
            }
            _ => Bits::unknown(40),
        }
    }

    fn transport_header(&self) -> Bits {
        let mut header = Bits::unknown(20);
        let [(_, source), (_, destination)] = self.ends();
        put(&mut header, 0, &source.to_be_bytes());
        put(&mut header, 2, &destination.to_be_bytes());
        (header.value[13], header.known[13]) = FLAGS;
        header
    }
}

fn put(bits: &mut Bits, at: usize, value: &[u8]) {
    bits.value[at..at + value.len()].copy_from_slice(value);
    bits.known[at..at + value.len()].fill(0xff);
}

fn cut(bits: &Bits, at: usize, to: Span, registers: &mut Registers) {
    let range = at..at.saturating_add(to.len);
    match bits.value.get(range.clone()).zip(bits.known.get(range)) {
        Some((value, known)) => registers.copy(to.at, value, known),
        None => registers.forget(to),
    }
}
