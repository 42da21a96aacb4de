//! Parts of long work that an earlier run of the same program did: `OUT/kept/KIND-HASH.json`, one
//! each.
//!
//! Laws:       a part depends on its name, on what was asked for, and on the program's own bytes.
//! Invariants: a file that is damaged, or of another program, is not used.

use std::path::{Path, PathBuf};

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
    pub fn find(&self, name: &str) -> Option<Value> {
        let bytes = std::fs::read(self.place(name)).ok()?;
        let mut note: Value = serde_json::from_slice(&bytes).ok()?;
        let part = note["part"].take();
        let is_it = note["key"] == self.key.as_str()
            && note["name"] == name
            && note["sha256"] == sha256(part.to_string().as_bytes()).as_str();
        is_it.then_some(part)
    }

    /// Keeps a part. Errors: the host's.
    pub fn note(&self, name: &str, part: Value) -> std::io::Result<()> {
        let hash = sha256(part.to_string().as_bytes());
        let note = json!({ "key": self.key, "name": name, "sha256": hash, "part": part });
        let place = self.place(name);
        std::fs::create_dir_all(&self.dir)?;
        output::write(&place, note.to_string().as_bytes(), Existing::Replace)
    }
}
