//! A bump while it runs.

use anyhow::Context;
use baton_bump::Bump;
use baton_kernel::lend::Lent;
use baton_lab::report::bump::{Line, Report};
use baton_port::{PacketPort, VnetTap, WaitSet, Waitable};
use std::time::{Duration, Instant};

/// A bump with its two ends.
pub struct Session {
    /// It.
    pub bump: Bump<PacketPort, VnetTap>,
    /// The interface's name.
    pub wire: String,
    /// The device's name.
    pub host: String,
    /// What was lent to the device, if anything.
    pub lent: Option<Lent>,
}

impl Session {
    /// Says that frames pass now.
    pub fn announce(&self, json: bool) {
        if json {
            return Line::Ready { wire: self.wire.clone(), host: self.host.clone() }.print();
        }
        println!("{} passes through {}", self.wire, self.host);
        match self.lent {
            Some(lent) => {
                println!("{} addresses and {} routes are lent until this ends", lent.addresses, lent.routes);
                if lent.left > 0 {
                    println!(
                        "{} routes through several interfaces or next-hop objects go on leading over {} itself",
                        lent.left, self.wire
                    );
                }
            }
            None => println!("now give {} its addresses and bring it up: ip addr add … dev {}", self.host, self.host),
        }
    }

    /// Sleeps until one of the ends has something to say.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
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

    /// What has passed since `start`.
    pub fn report(&mut self, start: Instant) -> Report {
        let (wire, host) = (self.bump.wire().counters(), self.bump.host().counters());
        Report::new(start.elapsed(), self.bump.counters(), self.bump.counts(), wire, host)
    }
}
