//! What can be asked of a served drive from aside: one line in, one JSON object out.
//!
//! Doors:      a Unix socket of the host, and a small disk of the guest's (`vhost`), to which it
//!             writes a line and from which it reads the answer, at a moment of its own time.
//! Lines:      `status`, `mark TEXT` (a mark in the log of writes), `freeze [after=N | events=N |
//!             at=NS]`, `thaw [seed=N] [keep=some|all|none]`, `save FILE [seed=N] [keep=…]` (a new
//!             file), `quit`; each with `drive=N` if there are several.

use std::path::PathBuf;

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_base::{SECTOR_BYTES, Sector, Time};
use wp_machine::files::save_as;
use wp_machine::host::{Existing, Output, Shape};

use crate::drive::Drive;
use crate::drive::freeze::{Keep, PowerError, Trigger};

/// Latest time at which the power can go, in nanoseconds: 146 years. A drive's clock jumps there,
/// and has to have time behind it.
pub const MAX_AT_NS: u64 = 1 << 62;
/// Longest mark in bytes: what a sector of a log of writes holds.
pub const MAX_MARK: usize = 480;
/// Longest line.
pub const MAX_LINE: usize = 4096;

/// A line, understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// Which drive, from 0.
    pub drive: usize,
    /// What to do.
    pub verb: Verb,
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Counts, the cut if there is one.
    Status,
    /// A mark in the log of writes.
    Mark(String),
    /// The next state of those that are supplied ([`Drive::supply`]).
    Next,
    /// The power fails: now, after a number of changes or events, or at a time.
    Freeze(When),
    /// It comes back.
    Thaw {
        /// Which state.
        seed: u64,
        /// How much of the unpersisted writes to keep.
        keep: Keep,
    },
    /// Contents to a file: what a reader sees, or of a frozen drive what a thaw would leave.
    Save {
        /// Where to.
        path: PathBuf,
        /// Which state.
        seed: u64,
        /// How much of the unpersisted writes to keep.
        keep: Keep,
        /// Were `seed` or `keep` given, which a drive that is not frozen has no use for?
        of_cut: bool,
    },
    /// The server ends.
    Quit,
}

/// When the power goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Now.
    Now,
    /// When one more request that changes something is submitted after this number of them.
    After(u64),
    /// After this number of further submissions and completions.
    Events(u64),
    /// At this time, in nanoseconds.
    At(u64),
}

/// Who speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speaker {
    /// Somebody on the host.
    Host,
    /// The guest itself: it may not write files of the host nor end the server.
    Guest,
}

impl Command {
    /// Reads a line. Errors: what is wrong with it.
    pub fn parse(line: &str) -> Result<Command, String> {
        if let Some(text) = line.trim_end_matches('\n').strip_prefix("mark ") {
            return match text.len() {
                0 => Err("mark needs a text: `mark TEXT`".to_owned()),
                n if n > MAX_MARK => Err(format!("a mark of {n} bytes; at most {MAX_MARK}")),
                _ => Ok(Command { drive: 0, verb: Verb::Mark(text.to_owned()) }),
            };
        }
        let mut words = line.split_whitespace();
        let verb = words.next().ok_or(HELP)?;
        let (mut drive, mut seed, mut keep) = (0, 1, Keep::Some);
        let mut of_cut = false;
        let mut when = When::Now;
        let mut path = None;
        for word in words {
            let number = |text: &str| {
                text.parse::<u64>().map_err(|_| format!("`{text}` of `{word}` is not a number"))
            };
            of_cut |= word.starts_with("seed=") || word.starts_with("keep=");
            match (verb, word.split_once('=')) {
                (_, Some(("drive", n))) => drive = number(n)? as usize,
                ("thaw" | "save", Some(("seed", n))) => seed = number(n)?,
                ("thaw" | "save", Some(("keep", how))) => {
                    keep = match how {
                        "some" => Keep::Some,
                        "all" => Keep::All,
                        "none" => Keep::None,
                        _ => return Err(format!("keep={how}: use some, all or none")),
                    };
                }
                ("freeze", Some(("after", n))) => when = When::After(number(n)?),
                ("freeze", Some(("events", n))) => when = When::Events(number(n)?),
                ("freeze", Some(("at", n))) => match number(n)? {
                    n @ ..=MAX_AT_NS => when = When::At(n),
                    _ => return Err(format!("`{word}`: at most {MAX_AT_NS} ns")),
                },
                ("save", _) if path.is_none() => path = Some(PathBuf::from(word)),
                _ => return Err(format!("`{verb}`: unknown argument `{word}`; {HELP}")),
            }
        }
        let verb = match verb {
            "status" => Verb::Status,
            "next" => Verb::Next,
            "freeze" => Verb::Freeze(when),
            "thaw" => Verb::Thaw { seed, keep },
            "save" => {
                let path = path.ok_or("save needs a file: `save FILE`")?;
                Verb::Save { path, seed, keep, of_cut }
            }
            "quit" => Verb::Quit,
            other => return Err(format!("unknown command `{other}`; {HELP}")),
        };
        Ok(Command { drive, verb })
    }
}

