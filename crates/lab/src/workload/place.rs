//! A way of serving that has been set up: its wire, its service and its servers.

use super::server::{Kind, Moved, Server, make_files};
use super::ways::{Placement, Steer, Way};
use crate::world::World;
use crate::world::service::Running;
use crate::world::wire::{configure, queue_for_each_cpu, veth};
use anyhow::{Context, ensure};
use baton_apps::children::family;
use rustix::process::Pid;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A way of serving that has been set up. Its servers end before its service, and the service before
/// the wire.
pub struct Place<'a> {
    /// The way of serving.
    pub way: Way,
    /// The namespaces that it is in.
    pub world: &'a World,
    /// Address of the servers.
    pub address: IpAddr,
    /// Directory for the files of this way.
    pub home: PathBuf,
    servers: Vec<(Kind, Server)>,
    service: Option<Running>,
}

/// How a way is set up, beyond what the way says.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'s> {
    /// Lines of the service's configuration file.
    pub settings: &'s str,
    /// Queues of the wire.
    pub queues: Queues,
}

impl Default for Setting<'_> {
    /// Connections stay in an engine that has more to do than it can: the way that is measured is the engine.
    fn default() -> Self {
        Setting { settings: "[engine]\nload = \"off\"\n", queues: Queues::default() }
    }
}

/// Queues of a wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Queues {
    /// One each way.
    #[default]
    One,
    /// One each way for each CPU: it has the frames that this CPU sends.
    EachCpu,
}

impl<'a> Place<'a> {
    /// Makes the wire and starts the service. `home` holds the files to serve; the other files of this
    /// way go into a directory of their own inside it.
    ///
    /// # Errors
    /// If the wire cannot be made or the service cannot be started.
    pub fn new(world: &'a World, way: Way, subnet: u8, home: &Path) -> anyhow::Result<Place<'a>> {
        Place::with(world, way, subnet, home, &Setting::default())
    }

    /// The same with a setting of the caller's.
    ///
    /// # Errors
    /// Those of [`Place::new`].
    pub fn with(
        world: &'a World,
        way: Way,
        subnet: u8,
        home: &Path,
        Setting { settings, queues }: &Setting<'_>,
    ) -> anyhow::Result<Place<'a>> {
        let device = format!("bt-{subnet}");
        let address = |host: u8| IpAddr::from([10, 77, subnet, host]);
        veth(world, &device, true)?;
        if *queues == Queues::EachCpu {
            queue_for_each_cpu(world, &device)?;
        }
        if way.steer == Steer::Xdp {
            // Over AF_XDP, a checksum that a veth omitted looks like damage.
            world.client.run(&format!("ethtool -K {device} tx off"))?;
            // An XDP program does not change what the interface sends: segments of up to 64 KB.
            world.server.run(&format!("ethtool -K {device} tso off gso off"))?;
        }
        configure(&world.server, &device, &[format!("{}/24", address(2))])?;
        configure(&world.client, &device, &[format!("{}/24", address(1))])?;
        let home = home.join(way.id);
        std::fs::create_dir(&home)?;
        // A kernel way with the frames of xdp also needs the XDP program, which steers nothing then.
        let mut service = None;
        if way.moves() || way.steer == Steer::Xdp {
            service = Some(Running::start(&world.server, &device, way.steer.word(), &home, settings)?);
        } else if way.placement == Placement::Unmoved {
            // `baton run` needs a service to ask, but not on the measured wire.
            world.server.ip("link add bt-idle type veth peer name bt-idle-far")?;
            world.server.ip("link set bt-idle up")?;
            service = Some(Running::start(&world.server, "bt-idle", way.steer.word(), &home, settings)?);
        }
        Ok(Place { way, world, address: address(2), home, servers: Vec::new(), service })
    }

    /// Starts a server.
    ///
    /// # Errors
    /// The errors of [`Server::start`].
    pub fn serve(&mut self, kind: Kind) -> anyhow::Result<()> {
        let server = Server::start(kind, self.world, self.address, &self.home, |words| self.command(words))
            .with_context(|| format!("{}: {:?}", self.way.name, kind))?;
        self.servers.push((kind, server));
        Ok(())
    }

    /// Ends the servers, and returns how many connections of each one moved.
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

    /// The processes of a server and of the service, if there is one.
    pub fn processes(&self, kind: Kind) -> Vec<u32> {
        let servers = self.servers.iter().filter(|(its, _)| *its == kind).map(|(_, server)| server.id());
        let roots = servers.chain(self.service.iter().map(Running::id));
        let roots = roots.filter_map(|id| Pid::from_raw(i32::try_from(id).ok()?));
        roots.flat_map(family).map(|pid| pid.as_raw_nonzero().get().unsigned_abs()).collect()
    }

    /// The service, if this way has one.
    pub fn service(&self) -> Option<&Running> {
        self.service.as_ref()
    }

    /// The command that runs a server's words in this way.
    fn command(&self, words: &[String]) -> anyhow::Result<Command> {
        let own = std::env::current_exe().context("cannot find this program")?;
        let mut command = match self.way.placement {
            Placement::Kernel => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                return Ok(command);
            }
            _ => Command::new(own),
        };
        command.args(["run", "--explain", "--require"]);
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
}

/// Makes a directory with the files to serve.
///
/// # Errors
/// If it cannot be made.
pub fn home() -> anyhow::Result<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::Builder::new().prefix("baton-programs-").tempdir()?;
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755))?;
    make_files(home.path())?;
    ensure!(
        !home.path().to_string_lossy().contains([' ', ';']),
        "the path of the temporary directory must not contain spaces; set TMPDIR"
    );
    Ok(home)
}
