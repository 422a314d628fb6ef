//! Whether coalescing would help, in a word, and why.

use crate::gro::Alone;
use crate::tally::Tally;
use baton_coalesce::Reason;
use serde::{Deserialize, Serialize};

/// The share of CPU time, of 1, from which it helps.
const ENOUGH: f64 = 0.1;
/// Data segments that are too few to tell.
const FEW: u64 = 100;
/// The share of data segments that may have been joined before the capture.
const JOINED: f64 = 0.05;

/// The kinds of answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It saves a tenth of the CPU time or more, by the model.
    Yes,
    /// It saves less.
    Little,
    /// The capture does not show it.
    CannotTell,
}

impl Answer {
    /// As a word of a sentence.
    pub const fn word(self) -> &'static str {
        match self {
            Answer::Yes => "yes",
            Answer::Little => "little",
            Answer::CannotTell => "cannot tell",
        }
    }
}

/// The answer, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Verdict {
    /// Whether coalescing would help.
    pub answer: Answer,
    /// The figures behind it, or what is wrong with the capture and what to do.
    pub because: String,
}

impl Verdict {
    /// The verdict on a tally, where coalescing saves this share of the CPU time, of 1.
    pub fn of(tally: &Tally, saved: f64) -> Verdict {
        let data = data_segments(tally);
        let cannot = |because| Verdict { answer: Answer::CannotTell, because };
        let unread: u64 = tally.unknown_links.iter().map(|(_, frames)| frames).sum();
        if 2 * unread > tally.frames_in {
            return cannot(format!("{unread} of {} frames are of a link type that cannot be read", tally.frames_in));
        }
        if tally.joined_before as f64 > JOINED * data as f64 {
            return cannot(format!(
                "{} of {data} data segments are larger than a wire carries: the capture was taken above GRO or TSO; \
                 take it on a mirror port, or after 'ethtool -K IFACE gro off lro off tso off gso off'",
                tally.joined_before
            ));
        }
        let within: u64 = tally.tunnelled.tunnels.values().sum();
        if within > data {
            let kinds: Vec<_> = tally.tunnelled.tunnels.keys().copied().collect();
            return cannot(format!(
                "{within} TCP segments lie in tunnels ({}), and {data} data segments do not: look inside with \
                 --inner, or capture behind the tunnel's end",
                kinds.join(", ")
            ));
        }
        if data < FEW {
            return cannot(format!("there are {data} data segments of TCP, and at least {FEW} are needed"));
        }
        let joined = tally.eliminated as f64 / tally.frames_in as f64;
        let answer = if saved >= ENOUGH { Answer::Yes } else { Answer::Little };
        let because = format!(
            "{:.1} % of the frames would be joined to another, which saves {:.1} % of the CPU time by the model",
            joined * 100.0,
            saved * 100.0
        );
        Verdict { answer, because }
    }
}

/// Data segments that could be read, held or not.
fn data_segments(tally: &Tally) -> u64 {
    let alone = [Reason::PshAlone.name(), Reason::TooBig.name(), Alone::Padded.name()];
    let alone = alone.map(|reason| tally.reasons.get(reason).copied().unwrap_or(0));
    tally.segments + alone.iter().sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_depends_on_what_the_capture_shows() {
        let mut tally = Tally { frames_in: 1000, eliminated: 500, segments: 900, ..Tally::default() };
        let answer = |tally: &Tally, saved| Verdict::of(tally, saved).answer;
        assert_eq!((answer(&tally, 0.1), answer(&tally, 0.09)), (Answer::Yes, Answer::Little));
        assert!(Verdict::of(&tally, 0.2).because.starts_with("50.0 % of the frames would be joined"));
        tally.joined_before = 46;
        assert_eq!(answer(&tally, 0.2), Answer::CannotTell);
        tally.joined_before = 45;
        assert_eq!(answer(&tally, 0.2), Answer::Yes);
        tally.tunnelled.tunnels.insert("vxlan", 901);
        assert_eq!(answer(&tally, 0.2), Answer::CannotTell);
        tally.tunnelled.tunnels.clear();
        (0..501).for_each(|_| tally.unknown_links.note(127));
        assert_eq!(answer(&tally, 0.2), Answer::CannotTell);
        assert_eq!(answer(&Tally { segments: 99, ..Tally::default() }, 0.5), Answer::CannotTell);
        assert_eq!(answer(&Tally::default(), 0.0), Answer::CannotTell);
    }
}
