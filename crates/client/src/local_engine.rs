//! An engine inside the program.

use super::descriptors::lifted;
use baton_consumer::fork::Unshared;
use baton_consumer::memory::SharedLedger;
use baton_ipc::channel::{Channel, Parcel};
use baton_ipc::engine::Runner;
use baton_ipc::order::{Order, Report};
use baton_port::{SteeredPort, Tap};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// An engine in this process, with its device.
pub(super) struct LocalEngine {
    // Declared first, so it is dropped before the descriptors are closed.
    _unshared: [Unshared; 2],
    pub runner: Runner,
    /// Its number, which is higher than those of all engines before; 0 if the service numbers none.
    pub number: u64,
}

impl LocalEngine {
    /// Starts an engine as the first message on the channel says.
    pub fn start(control: OwnedFd, number: u64) -> Option<LocalEngine> {
        let control = Channel::new(control);
        let Parcel { bytes, fds } = control.receive().ok()??;
        let Order::Start { device, begin, .. } = Order::from_bytes(&bytes)? else { return None };
        let mtu = begin.mtu;
        let mut fds = fds.into_iter().map(lifted);
        let (ledger, tap) = (SharedLedger::open(fds.next()?).ok()?, Tap::attached(fds.next()?, &device, mtu).ok()?);
        let unshared = [Unshared::new(&control), Unshared::new(&tap)];
        let mut runner = Runner::new(control, &begin, &ledger, SteeredPort::lent(tap.by_the_arena(), mtu));
        runner.say(Report::Started {}, Vec::new());
        Some(LocalEngine { runner, number, _unshared: unshared })
    }

    /// True if this engine drives the region.
    pub fn drives(&self, region: u32) -> bool {
        self.runner.has_consumer(region)
    }

    /// Descriptor of its device, unless the device was taken away.
    pub fn device(&self) -> Option<RawFd> {
        self.runner.port().device().map(|(tap, _)| tap.as_fd().as_raw_fd())
    }
}
