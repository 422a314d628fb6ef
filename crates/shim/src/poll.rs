//! `poll` and `select` on a mix of connections in an engine and other descriptors.
//!
//! The kernel polls its own descriptors and this thread's notifier. The connections in an engine
//! are examined before and after that. In the list for the kernel they have the number -1, which
//! the kernel ignores.

use crate::bits::bits;
use crate::connection::{Held, at};
use crate::epoll;
use crate::notifier;
use crate::os::signals::{self, Ran};
use crate::service;
use crate::table::{SlotRef, is_known, is_set};
use baton_socket::service::{Stream, begin_batch};
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

/// `poll(2)`.
pub fn poll(fds: &mut [pollfd], timeout: Option<Duration>, sleep: KernelPoll<'_>) -> Result<usize, i32> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    for fd in fds.iter().filter(|fd| is_set(fd.fd)) {
        epoll::nest(fd.fd);
    }
    let mut left = timeout;
    let ran = signals::ran();
    loop {
        let moved = moved(fds);
        let mut kernels = without(fds, &moved);
        for fd in fds.iter().filter(|fd| is_set(fd.fd)) {
            epoll::refresh(fd.fd);
        }
        if moved.is_empty() {
            sleep(&mut kernels, left)?;
        } else if look_at_once(&mut kernels, sleep)? || has_input(fds, &moved) {
            service::glance();
        } else {
            service::look();
            if look(fds, &moved) == 0 && left != Some(Duration::ZERO) {
                let slept = wait(fds, &moved, &mut kernels, left, (sleep, ran));
                service::look();
                // As in fs/select.c `do_poll`: ready descriptors are reported before a signal.
                slept.or_else(|error| if look(fds, &moved) > 0 { Ok(()) } else { Err(error) })?;
            }
        }
        look_at_sets_again(&mut kernels, sleep);
        let ours = look(fds, &moved);
        let ready = ours + take(fds, &kernels, &moved);
        left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if ready > 0 || left == Some(Duration::ZERO) {
            if service::is_direct() {
                begin_batch(ours);
            }
            return Ok(ready);
        }
    }
}

/// True if a connection in an engine has input that the caller asks for. Then there is no need to
/// poll the engines for more before the call returns.
fn has_input(fds: &mut [pollfd], moved: &[usize]) -> bool {
    look(fds, moved) > 0 && moved.iter().any(|place| fds[*place].revents & POLLIN != 0)
}

/// True if one of the kernel's descriptors is ready now.
fn look_at_once(kernels: &mut [pollfd], sleep: KernelPoll<'_>) -> Result<bool, i32> {
    let any = kernels.iter().any(|fd| fd.fd >= 0);
    Ok(any && sleep(kernels, Some(Duration::ZERO))? > 0)
}

/// Checks epoll sets that look ready once more: the event that made a set ready may have been
/// spurious.
fn look_at_sets_again(kernels: &mut [pollfd], sleep: KernelPoll<'_>) {
    for set in kernels.iter_mut().filter(|fd| fd.revents != 0 && is_set(fd.fd)) {
        epoll::refresh(set.fd);
        set.revents = 0;
        // If a signal interrupts this, the next wait reports it.
        let _ = sleep(std::slice::from_mut(set), Some(Duration::ZERO));
    }
}

/// Sleeps until one of the descriptors may be ready.
fn wait(
    fds: &mut [pollfd],
    moved: &[usize],
    kernels: &mut Vec<pollfd>,
    left: Option<Duration>,
    (sleep, ran): (KernelPoll<'_>, Ran),
) -> Result<(), i32> {
    let mut watches = Watches::default();
    kernels.push(pollfd { fd: watches.set(fds, moved)?, events: POLLIN, revents: 0 });
    // A change before the watches were set is found by examining the connections again. A
    // connection that went home by then has no watch; the kernel reports on it.
    let changed = watches.all.len() < moved.len() || look(fds, moved) > 0;
    // The wait includes the devices of this process's engines; the caller polls the engines
    // afterwards.
    let attendance = service::attend();
    let devices = attendance.iter().flat_map(|_| service::devices());
    kernels.extend(devices.map(|fd| pollfd { fd, events: POLLIN, revents: 0 }));
    if !changed && signals::ran() != ran {
        return Err(libc::EINTR);
    }
    sleep(kernels, if changed { Some(Duration::ZERO) } else { left })?;
    Ok(())
}

/// The positions of connections that are not in the kernel.
fn moved(fds: &[pollfd]) -> Vec<usize> {
    (0..fds.len()).filter(|place| is_known(fds[*place].fd) && at(fds[*place].fd).is_some()).collect()
}

fn look(fds: &mut [pollfd], moved: &[usize]) -> usize {
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

fn without(fds: &[pollfd], moved: &[usize]) -> Vec<pollfd> {
    let mut kernels: Vec<_> = fds.iter().map(|fd| pollfd { revents: 0, ..*fd }).collect();
    moved.iter().for_each(|at| kernels[*at].fd = -1);
    kernels
}

/// Copies the kernel's results for its own descriptors. The result for a connection that was handed
/// over during the call is dropped, because it is that of the husk.
fn take(fds: &mut [pollfd], kernels: &[pollfd], moved: &[usize]) -> usize {
    let mut count = 0;
    let mut ours = moved.iter().copied().peekable();
    for (place, fd) in fds.iter_mut().enumerate() {
        if ours.next_if_eq(&place).is_some() {
            continue;
        }
        let was_handed_over = is_known(fd.fd) && at(fd.fd).is_some();
        fd.revents = if was_handed_over { 0 } else { kernels[place].revents };
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
    use crate::connection::State;
    use crate::ended::Ended;
    use crate::table;

    /// Another thread that forks brings connections home.
    #[test]
    fn a_connection_that_goes_home_before_the_wait_is_polled_by_the_kernel() {
        const OURS: RawFd = 700_003;
        let _turn = table::tests::TURN.lock().unwrap();
        table::enter(OURS, State::Ended(Ended::default()), false).unwrap();
        let mut fds = [OURS, 0].map(|fd| pollfd { fd, events: POLLIN, revents: 0 });
        let mut spans = Vec::new();
        let reported = poll(&mut fds, None, &mut |kernels, left| {
            spans.push(left);
            if spans.len() == 1 {
                drop(table::close(OURS));
            }
            let asked = kernels.iter_mut().find(|fd| fd.fd == OURS);
            Ok(asked.into_iter().map(|fd| fd.revents = POLLIN).count())
        });
        let at_once = Some(Duration::ZERO);
        assert_eq!((reported, fds[0].revents, spans), (Ok(1), POLLIN, vec![at_once, at_once, None]));
    }
}
