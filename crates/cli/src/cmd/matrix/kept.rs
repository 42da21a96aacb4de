//! Cells that an earlier run found: `OUT/kept/matrix-HASH.json`, one each.
//!
//! Laws:       a cell depends on its name, length and seed, and on the program's own bytes.
//! Invariants: a file that is damaged, or of another program, is not used.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wp_lab::matrix::{Cell, Length};
use wp_lab::results::sha256;

use crate::cmd::reproduce::program;

/// Where they are, and what they depend on.
pub(super) struct Kept {
    dir: PathBuf,
    key: String,
}

impl Kept {
    /// Errors: the host's.
    pub(super) fn new(out: &Path, length: Length, seed: u64) -> std::io::Result<Kept> {
        let key = format!("{} {length:?} {seed}", program()?);
        Ok(Kept { dir: out.join("kept"), key })
    }

    fn place(&self, name: &str) -> PathBuf {
        let hash = sha256(format!("{} {name}", self.key).as_bytes());
        self.dir.join(format!("matrix-{}.json", &hash[..12]))
    }

    /// The cell of a name, if it is there as it was.
    pub(super) fn find(&self, name: &str) -> Option<Cell> {
        let bytes = std::fs::read(self.place(name)).ok()?;
        let mut note: Value = serde_json::from_slice(&bytes).ok()?;
        let cell = note["cell"].take();
        let is_it = note["key"] == self.key.as_str()
            && note["sha256"] == sha256(cell.to_string().as_bytes()).as_str();
        let cell: Cell = serde_json::from_value(cell).ok().filter(|_| is_it)?;
        (cell.name == name).then_some(cell)
    }

    /// Keeps a cell. Errors: the host's.
    pub(super) fn note(&self, cell: &Cell) -> std::io::Result<()> {
        let value = serde_json::to_value(cell).map_err(std::io::Error::other)?;
        let hash = sha256(value.to_string().as_bytes());
        let note = json!({ "key": self.key, "sha256": hash, "cell": value });
        let place = self.place(&cell.name);
        std::fs::create_dir_all(&self.dir)?;
        let part = place.with_extension("part");
        std::fs::write(&part, note.to_string())?;
        std::fs::rename(part, place)
    }
}
