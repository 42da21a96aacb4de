//! What one fsync does and waits for, step by step, what it sends, when the device has each of that
//! on its flash, and what a power cut may therefore keep without what was sent before it.
//!
//! Picture:    host    prepare data | wait: data | prepare node | wait: node | flush
//!             link            data =======|               node =====|
//!             die                            data ............ =========|
//! Order:      of two writes, the second may be kept without the first from when it is sent until
//!             the first is promised to be durable: at its completion with FUA or behind a cache
//!             that survives, else at the end of a flush that was sent after its completion.
//! Seen:       the same with the time at which the model had programmed them.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use wp_base::event::{DeviceWork, Event, Work, rwbs};
use wp_base::{Sector, Time};

use crate::commands::Inside;
use crate::document::nullable;
use crate::explain::{Explanation, Namer, PREPARE, explain, micros, signed};
use crate::requests::Request;
use crate::run::{Call, Seen};
use crate::shared::Served;
use crate::waits;
use crate::walk::{Doing, Role};

/// Pairs that may persist out of order which the text lists.
const PAIRS_MAX: usize = 16;
/// Columns of a moment in the picture.
const COLUMN: usize = 6;

/// Something that the call did or waited for. Steps follow one another without gaps.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Nanoseconds since the call.
    pub from_ns: u64,
    /// Its length.
    pub ns: u64,
    /// The task that did it or waited.
    pub who: String,
    /// What, as [`crate::explain`] names stages.
    pub what: String,
}

/// Something that is no request and no wait: what the file system told on its way. Nanoseconds
/// since the call, negative before it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Note {
    /// When.
    pub at_ns: i64,
    /// The task.
    pub who: String,
    /// What, in words.
    pub what: String,
    /// The task that it is told to: who is asked, or who goes on.
    #[serde(deserialize_with = "nullable")]
    pub to: Option<String>,
}

/// A command that the call sent to the device. Times are nanoseconds since the call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sent {
    /// `data`, `node`, `flush`, …
    pub name: String,
    /// Who had submitted it; of a flush who issued it.
    pub by: String,
    /// Letters of its flags.
    pub rwbs: String,
    /// First sector.
    #[serde(rename = "sector", with = "sector")]
    pub at: Sector,
    /// Sectors; 0 of a flush.
    pub sectors: u32,
    /// Must it be durable when it is complete? Documents do not hold it.
    #[serde(skip)]
    pub fua: bool,
    /// When it went to the device.
    pub sent_ns: u64,
    /// When it was complete.
    pub done_ns: u64,
    /// From when on the device promises it; nothing if it never does within the run.
    #[serde(deserialize_with = "nullable")]
    pub promised_ns: Option<u64>,
    /// When its first block began to be programmed, and its last had been; nothing if that was not
    /// told, or not within the run.
    #[serde(deserialize_with = "nullable")]
    pub programmed_ns: Option<(u64, u64)>,
    /// The dies that did it, in order of time.
    pub dies: Vec<u32>,
}

impl Sent {
    fn is_write(&self) -> bool {
        self.sectors > 0
    }
}

/// A write that a power cut may keep without one that was sent before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutOfOrder {
    /// Index into [`Flow::sent`] of the one that may be missing.
    pub missing: usize,
    /// Of the one that may be there.
    pub kept: usize,
    /// From when until when, nanoseconds since the call; without end if nothing promises it.
    #[serde(rename = "may_ns")]
    pub may: (u64, Option<u64>),
    /// When the model had it so: it was on the flash, and the other was not.
    #[serde(rename = "seen_ns", deserialize_with = "nullable")]
    pub seen: Option<(u64, u64)>,
}

