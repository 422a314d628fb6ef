//! Baton as the client: `baton get` from nginx on the kernel's TCP.

use crate::report::Check;
use crate::workload::site::Site;
use crate::world::process;
use crate::world::{World, find_program};
use anyhow::{Context, bail, ensure};
use baton_apps::signal::Stop;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Time that the fetch may take, and that nginx may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// The TAP device between them, and its subnet.
const DEVICE: &str = "bt-get";
const SERVER: &str = "10.77.200.1";
const CLIENT: &str = "10.77.200.2";

/// A program that is ended when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Fetches the site's file from nginx. `Err` is the reason why this could not be tried.
pub fn check(world: &World, site: &Site, stop: &Stop) -> Result<Check, String> {
    if find_program("nginx").is_none() {
        return Err("Baton as a client of nginx: nginx is not installed: apt-get install nginx".to_owned());
    }
    let seen = fetch(world, site, stop);
    let (ok, seen) = match seen {
        Ok(seen) => (true, seen),
        Err(error) => (false, format!("{error:#}")),
    };
    let what = "baton get fetches the file from nginx, with its digest".to_owned();
    Ok(Check { wire: "TAP, Baton as client".to_owned(), what, ok, seen })
}

fn fetch(world: &World, site: &Site, stop: &Stop) -> anyhow::Result<String> {
    // A persistent device, so that its address can be configured before the client opens it.
    world.client.ip(&format!("tuntap add dev {DEVICE} mode tap"))?;
    world.client.ip(&format!("addr add {SERVER}/24 dev {DEVICE}"))?;
    world.client.ip(&format!("link set {DEVICE} up"))?;
    let home = tempfile::Builder::new().prefix("baton-demo-nginx-").tempdir()?;
    let _nginx = start_nginx(world, site, home.path())?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut command = world.client.command(&program.to_string_lossy());
        command.args(["get", "--json", "--port", &format!("tap:{DEVICE}"), "--addr", &format!("{CLIENT}/24"), "-o"]);
        command.arg(home.path().join("got")).arg(format!("http://{SERVER}/{}", Site::NAME));
        match process::run(&mut command, stop, PATIENCE) {
            Ok(printed) => return compare(&printed, site),
            // nginx does not listen at once.
            Err(error) if error.to_string().contains("refused") && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(error),
        }
    }
}

fn start_nginx(world: &World, site: &Site, home: &std::path::Path) -> anyhow::Result<Running> {
    let (home, root) = (home.display(), site.dir().display());
    let config = format!(
        "daemon off; master_process off; pid \"{home}/pid\"; error_log stderr; events {{}} http {{ access_log off; \
         client_body_temp_path \"{home}\"; proxy_temp_path \"{home}\"; fastcgi_temp_path \"{home}\"; \
         uwsgi_temp_path \"{home}\"; scgi_temp_path \"{home}\"; server {{ listen 80; root \"{root}\"; }} }}"
    );
    let file = format!("{home}/nginx.conf");
    std::fs::write(&file, config)?;
    let mut command = world.client.command("nginx");
    command.args(["-c", &file]).process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Running(command.spawn().context("cannot start nginx")?))
}

fn compare(printed: &str, site: &Site) -> anyhow::Result<String> {
    let outcome: serde_json::Value = serde_json::from_str(printed).context("baton get printed no JSON")?;
    let (Some(got), Some(bytes)) = (outcome["sha256"].as_str(), outcome["bytes"].as_u64()) else {
        bail!("baton get printed '{}'", printed.trim());
    };
    let expected: String = site.sha256.iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(got == expected, "{bytes} bytes with digest {got}");
    Ok(format!("{bytes} bytes, {}…", &got[..8]))
}
