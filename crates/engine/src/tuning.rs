//! An administrator's settings for an engine, as one value from the configuration file to the
//! engine.
//!
//! ```text
//!   file --> broker's configuration --> start order --> EngineConfig
//! ```

use crate::frame_io::BURST;
use baton_tcp::config::{Acks, Congestion};
use core::ops::RangeInclusive;

/// The choices of an administrator that hold for all connections of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineTuning {
    /// The most connections, including half-open and TIME-WAIT ones; one of
    /// [`EngineTuning::CONNECTIONS`].
    pub connections: u32,
    /// Congestion control of new connections.
    pub congestion: Congestion,
    /// The most segments that are handled as one if they arrive together (RA §3.3); one of
    /// [`EngineTuning::COALESCE`]. With 1, each is handled alone.
    pub coalesce: u16,
    /// How segments that are handled as one are acknowledged.
    pub acks: Acks,
}

/// A choice that no engine can follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuningError {
    /// The number of connections is not one of [`EngineTuning::CONNECTIONS`].
    #[error(
        "an engine cannot have {0} connections; choose a number from {first} to {last}",
        first = EngineTuning::CONNECTIONS.start(),
        last = EngineTuning::CONNECTIONS.end()
    )]
    Connections(u32),
    /// The number of segments is not one of [`EngineTuning::COALESCE`].
    #[error(
        "an engine cannot handle {0} segments as one; choose a number from {first} to {last}",
        first = EngineTuning::COALESCE.start(),
        last = EngineTuning::COALESCE.end()
    )]
    Coalesce(u16),
}

impl EngineTuning {
    /// How many connections an engine can have. The largest number needs about 2 GiB, without
    /// buffers.
    pub const CONNECTIONS: RangeInclusive<u32> = 1..=1 << 21;

    /// How many segments an engine can handle as one: those of a burst at most.
    pub const COALESCE: RangeInclusive<u16> = 1..=BURST as u16;

    /// Checks that an engine can follow the choices.
    ///
    /// # Errors
    /// [`TuningError`] for the first choice that is out of its range.
    pub fn check(&self) -> Result<(), TuningError> {
        if !EngineTuning::CONNECTIONS.contains(&self.connections) {
            return Err(TuningError::Connections(self.connections));
        }
        if !EngineTuning::COALESCE.contains(&self.coalesce) {
            return Err(TuningError::Coalesce(self.coalesce));
        }
        Ok(())
    }

    /// Entries of the engine's tables and of its ledger: the most connections, rounded up to a
    /// power of two.
    pub fn entries(&self) -> u32 {
        self.connections.next_power_of_two()
    }
}

impl Default for EngineTuning {
    fn default() -> EngineTuning {
        EngineTuning {
            connections: 16_384,
            congestion: Congestion::Cubic,
            coalesce: *EngineTuning::COALESCE.end(),
            acks: Acks::PerRun,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_engine_can_follow_passes() {
        let with = |connections, coalesce| EngineTuning { connections, coalesce, ..EngineTuning::default() }.check();
        assert_eq!(EngineTuning::default().check(), Ok(()));
        assert_eq!(with(1, 1), Ok(()));
        assert_eq!(with(1 << 21, 64), Ok(()));
        assert_eq!(with(0, 1), Err(TuningError::Connections(0)));
        assert_eq!(with((1 << 21) + 1, 1), Err(TuningError::Connections((1 << 21) + 1)));
        assert_eq!(with(1, 0), Err(TuningError::Coalesce(0)));
        assert_eq!(with(1, 65), Err(TuningError::Coalesce(65)));
    }

    #[test]
    fn errors_name_the_range() {
        let text = TuningError::Coalesce(65).to_string();
        assert_eq!(text, "an engine cannot handle 65 segments as one; choose a number from 1 to 64");
        let text = TuningError::Connections(0).to_string();
        assert_eq!(text, "an engine cannot have 0 connections; choose a number from 1 to 2097152");
    }
}
