//! What `crash` holds against its own rules: a list of known failures, and a command of the user.

use std::sync::Arc;

use wp_base::plain::Shown as _;
use wp_campaign::{Asking, Command, KnownFailures};
use wp_machine::host::text;

use super::Args;

/// The list of known failures. Errors: what is wrong in it.
pub(super) fn known(a: &Args) -> Result<KnownFailures, String> {
    let Some(path) = &a.known else { return Ok(KnownFailures::default()) };
    let at = |e: String| format!("{}: {e}", path.shown());
    let text = text::read(path).map_err(|e| at(e.to_string()))?;
    KnownFailures::parse(&text, &setting(a)).map_err(at)
}

/// The setting, as lists of known failures have it.
pub(super) fn setting(a: &Args) -> String {
    format!("{} {} {}", a.fs, a.device, a.space)
}

/// The command that judges trees. Errors: what is wrong in its options.
pub(super) fn command(a: &Args, acked: bool) -> Result<Option<Arc<Command>>, String> {
    let (line, asking) = match (&a.check_cmd, &a.checker) {
        (Some(line), _) => (line, Asking::Run),
        (None, Some(line)) => (line, Asking::Stays),
        (None, None) => return Ok(None),
    };
    if line.trim().is_empty() {
        let option = if asking == Asking::Run { "--check" } else { "--checker" };
        return Err(format!("{option}: the command is empty"));
    }
    let dir = a.check_dir.clone().unwrap_or_else(std::env::temp_dir);
    let timeout = super::budget(&a.check_timeout)?;
    let made = Command::new((line, asking, acked), &dir, timeout, a.check_image);
    made.map(Some).map_err(|e| format!("--check-dir: {e}"))
}
