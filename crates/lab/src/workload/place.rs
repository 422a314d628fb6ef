//! A way that is up: its wire, its service, its servers.

use super::server::{Kind, Moved, Server, listens, make_files};
use super::ways::{Placement, Steer, Way};
use crate::world::World;
use crate::world::service::Running;
use crate::world::wire::{configure, veth};
use anyhow::{Context, ensure};
use baton_apps::children::family;
use rustix::process::Pid;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// See the file's head. Servers end before their service, and that before its wire.
pub struct Place<'a> {
    /// Which way it is.
    pub way: Way,
    /// Where it is.
    pub world: &'a World,
    /// Where the servers are.
    pub address: IpAddr,
    /// Directory of this way.
    pub home: PathBuf,
    servers: Vec<(Kind, Server)>,
    service: Option<Running>,
}

impl<'a> Place<'a> {
    /// Makes the wire and starts the service; `home` holds the files that are served, and
    /// everything else of this way in a directory of its own.
    ///
    /// # Errors
    /// If the wire cannot be made, or the service not started.
    pub fn new(world: &'a World, way: Way, subnet: u8, home: &Path) -> anyhow::Result<Place<'a>> {
        let device = format!("bt-{subnet}");
        let address = |host: u8| IpAddr::from([10, 77, subnet, host]);
        veth(world, &device, true)?;
        if way.steer == Steer::Xdp {
            // AF_XDP cannot tell a checksum that a veth left out from damage.
            world.client.run(&format!("ethtool -K {device} tx off"))?;
            // The program leaves what the interface sends as it was: segments of up to 64 KB.
            world.server.run(&format!("ethtool -K {device} tso off gso off"))?;
        }
        configure(&world.server, &device, &[format!("{}/24", address(2))])?;
        configure(&world.client, &device, &[format!("{}/24", address(1))])?;
        let home = home.join(way.id);
        std::fs::create_dir(&home)?;
        // Where frames are to be as with xdp, its program is there, and steers nothing.
        let mut service = None;
        if way.moves() || way.steer == Steer::Xdp {
            service = Some(Running::start(&world.server, &device, way.steer.word(), &home)?);
        } else if way.placement == Placement::Unmoved {
            // It has to be there to be asked, but not on the wire that is measured.
            world.server.ip("link add bt-idle type veth peer name bt-idle-far")?;
            world.server.ip("link set bt-idle up")?;
            service = Some(Running::start(&world.server, "bt-idle", way.steer.word(), &home)?);
        }
        Ok(Place { way, world, address: address(2), home, servers: Vec::new(), service })
    }

    /// Starts a server.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn serve(&mut self, kind: Kind) -> anyhow::Result<()> {
        let server = Server::start(self, kind).with_context(|| format!("{}: {:?}", self.way.name, kind))?;
        self.servers.push((kind, server));
        Ok(())
    }

    /// Ends the servers; what became of each one's connections.
    ///
    /// # Errors
    /// If one cannot be ended.
    pub fn end(mut self) -> anyhow::Result<Vec<(Kind, Moved)>> {
        let mut all = Vec::new();
        for (kind, server) in std::mem::take(&mut self.servers) {
            all.extend(server.end()?.map(|moved| (kind, moved)));
        }
        Ok(all)
    }

    /// Processes that serve on this way: a server's, and those of the service, if it has one.
    pub fn processes(&self, kind: Kind) -> Vec<u32> {
        let servers = self.servers.iter().filter(|(its, _)| *its == kind).map(|(_, server)| server.id());
        let roots = servers.chain(self.service.iter().map(Running::id));
        let roots = roots.filter_map(|id| Pid::from_raw(i32::try_from(id).ok()?));
        roots.flat_map(family).map(|pid| pid.as_raw_nonzero().get().unsigned_abs()).collect()
    }

    /// The service, if it has one.
    pub fn service(&self) -> Option<&Running> {
        self.service.as_ref()
    }

    /// A server's command, as this way runs it.
    pub(super) fn command(&self, words: &[String]) -> anyhow::Result<Command> {
        let own = std::env::current_exe().context("cannot find this program")?;
        let mut command = match self.way.placement {
            Placement::Kernel => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                return Ok(command);
            }
            _ => Command::new(own),
        };
        command.args(["run", "--explain"]);
        self.service.iter().for_each(|service| {
            command.arg("--socket").arg(service.socket());
        });
        command.args(match self.way.placement {
            Placement::Kernel | Placement::Chosen => &[][..],
            Placement::Unmoved => &["--engine", "service", "--policy", "never"],
            Placement::Service => &["--engine", "service", "--policy", "fcfs"],
            Placement::Direct => &["--engine", "direct", "--policy", "fcfs"],
        });
        command.arg("--").args(words);
        Ok(command)
    }

    pub(super) fn listens(&self, port: u16) -> anyhow::Result<bool> {
        listens(&mut self.world.server.command("ss"), port)
    }
}

/// A directory with the files that are served.
///
/// # Errors
/// If it cannot be made.
pub fn home() -> anyhow::Result<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::Builder::new().prefix("baton-programs-").tempdir()?;
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755))?;
    make_files(home.path())?;
    ensure!(!home.path().to_string_lossy().contains([' ', ';']), "no space may be in the temporary directory's path");
    Ok(home)
}
