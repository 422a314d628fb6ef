//! The engine's process: runs an engine and carries out the broker's orders.
//!
//! The process has a device, a ledger and the consumers' memory, all of which the broker sends, and
//! no privileges. It sleeps until the device, a doorbell or the broker wakes it.

use crate::privileges;
use baton_consumer::memory::SharedLedger;
use baton_engine::frame_io::PortError;
use baton_ipc::channel::{Channel, Parcel};
use baton_ipc::engine::Runner;
use baton_ipc::order::{Order, Report};
use baton_journal::{Kind, Level, tell};
use baton_port::wait::WaitSet;
use baton_port::{SteeredPort, Tap, XdpOptions, XdpPort};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};

/// The number of busy turns between two reads from the broker.
const HEAR_EVERY: u32 = 16;

/// Why an engine's process ended.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A system call failed.
    #[error("{0}: {1}")]
    System(&'static str, #[source] io::Error),
    /// The device failed.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The broker's first message is invalid.
    #[error("the broker did not send a valid start order")]
    Start,
}

/// Runs an engine for the broker at the other end of `control`, until the broker ends it.
///
/// # Errors
/// [`EngineError`].
pub fn run(control: OwnedFd) -> Result<(), EngineError> {
    let control = Channel::new(control);
    let Some(Parcel { bytes, fds }) = wait_for_first(&control)? else { return Ok(()) };
    let mut fds = fds.into_iter();
    let (Some(Order::Start { device, xdp, begin, run_as }), Some(ledger)) = (Order::from_bytes(&bytes), fds.next())
    else {
        return Err(EngineError::Start);
    };
    let (port, sockets) = open_port(&device, xdp, begin.mtu, fds.next())?;
    privileges::drop_all(run_as).map_err(|e| EngineError::System("dropping privileges", e.into()))?;
    let ledger = SharedLedger::open(ledger).map_err(|e| EngineError::System("opening the ledger", e))?;
    let mut runner = Runner::new(control, &begin, &ledger, port);
    tell(Level::Info, Kind::ENGINE, |event| event.text(format!("drives {device}, without privileges")));
    runner.say(Report::Started {}, sockets);
    drive(&mut runner)?;
    tell(Level::Info, Kind::ENGINE, |event| event.text("ends: its broker has gone, and it has no connection"));
    Ok(())
}

fn drive(runner: &mut Runner) -> Result<(), EngineError> {
    let mut turns = 0u32;
    let mut heard = true;
    loop {
        turns = turns.wrapping_add(1);
        if heard || turns.is_multiple_of(HEAR_EVERY) {
            runner.hear();
        }
        if runner.is_orphan() && runner.is_empty() {
            return Ok(());
        }
        let idle = runner.turn()?.is_idle();
        heard = idle && runner.sleep().map_err(|e| EngineError::System("waiting", e))?;
    }
}

/// Opens the port, and returns it with the sockets to which the broker is to direct frames. Only
/// opening sockets needs privileges.
fn open_port(
    device: &str,
    xdp: Option<bool>,
    mtu: u16,
    tap: Option<OwnedFd>,
) -> Result<(SteeredPort, Vec<OwnedFd>), EngineError> {
    let failed = |error| EngineError::System("opening the device", io::Error::other(error));
    let Some(driver) = xdp else {
        let tap = Tap::attached(tap.ok_or(EngineError::Start)?, device, mtu).map_err(failed)?;
        return Ok((SteeredPort::lent(tap, mtu), Vec::new()));
    };
    let options = XdpOptions::new().generic(!driver);
    let port = XdpPort::open_sockets(device, options).map_err(failed)?;
    let sockets = port.sockets().map(|socket| socket.as_fd().try_clone_to_owned()).collect::<io::Result<_>>();
    Ok((SteeredPort::xdp(port), sockets.map_err(|e| EngineError::System("duplicating", e))?))
}

fn wait_for_first(control: &Channel) -> Result<Option<Parcel>, EngineError> {
    loop {
        match control.receive() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut set = WaitSet::new();
                set.add(control);
                set.wait(None).map_err(|e| EngineError::System("waiting for the broker", e))?;
            }
            received => return received.map_err(|e| EngineError::System("reading from the broker", e)),
        }
    }
}
