//! Encoding of messages: a tag followed by the fields, in little-endian order. Decoding checks
//! every length.
//!
//! Both protocols of the service use it: the one between programs and the broker
//! ([`super::message`]), and the one between the broker and an engine.

use baton_tcp::config::{Acks, Congestion};
use baton_wire::addr::{Addr, Tuple};

/// Largest message in bytes. A peer that sends more is disconnected.
pub const MAX_MESSAGE: usize = 2048;

/// Largest text in a message in bytes. Longer texts are truncated.
pub const MAX_TEXT: usize = 512;

/// A value that can be part of a message.
pub trait Field: Sized {
    /// Appends the encoded value to `out`.
    fn put(&self, out: &mut Vec<u8>);
    /// Decodes a value from the front of `from`; `None` if that is not possible.
    fn take(from: &mut &[u8]) -> Option<Self>;
}

/// Takes `N` bytes off the front.
fn bytes<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*head)
}

macro_rules! numbers {
    ($($kind:ty),*) => {
        $(impl Field for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
            fn take(from: &mut &[u8]) -> Option<$kind> {
                Some(<$kind>::from_le_bytes(bytes(from)?))
            }
        })*
    };
}

numbers!(u8, u16, u32, u64, u128);

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }
    fn take(from: &mut &[u8]) -> Option<bool> {
        Some(u8::take(from)? != 0)
    }
}

impl<const N: usize> Field for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self);
    }
    fn take(from: &mut &[u8]) -> Option<[u8; N]> {
        bytes(from)
    }
}

impl Field for Addr {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Addr> {
        u128::take(from).map(Addr)
    }
}

impl Field for Congestion {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(matches!(self, Congestion::Cubic).into());
    }
    fn take(from: &mut &[u8]) -> Option<Congestion> {
        Some(if bool::take(from)? { Congestion::Cubic } else { Congestion::Reno })
    }
}

impl Field for Acks {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(matches!(self, Acks::PerRun).into());
    }
    fn take(from: &mut &[u8]) -> Option<Acks> {
        Some(if bool::take(from)? { Acks::PerRun } else { Acks::EverySecond })
    }
}

impl Field for Tuple {
    fn put(&self, out: &mut Vec<u8>) {
        (self.local, self.remote).put(out);
        (self.local_port, self.remote_port).put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Tuple> {
        let (local, remote) = Field::take(from)?;
        let (local_port, remote_port) = Field::take(from)?;
        Some(Tuple { local, remote, local_port, remote_port })
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(from: &mut &[u8]) -> Option<(A, B)> {
        Some((A::take(from)?, B::take(from)?))
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(inner) = self {
            inner.put(out);
        }
    }
    fn take(from: &mut &[u8]) -> Option<Option<T>> {
        Some(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u16).put(out);
        self.iter().for_each(|item| item.put(out));
    }
    fn take(from: &mut &[u8]) -> Option<Vec<T>> {
        // Each item takes at least one byte, so the message's size bounds the loop.
        let count = usize::from(u16::take(from)?);
        if count > from.len() {
            return None;
        }
        (0..count).map(|_| T::take(from)).collect()
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        let cut = (0..=self.len().min(MAX_TEXT)).rev().find(|at| self.is_char_boundary(*at)).unwrap_or(0);
        (cut as u16).put(out);
        out.extend(&self.as_bytes()[..cut]);
    }
    fn take(from: &mut &[u8]) -> Option<String> {
        let len = usize::from(u16::take(from)?);
        if len > MAX_TEXT {
            return None;
        }
        let (text, rest) = from.split_at_checked(len)?;
        *from = rest;
        String::from_utf8(text.to_vec()).ok()
    }
}

/// Declares an enum of messages with `to_bytes` and `from_bytes`.
#[macro_export]
macro_rules! messages {
    ($(#[$outer:meta])* pub enum $name:ident {
        $($(#[$inner:meta])* $tag:literal $variant:ident { $($(#[$about:meta])* $field:ident: $kind:ty),* $(,)? }),* $(,)?
    }) => {
        $(#[$outer])*
        #[derive(Clone, PartialEq, Debug)]
        pub enum $name {
            $($(#[$inner])* $variant { $($(#[$about])* $field: $kind),* }),*
        }

        impl $name {
            /// Encodes the message.
            pub fn to_bytes(&self) -> Vec<u8> {
                let mut out = Vec::with_capacity(64);
                match self {
                    $($name::$variant { $($field),* } => {
                        out.push($tag);
                        $($crate::codec::Field::put($field, &mut out);)*
                    })*
                }
                out
            }

            /// Decodes the output of `to_bytes`; `None` for anything else.
            pub fn from_bytes(mut from: &[u8]) -> Option<$name> {
                let from = &mut from;
                let message = match <u8 as $crate::codec::Field>::take(from)? {
                    $($tag => $name::$variant {
                        $($field: $crate::codec::Field::take(from)?),*
                    },)*
                    _ => return None,
                };
                from.is_empty().then_some(message)
            }
        }
    };
}