/// The flow of a call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "schema", rename = "writepath.flow/1")]
pub struct Flow {
    /// `fsync`, `fdatasync`, ….
    pub call: String,
    /// What it was called on.
    pub target: String,
    /// By whom.
    pub task: String,
    /// How long it took.
    pub total_ns: u64,
    /// Is what the device has completed safe from power cuts?
    pub survives: bool,
    /// What it did and waited for.
    pub steps: Vec<Step>,
    /// What it sent, in order.
    pub sent: Vec<Sent>,
    /// What the file system told: inodes that were filed with the transaction, who asked for what,
    /// phases of commits and checkpoints.
    pub notes: Vec<Note>,
    /// What may persist out of order.
    pub out_of_order: Vec<OutOfOrder>,
}

/// The flow of a call. Panics if it is none of the run.
pub fn flow(seen: &Seen<'_>, call: Call) -> Flow {
    let (records, walk, inside) = (seen.run.records, &seen.walk, &seen.inside);
    let named = Namer::new(seen, call);
    let path = explain(seen, call);
    let survives = seen.run.survives;
    let (from, to) = (records[call.enter].at, records[call.exit].at);
    let on_path: Vec<usize> = walk
        .back(call.exit, from)
        .iter()
        .filter_map(|s| if let Doing::Request(i, _) = s.doing { Some(i) } else { None })
        .collect();
    let of_call: BTreeSet<usize> = path.requests.iter().map(|r| r.request).collect();
    let is_own =
        |i: usize, r: &Request| of_call.contains(&i) || on_path.contains(&i) || r.is_flush();
    let mut sent: Vec<(usize, Sent)> = walk
        .requests
        .iter()
        .enumerate()
        // An empty bio asks for a flush; what goes to the device is the queue's own command.
        .filter(|(_, r)| r.sectors > 0 || r.is_flush())
        .filter(|(i, r)| is_own(*i, r))
        .filter_map(|(_, r)| {
            let (issued, done) = (r.issued?, r.done?);
            let within = call.enter < issued.index && done.at <= to;
            within.then(|| (issued.index, one(&named, inside, r, from)))
        })
        .collect();
    sent.sort_by_key(|(index, _)| *index);
    let mut sent: Vec<Sent> = sent.into_iter().map(|(_, s)| s).collect();
    promise(&mut sent, survives);
    let steps = steps(&path, &sent);
    let out_of_order = out_of_order(&sent);
    Flow {
        notes: notes(seen, call),
        call: path.call,
        target: path.target,
        task: path.task,
        total_ns: path.total_ns,
        survives,
        steps,
        sent,
        out_of_order,
    }
}

/// What the file system told within the call, or before it of the work that served the call.
fn notes(seen: &Seen<'_>, call: Call) -> Vec<Note> {
    let records = seen.run.records;
    let at = records[call.enter].at;
    let task = &*records[call.enter].task;
    let served = Served::new(records, &seen.pieces, &[(call.enter, call.exit, task)]);
    let mut out: Vec<(usize, Note)> = Vec::new();
    let mut put = |index: usize, who: &str, what: String, to: Option<&str>| {
        let at_ns = waits::signed_since(records[index].at, at);
        let (who, to) = (who.to_owned(), to.map(str::to_owned));
        out.push((index, Note { at_ns, who, what, to }));
    };
    let mut commits: BTreeSet<u64> = BTreeSet::new();
    let ours = (0..seen.pieces.len()).filter(|n| served.serves(*n, 0));
    for p in ours.map(|n| &seen.pieces[n]) {
        let name = waits::name(seen, p);
        let doer = p.tasks.first().copied();
        for a in &p.asked {
            let why = if a.why.is_empty() { String::new() } else { format!(" ({})", a.why) };
            put(a.at.index, a.task, format!("requests {name}{why}"), doer.filter(|d| *d != a.task));
        }
        put(p.begin.index, doer.unwrap_or_default(), format!("begins {name}"), None);
        for (phase, m) in &p.phases {
            let who = &*records[m.index].task;
            put(m.index, who, format!("{name}: {}", phase.replace('_', " ")), None);
        }
        if let Some(end) = p.end {
            let who = &*records[end.index].task;
            put(end.index, who, format!("{name} ends"), Some(task).filter(|t| *t != who));
        }
        if p.work == "commit" {
            commits.insert(p.id);
        }
    }
    for (i, r) in records[..call.exit].iter().enumerate() {
        let Event::Jbd2 { what, tid, value } = r.event else { continue };
        if !commits.contains(&tid.into()) {
            continue;
        }
        match what {
            "file_inode" => {
                put(
                    i,
                    &r.task,
                    format!("adds inode {value} to the list of transaction {tid}"),
                    None,
                );
            }
            "submit_inode_data" => {
                put(i, &r.task, format!("writes the data of inode {value}"), None);
            }
            _ => {}
        }
    }
    out.sort_by_key(|(index, _)| *index);
    out.into_iter().map(|(_, note)| note).collect()
}

