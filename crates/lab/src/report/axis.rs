//! Axes of plots: from 0 to a round number, with round steps.
//!
//! A share of a whole, of which the unit is `% of` something, runs to 100 whatever its values are, so
//! that its plots can be compared.

/// Width of a plot. It is drawn as wide as its figure, so that its text stays readable on a phone at 300
/// pixels.
pub(super) const WIDTH: f64 = 312.0;
/// Width of a digit of 11 units, and of most letters.
const LETTER: f64 = 7.0;
/// Ends of axes, as multiples of a power of ten, with the step of their ticks.
const ENDS: [(f64, f64); 7] = [(1.0, 0.2), (2.0, 0.5), (2.5, 0.5), (3.0, 1.0), (5.0, 1.0), (6.0, 2.0), (10.0, 2.0)];
/// Most digits behind the point of a tick's number.
const DECIMALS: usize = 6;

/// The width of a text in a plot, at most.
pub(super) fn width(text: &str) -> f64 {
    LETTER * text.chars().count() as f64
}

/// An axis from 0.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Axis {
    /// Its last value.
    pub end: f64,
    step: f64,
}

impl Axis {
    /// An axis for values up to `largest` of a unit.
    pub fn new(largest: f64, unit: &str) -> Axis {
        let largest = if unit.starts_with("% of") { largest.max(100.0) } else { largest };
        if largest <= 0.0 || !largest.is_finite() {
            return Axis { end: 1.0, step: 1.0 };
        }
        let power = 10f64.powf(largest.log10().floor());
        let found = ENDS.into_iter().find(|(end, _)| end * power >= largest);
        let (end, step) = found.map_or((largest, largest), |(end, step)| (end * power, step * power));
        Axis { end, step }
    }

    /// An axis for counts up to `largest`: its ticks are whole numbers.
    pub fn of_counts(largest: f64) -> Axis {
        let axis = Axis::new(largest, "");
        if axis.step < 1.0 { Axis { end: largest.ceil().max(1.0), step: 1.0 } } else { axis }
    }

    /// The values of its ticks, 0 and the end among them.
    pub fn ticks(self) -> Vec<f64> {
        let steps = (self.end / self.step).round() as usize;
        (0..=steps).map(|number| if number == steps { self.end } else { self.step * number as f64 }).collect()
    }

    /// Those ticks that get a number if the axis is drawn `length` wide: all, or as many as have room.
    pub fn numbered(self, length: f64) -> Vec<f64> {
        let ticks = self.ticks();
        let steps = ticks.len() - 1;
        let widest = ticks.iter().map(|tick| width(&self.text(*tick))).fold(0.0, f64::max);
        let fits = |stride: &usize| length * *stride as f64 / steps as f64 >= widest + LETTER;
        let stride = (1..=steps).filter(|stride| steps.is_multiple_of(*stride)).find(fits).unwrap_or(steps);
        ticks.into_iter().step_by(stride).collect()
    }

    /// The number of a tick.
    pub fn text(self, tick: f64) -> String {
        let (unit, suffix) = match self.end {
            end if end >= 1e12 => (1e12, "T"),
            end if end >= 1e9 => (1e9, "G"),
            end if end >= 1e6 => (1e6, "M"),
            end if end >= 1e4 => (1e3, "k"),
            _ => (1.0, ""),
        };
        if tick == 0.0 {
            return "0".to_owned();
        }
        // As many digits as the step needs; a power of ten may be a little below its value.
        let digits = (-(self.step / unit * (1.0 + 1e-9)).log10().floor()).max(0.0) as usize;
        format!("{:.*}{suffix}", digits.min(DECIMALS), tick / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|tick| axis.text(tick)).collect()
    }

    #[test]
    fn the_axis_ends_at_a_round_number() {
        let ends = [0.0, 0.7, 41.0, 120.0, f64::NAN].map(|largest| Axis::new(largest, "Gb/s").end);
        assert_eq!(ends, [1.0, 1.0, 50.0, 200.0, 1.0]);
        for largest in [0.003, 0.7, 1.0, 99.0, 100.0, 1e3, 123_456.0, 7e13] {
            let axis = Axis::new(largest, "");
            assert!(axis.end >= largest && axis.end <= largest * 2.0, "{largest}: {axis:?}");
            assert_eq!(axis.ticks().last(), Some(&axis.end));
        }
    }

    #[test]
    fn ticks_are_round_and_short() {
        assert_eq!(texts(Axis::new(0.07, "s/GB")), ["0", "0.02", "0.04", "0.06", "0.08", "0.10"]);
        assert_eq!(texts(Axis::new(1.3, "Gb/s")), ["0", "0.5", "1.0", "1.5", "2.0"]);
        assert_eq!(texts(Axis::new(41.0, "µs")), ["0", "10", "20", "30", "40", "50"]);
        assert_eq!(texts(Axis::new(53_000.0, "/s")), ["0", "20k", "40k", "60k"]);
        assert_eq!(texts(Axis::new(2_100_000.0, "/s")), ["0", "0.5M", "1.0M", "1.5M", "2.0M", "2.5M"]);
    }

    #[test]
    fn shares_of_a_whole_run_to_100() {
        for largest in [0.0, 3.0, 61.0, 100.0] {
            assert_eq!(texts(Axis::new(largest, "% of frames")), ["0", "20", "40", "60", "80", "100"]);
        }
        assert_eq!(Axis::new(3.0, "%").end, 3.0);
    }

    #[test]
    fn ticks_of_counts_are_whole() {
        assert_eq!(texts(Axis::of_counts(1.0)), ["0", "1"]);
        assert_eq!(texts(Axis::of_counts(2.0)), ["0", "1", "2"]);
        assert_eq!(texts(Axis::of_counts(7.0)), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(texts(Axis::of_counts(0.0)), ["0", "1"]);
    }

    #[test]
    fn numbers_do_not_overlap() {
        let axis = Axis::new(41_000.0, "");
        assert_eq!(axis.numbered(300.0).len(), 6);
        assert_eq!(axis.numbered(60.0), [0.0, 50_000.0]);
        assert_eq!(Axis::new(1.3, "").numbered(60.0), [0.0, 1.0, 2.0]);
        assert_eq!(axis.numbered(1.0), [0.0, 50_000.0]);
    }
}
