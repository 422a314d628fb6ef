//! A figure of a download that moved: one bar per slice of time, coloured by the side that had the
//! connection, and a line at the time when the engine was killed.
//!
//! ```text
//!             engine killed
//!   █▄█▆█▅█▄█▆█▅│  ▄█▆█▅█▄█▆█▅█
//!   0                       2 s
//! ```

use super::moves::Live;
use super::{Wire, short};
use baton_apps::html_text::escape;
use std::fmt::Write as _;

const WIDTH: f64 = 312.0;
const HEIGHT: f64 = 108.0;
/// Left edge of the first bar, and right limit of the last.
const BASE: f64 = 90.0;
const TOP: f64 = 20.0;
/// Smallest height of a bar; lower ones would be invisible.
const LOWEST: f64 = 0.5;

/// The figure of one way's download.
pub(super) fn figure(wire: &Wire, live: &Live) -> String {
    let peak = live.slices.iter().map(|slice| slice.bytes).max().unwrap_or(0);
    let gbps = peak as f64 * 8e-9 / live.slice_seconds;
    let title = format!("{}: a download that moves", wire.name);
    let svg = plot(wire, live, peak, &title);
    format!(
        "<figure><h3>{}</h3>{svg}<figcaption>What curl got, in bars of {} ms; the highest is {} Gb/s. Grey: in the \
         kernel; coloured: in the engine. {}.</figcaption></figure>",
        escape(&title),
        short(live.slice_seconds * 1e3),
        short(gbps),
        escape(&live.tell()),
    )
}

fn plot(wire: &Wire, live: &Live, peak: u64, title: &str) -> String {
    let mut bars = String::new();
    let (width, mut marks) = (WIDTH / live.slices.len().max(1) as f64, 0);
    for (i, slice) in live.slices.iter().enumerate().filter(|(_, slice)| slice.bytes > 0) {
        let height = ((BASE - TOP) * slice.bytes as f64 / peak as f64).max(LOWEST);
        let side = if slice.engine { "baton" } else { "kernel" };
        let (x, y) = (width * i as f64, BASE - height);
        let _ = write!(
            bars,
            "<g class=\"{side}\"><rect class=\"mark\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" \
             height=\"{height:.1}\"/></g>"
        );
        marks += 1;
    }
    let span = live.slice_seconds * live.slices.len().max(1) as f64;
    let killed = (WIDTH * live.killed.at_seconds / span).clamp(0.0, WIDTH);
    let words = killed.clamp(40.0, WIDTH - 40.0);
    format!(
        "<svg class=\"plot\" data-plot=\"moves-{id}\" data-marks=\"{marks}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-labelledby=\"moves-{id}-title\"><title id=\"moves-{id}-title\">{title}</title>{bars}\
         <line class=\"axis\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{BASE}\" y2=\"{BASE}\"/>\
         <line class=\"killed\" x1=\"{killed:.1}\" x2=\"{killed:.1}\" y1=\"{}\" y2=\"{BASE}\"/>\
         <text class=\"middle\" x=\"{words:.1}\" y=\"11\">engine killed</text>\
         <text class=\"label\" x=\"0\" y=\"{text}\">0</text>\
         <text class=\"label value\" x=\"{WIDTH}\" y=\"{text}\">{} s</text></svg>",
        TOP - 5.0,
        short(span),
        id = escape(&wire.id),
        title = escape(title),
        text = HEIGHT - 5.0,
    )
}
