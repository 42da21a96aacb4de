//! Steady states: a job, or a group of jobs, ends when its rate hardly changes any more.
//!
//! Once a second of virtual time the bandwidth and the rate of the last second are noted. Over the
//! last `steadystate_duration` of them either the greatest deviation from the mean or the slope of
//! a line through them must be below the limit.
//!
//! Source: fio's manual, its steadystate.c, and what the installed fio reports.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use wp_base::Time;

use super::job::Job;

/// What must become steady.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Criterion {
    /// Operations per second; else bytes per second.
    pub iops: bool,
    /// The slope; else the greatest deviation from the mean.
    pub slope: bool,
    /// The limit is a percentage of the mean.
    pub percent: bool,
    /// Below this.
    pub limit: f64,
}

impl Criterion {
    /// Of `iops:0.3%`, `iops_slope:2`, `bw:10m` or `bw_slope:1%`. Errors: what is wrong with it.
    pub(super) fn parse(
        text: &str,
        bytes: impl Fn(&str) -> Result<u64, String>,
    ) -> Result<Criterion, String> {
        const FORM: &str = "iops, iops_slope, bw or bw_slope, a colon and a limit: `iops:0.3%`";
        let (word, limit) = text.split_once(':').ok_or(format!("`{text}`: {FORM}"))?;
        let (iops, slope) = match word.trim() {
            "iops" => (true, false),
            "iops_slope" => (true, true),
            "bw" => (false, false),
            "bw_slope" => (false, true),
            _ => return Err(format!("`{text}`: {FORM}")),
        };
        let limit = limit.trim();
        let (number, percent) = match limit.strip_suffix('%') {
            Some(n) => (n.trim(), true),
            None => (limit, false),
        };
        let limit = match percent || iops {
            true => number.parse::<f64>().map_err(|_| format!("`{text}`: {FORM}"))?,
            false => bytes(number)? as f64,
        };
        match limit.is_finite() && limit >= 0.0 {
            true => Ok(Criterion { iops, slope, percent, limit }),
            false => Err(format!("`{text}`: the limit is a number from 0")),
        }
    }

    /// As fio's report names it.
    pub fn text(&self) -> String {
        let unit = if self.percent { "%" } else { "" };
        format!("{}:{:.6}{unit}", self.name(), self.limit)
    }

    fn name(&self) -> String {
        let what = if self.iops { "iops" } else { "bw" };
        format!("{what}{}", if self.slope { "_slope" } else { "" })
    }
}

/// What a job asks for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SteadyState {
    /// Of what.
    pub criterion: Criterion,
    /// Over this many seconds.
    pub seconds: usize,
    /// Microseconds before any is noted.
    pub ramp_us: u64,
}

/// A part in percent; 0 of nothing.
fn percentage(part: f64, of: f64) -> f64 {
    if of == 0.0 { 0.0 } else { 100.0 * part / of }
}

/// How far it came.
#[derive(Clone, PartialEq, Debug)]
pub struct Steadiness {
    /// What was asked for.
    pub wanted: SteadyState,
    /// Was it reached?
    pub is_attained: bool,
    /// Deviation or slope at the last second, in the unit of the limit.
    pub criterion: f64,
    /// Greatest deviation from the mean, of a criterion without slope.
    pub deviation: f64,
    /// Slope per second, of a criterion with slope.
    pub slope: f64,
    /// Bytes per second of the last seconds, oldest first.
    pub bw: VecDeque<u64>,
    /// Operations per second.
    pub iops: VecDeque<u64>,
}

impl Steadiness {
    fn new(wanted: SteadyState) -> Steadiness {
        let (bw, iops) = (VecDeque::new(), VecDeque::new());
        let (criterion, deviation, slope) = (0.0, 0.0, 0.0);
        Steadiness { wanted, is_attained: false, criterion, deviation, slope, bw, iops }
    }

    /// Notes a second.
    fn note(&mut self, bw: u64, iops: u64) {
        let n = self.wanted.seconds;
        for (list, value) in [(&mut self.bw, bw), (&mut self.iops, iops)] {
            list.push_back(value);
            if list.len() > n {
                list.pop_front();
            }
        }
        let how = self.wanted.criterion;
        let values = if how.iops { &self.iops } else { &self.bw };
        if values.len() < n || n == 0 {
            return;
        }
        let sum: u64 = values.iter().sum();
        if how.slope {
            let x: f64 = (0..n).map(|i| i as f64).sum();
            let xx: f64 = (0..n).map(|i| (i * i) as f64).sum();
            let xy: f64 = values.iter().enumerate().map(|(i, y)| i as f64 * *y as f64).sum();
            let count = n as f64;
            self.slope = (xy - x * sum as f64 / count) / (xx - x * x / count);
            // fio's mean is a whole number here.
            let mean = (sum / n as u64) as f64;
            self.criterion = if how.percent { percentage(self.slope, mean) } else { self.slope };
        } else {
            let mean = sum as f64 / n as f64;
            self.deviation = values.iter().map(|y| (*y as f64 - mean).abs()).fold(0.0, f64::max);
            let percent = percentage(self.deviation, mean);
            self.criterion = if how.percent { percent } else { self.deviation };
        }
        // Nothing is no share of nothing.
        self.is_attained = self.criterion.abs() < how.limit && (sum > 0 || !how.percent);
    }

    /// The values of a report: one for each second of the duration, zeroes for those that did not
    /// come.
    pub fn values(&self) -> [Vec<u64>; 2] {
        [&self.bw, &self.iops].map(|list| {
            let mut all: Vec<u64> = list.iter().copied().collect();
            all.resize(self.wanted.seconds, 0);
            all
        })
    }
}

