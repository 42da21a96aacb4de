//! Which requests a call needed for what it promises: that the data of its file, or of `sync` all
//! data, are there after a power cut.
//!
//! The rules go by what events say; where they do not say enough, the answer is
//! [`Need::Unknown`]. Each has its words in [`Needed::rule`], and docs/explain.md has all of
//! them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use wp_base::event::{Event, Op};
use wp_base::stage::Purpose;

use crate::causality::Causes;
use crate::explain::{Link, Namer, plain};
use crate::requests::Request;
use crate::run::{Call, SYNCS, WHOLE};
use crate::waits::signed_since;
use crate::walk::Role;

/// Calls that change the file of their descriptor or path.
const CHANGES: &[&str] =
    &["write", "pwrite64", "fallocate", "ftruncate", "truncate", "setxattr", "removexattr", "open"];
/// Calls that make, move or remove names: they change the directories that those are in, too. An
/// open may make one.
const NAMES: &[&str] = &["open", "mkdir", "rmdir", "symlink", "link", "rename", "unlink"];

/// Does a call change a file, or a directory by a name in it? `path`: that of its descriptor, or
/// what it was given, as events have it.
fn changes(name: &str, path: &str, file: &str) -> bool {
    if CHANGES.contains(&name) {
        let path = plain(path);
        // Behind the path stands the attribute.
        let is_attr = name.ends_with("xattr");
        let rest = path.strip_prefix(file);
        if rest.is_some_and(|r| r.is_empty() || is_attr && r.starts_with(' ')) {
            return true;
        }
    }
    let is_of = |p: &str| {
        let p = plain(p);
        let dir = p.rsplit_once('/').map_or("", |(dir, _)| dir);
        // What moves with a directory has another path.
        let moves = file.strip_prefix(&p).is_some_and(|r| r.starts_with('/'));
        p == file || dir == file || (name == "rename" && moves)
    };
    NAMES.contains(&name) && path.split(" -> ").any(is_of)
}

/// Was a request needed?
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Need {
    /// Without it the promise would not hold.
    Needed,
    /// The promise would hold without it.
    NotNeeded,
    /// The events do not say.
    Unknown,
}

impl Need {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Need::Needed => "yes",
            Need::NotNeeded => "no",
            Need::Unknown => "unknown",
        }
    }
}

/// A request that was sent for a call, or kept it waiting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Needed {
    /// Index into the run's requests.
    pub request: usize,
    /// What it is.
    pub kind: String,
    /// Who submitted it.
    pub by: String,
    /// First sector.
    pub at: u64,
    /// Sectors; 0 of a flush.
    pub sectors: u32,
    /// Classes of its blocks, where they are known.
    pub class: String,
    /// When it went to the device, nanoseconds since the call; negative before it.
    pub sent_ns: i64,
    /// How much of the call's path led through it.
    pub path_ns: u64,
    /// Was it needed?
    pub need: Need,
    /// By which rule.
    pub rule: &'static str,
}

impl Needed {
    /// As a JSON object.
    pub fn json(&self) -> Value {
        json!({ "kind": self.kind, "by": self.by, "sector": self.at, "sectors": self.sectors,
            "class": self.class, "sent_ns": self.sent_ns, "path_ns": self.path_ns,
            "needed": self.need.name(), "rule": self.rule })
    }
}

/// Requests of one kind, submitter, need and rule together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grouped {
    /// What they are.
    pub kind: String,
    /// Who submitted them.
    pub by: String,
    /// How many.
    pub count: u32,
    /// Sectors in all.
    pub sectors: u64,
    /// How much of the path led through them.
    pub path_ns: u64,
    /// Were they needed?
    pub need: Need,
    /// By which rule.
    pub rule: &'static str,
}

/// Groups, in the order of their first request.
pub fn grouped(requests: &[Needed]) -> Vec<Grouped> {
    let mut out: Vec<Grouped> = Vec::new();
    for r in requests {
        let same =
            |g: &&mut Grouped| (&g.kind, &g.by, g.need, g.rule) == (&r.kind, &r.by, r.need, r.rule);
        let sectors = u64::from(r.sectors);
        if let Some(g) = out.iter_mut().find(same) {
            g.count += 1;
            g.sectors += sectors;
            g.path_ns += r.path_ns;
            continue;
        }
        out.push(Grouped {
            kind: r.kind.clone(),
            by: r.by.clone(),
            count: 1,
            sectors,
            path_ns: r.path_ns,
            need: r.need,
            rule: r.rule,
        });
    }
    out
}

