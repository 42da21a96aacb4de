//! Result directories: what a run leaves on the host, under the hash of what was asked.
//!
//! `results/<name>/<hash12>/` holds `resolved.toml`, `summary.json`, `events.parquet`
//! ([`columns`]), `lines.tsv` (classes of the blocks) and `MANIFEST.json` (file -> SHA-256).
//! [`folder`] writes it; the same inputs give the same bytes. A run without events, or with the
//! first ones only, has a hash of its own. `results/latest` leads to the newest; [`find`] is what
//! every command takes for a result.

pub mod columns;
mod find;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub use find::{Listed, NoResult, find, found_below, remove};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use wp_base::event::{BlockAction, DeviceWork, Die, Event, Flags, Op, Record, Work, ZoneOp};
use wp_base::plain::Shown as _;
use wp_base::{Sector, Span, Time};
use wp_block::Limits;
use wp_vfs::FsEntry;

use crate::classify;
use crate::host::{folder, text};
use crate::registry;

/// The events of a result, as a table.
pub const EVENTS: &str = "events.parquet";
/// The same in results of version 0.2: one JSON document a line, compressed with Zstandard (RFC
/// 8878).
pub const EVENTS_COMPRESSED: &str = "events.ndjson.zst";
/// The same as it is: results of version 0.1, and what `zstd -d` makes.
pub const EVENTS_PLAIN: &str = "events.ndjson";
/// What counts and numbers of a run are in.
pub const SUMMARY: &str = "summary.json";
/// The link to the newest result.
pub const LATEST: &str = "latest";

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
    /// What the hash is made of besides `resolved.toml` and the engine.
    key: String,
}

impl Results {
    /// Adds a file.
    pub fn add(&mut self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.files.insert(name.to_owned(), bytes.into());
    }

    /// Keeps this result apart from those that have other files for the same `resolved.toml`.
    pub fn set_key(&mut self, key: &str) {
        key.clone_into(&mut self.key);
    }

    /// Writes `root/name/<hash12 of resolved.toml, engine and key>/`, lets `root/latest` lead
    /// there, and returns its path. Errors: as [`folder::write`].
    pub fn write(mut self, root: &Path, name: &str) -> io::Result<PathBuf> {
        let resolved = self.files.get("resolved.toml").cloned().unwrap_or_default();
        let hash = sha256(&[resolved.as_slice(), ENGINE.as_bytes(), self.key.as_bytes()].concat());
        let manifest: BTreeMap<&str, String> =
            self.files.iter().map(|(n, b)| (n.as_str(), sha256(b))).collect();
        let manifest = serde_json::to_vec_pretty(&manifest).map_err(io::Error::other)?;
        self.add(folder::MANIFEST, manifest);
        let dir = root.join(name).join(&hash[..12]);
        folder::write(&dir, &self.files)?;
        folder::lead_to(root, LATEST, &Path::new(name).join(&hash[..12]));
        Ok(dir)
    }
}

/// Events as one JSON document a line.
pub fn events_to_ndjson(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    write_events(records, &mut out).expect("memory takes it");
    out
}

/// Events as [`EVENTS`] has them; `class`: what the blocks of a block event are. Errors: of the
/// format, which has none of its own.
pub fn events_to_table(records: &[Record], class: columns::ClassOf<'_>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    columns::write(records, class, &mut bytes)?;
    Ok(bytes)
}

fn write_events(records: &[Record], out: &mut dyn io::Write) -> io::Result<()> {
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
            Event::Wakeup { task, timer, on } => {
                json!({ "e": "wakeup", "who": &**task, "timer": timer, "on": on })
            }
            Event::Fs { work, step, id, why } => {
                json!({ "e": "fs", "work": work, "step": step, "id": id, "why": why })
            }
            Event::SwitchIn { core } => json!({ "e": "in", "core": core }),
            Event::SwitchOut { ready } => json!({ "e": "out", "ready": ready }),
            Event::SyscallEnter { name, id, target } => {
                json!({ "e": "enter", "name": name, "id": id, "target": &**target })
            }
            Event::SyscallExit { name, id, value, ok } => {
                json!({ "e": "exit", "name": name, "id": id, "v": value, "ok": ok })
            }
            Event::Mark { text } => json!({ "e": "mark", "text": &**text }),
            Event::Command { id, op, flags, at, sectors } => json!({
                "e": "command", "id": id, "op": format!("{op:?}"), "fl": flags.0, "s": at.0,
                "n": sectors,
            }),
            Event::CommandEnd { id, ok } => json!({ "e": "done", "id": id, "ok": ok }),
            Event::Device(work) => device_work(work),
        };
        if let Value::Object(m) = &mut v {
            m.insert("t".into(), json!(r.at.0));
            m.insert("task".into(), json!(&*r.task));
        }
        writeln!(out, "{v}")?;
    }
    Ok(())
}

