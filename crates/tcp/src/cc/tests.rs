//! The curves against the RFCs' formulas in floating point.

use super::cubic::{integer_cbrt, w_cubic};
use super::*;

const MSS: u16 = 1460;
const TICK_S: f64 = 1.048_576e-3;

fn acked(now_ms: u64, bytes: u32, acks: u16, rtt_ms: u64) -> Acked {
    Acked {
        now: Instant(now_ms * 1_000_000),
        bytes,
        acks,
        mss: MSS,
        srtt: Duration::from_millis(rtt_ms),
        rtt: Some(Duration::from_millis(rtt_ms)),
        snd_una: Seq(bytes),
        snd_nxt: Seq(bytes),
        after_timeout: false,
    }
}

#[test]
fn cube_root_is_the_floor() {
    for x in (0..100_000).chain([1 << 40, u64::MAX >> 2, (1 << 60) - 1, 999_999_999_999]) {
        let root = u64::from(integer_cbrt(x));
        assert!(root * root * root <= x);
        assert!(root == (1 << 22) - 1 || (root + 1) * (root + 1) * (root + 1) > x, "{x}");
    }
}

#[test]
fn curve_is_that_of_rfc_9438() {
    for w_max in [20_000u32, 200_000, 5_000_000] {
        for cwnd in [w_max * 7 / 10, w_max / 2] {
            let diff = f64::from(w_max - cwnd) / f64::from(MSS);
            let k_s = (diff / 0.4).cbrt();
            let k = integer_cbrt(u64::from(w_max - cwnd) * 2_168_404_345 / u64::from(MSS));
            assert!((f64::from(k) * TICK_S - k_s).abs() < 0.002, "K {k_s}");
            for t in (0..20_000u32).step_by(37) {
                let exact = 0.4 * (f64::from(t) * TICK_S - k_s).powi(3) * f64::from(MSS) + f64::from(w_max);
                let ours = f64::from(w_cubic(t, k, w_max, u32::from(MSS)));
                assert!((ours - exact).abs() < 0.002 * exact.abs() + 100.0, "t {t}: {ours} {exact}");
            }
        }
    }
    assert_eq!(w_cubic(u32::MAX, 0, 10_000, 65_535), MAX_CWND, "far out it saturates");
    assert_eq!(w_cubic(0, u32::MAX, 10_000, 65_535), 0);
}

/// Runs a flow that is always limited by `cwnd` and returns its window over time.
fn evolve(kind: Congestion, start: u32, rtt_ms: u64, total_ms: u64) -> Vec<(f64, u32)> {
    let mut cc = Cc::new(kind, MSS);
    cc.cwnd = start;
    cc.on_congestion(Signal::Congestion, start, MSS);
    let mut out = Vec::new();
    let mut ms = 0;
    while ms < total_ms {
        // An RTT: the window's ACKs, evenly spread over it in ten parts.
        let window = cc.cwnd;
        for part in 0..10 {
            cc.on_ack(&acked(1_000 + ms + part * rtt_ms / 10, window / 10, 1, rtt_ms));
        }
        ms += rtt_ms;
        out.push((ms as f64 / 1000.0, cc.cwnd));
    }
    out
}

#[test]
fn a_window_follows_the_curve() {
    let start: u32 = 1_000 * u32::from(MSS);
    let k = (0.3f64 * 1_000.0 / 0.4).cbrt();
    for (t, cwnd) in evolve(Congestion::Cubic, start, 50, 15_000) {
        let exact = 0.4 * (t - k).powi(3) + 1_000.0;
        let ours = f64::from(cwnd) / f64::from(MSS);
        assert!((ours - exact).abs() < 0.04 * exact, "at {t} s: {ours:.1}, RFC 9438 says {exact:.1}");
    }
}

#[test]
fn a_short_rtt_gets_what_reno_would() {
    // RFC 9438 §4.3: with a small window and RTT the cubic term is below Reno's.
    let start: u32 = 20 * u32::from(MSS);
    let cubic = evolve(Congestion::Cubic, start, 5, 500);
    let reno = evolve(Congestion::Reno, start, 5, 500);
    let (cubic, reno) = (cubic[99].1, reno[99].1);
    assert!(cubic >= reno - reno / 4, "{cubic} {reno}");
}

#[test]
fn reno_adds_a_segment_a_window() {
    // tests: MUST-19
    let windows = evolve(Congestion::Reno, 200 * u32::from(MSS), 100, 5_000);
    let grown = (windows[49].1 - windows[0].1) / u32::from(MSS);
    assert!((47..=50).contains(&grown), "{grown} in 49 round trips");
}

