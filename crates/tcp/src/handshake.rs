//! The agreement of two SYNs (RFC 9293 §3.7.1, RFC 7323 §2-3, RFC 2018 §2, RFC 3168 §6.1.1).

use crate::command::SynReply;
use crate::config::Config;
use crate::path::{MIN_MSS, Path};
use crate::segment::Segment;
use baton_wire::seq::{Seq, Window, WindowScale};
use baton_wire::tcp::Flags;

/// Values that the opener of a connection supplies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    /// Our initial sequence number ([`crate::isn::Key::iss`]).
    pub iss: Seq,
    /// Limits of the path: its MTU and IP version.
    pub path: Path,
    /// Bytes of receive buffers that the consumer has posted already.
    pub rcv_space: u32,
    /// Added to the millisecond clock for our TSval ([`crate::isn::Key::ts_offset`]).
    pub ts_offset: u32,
}

/// Options that both sides agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Agreed {
    /// The peer's MSS, in bytes: what it said, or the default.
    pub peer_mss: u16,
    /// The peer's shift, if both scale.
    pub snd_wscale: Option<WindowScale>,
    /// Both send SACK.
    pub sack: bool,
    /// Both send timestamps.
    pub timestamps: bool,
    /// Both do ECN.
    pub ecn: bool,
    /// Both go without checksums.
    pub unsummed: bool,
}

impl Agreed {
    /// The options agreed on by `syn` and our own offer. A SYN that answers ours grants ECN
    /// with ECE alone; one that opens asks for it with ECE and CWR (RFC 3168 §6.1.1).
    pub fn with(config: &Config, path: Path, syn: &Segment) -> Agreed {
        let asked = syn.flags.without(Flags::ACK | Flags::SYN);
        let ecn = if syn.flags.contains(Flags::ACK) {
            asked.contains(Flags::ECE) && !asked.contains(Flags::CWR)
        } else {
            asked.contains(Flags::ECE | Flags::CWR)
        };
        Agreed {
            // MUST-15 (RFC 9293 §3.7.1): the default if the option is missing.
            peer_mss: syn.syn.mss.unwrap_or(path.default_mss()).max(MIN_MSS),
            snd_wscale: syn.syn.window_scale.filter(|_| config.window_scaling).map(WindowScale::new),
            sack: config.sack && syn.syn.sack_permitted,
            timestamps: config.timestamps && syn.timestamps.is_some(),
            ecn: config.ecn && ecn,
            unsummed: config.unsummed && path.on_link && syn.syn.unsummed,
        }
    }

    /// The options of the SYN-ACK that confirms this.
    pub fn reply(&self, config: &Config, path: Path) -> SynReply {
        SynReply {
            // MUST-14, MAY-3, MUST-65 (RFC 9293 §3.7.1): sent in each SYN and in nothing else.
            mss: path.mss_limit(),
            window_scale: self.snd_wscale.map(|_| our_scale(config)),
            sack_permitted: self.sack,
            unsummed: self.unsummed,
        }
    }
}

/// The options of the SYN that opens a connection.
pub(crate) fn offer(config: &Config, path: Path) -> SynReply {
    SynReply {
        // MUST-14 (RFC 9293 §3.7.1)
        mss: path.mss_limit(),
        window_scale: config.window_scaling.then(|| our_scale(config)),
        sack_permitted: config.sack,
        unsummed: false,
    }
}

/// The shift that we offer: the smallest that shows `max_window`.
pub(crate) fn our_scale(config: &Config) -> WindowScale {
    WindowScale::for_window(Window(config.max_window))
}
