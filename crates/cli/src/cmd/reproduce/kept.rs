//! What earlier runs found, shown again where nothing differs that it depends on.
//!
//! Picture:    `OUT/reproduce-PAPER/HASH/` (results, by what was asked for) and beside them
//!             `OUT/kept/PAPER-HASH.json`: which program wrote them, how it ended, how long it
//!             took.
//! Laws:       a run depends on what was asked for and on the program's own bytes, on nothing else.
//! Invariants: results that are damaged, or of another program, are not used. The note is no
//!             result, and is not the same in two runs.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use wp_machine::host::{Existing, output};
use wp_machine::results::sha256;
use wp_papers::results::Results;

/// A run that has ended with an answer.
#[derive(Serialize, Deserialize)]
struct Note {
    /// Hash of the program.
    program: String,
    /// Hashes of the two files that are shown again.
    text: String,
    document: String,
    /// Is there a difference from a kernel that is not listed?
    is_unlisted: bool,
    /// Seconds that it took.
    seconds: f64,
    /// The folder of its results.
    results: PathBuf,
}

/// A run that need not be done again.
pub struct Kept {
    /// What was printed.
    pub text: String,
    /// The same, typed.
    pub results: Results,
    /// Is there a difference from a kernel that is not listed?
    pub is_unlisted: bool,
    /// Seconds that it took.
    pub seconds: f64,
    /// Where its files are.
    pub folder: PathBuf,
}

/// Hash of this program. Errors: the host's.
pub fn program() -> std::io::Result<String> {
    wp_machine::host::program::hash().map(str::to_owned)
}

fn place(out: &Path, paper: &str, resolved: &str) -> PathBuf {
    out.join("kept").join(format!("{paper}-{}.json", &sha256(resolved.as_bytes())[..12]))
}

/// A run of `paper` by this program, of what `resolved` says. `None`: there is none, or not as it
/// was.
pub fn find(out: &Path, paper: &str, resolved: &str, program: &str) -> Option<Kept> {
    let note = std::fs::read(place(out, paper, resolved)).ok()?;
    let note: Note = serde_json::from_slice(&note).ok()?;
    let read = |name: &str| std::fs::read(note.results.join(name)).ok();
    let (text, document) = (read("tables.txt")?, read("claims.json")?);
    let asked = read("resolved.toml")?;
    let is_as_it_was = note.program == program
        && asked == resolved.as_bytes()
        && note.text == sha256(&text)
        && note.document == sha256(&document);
    if !is_as_it_was {
        return None;
    }
    Some(Kept {
        text: String::from_utf8(text).ok()?,
        results: Results::read(paper, std::str::from_utf8(&document).ok()?).ok()?,
        is_unlisted: note.is_unlisted,
        seconds: note.seconds,
        folder: note.results,
    })
}

/// Notes that a run has ended: its results are in `results`. Errors: the host's.
pub fn note(
    out: &Path,
    (paper, resolved): (&str, &str),
    results: &Path,
    (is_unlisted, seconds): (bool, f64),
) -> std::io::Result<()> {
    let hash = |name: &str| std::fs::read(results.join(name)).map(|b| sha256(&b));
    let note = Note {
        program: program()?,
        text: hash("tables.txt")?,
        document: hash("claims.json")?,
        is_unlisted,
        seconds,
        results: results.to_owned(),
    };
    let at = place(out, paper, resolved);
    std::fs::create_dir_all(out.join("kept"))?;
    let note = serde_json::to_vec_pretty(&note).map_err(std::io::Error::other)?;
    output::write(&at, &note, Existing::Replace)
}
