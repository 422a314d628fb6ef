//! The counters that the library keeps in every process of a run ([`baton_ipc::account`]).

use baton_ipc::account::{BYTES, entries};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The file of counters that the processes of a run share.
pub struct Account(PathBuf);

impl Account {
    /// Makes an empty file in `directory`, which processes of every user can write.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(directory: &Path) -> io::Result<Account> {
        let path = directory.join("account");
        fs::write(&path, [0; BYTES])?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        Ok(Account(path))
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the counters into lines for the user. If nothing moved, and the user did not name the
    /// policy (`is_named`), the last line suggests another one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn explain(&self, is_named: bool) -> io::Result<Vec<String>> {
        let entries = entries(&fs::read(&self.0)?);
        let mut lines = lines(&entries);
        lines.extend(hint(&entries).filter(|_| !is_named).map(|hint| format!("  {hint}")));
        Ok(lines)
    }
}

/// A suggestion if the default policy moved no connection.
fn hint(entries: &[(String, u64)]) -> Option<&'static str> {
    let of = |name: &str| entries.iter().any(|(entry, count)| entry == name && *count > 0);
    if of("moved") {
        return None;
    }
    [
        (
            "stays large-transfers",
            "the transfers were large: try --policy 'until bulk', which moves a connection until it carries \
             bulk data, or --policy fcfs, which moves all",
        ),
        ("stays waits-for-sends", "the connections carried few requests: try --policy fcfs, which moves each at once"),
        (
            "stays rule-never",
            "the default policy moves nothing on this machine: try --policy fcfs, which moves each connection at once",
        ),
        ("stays io-uring", "the program uses io_uring: try --no-io-uring, if it can do without"),
    ]
    .into_iter()
    .find_map(|(why, hint)| of(why).then_some(hint))
}

fn lines(entries: &[(String, u64)]) -> Vec<String> {
    let of = |name: &str| entries.iter().find(|(entry, _)| entry == name).map_or(0, |(_, count)| *count);
    let with = |prefix: &'static str| {
        let mut found: Vec<(&str, u64)> =
            entries.iter().filter_map(|(name, count)| Some((name.strip_prefix(prefix)?, *count))).collect();
        found.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        found
    };
    let (moved, stayed) = (of("moved"), with("stays "));
    let all = moved + stayed.iter().map(|(_, count)| count).sum::<u64>();
    let mut lines = vec![format!(
        "{moved} of {all} connections moved to the engine; {} bytes sent and {} received there",
        of("bytes sent"),
        of("bytes received")
    )];
    if let paired @ 1.. = of("paired") {
        lines.push(format!("  {paired} of them were joined with their other ends on this machine, without an engine"));
    }
    let home = [of("bytes sent at home"), of("bytes received at home")];
    if home != [0, 0] {
        // The service restored connections by itself, or its engine died.
        lines.push(format!("  {} bytes sent and {} received while they were back in the kernel", home[0], home[1]));
    }
    if let elsewhere @ 1.. = of("elsewhere") {
        lines.push(format!(
            "  {elsewhere} moved to the service's engine: an interface steered by xdp cannot give programs their own"
        ));
    }
    lines.extend(stayed.iter().map(|(why, count)| format!("  {count} stayed in the kernel: {why}")));
    lines.extend(with("rule ").iter().map(|(rule, count)| format!("    {count} for a firewall rule: {rule}")));
    lines.extend(with("home ").iter().map(|(why, count)| format!("  {count} came back to the kernel: {why}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_ipc::account::{COUNT, ENTRY};

    #[test]
    fn a_run_that_moved_nothing_gets_a_suggestion() {
        let of = |counted: &[(&str, u64)]| {
            hint(&counted.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect::<Vec<_>>())
        };
        assert!(of(&[("stays waits-for-sends", 3)]).unwrap().contains("--policy fcfs"));
        assert!(of(&[("stays large-transfers", 3), ("stays waits-for-sends", 1)]).unwrap().contains("until bulk"));
        assert_eq!(of(&[("moved", 1), ("stays waits-for-sends", 3)]), None);
        assert_eq!(of(&[("stays loopback", 3)]), None);
    }

    #[test]
    fn counters_are_printed_most_frequent_first() {
        let mut bytes = vec![0; BYTES];
        let counted =
            [("stays loopback", 2u64), ("moved", 5), ("stays no-service", 3), ("home fork", 1), ("bytes sent", 70)];
        for (at, (name, count)) in counted.into_iter().enumerate() {
            bytes[at * ENTRY..at * ENTRY + COUNT].copy_from_slice(&count.to_ne_bytes());
            bytes[at * ENTRY + COUNT..at * ENTRY + COUNT + name.len()].copy_from_slice(name.as_bytes());
        }
        let expected = [
            "5 of 10 connections moved to the engine; 70 bytes sent and 0 received there",
            "  3 stayed in the kernel: no-service",
            "  2 stayed in the kernel: loopback",
            "  1 came back to the kernel: fork",
        ];
        assert_eq!(lines(&entries(&bytes)), expected);
        let kept = [("stays firewall-rule", 2), ("rule limit in table ip filter, chain INPUT", 2)];
        let expected = [
            "0 of 2 connections moved to the engine; 0 bytes sent and 0 received there",
            "  2 stayed in the kernel: firewall-rule",
            "    2 for a firewall rule: limit in table ip filter, chain INPUT",
        ];
        assert_eq!(lines(&kept.map(|(name, count)| (name.to_owned(), count))), expected);
        let joined = [("moved".to_owned(), 3), ("paired".to_owned(), 2)];
        assert_eq!(
            lines(&joined)[1],
            "  2 of them were joined with their other ends on this machine, without an engine"
        );
        let back = [("moved".to_owned(), 1), ("bytes sent".to_owned(), 7), ("bytes received at home".to_owned(), 3)];
        let expected = [
            "1 of 1 connections moved to the engine; 7 bytes sent and 0 received there",
            "  0 bytes sent and 3 received while they were back in the kernel",
        ];
        assert_eq!(lines(&back), expected);
        assert_eq!(
            lines(&entries(b"short"))[0],
            "0 of 0 connections moved to the engine; 0 bytes sent and 0 received there"
        );
    }
}