const HELP: &str = "commands: status, mark, freeze, thaw, save, quit";

/// Does a line at `now`; the answer, and whether the server is to end.
pub fn run(drives: &mut [&mut Drive], now: Time, line: &str, from: Speaker) -> (Value, bool) {
    let answer = Command::parse(line).and_then(|c| {
        let n = drives.len();
        let Some(drive) = drives.get_mut(c.drive) else {
            return Err(format!("no drive {}: the server has {n}", c.drive));
        };
        if from == Speaker::Guest && matches!(c.verb, Verb::Save { .. } | Verb::Quit) {
            return Err("only the host's control socket accepts this command".to_owned());
        }
        let quits = c.verb == Verb::Quit;
        one(drive, now, c.verb).map(|v| (v, quits))
    });
    match answer {
        Ok((mut value, quits)) => {
            if let Value::Object(map) = &mut value {
                map.insert("ok".to_owned(), Value::Bool(true));
            }
            (value, quits)
        }
        Err(message) => (json!({ "ok": false, "error": message }), false),
    }
}

fn one(drive: &mut Drive, now: Time, verb: Verb) -> Result<Value, String> {
    let text = |e: PowerError| e.to_string();
    match verb {
        Verb::Status => {
            drive.run_until(now);
            Ok(status(drive))
        }
        Verb::Mark(text) => {
            drive.run_until(now);
            drive.mark(&text);
            Ok(json!({}))
        }
        Verb::Next => {
            let state = drive.next_state(now).map_err(text)?;
            Ok(json!({ "state": state.map_or(-1, |n| n as i64) }))
        }
        Verb::Freeze(When::Now) => Ok(json!({ "cut": drive.freeze_now(now).map_err(text)? })),
        Verb::Freeze(when) => {
            let counts = drive.counts();
            let trigger = match when {
                When::After(n) => {
                    Trigger::Changes(counts.changes().saturating_add(n).saturating_add(1))
                }
                When::Events(n) => Trigger::Events(counts.events.saturating_add(n)),
                When::At(ns) => Trigger::Time(Time(ns)),
                When::Now => return Err("it is not now".to_owned()),
            };
            drive.freeze_at(Some(trigger)).map_err(text)?;
            Ok(json!({ "armed": true }))
        }
        Verb::Thaw { seed, keep } => {
            Ok(json!({ "thawed": drive.thaw(now, seed, keep).map_err(text)? }))
        }
        Verb::Save { path, seed, keep, of_cut } => {
            drive.run_until(now);
            if of_cut && drive.cut().is_none() {
                let what = PowerError::NotFrozen;
                return Err(format!("{what}: `seed` and `keep` choose the crash state"));
            }
            let medium = match drive.cut() {
                Some(_) => drive.state(seed, keep).map_err(text)?.0,
                None => drive.medium().ok_or("an image file is written in place")?,
            };
            let bytes = drive.limits().sectors * SECTOR_BYTES;
            // Whoever can write to the socket replaces nothing by it.
            Output::create(&path, Shape::Image, Existing::Refuse)
                .and_then(|file| save_as(&medium, Sector(0), bytes, file))
                .map_err(|e| format!("{}: {e}", path.shown()))?;
            Ok(json!({ "saved": path.to_string_lossy(), "bytes": bytes }))
        }
        Verb::Quit => Ok(json!({})),
    }
}

