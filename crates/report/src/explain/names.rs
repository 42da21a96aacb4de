//! Names of what a call's path went through.

use std::fmt::Write;

use wp_base::Time;
use wp_base::event::{Flags, Op, rwbs};
use wp_base::stage::{Kind, Purpose, classes};

use super::Link;
use crate::commands::Part;
use crate::requests::{Moment, Request};
use crate::run::{Call, Seen};
use crate::walk::{Doing, Role, Step, length};

/// Hundredths of a percent in the whole.
const WHOLE: u64 = 10_000;
/// What begins the name of a stage in which something is made ready.
pub(crate) const PREPARE: &str = "prepare and dispatch: ";
/// What begins the name of a stage in which a request is waited for.
pub(crate) const WAIT: &str = "wait: ";

/// What begins the name of a stage in which a request is with the I/O scheduler.
pub(crate) const ELEVATOR: &str = "in the elevator: ";

/// Gives names to what one call went through.
pub(crate) struct Namer<'a> {
    pub seen: &'a Seen<'a>,
    /// The call's task.
    pub task: &'a str,
    /// The file that the call is about, if it is about one and its path is known.
    pub file: Option<String>,
}

/// A file's name as classes have it.
pub(crate) fn plain(name: &str) -> String {
    name.trim_matches('/').replace(['+', '*', ':', '\t', '\n'], "_")
}

/// Names of the files in a class: `data:f_0*2+inode:f_1` has `f_0` and `f_1`; nothing stands for
/// blocks that have none.
pub(crate) fn files(class: &str) -> impl Iterator<Item = Option<&str>> {
    class.split('+').map(|part| {
        let name = part.split_once(':').map(|(_, name)| name);
        name.map(|name| name.split('*').next().unwrap_or(name))
    })
}