/// Zeroes and empty lists are left out.
fn device_work(w: &DeviceWork) -> Value {
    let mut m = serde_json::Map::new();
    m.insert("e".into(), json!("device"));
    m.insert("what".into(), json!(w.what.name()));
    for (key, at) in [("r", w.ready), ("f", w.from), ("to", w.to)] {
        m.insert(key.into(), json!(at.0));
    }
    if let Some(Die { channel, die }) = w.die {
        m.insert("die".into(), json!([channel, die]));
    }
    for (key, n) in [("bus", w.bus.0), ("cells", w.cells.0), ("b", w.bytes)] {
        if n > 0 {
            m.insert(key.into(), json!(n));
        }
    }
    if w.gc {
        m.insert("gc".into(), json!(true));
    }
    if !w.commands.is_empty() {
        m.insert("of".into(), json!(w.commands));
    }
    if !w.holds.is_empty() {
        let ranges: Vec<(u64, u32)> = w.holds.iter().map(|(at, n)| (at.0, *n)).collect();
        m.insert("h".into(), json!(ranges));
    }
    Value::Object(m)
}

fn read_device_work(v: &Value) -> Result<DeviceWork, String> {
    let time = |key: &str| v[key].as_u64().map(Time).ok_or_else(|| format!("no time `{key}`"));
    let number = |key: &str| match &v[key] {
        Value::Null => Ok(0),
        n => n.as_u64().ok_or_else(|| format!("`{key}` is not a number")),
    };
    let die = match &v["die"] {
        Value::Null => None,
        two => {
            let part = |i: usize| two[i].as_u64().and_then(|n| u32::try_from(n).ok());
            let (channel, die) = part(0).zip(part(1)).ok_or("`die` is not channel and die")?;
            Some(Die { channel, die })
        }
    };
    let commands = match &v["of"] {
        Value::Null => Some(Vec::new()),
        list => list.as_array().and_then(|l| l.iter().map(Value::as_u64).collect()),
    };
    let range = |two: &Value| {
        let sectors = two[1].as_u64().and_then(|n| u32::try_from(n).ok())?;
        Some((Sector(two[0].as_u64()?), sectors))
    };
    let holds = match &v["h"] {
        Value::Null => Some(Vec::new()),
        list => list.as_array().and_then(|l| l.iter().map(range).collect()),
    };
    let work = DeviceWork {
        what: Work::ALL
            .into_iter()
            .find(|w| v["what"] == w.name())
            .ok_or("an unknown work of a device")?,
        die,
        ready: time("r")?,
        from: time("f")?,
        to: time("to")?,
        bus: Span(number("bus")?),
        cells: Span(number("cells")?),
        bytes: number("b")?,
        gc: v["gc"] == true,
        commands: commands.ok_or("`of` is not a list of commands")?,
        holds: holds.ok_or("`h` is not a list of sector and sectors")?,
    };
    if work.ready > work.from || work.from > work.to {
        return Err("it ends before it begins".to_owned());
    }
    Ok(work)
}

/// What a result's run was on.
pub struct Setting {
    /// Its file system.
    pub fs: &'static FsEntry,
    /// First sector of its partition.
    pub start: Sector,
}

/// The setting of a result, by its `resolved.toml`.
///
/// Errors: the host's; a file that is none, or names no file system of this build.
pub fn setting(dir: &Path) -> io::Result<Setting> {
    let path = dir.join("resolved.toml");
    let text = text::read(&path)?;
    let wrong = |what: String| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.shown()))
    };
    let document: toml::Table = text.parse().map_err(|e| wrong(format!("{e}")))?;
    let table = document.get("fs").and_then(toml::Value::as_table);
    let name = table.and_then(|t| t.get("name")).and_then(toml::Value::as_str);
    let name = name.ok_or_else(|| wrong("no `fs.name`".to_owned()))?;
    let fs = registry::find_fs(name);
    let start = document.get("partition_start").and_then(toml::Value::as_integer);
    let start = start.and_then(|s| u64::try_from(s).ok());
    let start = start.ok_or_else(|| wrong("no number `partition_start`".to_owned()))?;
    Ok(Setting { fs: fs.map_err(wrong)?, start: Sector(start) })
}

