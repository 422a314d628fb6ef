//! Peers that are nothing but numbers: their frames are stamped from templates,
//! and a wire that carries them.

use baton_engine::frame_io::{Capabilities, FrameIo, FrameSink, PayloadPart, PortError, RxFrame, RxMeta, TxMeta};
use baton_wire::addr::Addr;
use baton_wire::checksum;
use baton_wire::seq::Seq;
use baton_wire::tcp::header::{Header, fill_checksum};
use baton_wire::tcp::options::TcpOption;
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};
use baton_wire::template::{Emit, Route, Template};

/// Bytes of a request and of its answer.
pub const SIZE: u32 = 64;
/// Connections of one peer address.
const A_PEER: u32 = 50_000;
/// Offset of the TCP header.
const TCP: usize = 34;
/// Our Ethernet and IP address, and the peers'.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];
/// Where the peers' sequence numbers begin.
const PEER_ISS: u32 = 1000;

/// What a peer has to remember of its connection.
#[derive(Clone, Copy, Default)]
struct Peer {
    iss: u32,
    /// Requests sent.
    requests: u32,
}

/// All peers.
pub struct Peers(Vec<Peer>);

/// A wire: frames in are taken from a list, frames out are counted, or kept.
#[derive(Default)]
pub struct Wire {
    /// Frames to be received.
    pub frames: Vec<Vec<u8>>,
    /// Those up to here were.
    pub taken: usize,
    /// Frames to be taken up to here.
    pub ready: usize,
    /// Frames sent, if they are wanted.
    pub kept: Option<Vec<Vec<u8>>>,
    slot: Vec<u8>,
}

impl Peers {
    /// So many, their memory touched.
    pub fn new(count: u32) -> Peers {
        Peers(vec![Peer { iss: 1, requests: 0 }; count as usize])
    }

    fn template(index: u32) -> Template {
        let [_, b, c, d] = (index / A_PEER + 0x10000).to_be_bytes();
        let mut link = [0; 14];
        link[..6].copy_from_slice(&MAC);
        link[6..12].copy_from_slice(&PEER_MAC);
        let route = Route {
            link: &link,
            src: Addr::v4([10, b, c, d]),
            dst: Addr::v4(SERVER),
            src_port: (10_000 + index % A_PEER) as u16,
            dst_port: 80,
            ttl: 64,
            traffic_class: 0,
            flow_label: 0,
        };
        Template::new(&route).expect("an Ethernet header")
    }

    fn emit(template: &Template, seq: u32, ack: u32, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 32 + payload.len()];
        let segment = Emit {
            seq: Seq(seq),
            ack: Seq(ack),
            flags: Flags::ACK,
            window: 1024,
            urgent: 0,
            ts: Some(Timestamps { val: 1, ecr: 0 }),
            sack: &SackBlocks::EMPTY,
            payload_len: payload.len() as u32,
            payload_sum: Some(checksum::sum(payload)),
            ip_id: 0,
            ecn: 0,
        };
        let headers = template.emit(&mut frame, &segment);
        frame[headers..].copy_from_slice(payload);
        frame
    }

    /// The SYN of a connection.
    pub fn syn(&self, index: u32) -> Vec<u8> {
        let template = Peers::template(index);
        // A data segment's headers, with the length and TCP header of a SYN.
        let options = [
            TcpOption::Mss(1460),
            TcpOption::SackPermitted,
            TcpOption::Timestamps(Timestamps { val: 1, ecr: 0 }),
            TcpOption::WindowScale(7),
        ];
        let header = Header {
            src_port: (10_000 + index % A_PEER) as u16,
            dst_port: 80,
            seq: Seq(PEER_ISS),
            flags: Flags::SYN,
            window: 65_535,
            ..Header::default()
        };
        let mut tcp = [0; 60];
        let len = header.write(&options, &mut tcp).expect("room for all options");
        let mut frame = Peers::emit(&template, 0, 0, &vec![0; len - 32]);
        frame[TCP..].copy_from_slice(&tcp[..len]);
        let [_, b, c, d] = (index / A_PEER + 0x10000).to_be_bytes();
        fill_checksum(&mut frame[TCP..], Addr::v4([10, b, c, d]), Addr::v4(SERVER)).expect("a TCP header");
        frame
    }

    /// The ACK that answers a SYN-ACK.
    pub fn ack(&mut self, index: u32, syn_ack: &[u8]) -> Vec<u8> {
        let iss = syn_ack[TCP + 4..].first_chunk().copied().map(u32::from_be_bytes).expect("a TCP header");
        self.0[index as usize].iss = iss;
        Peers::emit(&Peers::template(index), PEER_ISS + 1, iss.wrapping_add(1), &[])
    }

    /// The next request of a connection, which acknowledges all answers before.
    pub fn request(&mut self, index: u32) -> Vec<u8> {
        let peer = &mut self.0[index as usize];
        let done = peer.requests * SIZE;
        peer.requests += 1;
        let (seq, ack) = ((PEER_ISS + 1).wrapping_add(done), peer.iss.wrapping_add(1).wrapping_add(done));
        Peers::emit(&Peers::template(index), seq, ack, &[7; SIZE as usize])
    }
}

impl FrameIo for Wire {
    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: 1500, ethernet: true, tx_checksum: false, tx_gso_max: 0, tx_gather: false }
    }

    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        let end = self.ready.min(self.taken + limit);
        let frames = &self.frames[self.taken..end];
        for burst in frames.chunks(baton_engine::frame_io::BURST) {
            let burst: arrayvec::ArrayVec<RxFrame<'_>, { baton_engine::frame_io::BURST }> =
                burst.iter().map(|data| RxFrame { data, meta: RxMeta::default() }).collect();
            sink.burst(&burst);
        }
        let count = frames.len();
        self.taken = end;
        Ok(count)
    }

    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.slot.len() < len {
            self.slot.resize(len, 0);
        }
        Some(&mut self.slot[..len])
    }

    fn commit(&mut self, len: usize, _meta: TxMeta) {
        if let Some(kept) = &mut self.kept {
            kept.push(self.slot[..len].to_vec());
        }
    }

    fn gather(&mut self, _header: &[u8], _payload: &[PayloadPart], _meta: TxMeta) -> bool {
        unreachable!("this port does not gather")
    }

    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }
}