/// A need with its rule.
type Ruled = (Need, &'static str);

const fn yes(rule: &'static str) -> Ruled {
    (Need::Needed, rule)
}
const fn no(rule: &'static str) -> Ruled {
    (Need::NotNeeded, rule)
}
const fn unknown(rule: &'static str) -> Ruled {
    (Need::Unknown, rule)
}

/// The requests of a call, in the order in which they were sent.
pub(crate) fn needed(named: &Namer<'_>, call: Call, links: &[Link]) -> Vec<Needed> {
    let seen = named.seen;
    let records = seen.run.records;
    let mut path: BTreeMap<usize, u64> = BTreeMap::new();
    for l in links {
        if let Some(i) = l.request {
            *path.entry(i).or_default() += l.ns;
        }
    }
    let own = [(call.enter, call.exit, named.task)];
    let causes = Causes::new(records, &seen.pieces, &own);
    let all = &seen.walk.requests;
    let caused = causes.requests(all);
    let is_sent = |r: &Request| r.sectors > 0 || r.is_flush();
    let mut ours: BTreeSet<usize> = path.keys().copied().collect();
    ours.extend((0..all.len()).filter(|&i| !caused[i].is_empty() && is_sent(&all[i])));
    // Flushes that an empty bio asked for are commands of the queue's own: those within the call.
    let asks = |r: &Request| r.sectors == 0 && !r.is_flush();
    let windows: Vec<(usize, usize)> = (0..all.len())
        .filter(|&i| asks(&all[i]) && !caused[i].is_empty())
        .filter_map(|i| Some((all[i].start()?.index, all[i].end()?.index)))
        .collect();
    let within = |i: usize| windows.iter().any(|(from, to)| *from <= i && i <= *to);
    ours.extend(
        (0..all.len())
            .filter(|&i| all[i].is_flush() && all[i].issued.is_some_and(|m| within(m.index))),
    );
    if WHOLE.contains(&seen.call_name(call.enter)) {
        // What anybody writes meanwhile, as the flusher does for it.
        let meanwhile = |r: &Request| {
            let queued = r.bios.first().map(|b| b.queued.index);
            let done = r.done.map(|m| m.index);
            r.sectors > 0
                && r.op.writes()
                && queued.is_some_and(|i| i > call.enter)
                && done.is_some_and(|i| i < call.exit)
        };
        ours.extend((0..all.len()).filter(|&i| meanwhile(&all[i])));
    }
    let rules = Rules { named, call, causes: &causes, ours: &ours, caused: &caused };
    let state = rules.state();
    let start = records[call.enter].at;
    let mut out: Vec<Needed> = ours
        .iter()
        .map(|&i| {
            let r = &all[i];
            let role = if r.is_flush() { Role::Flush } else { Role::Own };
            let (need, rule) = rules.of(i, state);
            Needed {
                request: i,
                kind: named.kind(r, role),
                by: named.by(r).to_owned(),
                at: r.at.0,
                sectors: r.sectors,
                class: named.class(r).to_owned(),
                sent_ns: r.issued.or(r.start()).map_or(0, |m| signed_since(m.at, start)),
                path_ns: path.get(&i).copied().unwrap_or(0),
                need,
                rule,
            }
        })
        .collect();
    out.sort_by_key(|n| (n.sent_ns, n.request));
    out
}

/// What the calls before say of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Something changed it since its last sync.
    Changed,
    /// Nothing did, as the calls of the run show.
    Same,
    /// It was not synced before in the run, or which file it is is not known.
    Unknown,
}

struct Rules<'a, 'n> {
    named: &'n Namer<'a>,
    call: Call,
    causes: &'n Causes<'n>,
    ours: &'n BTreeSet<usize>,
    caused: &'n [BTreeSet<usize>],
}

impl Rules<'_, '_> {
    fn promises_all(&self) -> bool {
        WHOLE.contains(&self.named.seen.call_name(self.call.enter))
    }

