//! `read_iolog`: a job does what a log of fio says, when it says so.
//!
//! Source: fio's manual, "Trace file format v2" and "v3", and its iolog.c: times of version 3 are
//! microseconds, and what counts is the time from one line to the next; a `wait` of version 2 names
//! the milliseconds since the run began.

use wp_base::{Span, Time};

use super::job::SyncWhat;
use super::sequence::Direction;
use super::value::MICROS_MAX;

/// How a log is to be replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplayOptions {
    /// The log.
    pub path: String,
    /// Nothing is waited for (`replay_no_stall`).
    pub no_stall: bool,
    /// All of it goes to this file (`replay_redirect`).
    pub redirect: Option<String>,
    /// Offsets are divided by this; 0: by nothing.
    pub scale: u64,
    /// Offsets are rounded down to a multiple of this power of two; 0: they are not.
    pub align: u64,
    /// Percentage of the log's speed.
    pub time_scale: u64,
}

impl Default for ReplayOptions {
    fn default() -> ReplayOptions {
        let (path, redirect) = (String::new(), None);
        ReplayOptions { path, no_stall: false, redirect, scale: 0, align: 0, time_scale: 100 }
    }
}

/// What a line asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The file is opened.
    Open,
    /// It is closed.
    Close,
    /// An operation at an offset, of a length, in bytes.
    Io(Direction, u64, u64),
    /// It is synced.
    Sync(SyncWhat),
}

/// When it is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Microseconds after the line before was done.
    After(u64),
    /// Microseconds of the run before which it is not done.
    At(u64),
}

/// A line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// Number of its file.
    pub file: usize,
    /// What.
    pub step: Step,
    /// When.
    pub due: Due,
}

/// A log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Log {
    /// Its files, in order.
    pub files: Vec<String>,
    /// Its lines.
    pub lines: Vec<Line>,
}

impl Log {
    /// Reads a log. Errors: what is wrong, with its line.
    pub fn parse(bytes: &[u8], how: &ReplayOptions) -> Result<Log, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "is no text".to_owned())?;
        let mut rows = text.lines().enumerate();
        let head = rows.next().map_or("", |(_, l)| l.trim_end());
        let version = match head {
            "fio version 2 iolog" => 2,
            "fio version 3 iolog" => 3,
            _ => return Err("does not begin with `fio version 3 iolog`".to_owned()),
        };
        let mut log = Log::default();
        let mut open: Vec<bool> = Vec::new();
        let (mut last, mut not_before) = (0, 0);
        // What was waited for lines that do nothing, and in all.
        let (mut passed, mut total) = (0u64, 0u64);
        for (n, row) in rows {
            let wrong = |what: &str| format!("line {}: {what}: `{}`", n + 1, row.trim_end());
            let mut words = row.split_ascii_whitespace();
            let mut delay = 0;
            if version == 3 {
                let Some(time) = words.next() else { continue };
                let time: u64 = time.parse().map_err(|_| wrong("no time"))?;
                if last > 0 && !how.no_stall && time >= last {
                    let scaled = u128::from(time - last) * 100 / u128::from(how.time_scale.max(1));
                    delay = u64::try_from(scaled).unwrap_or(u64::MAX);
                }
                last = time;
            }
            let Some(name) = words.next() else { continue };
            let action = words.next().ok_or_else(|| wrong("no action"))?;
            let numbers: Vec<&str> = words.collect();
            let number = |i: usize| {
                let n: Option<u64> = numbers.get(i).and_then(|w| w.parse().ok());
                n.ok_or_else(|| wrong("no offset and length"))
            };
            if action == "wait" {
                // In version 3 fio ignores it.
                if version == 2 && !how.no_stall {
                    not_before = number(0)?.saturating_mul(1000);
                    if not_before > MICROS_MAX {
                        return Err(wrong("beyond ten years"));
                    }
                }
                continue;
            }
            passed = passed.saturating_add(delay);
            total = total.saturating_add(delay);
            if total > MICROS_MAX {
                return Err(wrong("beyond ten years"));
            }
            let name = how.redirect.as_deref().unwrap_or(name);
            let file = log.files.iter().position(|f| f == name).unwrap_or_else(|| {
                log.files.push(name.to_owned());
                open.push(false);
                log.files.len() - 1
            });
            let step = match action {
                "add" => continue,
                // Of the one file instead of many the first counts.
                "open" if open[file] && how.redirect.is_some() => continue,
                "close" if how.redirect.is_some() => continue,
                "open" if open[file] => return Err(wrong("the file is open")),
                "open" => Step::Open,
                _ if !open[file] => return Err(wrong("the file is not open")),
                "close" => Step::Close,
                "sync" => Step::Sync(SyncWhat::All),
                "datasync" => Step::Sync(SyncWhat::Data),
                "read" | "write" | "trim" => {
                    let direction = match action {
                        "read" => Direction::Read,
                        "write" => Direction::Write,
                        _ => Direction::Trim,
                    };
                    let offset = number(0)? / how.scale.max(1);
                    let offset = offset & !how.align.saturating_sub(1);
                    let length = number(1)?;
                    if length == 0 || length > u64::from(u32::MAX) {
                        return Err(wrong("a length from 1 byte to 4 GiB"));
                    }
                    Step::Io(direction, offset, length)
                }
                _ => return Err(wrong("unknown action")),
            };
            match step {
                Step::Open => open[file] = true,
                Step::Close => open[file] = false,
                _ => {}
            }
            let after = Due::After(std::mem::take(&mut passed));
            let due = if version == 3 { after } else { Due::At(not_before) };
            log.lines.push(Line { file, step, due });
        }
        if log.operations().next().is_none() {
            return Err("has no operation".to_owned());
        }
        Ok(log)
    }

    /// Direction and length of each operation.
    pub fn operations(&self) -> impl Iterator<Item = (Direction, u64)> + '_ {
        self.lines.iter().filter_map(|l| match l.step {
            Step::Io(direction, _, length) => Some((direction, length)),
            _ => None,
        })
    }
}

