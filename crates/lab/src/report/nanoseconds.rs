//! Times for people.

/// Nanoseconds for people: three digits, and a unit.
pub fn time(ns: u64) -> String {
    let ns = ns as f64;
    let (value, unit) = match ns {
        ns if ns < 1e3 => return format!("{ns} ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let all = [999, 1000, 12_345, 999_400, 1_234_567, 2_000_000_000].map(time);
        assert_eq!(all, ["999 ns", "1.00 µs", "12.3 µs", "999 µs", "1.23 ms", "2.00 s"]);
    }
}
