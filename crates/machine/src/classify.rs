//! From what happened to what it was: events of a run as lines with the class of their blocks.
//!
//! Classes come from the image's bytes (super block, descriptors, inodes, extent trees, log
//! blocks), never from what our own file system believes it wrote.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt::Write;

use wp_base::FsResult;
use wp_base::event::{BlockAction, Event, Record, rwbs};
use wp_base::{Sector, Time};
use wp_medium::{MediumView, View};
use wp_vfs::{BlockMap, FsEntry, Options};

use crate::lines::TraceLine;

/// Names blocks of an image.
pub struct Classifier {
    map: Box<dyn BlockMap>,
    names: BTreeMap<u64, String>,
    start: Sector,
    /// The image, if what nothing uses any more is named, too.
    past: Option<MediumView>,
}

impl Classifier {
    /// Reads an image of the partition that starts at `start` of its device.
    pub fn new(
        fs: &FsEntry,
        options: &Options,
        view: &dyn View,
        start: Sector,
    ) -> FsResult<Classifier> {
        let listing = (fs.inspect)(view, options, false)?;
        let names = listing.files.into_iter().map(|f| (f.ino, f.path)).collect();
        Ok(Classifier { map: (fs.blocks)(view)?, names, start, past: None })
    }

    /// The same for the writes of a whole run: what nothing uses any more at its end has the class
    /// of what stands there ([`BlockMap::written`]), and metadata of a file has its name, too. An
    /// image whose files cannot be listed so, as one whose recovery looks at zones, has no names.
    /// Errors: as [`Classifier::new`].
    pub fn of_writes(
        fs: &FsEntry,
        options: &Options,
        view: MediumView,
        start: Sector,
    ) -> FsResult<Classifier> {
        let files = (fs.inspect)(&view, options, false).map_or(Vec::new(), |found| found.files);
        let names = files.into_iter().map(|f| (f.ino, f.path)).collect();
        Ok(Classifier { map: (fs.blocks)(&view)?, names, start, past: Some(view) })
    }

    /// Class of one block of the image; file data with the file's name: `data:f_3`.
    pub fn block(&self, block: u64) -> String {
        let name = self.map.owner(block).and_then(|(ino, _)| self.names.get(&ino));
        let Some(view) = &self.past else {
            let class = self.map.class(block);
            return match name {
                Some(name) if class == "data" => format!("data:{name}"),
                _ => class.to_owned(),
            };
        };
        let class = self.map.written(view, block);
        // What joins names in a range stands in none of them.
        let plain = |name: &String| name.replace(['+', '*', ':', '\t', '\n'], "_");
        name.map_or(class.to_owned(), |name| format!("{class}:{}", plain(name)))
    }

    /// Classes of a device range: `journal*5`, `inode_table*2+gdt`, `data:f_0+data:f_1`.
    pub fn range(&self, at: Sector, sectors: u32) -> String {
        let per = u64::from(self.map.block_bytes() / 512);
        let Some(rel) = at.0.checked_sub(self.start.0) else { return "outside".to_owned() };
        let mut runs: Vec<(String, u32)> = Vec::new();
        let last = (rel + u64::from(sectors)).div_ceil(per);
        for block in rel / per..last {
            let class = self.block(block);
            match runs.last_mut() {
                Some((c, n)) if *c == class && (self.past.is_some() || !c.starts_with("data:")) => {
                    *n += 1;
                }
                _ => runs.push((class, 1)),
            }
        }
        let parts: Vec<String> =
            runs.into_iter().map(|(c, n)| if n == 1 { c } else { format!("{c}*{n}") }).collect();
        parts.join("+")
    }

    /// Block and journal events as lines, times counted from the record at index `zero`. What
    /// happened in the same nanosecond but before it counts as one nanosecond earlier.
    pub fn lines(&self, records: &[Record], zero: usize) -> Vec<TraceLine> {
        self.each_line(records, zero).collect()
    }

    /// The same, one after the other.
    pub fn each_line<'a>(
        &'a self,
        records: &'a [Record],
        zero: usize,
    ) -> impl Iterator<Item = TraceLine> + 'a {
        lines_by(records, zero, |_, at, sectors| self.range(at, sectors))
    }
}

