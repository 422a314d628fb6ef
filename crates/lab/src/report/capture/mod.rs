//! The report of `baton trace`, as text ([`text()`]) and as an HTML page ([`page()`]). Here are the
//! words that both share.

mod files;
mod page;
mod profiles;
mod text;

pub use page::page;
pub use text::text;

use super::caution::Caution;
use super::{short, thousands};
use baton_analyse::report::{Acks, Report, Rules, RunLength};

/// The rules in a line.
pub(super) fn rules(rules: &Rules) -> String {
    let limit = rules.limit.map_or("no limit".to_owned(), |limit| format!("{limit} segments"));
    let window = match (rules.window_packets, rules.window_us) {
        (Some(frames), _) => format!("a window of {frames} frames"),
        (None, Some(us)) => format!("a window of {us} µs"),
        (None, None) => "no window".to_owned(),
    };
    let (profile, cache, buffer) = (&rules.profile, rules.cache, rules.buffer);
    format!(
        "{profile}: {cache} runs at a time, {buffer} bytes and {limit} each, {window}, checksums: {}",
        rules.checksum
    )
}

fn time(ns: u64) -> String {
    match ns as f64 {
        ns if ns >= 1e9 => format!("{} s", short(ns / 1e9)),
        ns if ns >= 1e6 => format!("{} ms", short(ns / 1e6)),
        ns => format!("{} µs", short(ns / 1e3)),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn length(line: &RunLength) -> String {
    if line.from == line.to { line.from.to_string() } else { format!("{}–{}", line.from, line.to) }
}

fn verdict(report: &Report) -> String {
    format!("{}: {}", report.verdict.answer.word(), report.verdict.because)
}

fn sentence(report: &Report) -> String {
    format!(
        "{} of {} frames ({}) would be joined to another; a stack would see {}",
        thousands(report.eliminated),
        thousands(report.frames_in),
        percent(report.eliminated_share),
        thousands(report.frames_out),
    )
}

fn model(report: &Report) -> String {
    let prices = report.cpu.prices;
    format!(
        "{} of the CPU time by a model with {} ns per frame, {} ns per byte and {} ns per coalesced segment ({} s become {} s)",
        percent(report.cpu.saved),
        prices.frame_ns,
        prices.byte_ns,
        prices.segment_ns,
        short(report.cpu.without_seconds),
        short(report.cpu.with_seconds),
    )
}

fn delay(report: &Report) -> String {
    let delay = &report.added_delay_ns;
    let unmeasured = match delay.unmeasured {
        0 => String::new(),
        unmeasured => format!(" ({} not measured)", thousands(unmeasured)),
    };
    format!("p50 {}, p99 {}, max {}{unmeasured}", time(delay.p50), time(delay.p99), time(delay.max))
}

fn acks_saved(acks: &Acks) -> String {
    let share = if acks.without == 0 { 0.0 } else { acks.saved as f64 / acks.without as f64 };
    let [saved, without, bytes] = [acks.saved, acks.without, acks.saved_bytes].map(thousands);
    format!("{saved} of {without} ({}), {bytes} bytes, by one ACK for a run", percent(share))
}

/// Warnings that affect the results, the captures that were not read to their end among them.
fn cautions(report: &Report) -> Vec<Caution> {
    warnings(report).into_iter().chain(Caution::files(&report.files)).collect()
}

/// Warnings that affect the results of all captures.
fn warnings(report: &Report) -> Vec<Caution> {
    let links = Caution::links(&report.unknown_links);
    let reserved = report.reserved_bits.caution().map(Caution::new);
    let back = (report.stamps_back > 0).then(|| {
        let back = thousands(report.stamps_back);
        Caution::new(format!("time stamps that go back: {back}; delays and windows in time depend on them"))
    });
    let tunnels = report.tunnelled.cautions().map(Caution::new);
    let lengths = (report.lengths_bounded > 0).then(|| {
        let lengths = thousands(report.lengths_bounded);
        Caution::new(format!("lengths that the frame's IP header contradicts: {lengths}; what the header says counts"))
    });
    let forgotten = (report.flows_forgotten > 0).then(|| {
        let lost = thousands(report.flows_forgotten);
        Caution::new(format!(
            "more flows than the table holds: {lost} lost their place, figures of flows are lower bounds"
        ))
    });
    links.into_iter().chain(reserved).chain(tunnels).chain(back).chain(lengths).chain(forgotten).collect()
}
