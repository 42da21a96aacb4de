//! A failing state for people without Writepath: images, a log of dm-log-writes, the program, the
//! timeline, and the commands to see it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufWriter};
use std::path::Path;

use serde_json::json;
use wp_base::event::{Flags, Op};
use wp_base::{SECTOR_BYTES, Sector};
use wp_crash::{Entry, Rule, Unit, Violation};
use wp_machine::files;
use wp_machine::host::{Existing, Output, Shape, output};
use wp_medium::Medium;
use wp_medium::write_log::{LogEntry, LogFlags, write_log};
use wp_workload::program::Program;

use super::space::Space;
use super::story::Cut;

/// What is written.
pub struct Reproducer<'a> {
    /// The state.
    pub cut: &'a Cut<'a>,
    /// Which states were explored.
    pub space: Space,
    /// The program.
    pub program: &'a Program,
    /// What is wrong with it, if that is known.
    pub violation: Option<&'a Violation>,
    /// Command line that shows the state here.
    pub replay: &'a str,
    /// File system as on the command line: `ext4,era=3.8`.
    pub fs: &'a str,
}

/// How a log tells of the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogContents {
    /// The run's requests up to some moment, all of them whole.
    Prefix,
    /// The run's requests, without what was lost.
    Selection,
    /// What the device held in the end, place by place, as its requests do not say it.
    Contents,
}

/// Largest text of a mark that every tool takes.
const MARK_BYTES: usize = 200;
const LINE: &str = "a string takes it";

fn mark(text: &str) -> LogEntry {
    let end = (0..=text.len().min(MARK_BYTES)).rev().find(|n| text.is_char_boundary(*n));
    LogEntry::mark(&text[..end.unwrap_or(0)])
}

fn log_flags(flags: Flags) -> LogFlags {
    let mut out = LogFlags::default();
    for (ours, theirs) in [
        (Flags::PREFLUSH, LogFlags::FLUSH),
        (Flags::FUA, LogFlags::FUA),
        (Flags::META, LogFlags::META),
    ] {
        if flags.has(ours) {
            out = out.with(theirs);
        }
    }
    out
}

/// What became of a part of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    There,
    Lost,
}

impl Cut<'_> {
    /// The log of the run from the beginning of the program to the mark `cut`, over the base, and
    /// how it tells of the state. Replayed, it gives the state byte for byte.
    pub fn log(&self, space: Space) -> (Vec<LogEntry>, LogContents) {
        if matches!(space, Space::Permitted { .. }) {
            let (entries, told) = self.requests();
            let base = &self.history.frames[0].base;
            if is_same(&replayed(base, &entries), &self.medium()) {
                return (entries, told);
            }
        }
        (self.contents(), LogContents::Contents)
    }

    /// Requests in the order in which the device got them.
    fn requests(&self) -> (Vec<LogEntry>, LogContents) {
        let number = self.frame as u32;
        let frame = &self.history.frames[self.frame];
        let lost: BTreeSet<u32> = self.lost.iter().map(|i| frame.live[*i]).collect();
        let mut parts: BTreeMap<u64, Vec<(&Unit, Fate)>> = BTreeMap::new();
        for (n, unit) in self.history.units.iter().enumerate() {
            // A part that was cut by something durable is told by what is left of it.
            let is_cut = unit.gone <= number && !unit.durable && unit.heir.is_some();
            if unit.born <= number && !is_cut {
                let fate = if lost.contains(&(n as u32)) { Fate::Lost } else { Fate::There };
                parts.entry(unit.request).or_default().push((unit, fate));
            }
        }
        let mut out = Vec::new();
        let (mut any_lost, mut told) = (false, LogContents::Prefix);
        let end = (frame.pos + 1).min(self.played.tape.entries.len());
        for (_, entry) in &self.played.tape.entries[..end] {
            match entry {
                Entry::Begin(n) => {
                    out.push(mark(&format!("call {}", self.played.ledger.called(*n))));
                }
                Entry::End(n) => {
                    out.push(mark(&format!("returned {}", self.played.ledger.called(*n))));
                }
                // A log knows no flush of a set, and what one leaves out is permitted to be lost.
                Entry::Submit { op: Op::Flush, data, .. } if !data.is_empty() => {
                    out.push(mark("flush of a set"));
                }
                Entry::Submit { op: Op::Flush, .. } => {
                    out.push(LogEntry::write(Sector(0), Vec::new(), LogFlags::FLUSH));
                }
                Entry::Submit { id, op, flags, at, sectors, data } => {
                    let Some(parts) = parts.get_mut(id) else { continue };
                    parts.sort_by_key(|(u, _)| u.at);
                    let all = parts.iter().all(|(_, fate)| *fate == Fate::There);
                    let length: u64 = parts.iter().map(|(u, _)| u.sectors()).sum();
                    let as_sent = parts.iter().all(|(u, _)| !self.is_heir(u));
                    any_lost |= !all;
                    if any_lost && parts.iter().any(|(_, fate)| *fate == Fate::There) {
                        told = LogContents::Selection;
                    }
                    if all && as_sent && length == u64::from(*sectors) {
                        out.push(match op {
                            Op::Discard => LogEntry::discard(*at, length),
                            _ => LogEntry::write(*at, data.clone(), log_flags(*flags)),
                        });
                        continue;
                    }
                    for (unit, fate) in parts.iter() {
                        let (at, sectors) = (unit.at, unit.sectors());
                        out.push(match fate {
                            Fate::Lost => mark(&format!("lost {} + {sectors}", at.0)),
                            Fate::There => {
                                LogEntry::write(at, unit.data.clone(), log_flags(*flags))
                            }
                        });
                    }
                }
                Entry::Complete { .. } | Entry::Model(_) => {}
            }
        }
        out.push(mark("cut"));
        (out, told)
    }

    /// Is it the still unpersisted part of a unit whose other part was covered?
    fn is_heir(&self, unit: &Unit) -> bool {
        self.history.frames.get(unit.born as usize).is_none_or(|f| f.pos != unit.pos)
    }

    /// Where the state differs from the base.
    fn contents(&self) -> Vec<LogEntry> {
        let base = &self.history.frames[0].base;
        let medium = self.medium();
        let mut out = Vec::new();
        base.diff(&medium, &mut |at, sectors| {
            let data = medium.read(at, sectors);
            out.push(LogEntry::write(at, data, LogFlags::default()));
        });
        out.push(mark("cut"));
        out
    }
}