/// A request, without what it is promised.
fn one(named: &Namer<'_>, inside: &Inside, r: &Request, from: Time) -> Sent {
    let issued = r.issued.map_or(from, |m| m.at);
    // Programs of its blocks, each block's first: a later one is of a later write.
    let mut missing: BTreeSet<u64> = (r.at.0..r.at.0 + u64::from(r.sectors)).collect();
    let mut programs: Vec<&DeviceWork> =
        inside.works.iter().filter(|w| w.what == Work::Program && w.to > issued).collect();
    programs.sort_by_key(|w| (w.to, w.from));
    programs.retain(|w| {
        let before = missing.len();
        for (at, sectors) in &w.holds {
            (at.0..at.0 + u64::from(*sectors)).for_each(|sector| {
                missing.remove(&sector);
            });
        }
        missing.len() < before
    });
    let begins = programs.iter().map(|w| w.from.since(from).0).min();
    let ends = programs.iter().map(|w| w.to.since(from).0).max().filter(|_| missing.is_empty());
    Sent {
        name: named.kind(r, if r.is_flush() { Role::Flush } else { Role::Own }),
        by: named.by(r).to_owned(),
        rwbs: rwbs(r.op, r.flags),
        at: r.at,
        sectors: r.sectors,
        fua: r.is_forced(),
        sent_ns: issued.since(from).0,
        done_ns: r.done.map_or(issued, |m| m.at).since(from).0,
        promised_ns: None,
        programmed_ns: begins.zip(ends),
        dies: programs.iter().filter_map(|w| Some(w.die?.die)).collect(),
    }
}

/// From when on the device owes each write.
fn promise(sent: &mut [Sent], survives: bool) {
    let flushes: Vec<(u64, u64)> =
        sent.iter().filter(|s| !s.is_write()).map(|s| (s.sent_ns, s.done_ns)).collect();
    for s in sent.iter_mut().filter(|s| s.sectors > 0) {
        let flushed = flushes.iter().filter(|f| f.0 >= s.done_ns).map(|f| f.1).min();
        s.promised_ns = if survives || s.fua { Some(s.done_ns) } else { flushed };
    }
}

fn out_of_order(sent: &[Sent]) -> Vec<OutOfOrder> {
    let mut out = Vec::new();
    let writes: Vec<usize> = (0..sent.len()).filter(|&i| sent[i].is_write()).collect();
    for (n, &missing) in writes.iter().enumerate() {
        for &kept in &writes[n + 1..] {
            let (first, second) = (&sent[missing], &sent[kept]);
            if first.promised_ns.is_some_and(|at| at <= second.sent_ns) {
                continue;
            }
            let on_flash = |s: &Sent| s.programmed_ns.map(|p| p.1);
            let seen = on_flash(second).zip(on_flash(first)).filter(|(b, a)| b < a);
            let may = (second.sent_ns, first.promised_ns);
            out.push(OutOfOrder { missing, kept, may, seen });
        }
    }
    out
}

