//! The load of an engine, as an engine reports it and `baton ps` shows it.

use crate::codec::Field;
use baton_policy::load::State;

/// The load of an engine at the end of a window of its meter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineLoad {
    /// The state of its load control.
    pub state: State,
    /// `Soft_Limit`, in connections.
    pub soft_limit: u32,
    /// `Cnum`: the connections that it had.
    pub connections: u32,
    /// `Qlen`: the frames that waited for it.
    pub queued: u32,
    /// `Lowat` and `Hiwat`, in frames.
    pub watermarks: (u32, u32),
    /// The part of the time that it slept, in thousandths.
    pub idle_permille: u16,
}

impl Field for EngineLoad {
    fn put(&self, out: &mut Vec<u8>) {
        (self.state as u8).put(out);
        (self.soft_limit, self.connections).put(out);
        (self.queued, self.watermarks).put(out);
        self.idle_permille.put(out);
    }

    fn take(from: &mut &[u8]) -> Option<EngineLoad> {
        let state = *State::ALL.get(usize::from(u8::take(from)?))?;
        let (soft_limit, connections) = Field::take(from)?;
        let (queued, watermarks) = Field::take(from)?;
        let idle_permille = Field::take(from)?;
        Some(EngineLoad { state, soft_limit, connections, queued, watermarks, idle_permille })
    }
}

/// The load of an engine at one time, as its history has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Past {
    /// Milliseconds that have passed since.
    pub ago_ms: u64,
    /// The load at that time.
    pub load: EngineLoad,
}

impl Field for Past {
    fn put(&self, out: &mut Vec<u8>) {
        self.ago_ms.put(out);
        self.load.put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Past> {
        Some(Past { ago_ms: Field::take(from)?, load: Field::take(from)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_decoded_as_it_was_and_an_unknown_state_is_not() {
        for state in State::ALL {
            let load =
                EngineLoad { state, soft_limit: 1, connections: 2, queued: 3, watermarks: (4, 5), idle_permille: 6 };
            let past = Past { ago_ms: 7, load };
            let mut bytes = Vec::new();
            past.put(&mut bytes);
            assert_eq!(Past::take(&mut &bytes[..]), Some(past));
            bytes[8] = 3;
            assert_eq!(Past::take(&mut &bytes[..]), None);
        }
    }
}
