//! How events of a service are encoded in messages.

use crate::codec::Field;
use baton_journal::{Event, Kind, Level, Numbered};
use std::borrow::Cow;

impl Field for Level {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn take(from: &mut &[u8]) -> Option<Level> {
        Level::ALL.get(usize::from(u8::take(from)?)).copied()
    }
}

impl Field for Numbered {
    fn put(&self, out: &mut Vec<u8>) {
        let Event { at_us, level, kind, tuple, program, reason, took_us, text } = &self.event;
        (self.number, *at_us).put(out);
        level.put(out);
        kind.0.to_string().put(out);
        (*tuple, *program).put(out);
        reason.to_string().put(out);
        took_us.put(out);
        text.put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Numbered> {
        let (number, at_us) = Field::take(from)?;
        let (level, kind): (Level, String) = Field::take(from)?;
        let (tuple, program) = Field::take(from)?;
        let (reason, took_us): (String, Option<u64>) = Field::take(from)?;
        let (kind, reason, text) = (Kind(Cow::Owned(kind)), Cow::Owned(reason), Field::take(from)?);
        Some(Numbered { number, event: Event { at_us, level, kind, tuple, program, reason, took_us, text } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::MAX_MESSAGE;
    use crate::message::Reply;
    use baton_wire::addr::Tuple;

    #[test]
    fn an_event_arrives_as_it_was_sent() {
        let tuple = Tuple::new("[fd00::1]:443".parse().unwrap(), "[fd00::2]:51234".parse().unwrap());
        let bare = Event::new(Level::Trace, Kind::SERVICE);
        let full = Event::new(Level::Error, Kind::LOST).tuple(tuple).program((1, 2)).reason("lost").took_us(3);
        for event in [bare, full.text("x".repeat(1000))] {
            let reply = Reply::Event { event: Numbered { number: 7, event } };
            let bytes = reply.to_bytes();
            assert!(bytes.len() < MAX_MESSAGE);
            assert_eq!(Reply::from_bytes(&bytes), Some(reply));
        }
    }
}
