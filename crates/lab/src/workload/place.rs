//! A way of serving that has been set up: its wire, its service and its servers.

use super::account::Account;
use super::at::{At, Caller};
use super::server::{Kind, Server, make_files};
use super::ways::{AT_ONCE, Over, Placement, Steer, Way};
use crate::world::service::Running;
use crate::world::wire::{configure, queue_for_each_cpu, veth};
use crate::world::{Namespace, World};
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
    /// Makes the wire, if the way has one, and starts the service. `subnet` tells its addresses from those of
    /// other places. `home` holds the files to serve; the other files of this
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
        let home = home.join(way.id);
        std::fs::create_dir(&home)?;
        let mut place =
            Place { way, world, address: [127, 0, subnet, 2].into(), home, servers: Vec::new(), service: None };
        if let Some(steer) = way.steer() {
            place.wire(steer, subnet, *queues)?;
        }
        place.service = place.start_service(subnet, settings)?;
        Ok(place)
    }

    /// Makes the wire.
    fn wire(&mut self, steer: Steer, subnet: u8, queues: Queues) -> anyhow::Result<()> {
        let (world, device) = (self.world, device(subnet));
        let address = |host: u8| IpAddr::from([10, 77, subnet, host]);
        veth(world, &device, true)?;
        if queues == Queues::EachCpu {
            queue_for_each_cpu(world, &device)?;
        }
        if steer == Steer::Xdp {
            // Over AF_XDP, a checksum that a veth omitted looks like damage.
            world.client.run(&format!("ethtool -K {device} tx off"))?;
            // An XDP program does not change what the interface sends: segments of up to 64 KB.
            world.server.run(&format!("ethtool -K {device} tso off gso off"))?;
        }
        configure(&world.server, &device, &[format!("{}/24", address(2))])?;
        configure(&world.client, &device, &[format!("{}/24", address(1))])?;
        self.address = address(2);
        Ok(())
    }

    /// Starts the service that the way needs.
    fn start_service(&self, subnet: u8, settings: &str) -> anyhow::Result<Option<Running>> {
        let (server, way) = (self.servers_in(), self.way);
        if way.placement == Placement::Paired {
            // Pairs need no interface, also where there is one.
            let words = ["--no-interface"].map(str::to_owned);
            return Running::start(server, "pair", &words, &self.home, settings).map(Some);
        }
        let Some(steer) = way.steer() else { return Ok(None) };
        // A kernel way with the frames of xdp also needs the XDP program, which steers nothing then.
        let interface = if way.moves() || steer == Steer::Xdp {
            device(subnet)
        } else if way.placement == Placement::Unmoved {
            // `baton run` needs a service to ask, but not on the measured wire.
            server.ip("link add bt-idle type veth peer name bt-idle-far")?;
            server.ip("link set bt-idle up")?;
            "bt-idle".to_owned()
        } else {
            return Ok(None);
        };
        let words = ["--interface", &interface, "--steer", steer.word()].map(str::to_owned);
        Running::start(server, steer.word(), &words, &self.home, settings).map(Some)
    }

    /// Where the servers listen.
    fn servers_at(&self) -> At {
        match self.way.over {
            Over::Wire(_) | Over::Loopback => At::Ip(self.address),
            Over::Unix | Over::Pipelined => At::Unix(self.home.clone()),
        }
    }

    /// Where clients run, and which servers they ask.
    ///
    /// # Errors
    /// If this program cannot be found.
    pub fn caller(&self) -> anyhow::Result<Caller<'_>> {
        let prefix = if self.way.placement == Placement::Paired { self.under_run()? } else { Vec::new() };
        let at_once = if self.way.over == Over::Pipelined { AT_ONCE } else { 1 };
        Ok(Caller { namespace: &self.world.client, prefix, servers: self.servers_at(), at_once })
    }

    /// The namespace of the servers. Without a wire it is that of the clients.
    fn servers_in(&self) -> &'a Namespace {
        if self.way.steer().is_some() { &self.world.server } else { &self.world.client }
    }

    /// Starts a server.
    ///
    /// # Errors
    /// The errors of [`Server::start`].
    pub fn serve(&mut self, kind: Kind) -> anyhow::Result<()> {
        let at = self.servers_at();
        let server = Server::start(kind, self.servers_in(), &at, &self.home, |words| self.command(words))
            .with_context(|| format!("{}: {:?}", self.way.name, kind))?;
        self.servers.push((kind, server));
        Ok(())
    }

    /// Starts a server of each of these kinds.
    ///
    /// # Errors
    /// The errors of [`Server::start`].
    pub fn serve_all(&mut self, kinds: impl IntoIterator<Item = Kind>) -> anyhow::Result<()> {
        for kind in kinds {
            if self.servers.iter().all(|(other, _)| *other != kind) {
                self.serve(kind)?;
            }
        }
        Ok(())
    }

    /// Ends the servers, and returns the account of each one's connections.
    ///
    /// # Errors
    /// If one cannot be ended.
    pub fn end(mut self) -> anyhow::Result<Vec<(Kind, Account)>> {
        let mut all = Vec::new();
        for (kind, server) in std::mem::take(&mut self.servers) {
            all.extend(server.end()?.map(|account| (kind, account)));
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
        let all = [self.under_run()?, words.to_vec()].concat();
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]);
        Ok(command)
    }

    /// The words of `baton run` in this way, which stand before those of a program.
    fn under_run(&self) -> anyhow::Result<Vec<String>> {
        let how: &[&str] = match self.way.placement {
            Placement::Kernel => return Ok(Vec::new()),
            Placement::Chosen | Placement::Paired => &[],
            Placement::Unmoved => &["--engine", "service", "--policy", "never"],
            Placement::Service => &["--engine", "service", "--policy", "fcfs"],
            Placement::Direct => &["--engine", "direct", "--policy", "fcfs"],
        };
        let own = std::env::current_exe().context("cannot find this program")?.display().to_string();
        let socket =
            self.service.iter().flat_map(|service| ["--socket".to_owned(), service.socket().display().to_string()]);
        let words = [own].into_iter().chain(["run", "--explain", "--require"].map(str::to_owned)).chain(socket);
        Ok(words.chain(how.iter().map(|&word| word.to_owned())).chain(["--".to_owned()]).collect())
    }
}

/// The name of a wire's devices.
fn device(subnet: u8) -> String {
    format!("bt-{subnet}")
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
