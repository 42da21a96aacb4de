//! How far a paper's run is, for who looks at a terminal, or for the process that runs several.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::output::{Exit, stderr};
use crate::progress::{self, Progress as Shown};

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
    /// `None`: the process that started this one shows it.
    shown: Option<Shown>,
    /// When it began.
    pub began: Instant,
}

impl<'a> Progress<'a> {
    /// Begins now.
    pub fn new(stop: &'a AtomicBool) -> Progress<'a> {
        let shown = (!is_child()).then(|| Shown::new("reproduce"));
        Progress { stop, shown, began: progress::now() }
    }

    /// Reports that `done` of `all` steps are done and that `name` is next. Answers whether to go
    /// on.
    pub fn step(&self, done: usize, all: usize, name: &str) -> bool {
        match &self.shown {
            None => stderr(format_args!("{LINES} {done} {all} {name}\n")),
            Some(shown) => shown.at(done as u64, all as u64, name),
        }
        !self.stop.load(Ordering::SeqCst)
    }

    /// Nothing more is shown.
    pub fn end(&mut self) {
        self.shown = None;
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
