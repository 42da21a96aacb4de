//! What a program of this host did: its calls, as a program of ours.

use wp_base::FsError;
use wp_workload::program::{Call, Program, Step};

/// The calls so far.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    steps: Vec<Step>,
    /// Whose call was the last.
    task: String,
    calls: u64,
    failed: u64,
    acknowledged: u64,
}

impl Recording {
    /// Adds a call of a task, and what it answered.
    pub(crate) fn push(&mut self, by: &str, call: Call, error: Option<&FsError>, is_kept: bool) {
        self.calls += 1;
        self.acknowledged += u64::from(matches!(call, Call::Ack(_)));
        self.failed += u64::from(error.is_some());
        if !is_kept {
            return;
        }
        if self.task != by {
            self.task = by.to_owned();
            self.steps.push(Step::Task(self.task.clone()));
        }
        if let Some(error) = error {
            self.steps.push(Step::Expect(error.errno()));
        }
        self.steps.push(Step::call(call));
    }

    /// Adds what is no call.
    pub(crate) fn step(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Calls that change something or make it durable, or open or close files.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Those that failed.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Lines that the program acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// The program that makes the same calls.
    pub fn program(&self) -> Program {
        Program(self.steps.clone())
    }
}