/// What the device of a result is, by its `resolved.toml`.
///
/// Errors: the host's; a file that is none, or names no device of this build.
pub fn device_limits(dir: &Path) -> io::Result<Limits> {
    let path = dir.join("resolved.toml");
    let text = text::read(&path)?;
    let wrong = |what: String| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.shown()))
    };
    let document: toml::Table = text.parse().map_err(|e| wrong(format!("{e}")))?;
    let table = document.get("device").and_then(toml::Value::as_table);
    let name = table.and_then(|t| t.get("name")).and_then(toml::Value::as_str);
    let (table, name) = table.zip(name).ok_or_else(|| wrong("no `device.name`".to_owned()))?;
    let entry = wp_device::find(name).ok_or_else(|| wrong(format!("no device `{name}`")))?;
    let number = |v: &toml::Value| v.as_integer().and_then(|n| u64::try_from(n).ok());
    let params: Vec<(&str, u64)> =
        table.iter().filter_map(|(k, v)| Some((k.as_str(), number(v)?))).collect();
    let device = entry.make(&params).map_err(|e| wrong(e.to_string()))?;
    Ok(*device.limits())
}

/// The block events of a result's file of events, of any version. Errors: the host's, or an event
/// that is none of ours.
pub fn read_block_events(path: &Path) -> io::Result<Vec<Record>> {
    read_any(path, &|kind| kind == "block").map(|(records, _)| records)
}

/// All events of a result's file of events, of any version. Errors: as [`read_block_events`].
pub fn read_events(path: &Path) -> io::Result<Vec<Record>> {
    read_any(path, &|_| true).map(|(records, _)| records)
}

/// The same with the classes of their blocks, which a table has. Errors: as [`read_block_events`].
pub fn read_events_with_classes(path: &Path) -> io::Result<(Vec<Record>, columns::Classes)> {
    read_any(path, &|_| true)
}

fn read_any(
    path: &Path,
    wanted: &dyn Fn(&str) -> bool,
) -> io::Result<(Vec<Record>, columns::Classes)> {
    let mut file = std::fs::File::open(path)?;
    if columns::is_table(&mut file)? {
        return columns::read(file, &path.shown(), wanted);
    }
    let records = read_lines(path, |v| wanted(v["e"].as_str().unwrap_or_default()))?;
    Ok((records, columns::Classes::new()))
}

/// Classes of the blocks of a result's block events, by index into `records`, from the `lines.tsv`
/// of version 0.2.
///
/// Empty if the result has none. Errors: the host's, or lines that are not those of `records`.
pub fn read_classes(path: &Path, records: &[Record]) -> io::Result<BTreeMap<usize, String>> {
    let text = match text::read_at_most(path, text::LIST_BYTES_MAX) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(e) => return Err(e),
    };
    parse_classes(&text, &path.shown(), records)
}

/// As [`read_classes`], of a file's text; `name` is what errors call it.
///
/// Errors: lines that are not those of `records`.
pub fn parse_classes(
    text: &str,
    name: &str,
    records: &[Record],
) -> io::Result<BTreeMap<usize, String>> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{name}: {what}"));
    let trace = crate::lines::parse_tsv(text).map_err(|e| wrong(&e.0))?;
    let mut lines = trace.lines.into_iter();
    let mut out = BTreeMap::new();
    let other = || wrong("it does not match the events in its folder");
    for (index, r) in records.iter().enumerate().filter(|(_, r)| classify::is_listed(r)) {
        let line = lines.next().ok_or_else(other)?;
        if let Event::Block { action, sectors, .. } = r.event {
            if line.action != action.letter() || line.sectors != sectors {
                return Err(other());
            }
            out.insert(index, line.class);
        }
    }
    if lines.next().is_some() { Err(other()) } else { Ok(out) }
}

fn read_lines(path: &Path, wanted: impl Fn(&Value) -> bool) -> io::Result<Vec<Record>> {
    lines_of(&mut *open_events(path)?, &path.shown(), wanted)
}

/// The lines of a file of events, compressed or not. Errors: the host's.
pub fn open_events(path: &Path) -> io::Result<Box<dyn BufRead>> {
    /// RFC 8878, section 3.1.1.
    const MAGIC: [u8; 4] = 0xfd2f_b528u32.to_le_bytes();
    let mut file = BufReader::new(std::fs::File::open(path)?);
    if !file.fill_buf()?.starts_with(&MAGIC) {
        return Ok(Box::new(file));
    }
    Ok(Box::new(BufReader::new(zstd::Decoder::with_buffer(file)?)))
}