fn replayed(base: &Medium, entries: &[LogEntry]) -> Medium {
    let mut medium = base.clone();
    entries.iter().for_each(|e| e.apply(&mut medium));
    medium
}

fn is_same(a: &Medium, b: &Medium) -> bool {
    let mut same = true;
    a.diff(b, &mut |at, sectors| {
        let len = (u64::from(sectors) * SECTOR_BYTES) as usize;
        let (mut x, mut y) = (vec![0; len], vec![0; len]);
        a.read_bytes(at.bytes(), &mut x);
        b.read_bytes(at.bytes(), &mut y);
        same &= x == y;
    });
    same
}

/// The file that says what a folder is, and how it says so.
const STATE: &str = "state.json";
const SCHEMA: &str = "writepath.crash.reproducer/1";

fn is_reproducer(dir: &Path) -> bool {
    let state = fs::read(dir.join(STATE)).unwrap_or_default();
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap_or_default();
    state["schema"] == SCHEMA
}

fn of_file(name: &str, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{name}: {e}"))
}

/// Writes a reproducer into directory `dir`, which is made; an earlier one there is replaced.
///
/// Errors: the host's, and a directory that was made is gone again; `AlreadyExists`: a file of no
/// reproducer has one of the names.
pub fn write(dir: &Path, r: &Reproducer<'_>) -> io::Result<LogContents> {
    let is_new = !dir.exists();
    fs::create_dir_all(dir)?;
    let written = write_in(dir, r);
    if written.is_err() && is_new {
        // What is said is why it could not be written.
        drop(fs::remove_dir_all(dir));
    }
    written
}

