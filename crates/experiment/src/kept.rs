//! Runs that were made are kept, so that an interrupted experiment goes on, and one that has grown
//! does not begin anew.
//!
//! Laws:       a run depends on its point's settings, its seed, the bytes of its inputs, and the
//!             program; their hash is the name of the file.
//! Invariants: what is damaged is not there.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wp_machine::host::output;
use wp_machine::results::sha256;

use super::run::Outcome;
use super::table::{outcome_json, outcome_of};

/// A folder of runs.
pub struct Kept {
    dir: PathBuf,
    program: String,
}

impl Kept {
    /// In a folder, by a program with this hash.
    pub fn new(dir: PathBuf, program: &str) -> Kept {
        Kept { dir, program: program.to_owned() }
    }

    fn place(&self, run: &str) -> PathBuf {
        self.dir.join(&run[..2]).join(format!("{}.json", &run[2..]))
    }

    /// The name of a run.
    pub fn name(&self, setup: &str, inputs: &str, seed: u64) -> String {
        sha256(format!("{}\n{setup}\n{inputs}\n{seed}\n", self.program).as_bytes())
    }

    /// A run that was made. `None`: there is none, or not as it was.
    pub fn find(&self, run: &str) -> Option<Outcome> {
        outcome_in(&std::fs::read(self.place(run)).ok()?)
    }

    /// Keeps a run. Errors: the host's.
    pub fn keep(&self, run: &str, outcome: &Outcome) -> io::Result<()> {
        self.write(run, &Kept::bytes(outcome))
    }

    /// A run as [`Kept::put`] takes it, on its way from another process.
    pub fn bytes(outcome: &Outcome) -> Vec<u8> {
        let doc = outcome_json(outcome);
        let hash = sha256(doc.to_string().as_bytes());
        json!({ "sha256": hash, "outcome": doc }).to_string().into_bytes()
    }

    /// Keeps what [`Kept::bytes`] gave. Errors: the host's; a name or bytes that are none of ours.
    pub fn put(&self, run: &str, bytes: &[u8]) -> io::Result<()> {
        let is_name = run.len() == 64 && run.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_name || outcome_in(bytes).is_none() {
            let what = "not a run of this build: damaged on its way";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        self.write(run, bytes)
    }

    fn write(&self, run: &str, bytes: &[u8]) -> io::Result<()> {
        let place = self.place(run);
        let folder = place.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        // A sync takes longer than most runs; what a power failure leaves of a file is found out.
        output::write_unsynced(&place, bytes)
    }
}

/// The run that a file holds. `None`: it is damaged.
fn outcome_in(bytes: &[u8]) -> Option<Outcome> {
    let doc: Value = serde_json::from_slice(bytes).ok()?;
    let hash = sha256(doc["outcome"].to_string().as_bytes());
    if doc["sha256"] != hash.as_str() {
        return None;
    }
    outcome_of(&doc["outcome"])
}

#[cfg(test)]
mod tests {
    use super::super::metric::Number;
    use super::*;

    #[test]
    fn a_damaged_run_is_not_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let kept = Kept::new(dir.path().to_owned(), "program");
        let run = kept.name("fs.kind = \"ext4\"\n", "", 1);
        assert_eq!(kept.find(&run), None);
        let mut outcome = Outcome::default();
        outcome.metrics.insert("iops".to_owned(), Number::Real(0.1));
        kept.keep(&run, &outcome).expect("written");
        assert_eq!(kept.find(&run).as_ref(), Some(&outcome));
        let place = kept.place(&run);
        let text = std::fs::read_to_string(&place).expect("there").replace("0.1", "0.2");
        std::fs::write(&place, text).expect("written");
        assert_eq!(kept.find(&run), None);
        let bytes = Kept::bytes(&outcome);
        kept.put(&run, &bytes).expect("written");
        assert_eq!(kept.find(&run).as_ref(), Some(&outcome));
        let refused = [kept.put("../run", &bytes), kept.put(&run, &bytes[1..])];
        assert!(refused.iter().all(Result::is_err), "{refused:?}");
        let names = [kept.name("a", "", 1), kept.name("a", "", 2), kept.name("b", "", 1)];
        assert!(names[0] != names[1] && names[0] != names[2]);
        assert_ne!(Kept::new(dir.path().to_owned(), "other").name("a", "", 1), names[0]);
    }
}
