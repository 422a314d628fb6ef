//! A run's share of the service: it joins or starts it, keeps it alive, and is perhaps the last to
//! leave.

use super::place::{Place, Setup};
use super::service::{TO_WAIT, abandon, await_end, bury, end, ethernet, join, start};
use super::watch::Watch;
use anyhow::{Context, bail};
use baton_apps::fail::usage;
use baton_service::broker::PairUsers;
use rustix::process::Pid;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A run's share of the service.
pub struct Private {
    place: Place,
    /// Dropped before the check whether other runs are left.
    watch: Option<Watch>,
    member: Option<File>,
    joined: bool,
}

impl Private {
    /// Joins the service of this network namespace, or starts one for these interfaces (all
    /// Ethernet interfaces if none is named). It serves the descendants of this process, whichever
    /// user they run as; each user reaches only its own connections.
    ///
    /// # Errors
    /// The service's last message if it ended at once; an error if an existing one does not answer.
    pub fn enter(home: &Path, mut setup: Setup) -> anyhow::Result<Private> {
        let place = Place::find(Path::new("/run"), home)?;
        let locked = place.lock(TO_WAIT).context("another baton run takes too long to start or end its service")?;
        let (service, joined) = match join(&place.socket()) {
            Ok(service) => (service, true),
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::PermissionDenied) => {
                bail!("the service of another baton run: {error}")
            }
            Err(_) => {
                if setup.interfaces.is_empty() {
                    setup.interfaces = ethernet()?;
                    if setup.interfaces.is_empty() && setup.pair == PairUsers::Never {
                        return Err(usage(
                            "there is no Ethernet interface here",
                            "name an interface that can be used: --interface NAME; or leave out --pair never, to \
                             join both ends of connections on this machine",
                        ));
                    }
                }
                await_end(&place)?;
                let left = bury(&setup.interfaces)?;
                if left > 0 {
                    bail!(
                        "{left} connections of a killed service continue in engines inside programs and must end first"
                    );
                }
                let started = start(&place, &locked, &setup);
                (started.inspect_err(|_| abandon(&place, &locked))?, false)
            }
        };
        let member = place.enter().context("cannot register this run with its service")?;
        let watch = Watch::start(place.clone(), service).context("cannot watch the service")?;
        Ok(Private { place, watch: Some(watch), member: Some(member), joined })
    }

    /// Path of the service's socket.
    pub fn socket(&self) -> PathBuf {
        self.place.socket()
    }

    /// The directory of the service.
    pub fn place(&self) -> Place {
        self.place.clone()
    }

    /// Returns true if another run started the service.
    pub fn was_joined(&self) -> bool {
        self.joined
    }

    /// Returns true if this process belongs to the service.
    pub fn has(&self, pid: Pid) -> bool {
        self.place.has(pid)
    }
}

impl Drop for Private {
    /// Ends the service if no other run uses it, and waits until it has ended.
    fn drop(&mut self) {
        drop(self.watch.take());
        // Without the lock, leave it alone: it ends by itself after the last process that it serves.
        let Ok(locked) = self.place.lock(TO_WAIT) else { return };
        drop(self.member.take());
        if !self.place.is_used() {
            end(&self.place);
            self.place.remove(&locked);
        }
    }
}
