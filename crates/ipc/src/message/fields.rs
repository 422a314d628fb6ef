//! Encoding of the parts of messages.

use super::{
    Destination, Entry, FollowedPair, Incoming, Loss, ProgramId, RawSizes, Selector, Sizes, Told, Transferred,
};
use crate::codec::Field;

impl Field for Loss {
    fn put(&self, out: &mut Vec<u8>) {
        let text = self.0.as_deref().unwrap_or_default();
        text.to_owned().put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Loss> {
        let text = String::take(from)?;
        Some(Loss(Some(text).filter(|text| !text.is_empty())))
    }
}

impl Field for ProgramId {
    fn put(&self, out: &mut Vec<u8>) {
        (self.pid, self.uid).put(out);
    }
    fn take(from: &mut &[u8]) -> Option<ProgramId> {
        let (pid, uid) = Field::take(from)?;
        Some(ProgramId { pid, uid })
    }
}

impl Field for Transferred {
    fn put(&self, out: &mut Vec<u8>) {
        (self.sent, self.received).put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Transferred> {
        let (sent, received) = Field::take(from)?;
        Some(Transferred { sent, received })
    }
}

impl Field for Told {
    fn put(&self, out: &mut Vec<u8>) {
        (self.accepted, self.age_us).put(out);
        self.sends.put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Told> {
        let (accepted, age_us) = Field::take(from)?;
        Some(Told { accepted, age_us, sends: Field::take(from)? })
    }
}

impl Field for Incoming {
    fn put(&self, out: &mut Vec<u8>) {
        (self.seq, self.id).put(out);
        (self.region, self.send).put(out);
        (self.unread, self.shut).put(out);
        self.window.put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Incoming> {
        let (seq, id) = Field::take(from)?;
        let (region, send) = Field::take(from)?;
        let (unread, shut) = Field::take(from)?;
        Some(Incoming { seq, id, region, send, unread, shut, window: Field::take(from)? })
    }
}

impl Field for Sizes {
    fn put(&self, out: &mut Vec<u8>) {
        (self.stream_buffer, self.stream_buffers).put(out);
        (self.large_buffer, self.large_buffers).put(out);
        self.connections.put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Sizes> {
        let (stream_buffer, stream_buffers) = Field::take(from)?;
        let (large_buffer, large_buffers) = Field::take(from)?;
        let connections = Field::take(from)?;
        Some(Sizes { stream_buffer, stream_buffers, large_buffer, large_buffers, connections })
    }
}

impl Field for RawSizes {
    fn put(&self, out: &mut Vec<u8>) {
        (self.connections, self.queue_depth).put(out);
        self.data_bytes.put(out);
    }
    fn take(from: &mut &[u8]) -> Option<RawSizes> {
        let (connections, queue_depth) = Field::take(from)?;
        Some(RawSizes { connections, queue_depth, data_bytes: Field::take(from)? })
    }
}

impl Field for Selector {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Selector::All => out.push(0),
            Selector::Port(port) => (1u8, *port).put(out),
            Selector::Tuple(tuple) => (2u8, *tuple).put(out),
        }
    }
    fn take(from: &mut &[u8]) -> Option<Selector> {
        Some(match u8::take(from)? {
            0 => Selector::All,
            1 => Selector::Port(Field::take(from)?),
            2 => Selector::Tuple(Field::take(from)?),
            _ => return None,
        })
    }
}

impl Field for Destination {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Destination::Engine => 0,
            Destination::Pair => 1,
        });
    }
    fn take(from: &mut &[u8]) -> Option<Destination> {
        Some(match u8::take(from)? {
            0 => Destination::Engine,
            1 => Destination::Pair,
            _ => return None,
        })
    }
}

impl Field for FollowedPair {
    fn put(&self, out: &mut Vec<u8>) {
        (self.number, (self.link, self.slot)).put(out);
        self.tuple.put(out);
        (self.seqs, self.scales).put(out);
        (self.programs, self.fresh).put(out);
    }
    fn take(from: &mut &[u8]) -> Option<FollowedPair> {
        let (number, (link, slot)) = Field::take(from)?;
        let tuple = Field::take(from)?;
        let (seqs, scales) = Field::take(from)?;
        let (programs, fresh) = Field::take(from)?;
        Some(FollowedPair { number, link, slot, tuple, seqs, scales, programs, fresh })
    }
}

impl Field for Entry {
    fn put(&self, out: &mut Vec<u8>) {
        (self.id, self.tuple).put(out);
        self.place.put(out);
        self.why.put(out);
        self.interface.put(out);
        self.program.put(out);
        (self.bytes, self.rate).put(out);
        (self.since_ms, self.moves).put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Entry> {
        let (id, tuple) = Field::take(from)?;
        let (place, why) = Field::take(from)?;
        let (interface, program) = Field::take(from)?;
        let (bytes, rate) = Field::take(from)?;
        let (since_ms, moves) = Field::take(from)?;
        Some(Entry { id, tuple, place, why, interface, program, bytes, rate, since_ms, moves })
    }
}
