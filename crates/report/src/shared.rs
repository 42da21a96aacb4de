//! Work of a file system that several calls may share, put together from events: jbd2's commits,
//! F2FS's checkpoints and garbage collection, NILFS2's checkpoints, commits and log syncs of btrfs.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::event::{Event, FS_ASKED, FS_BEGIN, FS_END, Record};

use crate::requests::Moment;

/// Who asked for a piece of work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked<'a> {
    /// The task.
    pub task: &'a str,
    /// When.
    pub at: Moment,
    /// Why; often empty.
    pub why: &'a str,
}

/// A piece of shared work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece<'a> {
    /// Which kind: `commit`, `checkpoint`, `log`, ….
    pub work: &'a str,
    /// Its number.
    pub id: u64,
    /// Who did it: who began it first.
    pub tasks: Vec<&'a str>,
    /// When it began.
    pub begin: Moment,
    /// When it was over, if that is within the run.
    pub end: Option<Moment>,
    /// Why it was begun; often empty.
    pub why: &'a str,
    /// Who asked for it.
    pub asked: Vec<Asked<'a>>,
    /// Phases and where each begins.
    pub phases: Vec<(&'a str, Moment)>,
}

impl Piece<'_> {
    /// Is it under way at this record?
    pub fn covers(&self, index: usize) -> bool {
        self.begin.index <= index && self.end.is_none_or(|end| index <= end.index)
    }
}

/// A step of some work.
struct Step<'a> {
    work: &'a str,
    step: &'a str,
    id: u64,
    why: &'a str,
}

fn step(event: &Event) -> Option<Step<'_>> {
    let jbd2 = |step, tid: u32| Step { work: "commit", step, id: tid.into(), why: "" };
    match *event {
        Event::Jbd2 { what: "start_commit", tid, .. } => Some(jbd2(FS_BEGIN, tid)),
        Event::Jbd2 { what: "end_commit", tid, .. } => Some(jbd2(FS_END, tid)),
        Event::Jbd2 { what, tid, .. } if what.starts_with("commit_") => Some(jbd2(what, tid)),
        Event::Fs { work, step, id, why } => Some(Step { work, step, id, why }),
        _ => None,
    }
}

/// The pieces of a run, in the order in which they begin.
pub(crate) fn pieces(records: &[Record]) -> Vec<Piece<'_>> {
    let mut out: Vec<Piece<'_>> = Vec::new();
    let mut open: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    let mut asked: Vec<(&str, u64, Asked<'_>)> = Vec::new();
    for (index, r) in records.iter().enumerate() {
        let Some(s) = step(&r.event) else { continue };
        let now = Moment { at: r.at, index };
        let task: &str = &r.task;
        if s.step == FS_ASKED {
            asked.push((s.work, s.id, Asked { task, at: now, why: s.why }));
            continue;
        }
        if s.step == FS_BEGIN {
            open.insert((s.work, s.id), out.len());
            out.push(Piece {
                work: s.work,
                id: s.id,
                tasks: vec![task],
                begin: now,
                end: None,
                why: s.why,
                asked: Vec::new(),
                phases: Vec::new(),
            });
            continue;
        }
        let Some(&n) = open.get(&(s.work, s.id)) else { continue };
        let piece = &mut out[n];
        if !piece.tasks.contains(&task) {
            piece.tasks.push(task);
        }
        if s.step == FS_END {
            piece.end = Some(now);
            open.remove(&(s.work, s.id));
        } else {
            piece.phases.push((s.step, now));
        }
    }
    for (work, id, who) in asked {
        let over = |p: &Piece<'_>| p.end.is_some_and(|end| end.index < who.at.index);
        let mut of_work = (0..out.len()).filter(|&i| out[i].work == work && !over(&out[i]));
        let same = of_work.clone().find(|&i| out[i].id == id);
        if let Some(i) = same.or_else(|| of_work.next()) {
            out[i].asked.push(who);
        }
    }
    out
}

/// Which calls each piece of work served: those that it let go on, or whose task did it.
pub(crate) struct Served(Vec<BTreeSet<usize>>);

impl Served {
    /// `calls`: the first and last record of each, and its task.
    pub fn new(records: &[Record], pieces: &[Piece<'_>], calls: &[(usize, usize, &str)]) -> Served {
        // Task -> records in which somebody wakes it.
        let mut wakeups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, r) in records.iter().enumerate() {
            if let Event::Wakeup { task, timer: false, .. } = &r.event {
                wakeups.entry(task).or_default().push(i);
            }
        }
        let knows = !wakeups.is_empty();
        let serves = |p: &Piece<'_>, (enter, exit, task): (usize, usize, &str)| {
            let Some(end) = p.end else { return false };
            if end.index < enter || end.index > exit {
                return false;
            }
            let woken = wakeups.get(task).map_or(&[][..], Vec::as_slice);
            let first = woken.partition_point(|i| *i < enter.max(p.begin.index));
            let woke = woken[first..].iter().take_while(|i| **i <= exit);
            let by_piece = |i: &usize| p.tasks.contains(&&*records[*i].task);
            !knows || p.tasks.contains(&task) || woke.into_iter().any(by_piece)
        };
        let of = |p: &Piece<'_>| (0..calls.len()).filter(|&c| serves(p, calls[c])).collect();
        Served(pieces.iter().map(of).collect())
    }

    /// The calls that a piece served.
    pub fn calls(&self, piece: usize) -> impl Iterator<Item = usize> {
        self.0[piece].iter().copied()
    }

    /// Did the piece serve the call?
    pub fn serves(&self, piece: usize, call: usize) -> bool {
        self.0[piece].contains(&call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wp_base::Time;

    fn fs(task: &str, step: &'static str, id: u64) -> Record {
        let event = Event::Fs { work: "log", step, id, why: "" };
        Record { at: Time(id), task: task.into(), event }
    }

    #[test]
    fn who_asks_while_one_is_under_way_shares_it_or_has_the_next() {
        let records = [
            fs("a", FS_ASKED, 1),
            fs("a", FS_BEGIN, 1),
            fs("b", FS_ASKED, 1),
            fs("c", FS_ASKED, 2),
            fs("a", FS_END, 1),
            fs("c", FS_BEGIN, 2),
            fs("c", FS_END, 2),
        ];
        let all = pieces(&records);
        let asked: Vec<Vec<&str>> =
            all.iter().map(|p| p.asked.iter().map(|a| a.task).collect()).collect();
        assert_eq!(asked, [vec!["a", "b"], vec!["c"]]);
        let calls = [(0, 4, "a"), (2, 6, "c")];
        let served = Served::new(&records, &all, &calls);
        // Without wake-ups what ends within the call served it.
        assert_eq!(served.calls(0).collect::<Vec<_>>(), [0, 1]);
    }
}
