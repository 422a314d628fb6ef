//! A process that forks or becomes another program.
//!
//! Before a fork every connection comes home and the service is left: the child begins with
//! ordinary descriptors, no thread, nothing of the service, and connects for itself when it
//! has a connection of its own. The parent's connections may move again once nobody shares
//! them any more ([`sharing`]). What another thread does meanwhile waits until the fork is
//! done, so that nothing is half done in the child.

use crate::connection::park_all;
use crate::everything;
use crate::service::{self, Exclusive};
use crate::{bell, epoll, sharing, table};
use baton_consumer::held::interrupted;
use std::cell::RefCell;

/// What stands still during a fork.
struct Frozen {
    _link: Exclusive,
    sets: epoll::Frozen,
    table: table::Frozen,
    childs: Option<sharing::Frozen>,
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
    let (sharing, childs) = sharing::begin().unzip();
    park_all(sharing.as_ref());
    let mut link = service::exclusive();
    // What was handed over meanwhile.
    while link.service.is_some() && everything::is_away() {
        drop(link);
        park_all(sharing.as_ref());
        link = service::exclusive();
    }
    // Its thread ends with its last stream.
    drop(link.service.take());
    let sets = epoll::freeze(sharing.as_ref());
    let childs = childs.map(sharing::Held::freeze);
    let frozen = Frozen { _link: link, sets, table: table::freeze(), childs };
    let _ = FROZEN.try_with(|place| place.replace(Some(frozen)));
}

/// After: in the parent.
pub fn parent() {
    let _ = FROZEN.try_with(RefCell::take);
}

/// After: in the child.
pub fn child() {
    bell::forked();
    let frozen = FROZEN.try_with(RefCell::take).ok().flatten();
    if let Some(mut frozen) = frozen {
        frozen.sets.child();
        frozen.table.child();
        frozen.childs.take().into_iter().for_each(sharing::Frozen::keep);
    }
}