/// The events file of a result; `None`: it has none.
pub fn events_of(dir: &Path) -> Option<PathBuf> {
    [EVENTS, EVENTS_COMPRESSED, EVENTS_PLAIN]
        .map(|name| dir.join(name))
        .into_iter()
        .find(|path| path.is_file())
}

/// Events of its run that a result does not have, by its `summary.json`.
pub fn events_left_out(dir: &Path) -> u64 {
    let summary = text::bytes(&dir.join(SUMMARY)).unwrap_or_default();
    let summary: Value = serde_json::from_slice(&summary).unwrap_or_default();
    summary["events_left_out"].as_u64().unwrap_or(0)
}

/// All events in lines like those of `events.ndjson`; `name` is what errors call them.
///
/// Errors: the reader's, or a line that is none of ours.
pub fn parse_events(lines: &mut dyn BufRead, name: &str) -> io::Result<Vec<Record>> {
    lines_of(lines, name, |_| true)
}

fn lines_of(
    lines: &mut dyn BufRead,
    name: &str,
    wanted: impl Fn(&Value) -> bool,
) -> io::Result<Vec<Record>> {
    let mut tasks: BTreeSet<Rc<str>> = BTreeSet::new();
    let mut out: Vec<Record> = Vec::new();
    let mut line = String::new();
    for n in 1.. {
        let wrong = |what: String| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{name}:{n}: {what}"))
        };
        let next = text::next_line(lines, &mut line).map_err(|e| match e.kind() {
            io::ErrorKind::InvalidData => wrong(format!("not an event of a result: {e}")),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::Other => wrong(format!("damaged: {e}")),
            _ => e,
        });
        if !next? {
            break;
        }
        let v: Value = serde_json::from_str(&line).map_err(|e| wrong(e.to_string()))?;
        if !wanted(&v) {
            continue;
        }
        let record = record(&v, &mut tasks).map_err(wrong)?;
        if out.last().is_some_and(|last| last.at > record.at) {
            return Err(wrong("it is earlier than the line before".to_owned()));
        }
        out.push(record);
    }
    Ok(out)
}

fn record(v: &Value, tasks: &mut BTreeSet<Rc<str>>) -> Result<Record, String> {
    let num = |key: &str| v[key].as_u64().ok_or_else(|| format!("no number `{key}`"));
    let text = |key: &str| v[key].as_str().ok_or_else(|| format!("no text `{key}`"));
    let small = |key: &str| u32::try_from(num(key)?).map_err(|_| format!("`{key}` is too large"));
    let truth = |key: &str| v[key].as_bool().ok_or_else(|| format!("no truth value `{key}`"));
    let operation = || {
        let found = OPS.into_iter().find(|o| v["op"] == format!("{o:?}").as_str());
        found.ok_or("an unknown operation")
    };
    let event = match text("e")? {
        "block" => {
            let letter = text("a")?;
            Event::Block {
                action: ACTIONS
                    .into_iter()
                    .find(|a| letter.chars().eq([a.letter()]))
                    .ok_or("an unknown action")?,
                op: operation()?,
                flags: Flags(small("fl")?),
                at: Sector(num("s")?),
                sectors: small("n")?,
                extra: num("x")?,
            }
        }
        "jbd2" => Event::Jbd2 { what: name(text("what")?)?, tid: small("tid")?, value: num("v")? },
        "cpu" => Event::Cpu { what: name(text("what")?)?, span: Span(num("ns")?) },
        "wakeup" => Event::Wakeup {
            task: task_named(text("who")?, tasks),
            timer: truth("timer")?,
            // Events of before it was told have none.
            on: name(v["on"].as_str().unwrap_or_default())?,
        },
        "fs" => Event::Fs {
            work: name(text("work")?)?,
            step: name(text("step")?)?,
            id: num("id")?,
            why: name(text("why")?)?,
        },
        "in" => Event::SwitchIn { core: small("core")? },
        "out" => Event::SwitchOut { ready: truth("ready")? },
        "enter" => Event::SyscallEnter {
            name: name(text("name")?)?,
            id: num("id")?,
            target: text("target")?.into(),
        },
        "exit" => Event::SyscallExit {
            name: name(text("name")?)?,
            id: num("id")?,
            value: num("v")?,
            ok: truth("ok")?,
        },
        "mark" => Event::Mark { text: text("text")?.into() },
        "command" => Event::Command {
            id: num("id")?,
            op: operation()?,
            flags: Flags(small("fl")?),
            at: Sector(num("s")?),
            sectors: small("n")?,
        },
        "done" => Event::CommandEnd { id: num("id")?, ok: truth("ok")? },
        "device" => Event::Device(Box::new(read_device_work(v)?)),
        other => return Err(format!("an unknown event `{other}`")),
    };
    let task = task_named(text("task")?, tasks);
    Ok(Record { at: Time(num("t")?), task, event })
}

