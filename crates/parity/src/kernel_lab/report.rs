//! What the guest's program has told, added up.

use serde::Serialize;
use wp_serve::vhost::cpu::Charged;

use super::fsyncs::Fsyncs;
use super::{Ours, Outcome};

/// One power cut.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Cycle {
    /// Its number, from 1.
    pub cycle: u64,
    /// How far into the round the power went: events, nanoseconds or changes, as it was drawn.
    pub into: u64,
    /// Submissions and answers of the drive before it.
    pub events: u64,
    /// Units that could be missing.
    pub in_doubt: u64,
    /// Those that were kept.
    pub kept: u64,
    /// Zones whose write pointer went back.
    pub zones_back: u64,
    /// Calls of fsync that had returned.
    pub fsyncs: u64,
    /// Virtual time of these, in nanoseconds.
    pub fsync_ns: u64,
    /// The longest of them.
    pub fsync_longest_ns: u64,
    /// Error number of the mount, or of opening the file; 0: it went well.
    pub mount_error: u64,
    /// Blocks older than what an fsync had returned for.
    pub lost: u64,
    /// Those of them for which the fsync had returned before any flush had ended that came since
    /// it was called: neither the drive nor recovery has forgotten them. `None`: the drive needs
    /// no flush.
    pub early: Option<u64>,
    /// Blocks that hold no version of their own.
    pub garbage: u64,
    /// Blocks that could not be read.
    pub unreadable: u64,
    /// Digest of all files' contents; of nothing where the mount failed.
    pub digest: u64,
    /// What our own recovery has made of the same state; `None`: the file system is none of ours.
    pub ours: Option<Ours>,
}

impl Cycle {
    /// Does the file hold what it must?
    pub fn is_sound(&self) -> bool {
        self.mount_error + self.lost + self.garbage + self.unreadable == 0
    }

    /// Is all that it lost what an fsync had returned for before a flush?
    pub fn is_early(&self) -> bool {
        self.lost > 0 && self.early == Some(self.lost)
    }

    /// Has our own recovery brought back something else?
    pub fn differs(&self) -> bool {
        match self.ours.as_ref().map(|o| &o.outcome) {
            None => false,
            Some(Outcome::Files(digest)) => self.mount_error != 0 || *digest != self.digest,
            Some(Outcome::Refused(_)) => self.mount_error == 0,
        }
    }

    fn parse(line: &str) -> Option<Cycle> {
        let mut numbers = line.split('\t').map(|t| t.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        let cycle = Cycle {
            cycle: next()?,
            into: next()?,
            events: next()?,
            in_doubt: next()?,
            kept: next()?,
            zones_back: next()?,
            fsyncs: next()?,
            fsync_ns: next()?,
            fsync_longest_ns: next()?,
            mount_error: next()?,
            lost: next()?,
            early: Some(next()?),
            garbage: next()?,
            unreadable: next()?,
            digest: next()?,
            ours: None,
        };
        numbers.next().is_none().then_some(cycle)
    }
}

/// A campaign.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Report {
    /// Version of the kernel.
    pub kernel: String,
    /// How long it took for the guest, in nanoseconds.
    pub virtual_ns: u64,
    /// Was it stopped before its end?
    pub stopped: bool,
    /// Overwrites of a cycle.
    pub ops: u64,
    /// Its power cuts, in order.
    pub cycles: Vec<Cycle>,
    /// What the guest's CPU was charged with at the border to the drive; `None`: it was free.
    pub charged: Option<Charged>,
    /// What the fsyncs of our own file system take, where somebody has asked.
    pub ours_fsyncs: Option<Fsyncs>,
}

impl Report {
    /// Of the guest's lines; a last one that is not whole is left out. Errors: a line that is none
    /// of its.
    pub fn parse(text: &str, ops: u64) -> Result<Report, String> {
        let mut cycles = Vec::new();
        for line in text.split_inclusive('\n').filter(|l| l.ends_with('\n')) {
            let line = line.trim_end();
            let cycle = Cycle::parse(line).ok_or_else(|| format!("`{line}` is not a cycle"))?;
            cycles.push(cycle);
        }
        Ok(Report { ops, cycles, ..Report::default() })
    }

    /// Cycles of which this is true.
    pub fn count(&self, is: impl Fn(&Cycle) -> bool) -> u64 {
        self.cycles.iter().filter(|c| is(c)).count() as u64
    }

    /// All cycles' numbers of this kind, added up.
    pub fn sum(&self, of: impl Fn(&Cycle) -> u64) -> u64 {
        self.cycles.iter().map(of).sum()
    }

    /// Mean of the fsyncs that returned before a cut, in nanoseconds; 0 without one.
    pub fn fsync_mean_ns(&self) -> u64 {
        self.sum(|c| c.fsync_ns) / self.sum(|c| c.fsyncs).max(1)
    }