/// What a drive has to tell.
pub fn status(drive: &Drive) -> Value {
    let counters: serde_json::Map<String, Value> =
        drive.counters().into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect();
    json!({
        "drive": drive.name(),
        "now_ns": drive.now().0,
        "counts": drive.counts(),
        "cut": drive.cut(),
        "flushed_ns": drive.flushed().map(|t| t.0),
        "device": counters,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood_or_refused_with_the_way_out() {
        let verb = |line: &str| Command::parse(line).map(|c| c.verb);
        assert_eq!(verb("freeze"), Ok(Verb::Freeze(When::Now)));
        assert_eq!(verb("freeze after=7\n"), Ok(Verb::Freeze(When::After(7))));
        assert_eq!(verb(" thaw  seed=3 keep=none"), Ok(Verb::Thaw { seed: 3, keep: Keep::None }));
        assert_eq!(Command::parse("status drive=2").map(|c| c.drive), Ok(2));
        assert_eq!(verb("freeze after=x"), Err("`x` of `after=x` is not a number".to_owned()));
        let late = verb("freeze at=18446744073709551615").unwrap_err();
        assert!(late.contains("at most 4611686018427387904 ns"), "{late}");
        assert!(verb("thaw after=1").unwrap_err().contains("unknown argument"));
        assert_eq!(verb("mark order 17 stored\n"), Ok(Verb::Mark("order 17 stored".to_owned())));
        let long = verb(&format!("mark {}", "x".repeat(481))).unwrap_err();
        assert!(long.contains("at most 480") && verb("mark ").is_err(), "{long}");
        assert!(verb("melt").unwrap_err().contains("commands: status, mark, freeze"));
        assert!(verb("").is_err() && verb("save").is_err() && verb("thaw keep=1").is_err());
    }

    #[test]
    fn a_guest_writes_no_file_of_the_host() {
        let device =
            wp_device::find("fixed").unwrap().make(&[("capacity_bytes", 1 << 20)]).unwrap();
        let mut drive = Drive::new("fixed", device, Default::default());
        let (answer, quits) = run(&mut [&mut drive], Time(0), "save image", Speaker::Guest);
        assert_eq!((answer["ok"].clone(), quits), (Value::Bool(false), false));
        let (answer, _) = run(&mut [&mut drive], Time(9), "freeze", Speaker::Guest);
        assert_eq!(answer["cut"]["at_ns"], 9);
        for how in ["keep=none", "seed=2", "seed=1 keep=some"] {
            let device = wp_device::find("fixed").unwrap();
            let device = device.make(&[("capacity_bytes", 1 << 20)]).unwrap();
            let mut running = Drive::new("fixed", device, Default::default());
            let line = format!("save /nowhere/image {how}");
            let (answer, _) = run(&mut [&mut running], Time(0), &line, Speaker::Host);
            let error = answer["error"].as_str().unwrap_or_default();
            assert!(error.starts_with("the drive is not frozen"), "{how}: {answer}");
        }
        let (answer, _) = run(&mut [&mut drive], Time(9), "freeze drive=1", Speaker::Host);
        assert_eq!(answer["error"], "no drive 1: the server has 1");
    }

    #[test]
    fn the_latest_power_failure_of_all_leaves_time_behind_it() {
        let device =
            wp_device::find("ssd-128").unwrap().make(&[("capacity_bytes", 1 << 30)]).unwrap();
        let mut drive = Drive::new("ssd-128", device, Default::default());
        let line = format!("freeze at={MAX_AT_NS}");
        assert_eq!(run(&mut [&mut drive], Time(0), &line, Speaker::Host).0["armed"], true);
        let next = drive.next().expect("the power failure");
        assert_eq!(next, Time(MAX_AT_NS));
        for line in ["status", "thaw keep=none", "freeze", "thaw", "status"] {
            let (answer, _) = run(&mut [&mut drive], next, line, Speaker::Host);
            assert_eq!(answer["ok"], true, "{line}: {answer}");
        }
    }
}
