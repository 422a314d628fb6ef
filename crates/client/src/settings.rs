//! Settings that a program makes on a stream, independent of its connection's location.
//!
//! Each setting is passed to whichever of kernel and engine has the connection, and again to the
//! next one, so the socket returns to the kernel with the options that the program set. Options
//! that were never set here are left to the socket. Nothing is set on a husk, because the broker
//! needs some options off there.

use super::connection::Connection;
use super::region::Region;
use super::setting::Setting;
use super::shared::Inner;
use baton_consumer::consumer::{Conn, Consumer};
use rustix::net::sockopt;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::time::Duration;

impl Connection {
    /// Returns the last setting of a kind.
    pub fn setting<T>(&self, kind: impl FnMut(&Setting) -> Option<T>) -> Option<T> {
        self.settings.iter().chain(&self.before).find_map(kind)
    }

    /// True if closing must reset the connection (`SO_LINGER` with zero time), as set on the stream
    /// or on its socket before the handover.
    pub fn aborts(&self) -> bool {
        let span = self.setting(|setting| if let Setting::Linger(span) = setting { Some(*span) } else { None });
        span.or_else(|| sockopt::socket_linger(&self.fd).ok()) == Some(Some(Duration::ZERO))
    }

    /// True if reading has been shut down.
    pub fn is_shut_for_reading(&self) -> bool {
        self.settings.contains(&Setting::ShutRead)
    }

    /// Applies all settings to the socket after the connection has arrived in the kernel.
    pub fn tell_socket(&mut self) {
        for setting in &self.settings {
            // The kernel accepted each setting before, or the program was told of the error.
            let _ = setting.tell_socket(self.fd.as_fd());
        }
        self.settings_pending = false;
    }

    /// Passes all settings to the engine that has the connection. Those that it has no space for
    /// now are sent again later.
    pub fn tell_engine(&mut self, consumer: &mut Consumer, conn: Conn) {
        let told = self.settings.iter().try_for_each(|setting| setting.tell_engine(consumer, conn, &self.settings));
        self.settings_pending = matches!(told, Err(error) if error.kind() == ErrorKind::WouldBlock);
        self.note_settings_told();
    }
}

impl Inner {
    /// Applies a setting now, and at every later move.
    pub(super) fn set(&mut self, id: u64, setting: Setting) -> io::Result<()> {
        let Inner { connections, regions, .. } = self;
        let connection = connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        if connection.is_in_kernel() {
            setting.tell_socket(connection.fd.as_fd())?;
        } else if let Setting::Congestion(name) = &setting {
            // Only the kernel knows the valid names. The call has no effect on a husk.
            sockopt::set_tcp_congestion(&connection.fd, name)?;
        }
        // Settings that cannot change the stream's readiness wake nobody.
        let quiet = matches!(setting, Setting::NoDelay(_) | Setting::Cork(_));
        let kind = std::mem::discriminant(&setting);
        connection.settings.retain(|other| std::mem::discriminant(other) != kind);
        connection.settings.push(setting.clone());
        if let Some((region, conn)) = connection.in_engine()
            && let Some(region) = regions.get_mut(&region)
        {
            match setting {
                Setting::Cork(on) => connection.set_cork(&mut region.consumer, conn, on),
                Setting::NoDelay(on) => connection.set_nodelay(&mut region.consumer, conn, on),
                _ => connection.tell_engine(&mut region.consumer, conn),
            }
        }
        if kind == std::mem::discriminant(&Setting::SendBuffer(0)) {
            connection.bound_pair();
        }
        // The thread sends again what the engine had no space for.
        self.settings_pending |= connection.settings_pending;
        self.look |= connection.settings_pending;
        if !quiet {
            connection.wake();
        }
        Ok(())
    }

    /// Sends again the settings that engines had no space for. Returns true if some remain.
    pub(super) fn tell_again(&mut self) -> bool {
        let Inner { connections, regions, settings_pending, .. } = self;
        if !std::mem::take(settings_pending) {
            return false;
        }
        for connection in connections.values_mut().filter(|connection| connection.settings_pending) {
            if let Some((region, conn)) = connection.in_engine()
                && let Some(Region { consumer, .. }) = regions.get_mut(&region)
            {
                connection.tell_engine(consumer, conn);
            }
            *settings_pending |= connection.settings_pending;
        }
        *settings_pending
    }
}
