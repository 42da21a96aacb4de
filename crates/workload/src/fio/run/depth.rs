//! The greatest depth at which latencies stay below a target (`latency_target`).
//!
//! Begins at depth 1 and doubles it after each window that meets the target; where one does not,
//! the depth is sought between the two. Found, it is kept for one more window, and only that
//! counts.
//!
//! Source: fio's manual and its `lat_target_check`.

use wp_base::{Span, Time};

use super::super::job::LatencyTarget;

/// Windows that must meet the target before the depth that once did not is tried again.
const STABLE: u32 = 3;

/// What is to be done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Nothing.
    Go,
    /// What is in flight ends, and a new window begins.
    Quiesce,
    /// The same, and nothing of before counts.
    FinalRun,
    /// The job is over.
    Done,
}

/// The search.
#[derive(Clone, Debug)]
pub(super) struct Search {
    target: LatencyTarget,
    depth_max: u64,
    /// Depth that is tried.
    pub(super) depth: u64,
    high: u64,
    low: u64,
    stable: u32,
    is_final: bool,
    since: Time,
    ios: u64,
    /// Operations of this window that took too long.
    late: u64,
    /// The depth was lowered by an operation that took too long.
    lowered: bool,
}

impl Search {
    /// `ios`: operations so far.
    pub(super) fn new(target: LatencyTarget, iodepth: u64, now: Time) -> Search {
        let (depth, high, low) = (1, iodepth, 1);
        let (stable, is_final, ios, late, lowered) = (0, false, 0, 0, false);
        let (depth_max, since) = (iodepth, now);
        Search { target, depth_max, depth, high, low, stable, is_final, since, ios, late, lowered }
    }

    /// A new window begins.
    pub(super) fn begin(&mut self, now: Time, ios: u64) {
        (self.since, self.ios, self.late) = (now, ios, 0);
    }

    /// An operation has ended. False: it took too long, and no depth is left.
    pub(super) fn ended(&mut self, latency_ns: u64) -> bool {
        if latency_ns <= self.target.ns {
            return true;
        }
        if self.target.percentile < 100.0 {
            self.late += 1;
            return true;
        }
        // fio lowers the depth at once, at each one that is late, those in flight as well.
        self.lowered = true;
        self.lower()
    }

    fn lower(&mut self) -> bool {
        if self.depth <= 1 {
            return false;
        }
        self.high = self.depth;
        if self.depth == self.low {
            self.low -= 1;
        }
        self.depth = (self.depth + self.low) / 2;
        self.stable = 0;
        true
    }

    fn raise(&mut self) -> Next {
        let before = self.depth;
        self.low = self.depth;
        if self.depth + 1 == self.high {
            self.stable += 1;
            if self.stable >= STABLE {
                self.high += 1;
                self.stable = 0;
            }
        }
        self.depth = match self.high == self.depth_max {
            true => self.depth * 2,
            false => (self.depth + self.high) / 2,
        };
        self.depth = self.depth.min(self.depth_max);
        match (self.target.runs_on || self.depth != before, self.is_final) {
            (true, _) => Next::Go,
            (false, true) => Next::Done,
            (false, false) => {
                self.is_final = true;
                Next::FinalRun
            }
        }
    }

    /// After an operation was issued, with `ios` ended so far.
    pub(super) fn look(&mut self, now: Time, ios: u64) -> Next {
        if std::mem::take(&mut self.lowered) {
            return Next::Quiesce;
        }
        if now.since(self.since) < Span::micros(self.target.window_us) {
            return Next::Go;
        }
        let done = ios.saturating_sub(self.ios);
        let good = 100.0 * done.saturating_sub(self.late) as f64 / done as f64;
        // Of a window without operations that is no number, and the depth is lowered, as in fio.
        if good >= self.target.percentile {
            let next = self.raise();
            self.begin(now, ios);
            return next;
        }
        match self.lower() {
            true => Next::Quiesce,
            // fio looks again after the next operation.
            false => Next::Go,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs windows in which depths up to `good` meet the target; the depths that were tried.
    fn depths(iodepth: u64, good: u64, runs_on: bool) -> Vec<u64> {
        let target = LatencyTarget { ns: 1000, window_us: 10, percentile: 99.0, runs_on };
        let mut s = Search::new(target, iodepth, Time(0));
        let (mut now, mut ios, mut all) = (Time(0), 0, Vec::new());
        for _ in 0..12 {
            all.push(s.depth);
            for _ in 0..100 {
                ios += 1;
                assert!(s.ended(if s.depth <= good { 1000 } else { 1001 }));
            }
            now += Span::micros(10);
            match s.look(now, ios) {
                Next::Done => break,
                Next::Quiesce | Next::FinalRun => s.begin(now, ios),
                Next::Go => {}
            }
        }
        all
    }

    #[test]
    fn the_depth_doubles_and_is_then_sought_between_two() {
        assert_eq!(depths(16, 16, false), [1, 2, 4, 8, 16, 16]);
        assert_eq!(depths(16, 5, false), [1, 2, 4, 8, 6, 5, 5]);
        assert_eq!(depths(1, 1, false), [1, 1]);
        assert_eq!(depths(16, 5, true)[..7], [1, 2, 4, 8, 6, 5, 5]);
    }

    #[test]
    fn with_all_below_the_target_each_late_one_lowers_the_depth() {
        let target = LatencyTarget { ns: 1000, window_us: 10, percentile: 100.0, runs_on: false };
        let mut s = Search::new(target, 8, Time(0));
        assert!(!s.ended(1001), "no depth is below 1");
        s.depth = 8;
        assert!(s.ended(1001) && s.depth == 4);
        assert!(s.ended(1001) && s.depth == 2);
        assert_eq!(s.look(Time(1), 1), Next::Quiesce);
        assert_eq!(s.look(Time(1), 1), Next::Go);
    }
}
