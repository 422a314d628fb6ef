//! The file of `--verdicts`.

use crate::commands::measuring;
use baton_analyse::verdicts::Output;
use baton_apps::fail::usage;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The lines, and where they go.
pub struct Lines {
    pub output: Output<File>,
    path: PathBuf,
}

impl Lines {
    /// Makes the file, for the lines of these captures.
    ///
    /// # Errors
    /// A usage error if it cannot be written, is one of the captures, or there are several captures: their frames would
    /// be numbered anew.
    pub fn create(path: &Path, captures: &[PathBuf]) -> anyhow::Result<Lines> {
        if path == Path::new("-") {
            return Err(usage("--verdicts cannot go to standard output, which has the report", "name a file"));
        }
        if captures.len() > 1 || captures.iter().any(|path| path.is_dir()) {
            let remedy = "run it once for each capture, each with a file of its own";
            return Err(usage("--verdicts has the frames of one capture, and several are named", remedy));
        }
        let real = |path: &Path| path.canonicalize().ok();
        if captures.iter().any(|capture| real(capture).is_some_and(|capture| real(path) == Some(capture))) {
            return Err(usage(
                format!("--verdicts would overwrite the capture {}", path.display()),
                "name another file",
            ));
        }
        let output = measuring::create(path, |path| Output::new(File::create(path)?))?;
        Ok(Lines { output, path: path.to_owned() })
    }

    /// Ends the file.
    ///
    /// # Errors
    /// A line could not be written.
    pub fn finish(self) -> anyhow::Result<()> {
        let Lines { output, path } = self;
        output.finish().map_err(|error| anyhow::anyhow!("cannot write all verdicts to {}: {error}", path.display()))
    }
}
