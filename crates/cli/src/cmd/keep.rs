//! Parts of long work that an earlier run of the same program did: `OUT/kept/KIND-HASH.json`, one
//! each.
//!
//! Laws:       a part depends on its name, on what was asked for, and on the program's own bytes.
//! Invariants: a file that is damaged, or of another program, is not used.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wp_machine::host::{Existing, output};
use wp_machine::results::sha256;

use super::reproduce::program;

/// Where they are, and what they depend on.
pub struct Keep {
    dir: PathBuf,
    kind: &'static str,
    key: String,
}

/// A part in its file.
#[derive(Serialize, Deserialize)]
struct Note {
    key: String,
    name: String,
    /// Hash of the part as text.
    sha256: String,
    part: Value,
}

impl Keep {
    /// Parts of a kind of work; `asked`: what each depends on besides its name. Errors: the host's.
    pub fn new(out: &Path, kind: &'static str, asked: &str) -> std::io::Result<Keep> {
        let key = format!("{} {asked}", program()?);
        Ok(Keep { dir: out.join("kept"), kind, key })
    }

    fn place(&self, name: &str) -> PathBuf {
        let hash = sha256(format!("{} {name}", self.key).as_bytes());
        self.dir.join(format!("{}-{}.json", self.kind, &hash[..12]))
    }

    /// The part of a name, if it is there as it was.
    pub fn find<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let bytes = std::fs::read(self.place(name)).ok()?;
        let note: Note = serde_json::from_slice(&bytes).ok()?;
        let is_it = note.key == self.key
            && note.name == name
            && note.sha256 == sha256(note.part.to_string().as_bytes());
        is_it.then(|| serde_json::from_value(note.part).ok()).flatten()
    }

    /// Keeps a part. Errors: the host's.
    pub fn note(&self, name: &str, part: &impl Serialize) -> std::io::Result<()> {
        let part = serde_json::to_value(part).map_err(std::io::Error::other)?;
        let sha256 = sha256(part.to_string().as_bytes());
        let note = Note { key: self.key.clone(), name: name.to_owned(), sha256, part };
        let place = self.place(name);
        std::fs::create_dir_all(&self.dir)?;
        output::write(&place, json!(note).to_string().as_bytes(), Existing::Replace)
    }
}
