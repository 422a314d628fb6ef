//! A running bump: what it announces, how it waits, and what it reports.

use anyhow::Context;
use baton_bump::Bump;
use baton_kernel::lend::Lent;
use baton_lab::report::bump::{Line, Report};
use baton_port::{PacketPort, VnetTap, WaitSet, Waitable};
use std::time::{Duration, Instant};

/// A bump and the two devices that it connects.
pub struct Session {
    /// The bump itself.
    pub bump: Bump<PacketPort, VnetTap>,
    /// Name of the interface.
    pub wire: String,
    /// Name of the device that the kernel's stack uses instead.
    pub host: String,
    /// The addresses and routes lent to the device; `None` with `--keep`.
    pub lent: Option<Lent>,
}

impl Session {
    /// Prints that frames now pass, as JSON or as text.
    pub fn announce(&self, json: bool) {
        if json {
            return Line::Ready { wire: self.wire.clone(), host: self.host.clone() }.print();
        }
        println!("{} now passes through {}", self.wire, self.host);
        match self.lent {
            Some(lent) => {
                println!("lent {} addresses and {} routes until this program ends", lent.addresses, lent.routes);
                if lent.left > 0 {
                    println!(
                        "{} routes with several interfaces or next-hop objects still lead over {} itself",
                        lent.left, self.wire
                    );
                }
            }
            None => println!("now configure {0}: ip addr add ADDRESS/LEN dev {0}; ip link set {0} up", self.host),
        }
    }

    /// Sleeps until one of the two devices is ready, or until `timeout`.
    ///
    /// # Errors
    /// If `poll` fails.
    pub fn wait(&mut self, timeout: Duration) -> anyhow::Result<()> {
        let mut set = WaitSet::new();
        self.bump.wire().poll_fds(&mut set);
        if !self.bump.is_stuck() {
            self.bump.host().poll_fds(&mut set);
        }
        if self.bump.wire().prepare_wait() {
            set.wait(Some(timeout)).context("cannot wait")?;
        }
        self.bump.wire().finish_wait();
        Ok(())
    }

    /// Counters since `start`.
    pub fn report(&mut self, start: Instant) -> Report {
        let (wire, host) = (self.bump.wire().counters(), self.bump.host().counters());
        Report::new(start.elapsed(), self.bump.counters(), self.bump.counts(), wire, host)
    }
}
