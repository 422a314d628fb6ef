//! Copy and checksum, apart and in one pass (LA §4.1: table 5, figure 2).

use super::cost;
use crate::experiment::{Axis, Extent, Lab, Row};
use baton_wire::checksum::{Kernel, KernelKind, rfc1071};
use std::hint::black_box;

/// The paper's sizes in bytes, and its times in microseconds: simple checksum, copy, optimized checksum,
/// copy and checksum in one pass; and the saving of one pass in percent.
const PAPER: [(usize, [f64; 5]); 8] = [
    (4, [5.0, 4.0, 3.0, 3.0, 57.0]),
    (20, [7.0, 5.0, 4.0, 5.0, 44.0]),
    (80, [20.0, 11.0, 9.0, 10.0, 50.0]),
    (200, [43.0, 20.0, 21.0, 24.0, 41.0]),
    (500, [104.0, 47.0, 49.0, 56.0, 42.0]),
    (1400, [283.0, 124.0, 134.0, 153.0, 41.0]),
    (4000, [807.0, 350.0, 378.0, 430.0, 41.0]),
    (8000, [1605.0, 698.0, 754.0, 864.0, 40.0]),
];

/// Times of one size, in nanoseconds.
#[derive(Debug)]
pub struct Times {
    bytes: usize,
    /// The loop of RFC 1071.
    simple: f64,
    copy: f64,
    /// Each kernel's checksum alone, and with the copy in one pass.
    kernels: Vec<(KernelKind, f64, f64)>,
}

impl Times {
    /// The times of the best kernel.
    fn best(&self) -> (f64, f64) {
        self.kernels.last().map_or((f64::NAN, f64::NAN), |(_, sum, pass)| (*sum, *pass))
    }

    /// The saving of one pass over copy and checksum apart, in percent.
    fn saving(&self) -> f64 {
        let (sum, pass) = self.best();
        100.0 * (1.0 - pass / (sum + self.copy))
    }
}

/// Measures every size, with data in the first cache.
///
/// # Errors
/// If the measurement is asked to end, or a size is no number.
pub fn run(lab: &Lab<'_>, extent: &Extent) -> anyhow::Result<Vec<Times>> {
    let mut times = Vec::new();
    for bytes in extent.values::<usize>(Axis::MESSAGES.name)? {
        let source: Vec<u8> = (0..bytes).map(|i| (i ^ (i >> 7)) as u8).collect();
        let mut target = vec![0; bytes];
        let what = |of: &str| format!("{bytes} bytes · {of}");
        let simple = cost(lab, extent, &what("RFC 1071"), || {
            black_box(rfc1071(black_box(&source)));
        })?;
        let copy = cost(lab, extent, &what("copy"), || {
            black_box(&mut target[..]).copy_from_slice(black_box(&source));
        })?;
        let mut kernels = Vec::new();
        for kernel in KernelKind::ALL.into_iter().filter_map(Kernel::new) {
            let sum = cost(lab, extent, &what("checksum"), || {
                black_box(kernel.sum(black_box(&source)));
            })?;
            let pass = cost(lab, extent, &what("copy and checksum"), || {
                black_box(kernel.copy_and_sum(black_box(&mut target), black_box(&source)));
            })?;
            kernels.push((kernel.kind(), sum, pass));
        }
        times.push(Times { bytes, simple, copy, kernels });
    }
    Ok(times)
}

/// The paper's columns, in microseconds.
pub fn table_5(times: &[Times]) -> Vec<Row> {
    let mut rows = Vec::new();
    for size in times {
        let paper = PAPER.iter().find(|(bytes, _)| *bytes == size.bytes).map(|(_, values)| values);
        let (sum, pass) = size.best();
        let columns = [
            ("simple checksum", "us", size.simple / 1e3),
            ("copy", "us", size.copy / 1e3),
            ("optimized checksum", "us", sum / 1e3),
            ("copy and checksum in one pass", "us", pass / 1e3),
            ("saving of one pass over copy and optimized checksum", "%", size.saving()),
        ];
        rows.extend(columns.into_iter().enumerate().map(|(column, (name, unit, here))| {
            Row::point(name, ("bytes", size.bytes as f64), unit, paper.map(|values| values[column]), Some(here))
        }));
    }
    let even = times.iter().find(|size| size.saving() > 0.0).map(|size| size.bytes as f64);
    rows.push(Row::new("one pass is cheaper from this size on", "bytes", None, even));
    rows
}

/// Every kernel, in nanoseconds.
pub fn figure_2(times: &[Times]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut point = |name: &str, bytes: usize, here: f64| {
        rows.push(Row::point(name, ("bytes", bytes as f64), "ns", None, Some(here)));
    };
    for Times { bytes, simple, copy, kernels } in times {
        point("RFC 1071 loop", *bytes, *simple);
        point("copy", *bytes, *copy);
        for (kind, sum, pass) in kernels {
            point(&format!("{kind:?} checksum"), *bytes, *sum);
            point(&format!("{kind:?} one pass"), *bytes, *pass);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(bytes: usize, pass: f64) -> Times {
        let kernels = vec![(KernelKind::Portable, 30.0, 40.0), (KernelKind::Avx2, 10.0, pass)];
        Times { bytes, simple: 100.0, copy: 10.0, kernels }
    }

    #[test]
    fn the_best_kernel_is_compared_with_the_paper() {
        let rows = table_5(&[times(4, 25.0), times(80, 15.0)]);
        let row = rows.iter().find(|row| row.name.starts_with("saving") && row.name.ends_with(" 80")).unwrap();
        assert_eq!((row.paper, row.here), (Some(50.0), Some(25.0)));
        assert_eq!(rows.last().unwrap().here, Some(80.0));
    }
}
