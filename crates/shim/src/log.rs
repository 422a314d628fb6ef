//! The log of `baton run --log`, in each of its programs.

use crate::config::config;
use crate::descriptors;
use baton_journal::{Kind, Level, sink, tell};
use std::fs;
use std::io;

/// Has what happens here go to the end of that file, if there is one. It is opened as the program
/// starts: later the program may be another user, or elsewhere in the file system.
pub fn open() {
    let Some((path, level)) = &config().log else { return };
    let name = fs::read_to_string("/proc/self/comm").map_or("program".to_owned(), |name| name.trim().to_owned());
    // A program is not the place to complain.
    if let Ok(file) = sink::append(path) {
        let _ = sink::to_file(name, *level, descriptors::out_of_the_way(file));
    }
}

/// Tells of what is counted: why a connection stays in the kernel, or comes home.
pub fn counted(name: &str) {
    let tell = |kind, reason: &str, text: &str| {
        tell(Level::Debug, kind, |event| event.reason(reason.to_owned()).text(text));
    };
    if let Some(reason) = name.strip_prefix("stays ") {
        tell(Kind::STAYS, reason, "a connection of this program stays in the kernel");
    } else if let Some(reason) = name.strip_prefix("home ") {
        tell(Kind::HOME, reason, "this program's calls bring a connection home");
    }
}

/// Tells that there is no service.
pub fn no_service(error: &io::Error) {
    let at = config().socket.display();
    let text = format!("no service at {at}, so connections stay in the kernel; tried again later: {error}");
    tell(Level::Warn, Kind::SERVICE, |event| event.text(text));
}