/// The path's links as steps: what the device did within a wait is one, and what the caller
/// prepares ends with each request that it sends.
fn steps(path: &Explanation, sent: &[Sent]) -> Vec<Step> {
    let mut out: Vec<Step> = Vec::new();
    let mut put = |from_ns: u64, to_ns: u64, who: &str, what: &str| match out.last_mut() {
        _ if from_ns >= to_ns => {}
        Some(last) if last.what == what && last.who == who => last.ns += to_ns - from_ns,
        _ => {
            let (who, what) = (who.to_owned(), what.to_owned());
            out.push(Step { from_ns, ns: to_ns - from_ns, who, what });
        }
    };
    for link in &path.links {
        let (mut from, to) = (link.from_ns, link.from_ns + link.ns);
        if link.stage.starts_with(PREPARE) {
            for s in sent.iter().filter(|s| link.from_ns < s.sent_ns && s.sent_ns < to) {
                put(from, s.sent_ns, &link.who, &format!("{PREPARE}{}", s.name));
                from = s.sent_ns;
            }
        }
        put(from, to, &link.who, &link.stage);
    }
    out
}

/// A bar of the picture: its lane's name, and from when to when.
pub(crate) type Bar = (String, u64, u64);

impl Flow {
    /// What the host, the device and its flash do; a task that is not the caller is named.
    pub(crate) fn bars(&self) -> Vec<(&'static str, Vec<Bar>)> {
        let name = |s: &Step| match s.who == self.task {
            true => s.what.clone(),
            false => format!("{}: {}", s.who, s.what),
        };
        let host = self.steps.iter().map(|s| (name(s), s.from_ns, s.from_ns + s.ns));
        let link = self.sent.iter().map(|s| (s.name.clone(), s.sent_ns, s.done_ns));
        let flash = self.sent.iter().filter_map(|s| {
            let (from, to) = s.programmed_ns?;
            let dies: Vec<String> = s.dies.iter().map(u32::to_string).collect();
            Some((format!("{} on die {}", s.name, dies.join(", ")), from, to))
        });
        vec![("host", host.collect()), ("device", link.collect()), ("flash", flash.collect())]
    }

    /// A picture whose columns are the moments at which something begins or ends, in order, not to
    /// scale; what was sent; and what may persist out of order.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let line = "a string takes it";
        let bars = self.bars();
        let all = || bars.iter().flat_map(|(_, bars)| bars);
        let mut moments: Vec<u64> = all().flat_map(|b| [b.1, b.2]).collect();
        moments.sort_unstable();
        moments.dedup();
        let column = |at: u64| moments.partition_point(|m| *m < at) * COLUMN;
        let width = all().map(|b| b.0.chars().count()).max().unwrap_or(0);
        for (lane, bars) in &bars {
            for (n, (name, from, to)) in bars.iter().enumerate() {
                let lane = if n == 0 { lane } else { "" };
                let (from_column, to_column) = (column(*from), column(*to));
                let bar = "=".repeat((to_column - from_column).saturating_sub(2));
                let space = " ".repeat(from_column);
                writeln!(out, "{lane:<6} {name:<width$} {space}|{bar}|").expect(line);
            }
        }
        // Times under every column, the odd ones a line lower.
        for row in 0..2 {
            let mut text = format!("{:<6} {:<width$} ", if row == 0 { "us" } else { "" }, "");
            for at in moments.iter().skip(row).step_by(2) {
                let column = 8 + width + column(*at);
                let gap = column.saturating_sub(text.chars().count());
                write!(text, "{}{}.{}", " ".repeat(gap), at / 1000, at % 1000 / 100).expect(line);
            }
            writeln!(out, "{text}").expect(line);
        }
        let name = self.sent.iter().map(|s| s.name.chars().count()).max().unwrap_or(0).max(6);
        writeln!(
            out,
            "\n{:<name$} {:<5} {:>12} {:>8} {:>11} {:>11} {:>12} {:>12}",
            "sent", "", "sector", "sectors", "sent us", "done us", "promised us", "on flash us"
        )
        .expect(line);
        for s in &self.sent {
            let promised = if s.is_write() {
                s.promised_ns.map_or("never".into(), micros)
            } else {
                String::new()
            };
            let flash = s.programmed_ns.map_or(String::new(), |p| micros(p.1));
            writeln!(
                out,
                "{:<name$} {:<5} {:>12} {:>8} {:>11} {:>11} {promised:>12} {flash:>12}",
                s.name,
                s.rwbs,
                s.at.0,
                s.sectors,
                micros(s.sent_ns),
                micros(s.done_ns)
            )
            .expect(line);
        }
        if !self.notes.is_empty() {
            writeln!(out, "\n{:>11}  {:<16} the file system", "us", "who").expect(line);
        }
        for n in &self.notes {
            let to = n.to.as_ref().map_or(String::new(), |to| format!(" -> {to}"));
            writeln!(out, "{:>11}  {:<16} {}{to}", signed(n.at_ns), n.who, n.what).expect(line);
        }
        out.push('\n');
        let cache = if self.survives { "has power-loss protection" } else { "is volatile" };
        if self.out_of_order.is_empty() {
            writeln!(out, "the device's cache {cache}: nothing may persist out of order")
                .expect(line);
        }
        for o in self.out_of_order.iter().take(PAIRS_MAX) {
            let (missing, kept) = (&self.sent[o.missing], &self.sent[o.kept]);
            let until = o.may.1.map_or("on".to_owned(), |at| format!("until {} us", micros(at)));
            let seen = match o.seen {
                Some((a, b)) => format!("; here from {} to {} us", micros(a), micros(b)),
                None => "; not in this run".to_owned(),
            };
            writeln!(
                out,
                "the device's cache {cache}: {} at {} may persist without {} at {} from {} us {until}{seen}",
                kept.name,
                kept.at.0,
                missing.name,
                missing.at.0,
                micros(o.may.0)
            )
            .expect(line);
        }
        let more = self.out_of_order.len().saturating_sub(PAIRS_MAX);
        if more > 0 {
            writeln!(out, "and {more} more pairs (--json has all)").expect(line);
        }
        out
    }
}

