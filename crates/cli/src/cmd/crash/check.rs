//! The command of a user that judges recovered trees: `--check`, `--checker`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use wp_campaign::{Asking, Command};

use super::args::ChecksArgs;
use super::plan::time;
use crate::cmd::host_command;

/// The command, and how it is asked.
#[derive(Clone)]
pub(super) struct Check {
    /// As the user wrote it.
    pub line: String,
    /// The same for a shell in another folder.
    run: String,
    asking: Asking,
    /// Does it get the device before recovery?
    image: bool,
    /// Of one run.
    timeout: Duration,
    /// Where the trees are.
    dir: PathBuf,
}

impl Check {
    /// `None`: there is none. Errors: what is wrong in its options.
    pub(super) fn new(a: &ChecksArgs) -> Result<Option<Check>, String> {
        let (option, line, asking) = match (&a.check, &a.checker) {
            (Some(line), _) => ("--check", line, Asking::Run),
            (None, Some(line)) => ("--checker", line, Asking::Stays),
            (None, None) => return Ok(None),
        };
        if line.trim().is_empty() {
            return Err(format!("{option}: the command is empty"));
        }
        let timeout = time("--check-timeout", &a.check_timeout)?;
        let dir = a.check_dir.clone().unwrap_or_else(std::env::temp_dir);
        let folder = std::env::current_dir().map_err(|e| format!("{option}: {e}"))?;
        let run = host_command(line, &folder);
        Ok(Some(Check { line: line.clone(), run, asking, image: a.check_image, timeout, dir }))
    }

    /// It for one campaign; `acked`: its program acknowledges. Errors: there is no room for trees.
    pub(super) fn command(&self, acked: bool) -> Result<Arc<Command>, String> {
        let asked = (&*self.run, self.asking, acked);
        let made = Command::new(asked, &self.dir, self.timeout, self.image);
        made.map_err(|e| format!("--check-dir: {e}"))
    }

    /// May files that it needs be others than those that its words name? The shell expands these.
    pub(super) fn is_hidden(&self) -> bool {
        self.line.contains(['$', '~', '`', '*', '?', '['])
    }

    /// As a part of a campaign's key.
    pub(super) fn key(&self) -> String {
        let option = if self.asking == Asking::Stays { "--checker" } else { "--check" };
        format!(" {option} {} {} {:?}", self.line, self.image, self.timeout)
    }
}
