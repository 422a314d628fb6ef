//! `poll` and `select` on a mix of connections in an engine and other descriptors.
//!
//! The kernel polls its own descriptors and this thread's notifier. The connections in an engine
//! are examined before and after that. In the list for the kernel they have the number -1, which
//! the kernel ignores.

use crate::bits::bits;
use crate::busy_poll;
use crate::connection::{Held, at};
use crate::connections::rest_if_unused;
use crate::epoll;
use crate::notifier;
use crate::os::signals::{self, Ran};
use crate::service;
use crate::table::{SlotRef, is_known, is_set};
use baton_client::{Stream, begin_batch};
use baton_consumer::clock;
use libc::{POLLERR, POLLHUP, POLLIN, c_short, pollfd};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::task::Waker;
use std::time::{Duration, Instant};

/// True if any of the descriptors may be a connection or an epoll set that the library knows.
pub fn concerns(fds: &[pollfd]) -> bool {
    fds.iter().any(|fd| is_known(fd.fd))
}

/// The kernel's poll, with descriptors and a time limit.
pub type KernelPoll<'a> = &'a mut dyn FnMut(&mut [pollfd], Option<Duration>) -> Result<usize, i32>;

/// `poll(2)` on any descriptors. `sleep` is the kernel's poll.
pub fn poll(fds: &mut [pollfd], timeout: Option<Duration>, sleep: KernelPoll<'_>) -> Result<usize, i32> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    for fd in fds.iter().filter(|fd| is_set(fd.fd)) {
        epoll::nest(fd.fd);
    }
    let mut left = timeout;
    let ran = signals::ran();
    loop {
        let moved = in_engine(fds);
        let mut kernel_fds = kernel_list(fds, &moved);
        for fd in fds.iter().filter(|fd| is_set(fd.fd)) {
            epoll::refresh(fd.fd);
        }
        if moved.is_empty() {
            rest_if_unused();
            sleep(&mut kernel_fds, left)?;
        } else if kernel_has_ready(&mut kernel_fds, sleep)? || has_input(fds, &moved) {
            service::glance();
        } else {
            service::look();
            if update_revents(fds, &moved) == 0 && left != Some(Duration::ZERO) {
                let mut polled =
                    Polled { fds, moved: &moved, kernel_fds: &mut kernel_fds, sleep: &mut *sleep, asked: 0 };
                let slept = if service::is_direct() {
                    busy_poll::wait(left, |left| match left {
                        Some(Duration::ZERO) => polled.check_once(),
                        left => (polled.wait(left, ran), 1),
                    })
                } else {
                    polled.wait(left, ran)
                };
                service::look();
                // As in fs/select.c `do_poll`: ready descriptors are reported before a signal.
                slept.or_else(|error| if update_revents(fds, &moved) > 0 { Ok(()) } else { Err(error) })?;
            }
        }
        recheck_sets(&mut kernel_fds, sleep);
        let ours = update_revents(fds, &moved);
        let ready = ours + copy_kernel_results(fds, &kernel_fds, &moved);
        left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if ready > 0 || left == Some(Duration::ZERO) {
            if service::is_direct() {
                begin_batch(ours);
            }
            return Ok(ready);
        }
    }
}

/// True if a connection in an engine has input that the caller asks for. Then the engines need not be
/// polled again before the call returns.
fn has_input(fds: &mut [pollfd], moved: &[usize]) -> bool {
    update_revents(fds, moved) > 0 && moved.iter().any(|place| fds[*place].revents & POLLIN != 0)
}

/// True if one of the kernel's descriptors is ready now.
fn kernel_has_ready(kernel_fds: &mut [pollfd], sleep: KernelPoll<'_>) -> Result<bool, i32> {
    let any = kernel_fds.iter().any(|fd| fd.fd >= 0);
    Ok(any && sleep(kernel_fds, Some(Duration::ZERO))? > 0)
}

/// Checks epoll sets that look ready once more: the event that made a set ready may have been
/// spurious.
fn recheck_sets(kernel_fds: &mut [pollfd], sleep: KernelPoll<'_>) {
    for set in kernel_fds.iter_mut().filter(|fd| fd.revents != 0 && is_set(fd.fd)) {
        epoll::refresh(set.fd);
        set.revents = 0;
        // If a signal interrupts this, the next wait reports it.
        let _ = sleep(std::slice::from_mut(set), Some(Duration::ZERO));
    }
}

/// The descriptors of a call that waits.
struct Polled<'a> {
    fds: &'a mut [pollfd],
    moved: &'a [usize],
    kernel_fds: &'a mut Vec<pollfd>,
    sleep: KernelPoll<'a>,
    /// When the kernel was last asked about its own, in nanoseconds.
    asked: u64,
}

