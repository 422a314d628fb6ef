//! The file of `baton calibrate`: which machine it is of, and what follows from it for the default of
//! `baton run`.
//!
//! ```text
//!   baton calibrate --> calibration.toml --> baton run, by default: `small N bytes`, or `pairs`
//!                                       --> a policy with `small` or `predict`: the figures for these
//! ```
//!
//! A file counts only on the machine, kernel and version of Baton on which it was measured. Any other is
//! refused in one line, and the default that needs no file serves.

use crate::whole_file::WholeFile;
use anyhow::Context;
use baton_ipc::placement::Placement;
use baton_journal::{Event, Kind, Level};
use baton_lab::calibrate::{self, Calibration};
use baton_lab::report::Machine;
use baton_policy::places::Prices;
use baton_policy::rules::{Policy, Rule};
use core::num::NonZeroU64;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where it is, unless another place is named.
pub const PATH: &str = "/var/lib/baton/calibration.toml";

/// The version of the format.
const FORMAT: u32 = 2;

/// The head of each file.
const HEAD: &str =
    "# Made by `baton calibrate`; `baton calibrate --show` prints it. Remove it for the built-in default.\n";

/// A calibration, and where and when it was measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct File {
    /// Version of the format.
    format: u32,
    /// Version of Baton.
    baton: String,
    /// When it was measured, as RFC 3339 has it.
    pub measured_at: String,
    /// Where.
    machine: Identity,
    /// The measured costs.
    pub calibration: Calibration,
}

/// The part of a file that every version of the format has.
#[derive(Deserialize)]
struct Preamble {
    format: u32,
}

/// The properties of a machine on which the costs depend.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Identity {
    cpu: String,
    cpus: usize,
    kernel: String,
}

impl Identity {
    fn here() -> Identity {
        let Machine { cpu, kernel, .. } = Machine::here(0.0);
        Identity { cpu, cpus: online_cpus(), kernel }
    }
}

/// CPUs of the machine, whether or not this process may use them.
fn online_cpus() -> usize {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    info.lines().filter(|line| line.starts_with("processor")).count()
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}, Linux {}", self.cpus, self.cpu, self.kernel)
    }
}

/// Why a file is not used: the place, the fault and the remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    file: PathBuf,
    what: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what_and_where(), self.remedy())
    }
}

impl Refused {
    /// `FILE: what`
    pub fn what_and_where(&self) -> String {
        format!("{}: {}", self.file.display(), self.what)
    }

    /// How to get one that counts.
    pub fn remedy(&self) -> &'static str {
        "`baton calibrate` measures anew"
    }
}

impl std::error::Error for Refused {}

impl File {
    /// A calibration that was measured here and now.
    pub fn here(calibration: Calibration) -> File {
        File {
            format: FORMAT,
            baton: env!("CARGO_PKG_VERSION").to_owned(),
            measured_at: Event::new(Level::Info, Kind::HOST).time(),
            machine: Identity::here(),
            calibration,
        }
    }

    /// Reads a file; `None` if there is none.
    ///
    /// # Errors
    /// If it is damaged, or of another machine or version.
    pub fn read(path: &Path) -> Result<Option<File>, Refused> {
        let refuse = |what: String| Refused { file: path.to_owned(), what };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(refuse(format!("the calibration cannot be read: {error}"))),
        };
        File::parse(&text, &Identity::here()).map(Some).map_err(refuse)
    }

    fn parse(text: &str, here: &Identity) -> Result<File, String> {
        let damaged = |error: toml::de::Error| format!("the calibration is damaged: {}", error.message());
        let Preamble { format } = toml::from_str(text).map_err(damaged)?;
        if format != FORMAT {
            return Err(format!("the calibration has format {format}, and this version reads format {FORMAT}"));
        }
        let file: File = toml::from_str(text).map_err(damaged)?;
        if file.machine != *here {
            return Err(format!("the calibration is of another machine ({}; this is {here})", file.machine));
        }
        let ours = env!("CARGO_PKG_VERSION");
        if file.baton != ours {
            return Err(format!("the calibration is of Baton {}, and this is {ours}", file.baton));
        }
        Ok(file)
    }

    /// Writes it where all users can read it, in one step.
    ///
    /// # Errors
    /// If the directory or the file cannot be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let cannot = || format!("writing {}", path.display());
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(directory).with_context(cannot)?;
        let mut file = WholeFile::create(path).with_context(cannot)?;
        std::io::Write::write_all(&mut file, self.text()?.as_bytes()).with_context(cannot)?;
        file.keep()
    }

    /// The text of the file.
    ///
    /// # Errors
    /// If TOML has no form for it.
    pub fn text(&self) -> anyhow::Result<String> {
        Ok(format!("{HEAD}{}", toml::to_string(self)?))
    }

    /// Which connections move to an engine of this placement; `None` if it was not measured.
    pub fn rule(&self, placement: Placement) -> Option<Rule> {
        let name = placement.to_string();
        self.calibration.placements.iter().find(|placement| placement.name == name).map(small)
    }

    /// The rule with the figures of this machine, if it has none of its own. A service's programs choose
    /// the placement, so these are the figures of the one that saves most.
    fn fit(&self, rule: Rule) -> Rule {
        let Some(best) = self.calibration.placements.iter().max_by_key(|placement| placement.saving_ns) else {
            return rule;
        };
        match rule {
            Rule::Small(None) => small(best),
            Rule::Predict(None) => Rule::Predict(Some(Prices { saving_ns: best.saving_ns, move_ns: best.move_ns })),
            rule => rule,
        }
    }
}