impl Due {
    /// The instant, of a run that began at `begun` and did the line before at `last`.
    pub fn instant(self, begun: Time, last: Time) -> Time {
        match self {
            Due::After(us) => last + Span::micros(us),
            Due::At(us) => begun + Span::micros(us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "fio version 3 iolog\n\
        5 a add\n5 b add\n10 a open\n20 a read 8192 4096\n\
        50 b open\n70 b write 4097 512\n70 a sync 0 0\n71 a close\n";

    fn log(text: &str, how: &ReplayOptions) -> Log {
        Log::parse(text.as_bytes(), how).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn lines_are_due_after_the_ones_before() {
        let all = log(TEXT, &ReplayOptions::default());
        assert_eq!(all.files, ["a", "b"]);
        let due: Vec<Due> = all.lines.iter().map(|l| l.due).collect();
        assert_eq!(due, [5, 10, 30, 20, 0, 1].map(Due::After));
        assert_eq!(all.lines[3].step, Step::Io(Direction::Write, 4097, 512));
        assert_eq!(all.lines[4].step, Step::Sync(SyncWhat::All));
        let half = ReplayOptions { time_scale: 50, ..ReplayOptions::default() };
        assert_eq!(log(TEXT, &half).lines[2].due, Due::After(60));
        let at_once = ReplayOptions { no_stall: true, ..ReplayOptions::default() };
        assert!(log(TEXT, &at_once).lines.iter().all(|l| l.due == Due::After(0)));
    }

    #[test]
    fn offsets_and_files_are_changed_as_asked() {
        let how = ReplayOptions {
            redirect: Some("/dev/nvme0n1".to_owned()),
            scale: 2,
            align: 512,
            ..ReplayOptions::default()
        };
        let all = log(TEXT, &how);
        assert_eq!(all.files, ["/dev/nvme0n1"]);
        let steps: Vec<Step> = all.lines.iter().map(|l| l.step).collect();
        let read = Step::Io(Direction::Read, 4096, 4096);
        let write = Step::Io(Direction::Write, 2048, 512);
        assert_eq!(steps, [Step::Open, read, write, Step::Sync(SyncWhat::All)]);
    }

    #[test]
    fn waits_of_version_2_are_of_the_run() {
        let text = "fio version 2 iolog\na add\na open\na wait 300 0\na write 0 512\na close\n";
        let due: Vec<Due> =
            log(text, &ReplayOptions::default()).lines.iter().map(|l| l.due).collect();
        assert_eq!(due, [0, 300_000, 300_000].map(Due::At));
    }

    #[test]
    fn what_is_no_log_is_refused_with_its_line() {
        for (text, what) in [
            ("", "does not begin"),
            ("fio version 4 iolog\n", "does not begin"),
            ("fio version 3 iolog\n1 a open\n", "no operation"),
            ("fio version 3 iolog\n1 a read 0 512\n", "line 2: the file is not open"),
            ("fio version 3 iolog\n1 a open\n2 a open\n", "line 3: the file is open"),
            ("fio version 3 iolog\n1 a open\n2 a read 0\n", "line 3: no offset and length"),
            ("fio version 3 iolog\n1 a open\n2 a read 0 0\n", "line 3: a length"),
            ("fio version 3 iolog\n1 a open\n2 a rewind\n", "line 3: unknown action"),
            ("fio version 3 iolog\nx a open\n", "line 2: no time"),
            ("fio version 3 iolog\n1 a\n", "line 2: no action"),
            ("fio version 3 iolog\n1 a open\n9000000000000000000 a close\n", "line 3: beyond"),
            ("fio version 2 iolog\na wait 18000000000000000000 0\n", "line 2: beyond"),
        ] {
            let e = Log::parse(text.as_bytes(), &ReplayOptions::default()).expect_err(text);
            assert!(e.contains(what), "{text:?}: {e}");
        }
        assert!(Log::parse(b"\xff\xfe", &ReplayOptions::default()).is_err());
    }
}
