//! The table of costs: instructions of each step, each entry with its source.
//!
//! An entry is *calibrated* (from the rows of [`crate::calibration`] alone), or *estimated* and then
//! read by no row of the paper. Memory references of the host come on top ([`crate::cache`]).

/// Instructions of each step, and what the NIC's queues hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// NIC: a packet passed between wire and host. Calibrated: 62 % idle at 23,031 requests/s (CH
    /// table 1, first row).
    pub nic_host_packet: u64,
    /// NIC: a packet of a connection that it has, received or sent. Calibrated: 1 Gb/s of one
    /// connection beside 1 Gb/s of the host at 400 MIPS (CH §4.1).
    pub nic_tcp_packet: u64,
    /// NIC: the lookup of a received packet. Estimated: a hash and a compare (CH §2: "a small
    /// amount").
    pub nic_lookup: u64,
    /// NIC: a command from the host, or a message to it. Estimated: as a host packet, which is a descriptor
    /// and a DMA as well.
    pub nic_message: u64,
    /// NIC: taking a connection over. Estimated: 1 KB of state (CH §2), a word an instruction and as
    /// many again.
    pub nic_handoff: u64,
    /// Host: a packet through driver, IP and TCP. Calibrated: 57 % of the cycles below the system
    /// calls (CH §5.1).
    pub host_packet: u64,
    /// Host: a turn of the server program, which accepts, answers, goes on writing or closes, with its
    /// system calls. Calibrated: 23,031 requests/s.
    pub host_turn: u64,
    /// Host: a message of the bypass layer, either way. Estimated: a third of a packet, as it has a
    /// driver and a socket but no IP and TCP.
    pub host_bypass: u64,
    /// Host: handing a connection off, or taking it back. Estimated: twice a packet.
    pub host_handoff: u64,
    /// Host: a page of 4 KB of a file that main memory does not hold. Calibrated: 69 % idle time of the
    /// NIC while S saturates the host (CH §5.1). It bears all that S costs more than W.
    pub host_page: u64,
    /// Host: a dynamic response, but for its bytes. Estimated: eight turns, as the server and the program
    /// that makes the response hand it to each other in pieces of a pipe's buffer.
    pub host_dynamic: u64,
    /// NIC: packets that a ring holds, of those received and of those that the host sends. Estimated: 128,
    /// as in the Tigon of 1997, which the paper's NIC is like (CH §4.1; Linux's `acenic.h` has the size).
    /// Without host first, received packets wait there.
    pub nic_ring: u64,
    /// NIC: received packets that it holds in its memory, with host first, behind the lookup. Estimated:
    /// twice `Hiwat`, which is to leave room before packets are dropped (CH §3.2).
    pub nic_queue: u64,
}

/// One cost: its name, and access to it.
pub type Entry = (&'static str, fn(&mut Costs) -> &mut u64);

impl Costs {
    /// All costs by name, for the sensitivity table.
    pub const ENTRIES: [Entry; 13] = [
        ("nic_host_packet", |c| &mut c.nic_host_packet),
        ("nic_tcp_packet", |c| &mut c.nic_tcp_packet),
        ("nic_lookup", |c| &mut c.nic_lookup),
        ("nic_message", |c| &mut c.nic_message),
        ("nic_handoff", |c| &mut c.nic_handoff),
        ("host_packet", |c| &mut c.host_packet),
        ("host_turn", |c| &mut c.host_turn),
        ("host_bypass", |c| &mut c.host_bypass),
        ("host_handoff", |c| &mut c.host_handoff),
        ("host_page", |c| &mut c.host_page),
        ("host_dynamic", |c| &mut c.host_dynamic),
        ("nic_ring", |c| &mut c.nic_ring),
        ("nic_queue", |c| &mut c.nic_queue),
    ];
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            nic_host_packet: 693,
            nic_tcp_packet: 2356,
            nic_lookup: 60,
            nic_message: 693,
            nic_handoff: 512,
            host_packet: 4928,
            host_turn: 28_836,
            host_bypass: 1642,
            host_handoff: 9856,
            host_page: 77_407,
            host_dynamic: 230_688,
            nic_ring: 128,
            nic_queue: 2048,
        }
    }
}