fn write_in(dir: &Path, r: &Reproducer<'_>) -> io::Result<LogContents> {
    let existing = if is_reproducer(dir) { Existing::Replace } else { Existing::Refuse };
    let put = |name: &str, bytes: &[u8]| {
        output::write(&dir.join(name), bytes, existing).map_err(|e| of_file(name, e))
    };
    let image = |name: &str, medium: &Medium, length: u64| {
        Output::create(&dir.join(name), Shape::Image, existing)
            .and_then(|file| files::save_as(medium, Sector(0), length, file))
            .map_err(|e| of_file(name, e))
    };
    let (start, bytes) = r.cut.played.partition;
    let length = start + bytes;
    let base = &r.cut.history.frames[0].base;
    image("base.raw", base, length)?;
    image("crashed.raw", &r.cut.medium(), length)?;
    let (entries, told) = r.cut.log(r.space);
    let log = Output::create(&dir.join("writes.log"), Shape::Image, existing);
    let mut log = BufWriter::new(log.map_err(|e| of_file("writes.log", e))?);
    write_log(&mut log, SECTOR_BYTES as u32, &entries)?;
    log.into_inner().map_err(io::IntoInnerError::into_error)?.commit()?;
    put("program.txt", r.program.to_string().as_bytes())?;
    let why = r.violation.map(|v| r.cut.why(v)).unwrap_or_default();
    let (timeline, left) = (r.cut.tell(usize::MAX), r.cut.files());
    let story = format!("{timeline}\nAfter recovery:\n{left}\n{why}");
    put("timeline.txt", story.as_bytes())?;
    let state = json!({
        "schema": SCHEMA,
        "fs": r.fs,
        "frame": r.cut.frame,
        "lost": r.cut.lost,
        "rule": r.violation.map(|v| v.rule.name()),
        "path": r.violation.map(|v| &v.path),
        "offset": r.violation.and_then(|v| v.offset),
        "expected": r.violation.map(|v| &v.expected),
        "seen": r.violation.map(|v| &v.seen),
        "replay": r.replay,
    });
    put(STATE, format!("{state:#}\n").as_bytes())?;
    put("README.md", readme(r, told, length).as_bytes())?;
    Ok(told)
}

fn readme(r: &Reproducer<'_>, told: LogContents, length: u64) -> String {
    let mut t = String::new();
    writeln!(t, "# A crash state of `{}`\n", r.fs).expect(LINE);
    if let Some(v) = r.violation {
        let at = v.offset.map_or(String::new(), |o| format!(" at byte {o}"));
        let path = if v.path.is_empty() { "the image" } else { &v.path };
        writeln!(
            t,
            "Rule {} is broken: {path}{at} holds {}; expected is {}.\n",
            v.rule.name(),
            v.seen,
            v.expected
        )
        .expect(LINE);
    }
    let how = match told {
        LogContents::Prefix => {
            "The state is a prefix of the run: the log has every request up to the mark `cut`, \
             completely."
        }
        LogContents::Selection => {
            "The state is not a prefix of the run: the log has the parts of each request that the \
             drive kept, in the order of submission, and a mark `lost SECTOR + SECTORS` for each \
             part that it lost."
        }
        LogContents::Contents => {
            "The log has the final contents of the drive, sector by sector: its requests alone do \
             not determine them."
        }
    };
    write!(
        t,
        "- `program.txt`: the system calls. `timeline.txt`: their requests and completions, in \
         order.\n- `base.raw`: the disk when the program began ({length} bytes, a file system \
         without a partition table).\n- `crashed.raw`: the disk after the power failure, journal \
         not replayed.\n- `writes.log`: a log of dm-log-writes, to be replayed onto `base.raw`. \
         Its marks name the calls. {how}\n- `state.json`: the same for programs.\n\n## Reproduce \
         it (as root, with mount and e2fsprogs)\n\n```\ncp crashed.raw try.raw\ne2fsck -fn \
         try.raw                          # before the journal is replayed\nmkdir -p mnt && mount \
         -o loop try.raw mnt   # replays it\nls -lR mnt\n"
    )
    .expect(LINE);
    if let Some(v) = r.violation.filter(|v| !v.path.is_empty()) {
        let path = &v.path;
        writeln!(t, "stat mnt/{path}").expect(LINE);
        if let Some(at) = v.offset {
            writeln!(t, "tail -c +{} mnt/{path} | head -c 4096 | xxd | head", at + 1).expect(LINE);
        }
    }
    writeln!(t, "umount mnt\ne2fsck -fn try.raw\n```\n").expect(LINE);
    let (path, block) = r.violation.map_or(("", 0), |v| (&*v.path, v.offset.unwrap_or(0) / 4096));
    writeln!(
        t,
        "Without root:\n\n```\ne2fsck -fy try.raw; debugfs -R 'stat /{path}' try.raw\n\
         debugfs -R 'bmap /{path} {block}' try.raw\n```\n\n\
         ## The state from the log\n\n\
         ```\n\
         cp base.raw again.raw\n\
         replay-log --log writes.log --replay again.raw --end-mark cut   # of xfstests\n\
         cmp crashed.raw again.raw\n\
         ```\n\n\
         ## With Writepath\n\n\
         ```\n\
         writepath replay writes.log --base base.raw --to-mark cut --out again.raw\n\
         {}\n\
         ```",
        r.replay
    )
    .expect(LINE);
    if r.violation.is_some_and(|v| v.rule == Rule::LostSync) {
        t += "\nThe calls that had returned before the power failure are in `timeline.txt`.\n";
    }
    t
}
