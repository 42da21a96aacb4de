//! One boot of a guest with as many tests as go.
//!
//! Picture:    `check TEST...` in the guest -> before each test a mark in the test device's log
//!             (`before_test.sh`) -> [`Watch`], which reads the log and what `check` prints while
//!             the guest runs -> a [`Tested`] as each test ends.
//! Invariants: 1. what a test sent the drive is what lies between its mark and the next, so it does
//!                not matter when the log is read;
//!             2. a test is over when the next begins or the guest has come to its end, never
//!                because time has passed.

use std::time::{Duration, Instant};

use wp_base::Time;
use wp_base::crc::crc32c;
use wp_medium::log_order::is_reserved;
use wp_medium::write_log::{LogEntry, LogFlags};
use wp_serve::drive::Drive;

use super::super::program::ProgramError;
use super::super::session::Share;
use super::{Event, Limits, Sent, Tested, Verdict};

/// Turns of the guest between two looks at its log.
const TURNS: u64 = 256;

/// A test that runs.
struct Running {
    index: usize,
    /// Virtual nanoseconds after the guest's first at which it began.
    since_ns: u64,
    wall: Instant,
    sent: Sent,
    digest: u32,
}

/// Why the guest is ended before its end.
enum Why {
    Interrupted,
    /// It took more than this of the host's time, or of the guest's.
    Wall(Duration),
    Virtual(Duration),
    /// The test device cannot be made anew.
    Unfit(String),
}

/// Reads what a guest with tests does.
pub(super) struct Watch<'a> {
    tests: &'a [String],
    share: &'a Share,
    limits: Limits,
    turns: u64,
    booted: Instant,
    running: Option<Running>,
    done: usize,
    why: Option<Why>,
    tell: &'a mut dyn FnMut(Event) -> bool,
}

#[expect(clippy::disallowed_methods, reason = "real time is reported beside virtual time")]
fn now() -> Instant {
    Instant::now()
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        tests: &'a [String],
        share: &'a Share,
        limits: Limits,
        tell: &'a mut dyn FnMut(Event) -> bool,
    ) -> Watch<'a> {
        let booted = now();
        Watch { tests, share, limits, turns: 0, booted, running: None, done: 0, why: None, tell }
    }

    /// Is the guest to be ended? Asked at each of its turns.
    pub(super) fn turn(&mut self, at: Time, drives: &mut [Drive]) -> bool {
        self.turns += 1;
        if self.turns.is_multiple_of(TURNS) {
            if let Some(drive) = drives.first_mut() {
                self.read(drive);
            }
            let test = self.running.as_ref().map(|r| self.tests[r.index].clone());
            let is_stopped = (self.tell)(Event::Runs(test.unwrap_or_default()));
            if is_stopped {
                self.why = Some(Why::Interrupted);
            }
        }
        let (since, since_ns) =
            self.running.as_ref().map_or((self.booted, 0), |r| (r.wall, r.since_ns));
        if since.elapsed() > self.limits.wall {
            self.why.get_or_insert(Why::Wall(self.limits.wall));
        }
        if u128::from(at.0.saturating_sub(since_ns)) > self.limits.virtual_time.as_nanos() {
            self.why.get_or_insert(Why::Virtual(self.limits.virtual_time));
        }
        self.why.is_some()
    }

    /// Takes what the test device was sent since the last time.
    fn read(&mut self, drive: &mut Drive) {
        for entry in drive.take_written() {
            let is_mark = entry.flags.has(LogFlags::MARK) && !is_reserved(&entry.mark);
            match entry.mark.split_once(' ').filter(|_| is_mark) {
                Some(("test", rest)) => self.begins(rest),
                Some(("unfit", why)) => self.why = Some(Why::Unfit(why.to_owned())),
                _ => {
                    if let Some(running) = &mut self.running {
                        running.sent.count(&entry);
                        running.digest = digest(running.digest, &entry);
                    }
                }
            }
        }
    }

    /// A test begins: `UPTIME NAME`. What it is about to do shows in no log yet.
    fn begins(&mut self, mark: &str) {
        let Some((up, name)) = mark.split_once(' ') else { return };
        let Some(since_ns) = nanoseconds(up) else { return };
        self.ends(since_ns, None);
        let Some(index) = self.tests.iter().position(|test| test == name) else { return };
        let sent = Sent::default();
        self.running = Some(Running { index, since_ns, wall: now(), sent, digest: u32::MAX });
    }

    /// The test that runs is over, with what `check` says of it unless it came to another end.
    fn ends(&mut self, at_ns: u64, verdict: Option<Verdict>) {
        let Some(running) = self.running.take() else { return };
        let test = &self.tests[running.index];
        let of_check = || Verdict::of(&self.share.read("run.out"), test);
        self.done = running.index + 1;
        let tested = Tested {
            test: test.clone(),
            verdict: verdict.unwrap_or_else(of_check),
            kernel: self.share.read("version").trim().to_owned(),
            virtual_ns: at_ns.saturating_sub(running.since_ns),
            wall: running.wall.elapsed(),
            sent: running.sent,
            digest: running.digest,
        };
        (self.tell)(Event::Ended(Box::new(tested)));
    }

    /// The guest has ended, or was ended, at a time. How many of the tests have an outcome.
    ///
    /// Errors: none has.
    pub(super) fn end(mut self, at: Time, drive: &mut Drive) -> Result<usize, ProgramError> {
        if self.why.is_none() {
            self.read(drive);
        }
        let took = |limit: Duration, what: &str| {
            Some(Verdict::TooLong(format!("more than {limit:?} of {what} time")))
        };
        let is_whole =
            self.share.is_whole() && self.share.read("code").trim().parse::<i32>().is_ok();
        match self.why.take() {
            Some(Why::Interrupted) => return Err(ProgramError::Interrupted),
            Some(Why::Wall(limit)) => self.ends(at.0, took(limit, "wall-clock")),
            Some(Why::Virtual(limit)) => self.ends(at.0, took(limit, "virtual")),
            // The test itself can be tried in a fresh guest, if this one had others before.
            Some(Why::Unfit(why)) if self.done == 0 => {
                return Err(format!("the test device cannot be made: {why}").into());
            }
            Some(Why::Unfit(_)) => {}
            None if is_whole => self.ends(at.0, None),
            None => {
                let said = self.share.panic().unwrap_or_else(|| self.share.failure());
                self.ends(at.0, Some(Verdict::Panicked(said)));
            }
        }
        match self.done {
            0 => {
                let said = self.share.read("run.out");
                let why = if is_whole { said.trim().to_owned() } else { self.share.failure() };
                Err(format!("no test has begun (xfstests' check calls logger first): {why}").into())
            }
            done => Ok(done),
        }
    }
}

