//! Where the time of a served drive comes from, for clients that live in real time.

use std::time::{Duration, Instant};

use rustix::event::Timespec;
use wp_base::Time;

/// Longest wait before somebody looks whether the server is to end.
const PATIENCE: Duration = Duration::from_millis(200);

/// Which clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockKind {
    /// As fast as it goes: when nobody has anything to ask, the drive's time jumps to what happens
    /// next. Order and concurrency are the model's, durations are not seen by the client.
    Free,
    /// Real time follows the drive's: an answer is held back until its moment has come.
    Paced,
}

impl ClockKind {
    /// By its name on the command line.
    pub fn find(name: &str) -> Option<ClockKind> {
        match name {
            "free" => Some(ClockKind::Free),
            "paced" => Some(ClockKind::Paced),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ClockKind::Free => "free",
            ClockKind::Paced => "paced",
        }
    }

    /// What can be read off a run with it.
    pub fn shows(self) -> &'static str {
        match self {
            ClockKind::Free => "contents, order and power failures; no durations",
            ClockKind::Paced => {
                "durations at the client: the model's, plus the overhead of the host"
            }
        }
    }
}

/// A clock that runs.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    kind: ClockKind,
    start: Instant,
}

impl Clock {
    /// Starts one.
    #[expect(clippy::disallowed_methods, reason = "real clients live in real time")]
    pub fn start(kind: ClockKind) -> Clock {
        Clock { kind, start: Instant::now() }
    }

    /// Which one it is.
    pub fn kind(&self) -> ClockKind {
        self.kind
    }

    /// What time it is for a drive whose time is `now`.
    #[expect(clippy::disallowed_methods, reason = "real clients live in real time")]
    pub fn now(&self, now: Time) -> Time {
        match self.kind {
            ClockKind::Free => now,
            ClockKind::Paced => {
                let ns = Instant::now().duration_since(self.start).as_nanos();
                now.max(Time(u64::try_from(ns).unwrap_or(u64::MAX)))
            }
        }
    }

    /// How long to wait for clients, if the next thing happens at `next`.
    pub fn wait(&self, now: Time, next: Option<Time>) -> Timespec {
        let wait = match (self.kind, next) {
            (_, None) => PATIENCE,
            (ClockKind::Free, Some(_)) => Duration::ZERO,
            (ClockKind::Paced, Some(at)) => {
                Duration::from_nanos(at.0.saturating_sub(now.0)).min(PATIENCE)
            }
        };
        Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) }
    }

    /// Nobody has asked anything: the time to go on to.
    pub fn idle(&self, now: Time, next: Option<Time>) -> Time {
        match self.kind {
            ClockKind::Free => next.unwrap_or(now).max(now),
            ClockKind::Paced => self.now(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_clock_jumps_when_nobody_asks_and_stands_otherwise() {
        let clock = Clock::start(ClockKind::Free);
        assert_eq!(clock.now(Time(5)), Time(5));
        assert_eq!(clock.idle(Time(5), Some(Time(900))), Time(900));
        assert_eq!(clock.idle(Time(5), None), Time(5));
        assert_eq!(clock.wait(Time(5), Some(Time(900))).tv_nsec, 0);
    }

    #[test]
    fn a_paced_clock_waits_for_the_moment() {
        let clock = Clock::start(ClockKind::Paced);
        assert_eq!(clock.wait(Time(5), Some(Time(905))).tv_nsec, 900);
        assert_eq!(clock.idle(Time(1 << 60), None), Time(1 << 60), "time never goes back");
    }
}
