//! The statements of RSC §5 (*Receive Side Coalescing for Accelerating TCP/IP Processing*), and what the
//! transfers here say to each.

use super::{Cell, Outcome, STUDIED};
use crate::experiment::{Source, Statement};
use crate::papers::RSC;
use crate::report::claim::Claim;
use baton_analyse::sweep::Axis;

const fn figure(place: &'static str) -> Source {
    Source { paper: &RSC, place }
}

const STATEMENTS: [Statement<Outcome>; 7] = [
    Statement {
        source: figure("figure 4"),
        says: "\"about 50 to 80% coalescing is possible, and there is not much variation […] between 4, 8 and 16 \
               connections\"",
        judge: |outcome| at_least_half(&base(outcome, &[4, 8, 16]), "messages of 2 KB and more"),
    },
    Statement {
        source: figure("figure 5"),
        says: "\"we can still achieve more than 50% coalescing […] even when there are large number of connections\"",
        judge: |outcome| at_least_half(&base(outcome, &[16, 30, 60, 90]), "messages of 2 KB and more"),
    },
    Statement {
        source: figure("figure 6"),
        says: "\"RSC cache size of 3 entries allows us to achieve close to maximum coalescing\"",
        judge: |outcome| {
            let large = studied(outcome).filter(|cell| cell.message >= 2048).map(|cell| cell.message);
            let more = gains(outcome, large, Axis::Cache, 3, 8);
            Some((
                format!("8 entries add {} of the frames to what 3 join", range(&more)?),
                all(&more, |gain| gain.abs() <= 0.05),
            ))
        },
    },
    Statement {
        source: figure("figure 7"),
        says: "\"8KB buffer yields more coalescing for payloads larger than 4KB\"",
        judge: |outcome| {
            let more = gains(outcome, [8 << 10, 16 << 10, 32 << 10, 64 << 10], Axis::Buffer, 4096, 8192);
            Some((format!("8 KB join {} more of the frames than 4 KB", range(&more)?), all(&more, |gain| gain > 0.0)))
        },
    },
    Statement {
        source: figure("figure 7"),
        says: "\"amount of coalescing is same with 4 and 8 KB buffers for 2KB and 4KB payload sizes\"",
        judge: |outcome| {
            let more = gains(outcome, [2 << 10, 4 << 10], Axis::Buffer, 4096, 8192);
            Some((format!("8 KB join {} more of the frames", range(&more)?), all(&more, |gain| gain.abs() <= 0.01)))
        },
    },
    Statement {
        source: figure("figure 8"),
        says: "\"we can achieve more than 50% coalescing even with a 16 packet window\"",
        judge: |outcome| {
            let sixteen: Vec<f64> = SIZES.iter().filter_map(|size| share(outcome, *size, Axis::Window, 16)).collect();
            at_least_half(&sixteen, "messages of 4, 8 and 16 KB")
        },
    },
    Statement {
        source: figure("figure 8"),
        says: "\"from 16 packets to 32 packets shows 5-10% improvement in coalescing and beyond 32 packets the rate of \
               improvement diminishes\"",
        judge: |outcome| {
            let doubled = gains(outcome, SIZES, Axis::Window, 16, 32);
            let further = gains(outcome, SIZES, Axis::Window, 32, 64);
            let here =
                format!("32 for 16 adds {} of the frames, 64 for 32 adds {}", range(&doubled)?, range(&further)?);
            let less = doubled.iter().zip(&further).all(|(first, second)| second <= first);
            Some((here, less && all(&doubled, |gain| (0.05..=0.1).contains(&gain))))
        },
    },
];

/// Message sizes of the statements about the window.
const SIZES: [usize; 3] = [4 << 10, 8 << 10, 16 << 10];

/// The statements, compared with the transfers.
pub fn claims(outcome: &Outcome) -> Vec<Claim> {
    STATEMENTS.iter().map(|statement| statement.claim(outcome)).collect()
}

/// The shares of frames joined by the paper's rules, with these numbers of senders and messages of 2 KB and
/// more.
fn base(outcome: &Outcome, senders: &[usize]) -> Vec<f64> {
    let wanted = |cell: &&Cell| senders.contains(&cell.senders) && cell.message >= 2048;
    outcome.cells.iter().filter(wanted).map(Cell::base).collect()
}

/// The transfers with the paper's number of senders.
fn studied(outcome: &Outcome) -> impl Iterator<Item = &Cell> {
    outcome.cells.iter().filter(|cell| cell.senders == STUDIED)
}

fn share(outcome: &Outcome, message: usize, axis: Axis, value: u32) -> Option<f64> {
    studied(outcome).find(|cell| cell.message == message)?.share(axis, value)
}

/// The share that `to` joins more than `from`, for each message size that was measured.
fn gains(outcome: &Outcome, messages: impl IntoIterator<Item = usize>, axis: Axis, from: u32, to: u32) -> Vec<f64> {
    let gain = |message| Some(share(outcome, message, axis, to)? - share(outcome, message, axis, from)?);
    messages.into_iter().filter_map(gain).collect()
}

fn at_least_half(shares: &[f64], with: &str) -> Option<(String, bool)> {
    Some((format!("{} with {with}", range(shares)?), all(shares, |share| share >= 0.5)))
}

fn all(shares: &[f64], holds: impl Fn(f64) -> bool) -> bool {
    shares.iter().all(|share| holds(*share))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// "a to b" of some shares; `None` if there are none.
fn range(shares: &[f64]) -> Option<String> {
    let (low, high) = shares
        .iter()
        .map(|share| (*share, *share))
        .reduce(|(low, high), (share, _)| (low.min(share), high.max(share)))?;
    Some(format!("{} to {}", percent(low), percent(high)))
}
