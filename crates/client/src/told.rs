//! Asking a service for its events.

use crate::Service;
use baton_ipc::message::{Reply, Request};
use baton_journal::Numbered;
use std::io;

impl Service {
    /// The last events of the service, `most` of those whose numbers are above `after`, the oldest
    /// first; and the number of the service's last event. Root and the service's user see all, other
    /// users what is about their own programs or about no program.
    ///
    /// # Errors
    /// `NotConnected` if the service has gone, `ConnectionReset` if its broker died meanwhile: then
    /// ask again.
    pub fn events(&self, after: u64, most: u16) -> io::Result<(Vec<Numbered>, u64)> {
        let (replies, tally) = self.ask(|ask| Request::Events { ask, after, most })?;
        let event = |reply| if let Reply::Event { event } = reply { Some(event) } else { None };
        Ok((replies.into_iter().filter_map(event).collect(), tally.count))
    }
}