    /// Was the file changed since it was last synced?
    fn state(&self) -> State {
        let seen = self.named.seen;
        let (Some(file), false) = (&self.named.file, self.promises_all()) else {
            return State::Unknown;
        };
        let mut syncs: BTreeSet<u64> = BTreeSet::new();
        // Paths that were opened: to open one again makes no name.
        let mut opened: BTreeSet<&str> = BTreeSet::new();
        let mut state = State::Unknown;
        for (i, r) in seen.run.records[..self.call.enter].iter().enumerate() {
            match &r.event {
                Event::SyscallEnter { name, id, target } => {
                    let path = seen.path(i).unwrap_or(target);
                    let is_known = *name == "open" && !opened.insert(path);
                    if NAMES.contains(name) && *name != "open" {
                        opened.clear();
                    }
                    let is_it = plain(path) == *file;
                    if SYNCS.contains(name) && is_it || WHOLE.contains(name) {
                        syncs.insert(*id);
                    } else if changes(name, path, file) && (is_it || !is_known) {
                        state = if state == State::Unknown { state } else { State::Changed };
                        // One that is under way has perhaps not seen it.
                        syncs.clear();
                    }
                }
                Event::SyscallExit { id, ok: true, .. } if syncs.remove(id) => state = State::Same,
                _ => {}
            }
        }
        state
    }

    fn of(&self, i: usize, state: State) -> Ruled {
        let r = &self.named.seen.walk.requests[i];
        if r.is_flush() {
            return self.flush(i);
        }
        match r.op {
            Op::Read => return yes("the call needs the data that it reads"),
            Op::Discard => return no("discard: it only frees space on the device"),
            Op::Zone(op) if !op.writes() => {
                return yes("the zone must be in this state before a write");
            }
            _ => {}
        }
        let own = self.named.has_files(r).is_some_and(|(own, _)| own);
        match self.named.purpose(r) {
            Some(Purpose::Home) if self.work(r).is_none() && self.is_by_server(r) => {
                unknown("it frees log space, or starts an empty log")
            }
            Some(Purpose::Home) => no("it frees log space: the log has a durable copy"),
            _ if self.caused[i].is_empty() && !self.promises_all() && !own => {
                no("sent for another task, ahead of the call")
            }
            _ if self.is_collected(r) => no("garbage collection moved it"),
            _ if self.promises_all() => yes("the call covers all data"),
            Some(Purpose::Data) => self.data(r),
            Some(Purpose::Meta | Purpose::Record) => self.meta(r, state),
            None if self.is_by_caller(r) => yes("the call itself sent it"),
            None => unknown("the class of its blocks is not known"),
        }
    }

    fn is_by_caller(&self, r: &Request) -> bool {
        self.named.by(r) == self.named.task
    }

    fn is_by_server(&self, r: &Request) -> bool {
        let by = self.named.by(r);
        self.named.seen.run.stages.servers.iter().any(|s| by.starts_with(s.name))
    }

