//! How far long work is, on stderr.
//!
//! Picture:    a verb says [`Progress::at`] or [`Progress::say`] as often as it likes -> a terminal
//!             shows a live line with the time that is left, anything else gets a line every
//!             [`EVERY`].
//! Invariants: stdout is never written; what is shown is gone when the work ends; names of files
//!             and programs cannot move the cursor.

use std::fmt::Display;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use wp_base::plain;

use crate::output::stderr;
use crate::session::{self, Session};

/// Between two lines where stderr is no terminal.
pub const EVERY: Duration = Duration::from_secs(10);

/// Between two looks at work that tells nothing by itself.
const TICK: Duration = Duration::from_millis(250);

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

/// How far it is, in words: `70 of 100 (70 %), 60 s left`; nothing of work whose end is not known.
fn far(done: u64, all: u64, left: Duration) -> String {
    let Some(percent) = (100 * done).checked_div(all) else { return String::new() };
    // Of what has just begun nothing can be told.
    let left = match left.as_secs() {
        0 => String::new(),
        s => format!(", {} left", time(s as f64)),
    };
    format!("{done} of {all} ({percent} %){left}")
}

/// How long the rest takes at the pace since the beginning; 0: nothing is done yet.
fn left((first, done, all): (&AtomicU64, u64, u64), elapsed: Duration) -> Duration {
    let first = first.load(Ordering::Relaxed).min(done);
    match done - first {
        0 => Duration::ZERO,
        own => {
            let seconds = elapsed.as_secs_f64() * all.saturating_sub(done) as f64 / own as f64;
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
        }
    }
}

/// One piece of long work; what is shown of it goes when this does.
///
/// The time that is left is told from the pace since the beginning; parts that an earlier run kept
/// do not count.
pub struct Progress {
    /// Drawn on a terminal only; its prefix is what the work is.
    bar: ProgressBar,
    /// Parts that were done at the beginning; `u64::MAX`: not known yet.
    first: Arc<AtomicU64>,
    /// Ends the threads that write the lines and ask how far it is.
    threads: Option<Sender<()>>,
    /// Who shows it in place of stderr, if the verb runs in another program's process.
    session: Option<Arc<Session>>,
}

