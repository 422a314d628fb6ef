//! Progress of a long measurement.

/// Is told of the progress, to show it.
pub trait Watch {
    /// This many steps are planned.
    fn plan(&self, steps: usize);
    /// The next step begins.
    fn step(&self, what: &str);
}
