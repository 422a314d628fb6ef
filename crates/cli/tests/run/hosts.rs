//! Hosts with the firewall of a usual package, by its own default rules, which its own program
//! loads within the namespace; and real programs on them.
//!
//! * Docker: its daemon starts there, with its bridge and its chains.
//! * firewalld: its daemon, on a message bus of its own, with its default zone.
//! * ufw: `ufw enable` on a copy of the package's files.
//!
//! The last two let nobody in by default, so the ports of the tests' servers are opened, by the
//! package's own command.

use crate::world::World;
use crate::{programs, tls};
use baton_testkit::{Netns, Running, run, wait_for};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// Ports of the tests' servers.
const PORTS: [&str; 2] = ["5000", "12000"];

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Host {
    Docker,
    Firewalld,
    Ufw,
}

impl Host {
    /// The programs that have to be installed.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Host::Docker => &["dockerd", "docker", "iptables"],
            Host::Firewalld => &["firewalld", "dbus-daemon"],
            Host::Ufw => &["ufw"],
        }
    }

    /// A chain that only this package makes.
    fn chain(self) -> &'static str {
        match self {
            Host::Docker => "DOCKER-USER",
            Host::Firewalld => "filter_IN_public_allow",
            Host::Ufw => "ufw-before-input",
        }
    }

    /// Loads its rules; what keeps them up, if anything has to.
    fn load(self, namespace: &Netns, home: &Path) -> Option<Running> {
        let daemon = match self {
            Host::Docker => Some(start_docker(namespace, home)),
            Host::Firewalld => Some(start_firewalld(namespace, home)),
            Host::Ufw => {
                let [first, last] = PORTS;
                // The command's mounts are its own, so the machine's files stay as they are.
                let script = format!(
                    "cp -a /etc/ufw ufw && mount --bind ufw /etc/ufw && ufw --force enable && \
                     ufw allow {first}:{last}/tcp"
                );
                run(namespace.command("sh").args(["-c", &script]).current_dir(home));
                None
            }
        };
        let rules = namespace.run("nft list ruleset");
        assert!(rules.contains(self.chain()), "{self:?} has not loaded its rules:\n{rules}");
        daemon
    }
}

fn start_docker(namespace: &Netns, home: &Path) -> Running {
    let home = home.join("docker");
    let socket = format!("unix://{}", home.join("socket").display());
    std::fs::create_dir(&home).unwrap();
    let mut command = Command::new("dockerd");
    command.arg("--data-root").arg(home.join("data")).arg("--exec-root").arg(home.join("run"));
    command.arg("--pidfile").arg(home.join("pid")).args(["--storage-driver", "vfs", "-H", &socket]);
    let log = File::create(home.join("log")).unwrap();
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    // Not by `ip netns exec`, which hides the control groups.
    let daemon = namespace.enter(|| Running::start(&mut command));
    wait_for("Docker", || {
        let mut info = Command::new("docker");
        baton_testkit::output(info.args(["-H", &socket, "network", "inspect", "bridge"])).status.success()
    });
    daemon
}

fn start_firewalld(namespace: &Netns, home: &Path) -> Running {
    let [first, last] = PORTS;
    let script = format!(
        "mkdir -p /run/dbus && mount -t tmpfs none /run/dbus && \
         dbus-daemon --system --nopidfile --nosyslog --fork || exit 1\n\
         firewalld --nofork --nopid &\n\
         until firewall-cmd --state; do sleep 0.1; done\n\
         firewall-cmd --add-port={first}-{last}/tcp && touch open\n\
         wait"
    );
    let mut command = namespace.command("sh");
    let log = File::create(home.join("firewalld")).unwrap();
    command.args(["-c", &script]).current_dir(home);
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let daemon = Running::start(&mut command);
    wait_for("firewalld", || home.join("open").exists());
    daemon
}

/// The use of a program: it connects, and checks what it gets.
type Load = fn(&World);

/// Each program's load, on such a host: by the defaults, or with all connections on the engine.
pub fn programs_run(host: Host, policy: Option<&'static str>) {
    let mut world = World::quiet().inside();
    world.policy = policy;
    let _daemon = host.load(&world.ours, world.home.path());
    let loads: [(&str, Load); 9] = [
        ("nginx", programs::nginx_serves_from_several_workers),
        ("python", programs::python_serves),
        ("curl", programs::curl_fetches),
        ("redis", programs::redis_answers_many_connections),
        ("memcached", programs::memcached_serves_from_several_threads),
        ("iperf3", programs::iperf_measures_in_both_directions),
        ("nginx with TLS", tls::nginx_encrypts_and_passes_on),
        ("openssl s_server", tls::openssl_serves),
        ("openssl s_client", tls::openssl_asks),
    ];
    for (name, load) in loads {
        println!("{host:?}, {}: {name}", policy.unwrap_or("by the defaults"));
        load(&world);
    }
}