/// A task's name, kept once.
fn task_named(name: &str, tasks: &mut BTreeSet<Rc<str>>) -> Rc<str> {
    tasks.get(name).cloned().unwrap_or_else(|| {
        let new: Rc<str> = name.into();
        tasks.insert(new.clone());
        new
    })
}

/// Most different names of operations, phases and calls that a process reads.
const NAMES_MAX: usize = 1024;

thread_local! {
    static NAMES: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
}

/// A name as events have it, which is forever. There are a few dozen, so each is kept once; a file
/// with more than [`NAMES_MAX`] is none of ours.
fn name(text: &str) -> Result<&'static str, String> {
    NAMES.with_borrow_mut(|names| {
        if let Some(&known) = names.get(text) {
            return Ok(known);
        }
        if names.len() >= NAMES_MAX {
            return Err(format!("`{text}`: more names than any run has"));
        }
        let kept: &'static str = Box::leak(text.to_owned().into_boxed_str());
        names.insert(kept);
        Ok(kept)
    })
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
const OPS: [Op; 11] = [
    Op::Read,
    Op::Write,
    Op::Flush,
    Op::Discard,
    Op::Zone(ZoneOp::Append),
    Op::Zone(ZoneOp::Reset),
    Op::Zone(ZoneOp::ResetAll),
    Op::Zone(ZoneOp::Open),
    Op::Zone(ZoneOp::Close),
    Op::Zone(ZoneOp::Finish),
    Op::Zone(ZoneOp::Report),
];

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An event of every kind.
    pub fn every_kind() -> Vec<Record> {
        let events = [
            Event::Block {
                action: BlockAction::Complete,
                op: Op::Zone(ZoneOp::Append),
                flags: Flags::FUA | Flags::META,
                at: Sector(64),
                sectors: 8,
                extra: 7,
            },
            Event::Jbd2 { what: "start_commit", tid: 7, value: 1 },
            Event::Cpu { what: "syscall", span: Span(250) },
            Event::Wakeup {
                task: "jbd2/sdb1-8".into(),
                timer: false,
                on: "journal commit request",
            },
            Event::Fs { work: "commit", step: "asked", id: 7, why: "somebody asked" },
            Event::SwitchIn { core: 7 },
            Event::SwitchOut { ready: true },
            Event::SyscallEnter { name: "fsync", id: 3, target: "22".into() },
            Event::SyscallExit { name: "fsync", id: 3, value: 0, ok: true },
            Event::Mark { text: "end".into() },
            Event::Command {
                id: 9,
                op: Op::Write,
                flags: Flags::FUA,
                at: Sector(2048),
                sectors: 8,
            },
            Event::CommandEnd { id: 9, ok: true },
            Event::Device(Box::new(DeviceWork::front(Work::Decode, 9, Time(1), Time(2), Time(3)))),
            Event::Device(Box::new(DeviceWork {
                what: Work::Program,
                die: Some(Die { channel: 1, die: 7 }),
                ready: Time(5),
                from: Time(6),
                to: Time(u64::MAX),
                bus: Span(2),
                cells: Span(3),
                bytes: 4096,
                gc: true,
                commands: vec![9, 11],
                holds: vec![(Sector(64), 8), (Sector(8), 16)],
            })),
        ];
        let record = |(t, event)| Record { at: Time(t), task: "w2".into(), event };
        (1..).zip(events).map(record).collect()
    }

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
    fn every_kind_of_event_survives_a_file() {
        let records = every_kind();
        let blocks: Vec<Record> =
            records.iter().filter(|r| matches!(r.event, Event::Block { .. })).cloned().collect();
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("events.ndjson");
        std::fs::write(&path, events_to_ndjson(&records)).expect("written");
        assert_eq!(read_events(&path).expect("read"), records);
        assert_eq!(read_block_events(&path).expect("read"), blocks);
        let back: Vec<Record> = records.into_iter().rev().collect();
        std::fs::write(&path, events_to_ndjson(&back)).expect("written");
        let e = read_events(&path).expect_err("time falls");
        assert!(e.to_string().contains("events.ndjson:2"), "{e}");
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
