//! `poll` and `select` over connections that are not in the kernel, beside what is.
//!
//! The kernel is asked about its own descriptors and this thread's bell; ours are looked at
//! before and after. In what the kernel sees, ours have the number -1, which it passes over.

use crate::bell;
use crate::bits::bits;
use crate::connection::{Held, at};
use crate::epoll;
use crate::service;
use crate::sys::signals::{self, Ran};
use crate::table::{Named, is_known, is_set};
use baton_client::{Stream, begin_batch};
use libc::{POLLERR, POLLHUP, POLLIN, c_short, pollfd};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::task::Waker;
use std::time::{Duration, Instant};

/// True if any of them may be ours.
pub fn concerns(fds: &[pollfd]) -> bool {
    fds.iter().any(|fd| is_known(fd.fd))
}

/// The kernel's poll: descriptors, and how long.
pub type Sleep<'a> = &'a mut dyn FnMut(&mut [pollfd], Option<Duration>) -> Result<usize, i32>;

/// `poll(2)`.
pub fn poll(fds: &mut [pollfd], timeout: Option<Duration>, sleep: Sleep<'_>) -> Result<usize, i32> {
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
                // As in fs/select.c `do_poll`: what there is comes before a signal.
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

/// True if one of ours is known to have what the caller wants to read: whatever else has come can
/// wait a moment.
fn has_input(fds: &mut [pollfd], moved: &[usize]) -> bool {
    look(fds, moved) > 0 && moved.iter().any(|place| fds[*place].revents & POLLIN != 0)
}

/// True if one of the kernel's is ready already.
fn look_at_once(kernels: &mut [pollfd], sleep: Sleep<'_>) -> Result<bool, i32> {
    let any = kernels.iter().any(|fd| fd.fd >= 0);
    Ok(any && sleep(kernels, Some(Duration::ZERO))? > 0)
}

/// What made a set look ready may have been nothing: then the kernel is asked once more.
fn look_at_sets_again(kernels: &mut [pollfd], sleep: Sleep<'_>) {
    for set in kernels.iter_mut().filter(|fd| fd.revents != 0 && is_set(fd.fd)) {
        epoll::refresh(set.fd);
        set.revents = 0;
        // A signal that came meanwhile is met by the next wait.
        let _ = sleep(std::slice::from_mut(set), Some(Duration::ZERO));
    }
}

/// Waits for all of them.
fn wait(
    fds: &mut [pollfd],
    moved: &[usize],
    kernels: &mut Vec<pollfd>,
    left: Option<Duration>,
    (sleep, ran): (Sleep<'_>, Ran),
) -> Result<(), i32> {
    let mut watches = Watches::default();
    kernels.push(pollfd { fd: watches.set(fds, moved)?, events: POLLIN, revents: 0 });
    // What changed before the watch was set is found by looking again. One that went home by
    // then has none: it is the kernel's to tell of.
    let changed = watches.all.len() < moved.len() || look(fds, moved) > 0;
    // Devices of our own engines are waited for too; what comes is looked at afterwards.
    let attendance = service::attend();
    let devices = attendance.iter().flat_map(|_| service::devices());
    kernels.extend(devices.map(|fd| pollfd { fd, events: POLLIN, revents: 0 }));
    if !changed && signals::ran() != ran {
        return Err(libc::EINTR);
    }
    sleep(kernels, if changed { Some(Duration::ZERO) } else { left })?;
    Ok(())
}

/// Places of those that are not in the kernel.
fn moved(fds: &[pollfd]) -> Vec<usize> {
    (0..fds.len()).filter(|place| is_known(fds[*place].fd) && at(fds[*place].fd).is_some()).collect()
}

fn look(fds: &mut [pollfd], moved: &[usize]) -> usize {
    let mut count = 0;
    for &fd in moved {
        let there = epoll::readiness(fds[fd].fd).map_or(0, |there| bits(&there));
        let asked = fds[fd].events | POLLERR | POLLHUP;
        // The bits of both calls are the same numbers.
        fds[fd].revents = there as c_short & asked;
        count += usize::from(fds[fd].revents != 0);
    }
    count
}

fn without(fds: &[pollfd], moved: &[usize]) -> Vec<pollfd> {
    let mut kernels: Vec<_> = fds.iter().map(|fd| pollfd { revents: 0, ..*fd }).collect();
    moved.iter().for_each(|at| kernels[*at].fd = -1);
    kernels
}

/// Takes the kernel's word for its own. A connection that was handed over meanwhile is
/// looked at anew: what the kernel said of it was the husk's.
fn take(fds: &mut [pollfd], kernels: &[pollfd], moved: &[usize]) -> usize {
    let mut count = 0;
    let mut ours = moved.iter().copied().peekable();
    for (place, fd) in fds.iter_mut().enumerate() {
        if ours.next_if_eq(&place).is_some() {
            continue;
        }
        let gone = is_known(fd.fd) && at(fd.fd).is_some();
        fd.revents = if gone { 0 } else { kernels[place].revents };
        count += usize::from(fd.revents != 0);
    }
    count
}

/// Watches of one wait.
#[derive(Default)]
struct Watches {
    all: Vec<(RawFd, Named, u64)>,
    wait: Option<bell::Wait>,
}

impl Watches {
    /// Has this thread's bell ring for all of them; its descriptor.
    fn set(&mut self, fds: &[pollfd], moved: &[usize]) -> Result<RawFd, i32> {
        let bell = &self.wait.insert(bell::begin()?).bell;
        for (fd, held) in moved.iter().filter_map(|place| Some((fds[*place].fd, at(fds[*place].fd)?))) {
            if let Some(stream) = held.stream() {
                self.all.push((fd, held.named, stream.watch(Waker::from(bell.clone()))));
            }
        }
        Ok(bell.as_fd().as_raw_fd())
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for (fd, named, watch) in self.all.drain(..) {
            let held = at(fd).filter(|held| held.named.is(&named));
            held.as_ref().and_then(Held::stream).into_iter().for_each(|stream: &Stream| stream.unwatch(watch));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::State;
    use crate::over::Over;
    use crate::table;

    /// As by a thread that forks.
    #[test]
    fn who_goes_home_before_the_wait_is_asked_of_the_kernel() {
        const OURS: RawFd = 700_003;
        let _turn = table::tests::TURN.lock().unwrap();
        table::enter(OURS, State::Over(Over::default()), false).unwrap();
        let mut fds = [OURS, 0].map(|fd| pollfd { fd, events: POLLIN, revents: 0 });
        let mut spans = Vec::new();
        let told = poll(&mut fds, None, &mut |kernels, left| {
            spans.push(left);
            if spans.len() == 1 {
                drop(table::close(OURS));
            }
            let asked = kernels.iter_mut().find(|fd| fd.fd == OURS);
            Ok(asked.into_iter().map(|fd| fd.revents = POLLIN).count())
        });
        let at_once = Some(Duration::ZERO);
        assert_eq!((told, fds[0].revents, spans), (Ok(1), POLLIN, vec![at_once, at_once, None]));
    }
}
