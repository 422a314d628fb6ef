//! The style sheet's colours, for tests of what can be told apart and read.

/// The values of one mode.
pub(super) struct Mode(&'static str);

/// A colour: red, green and blue, 0 to 1.
pub(super) type Colour = [f64; 3];

/// Light and dark.
pub(super) fn modes() -> [Mode; 2] {
    let (light, dark) = include_str!("style.css").split_once("@media (prefers-color-scheme: dark)").unwrap();
    [Mode(light), Mode(dark)]
}

impl Mode {
    /// The text of a variable.
    pub fn value(&self, name: &str) -> &'static str {
        self.0.split(&format!("--{name}: ")).nth(1).unwrap().split(';').next().unwrap()
    }

    /// The colour of a variable.
    pub fn colour(&self, name: &str) -> Colour {
        let digits = self.value(name).strip_prefix('#').unwrap();
        [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&digits[at..at + 2], 16).unwrap()) / 255.0)
    }
}

/// Relative luminance (WCAG 2.1).
fn luminance(colour: Colour) -> f64 {
    let [red, green, blue] = colour.map(|v| if v <= 0.03928 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) });
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

/// The contrast of two colours (WCAG 2.1), 1 to 21.
pub(super) fn contrast(a: Colour, b: Colour) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}
