//! `epoll(7)`: level-triggered, edge-triggered, and one-shot.
//!
//! An instance has a list of descriptors that may be ready. An edge puts a descriptor on the list.
//! A wait checks each entry once, and moves those that are ready and level-triggered to the end of
//! the list, so none starves. So the cost of a wait depends on the number of ready descriptors, not
//! of watched ones.

use super::Fd;
use super::socket::ALWAYS;
use std::collections::{HashMap, VecDeque};

/// A watched descriptor.
pub(super) struct Item {
    /// The events that are watched, with their flags.
    pub events: u32,
    /// The caller's data.
    pub data: u64,
    /// Distinguishes this registration from an earlier one with the same number.
    pub serial: u64,
    /// True if it is on the list.
    pub queued: bool,
    /// True for a one-shot registration that has fired.
    pub off: bool,
}

impl Item {
    /// The events that are reported.
    pub fn wanted(&self) -> u32 {
        if self.off { 0 } else { self.events | ALWAYS }
    }
}

/// An epoll instance.
#[derive(Default)]
pub(super) struct Epoll {
    pub items: HashMap<Fd, Item>,
    pub ready: VecDeque<(Fd, u64)>,
}

impl Epoll {
    /// Returns the descriptors that may be ready, with their requested events.
    pub fn candidates(&self) -> impl Iterator<Item = (Fd, u32)> {
        self.ready.iter().filter_map(|(fd, serial)| {
            let item = self.items.get(fd).filter(|item| item.serial == *serial)?;
            Some((*fd, item.wanted()))
        })
    }

    /// Puts a descriptor on the list, if these are events that it is watched for.
    pub fn queue(&mut self, fd: Fd, edges: u32) {
        if let Some(item) = self.items.get_mut(&fd)
            && !item.queued
            && item.wanted() & edges != 0
        {
            item.queued = true;
            self.ready.push_back((fd, item.serial));
        }
    }
}
