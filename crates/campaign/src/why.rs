//! Why recovery chose wrong, in sentences: when the power went, what recovery believed, where the
//! bytes in question were at that moment.

use std::collections::BTreeSet;
use std::fmt::Write;

use wp_base::event::Op;
use wp_base::{SECTOR_BYTES, Sector, Time};
use wp_crash::{Entry, Rule, Violation};
use wp_medium::{Overlay, Slice, View};
use wp_vfs::SurveyedFile;

use super::story::{Cut, journal_block, request_words};

const LINE: &str = "a string takes it";
/// Requests that are told of one place.
const MOST: usize = 6;

/// Where a request was when the power went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// On the medium, whatever happens.
    Durable,
    /// Unpersisted, and kept.
    Kept,
    /// Answered and not flushed: in the drive's volatile cache, which is gone.
    CacheLost,
    /// Sent and not answered.
    FlightLost,
    /// Not sent yet: in the memory of the machine.
    Memory,
}

impl Place {
    fn words(self) -> &'static str {
        match self {
            Place::Durable => "durable on the medium",
            Place::Kept => "in the drive, and written to the medium",
            Place::CacheLost => "completed, in the volatile cache, no flush after it: LOST",
            Place::FlightLost => "in flight, not completed: LOST",
            Place::Memory => "still in host memory: LOST",
        }
    }
}