impl Progress {
    /// Nothing is done yet. `what`: the verb, or the part of it.
    pub fn new(what: &str) -> Progress {
        let first = Arc::new(AtomicU64::new(u64::MAX));
        let session = session::current();
        let bar = if session.is_none() && std::io::stderr().is_terminal() {
            shown(ProgressBar::new(0), first.clone())
        } else {
            ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden())
        };
        let bar = bar.with_prefix(what.to_owned());
        let says_lines = session.is_none() && bar.is_hidden();
        let threads = says_lines.then(|| lines(bar.clone(), first.clone())).flatten();
        Progress { bar, first, threads, session }
    }

    /// As [`Progress::new`], of work that tells nothing by itself: `text` is asked for how far it
    /// is.
    pub fn asking(what: &str, text: impl Fn() -> String + Send + 'static) -> Progress {
        let mut progress = Progress::new(what);
        let (lines, bar) = (progress.threads.take(), progress.bar.clone());
        let (session, what) = (progress.session.clone(), what.to_owned());
        let (end, wait) = channel::<()>();
        let ask = move || {
            // The lines end with this thread.
            let _lines = lines;
            while let Err(RecvTimeoutError::Timeout) = wait.recv_timeout(TICK) {
                let text = text();
                if let Some(session) = &session {
                    session.set_far(&what, (0, 0), &text);
                }
                bar.set_message(plain::name(&text).into_owned());
            }
        };
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(ask);
        progress.threads = thread.ok().map(|_| end);
        progress
    }

    /// `done` of `all` parts are done, `text` is next.
    pub fn at(&self, done: u64, all: u64, text: impl Display) {
        let unknown = self.first.load(Ordering::Relaxed) == u64::MAX;
        if unknown && all > 0 {
            self.first.store(done, Ordering::Relaxed);
        }
        let text = text.to_string();
        if let Some(session) = &self.session {
            session.set_far(&self.bar.prefix(), (done, all), &text);
        }
        self.bar.set_length(all);
        self.bar.set_position(done);
        self.bar.set_message(plain::name(&text).into_owned());
    }

    /// A line that stays, above what is shown.
    pub fn line(&self, text: &str) {
        match &self.session {
            Some(session) => session.note(&format!("{text}\n")),
            None => self.bar.suspend(|| stderr(format_args!("{}\n", plain::lines(text)))),
        }
    }

    /// So far it is, of work whose end nobody knows.
    pub fn say(&self, text: impl Display) {
        self.at(0, 0, text);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The line of somebody who does not look at a terminal.
fn line(bar: &ProgressBar, first: &AtomicU64) -> String {
    let (done, all) = (bar.position(), bar.length().unwrap_or(0));
    let words = far(done, all, left((first, done, all), bar.elapsed()));
    let parts = [words, bar.message()];
    let said: Vec<&str> = parts.iter().map(String::as_str).filter(|p| !p.is_empty()).collect();
    let time = time(bar.elapsed().as_secs_f64());
    format!("{}: {time} so far: {}", bar.prefix(), said.join("; "))
}

/// The style of all bars: one line, as wide as the terminal.
fn shown(bar: ProgressBar, first: Arc<AtomicU64>) -> ProgressBar {
    let words = move |state: &ProgressState, to: &mut dyn std::fmt::Write| {
        let (done, all) = (state.pos(), state.len().unwrap_or(0));
        let left = left((&first, done, all), state.elapsed());
        // A terminal that takes no more shows what it showed.
        let _ = to.write_str(&far(done, all, left));
    };
    let style = ProgressStyle::with_template("{prefix} {bar:20} {elapsed:>4} {far} {wide_msg}")
        .map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("=> "));
    bar.set_style(style.with_key("far", words));
    // The time goes on while a part takes long.
    bar.enable_steady_tick(TICK);
    bar
}

/// A thread that writes a line every [`EVERY`], until what comes back is dropped.
fn lines(bar: ProgressBar, first: Arc<AtomicU64>) -> Option<Sender<()>> {
    let (end, wait) = channel::<()>();
    let write = move || {
        while let Err(RecvTimeoutError::Timeout) = wait.recv_timeout(EVERY) {
            stderr(format_args!("{}\n", line(&bar, &first)));
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
        if session::current().is_some() || !std::io::stderr().is_terminal() {
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

    #[test]
    fn words_say_what_is_known_and_no_more() {
        let left = Duration::from_secs(60);
        assert_eq!(far(70, 100, left), "70 of 100 (70 %), 60 s left");
        assert_eq!(far(0, 100, Duration::ZERO), "0 of 100 (0 %)");
        assert_eq!(far(9, 0, left), "");
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        assert_eq!([4.4, 89.0, 300.0, 9000.0].map(time), ["4 s", "89 s", "5 min", "2.5 h"]);
    }

    #[test]
    fn the_pace_is_that_since_the_beginning_without_what_was_kept() {
        let told = |first, done| {
            left((&AtomicU64::new(first), done, 100), Duration::from_secs(30)).as_secs()
        };
        assert_eq!((told(0, 25), told(50, 75), told(50, 50), told(u64::MAX, 0)), (90, 30, 0, 0));
    }

    #[test]
    fn a_line_says_what_how_far_and_what_is_next() {
        let progress = Progress::new("crash");
        progress.at(3, 12, "program\u{1b}[2J 4");
        let line = line(&progress.bar, &progress.first);
        assert!(line.starts_with("crash: 0 s so far: 3 of 12 (25 %)"), "{line}");
        assert!(line.ends_with("4") && !line.contains('\u{1b}'), "{line}");
    }
}