/// What a job that runs has done.
struct Counted {
    group: (u32, u32),
    epoch: Time,
    /// When it was checked last, and operations and bytes then.
    last: (Time, u64, u64),
    ios: u64,
    bytes: u64,
    ramp_is_over: bool,
}

/// All jobs with a steady state to reach.
#[derive(Clone, Default)]
pub struct Watch {
    jobs: Rc<RefCell<BTreeMap<u32, Counted>>>,
    groups: Rc<RefCell<BTreeMap<(u32, u32), Steadiness>>>,
}

impl Watch {
    /// Jobs that are reported as one become steady as one.
    fn group(job: &Job) -> (u32, u32) {
        (job.group, if job.group_reporting { 0 } else { job.thread_number })
    }

    /// A job begins.
    pub fn begin(&self, job: &Job, now: Time) {
        let Some(wanted) = job.steady_state else { return };
        let group = Watch::group(job);
        self.groups.borrow_mut().entry(group).or_insert_with(|| Steadiness::new(wanted));
        let (ios, bytes, ramp_is_over) = (0, 0, wanted.ramp_us == 0);
        let counted = Counted { group, epoch: now, last: (now, 0, 0), ios, bytes, ramp_is_over };
        self.jobs.borrow_mut().insert(job.thread_number, counted);
    }

    /// A job has ended.
    pub fn end(&self, job: &Job) {
        self.jobs.borrow_mut().remove(&job.thread_number);
    }

    /// An operation of a job has ended.
    pub fn count(&self, job: &Job, bytes: u64) {
        if job.steady_state.is_some()
            && let Some(counted) = self.jobs.borrow_mut().get_mut(&job.thread_number)
        {
            counted.ios += 1;
            counted.bytes += bytes;
        }
    }

    /// Has a job reached its steady state?
    pub fn is_attained(&self, job: &Job) -> bool {
        job.steady_state.is_some()
            && self.groups.borrow().get(&Watch::group(job)).is_some_and(|g| g.is_attained)
    }

    /// How far a job, or its group, came; `None`: it has no steady state to reach.
    pub fn of(&self, job: &Job) -> Option<Steadiness> {
        job.steady_state?;
        self.groups.borrow().get(&Watch::group(job)).cloned()
    }

    /// A second is over.
    pub fn tick(&self, now: Time) {
        let mut seconds: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
        for counted in self.jobs.borrow_mut().values_mut() {
            let groups = self.groups.borrow();
            let Some(group) = groups.get(&counted.group).filter(|g| !g.is_attained) else {
                continue;
            };
            // One second after the ramp: the first second that is noted is all behind it.
            let ramp_ns = group.wanted.ramp_us.saturating_mul(1000).saturating_add(1_000_000_000);
            counted.ramp_is_over |= now.since(counted.epoch).0 >= ramp_ns;
            let (since, ios, bytes) = counted.last;
            counted.last = (now, counted.ios, counted.bytes);
            let ms = now.since(since).0 / 1_000_000;
            if counted.ramp_is_over && ms > 0 {
                let sum = seconds.entry(counted.group).or_default();
                sum.0 += 1000 * (counted.bytes - bytes) / ms;
                sum.1 += 1000 * (counted.ios - ios) / ms;
            }
        }
        for (group, (bw, iops)) in seconds {
            if let Some(g) = self.groups.borrow_mut().get_mut(&group) {
                g.note(bw, iops);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(text: &str, values: &[u64]) -> Steadiness {
        let criterion = Criterion::parse(text, |t| t.parse().map_err(|_| t.to_owned()));
        let criterion = criterion.expect("a criterion");
        let mut s = Steadiness::new(SteadyState { criterion, seconds: 4, ramp_us: 0 });
        for v in values {
            s.note(*v, *v);
            if s.is_attained {
                break;
            }
        }
        s
    }

    #[test]
    fn deviations_and_slopes_are_of_the_last_seconds() {
        let s = reached("iops:5%", &[10, 100, 104, 96, 100, 100]);
        assert!(s.is_attained);
        assert_eq!(s.iops, [100, 104, 96, 100]);
        assert_eq!((s.deviation, s.criterion), (4.0, 4.0));
        assert!(!reached("iops:4%", &[10, 100, 104, 96, 100]).is_attained, "it must be below");
        let s = reached("bw_slope:3", &[10, 20, 30, 40]);
        assert!(!s.is_attained && s.slope == 10.0 && s.criterion == 10.0);
        let s = reached("bw_slope:50%", &[10, 20, 30, 40]);
        assert!(s.is_attained && s.criterion == 40.0, "{s:?}");
        assert!(!reached("bw:9", &[1, 1, 1]).is_attained, "too few seconds");
        let s = reached("iops:9%", &[0, 0, 0, 0]);
        assert!(!s.is_attained && s.criterion == 0.0, "of nothing no share is small: {s:?}");
        assert_eq!(reached("bw:9", &[1, 1]).values(), [vec![1, 1, 0, 0], vec![1, 1, 0, 0]]);
    }

    #[test]
    fn what_is_no_criterion_is_refused() {
        for bad in ["", "iops", "iops:", "iops:x%", "speed:1", "iops:-1", "bw:nan%", "bw:inf%"] {
            let parsed = Criterion::parse(bad, |t| t.parse().map_err(|_| t.to_owned()));
            assert!(parsed.is_err(), "{bad}");
        }
    }
}