/// Seconds since the boot, as `/proc/uptime` has them.
fn nanoseconds(uptime: &str) -> Option<u64> {
    let (seconds, hundredths) = uptime.split_once('.')?;
    let seconds: u64 = seconds.parse().ok()?;
    let hundredths: u64 = hundredths.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(hundredths.checked_mul(10_000_000)?)
}

/// A checksum with an entry of a log added.
fn digest(before: u32, entry: &LogEntry) -> u32 {
    let words = [entry.at.0, entry.sectors, entry.flags.0];
    let head = words.iter().fold(before, |crc, word| crc32c(crc, &word.to_le_bytes()));
    let marked = crc32c(head, entry.mark.as_bytes());
    entry.data.iter().fold(marked, |crc, slice| crc32c(crc, &slice.to_vec()))
}

impl Sent {
    fn count(&mut self, entry: &LogEntry) {
        let flags = entry.flags;
        if flags.has(LogFlags::MARK) {
            return;
        }
        if flags.has(LogFlags::DISCARD) {
            self.discards += 1;
        } else if flags.has(LogFlags::FLUSH) && entry.sectors == 0 {
            self.flushes += 1;
        } else {
            self.writes += 1;
            self.write_bytes += entry.sectors * wp_base::SECTOR_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use wp_base::Sector;
    use wp_medium::Slice;

    use super::*;

    #[test]
    fn an_uptime_is_read_and_other_text_is_none() {
        assert_eq!(nanoseconds("12.34"), Some(12_340_000_000));
        assert_eq!(nanoseconds("0.05"), Some(50_000_000));
        for odd in ["", "12", "a.b", "1.-2", "99999999999999.00"] {
            assert_eq!(nanoseconds(odd), None, "{odd}");
        }
    }

    #[test]
    fn what_was_sent_is_counted_and_every_part_of_it_changes_the_checksum() {
        let page = |byte: u8| vec![Slice::from_bytes(&[byte; 4096])];
        let write = LogEntry::write(Sector(8), page(1), LogFlags::FUA);
        let entries = [
            write.clone(),
            LogEntry::write(Sector(0), Vec::new(), LogFlags::FLUSH),
            LogEntry::discard(Sector(0), 64),
            LogEntry::mark("note"),
        ];
        let mut sent = Sent::default();
        entries.iter().for_each(|e| sent.count(e));
        assert_eq!(sent, Sent { writes: 1, write_bytes: 4096, flushes: 1, discards: 1 });
        let other = [
            LogEntry::write(Sector(16), page(1), LogFlags::FUA),
            LogEntry::write(Sector(8), page(1), LogFlags::default()),
            LogEntry::write(Sector(8), page(2), LogFlags::FUA),
        ];
        assert!(other.iter().all(|e| digest(0, e) != digest(0, &write)));
        assert_ne!(digest(digest(0, &entries[1]), &write), digest(digest(0, &write), &entries[1]));
    }
}
