//! The CPU of a guest in time travel, as far as it is charged: what reaches a drive and what comes
//! back from one takes its time, one after the other.
//!
//! Picture:    request in a ring -> [`Cpu::hand_over`] -> drive; answer -> [`Cpu::take_back`] ->
//!             the guest is called.
//! Why here:   a guest runs at the times that it has asked for, no later (`BUG_ON` in
//!             `time_travel_update_time()`); only requests and interrupts are ours to hold back.
//! Left out:   what the guest's own code takes between two entries; a program in the guest can
//!             spend that itself (`lab.c` does for its system calls).

use wp_base::{Span, Time};
use wp_rt::{CostProfile, CpuOp};

use crate::drive::What;

/// One core, with what its work at the border to a drive costs.
#[derive(Clone, Debug)]
pub struct Cpu {
    costs: CostProfile,
    /// It has work until then.
    busy: Time,
    charged: Charged,
}

/// What a CPU was charged with.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Charged {
    /// Requests to drives.
    pub requests: u64,
    /// Answers of theirs.
    pub answers: u64,
    /// Nanoseconds of it all.
    pub ns: u64,
}

impl Cpu {
    /// A core with nothing to do.
    pub fn new(costs: CostProfile) -> Cpu {
        Cpu { costs, busy: Time(0), charged: Charged::default() }
    }

    /// What it was charged with so far.
    pub fn charged(&self) -> Charged {
        self.charged
    }

    /// A request of the guest's at `now`: when it is with the drive.
    pub fn hand_over(&mut self, now: Time, what: What) -> Time {
        self.charged.requests += 1;
        let flush = if what == What::Flush { self.costs.get(CpuOp::FlushIssue) } else { 0 };
        let on_its_way = self.costs.get(CpuOp::BioSubmit) + self.costs.get(CpuOp::RequestDispatch);
        self.work(now, on_its_way + flush)
    }

    /// An answer of a drive's at `now`: when the guest may see it. `wakes`: it is the first that
    /// the guest is called for, and wakes who waits for it.
    pub fn take_back(&mut self, now: Time, wakes: bool) -> Time {
        self.charged.answers += 1;
        let wake = if wakes { self.costs.get(CpuOp::ContextSwitch) } else { 0 };
        self.work(now, self.costs.get(CpuOp::Completion) + wake)
    }

    fn work(&mut self, now: Time, ns: u64) -> Time {
        self.charged.ns += ns;
        self.busy = self.busy.max(now) + Span(ns);
        self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_together_is_done_one_after_the_other() {
        let mut costs = CostProfile::zero();
        for (op, ns) in [
            (CpuOp::BioSubmit, 3),
            (CpuOp::RequestDispatch, 4),
            (CpuOp::FlushIssue, 50),
            (CpuOp::Completion, 10),
            (CpuOp::ContextSwitch, 100),
        ] {
            costs.set(op, ns);
        }
        let mut cpu = Cpu::new(costs);
        assert_eq!(cpu.hand_over(Time(1000), What::Write), Time(1007));
        assert_eq!(cpu.hand_over(Time(1000), What::Flush), Time(1064));
        assert_eq!(cpu.take_back(Time(1050), true), Time(1174));
        assert_eq!(cpu.take_back(Time(1060), false), Time(1184));
        assert_eq!(cpu.hand_over(Time(9000), What::Read), Time(9007), "it was idle");
        assert_eq!(cpu.charged(), Charged { requests: 3, answers: 2, ns: 7 + 57 + 110 + 10 + 7 });
    }

    #[test]
    fn a_cpu_that_costs_nothing_holds_nothing_back() {
        let mut cpu = Cpu::new(CostProfile::zero());
        assert_eq!(cpu.hand_over(Time(5), What::Flush), Time(5));
        assert_eq!(cpu.take_back(Time(6), true), Time(6));
    }
}
