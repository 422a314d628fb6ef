//! Notifications to systemd (`sd_notify(3)`, `Type=notify`): each is a datagram to the socket
//! that `NOTIFY_SOCKET` names.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A message to the service manager (`sd_notify(3)`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word<'a> {
    /// The service is ready; `systemctl status` shows this text.
    Ready(&'a str),
    /// The service is moving every connection back to the kernel and will then exit.
    Stopping,
}

/// Notifies systemd. Returns false if systemd did not ask for notifications.
///
/// # Errors
/// If sending fails. The service can ignore that and continue.
pub fn notify(word: Word<'_>) -> io::Result<bool> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(socket) => notify_at(&socket, word).map(|()| true),
        None => Ok(false),
    }
}

/// Sends to the socket of that name: a path, or an abstract name after an `@`.
fn notify_at(socket: &OsStr, word: Word<'_>) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(text(word).as_bytes(), &address)?;
    Ok(())
}

/// The datagram's text: one assignment per line. Newlines in a status are replaced, since each
/// would start another assignment.
fn text(word: Word<'_>) -> String {
    match word {
        Word::Ready(status) => format!("READY=1\nSTATUS={}", status.replace('\n', " ")),
        Word::Stopping => "STOPPING=1".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 200];
        let count = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }

    #[test]
    fn by_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        notify_at(path.as_os_str(), Word::Ready("2 interfaces")).unwrap();
        assert_eq!(heard(&systemd), "READY=1\nSTATUS=2 interfaces");
        notify_at(path.as_os_str(), Word::Stopping).unwrap();
        assert_eq!(heard(&systemd), "STOPPING=1");
    }

    #[test]
    fn by_abstract_name() {
        let name = format!("baton-notify-{}", std::process::id());
        let systemd = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        notify_at(OsStr::new(&format!("@{name}")), Word::Ready("a\nSTOPPING=1")).unwrap();
        assert_eq!(heard(&systemd), "READY=1\nSTATUS=a STOPPING=1", "the status is a single line");
    }

    #[test]
    fn sending_to_a_missing_socket_fails() {
        assert!(notify_at(OsStr::new("/nowhere/notify"), Word::Stopping).is_err());
    }
}
