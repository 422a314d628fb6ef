//! Says on a page what it was made from: captures, command, date and version.

use super::caution;
use baton_analyse::report::FileLine;
use baton_apps::html_text::escape;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

/// Letters of a command that are shown at once: one that names many captures would fill the page.
const LONG: usize = 300;

/// How a page came to be.
#[derive(Clone, Debug)]
pub struct Origin {
    command: String,
    /// As an HTTP date (GMT).
    date: String,
}

impl Origin {
    /// A page that this command, as a user types it, makes now.
    pub fn now(command: String) -> Origin {
        Origin { command, date: httpdate::fmt_http_date(SystemTime::now()) }
    }

    /// A page that this process makes now, with the command that started it.
    pub fn of_this_process() -> Origin {
        Origin::now(typed(std::env::args_os()))
    }

    /// Appends it to a page about these captures, of which there may be none.
    pub(crate) fn html(&self, page: &mut String, captures: &[FileLine]) {
        page.push_str("<dl class=\"origin\">");
        if !captures.is_empty() {
            let names: Vec<String> = captures.iter().map(|capture| capture.path.clone()).collect();
            page.push_str("<dt>Captures</dt><dd>");
            caution::list(page, &names);
            page.push_str("</dd>");
        }
        page.push_str("<dt>Command</dt><dd>");
        self.command(page);
        let _ = write!(
            page,
            "</dd><dt>Made</dt><dd>{}, by Baton {}</dd></dl>",
            escape(&self.date),
            env!("CARGO_PKG_VERSION")
        );
    }

    /// Appends the command, folded if it is long.
    fn command(&self, page: &mut String) {
        let code = format!("<code>{}</code>", escape(&self.command));
        if self.command.chars().count() <= LONG {
            page.push_str(&code);
        } else {
            let start: String = self.command.chars().take(LONG).collect();
            let start = escape(&start);
            let _ = write!(page, "<details><summary><code>{start}…</code></summary>{code}</details>");
        }
    }
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
    fn a_page_names_captures_command_date_and_version() {
        let captures =
            ["a.pcap", "<b>.pcap"].map(|path| FileLine { path: path.into(), trouble: None, ..FileLine::default() });
        let (mut page, before) = (String::new(), SystemTime::now());
        let origin = Origin::now("baton trace a.pcap '<b>.pcap'".into());
        origin.html(&mut page, &captures);
        let made = httpdate::parse_http_date(&origin.date).unwrap();
        // An HTTP date has whole seconds.
        assert!(before.duration_since(made).is_ok_and(|passed| passed.as_secs() < 2) || made >= before, "{made:?}");
        for part in [
            "<li>a.pcap</li><li>&lt;b&gt;.pcap</li>",
            "<code>baton trace a.pcap '&lt;b&gt;.pcap'</code>",
            &origin.date,
            concat!("by Baton ", env!("CARGO_PKG_VERSION")),
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn a_long_command_is_folded() {
        let html = |command: &str| {
            let mut page = String::new();
            Origin::now(command.to_owned()).html(&mut page, &[]);
            page
        };
        assert!(!html(&"é".repeat(LONG)).contains("<details>"));
        let page = html(&"é".repeat(LONG + 1));
        let (start, whole) = page.split_once("…</code></summary>").unwrap();
        assert!(start.ends_with(&"é".repeat(LONG)) && whole.contains(&"é".repeat(LONG + 1)), "{page}");
    }

    #[test]
    fn a_command_is_shown_so_that_a_shell_reads_it_again() {
        let words = ["/usr/bin/baton", "trace", "a b.pcap", "it's", "--html", "out/x.html"];
        let said = typed(words.into_iter().map(OsString::from));
        assert_eq!(said, "baton trace 'a b.pcap' \"it's\" --html out/x.html");
        assert_eq!(shlex::split(&said).unwrap()[1..], words[1..]);
    }
}
