//! The workloads of CH table 3: which requests a connection makes, and when.
//!
//! ```text
//!   Kind --generator(seed)--> Workload --session()--> Session: the requests of a connection
//!   trace::Replay ------------^
//! ```
//!
//! The generators follow documented distributions, and reproduce figure 4: half of the connections send
//! less than a tenth of the packets, and the longest tenth more than 45 %. A trace can stand in for them
//! ([`crate::trace`]).

pub mod distributions;
pub mod sites;
pub mod specweb;

use crate::stack::MSS;

/// Bytes of a request and of a response's head. Estimated: what browsers and servers of 1998 sent.
pub const REQUEST_BYTES: u32 = 300;
/// See [`REQUEST_BYTES`].
pub const HEAD_BYTES: u32 = 250;

/// One request of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Which file it asks for.
    pub file: u32,
    /// Bytes of the response, with its head.
    pub bytes: u32,
    /// A program makes the response, as 30 % of SPECweb99's.
    pub dynamic: bool,
    /// The server's main memory holds the file.
    pub cached: bool,
}

impl Request {
    /// Packets that the server sends for data: the head's, and the content's.
    pub fn packets(self) -> u32 {
        1 + (self.bytes - HEAD_BYTES).div_ceil(MSS)
    }
}

/// The requests that a connection will make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// The requests, in order.
    pub requests: Vec<Request>,
    /// The most that its client receives, in kb/s; a client without this bound asks at once.
    pub kbps: Option<u32>,
}

impl Session {
    /// Packets that the server sends for data.
    pub fn packets(&self) -> u32 {
        self.requests.iter().map(|request| request.packets()).sum()
    }
}

/// Gives connections what they will do.
pub trait Workload {
    /// The next connection's requests, at least one; nothing at the end of a trace.
    fn session(&mut self) -> Option<Session>;
}

/// A workload of CH table 3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// W: the World Cup's site.
    WorldCup,
    /// I: IBM's site.
    Ibm,
    /// D: SPECweb99.
    SpecWeb,
    /// S: SPECweb99 with static content alone.
    SpecWebStatic,
}

impl Kind {
    /// All workloads, in the paper's order.
    pub const ALL: [Kind; 4] = [Kind::WorldCup, Kind::Ibm, Kind::SpecWeb, Kind::SpecWebStatic];

    /// The paper's letter.
    pub const fn letter(self) -> &'static str {
        match self {
            Kind::WorldCup => "W",
            Kind::Ibm => "I",
            Kind::SpecWeb => "D",
            Kind::SpecWebStatic => "S",
        }
    }

    /// The number of clients in the paper.
    pub const fn clients(self) -> u32 {
        match self {
            Kind::WorldCup | Kind::Ibm | Kind::SpecWeb => 2048,
            Kind::SpecWebStatic => 4096,
        }
    }

    /// A generator of its sessions.
    pub fn generator(self, seed: u64) -> Box<dyn Workload> {
        match self {
            Kind::WorldCup => Box::new(sites::Site::world_cup(seed)),
            Kind::Ibm => Box::new(sites::Site::ibm(seed)),
            Kind::SpecWeb => Box::new(specweb::SpecWeb::new(seed, self.clients(), true)),
            Kind::SpecWebStatic => Box::new(specweb::SpecWeb::new(seed, self.clients(), false)),
        }
    }
}

/// Shares of all packets, in percent: of the half of the connections that sends least, and of the tenth
/// that sends most (CH figure 4).
pub fn shares(workload: &mut dyn Workload, sessions: usize) -> (f64, f64) {
    let mut packets: Vec<u32> =
        (0..sessions).filter_map(|_| workload.session()).map(|session| session.packets()).collect();
    packets.sort_unstable();
    let sum = |part: &[u32]| part.iter().map(|&packets| f64::from(packets)).sum::<f64>();
    let all = sum(&packets).max(1.0);
    let (half, tenth) = (sessions / 2, sessions - sessions / 10);
    (100.0 * sum(&packets[..half]) / all, 100.0 * sum(&packets[tenth..]) / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CH figure 4.
    #[test]
    fn half_of_the_connections_send_less_than_a_tenth_and_the_longest_tenth_more_than_45_percent() {
        for kind in Kind::ALL {
            let (half, tenth) = shares(kind.generator(1).as_mut(), 20_000);
            let sessions: Vec<Session> = {
                let mut generator = kind.generator(1);
                (0..20_000).filter_map(|_| generator.session()).collect()
            };
            let requests = sessions.iter().map(|s| s.requests.len()).sum::<usize>() as f64;
            let bytes = sessions.iter().flat_map(|s| &s.requests).map(|r| f64::from(r.bytes)).sum::<f64>();
            let packets = sessions.iter().map(|s| f64::from(s.packets())).sum::<f64>();
            println!(
                "{kind:?}: half {half:.1} %, tenth {tenth:.1} %, {:.2} requests of {:.0} bytes, {:.1} packets each",
                requests / 20_000.0,
                bytes / requests,
                packets / requests
            );
            assert!(half < 10.0, "{kind:?}: {half}");
            assert!(tenth > 45.0, "{kind:?}: {tenth}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_sessions() {
        for kind in Kind::ALL {
            let (mut one, mut two) = (kind.generator(7), kind.generator(7));
            for _ in 0..100 {
                assert_eq!(one.session(), two.session(), "{kind:?}");
            }
        }
    }
}