/// Block and journal events as [`Classifier::each_line`] has them; `class`: what the blocks of the
/// event at this index are, which no flush has.
pub fn lines_by<'a>(
    records: &'a [Record],
    zero: usize,
    class: impl Fn(usize, Sector, u32) -> String + 'a,
) -> impl Iterator<Item = TraceLine> + 'a {
    let at = records.get(zero).map_or(Time::ZERO, |r| r.at);
    records.iter().enumerate().filter_map(move |(i, r)| {
        let mut line = line(r, at, |at, sectors| class(i, at, sectors))?;
        if i < zero && line.ns_from_fsync_start >= 0 {
            line.ns_from_fsync_start = -1;
        }
        Some(line)
    })
}

fn line(r: &Record, zero: Time, range: impl FnOnce(Sector, u32) -> String) -> Option<TraceLine> {
    let ns_from_fsync_start = r.at.0 as i64 - zero.0 as i64;
    let comm = r.task.to_string();
    match &r.event {
        Event::Block { action, op, flags, at, sectors, .. } => {
            if !is_listed(r) {
                return None;
            }
            let empty = *sectors == 0;
            let class = match (empty, action) {
                (true, BlockAction::Complete) => "flush_done".to_owned(),
                (true, _) => "flush".to_owned(),
                _ => range(*at, *sectors),
            };
            Some(TraceLine {
                ns_from_fsync_start,
                action: action.letter(),
                rwbs: rwbs(*op, *flags),
                sector: (!empty).then_some(at.0),
                sectors: *sectors,
                class,
                comm,
            })
        }
        Event::Jbd2 { what, tid, value } => Some(TraceLine {
            ns_from_fsync_start,
            action: 'J',
            rwbs: (*what).to_owned(),
            sector: None,
            sectors: 0,
            class: format!("transaction {tid} value {value}"),
            comm,
        }),
        _ => None,
    }
}

/// Does the event become a line? Those of the journal, and Q, M, F, I, D and C.
pub fn is_listed(r: &Record) -> bool {
    match r.event {
        Event::Block { action, .. } => matches!(
            action,
            BlockAction::Queue
                | BlockAction::BackMerge
                | BlockAction::FrontMerge
                | BlockAction::Insert
                | BlockAction::Issue
                | BlockAction::Complete
        ),
        Event::Jbd2 { .. } => true,
        _ => false,
    }
}

/// Lines in the format of the recorded kernels' files ([`crate::lines::parse_tsv`]).
pub fn lines_to_tsv<L: Borrow<TraceLine>>(
    lines: impl IntoIterator<Item = L>,
    fsync_end_ns: i64,
) -> String {
    let mut out = format!("#fsync_end {}\n", seconds(fsync_end_ns));
    for l in lines {
        let l = l.borrow();
        let sector = l.sector.map_or("-".to_owned(), |s| s.to_string());
        let (time, action, rwbs) = (seconds(l.ns_from_fsync_start), l.action, &l.rwbs);
        let TraceLine { sectors, class, comm, .. } = l;
        writeln!(out, "{time}\t{action}\t{rwbs}\t{sector}\t{sectors}\t{class}\t{comm}")
            .expect("a string takes it");
    }
    out
}

fn seconds(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    format!("{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// Index of the first mark with this text.
pub fn mark(records: &[Record], text: &str) -> Option<usize> {
    records.iter().position(|r| matches!(&r.event, Event::Mark { text: t } if &**t == text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::parse_tsv;

    #[test]
    fn lines_survive_a_file() {
        let line = |ns, sector| TraceLine {
            ns_from_fsync_start: ns,
            action: 'D',
            rwbs: "WS".to_owned(),
            sector,
            sectors: 8,
            class: "data:f_0".to_owned(),
            comm: "w2".to_owned(),
        };
        let lines = [line(-1, Some(8)), line(1_000_000_001, None)];
        let read = parse_tsv(&lines_to_tsv(&lines, 5)).expect("our own format");
        assert_eq!((read.lines.as_slice(), read.fsync_end_ns), (&lines[..], 5));
    }
}
