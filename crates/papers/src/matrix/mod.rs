//! Techniques together: every combination of eras, journaling and discards of ext4, and of modes,
//! direct I/O and OPRW of F2FS, on the same drives with the same workloads: how quick, how many
//! flushes, how much is written, and what a power failure leaves.
//!
//! Picture:    axes ([`combinations()`]) -> techniques of the table -> refused, with the reason; or
//!             [`speed`] (four workloads) and [`verdict`] (every crash point of programs).
//! Invariants: 1. a combination is refused by the table of techniques alone, and whatever is not
//!                refused there is run;
//!             2. all combinations of a file system run the same workloads and are cut in the same
//!                programs (where there is no `fbarrier`, `fsync` stands for it);
//!             3. what comes out depends on combination, length and seed only.
//! Left out:   writes that fail, cuts during a recovery (N5 and N6 show only there).

pub mod axes;
pub mod drives;
pub mod holes;
pub mod pins;
mod programs;
pub mod speed;
pub mod verdict;

pub use axes::{Combination, combinations};
pub use drives::{DRIVES, Drive};
use serde::{Deserialize, Serialize};
pub use speed::Speed;
pub use verdict::{Broken, CrashOutcome};
use wp_machine::MachineError;

/// How much is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Length {
    /// A few hundred milliseconds of CPU for a combination.
    Quick,
    /// Some seconds.
    Whole,
}

impl Length {
    /// One of two numbers.
    pub const fn pick(self, quick: u64, whole: u64) -> u64 {
        match self {
            Length::Quick => quick,
            Length::Whole => whole,
        }
    }
}

/// What came of a combination.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Its name.
    pub name: String,
    /// Why it cannot be; then nothing was run.
    pub refused: Option<String>,
    /// A row for each workload.
    pub speeds: Vec<Speed>,
    /// What power failures leave.
    pub verdict: Option<CrashOutcome>,
}

impl Cell {
    /// Does it break a rule in a way that nobody knows?
    pub fn is_unknown(&self) -> bool {
        self.verdict.as_ref().is_some_and(CrashOutcome::is_unknown)
    }

    /// In one line, as it is pinned: without numbers that a longer run changes.
    pub fn outcome(&self) -> String {
        match (&self.refused, &self.verdict) {
            (Some(why), _) => format!("refused: {why}"),
            (None, Some(verdict)) => verdict.outcome(),
            (None, None) => "not run".to_owned(),
        }
    }
}

/// Runs a combination. `go_on` is asked now and then; `None`: it said no.
///
/// Errors: a machine that cannot be or does not finish.
pub fn run(
    c: &Combination,
    length: Length,
    seed: u64,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<Option<Cell>, MachineError> {
    let name = c.name();
    if let Some(refusal) = c.refused()? {
        let refused = Some(refusal.to_string());
        return Ok(Some(Cell { name, refused, speeds: Vec::new(), verdict: None }));
    }
    let Some(speeds) = speed::run(c, length, seed, go_on)? else { return Ok(None) };
    let Some(verdict) = verdict::cut(c, length, go_on)? else { return Ok(None) };
    Ok(Some(Cell { name, refused: None, speeds, verdict: Some(verdict) }))
}
