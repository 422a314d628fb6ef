//! Segments that the kernel receives again, over the interface by which they came.
//!
//! A SYN may open a new connection in place of one that an engine has in TIME-WAIT (RFC 9293
//! §3.6.1, RFC 6191 §2). Because of its addresses and ports it went to the engine, but it belongs
//! to a listener of the kernel. So it is given to the kernel like any frame of that interface: the
//! firewall, routing, and listeners bound to a device see it unchanged. A BPF program that is run
//! once does this (`bpf/programs/arrive.c`), because a packet socket can only send.

use crate::raw;
use aya::programs::{SchedClassifier, TestRun, TestRunOptions};
use aya::{Ebpf, EbpfLoader};
use baton_wire::addr::Tuple;
use baton_wire::packet::PROTOCOL_TCP;
use baton_wire::tcp::Flags;
use baton_wire::tcp::header::{Segment, fill_checksum};

use super::error::SteerError;

/// The offset of `ifindex` in `struct __sk_buff` (include/uapi/linux/bpf.h).
const IFINDEX: usize = 40;
const PROGRAM: &str = "arrive";
const LOADING: &str = "loading the program that injects segments";
/// A locally administered link address that nobody uses.
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 0];
/// No SYN is longer than this many bytes.
const MOST: usize = 1500;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// Injects segments into the kernel's receive path.
pub struct Arrivals(Ebpf);

impl Arrivals {
    /// Loads the program.
    ///
    /// # Errors
    /// [`SteerError`] with the remedy.
    pub fn open() -> Result<Arrivals, SteerError> {
        let object = baton_bpf::arrive().ok_or(SteerError::NotBuilt)?;
        let mut ebpf = EbpfLoader::new().load(object).map_err(|error| SteerError::kernel(LOADING, error))?;
        let program = ebpf.program_mut(PROGRAM).expect("arrive.c has a program of that name");
        let program: &mut SchedClassifier = program.try_into().expect("the program is a classifier");
        program.load().map_err(|error| SteerError::kernel(LOADING, error))?;
        Ok(Arrivals(ebpf))
    }

    /// Injects a SYN of this connection, given from its TCP header on, on the interface with this
    /// index and link address in the thread's network namespace. Its ports are set to the
    /// connection's. A segment that is not a SYN is not injected.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn syn(&self, interface: u32, mac: [u8; 6], tuple: &Tuple, syn: &[u8]) -> Result<(), SteerError> {
        let Some(frame) = frame_of(mac, tuple, syn) else { return Ok(()) };
        let program = self.0.program(PROGRAM).expect("arrive.c has a program of that name");
        let program: &SchedClassifier = program.try_into().expect("the program is a classifier");
        let mut context = [0; IFINDEX + size_of::<u32>()];
        context[IFINDEX..].copy_from_slice(&interface.to_ne_bytes());
        let options = TestRunOptions { data_in: Some(&frame), ctx_in: Some(&context), ..TestRunOptions::new() };
        program.test_run(options).map_err(|error| SteerError::kernel("injecting a segment", error))?;
        Ok(())
    }
}

/// An Ethernet frame that contains this SYN. `None` if the segment is not a SYN.
fn frame_of(mac: [u8; 6], tuple: &Tuple, syn: &[u8]) -> Option<Vec<u8>> {
    let flags = Segment::parse(syn).ok()?.header.flags;
    if syn.len() > MOST || !flags.contains(Flags::SYN) || flags.intersects(Flags::ACK | Flags::RST | Flags::FIN) {
        return None;
    }
    let mut segment = syn.to_vec();
    segment[..2].copy_from_slice(&tuple.remote_port.to_be_bytes());
    segment[2..4].copy_from_slice(&tuple.local_port.to_be_bytes());
    fill_checksum(&mut segment, tuple.remote, tuple.local).ok()?;
    let packet = raw::packet(PROTOCOL_TCP, &segment, tuple.remote, tuple.local);
    let ether_type = if tuple.local.is_v4() { IPV4 } else { IPV6 };
    Some([&mac[..], &FROM, &ether_type, &packet].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_wire::checksum;
    use baton_wire::packet::{Link, Packet};
    use baton_wire::tcp::header::Header;
    use std::net::IpAddr;

    fn tuple(local: &str, remote: &str) -> Tuple {
        let [local, remote] = [local, remote].map(|text| text.parse::<IpAddr>().unwrap().into());
        Tuple { local, remote, local_port: 80, remote_port: 40_000 }
    }

    /// A segment with ports that are not the connection's.
    fn syn(flags: Flags, payload: usize) -> Vec<u8> {
        let header = Header { src_port: 1, dst_port: 2, flags, ..Header::default() };
        let mut segment = vec![0; 60];
        let len = header.write(&[], &mut segment).unwrap();
        segment.truncate(len);
        segment.resize(len + payload, 7);
        segment
    }

    #[test]
    fn a_syn_is_the_connections_and_whole() {
        for (local, remote) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let tuple = tuple(local, remote);
            let frame = frame_of([2, 0, 0, 0, 0, 1], &tuple, &syn(Flags::SYN, 10)).unwrap();
            let packet = Packet::parse(&frame, Link::Ethernet).unwrap();
            assert_eq!((packet.src, packet.dst), (tuple.remote, tuple.local));
            assert_eq!((packet.src_port, packet.dst_port), (40_000, 80));
            assert_eq!(packet.payload(&frame), [7; 10]);
            let sum = packet.header_sum(&frame) + checksum::sum(packet.payload(&frame));
            assert_eq!(checksum::fold(sum), 0xffff);
        }
    }

    #[test]
    fn what_is_no_syn_does_not_arrive() {
        let tuple = tuple("10.0.0.1", "10.0.0.2");
        let frame = |segment: &[u8]| frame_of([0; 6], &tuple, segment);
        for flags in [Flags::ACK, Flags::RST, Flags::SYN | Flags::ACK, Flags::SYN | Flags::RST, Flags::SYN | Flags::FIN]
        {
            assert_eq!(frame(&syn(flags, 0)), None, "{flags:?}");
        }
        assert_eq!(frame(&syn(Flags::SYN, MOST)), None);
        assert_eq!(frame(&syn(Flags::SYN, 0)[..19]), None);
        assert_eq!(frame(&[]), None);
    }
}