fn small(placement: &calibrate::Placement) -> Rule {
    let crossover = placement.crossover_bytes.and_then(NonZeroU64::new);
    crossover.map_or(Rule::Pairs, |bytes| Rule::Small(Some(bytes)))
}

/// Gives the rules of a policy the figures of this machine, where they name none. Returns what is to be
/// said about that, if any rule is concerned.
pub fn fit(policy: &mut Policy, path: &Path) -> Option<String> {
    let concerned = |rule: &&mut Rule| matches!(rule, Rule::Small(None) | Rule::Predict(None));
    let mut rules = policy.rules_mut().filter(concerned).peekable();
    rules.peek()?;
    Some(match File::read(path) {
        Ok(Some(file)) => {
            rules.for_each(|rule| *rule = file.fit(*rule));
            format!("by the calibration of {}", file.measured_at)
        }
        Ok(None) => "without a calibration of this machine; `baton calibrate` makes one".to_owned(),
        Err(refused) => format!("without a calibration: {refused}"),
    })
}

/// When the calibration was measured that a policy's rules have their figures from.
pub fn source(policy: &Policy, path: &Path) -> Option<String> {
    let file = File::read(path).ok().flatten()?;
    let fitted = [Rule::Small(None), Rule::Predict(None)].map(|rule| file.fit(rule));
    let mut rules = policy.entries.iter().map(|entry| entry.rule).chain([policy.otherwise]);
    rules.any(|rule| fitted.contains(&rule) && rule != Rule::Pairs).then_some(file.measured_at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(crossover_bytes: Option<u64>) -> File {
        let sizes = vec![calibrate::Size { bytes: 64, kernel_ns: [40_000, 20_000], engine_ns: [30_000, 19_000] }];
        let placement =
            calibrate::Placement { name: "direct".into(), crossover_bytes, saving_ns: 2_000, move_ns: 80_000, sizes };
        File::here(Calibration { rounds: 5, background: 0.0, placements: vec![placement] })
    }

    #[test]
    fn a_written_file_is_read_here() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/calibration.toml");
        assert_eq!(File::read(&path), Ok(None));
        for file in [file(Some(2048)), file(None)] {
            file.write(&path).unwrap();
            assert_eq!(File::read(&path), Ok(Some(file)));
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    }

    #[test]
    fn the_rule_is_that_of_the_placement() {
        let bytes = NonZeroU64::new(2048);
        assert_eq!(file(Some(2048)).rule(Placement::Direct), Some(Rule::Small(bytes)));
        assert_eq!(file(None).rule(Placement::Direct), Some(Rule::Pairs));
        assert_eq!(file(None).rule(Placement::Service), None);
    }

    #[test]
    fn rules_without_figures_get_those_of_the_machine() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calibration.toml");
        let text = "local-port=80\tsmall\nlocal-port=81\tsmall 9 bytes\nlocal-port=82\tpredict\nfcfs";
        let mut policy: Policy = text.parse().unwrap();
        assert!(fit(&mut policy, &path).unwrap().starts_with("without a calibration of this machine"));
        assert_eq!((policy.to_string().as_str(), source(&policy, &path)), (text, None));
        let file = file(Some(2048));
        file.write(&path).unwrap();
        assert_eq!(fit(&mut policy, &path), Some(format!("by the calibration of {}", file.measured_at)));
        let fitted = "local-port=80\tsmall 2048 bytes\nlocal-port=81\tsmall 9 bytes\n\
                      local-port=82\tpredict saving 2000 ns move 80000 ns\nfcfs";
        assert_eq!(policy.to_string(), fitted);
        assert_eq!(source(&policy, &path), Some(file.measured_at));
        assert_eq!(fit(&mut policy, &path), None);
        fs::write(&path, "format = 3").unwrap();
        let refused = fit(&mut Policy::of(Rule::Small(None)), &path).unwrap();
        assert!(refused.starts_with("without a calibration: ") && refused.contains("has format 3"), "{refused}");
    }

    #[test]
    fn a_file_of_another_machine_or_version_is_refused_in_one_line() {
        let (text, here) = (file(Some(512)).text().unwrap(), Identity::here());
        assert!(File::parse(&text, &here).is_ok());
        let refused = |text: &str, here: &Identity| {
            let refused = Refused { file: PATH.into(), what: File::parse(text, here).unwrap_err() }.to_string();
            assert_eq!(refused.lines().count(), 1);
            assert!(refused.starts_with(PATH) && refused.ends_with("; `baton calibrate` measures anew"), "{refused}");
            refused
        };
        let other = |change: fn(&mut Identity)| {
            let mut other = Identity::here();
            change(&mut other);
            refused(&text, &other)
        };
        assert!(other(|machine| machine.cpu = "Z80".into()).contains("another machine"));
        assert!(other(|machine| machine.kernel = "7.1".into()).contains("Linux 7.1"));
        assert!(other(|machine| machine.cpus += 1).contains("another machine"));
        let replaced = |from: &str, to: &str| {
            assert!(text.contains(from));
            refused(&text.replace(from, to), &here)
        };
        assert!(replaced(env!("CARGO_PKG_VERSION"), "0.0.9").contains("of Baton 0.0.9"));
        assert!(replaced("format = 2", "format = 3").contains("has format 3"));
        assert!(replaced("crossover-bytes = 512", "crossover-bytes = -1").contains("damaged"));
        assert!(refused("", &here).contains("damaged: missing field `format`"));
    }
}
