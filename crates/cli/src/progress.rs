//! How far long work is, on stderr.
//!
//! Picture:    a verb says [`Progress::at`] or [`Progress::say`] as often as it likes -> a terminal
//!             shows a live line with the time that is left, anything else gets a line every
//!             [`EVERY`].
//! Invariants: stdout is never written; what is shown is gone when the work ends; names of files
//!             and programs cannot move the cursor.

use std::fmt::Display;
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use wp_base::plain;

use crate::output::stderr;

/// Between two lines where stderr is no terminal.
pub const EVERY: Duration = Duration::from_secs(10);

/// How long work must run before its end is estimated.
const ESTIMATED_FROM: Duration = Duration::from_millis(500);

/// The host's clock: nothing that is computed depends on it.
pub fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "progress is of the host")]
    Instant::now()
}

/// A time for people: `8 s`, `3 min`, `2.5 h`.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// How far it is.
#[derive(Clone, Default)]
struct Far {
    done: u64,
    /// 0: not known.
    all: u64,
    text: String,
    /// When it was first said how far it is, and what was done then.
    first: Option<(Duration, u64)>,
}

impl Far {
    /// Seconds that are left, by the pace so far.
    fn left(&self, elapsed: Duration) -> Option<f64> {
        let (since, before) = self.first?;
        let (took, made) = (elapsed.checked_sub(since)?, self.done.checked_sub(before)?);
        let is_early = made == 0 || took < ESTIMATED_FROM;
        let rest = self.all.saturating_sub(self.done) as f64;
        (!is_early).then(|| took.as_secs_f64() / made as f64 * rest)
    }

    /// In words, without what is being done.
    fn words(&self, elapsed: Duration) -> String {
        if self.all == 0 {
            return String::new();
        }
        let left = self.left(elapsed).map_or_else(String::new, |s| format!(", {} left", time(s)));
        let percent = 100 * self.done / self.all;
        format!("{} of {} ({percent} %){left}", self.done, self.all)
    }
}

struct Shared {
    what: String,
    began: Instant,
    far: Mutex<Far>,
}

impl Shared {
    fn far(&self) -> MutexGuard<'_, Far> {
        self.far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line of somebody who does not look at a terminal.
    fn line(&self) -> String {
        let (elapsed, far) = (self.began.elapsed(), self.far().clone());
        let parts = [far.words(elapsed), far.text];
        let said: Vec<&str> = parts.iter().map(String::as_str).filter(|p| !p.is_empty()).collect();
        format!("{}: {} so far: {}", self.what, time(elapsed.as_secs_f64()), said.join("; "))
    }
}

/// One piece of long work; what is shown of it goes when this does.
pub struct Progress {
    shared: Arc<Shared>,
    bar: Option<ProgressBar>,
    /// Ends the thread that writes the lines.
    _lines: Option<Sender<()>>,
}

impl Progress {
    /// Nothing is done yet. `what`: the verb, or the part of it.
    pub fn new(what: &str) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| shown(ProgressBar::new(0), what));
        let shared =
            Arc::new(Shared { what: what.to_owned(), began: now(), far: Mutex::default() });
        let lines = if bar.is_some() { None } else { lines(shared.clone()) };
        Progress { shared, bar, _lines: lines }
    }

    /// `done` of `all` parts are done, `text` is next.
    pub fn at(&self, done: u64, all: u64, text: impl Display) {
        self.set(done, all, &text.to_string());
    }

    /// So far it is, of work whose end nobody knows.
    pub fn say(&self, text: impl Display) {
        self.set(0, 0, &text.to_string());
    }

    fn set(&self, done: u64, all: u64, text: &str) {
        let elapsed = self.shared.began.elapsed();
        let mut far = self.shared.far();
        far.first = far.first.or(Some((elapsed, done)));
        (far.done, far.all, far.text) = (done, all, plain::name(text).into_owned());
        if let Some(bar) = &self.bar {
            bar.set_length(all.max(1));
            bar.set_position(done);
            let words = far.words(elapsed);
            let gap = if words.is_empty() { "" } else { "  " };
            bar.set_message(format!("{words}{gap}{}", far.text));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The style of all bars: one line, as wide as the terminal.
fn shown(bar: ProgressBar, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {bar:20} {elapsed:>4} {wide_msg}")
        .map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("=> "));
    bar.set_style(style);
    bar.set_prefix(what.to_owned());
    // The time goes on while a part takes long.
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// A thread that writes a line every [`EVERY`], until what comes back is dropped.
fn lines(shared: Arc<Shared>) -> Option<Sender<()>> {
    let (end, wait) = channel::<()>();
    let write = move || {
        while let Err(RecvTimeoutError::Timeout) = wait.recv_timeout(EVERY) {
            stderr(format_args!("{}\n", shared.line()));
        }
    };
    std::thread::Builder::new().name("progress".to_owned()).spawn(write).ok().map(|_| end)
}

/// Several pieces of work beside each other: a table on a terminal.
pub struct Table {
    all: MultiProgress,
    rows: Vec<ProgressBar>,
}

impl Table {
    /// A row for each name; `None` where stderr is no terminal.
    pub fn new(names: &[&str]) -> Option<Table> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let all = MultiProgress::new();
        let width = names.iter().map(|n| n.len()).max().unwrap_or(0);
        let style = ProgressStyle::with_template("{prefix} {bar:20} {wide_msg}")
            .map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("=> "));
        let row = |name: &&str| {
            let bar = all.add(ProgressBar::new(100));
            bar.set_style(style.clone());
            bar.set_prefix(format!("{name:width$}"));
            bar
        };
        let rows = names.iter().map(row).collect();
        Some(Table { all, rows })
    }

    /// Row `n` is so far, in percent; a row too many is nothing.
    pub fn set(&self, n: usize, percent: u64, text: &str) {
        if let Some(row) = self.rows.get(n) {
            row.set_position(percent);
            row.set_message(plain::name(text).into_owned());
        }
    }

    /// A line that stays, above the table.
    pub fn line(&self, text: &str) {
        self.all.suspend(|| stderr(format_args!("{text}\n")));
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.rows.iter().for_each(ProgressBar::finish_and_clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far(done: u64, first: (u64, u64)) -> Far {
        let first = Some((Duration::from_secs(first.0), first.1));
        Far { done, all: 100, text: String::new(), first }
    }

    #[test]
    fn what_was_done_before_does_not_make_it_faster() {
        // 10 parts in 20 s; 60 that were kept took no time.
        let resumed = far(70, (0, 60));
        assert_eq!(resumed.left(Duration::from_secs(20)), Some(60.0));
        assert_eq!(resumed.words(Duration::from_secs(20)), "70 of 100 (70 %), 60 s left");
    }

    #[test]
    fn nothing_is_estimated_from_nothing() {
        assert_eq!(far(0, (0, 0)).left(Duration::from_secs(20)), None);
        assert_eq!(far(1, (0, 0)).left(Duration::from_millis(20)), None);
        assert_eq!(Far::default().words(Duration::from_secs(9)), "");
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        assert_eq!([4.4, 89.0, 300.0, 9000.0].map(time), ["4 s", "89 s", "5 min", "2.5 h"]);
    }

    #[test]
    fn a_line_says_what_how_far_and_what_is_next() {
        let progress = Progress::new("crash");
        progress.at(3, 12, "program\u{1b}[2J 4");
        let line = progress.shared.line();
        assert!(line.starts_with("crash: 0 s so far: 3 of 12 (25 %)"), "{line}");
        assert!(line.ends_with("4") && !line.contains('\u{1b}'), "{line}");
    }
}
