//! Bulk transfers in each direction over every wire, MTU and IP version, with and without faults.
//!
//! `BATON_INTEROP_BYTES` sets the size of each transfer, and `BATON_INTEROP_FAULTY_BYTES` the size
//! of each transfer with faults. `cargo xtask interop` runs the matrix with large sizes and prints
//! one row per transfer.

use crate::transfer::{self, Nginx, Site, Transfer};
use crate::wire::{Ip, Kind, Serve, Wire};
use baton_port::Faults;
use baton_testkit::{need_program, need_root};

/// MTUs, with the IP versions that they carry. 576 is the smallest that IPv4 hosts can rely on
/// (RFC 791), and 1280 the smallest for IPv6.
const LINKS: [(u32, &[Ip]); 4] =
    [(576, &[Ip::V4]), (1280, &[Ip::V6]), (1500, &[Ip::V4, Ip::V6]), (9000, &[Ip::V4, Ip::V6])];

const TRANSFERS: [Transfer; 4] = [Transfer::Curl, Transfer::Echo, Transfer::Get, Transfer::Put];

/// Size in bytes from which a transfer is sure to meet each fault at 1 %. With virtio headers a
/// frame has up to 64 KiB, so this is at least 1024 frames.
const LARGE: u64 = 64 << 20;

/// The faults. A small transfer in large frames has so few frames that 1 % might miss all of them.
fn faults(kind: Kind, mtu: u32, bytes: u64) -> Faults {
    let share = if kind == Kind::TapVnet && bytes < LARGE { 0.03 } else { 0.01 };
    Faults { loss: share, reorder: share, dup: share, corrupt: 0.001, seed: mtu.into() }
}

fn size(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number of bytes"))
}

fn matrix(kind: Kind) {
    let bytes = size("BATON_INTEROP_BYTES", 8 << 20);
    let clean = Site::new(bytes);
    let lossy = Site::new(size("BATON_INTEROP_FAULTY_BYTES", bytes));
    let mut failures = Vec::new();
    // End the line that the test runner has begun.
    println!();
    for (link, (mtu, ips)) in LINKS.into_iter().enumerate() {
        for (site, faults) in [(&clean, None), (&lossy, Some(faults(kind, mtu, lossy.bytes)))] {
            let wire = Wire::new(kind, mtu);
            let _nginx = Nginx::start(&wire, site);
            // Every second server runs each half of the engine on its own thread.
            let threads = if (link % 2 == 0) == faults.is_some() { 2 } else { 1 };
            let mut serve = Some(Serve::start(&wire, site.path(), faults, threads));
            for transfer in TRANSFERS {
                if transfer == Transfer::Get {
                    serve = None;
                }
                for &ip in ips {
                    let result = transfer::run(transfer, &wire, ip, site, serve.as_mut(), faults);
                    let row = row(kind, mtu, ip, faults.is_some(), transfer, site.bytes, &result);
                    println!("{row}");
                    failures.extend(result.err().map(|_| row));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn row(
    kind: Kind,
    mtu: u32,
    ip: Ip,
    faulty: bool,
    transfer: Transfer,
    bytes: u64,
    result: &Result<transfer::Cost, String>,
) -> String {
    let wire = format!("{kind:<18} mtu {mtu:>4} {ip:?} {:<7} {transfer:<4?}", if faulty { "faults" } else { "clean" });
    match result {
        Ok(cost) => format!(
            "{wire} {bytes:>10} bytes equal {:>7.2} s {:>8.1} MB/s; sent again: Baton {:>9} bytes, kernel {:>6} segments",
            cost.seconds,
            bytes as f64 / 1e6 / cost.seconds,
            cost.baton_bytes,
            cost.kernel_segments
        ),
        Err(why) => format!("{wire} {bytes:>10} bytes FAILED: {why}"),
    }
}

#[test]
fn bulk_over_a_tap_with_virtio_header() {
    need_root!();
    need_program!("nginx");
    need_program!("curl");
    matrix(Kind::TapVnet);
}

#[test]
fn bulk_over_a_tap() {
    need_root!();
    need_program!("nginx");
    need_program!("curl");
    matrix(Kind::Tap);
}

#[test]
fn bulk_over_af_xdp_in_the_driver() {
    need_root!();
    need_program!("nginx");
    need_program!("curl");
    need_program!("ethtool");
    need_program!("clang");
    matrix(Kind::Xdp);
}

#[test]
fn bulk_over_af_xdp_behind_the_driver() {
    need_root!();
    need_program!("nginx");
    need_program!("curl");
    need_program!("ethtool");
    need_program!("clang");
    matrix(Kind::XdpGeneric);
}
