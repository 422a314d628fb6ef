//! Handling of fork.
//!
//! Before a fork every connection comes home and the connection to the service is closed. So the
//! child begins with ordinary descriptors, without the library's thread, and connects to the
//! service itself when it has a connection of its own. The parent's connections may move again
//! once no child shares them ([`sharing`]). Other threads that use the library wait until the
//! fork is done, so that the child never sees a half-finished change.

use crate::connection::park_all;
use crate::connections;
use crate::service::{self, Exclusive};
use crate::{epoll, notifier, sharing, table};
use baton_consumer::held::interrupted;
use std::cell::RefCell;

/// The locks that are held during a fork.
struct Frozen {
    _link: Exclusive,
    sets: epoll::Frozen,
    table: table::Frozen,
    child_end: Option<sharing::FrozenEnd>,
}

thread_local! {
    static FROZEN: RefCell<Option<Frozen>> = const { RefCell::new(None) };
}

/// Called before a fork, in the parent.
pub fn prepare() {
    if interrupted() {
        // A signal handler forks inside a call of this library, whose locks this thread holds. Its
        // child is not expected to use the connections.
        return;
    }
    let (sharing, child_end) = sharing::begin().unzip();
    park_all(sharing.as_ref());
    let mut link = service::exclusive();
    // Other threads may have handed connections over before the lock was taken.
    while link.service.is_some() && connections::any_moved() {
        drop(link);
        park_all(sharing.as_ref());
        link = service::exclusive();
    }
    link.close();
    let sets = epoll::freeze(sharing.as_ref());
    let child_end = child_end.map(sharing::ChildEnd::freeze);
    let frozen = Frozen { _link: link, sets, table: table::freeze(), child_end };
    let _ = FROZEN.try_with(|place| place.replace(Some(frozen)));
}

/// Called after a fork, in the parent.
pub fn parent() {
    let _ = FROZEN.try_with(RefCell::take);
}

/// Called after a fork, in the child.
pub fn child() {
    notifier::forked();
    let frozen = FROZEN.try_with(RefCell::take).ok().flatten();
    if let Some(mut frozen) = frozen {
        frozen.sets.child();
        frozen.table.child();
        frozen.child_end.take().into_iter().for_each(sharing::FrozenEnd::keep);
    }
}
