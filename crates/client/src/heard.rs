//! Events of the library inside a program: messages of the broker, and arrivals in engines.

use baton_ipc::message::{Loss, Reply};
use baton_journal::{Event, Kind, Level, is_on, tell};
use baton_policy::Reason;
use baton_wire::addr::Tuple;

/// Tells of a message, before anything is done about it. `tuple` names a connection by its number.
pub(super) fn tell_of(reply: &Reply, tuple: impl Fn(u64) -> Option<Tuple>) {
    if is_on(Level::Trace) {
        tell(Level::Trace, Kind::MESSAGE, |event| event.text(format!("hears {reply:?}")));
    }
    let line = |level, kind, id, code: &str, text: &str| {
        let describe = |event: Event| event.tuple(tuple(id)).reason(code.to_owned());
        tell(level, kind, |event| describe(event).text(format!("connection {id}: {text}")));
    };
    match reply {
        Reply::Stays { id, code, text, .. } => line(Level::Debug, Kind::STAYS, *id, code, text),
        Reply::Home { id, .. } => line(Level::Debug, Kind::HOME, *id, "", "it is in the kernel again"),
        Reply::Gone { id, loss: Loss(None), .. } => {
            line(Level::Debug, Kind::ENDED, *id, "", "it has ended in the engine");
        }
        Reply::Gone { id, loss: Loss(Some(text)), .. } => {
            line(Level::Error, Kind::LOST, *id, Reason::Lost.code(), text)
        }
        Reply::Dead { region } => tell(Level::Warn, Kind::ENGINE, |event| {
            event.text(format!("the engine of memory {region} has ended; its connections come home"))
        }),
        Reply::Engine {} | Reply::LocalEngine { .. } => {
            tell(Level::Info, Kind::ENGINE, |event| event.text("this program gets an engine of its own"));
        }
        Reply::Refused { text } => tell(Level::Warn, Kind::DENIED, |event| event.text(text)),
        Reply::Restarted {} => tell(Level::Warn, Kind::BROKER, |event| {
            event.reason(Reason::BrokerDied).text("the broker died, and another goes on")
        }),
        _ => {}
    }
}

/// Tells that the engine has a connection.
pub(super) fn tell_of_arrival(id: u64, tuple: impl Fn() -> Option<Tuple>) {
    tell(Level::Debug, Kind::MOVED, |event| {
        event.tuple(tuple()).reason(Reason::HandedOver).text(format!("connection {id}: it is in the engine"))
    });
}