#[test]
fn reductions_are_half_and_seven_tenths() {
    for (kind, ssthresh) in [(Congestion::Reno, 50_000), (Congestion::Cubic, 70_000)] {
        let mut cc = Cc::new(kind, 1000);
        cc.cwnd = 100_000;
        cc.on_congestion(Signal::Congestion, 100_000, 1000);
        assert_eq!((cc.cwnd, cc.ssthresh), (ssthresh, ssthresh));
        cc.on_congestion(Signal::Timeout, 2_000, 1000);
        assert_eq!((cc.cwnd, cc.ssthresh), (1_000, 2_000), "never below two segments");
    }
}

#[test]
fn fast_convergence_gives_way() {
    let mut cc = Cc::new(Congestion::Cubic, 1000);
    cc.cwnd = 100_000;
    cc.on_congestion(Signal::Congestion, 100_000, 1000);
    cc.on_congestion(Signal::Congestion, 70_000, 1000);
    // W_max is now 0.85 of the 70,000 it fell from, so cwnd of 49,000 aims for 59,500.
    cc.on_ack(&acked(1, 1, 1, 10));
    assert_eq!(cc.memory, Memory::of(59_500, 70_000));
}

#[test]
fn slow_start_counts_bytes_up_to_eight_segments_an_ack() {
    let mut cc = Cc::new(Congestion::Cubic, MSS);
    let before = cc.cwnd;
    cc.on_ack(&acked(1, 2 * u32::from(MSS), 1, 10));
    assert_eq!(cc.cwnd - before, 2 * u32::from(MSS));
    let before = cc.cwnd;
    cc.on_ack(&acked(1, 44 * u32::from(MSS), 1, 10));
    assert_eq!(cc.cwnd - before, 8 * u32::from(MSS));
    let before = cc.cwnd;
    cc.on_ack(&Acked { after_timeout: true, ..acked(1, 44 * u32::from(MSS), 3, 10) });
    assert_eq!(cc.cwnd - before, 3 * u32::from(MSS), "RFC 3465 §2.3");
}

#[test]
fn a_rising_rtt_ends_slow_start_early() {
    let mut cc = Cc::new(Congestion::Cubic, MSS);
    let mut una = 0u32;
    let mut ms = 0;
    for round in 0..12u64 {
        let rtt = if round < 3 { 40 } else { 60 };
        let (window, end) = (cc.cwnd, una + cc.cwnd);
        let mut left = window;
        while left > 0 {
            let bytes = left.min(2 * u32::from(MSS));
            left -= bytes;
            una += bytes;
            cc.on_ack(&Acked { snd_una: Seq(una), snd_nxt: Seq(end), ..acked(ms, bytes, 1, rtt) });
        }
        ms += rtt;
    }
    assert!(!cc.in_slow_start(), "RFC 9406: conservative slow start, then avoidance");
    assert!(cc.cwnd < 3_000_000, "{}", cc.cwnd);
}

#[test]
fn bundles_of_acknowledgments_grow_the_window_alike() {
    for kind in [Congestion::Reno, Congestion::Cubic] {
        for bundle in 1..20u16 {
            let (mut single, mut bundled) = (Cc::new(kind, MSS), Cc::new(kind, MSS));
            for cc in [&mut single, &mut bundled] {
                cc.cwnd = 60_000;
                cc.ssthresh = 150_000;
            }
            for step in 0..2_000u64 {
                let bytes = 2 * u32::from(MSS);
                for _ in 0..bundle {
                    single.on_ack(&acked(step, bytes, 1, 20));
                }
                bundled.on_ack(&acked(step, bytes * u32::from(bundle), bundle, 20));
                assert_eq!(single.cwnd, bundled.cwnd, "{kind:?} bundles of {bundle}, step {step}");
            }
        }
    }
}

#[test]
fn time_without_data_does_not_move_the_curve() {
    let run = |pause_ms: u64| {
        let mut cc = Cc::new(Congestion::Cubic, MSS);
        cc.cwnd = 500_000;
        cc.on_congestion(Signal::Congestion, 500_000, MSS);
        for ms in 0..1_000 {
            cc.on_ack(&acked(ms, 10_000, 1, 50));
        }
        if pause_ms > 0 {
            cc.on_unlimited_ack();
        }
        for ms in 1_000..2_000 {
            cc.on_ack(&acked(ms + pause_ms, 10_000, 1, 50));
        }
        cc.cwnd
    };
    assert!(run(0).abs_diff(run(60_000)) <= 2 * u32::from(MSS));
}