impl Cut<'_> {
    /// Where the program is at a position on the tape.
    fn moment(&self, pos: usize) -> String {
        let entries = &self.played.tape.entries;
        let entries = &entries[..pos.min(entries.len())];
        let call = |n: u32| format!("`{}`", self.played.ledger.called(n));
        let mut under_way: Vec<u32> = Vec::new();
        let mut last = None;
        for (_, entry) in entries {
            match entry {
                Entry::Begin(n) => under_way.push(*n),
                Entry::End(n) => {
                    under_way.retain(|other| other != n);
                    last = Some(*n);
                }
                _ => {}
            }
        }
        match (under_way.is_empty(), last) {
            (true, None) => "before the first call".to_owned(),
            (true, Some(n)) => format!("after {} has returned", call(n)),
            (false, _) => {
                let calls: Vec<String> = under_way.into_iter().map(call).collect();
                format!("during {}", calls.join(" and "))
            }
        }
    }

    /// The story of one broken rule.
    pub fn why(&self, v: &Violation) -> String {
        let mut t = String::new();
        let until = self.history.end_of(self.frame);
        let from = self.moment(self.first_moment());
        let to = self.moment(until);
        match from == to {
            true => writeln!(t, "Power fails {from}."),
            false => writeln!(t, "Power fails {from}, at the latest {to}."),
        }
        .expect(LINE);
        self.commits(&mut t);
        let view = self.device();
        let overlay = Overlay::new(&view);
        let survey = match (self.fs.0.survey)(&overlay, self.fs.1) {
            Ok(survey) => survey,
            Err(e) => {
                writeln!(t, "Recovery fails: {e}.").expect(LINE);
                return t;
            }
        };
        writeln!(t, "Recovery: {}.", survey.did).expect(LINE);
        let file = survey.files.iter().find(|f| f.path == v.path);
        match (file, v.offset) {
            (Some(file), Some(offset)) => self.bytes(file, offset, &overlay, &mut t),
            (Some(file), None) => {
                writeln!(
                    t,
                    "Recovery finds {} with inode {} and {} bytes, as in the inode on the medium \
                     or in the journal.",
                    v.path, file.ino, file.size
                )
                .expect(LINE);
                self.inode(file.ino, &mut t);
            }
            (None, _) if !v.path.is_empty() => {
                writeln!(t, "Recovery finds no name {}.", v.path).expect(LINE);
            }
            _ => {}
        }
        self.waiting(&mut t);
        if v.rule == Rule::LostSync {
            self.promise(v, &mut t);
        }
        writeln!(t, "Found: {}. Expected: {}.", v.seen, v.expected).expect(LINE);
        t
    }

    fn place(&self, id: u64, pos: usize) -> Place {
        let frame = &self.history.frames[self.frame];
        if pos > frame.pos {
            return Place::Memory;
        }
        let mine = |i: &usize| self.history.units[frame.live[*i] as usize].request == id;
        let live: Vec<usize> = (0..frame.live.len()).filter(mine).collect();
        let answered = self.played.tape.entries[..frame.pos.min(self.played.tape.entries.len())]
            .iter()
            .any(|(_, e)| matches!(e, Entry::Complete { id: i, .. } if *i == id));
        match (live.is_empty(), live.iter().any(|i| self.lost.contains(i)), answered) {
            (true, ..) => Place::Durable,
            (_, false, _) => Place::Kept,
            (_, true, true) => Place::CacheLost,
            (_, true, false) => Place::FlightLost,
        }
    }

    /// Writes to a range of sectors of the device, in order.
    fn writes(&self, at: Sector, sectors: u64) -> Vec<(usize, Time, u64, String)> {
        let entries = self.played.tape.entries.iter().enumerate();
        let hits = entries.filter_map(|(pos, (time, e))| match e {
            Entry::Submit { id, op, flags, at: from, sectors: n, .. }
                if *op != Op::Flush && from.0 < at.0 + sectors && at.0 < from.0 + u64::from(*n) =>
            {
                Some((pos, *time, *id, request_words(*op, *flags)))
            }
            _ => None,
        });
        hits.collect()
    }

    /// Commit records: which got there.
    fn commits(&self, t: &mut String) {
        let numbers = self.numbers();
        for (pos, (_, entry)) in self.played.tape.entries.iter().enumerate() {
            let Entry::Submit { id, data, .. } = entry else { continue };
            let Some(what) = data.first().and_then(journal_block) else { continue };
            let Some(record) = what.strip_prefix(", commit record of ") else { continue };
            let place = self.place(*id, pos);
            let number = numbers.get(id).copied().unwrap_or(0);
            writeln!(t, "The commit record of {record} is request #{number}: {}.", place.words())
                .expect(LINE);
            if place == Place::Memory {
                // Later ones are, too.
                return;
            }
        }
    }

    /// What lies below a byte of a file, and who was to write it.
    fn bytes(&self, file: &SurveyedFile, offset: u64, view: &dyn View, t: &mut String) {
        let block = self.played.ledger.block_bytes();
        let first = offset / block * block;
        let run = file.map.iter().find(|r| r.at <= first && first < r.at + r.bytes);
        let Some(run) = run else {
            writeln!(
                t,
                "Recovery finds {} with {} bytes and no block for byte {offset}: it reads as \
                 zeroes.",
                file.path, file.size
            )
            .expect(LINE);
            self.never_sent(t);
            return;
        };
        let place = run.place + (first - run.at);
        let sector = Sector((place + self.played.partition.0) / SECTOR_BYTES);
        let mut held = vec![0; block as usize];
        let now = match view.read_at(place, &mut held) {
            Ok(()) => match self.played.ledger.writer(Slice::from_bytes(&held).id()) {
                Some((_, 0)) => "zeroes".to_owned(),
                Some((block, version)) => {
                    format!("block {block} of `{}`", self.played.ledger.text(version))
                }
                None => {
                    let mut before = vec![0; held.len()];
                    let base = &self.history.frames[0].base;
                    base.read_bytes(sector.bytes(), &mut before);
                    match before == held {
                        true => "old data from before the program".to_owned(),
                        false => "no block as the program wrote it".to_owned(),
                    }
                }
            },
            Err(e) => e.to_string(),
        };
        writeln!(
            t,
            "Recovery finds {} with {} bytes, and its byte {offset} at sector {}, which holds \
             {now}.",
            file.path, file.size, sector.0
        )
        .expect(LINE);
        let writes = self.writes(sector, block / SECTOR_BYTES);
        if writes.is_empty() {
            writeln!(t, "The run wrote nothing to that sector.").expect(LINE);
            return;
        }
        let zero = self.played.tape.entries.first().map_or(Time(0), |e| e.0);
        let cut = &self.history.frames[self.frame];
        let gone = self.played.tape.entries.get(cut.pos).map_or(zero, |e| e.0);
        let numbers = self.numbers();
        let before = writes.iter().filter(|w| w.0 <= cut.pos).count();
        if before == 0 {
            writeln!(t, "Nothing was sent to that sector before the power failure:").expect(LINE);
        }
        for (pos, time, id, what) in writes.iter().take(MOST) {
            let number = numbers.get(id).copied().unwrap_or(0);
            let place = self.place(*id, *pos);
            let when = match place {
                Place::Memory => {
                    format!("{:.1} us after the power failure", time.since(gone).0 as f64 / 1000.0)
                }
                _ => format!("at {:.1} us", time.since(zero).0 as f64 / 1000.0),
            };
            writeln!(t, "  request #{number}, {what}, sent {when}: {}.", place.words())
                .expect(LINE);
        }
    }

    /// Was everything that the program wrote sent by then? If not, it was in the page cache.
    fn never_sent(&self, t: &mut String) {
        let frame = &self.history.frames[self.frame];
        let entries = &self.played.tape.entries;
        let later = entries[(frame.pos + 1).min(entries.len())..].iter();
        let later = later.filter(|(_, e)| matches!(e, Entry::Submit { op: Op::Write, .. })).count();
        let words = match later {
            0 => "No write was sent after the power failure.".to_owned(),
            n => format!("{n} writes were due only after the power failure."),
        };
        writeln!(t, "{words}").expect(LINE);
    }

    /// Where the block of the inode table was.
    fn inode(&self, ino: u64, t: &mut String) {
        let Some(map) = self.classes() else { return };
        let frame = &self.history.frames[self.frame];
        let numbers = self.numbers();
        for (pos, (_, entry)) in self.played.tape.entries.iter().enumerate() {
            let Entry::Submit { id, op: Op::Write, at, sectors, .. } = entry else { continue };
            let class = self.class(Some(&*map), *at, *sectors);
            let number = numbers.get(id).copied().unwrap_or(0);
            let own = class.contains(&format!("(inode {ino})"));
            if (own || pos > frame.pos && class.contains("inode_table")) && pos + 1 > frame.pos {
                let place = self.place(*id, pos);
                writeln!(t, "  request #{number},{class}: {}.", place.words()).expect(LINE);
                return;
            }
        }
    }

    /// Reports the unpersisted writes of the drive, and why they are unpersisted.
    fn waiting(&self, t: &mut String) {
        let frame = &self.history.frames[self.frame];
        if frame.live.is_empty() {
            writeln!(t, "The drive had no unpersisted writes.").expect(LINE);
            return;
        }
        let requests: BTreeSet<u64> =
            frame.live.iter().map(|n| self.history.units[*n as usize].request).collect();
        writeln!(
            t,
            "Unpersisted in the drive: {} writes of {} requests; {} of them are lost.",
            frame.live.len(),
            requests.len(),
            self.lost.len()
        )
        .expect(LINE);
        let (map, numbers) = (self.classes(), self.numbers());
        for place in self.lost.iter().take(MOST) {
            let Some(number) = frame.live.get(*place) else { continue };
            let unit = &self.history.units[*number as usize];
            let sectors = unit.sectors();
            let class = self.class(map.as_deref(), unit.at, sectors as u32);
            let request = numbers.get(&unit.request).map_or(String::new(), |n| format!(" of #{n}"));
            writeln!(t, "  lost: sector {} + {sectors}{request},{class}", unit.at.0).expect(LINE);
        }
    }

    /// When the call that promised returned.
    fn promise(&self, v: &Violation, t: &mut String) {
        let entries = &self.played.tape.entries;
        let zero = entries.first().map_or(Time(0), |e| e.0);
        // The oracle says there which call promised it.
        let Some((_, rest)) = v.expected.rsplit_once("as `") else { return };
        let Some(call) = rest.strip_suffix("` promised") else { return };
        let mut ends = entries.iter().enumerate().filter_map(|(pos, (time, e))| match e {
            Entry::End(n) if self.played.ledger.called(*n) == call => Some((pos, *time)),
            _ => None,
        });
        let until = self.history.end_of(self.frame);
        if let Some((_, time)) = ends.rfind(|(pos, _)| *pos < until) {
            let us = time.since(zero).0 as f64 / 1000.0;
            let us = format!("{us:.1} us");
            writeln!(
                t,
                "`{call}` returned at {us}, before the power failure: its data had to be on the \
                 medium by \
                 then."
            )
            .expect(LINE);
        }
    }
}
