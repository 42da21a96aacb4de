//! Who waited for whom, from the recorded wake-ups; and for shared work, who had asked for it.

use std::collections::BTreeSet;

use wp_base::Time;
use wp_base::event::Event;

use crate::explain::Namer;
use crate::requests::Moment;
use crate::run::{Call, Seen};
use crate::shared::{Piece, Served};
use crate::walk::{Role, SWAPPER, Wait, is_block_layer};

/// Waits of one task for the same thing of another, within a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    /// Who waited.
    pub waiter: String,
    /// For what: a lock or queue by its name, a request by its kind, a piece of shared work.
    pub on: String,
    /// Whom that was up to: who let it go on, or had sent the request.
    pub whom: String,
    /// Nanoseconds from the call to the first of these waits; what began before counts from there.
    pub from_ns: u64,
    /// Nanoseconds in all, as far as they lie within the call.
    pub ns: u64,
    /// How many.
    pub count: u32,
}

/// Who asked for a piece of shared work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AskedBy {
    /// The task.
    pub who: String,
    /// When, nanoseconds since the call; negative before it.
    pub at_ns: i64,
    /// Why; often empty.
    pub why: String,
}

/// A piece of shared work that a call waited for. Times are nanoseconds since the call, negative
/// before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Name and number: `transaction 3`.
    pub name: String,
    /// The tasks that did it.
    pub by: Vec<String>,
    /// Who asked for it.
    pub asked: Vec<AskedBy>,
    /// When it began.
    pub begin_ns: i64,
    /// When it was over.
    pub end_ns: i64,
    /// Why it was begun; often empty.
    pub why: String,
    /// System calls that waited for it, this one counted.
    pub calls: u32,
}

impl Group {
    /// Did the call start it: did its task ask first, within the call? What nobody is known to have
    /// asked for is its own if it began within the call.
    pub fn is_own(&self, task: &str) -> bool {
        match self.asked.first() {
            Some(asked) => asked.who == task && asked.at_ns >= 0,
            None => self.begin_ns >= 0,
        }
    }
}

/// Nanoseconds from one time to another, negative back.
pub(crate) fn signed_since(at: Time, from: Time) -> i64 {
    at.0.wrapping_sub(from.0) as i64
}

/// What a piece of work is called: `transaction 3`.
pub(crate) fn name(seen: &Seen<'_>, p: &Piece<'_>) -> String {
    let one = seen.run.stages.shared(p.work).map_or(p.work, |s| s.one);
    format!("{one} {}", p.id)
}

/// The shared work that a call waited for, in the order in which it ended.
pub(crate) fn groups(seen: &Seen<'_>, call: Call) -> Vec<Group> {
    let records = seen.run.records;
    let at = records[call.enter].at;
    let task = &*records[call.enter].task;
    let served = Served::new(records, &seen.pieces, &[(call.enter, call.exit, task)]);
    let mut all: Vec<usize> = (0..seen.pieces.len()).filter(|i| served.serves(*i, 0)).collect();
    if all.is_empty() {
        return Vec::new();
    }
    all.sort_by_key(|i| seen.pieces[*i].end.map(|m| m.index));
    let beside = seen.returned.iter().filter(|(a, b, _)| *a < call.exit && *b > call.enter);
    let of_all = Served::new(records, &seen.pieces, &beside.copied().collect::<Vec<_>>());
    let group = |i: usize| {
        let p = &seen.pieces[i];
        let since = |m: Moment| signed_since(m.at, at);
        let asked = p.asked.iter().map(|a| AskedBy {
            who: a.task.to_owned(),
            at_ns: since(a.at),
            why: a.why.to_owned(),
        });
        Group {
            name: name(seen, p),
            by: p.tasks.iter().map(|t| (*t).to_owned()).collect(),
            asked: asked.collect(),
            begin_ns: since(p.begin),
            end_ns: p.end.map_or(i64::MAX, since),
            why: p.why.to_owned(),
            calls: of_all.calls(i).count() as u32,
        }
    };
    all.into_iter().map(group).collect()
}

