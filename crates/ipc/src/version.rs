//! Versions of the protocol between programs and a service.
//!
//! A program says which versions it speaks, from the oldest to the newest. The broker answers with
//! the newest that both speak. So an upgraded service goes on with programs that were started
//! before, and a new program can use an older service.

use crate::message::Request;

/// The oldest version that this code speaks.
pub const OLDEST: u32 = 1;

/// The newest version that this code speaks.
///
/// Version 2 hands a connection to an engine inside the program by three messages instead of seven
/// ([`Request::Offer`], [`Reply::BringToEngine`](crate::message::Reply::BringToEngine)). Version 3 says why
/// a connection is given back ([`Reply::GivenBack`](crate::message::Reply::GivenBack)). Version 4 watched where
/// the time of messages goes, in memory that newer code does not read. Version 5 does so
/// ([`Request::Observe`], [`Reply::Watch`](crate::message::Reply::Watch)), also of one message in so many, and with the
/// slowest messages. It also joins both ends of a connection on this machine
/// ([`Reply::Link`](crate::message::Reply::Link), [`Reply::Pair`](crate::message::Reply::Pair)). A program of
/// version 6 announces what it is about to write there, so that others can read along ([`Request::Follow`]), and is
/// told when a link is no longer needed ([`Reply::Unlink`](crate::message::Reply::Unlink)). In version 7 a
/// connection that is joined brings its bytes along in the link, and takes them home to the kernel, so that its
/// program never holds any; programs of earlier versions are not joined any more. Version 8 names where connections are
/// handed over to ([`Request::HandoffTo`]).
pub const NEWEST: u32 = 8;

/// A program's first message.
pub const HELLO: Request = Request::Hello { oldest: OLDEST, newest: NEWEST };

/// The newest version that we speak and that lies between `oldest` and `newest`, both included;
/// `None` if there is none.
pub fn agree(oldest: u32, newest: u32) -> Option<u32> {
    agree_on((OLDEST, NEWEST), (oldest, newest))
}

fn agree_on(ours: (u32, u32), theirs: (u32, u32)) -> Option<u32> {
    let newest = ours.1.min(theirs.1);
    (newest >= ours.0.max(theirs.0)).then_some(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_version_is_agreed_on() {
        assert_eq!(agree_on((1, 3), (1, 3)), Some(3));
        assert_eq!(agree_on((1, 3), (2, 9)), Some(3));
        assert_eq!(agree_on((2, 9), (1, 3)), Some(3));
        assert_eq!(agree_on((1, 3), (3, 3)), Some(3));
        assert_eq!(agree_on((1, 3), (4, 9)), None);
        assert_eq!(agree_on((4, 9), (1, 3)), None);
        // A program that contradicts itself.
        assert_eq!(agree_on((1, 3), (3, 1)), None);
        assert_eq!(agree(0, u32::MAX), Some(NEWEST));
    }
}
