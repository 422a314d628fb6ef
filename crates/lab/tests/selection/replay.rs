//! Bursts of packets replayed against an engine that has few places.

use super::clients::Burst;
use baton_policy::places::{MOVES_AT_MOST, Pace, Prices};
use baton_policy::survival::{Class, Lifetimes};
use std::collections::HashMap;

/// A rule by which places are given out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selection {
    /// Each connection that finds a place free.
    Fcfs,
    /// The same from a connection's Nth packet on (CH §5.2: T_N).
    After(u64),
    /// The rule `predict`.
    Predict,
    /// As `predict`, but by the packets and the time that are really still to come, and as if moves cost
    /// nothing.
    Oracle,
}

/// Results of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// All packets, after the warm-up.
    pub packets: u64,
    /// Those of connections that had a place.
    pub there: u64,
    /// Moves to the engine.
    pub moves: u64,
    /// The most moves of one connection to the engine.
    pub moves_most: u8,
    /// Connections that ended.
    pub connections: u64,
}

impl Counts {
    /// The share of packets at the engine.
    pub fn share(&self) -> f64 {
        self.there as f64 / self.packets.max(1) as f64
    }

    /// CPU time saved for each packet of all, less the moves, in nanoseconds.
    pub fn saved_ns(&self, prices: Prices) -> f64 {
        let saved = self.there as f64 * f64::from(prices.saving_ns) - self.moves as f64 * f64::from(prices.move_ns);
        saved / self.packets.max(1) as f64
    }
}

/// A connection as the capture has it.
#[derive(Clone, Copy, Debug, Default)]
struct Whole {
    packets: u64,
    last_ns: u64,
}

impl Whole {
    /// Packets a second of those that are still to come after `packets`, in the time that is left.
    fn rest(self, packets: u64, now_ns: u64) -> u64 {
        let rest_ns = self.last_ns.saturating_sub(now_ns).max(1);
        (u128::from(self.packets - packets) * 1_000_000_000 / u128::from(rest_ns)) as u64
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    packets: u64,
    pace: Pace,
    there: bool,
    moves: u8,
}

/// How many of those that have a place are compared with a newcomer: as many as a service can look at.
const LOOKS: usize = 16;

/// A connection's service is the same for all here.
const CLASS: Class = Class { rule: 0, port: 80 };

/// Replays bursts with places for `places` connections. Counts begin after `warm_up` packets.
pub fn replay(bursts: &[Burst], selection: Selection, places: usize, warm_up: u64, prices: Prices) -> Counts {
    let whole = wholes(bursts);
    let (mut known, mut there): (HashMap<u32, Connection>, Vec<u32>) = Default::default();
    let (mut lifetimes, mut counts, mut hand, mut seen) = (Lifetimes::new(4), Counts::default(), 0, 0);
    for burst in bursts {
        let id = burst.connection;
        let connection = known.entry(id).or_default();
        connection.packets += u64::from(burst.packets);
        connection.pace.add(burst.at_ns, burst.packets);
        seen += u64::from(burst.packets);
        if seen > warm_up {
            counts.packets += u64::from(burst.packets);
            counts.there += if connection.there { burst.packets.into() } else { 0 };
        }
        let now = *connection;
        if burst.ends {
            lifetimes.ended(CLASS, now.packets);
            counts.connections += 1;
            known.remove(&id);
            there.retain(|&other| other != id);
            continue;
        }
        if now.there || burst.packets == 0 || now.moves >= MOVES_AT_MOST && selection != Selection::Oracle {
            continue;
        }
        let gain_of = |id: u32, connection: &Connection| match (selection, connection.there) {
            (Selection::Oracle, _) => whole[&id].rest(connection.packets, burst.at_ns),
            (_, true) => prices.gain_there(connection.pace.per_second(burst.at_ns)),
            (_, false) => {
                let expected = lifetimes.expected(CLASS, connection.packets).packets;
                prices.gain(expected, connection.pace.per_second(burst.at_ns))
            }
        };
        let gain = gain_of(id, &now);
        let wants = match selection {
            Selection::Fcfs => true,
            Selection::After(packets) => now.packets >= packets,
            Selection::Predict | Selection::Oracle => gain > 0,
        };
        if !wants {
            continue;
        }
        if there.len() >= places {
            if !matches!(selection, Selection::Predict | Selection::Oracle) || places == 0 {
                continue;
            }
            let looks = if selection == Selection::Oracle { places } else { LOOKS.min(places) };
            let first = hand;
            let looked = (0..looks).map(|step| (first + step) % places);
            let gains = looked.map(|at| (at, gain_of(there[at], &known[&there[at]])));
            hand = (hand + looks) % places;
            let prices = if selection == Selection::Oracle { Prices { move_ns: 0, ..prices } } else { prices };
            let Some(loser) = prices.takes_over(gain, gains) else { continue };
            if let Some(loser) = known.get_mut(&there.swap_remove(loser)) {
                loser.there = false;
            }
        }
        there.push(id);
        if let Some(connection) = known.get_mut(&id) {
            (connection.there, connection.moves) = (true, connection.moves + 1);
            counts.moves_most = counts.moves_most.max(connection.moves);
        }
        counts.moves += u64::from(seen > warm_up);
    }
    counts
}

fn wholes(bursts: &[Burst]) -> HashMap<u32, Whole> {
    let mut all: HashMap<u32, Whole> = HashMap::new();
    for burst in bursts {
        let whole = all.entry(burst.connection).or_default();
        *whole = Whole { packets: whole.packets + u64::from(burst.packets), last_ns: burst.at_ns };
    }
    all
}

/// The packets of each connection, the longest first.
pub fn lifetimes(bursts: &[Burst]) -> Vec<u64> {
    let mut all: Vec<u64> = wholes(bursts).into_values().map(|whole| whole.packets).collect();
    all.sort_unstable_by_key(|&packets| std::cmp::Reverse(packets));
    all
}

/// The share of all packets that the first `part` of the connections sends, the longest first.
pub fn share_of_longest(lifetimes: &[u64], part: f64) -> f64 {
    let first = (lifetimes.len() as f64 * part) as usize;
    let sum = |some: &[u64]| some.iter().sum::<u64>() as f64;
    sum(&lifetimes[..first]) / sum(lifetimes).max(1.0)
}