impl<'a> Namer<'a> {
    /// For a call of the run.
    pub fn new(seen: &'a Seen<'a>, call: Call) -> Namer<'a> {
        let task = &*seen.run.records[call.enter].task;
        Namer { seen, task, file: seen.path(call.enter).map(plain) }
    }

    /// Steps with names; work in a row is one link, named by what it leads to.
    pub fn links(&self, steps: &[Step], start: Time) -> Vec<Link> {
        let mut out: Vec<Link> = Vec::new();
        // Latest first: what CPU time leads to is known when it is met.
        let mut leads_to: Option<String> = None;
        for s in steps.iter().rev() {
            let (stage, what, request) = self.step(s, &mut leads_to);
            let link = Link {
                from_ns: s.from.since(start).0,
                ns: length(s).0,
                who: s.who.clone(),
                stage,
                part: String::new(),
                place: String::new(),
                what,
                share: 0,
                request,
            };
            let parts = match s.doing {
                Doing::Request(i, _) => self.seen.inside.parts(i, s.from, s.to),
                _ => Vec::new(),
            };
            if parts.is_empty() {
                put(&mut out, link, matches!(s.doing, Doing::Cpu(_)));
                continue;
            }
            let of = |p: Part| Link {
                from_ns: p.from.since(start).0,
                ns: p.to.since(p.from).0,
                part: p.name.to_owned(),
                place: p.place,
                ..link.clone()
            };
            out.extend(parts.into_iter().rev().map(of));
        }
        out.reverse();
        let worked = |l: &&mut Link| l.stage.starts_with("prepare") || l.stage.starts_with("wake");
        for l in out.iter_mut().filter(worked) {
            l.what = counted(&l.what);
        }
        let shares = shares(&out.iter().map(|l| l.ns).collect::<Vec<_>>());
        for (link, share) in out.iter_mut().zip(shares) {
            link.share = share;
        }
        out
    }

    /// Stage, what, and request of a step.
    fn step(&self, s: &Step, leads_to: &mut Option<String>) -> (String, String, Option<usize>) {
        let fixed = |stage: &str, what: &str| (stage.to_owned(), what.to_owned(), None);
        match &s.doing {
            Doing::Cpu(what) => {
                let stage = leads_to
                    .as_ref()
                    .map_or("wake up and return".to_owned(), |to| format!("{PREPARE}{to}"));
                (stage, (*what).to_owned(), None)
            }
            Doing::Request(i, role) => {
                let r = &self.seen.walk.requests[*i];
                let kind = self.kind(r, *role);
                *leads_to = Some(match role {
                    Role::PreFlush => self.follower(*i),
                    _ => kind.clone(),
                });
                (format!("{WAIT}{kind}"), self.describe(r), Some(*i))
            }
            Doing::Elevator(i) => {
                let r = &self.seen.walk.requests[*i];
                let kind = self.kind(r, Role::Own);
                (format!("{ELEVATOR}{kind}"), self.describe(r), Some(*i))
            }
            Doing::Runnable => fixed("runnable, no CPU free", "waits for a CPU"),
            Doing::Sleep => fixed("sleep", "nothing else ends it"),
            Doing::Unknown => fixed("other wait", "no event ends it"),
        }
    }

    /// What a flush stands before: the request that its end lets go.
    fn follower(&self, flush: usize) -> String {
        let all = &self.seen.walk.requests;
        let done = all[flush].done.map(|m| m.at);
        let next = all.iter().filter(|r| r.flags.has(Flags::PREFLUSH) && !r.is_flush());
        let next = next.filter(|r| r.issued.is_some_and(|m| Some(m.at) >= done));
        let next = next.min_by_key(|r| r.issued.map(|m| m.index));
        next.map_or("flush".to_owned(), |r| self.kind(r, Role::Own))
    }

    /// The classes of a request's blocks; empty where they are not known.
    pub fn class(&self, r: &Request) -> &'a str {
        let known = |index: usize| self.seen.run.classes.get(&index).map(String::as_str);
        let issued = r.issued.and_then(|m| known(m.index));
        issued.or_else(|| known(r.bios.first()?.queued.index)).unwrap_or_default()
    }

    /// Who submitted it; of a flush who asked for it.
    pub fn by(&self, r: &Request) -> &'a str {
        let first = r.bios.first().map(|b| b.queued);
        let first = first.or_else(|| self.asked(r)).or(r.issued);
        first.map_or("nobody", |m| &*self.seen.run.records[m.index].task)
    }

    /// Where a flush was asked for: by the request that it stands before or behind.
    fn asked(&self, r: &Request) -> Option<Moment> {
        let sent = r.issued.filter(|_| r.is_flush())?;
        let around = |s: &&Request| {
            s.is_sequence()
                && s.start().is_some_and(|m| m.index < sent.index)
                && s.end().is_none_or(|m| m.index > sent.index)
        };
        self.seen.walk.requests.iter().find(around).and_then(Request::start)
    }

    /// Its kind by the file system's table.
    pub fn table(&self, r: &Request) -> Option<&'a Kind> {
        self.seen.run.stages.kind(self.class(r))
    }

    /// What it is for; nothing where that is not known.
    pub fn purpose(&self, r: &Request) -> Option<Purpose> {
        self.table(r).map(|k| k.purpose)
    }

    /// Has it blocks of the file that the call is about, and of others? `None`: some have no name.
    pub fn has_files(&self, r: &Request) -> Option<(bool, bool)> {
        let (file, class) = (self.file.as_deref()?, self.class(r));
        let (mut own, mut others) = (false, false);
        for (part, name) in classes(class).zip(files(class)) {
            match name {
                Some(name) if name == file => own = true,
                Some(_) => others = true,
                None if part == "data" || class.is_empty() => return None,
                None => {}
            }
        }
        (!class.is_empty()).then_some((own, others))
    }

    /// What a request is, in a few words.
    pub fn kind(&self, r: &Request, role: Role) -> String {
        match role {
            Role::PreFlush => return "pre-flush".to_owned(),
            Role::PostFlush => return "post-flush".to_owned(),
            Role::Flush => return "flush".to_owned(),
            // Its own requests it would have waited for anyhow.
            Role::Ahead if self.by(r) != self.task => {
                return "requests ahead in the device".to_owned();
            }
            Role::Ahead | Role::Own => {}
        }
        match r.op {
            Op::Read => "read",
            Op::Discard => "discard",
            Op::Zone(op) if !op.writes() => op.name(),
            Op::Flush => "flush",
            Op::Write | Op::Zone(_) if r.sectors == 0 => "flush",
            Op::Write | Op::Zone(_) => match self.table(r) {
                Some(kind) if kind.purpose == Purpose::Data => self.data(r, kind.stage),
                Some(kind) => kind.stage,
                None => self.unclassified(r),
            },
        }
        .to_owned()
    }

    /// A write of whose blocks nothing is known.
    fn unclassified(&self, r: &Request) -> &'static str {
        let [record, logged, metadata, plain] = self.seen.run.stages.unclassified;
        let queued = r.bios.first().map(|b| b.queued.index);
        let serves = self.is_server(r);
        if r.flags.any(Flags::PREFLUSH | Flags::FUA) {
            record
        } else if serves && queued.is_some_and(|i| self.seen.logging(i)) {
            logged
        } else if r.flags.has(Flags::META) {
            metadata
        } else {
            self.data(r, plain)
        }
    }

    /// Was it submitted by a task of the file system's own?
    fn is_server(&self, r: &Request) -> bool {
        self.seen.run.stages.servers.iter().any(|s| self.by(r).starts_with(s.name))
    }

    /// Data of the call's file, or of others, where the file system tells them apart.
    fn data(&self, r: &Request, stage: &'static str) -> &'static str {
        let own = self.has_files(r).is_some_and(|(own, _)| own);
        match self.seen.run.stages.others_data {
            Some(others) if self.is_server(r) && !own => others,
            _ => stage,
        }
    }

    pub fn describe(&self, r: &Request) -> String {
        let issuer = r.issued.map_or("nobody", |m| &*self.seen.run.records[m.index].task);
        if r.sectors == 0 {
            return format!("flush of the device's cache, issued by {issuer}");
        }
        let by = self.by(r);
        let mut text = format!("{} {} + {} of {by}", rwbs(r.op, r.flags), r.at.0, r.sectors);
        if issuer != by {
            write!(text, ", issued by {issuer}").expect("a string takes it");
        }
        let class = self.class(r);
        if !class.is_empty() {
            write!(text, " ({class})").expect("a string takes it");
        }
        let ahead = r.issued.map_or(0, |m| self.seen.in_device(m.index));
        if ahead > 0 {
            write!(text, ", with {ahead} ahead of it in the device").expect("a string takes it");
        }
        text
    }
}