    /// Did every cycle leave what it must, and the same by our recovery?
    pub fn is_sound(&self) -> bool {
        self.cycles.iter().all(|c| c.is_sound() && !c.differs())
    }

    /// Recoveries that ours makes otherwise; `None`: the file system is none of ours.
    pub fn otherwise(&self) -> Option<u64> {
        let ours = self.cycles.iter().any(|c| c.ours.is_some());
        ours.then(|| self.count(Cycle::differs))
    }

    /// Cuts that lost only what an fsync had returned for before a flush; `None`: the drive needs
    /// none.
    pub fn early(&self) -> Option<u64> {
        let asked = self.cycles.iter().any(|c| c.early.is_some());
        asked.then(|| self.count(Cycle::is_early))
    }

    /// Cuts that leave garbage with order-preserving recovery; `None`: there is none of it.
    pub fn oprw_garbage(&self) -> Option<u64> {
        let garbage = |c: &Cycle| c.ours.as_ref().and_then(|o| o.oprw_garbage);
        let oprw = self.cycles.iter().any(|c| garbage(c).is_some());
        oprw.then(|| self.count(|c| garbage(c) > Some(0)))
    }

    /// As a table.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let mut row = |what: &str, n: u64| out.push_str(&format!("{what:48} {n:>12}\n"));
        row("power failures", self.cycles.len() as u64);
        row("  with unpersisted writes", self.count(|c| c.in_doubt > 0));
        row("  that lost unpersisted writes", self.count(|c| c.kept < c.in_doubt));
        row("  that moved zones' write pointers back", self.count(|c| c.zones_back > 0));
        row("fsyncs that returned before a power failure", self.sum(|c| c.fsyncs));
        row("  mean, ns", self.fsync_mean_ns());
        let longest = self.cycles.iter().map(|c| c.fsync_longest_ns).max();
        row("  maximum, ns", longest.unwrap_or(0));
        if let Some(ours) = self.ours_fsyncs {
            row("fsyncs of Writepath's file system, no failures", ours.calls);
            row("  mean, ns", ours.mean_ns());
            row("  maximum, ns", ours.longest_ns);
        }
        row("power failures after which the mount failed", self.count(|c| c.mount_error > 0));
        row("power failures that lost fsynced data", self.count(|c| c.lost > 0));
        if let Some(n) = self.early() {
            row("  all of it by fsyncs that skipped a flush", n);
        }
        row("power failures that left garbage in a block", self.count(|c| c.garbage > 0));
        row("power failures that left a block unreadable", self.count(|c| c.unreadable > 0));
        if let Some(n) = self.otherwise() {
            row("recovery matches (Writepath against Linux)", self.cycles.len() as u64 - n);
            row("recovery mismatches", n);
        }
        if let Some(n) = self.oprw_garbage() {
            row("power failures that leave garbage with OPRW", n);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "1\t12\t557\t0\t0\t0\t9\t9000\t2000\t0\t0\t0\t0\t0\t7\n\
                         2\t5\t943\t3\t1\t1\t1\t1000\t1000\t0\t2\t2\t1\t0\t8\n\
                         3\t5\t9";

    #[test]
    fn cycles_are_added_up_and_half_a_line_is_none() {
        let report = Report::parse(LINES, 16).unwrap();
        assert_eq!((report.cycles.len(), report.fsync_mean_ns()), (2, 1000));
        assert_eq!((report.count(|c| c.lost > 0), report.sum(|c| c.lost)), (1, 2));
        assert_eq!(report.early(), Some(1));
        assert!(report.cycles[0].is_sound() && !report.cycles[1].is_sound() && !report.is_sound());
        assert!(
            report
                .table()
                .contains("power failures that left garbage in a block                 1")
        );
    }

    #[test]
    fn another_recovery_of_the_same_state_is_told() {
        let mut report = Report::parse(LINES, 16).unwrap();
        assert!(report.cycles.iter().all(|c| !c.differs()), "nobody else has recovered");
        let ours = |outcome| Some(Ours { outcome, oprw_garbage: None });
        report.cycles[0].ours = ours(Outcome::Files(7));
        report.cycles[1].ours = ours(Outcome::Files(7));
        assert!(!report.cycles[0].differs() && report.cycles[1].differs());
        assert!(
            report
                .table()
                .contains("recovery mismatches                                         1")
        );
        report.cycles[0].ours = ours(Outcome::Refused("damaged".to_owned()));
        assert!(report.cycles[0].differs() && !report.is_sound());
        report.cycles[0].mount_error = 117;
        assert!(!report.cycles[0].differs(), "both refuse");
    }

    #[test]
    fn a_line_that_is_none_is_an_error() {
        for wrong in ["1\t2\n", "1\t12\t557\t0\t0\t0\t9\t9000\t2000\t0\t0\t0\t0\t0\tx\n", "\n"] {
            assert!(Report::parse(wrong, 16).is_err(), "{wrong:?}");
        }
        assert_eq!(Report::parse("", 16).unwrap().cycles, []);
    }
}
