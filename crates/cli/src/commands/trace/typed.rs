//! The command that runs, as a user types it.

use baton_lab::report::origin::Origin;
use std::ffi::OsString;
use std::path::Path;

/// Says how a page came to be that is made now.
pub fn origin() -> Origin {
    Origin::now(typed(std::env::args_os()))
}

/// A command in words of a shell. The program is named without its directory.
fn typed(mut words: impl Iterator<Item = OsString>) -> String {
    let program = words.next().and_then(|path| Path::new(&path).file_name().map(OsString::from));
    let words: Vec<String> = program.into_iter().chain(words).map(|word| word.to_string_lossy().into_owned()).collect();
    // Only words with a zero byte cannot be quoted, and no command has one.
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_so_that_a_shell_reads_it_again() {
        let words = ["/usr/bin/baton", "trace", "a b.pcap", "it's", "--html", "out/x.html"];
        let said = typed(words.into_iter().map(OsString::from));
        assert_eq!(said, "baton trace 'a b.pcap' \"it's\" --html out/x.html");
        assert_eq!(shlex::split(&said).unwrap()[1..], words[1..]);
    }
}