/// Adds a link that comes before the last; CPU time of one stage and task is one link.
fn put(out: &mut Vec<Link>, link: Link, is_cpu: bool) {
    match out.last_mut() {
        Some(l) if is_cpu && l.stage == link.stage && l.who == link.who => {
            l.from_ns = link.from_ns;
            l.ns += link.ns;
            l.what = format!("{}, {}", link.what, l.what);
        }
        _ => out.push(link),
    }
}

/// `a, b, a` as `a x2, b`.
fn counted(list: &str) -> String {
    let mut names: Vec<(&str, u32)> = Vec::new();
    for name in list.split(", ") {
        match names.iter_mut().find(|(n, _)| *n == name) {
            Some((_, count)) => *count += 1,
            None => names.push((name, 1)),
        }
    }
    let times = |&(n, c): &(&str, u32)| if c == 1 { n.to_owned() } else { format!("{n} x{c}") };
    names.iter().map(times).collect::<Vec<_>>().join(", ")
}

/// Hundredths of a percent that add up to exactly [`WHOLE`], by largest remainder.
pub(crate) fn shares(parts: &[u64]) -> Vec<u64> {
    let total: u128 = parts.iter().map(|&p| u128::from(p)).sum();
    if total == 0 {
        return vec![0; parts.len()];
    }
    let scaled = |p: u64| u128::from(p) * u128::from(WHOLE);
    let mut out: Vec<u64> = parts.iter().map(|&p| (scaled(p) / total) as u64).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(scaled(parts[i]) % total));
    let missing = WHOLE - out.iter().sum::<u64>();
    for &i in order.iter().take(missing as usize) {
        out[i] += 1;
    }
    out
}
