//! A process that forks or becomes another program.
//!
//! Before a fork every connection comes home and the service is left: the child begins with
//! ordinary descriptors, no thread, nothing of the service, and connects for itself when it
//! has a connection of its own. What another thread does meanwhile waits until the fork is
//! done, so that nothing is half done in the child.

use crate::connection::{self, bring_all_home};
use crate::held::interrupted;
use crate::service::{self, Exclusive};
use crate::{bell, epoll, table};
use std::cell::RefCell;

/// What stands still during a fork.
struct Frozen {
    _link: Exclusive,
    sets: epoll::Frozen,
    table: table::Frozen,
}

thread_local! {
    static FROZEN: RefCell<Option<Frozen>> = const { RefCell::new(None) };
}

/// Before: in the parent.
pub fn prepare() {
    if interrupted() {
        // A handler forks in the middle of a call of ours: what it forks has no use for
        // connections, and the locks are its own thread's.
        return;
    }
    bring_all_home("fork");
    let mut link = service::exclusive();
    // What was handed over meanwhile.
    while link.service.is_some() && connection::any_moved() {
        drop(link);
        bring_all_home("fork");
        link = service::exclusive();
    }
    // Its thread ends with its last stream.
    drop(link.service.take());
    let frozen = Frozen { _link: link, sets: epoll::freeze(), table: table::freeze() };
    let _ = FROZEN.try_with(|place| place.replace(Some(frozen)));
}

/// After: in the parent.
pub fn parent() {
    let _ = FROZEN.try_with(|place| place.take());
}

/// After: in the child.
pub fn child() {
    bell::forked();
    let _ = FROZEN.try_with(|place| {
        if let Some(mut frozen) = place.take() {
            frozen.sets.child();
            frozen.table.child();
        }
    });
}
