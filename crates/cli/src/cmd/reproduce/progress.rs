//! How far a paper's run is, for who looks at a terminal, or for the process that runs several.

use crate::output::{Exit, stderr};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Set for a process that another one started, to the number of that one: it says how far it is in
/// lines that begin so.
pub const LINES: &str = "WRITEPATH_PROGRESS";

/// Was this process started by one that runs several papers?
pub fn is_child() -> bool {
    std::env::var_os(LINES).is_some()
}

/// A process that another one started ends with it, however that ends: SIGKILL leaves it no time to
/// end its children.
pub fn end_with_parent() {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    let Some(parent) = std::env::var_os(LINES) else { return };
    // Where the host cannot, it works on to its end, as it would alone.
    let is_set = set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
    let now = getppid().map(|p| p.as_raw_nonzero().to_string());
    // The parent may have ended before it was asked for.
    if is_set && parent.to_str() != now.as_deref() {
        std::process::exit(i32::from(Exit::Interrupted as u8));
    }
}

/// A run under way.
pub struct Progress<'a> {
    stop: &'a AtomicBool,
    is_live: bool,
    is_child: bool,
    /// When it began.
    pub began: Instant,
}

impl<'a> Progress<'a> {
    /// Begins now.
    pub fn new(stop: &'a AtomicBool) -> Progress<'a> {
        let is_child = is_child();
        let is_live = !is_child && std::io::stderr().is_terminal();
        #[expect(clippy::disallowed_methods, reason = "how long it took is of the host")]
        let began = Instant::now();
        Progress { stop, is_live, is_child, began }
    }

    /// So many of all steps are done, `name` is next. Answers whether to go on.
    pub fn step(&self, done: usize, all: usize, name: &str) -> bool {
        if self.is_child {
            stderr(format_args!("{LINES} {done} {all} {name}\n"));
        } else if self.is_live {
            stderr(format_args!("\r[{done:>3}/{all}] {name:<50}"));
        }
        !self.stop.load(Ordering::SeqCst)
    }

    /// Nothing more is said.
    pub fn end(&self) {
        if self.is_live {
            stderr(format_args!("\r{:<60}\r", ""));
        }
    }
}

/// A line that a process said about its progress: steps done, all, and what is next.
pub fn parse(line: &str) -> Option<(u64, u64, &str)> {
    let mut parts = line.strip_prefix(LINES)?.trim_start().splitn(3, ' ');
    let (done, all) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some((done, all, parts.next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_said() {
        let line = format!("{LINES} 3 17 NILFS2, 4 KiB");
        assert_eq!(parse(&line), Some((3, 17, "NILFS2, 4 KiB")));
        assert_eq!(parse("results: out"), None);
        assert_eq!(parse(&format!("{LINES} x 17 y")), None);
    }
}
