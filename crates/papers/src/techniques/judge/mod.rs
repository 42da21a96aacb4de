//! The claims of techniques of the literature, and what judges each.
//!
//! Picture:    papers/techniques.toml -> [`claims`]; a technique's [`Judge`] runs its experiments
//!             -> (id, [`Measured`]) -> [`Book`] -> [`Judged`]. What is [`BESIDE_CLAIMS`] is
//!             measured too, and has no verdict.
//! Invariants: 1. ids, values, bands and kinds come from the file, which was written before the
//!                technique was built;
//!             2. a technique is judged by all of its claims, or not at all;
//!             3. what comes out depends on technique, length and seed only.

mod beside;
mod buffered_iomap;
mod f2fs_atomic;
mod fast_commit;
mod files;
mod force_copy;
mod ijournal;
mod optr;
mod qasio;
mod queue_depth;
mod rflush;
mod sqlite;
#[cfg(test)]
mod tests;
mod untorn;

use serde::{Deserialize, Serialize};
use wp_machine::MachineError;
use wp_report::claim::Judged;

use crate::claims::{Book, ClaimError, Claims, Measured};

/// The claims, as fixed before any of the techniques was built.
pub const CLAIMS_TOML: &str = include_str!("../../../../../papers/techniques.toml");

/// The verdict of every claim, as committed.
pub const VERDICTS_TOML: &str = include_str!("../../../../../papers/technique-verdicts.toml");

/// What is asked of a judge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Seed of every random stream.
    pub seed: u64,
    /// Shorter runs and fewer crash states.
    pub quick: bool,
}

impl Ask {
    /// One of two numbers, by the length of the runs.
    pub const fn pick(self, quick: u64, whole: u64) -> u64 {
        if self.quick { quick } else { whole }
    }
}

/// What measures all claims of a technique: their ids, and what was found for each.
pub type Measure = fn(Ask) -> Result<Vec<(&'static str, Measured)>, MachineError>;

/// A technique with its measurement.
pub struct Judge {
    /// The technique's name.
    pub technique: &'static str,
    measure: Measure,
}

/// Techniques whose claims are judged, in the order of the file.
pub static JUDGES: &[Judge] = &[
    Judge { technique: "force-copy", measure: force_copy::measure },
    Judge { technique: "rflush", measure: rflush::measure },
    Judge { technique: "optr", measure: optr::measure },
    Judge { technique: "queue-depth", measure: queue_depth::measure },
    Judge { technique: "qasio", measure: qasio::measure },
    Judge { technique: "f2fs-atomic", measure: f2fs_atomic::measure },
    Judge { technique: "untorn", measure: untorn::measure },
    Judge { technique: "fast-commit", measure: fast_commit::measure },
    Judge { technique: "buffered-iomap", measure: buffered_iomap::measure },
    Judge { technique: "ijournaling", measure: ijournal::measure },
];

/// A number of a technique beside its claims: nobody judges it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// What it is.
    pub id: String,
    /// The number; `None`: it was not measured, and `why` says why.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: String,
    /// Of what it is.
    pub why: String,
}

/// What measures more of a technique than its claims are of.
pub struct BesideClaims {
    /// The technique's name.
    pub technique: &'static str,
    /// Runs the experiments. Errors: a machine's.
    pub observe: fn(Ask) -> Result<Vec<Observed>, MachineError>,
}

/// Tables beside the claims, which get no verdict.
pub static BESIDE_CLAIMS: &[BesideClaims] = &[
    BesideClaims { technique: "untorn", observe: untorn::observe },
    BesideClaims { technique: "buffered-iomap", observe: buffered_iomap::observe },
    BesideClaims { technique: "ijournaling", observe: ijournal::observe },
];

/// The claims of all techniques, those too that are not built.
pub fn claims() -> Claims {
    Claims::parse(CLAIMS_TOML).expect("a test parses the committed file")
}

/// Why a technique could not be judged.
#[derive(Debug)]
pub enum JudgeError {
    /// A machine that cannot be or does not finish.
    Machine(MachineError),
    /// A measurement that its claim does not take.
    Claim(ClaimError),
}

impl From<MachineError> for JudgeError {
    fn from(e: MachineError) -> JudgeError {
        JudgeError::Machine(e)
    }
}

impl From<ClaimError> for JudgeError {
    fn from(e: ClaimError) -> JudgeError {
        JudgeError::Claim(e)
    }
}

impl Judge {
    /// Runs the experiments and judges each claim, in the order of the file.
    ///
    /// Errors: a machine's; a claim that was not measured, or one that the file does not have.
    pub fn run(&self, ask: Ask) -> Result<Vec<Judged>, JudgeError> {
        let claims = claims();
        let mut book = Book::open(&claims, self.technique)?;
        for (id, measured) in (self.measure)(ask)? {
            book.emit(id, measured)?;
        }
        Ok(book.close()?)
    }
}
