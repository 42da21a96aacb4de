//! Result directories: what a run leaves on the host, under the hash of what was asked.
//!
//! `results/<name>/<hash12>/` holds `resolved.toml`, `summary.json`, `events.ndjson` and
//! `MANIFEST.json` (file -> SHA-256). Written under a temporary name and renamed; the same inputs
//! give the same bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use wp_base::event::{BlockAction, Event, Flags, Op, Record};
use wp_base::{Sector, Time};

/// Version of what a run's bytes depend on besides its inputs. Raise it with any change of results.
pub const ENGINE: &str = env!("CARGO_PKG_VERSION");

/// Hexadecimal SHA-256.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut s, b| {
        write!(s, "{b:02x}").expect("a string takes it");
        s
    })
}

/// Files of a result, by name.
#[derive(Default)]
pub struct Results {
    files: BTreeMap<String, Vec<u8>>,
}

impl Results {
    /// Adds a file.
    pub fn add(&mut self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.files.insert(name.to_owned(), bytes.into());
    }

    /// Writes `root/name/<hash12 of resolved.toml and engine>/` and returns its path.
    pub fn write(mut self, root: &Path, name: &str) -> io::Result<PathBuf> {
        let resolved = self.files.get("resolved.toml").cloned().unwrap_or_default();
        let hash = sha256(&[resolved.as_slice(), ENGINE.as_bytes()].concat());
        let manifest: BTreeMap<&str, String> =
            self.files.iter().map(|(n, b)| (n.as_str(), sha256(b))).collect();
        let manifest = serde_json::to_vec_pretty(&manifest).map_err(io::Error::other)?;
        self.add("MANIFEST.json", manifest);
        let parent = root.join(name);
        let dir = parent.join(&hash[..12]);
        let part = parent.join(format!("{}.part", &hash[..12]));
        if part.exists() {
            std::fs::remove_dir_all(&part)?;
        }
        std::fs::create_dir_all(&part)?;
        for (file, bytes) in &self.files {
            std::fs::write(part.join(file), bytes)?;
        }
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        std::fs::rename(&part, &dir)?;
        Ok(dir)
    }
}

/// Events as one JSON document a line.
pub fn events_to_ndjson(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    for r in records {
        let mut v = match &r.event {
            Event::Block { action, op, flags, at, sectors, extra } => json!({
                "e": "block", "a": action.letter().to_string(), "op": format!("{op:?}"),
                "fl": flags.0, "s": at.0, "n": sectors, "x": extra,
            }),
            Event::Jbd2 { what, tid, value } => {
                json!({ "e": "jbd2", "what": what, "tid": tid, "v": value })
            }
            Event::Cpu { what, span } => json!({ "e": "cpu", "what": what, "ns": span.0 }),
            Event::SyscallEnter { name, id, target } => {
                json!({ "e": "enter", "name": name, "id": id, "target": &**target })
            }
            Event::SyscallExit { name, id, value, ok } => {
                json!({ "e": "exit", "name": name, "id": id, "v": value, "ok": ok })
            }
            Event::Mark { text } => json!({ "e": "mark", "text": &**text }),
        };
        if let Value::Object(m) = &mut v {
            m.insert("t".into(), json!(r.at.0));
            m.insert("task".into(), json!(&*r.task));
        }
        out.extend_from_slice(v.to_string().as_bytes());
        out.push(b'\n');
    }
    out
}

/// The block events of a result's `events.ndjson`. Errors: the host's, or a line that is none of
/// ours.
pub fn read_block_events(path: &Path) -> io::Result<Vec<Record>> {
    let file = std::fs::File::open(path)?;
    let mut out = Vec::new();
    for (n, line) in BufReader::new(file).lines().enumerate() {
        let line = line?;
        let wrong = |what: &str| io::Error::other(format!("{}:{}: {what}", path.display(), n + 1));
        let v: Value = serde_json::from_str(&line).map_err(|e| wrong(&e.to_string()))?;
        if v["e"] != "block" {
            continue;
        }
        let num = |key: &str| v[key].as_u64().ok_or_else(|| wrong(&format!("no number `{key}`")));
        let text = |key: &str| v[key].as_str().ok_or_else(|| wrong(&format!("no text `{key}`")));
        let action = ACTIONS
            .into_iter()
            .find(|a| v["a"] == a.letter().to_string().as_str())
            .ok_or_else(|| wrong("an unknown action"))?;
        let op = OPS
            .into_iter()
            .find(|o| v["op"] == format!("{o:?}").as_str())
            .ok_or_else(|| wrong("an unknown operation"))?;
        let small = |key: &str| {
            u32::try_from(num(key)?).map_err(|_| wrong(&format!("`{key}` is too large")))
        };
        out.push(Record {
            at: Time(num("t")?),
            task: text("task")?.into(),
            event: Event::Block {
                action,
                op,
                flags: Flags(small("fl")?),
                at: Sector(num("s")?),
                sectors: small("n")?,
                extra: num("x")?,
            },
        });
    }
    Ok(out)
}

const ACTIONS: [BlockAction; 12] = [
    BlockAction::Queue,
    BlockAction::Remap,
    BlockAction::Split,
    BlockAction::GetRequest,
    BlockAction::BackMerge,
    BlockAction::FrontMerge,
    BlockAction::Plug,
    BlockAction::Unplug,
    BlockAction::Insert,
    BlockAction::Issue,
    BlockAction::Requeue,
    BlockAction::Complete,
];
const OPS: [Op; 4] = [Op::Read, Op::Write, Op::Flush, Op::Discard];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_events_survive_a_file() {
        let record = Record {
            at: Time(123_456_789),
            task: "jbd2/sdb1-8".into(),
            event: Event::Block {
                action: BlockAction::Issue,
                op: Op::Write,
                flags: Flags::PREFLUSH | Flags::SYNC,
                at: Sector(216_658_048),
                sectors: 8,
                extra: 7,
            },
        };
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("events.ndjson");
        std::fs::write(&path, events_to_ndjson(std::slice::from_ref(&record))).expect("written");
        assert_eq!(read_block_events(&path).expect("read"), [record]);
    }

    #[test]
    fn a_torn_line_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("events.ndjson");
        std::fs::write(&path, "{\"e\":\"block\",\"a\":\"D\"").expect("written");
        let e = read_block_events(&path).expect_err("torn");
        assert!(e.to_string().contains("events.ndjson:1"), "{e}");
    }
}