    /// The shared work that a request was sent for.
    fn work(&self, r: &Request) -> Option<&crate::shared::Piece<'_>> {
        let index = r.bios.first()?.queued.index;
        let piece = self.causes.pieces(self.named.by(r), index).next()?;
        Some(&self.named.seen.pieces[piece])
    }

    fn is_collected(&self, r: &Request) -> bool {
        self.work(r).is_some_and(|p| p.work == "garbage collection")
    }

    fn data(&self, r: &Request) -> Ruled {
        match self.named.has_files(r) {
            Some((true, false)) => yes("data of the file"),
            Some((true, true)) => yes("data of the file and of other files"),
            Some((false, true)) => no("data of other files"),
            _ if self.is_by_caller(r) => yes("data that the call itself sent"),
            _ => unknown("the owner of the data is not known"),
        }
    }

    /// Nodes, logs, journal blocks, records.
    fn meta(&self, r: &Request, state: State) -> Ruled {
        let own = self.named.has_files(r).filter(|(own, others)| *own || *others);
        let piece = self.work(r);
        let asked_here = piece.is_some_and(|p| p.asked.iter().any(|a| a.task == self.named.task));
        if own == Some((false, true)) && self.is_file_of_one(r) {
            return no("metadata of other files");
        }
        if state == State::Same && (self.is_by_caller(r) || asked_here) {
            return no("the file has no change since its last sync");
        }
        match piece {
            None => yes("recovery needs it to find the file"),
            Some(p) => match self.changes_before(p) {
                (true, false) => yes("recovery needs it to find the file"),
                (true, true) => yes("recovery needs it to find the file and other changes"),
                (false, _) if asked_here => yes("recovery needs it to find the file"),
                (false, _) => unknown("no call of the run changed the file before this work began"),
            },
        }
    }

    /// Is every block of the request of one file: are nodes, not tables?
    fn is_file_of_one(&self, r: &Request) -> bool {
        let class = self.named.class(r);
        !class.is_empty() && crate::explain::files(class).all(|name| name.is_some())
    }

    /// Since the piece of the same work before this one: was the file changed, and were others?
    fn changes_before(&self, p: &crate::shared::Piece<'_>) -> (bool, bool) {
        let seen = self.named.seen;
        let before = seen
            .pieces
            .iter()
            .rev()
            .find(|q| q.work == p.work && q.begin.index < p.begin.index && q.id != p.id);
        let from = before.map_or(0, |q| q.begin.index);
        let (mut own, mut others) = (false, false);
        for (i, r) in seen.run.records[..p.begin.index].iter().enumerate().skip(from) {
            let Event::SyscallEnter { name, target, .. } = &r.event else { continue };
            if !CHANGES.contains(name) && !NAMES.contains(name) {
                continue;
            }
            let path = seen.path(i).unwrap_or(target);
            let is_it = self.named.file.as_ref().is_none_or(|f| changes(name, path, f));
            own |= is_it;
            // An open may change nothing.
            others |= !is_it && *name != "open";
        }
        // Direct and synchronous writes are changes themselves.
        (own || !SYNCS.contains(&seen.call_name(self.call.enter)), others)
    }

    /// A flush is for what the device completed before it was sent, and was not durable then.
    fn flush(&self, i: usize) -> Ruled {
        let seen = self.named.seen;
        if seen.run.survives {
            return no("the device has power-loss protection");
        }
        let all = &seen.walk.requests;
        let Some(sent) = all[i].issued else {
            return unknown("the time of its dispatch is not known");
        };
        let last = all.iter().filter(|f| f.is_flush());
        let last = last.filter(|f| f.done.is_some_and(|done| done.index <= sent.index));
        let last = last.filter_map(|f| f.issued).map(|m| m.index).filter(|m| *m < sent.index).max();
        let in_cache = |r: &Request| {
            r.sectors > 0
                && r.op.writes()
                && !r.is_forced()
                && r.done.is_some_and(|done| {
                    done.index < sent.index && last.is_none_or(|last| done.index > last)
                })
        };
        let mut cached = (0..all.len()).filter(|&w| in_cache(&all[w])).peekable();
        let any = cached.peek().is_some();
        if cached.any(|w| self.carries(w)) {
            return yes("the device's cache had blocks that the call must persist");
        }
        match (any, last) {
            (true, _) => unknown("the device's cache had only blocks of other calls"),
            (false, Some(_)) => no("the device's cache is empty since the last flush"),
            (false, None) => {
                unknown("the contents of the device's cache at the start of the run are not known")
            }
        }
    }

    /// Does a write carry what the call promises: was it sent for it, or has it the file's blocks?
    fn carries(&self, w: usize) -> bool {
        if self.promises_all() {
            return true;
        }
        let r = &self.named.seen.walk.requests[w];
        let own = self.named.has_files(r).is_some_and(|(own, _)| own);
        own || (self.ours.contains(&w) && !self.caused[w].is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_changed_by_names_that_are_made_in_it() {
        for (name, path) in [
            ("open", "d/f"),
            ("mkdir", "/d/e"),
            ("rmdir", "d/e/"),
            ("symlink", "d/s"),
            ("unlink", "d/f"),
            ("rename", "x -> d/y"),
            ("link", "d/f -> g"),
            ("setxattr", "d user.a"),
        ] {
            assert!(changes(name, path, "d"), "{name} {path}");
        }
        for (name, path) in [
            ("write", "d/f"),
            ("mkdir", "d/e/g"),
            ("mkdir", "dd/e"),
            ("unlink", "dd"),
            ("rename", "x -> y"),
            ("setxattr", "dd user.a"),
        ] {
            assert!(!changes(name, path, "d"), "{name} {path}");
        }
        assert!(changes("mkdir", "d", "") && changes("rename", "a -> d/b", ""));
        assert!(!changes("mkdir", "d/e", "") && changes("rename", "d -> e", "d/f"));
    }
}
