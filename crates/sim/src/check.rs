//! Properties that must hold: while a world runs, and when it has come to rest.

use crate::app::{Report, Violation};
use crate::config::{AMPLE_BACKLOG, WorldConfig};
use crate::host::Host;
use crate::machine::Machine;
use crate::script::Expect;

/// `ECONNRESET`.
const RESET: u32 = 104;
/// `ECONNREFUSED`.
const REFUSED: u32 = 111;

/// Every dialogue ended as it had to, at both ends.
///
/// # Errors
/// The first that did not.
pub fn endings(config: &WorldConfig, hosts: &[Host; 2]) -> Result<(), Violation> {
    let ghosts = hosts[0].app.ghosts + hosts[1].app.ghosts;
    if ghosts > 0 && config.listen.1 >= AMPLE_BACKLOG {
        return Err(Violation::Leak(format!("{ghosts} connections that nobody opened")));
    }
    for (id, dialogue) in config.dialogues.iter().enumerate() {
        let client = hosts[0].app.reports.get(&(id, true));
        let server = hosts[1].app.reports.get(&(id, false));
        let sends = (dialogue.client.sends(), dialogue.server.sends());
        let fine = match dialogue.expect {
            Expect::Complete => {
                is_complete(client, sends.0, sends.1) && is_complete(server, sends.1, sends.0)
                    || config.listen.1 < AMPLE_BACKLOG && met_by_cookie(client)
            }
            Expect::Refused => client.is_some_and(|report| report.error == REFUSED) && server.is_none(),
            // The reset may come before the accept: then the server's program never hears of it.
            Expect::Aborted => client.is_some_and(|report| report.received <= sends.1),
        };
        if !fine {
            let what = format!("client {client:?}, server {server:?}, sends {sends:?}");
            return Err(Violation::WrongEnd { id, expect: dialogue.expect, what });
        }
    }
    Ok(())
}

/// A server that had answered with a cookie, and sees another segment before the
/// first, can only reset it (RFC 4987 §3.6). The first may still make a connection,
/// which ends when the reset has reached the client.
fn met_by_cookie(client: Option<&Report>) -> bool {
    client.is_some_and(|report| report.error == RESET)
}

fn is_complete(report: Option<&Report>, sends: u64, receives: u64) -> bool {
    report.is_some_and(|report| {
        report.error == 0 && report.peer_fin && report.sent == sends && report.received == receives
    })
}

/// Queues and memory stay within their bounds.
///
/// # Errors
/// The first that does not.
pub fn bounds(host: &mut Host) -> Result<(), Violation> {
    let limit = host.config.engine.reassembly_bytes;
    let most = host.config.engine.max_connections;
    for machine in &mut host.machines {
        let usage = machine.streamer().reassembly();
        if usage.bytes > limit {
            return Err(Violation::Leak(format!("{} bytes parked, {limit} allowed", usage.bytes)));
        }
        let connections = machine.tce().connections();
        if connections > most {
            return Err(Violation::Leak(format!("{connections} connections, {most} allowed")));
        }
        if let Some(what) = machine.port.unpublished.take() {
            return Err(Violation::Leak(what));
        }
        let counters = machine.streamer().counters();
        if counters.hostile_consumer != 0 {
            return Err(Violation::Leak("a good consumer was taken for a hostile one".into()));
        }
    }
    Ok(())
}

/// After the last connection nothing of any is left.
///
/// # Errors
/// The first that is left.
pub fn nothing_left(hosts: &mut [Host; 2]) -> Result<(), Violation> {
    for machine in hosts.iter_mut().flat_map(|host| &mut host.machines) {
        let parked = machine.streamer().reassembly().bytes;
        let connections = machine.tce().connections();
        if parked != 0 || connections != 0 {
            return Err(Violation::Leak(format!("{parked} bytes parked, {connections} connections at the end")));
        }
    }
    Ok(())
}

/// A host's counters that are not 0, in words.
pub fn counters(host: &mut Host) -> String {
    let of_one = |machine: &mut Machine| {
        let streamer: Vec<_> = machine.streamer().counters().iter().collect();
        let tce: Vec<_> = machine.tce().counters().iter().collect();
        let counted = streamer.into_iter().chain(tce).filter(|(_, value)| *value != 0);
        counted.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    };
    host.machines.iter_mut().map(of_one).collect::<Vec<_>>().join("; other engine: ")
}
