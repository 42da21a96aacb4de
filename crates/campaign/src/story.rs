//! A failure as a timeline: which calls, what the device was sent meanwhile, which writes were
//! unpersisted when the power failed, what was lost, and what recovery made of the rest.

use std::collections::BTreeMap;
use std::fmt::Write;

use wp_base::event::{Flags, Op};
use wp_base::{SECTOR_BYTES, Sector, Time};
use wp_block::FlushSet;
use wp_crash::{Entry, History};
use wp_medium::{Medium, MediumView, Slice};
use wp_vfs::{BlockMap, FsEntry, Options, RecoveryPlan};

use super::play::Played;

/// What to tell of.
pub struct Cut<'a> {
    /// File system and its options, which say how it is recovered.
    pub fs: (&'static FsEntry, &'a Options),
    /// The run.
    pub played: &'a Played,
    /// Its states.
    pub history: &'a History,
    /// Frame.
    pub frame: usize,
    /// Unpersisted units that are lost, by their place in the frame.
    pub lost: &'a [usize],
}

/// Requests after the cut that are told.
const NEXT: usize = 4;
const GONE: &str = "  -- power may fail from here on --\n";
const LINE: &str = "a string takes it";

impl Cut<'_> {
    /// The device as the cut leaves it.
    pub fn medium(&self) -> Medium {
        let frame = &self.history.frames[self.frame];
        let mut medium = frame.base.clone();
        for (i, n) in frame.live.iter().enumerate() {
            if !self.lost.contains(&i) {
                self.history.units[*n as usize].apply(&mut medium);
            }
        }
        medium
    }

    fn view(&self, medium: Medium) -> MediumView {
        let (start, bytes) = self.played.partition;
        MediumView { medium, start: Sector(start / SECTOR_BYTES), bytes }
    }

    /// The partition as the cut leaves it.
    pub(super) fn device(&self) -> MediumView {
        self.view(self.medium())
    }

    /// What blocks are, with everything that was ever sent in place.
    pub(super) fn classes(&self) -> Option<Box<dyn BlockMap>> {
        let last = self.history.frames.last()?;
        let mut medium = last.base.clone();
        for n in &last.live {
            self.history.units[*n as usize].apply(&mut medium);
        }
        let start = self.played.partition.0 / SECTOR_BYTES;
        let plan = (self.fs.0.recover)(&self.view(medium.clone()), self.fs.1).ok()?;
        for (at, slice) in plan.writes() {
            medium.write(Sector(at.0 + start), slice);
        }
        (self.fs.0.blocks)(&self.view(medium)).ok()
    }

    /// The timeline, from `calls` calls before the cut.
    pub fn tell(&self, calls: usize) -> String {
        let mut t = String::new();
        let classes = self.classes();
        let frame = &self.history.frames[self.frame];
        let until = self.history.end_of(self.frame);
        let entries = &self.played.tape.entries;
        let begins: Vec<usize> = (0..frame.pos.min(entries.len()))
            .filter(|i| matches!(entries[*i].1, Entry::Begin(_)))
            .collect();
        let from = begins.len().checked_sub(calls).map_or(0, |n| begins[n]);
        let mut fates: BTreeMap<u64, Vec<(&str, u64)>> = BTreeMap::new();
        for (i, n) in frame.live.iter().enumerate() {
            let unit = &self.history.units[*n as usize];
            let fate = if self.lost.contains(&i) { "LOST" } else { "kept" };
            fates.entry(unit.request).or_default().push((fate, unit.at.0));
        }
        if from > 0 {
            writeln!(t, "… {} entries before", from).expect(LINE);
        }
        let zero = entries.first().map_or(Time(0), |e| e.0);
        let numbers = self.numbers();
        let number = |id: &u64| numbers.get(id).copied().unwrap_or(0);
        for (pos, (at, entry)) in entries.iter().enumerate().take(until).skip(from) {
            if pos == self.first_moment() {
                t += GONE;
            }
            let us = at.since(zero).0 as f64 / 1000.0;
            match entry {
                Entry::Begin(n) => {
                    writeln!(t, "{us:>12.1} us  {}", self.played.ledger.called(*n)).expect(LINE);
                }
                Entry::End(n) => {
                    let answer = match self.played.dids.get(*n as usize).map(|d| d.error.is_none())
                    {
                        Some(false) => "failed:  ",
                        _ => "returned:",
                    };
                    writeln!(t, "{us:>12.1} us  {answer} {}", self.played.ledger.called(*n))
                        .expect(LINE);
                }
                Entry::Submit { id, op, flags, at, sectors, data } => {
                    let class = match op {
                        Op::Flush => flush_words(data),
                        _ => format!(
                            "{:>9} +{sectors:<5}{}",
                            at.0,
                            self.class(classes.as_deref(), *at, *sectors)
                        ),
                    };
                    let journal = data.first().and_then(journal_block).unwrap_or_default();
                    let fate = match fates.get(id) {
                        Some(f) if pos <= frame.pos => fate_words(f),
                        None if pos > frame.pos && *op != Op::Flush => {
                            " [after the power failure]".to_owned()
                        }
                        _ => String::new(),
                    };
                    writeln!(
                        t,
                        "{us:>12.1} us    -> #{:<3} {:<9} {class}{journal}{fate}",
                        number(id),
                        request_words(*op, *flags)
                    )
                    .expect(LINE);
                }
                // What was only read says nothing of power failures.
                Entry::Complete { id, ok } if numbers.contains_key(id) => {
                    let how = if *ok { "" } else { " with an error" };
                    writeln!(t, "{us:>12.1} us    <- #{} completed{how}", number(id)).expect(LINE);
                }
                Entry::Complete { .. } | Entry::Model(_) => {}
            }
        }
        if until <= self.first_moment() {
            t += GONE;
        }
        let next = entries[until.min(entries.len())..].iter().filter_map(|(at, e)| match e {
            Entry::Submit { id, op, flags, at: sector, sectors, .. } if *op != Op::Flush => {
                Some((at, id, request_words(*op, *flags), sector, sectors))
            }
            _ => None,
        });
        for (at, id, what, sector, sectors) in next.take(NEXT) {
            let us = at.since(zero).0 as f64 / 1000.0;
            let class = self.class(classes.as_deref(), *sector, *sectors);
            writeln!(
                t,
                "{us:>12.1} us    (#{} {what} {} +{sectors}{class}: comes next)",
                number(id),
                sector.0
            )
            .expect(LINE);
        }
        t
    }

    /// The unpersisted writes that are lost, one in each: where, and whose data.
    pub fn lost_writes(&self) -> Vec<String> {
        let classes = self.classes();
        let frame = &self.history.frames[self.frame];
        let units = || frame.live.iter().map(|n| &self.history.units[*n as usize]);
        let lost = units().enumerate().filter(|(i, _)| self.lost.contains(i));
        let numbers = self.numbers();
        lost.map(|(i, unit)| {
            let parts = units().filter(|u| u.request == unit.request).count();
            let part = units().take(i + 1).filter(|u| u.request == unit.request).count();
            let of = if parts > 1 { format!(", part {part} of {parts}") } else { String::new() };
            let class = self.class(classes.as_deref(), unit.at, unit.sectors() as u32);
            let number = numbers.get(&unit.request).copied().unwrap_or(0);
            format!("write #{number}{of}: {} +{}{class}", unit.at.0, unit.sectors())
        })
        .collect()
    }

    /// The first position on the tape at which the power can go.
    pub(super) fn first_moment(&self) -> usize {
        match self.frame {
            0 => 0,
            n => self.history.frames[n].pos + 1,
        }
    }

    /// Requests by small numbers, in the order in which they were sent.
    pub(super) fn numbers(&self) -> BTreeMap<u64, u32> {
        let entries = self.played.tape.entries.iter();
        let ids = entries.filter_map(|(_, e)| match e {
            Entry::Submit { id, .. } => Some(*id),
            _ => None,
        });
        ids.zip(1..).collect()
    }

    pub(super) fn class(&self, classes: Option<&dyn BlockMap>, at: Sector, sectors: u32) -> String {
        let Some(map) = classes else { return String::new() };
        let per = u64::from(map.block_bytes()) / SECTOR_BYTES;
        let start = self.played.partition.0 / SECTOR_BYTES;
        let first = (at.0.saturating_sub(start)) / per;
        let mut names: Vec<String> = Vec::new();
        for block in first..first + u64::from(sectors).div_ceil(per) {
            let name = match (map.class(block), map.owner(block)) {
                ("data", Some((ino, _))) => match self.played.ledger.name_of(ino) {
                    Some(name) => format!("data of {name} (inode {ino})"),
                    None => format!("data of inode {ino}"),
                },
                // A place that was free when the run ended had data that were never named.
                ("free", _) => "data of a new file".to_owned(),
                (class, _) => class.to_owned(),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        format!(" {}", names.join(", "))
    }

    /// The files that recovery leaves, one a line. Errors are a line as well.
    pub fn files(&self) -> String {
        let mut t = String::new();
        let view = self.view(self.medium());
        match (self.fs.0.inspect)(&view, self.fs.1, false) {
            Err(e) => writeln!(t, "  cannot be mounted: {e}").expect(LINE),
            Ok(found) => {
                for f in &found.files {
                    writeln!(t, "  {:<6} {:>9} bytes  {}", f.kind, f.size, f.path).expect(LINE);
                }
                for f in &found.findings {
                    writeln!(t, "  wrong: {f}").expect(LINE);
                }
            }
        }
        t
    }

    /// What recovery writes over the image. Errors: the mount's.
    pub fn recovered(&self) -> wp_base::FsResult<RecoveryPlan> {
        (self.fs.0.recover)(&self.view(self.medium()), self.fs.1)
    }
}

/// The set of a ranged flush; empty of a plain one.
fn flush_words(payload: &[Slice]) -> String {
    if payload.is_empty() {
        return String::new();
    }
    let set = FlushSet::decode(payload);
    let sectors: u64 = set.ranges().map(|(_, n)| n).sum();
    format!("of {sectors} sectors in {} ranges", set.ranges().count())
}

/// A request in words.
pub(super) fn request_words(op: Op, flags: Flags) -> String {
    let name = match op {
        Op::Flush => "flush",
        Op::Discard => "discard",
        Op::Zone(op) => op.name(),
        Op::Read => "read",
        Op::Write => "write",
    };
    match (op, flags.has(Flags::PREFLUSH), flags.has(Flags::FUA)) {
        (Op::Write, true, true) => "flush+write FUA".to_owned(),
        (Op::Write, true, false) => "flush+write".to_owned(),
        (Op::Write, false, true) => "write FUA".to_owned(),
        _ => name.to_owned(),
    }
}

/// What the first block of a write to the log is: kind and transaction.
///
/// Source: jbd2's on-disk format: magic, kind and number, big endian.
pub(super) fn journal_block(slice: &Slice) -> Option<String> {
    const MAGIC: u32 = 0xC03B_3998;
    if slice.len() < 12 {
        return None;
    }
    let head = slice.sub(0, 12).to_vec();
    let word = |at: usize| head.get(at..)?.first_chunk().map(|b| u32::from_be_bytes(*b));
    if word(0)? != MAGIC {
        return None;
    }
    let kind = match word(4)? {
        1 => "begins",
        2 => "commit record of",
        5 => "revokes of",
        _ => return None,
    };
    let tid = word(8)?;
    Some(match kind {
        "begins" => format!(", transaction {tid} begins"),
        kind => format!(", {kind} transaction {tid}"),
    })
}

fn fate_words(fates: &[(&str, u64)]) -> String {
    let lost = fates.iter().filter(|(f, _)| *f == "LOST").count();
    match lost {
        0 => " [unpersisted, kept]".to_owned(),
        n if n == fates.len() => " [unpersisted, LOST]".to_owned(),
        n => format!(" [unpersisted, {n} of {} parts LOST]", fates.len()),
    }
}
