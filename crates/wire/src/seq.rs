//! Sequence numbers, windows and window scales as types (RFC 9293 §3.4).
//!
//! A sequence number has no total order: `a.before(b)` asks whether `a` lies in
//! the half of the circle before `b`. So [`Seq`] has no `Ord`, and the compiler
//! refuses `a < b`.
//!
//! ```text
//!            snd_una          snd_nxt        snd_una + snd_wnd
//!   ------------|----------------|-----------------|-------------> +2^32
//!     acked     |  sent, unacked | may be sent now | may not yet
//! ```

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A TCP sequence number: a position on a circle of 2^32 (RFC 9293 §3.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Seq(pub u32);

impl Seq {
    /// True if `self` lies strictly before `other` on the circle.
    #[inline]
    pub const fn before(self, other: Seq) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// True if `self` lies strictly after `other` on the circle.
    #[inline]
    pub const fn after(self, other: Seq) -> bool {
        other.before(self)
    }

    /// True if `self` is `other` or lies before it.
    #[inline]
    pub const fn before_eq(self, other: Seq) -> bool {
        !other.before(self)
    }

    /// True if `self` is `other` or lies after it.
    #[inline]
    pub const fn after_eq(self, other: Seq) -> bool {
        !self.before(other)
    }

    /// Signed distance in bytes from `other` to `self`; meaningful within ±2^31.
    #[inline]
    pub const fn since(self, other: Seq) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// True if `self` lies in the half-open range `[start, end)`.
    #[inline]
    pub const fn within(self, start: Seq, end: Seq) -> bool {
        self.0.wrapping_sub(start.0) < end.0.wrapping_sub(start.0)
    }

    /// The later of two sequence numbers that lie within 2^31 of each other.
    #[inline]
    pub const fn latest(self, other: Seq) -> Seq {
        if self.before(other) { other } else { self }
    }

    /// The earlier of two sequence numbers that lie within 2^31 of each other.
    #[inline]
    pub const fn earliest(self, other: Seq) -> Seq {
        if self.before(other) { self } else { other }
    }
}

impl Add<u32> for Seq {
    type Output = Seq;
    #[inline]
    fn add(self, bytes: u32) -> Seq {
        Seq(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for Seq {
    #[inline]
    fn add_assign(&mut self, bytes: u32) {
        self.0 = self.0.wrapping_add(bytes);
    }
}

impl Sub<u32> for Seq {
    type Output = Seq;
    #[inline]
    fn sub(self, bytes: u32) -> Seq {
        Seq(self.0.wrapping_sub(bytes))
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A window in bytes, after scaling (RFC 7323 §2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct Window(pub u32);

/// A window scale shift, 0 to 14 (RFC 7323 §2.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(transparent)]
pub struct WindowScale(u8);

impl WindowScale {
    /// The largest shift that RFC 7323 §2.3 allows.
    pub const MAX: u8 = 14;

    /// A shift, clamped to 14 as RFC 7323 §2.3 asks of a larger one received.
    #[inline]
    pub const fn new(shift: u8) -> WindowScale {
        WindowScale(if shift > Self::MAX { Self::MAX } else { shift })
    }

    /// The smallest shift with which `window` fits the 16-bit field.
    pub const fn for_window(window: Window) -> WindowScale {
        let mut shift = 0;
        while shift < Self::MAX && (window.0 >> shift) > 0xffff {
            shift += 1;
        }
        WindowScale(shift)
    }

    /// The shift count in bits.
    #[inline]
    pub const fn shift(self) -> u8 {
        self.0
    }

    /// The window that a received 16-bit field stands for.
    #[inline]
    pub const fn expand(self, field: u16) -> Window {
        Window((field as u32) << self.0)
    }

    /// The 16-bit field for `window`, rounded down, saturating at 65535.
    #[inline]
    pub const fn field(self, window: Window) -> u16 {
        let scaled = window.0 >> self.0;
        if scaled > 0xffff { 0xffff } else { scaled as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_wraps_around_the_circle() {
        let a = Seq(u32::MAX - 1);
        let b = a + 4;
        assert!(a.before(b) && b.after(a) && !b.before(a));
        assert_eq!(b.since(a), 4);
        assert_eq!(a.since(b), -4);
        assert!(Seq(0).within(a, b) && !b.within(a, b) && a.within(a, b));
        assert_eq!(a.latest(b), b);
        assert_eq!(a.earliest(b), a);
    }

    #[test]
    fn window_scale_rounds_down_and_clamps() {
        assert_eq!(WindowScale::new(200).shift(), 14);
        let scale = WindowScale::for_window(Window(1 << 20));
        assert_eq!(scale.shift(), 5);
        assert_eq!(scale.expand(scale.field(Window((1 << 20) + 7))), Window(1 << 20));
        assert_eq!(WindowScale::new(0).field(Window(70_000)), 0xffff);
    }
}