/// Sectors as documents hold them: numbers.
mod sector {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use wp_base::Sector;

    pub fn serialize<S: Serializer>(sector: &Sector, to: S) -> Result<S::Ok, S::Error> {
        sector.0.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Sector, D::Error> {
        u64::deserialize(from).map(Sector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(sectors: u32, sent_ns: u64, done_ns: u64, flash: u64) -> Sent {
        Sent {
            name: "x".into(),
            by: "w".into(),
            rwbs: "W".into(),
            at: Sector(sent_ns),
            sectors,
            fua: false,
            sent_ns,
            done_ns,
            promised_ns: None,
            programmed_ns: (flash > 0).then_some((sent_ns, flash)),
            dies: Vec::new(),
        }
    }

    fn order(mut all: Vec<Sent>, survives: bool) -> Vec<OutOfOrder> {
        promise(&mut all, survives);
        out_of_order(&all)
    }

    #[test]
    fn only_a_flush_between_keeps_two_writes_in_order() {
        let (data, node) = (|| sent(8, 10, 20, 90), || sent(8, 30, 40, 70));
        let found = order(vec![data(), node(), sent(0, 50, 100, 0)], false);
        let o = OutOfOrder { missing: 0, kept: 1, may: (30, Some(100)), seen: Some((70, 90)) };
        assert_eq!(found, [o]);
        assert_eq!(order(vec![data(), sent(0, 20, 30, 0), node()], false), []);
        // A flush that was sent before the data were there promises nothing of them.
        let early = order(vec![data(), sent(0, 15, 29, 0), node()], false);
        assert_eq!(early.iter().map(|o| o.may).collect::<Vec<_>>(), [(30, None)]);
        let mut forced = data();
        forced.fua = true;
        assert_eq!(order(vec![forced, node()], false), []);
    }

    #[test]
    fn behind_a_cache_that_survives_only_what_is_under_way_together_is_in_doubt() {
        let (data, after) = (|| sent(8, 10, 20, 0), sent(8, 20, 40, 0));
        assert_eq!(order(vec![data(), after], true), []);
        let found = order(vec![data(), sent(8, 15, 40, 0)], true);
        assert_eq!(
            found.iter().map(|o| (o.may, o.seen)).collect::<Vec<_>>(),
            [((15, Some(20)), None)]
        );
    }
}