impl Polled<'_> {
    /// Looks once whether one of them is ready, and returns 1 if so. The kernel is asked about its own now and then.
    fn check_once(&mut self) -> (Result<(), i32>, usize) {
        service::look();
        let mut is_ready = update_revents(self.fds, self.moved) > 0;
        if !is_ready && self.kernel_fds.iter().any(|fd| fd.fd >= 0) && busy_poll::is_kernel_due(self.asked) {
            self.asked = clock::at_once();
            // The wait finds an error again.
            is_ready = !matches!((self.sleep)(self.kernel_fds, Some(Duration::ZERO)), Ok(0));
        }
        (Ok(()), usize::from(is_ready))
    }

    /// Sleeps until one of the descriptors may be ready.
    fn wait(&mut self, left: Option<Duration>, ran: Ran) -> Result<(), i32> {
        let Polled { fds, moved, kernel_fds, sleep, .. } = self;
        let mut watches = Watches::default();
        kernel_fds.push(pollfd { fd: watches.set(fds, moved)?, events: POLLIN, revents: 0 });
        // A change before the watches were set is found by examining the connections again. A
        // connection that went home by then has no watch; the kernel reports on it.
        let changed = watches.all.len() < moved.len() || update_revents(fds, moved) > 0;
        // The wait includes the devices of this process's engines; the caller polls the engines
        // afterwards.
        let attendance = service::attend();
        let devices = attendance.iter().flat_map(|_| service::devices());
        kernel_fds.extend(devices.map(|fd| pollfd { fd, events: POLLIN, revents: 0 }));
        if !changed && signals::ran() != ran {
            return Err(libc::EINTR);
        }
        sleep(kernel_fds, if changed { Some(Duration::ZERO) } else { left })?;
        Ok(())
    }
}

/// The positions of connections that are not in the kernel.
fn in_engine(fds: &[pollfd]) -> Vec<usize> {
    (0..fds.len()).filter(|place| is_known(fds[*place].fd) && at(fds[*place].fd).is_some()).collect()
}

/// Sets the results of the connections in an engine. Returns how many are ready.
fn update_revents(fds: &mut [pollfd], moved: &[usize]) -> usize {
    let mut count = 0;
    for &fd in moved {
        let ready = epoll::readiness(fds[fd].fd).map_or(0, |readiness| bits(&readiness));
        let asked = fds[fd].events | POLLERR | POLLHUP;
        // The events of `poll` and of epoll have the same bits.
        fds[fd].revents = ready as c_short & asked;
        count += usize::from(fds[fd].revents != 0);
    }
    count
}

/// The list for the kernel, without the connections in an engine.
fn kernel_list(fds: &[pollfd], moved: &[usize]) -> Vec<pollfd> {
    let mut kernel_fds: Vec<_> = fds.iter().map(|fd| pollfd { revents: 0, ..*fd }).collect();
    moved.iter().for_each(|at| kernel_fds[*at].fd = -1);
    kernel_fds
}

/// Copies the kernel's results for its own descriptors. The result for a connection that was handed
/// over during the call is dropped, because it is that of the husk.
fn copy_kernel_results(fds: &mut [pollfd], kernel_fds: &[pollfd], moved: &[usize]) -> usize {
    let mut count = 0;
    let mut ours = moved.iter().copied().peekable();
    for (place, fd) in fds.iter_mut().enumerate() {
        if ours.next_if_eq(&place).is_some() {
            continue;
        }
        let was_handed_over = is_known(fd.fd) && at(fd.fd).is_some();
        fd.revents = if was_handed_over { 0 } else { kernel_fds[place].revents };
        count += usize::from(fd.revents != 0);
    }
    count
}

/// The watches that one wait sets; dropping it removes them.
#[derive(Default)]
struct Watches {
    all: Vec<(RawFd, SlotRef, u64)>,
    wait: Option<notifier::ThreadWait>,
}

impl Watches {
    /// Sets a watch on each connection, which notifies this thread. Returns the descriptor of the
    /// thread's notifier.
    fn set(&mut self, fds: &[pollfd], moved: &[usize]) -> Result<RawFd, i32> {
        let notifier = &self.wait.insert(notifier::begin()?).notifier;
        for (fd, held) in moved.iter().filter_map(|place| Some((fds[*place].fd, at(fds[*place].fd)?))) {
            if let Some(stream) = held.stream() {
                self.all.push((fd, held.slot_ref, stream.watch(Waker::from(notifier.clone()))));
            }
        }
        Ok(notifier.as_fd().as_raw_fd())
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for (fd, slot_ref, watch) in self.all.drain(..) {
            let held = at(fd).filter(|held| held.slot_ref.is(&slot_ref));
            held.as_ref().and_then(Held::stream).into_iter().for_each(|stream: &Stream| stream.unwatch(watch));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ended::Ended;
    use crate::state::State;
    use crate::table;

    /// Another thread that forks brings connections home.
    #[test]
    fn a_connection_that_goes_home_before_the_wait_is_polled_by_the_kernel() {
        const OURS: RawFd = 700_003;
        let _turn = table::tests::TURN.lock().unwrap();
        table::enter(OURS, State::Ended(Ended::default()), false).unwrap();
        let mut fds = [OURS, 0].map(|fd| pollfd { fd, events: POLLIN, revents: 0 });
        let mut spans = Vec::new();
        let reported = poll(&mut fds, None, &mut |kernel_fds, left| {
            spans.push(left);
            if spans.len() == 1 {
                drop(table::close(OURS));
            }
            let asked = kernel_fds.iter_mut().find(|fd| fd.fd == OURS);
            Ok(asked.into_iter().map(|fd| fd.revents = POLLIN).count())
        });
        let at_once = Some(Duration::ZERO);
        assert_eq!((reported, fds[0].revents, spans), (Ok(1), POLLIN, vec![at_once, at_once, None]));
    }
}
