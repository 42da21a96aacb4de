//! A failure as a timeline: which calls, what the device was sent meanwhile, what of it was in
//! doubt when the power went, what was lost, and what recovery made of the rest.

use std::collections::BTreeMap;
use std::fmt::Write;

use wp_base::event::{Op, rwbs};
use wp_base::{SECTOR_BYTES, Sector, Time};
use wp_crash::{Entry, History};
use wp_medium::{Medium, MediumView, Slice};
use wp_vfs::{BlockMap, FsEntry, Options};

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
    /// Units in doubt that are lost, by their place in the frame.
    pub lost: &'a [usize],
}

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
    fn classes(&self) -> Option<Box<dyn BlockMap>> {
        let last = self.history.frames.last()?;
        let mut medium = last.base.clone();
        for n in &last.live {
            self.history.units[*n as usize].apply(&mut medium);
        }
        let start = self.played.partition.0 / SECTOR_BYTES;
        let writes = (self.fs.0.recover)(&self.view(medium.clone()), self.fs.1).ok()?;
        for (at, slice) in writes {
            medium.write(Sector(at.0 + start), &slice);
        }
        (self.fs.0.blocks)(&self.view(medium)).ok()
    }

    /// The timeline, from `calls` calls before the cut.
    pub fn tell(&self, calls: usize) -> String {
        let mut t = String::new();
        let classes = self.classes();
        let frame = &self.history.frames[self.frame];
        let until = self.history.until(self.frame, |i| !self.lost.contains(&i));
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
        for (pos, (at, entry)) in entries.iter().enumerate().take(until).skip(from) {
            if pos == frame.pos + 1 {
                writeln!(t, "  -- from here on the power may have gone --").expect(LINE);
            }
            let us = at.since(zero).0 as f64 / 1000.0;
            match entry {
                Entry::Begin(n) => {
                    writeln!(t, "{us:>14.1} us  {}", self.played.ledger.text(n + 1)).expect(LINE);
                }
                Entry::End(n) => {
                    writeln!(t, "{us:>14.1} us  returned: {}", self.played.ledger.text(n + 1))
                        .expect(LINE);
                }
                Entry::Submit { id, op, flags, at, sectors, .. } => {
                    let what = rwbs(*op, *flags);
                    let class = match op {
                        Op::Flush => String::new(),
                        _ => self.class(classes.as_deref(), *at, *sectors),
                    };
                    let fate = match fates.get(id) {
                        Some(f) if pos <= frame.pos => fate_words(f),
                        None if pos > frame.pos && *op != Op::Flush => " not there".to_owned(),
                        _ => String::new(),
                    };
                    writeln!(
                        t,
                        "{us:>14.1} us    > {what:<5} {:>9} +{sectors:<5}{class}{fate}  #{id}",
                        at.0
                    )
                    .expect(LINE);
                }
                Entry::Complete { id, ok } => {
                    let how = if *ok { "" } else { " with an error" };
                    writeln!(t, "{us:>14.1} us    < #{id} done{how}").expect(LINE);
                }
                Entry::Model(_) => {}
            }
        }
        t
    }

    fn class(&self, classes: Option<&dyn BlockMap>, at: Sector, sectors: u32) -> String {
        let Some(map) = classes else { return String::new() };
        let per = u64::from(map.block_bytes()) / SECTOR_BYTES;
        let start = self.played.partition.0 / SECTOR_BYTES;
        let first = (at.0.saturating_sub(start)) / per;
        let mut names: Vec<String> = Vec::new();
        for block in first..first + u64::from(sectors).div_ceil(per) {
            let name = match (map.class(block), map.owner(block)) {
                ("data", Some((ino, _))) => format!("data of inode {ino}"),
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
    pub fn recovered(&self) -> wp_base::FsResult<Vec<(Sector, Slice)>> {
        (self.fs.0.recover)(&self.view(self.medium()), self.fs.1)
    }
}

fn fate_words(fates: &[(&str, u64)]) -> String {
    let lost = fates.iter().filter(|(f, _)| *f == "LOST").count();
    match lost {
        0 => " [in doubt, kept]".to_owned(),
        n if n == fates.len() => " [in doubt, LOST]".to_owned(),
        n => format!(" [in doubt, {n} of {} units LOST]", fates.len()),
    }
}