/// Looks for waits from the call's task on, and for those of whoever it waited for.
struct Search<'a, 'n> {
    named: &'n Namer<'a>,
    /// The call's time.
    start: u64,
    known: BTreeSet<usize>,
    out: Vec<Edge>,
}

pub(crate) fn edges(named: &Namer<'_>, call: Call) -> Vec<Edge> {
    let start = named.seen.run.records[call.enter].at.0;
    let mut search = Search { named, start, known: BTreeSet::new(), out: Vec::new() };
    let mut open = vec![(named.task, call.enter, call.exit)];
    while let Some((task, from, to)) = open.pop() {
        for wait in named.seen.walk.waits(task, from, to) {
            if search.known.insert(wait.wake) {
                open.extend(search.edge(task, &wait));
            }
        }
    }
    let mut edges = search.out;
    edges.sort_by_key(|e| e.from_ns);
    edges
}

impl<'a> Search<'a, '_> {
    /// Adds a wait; the task to look at next, and between which records.
    fn edge(&mut self, waiter: &'a str, wait: &Wait) -> Option<(&'a str, usize, usize)> {
        let record = &self.named.seen.run.records[wait.wake];
        let from = wait.began.0.max(self.start);
        let ns = record.at.0.saturating_sub(from);
        let (on, whom, next) = self.what(waiter, wait)?;
        let same = |e: &&mut Edge| e.waiter == waiter && e.on == on && e.whom == whom;
        let from_ns = from - self.start;
        match self.out.iter_mut().find(same) {
            Some(e) => {
                e.from_ns = e.from_ns.min(from_ns);
                e.ns += ns;
                e.count += 1;
            }
            None if ns == 0 => {}
            None => {
                let waiter = waiter.to_owned();
                self.out.push(Edge { waiter, on, whom, from_ns, ns, count: 1 });
            }
        }
        next.map(|by| (by, wait.last, wait.wake))
    }

    /// What was waited for, whose it was, and the task whose own waits are to be examined.
    fn what(&self, waiter: &str, wait: &Wait) -> Option<(String, String, Option<&'a str>)> {
        let seen = self.named.seen;
        let record = &seen.run.records[wait.wake];
        let Event::Wakeup { timer, on, .. } = record.event else { return None };
        let by: &'a str = &record.task;
        if timer {
            return Some((or(on, "its own sleep"), "time".to_owned(), None));
        }
        if by != SWAPPER {
            let on = self.shared(by, wait.wake).unwrap_or_else(|| or(on, "a wake-up"));
            return Some((on, by.to_owned(), Some(by)));
        }
        let Some(i) = seen.walk.ended_before(wait.wake) else {
            return Some((or(on, "a kernel timer"), "time".to_owned(), None));
        };
        let r = &seen.walk.requests[i];
        let role = if r.is_flush() { Role::Flush } else { Role::Own };
        let (by, kind) = (self.named.by(r), self.named.kind(r, role));
        let whom = match by {
            by if by == waiter || is_block_layer(by) => "the device".to_owned(),
            by => format!("the device, for {by}"),
        };
        Some((format!("request: {kind}"), whom, None))
    }

    /// Shared work that a task has just ended: `transaction 3`.
    fn shared(&self, task: &str, wake: usize) -> Option<String> {
        let seen = self.named.seen;
        let now = seen.run.records[wake].at;
        let ended = |p: &&Piece<'_>| {
            p.tasks.contains(&task) && p.end.is_some_and(|end| end.index < wake && end.at == now)
        };
        seen.pieces.iter().rev().find(ended).map(|p| name(seen, p))
    }
}

fn or(text: &str, other: &str) -> String {
    if text.is_empty() { other.to_owned() } else { format!("`{text}`") }
}
