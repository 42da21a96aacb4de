//! The DAT as a whole, and what it says of a number.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use wp_base::FsResult;

use crate::disk::palloc::{Role, bit, free_entries};
use crate::disk::{DatEntry, Palloc, ino, view};

use super::{File, Kind, Life, Owner, Report, Seen, Volume};

/// Entries that are given out in such a file, and the blocks of entries.
pub(super) struct Allocated {
    /// Numbers that are given out.
    pub given: BTreeSet<u64>,
    /// Blocks of entries by their first number: entries in one, and block of the device.
    pub entries: BTreeMap<u64, (u64, u64)>,
}

/// Reads descriptors and bitmaps of a file's blocks; counts of free entries against bitmaps.
pub(super) fn allocated(
    volume: &Volume<'_>,
    p: &Palloc,
    place: &str,
    data: &[(u64, u64)],
    report: &mut Report,
) -> FsResult<Allocated> {
    let mut out = Allocated { given: BTreeSet::new(), entries: BTreeMap::new() };
    let (mut used, mut described) = (BTreeMap::new(), BTreeMap::new());
    for (offset, block) in data {
        match p.role(*offset) {
            Role::Entries { first, entries } => {
                out.entries.insert(first, (entries, *block));
            }
            Role::Bitmap { group } => {
                let bytes = volume.read(*block)?;
                let first = group.saturating_mul(p.group_entries);
                let before = out.given.len();
                // Most bytes say that nothing is given out.
                let lines = (0..).step_by(64).zip(bytes.chunks(64));
                let any = lines.filter(|(_, line)| line.iter().any(|byte| *byte != 0));
                let any = any.flat_map(|(at, line)| (at..).zip(line));
                let any = any.filter(|(_, byte)| **byte != 0);
                let bits = any.flat_map(|(at, _)| at * 8..at * 8 + 8);
                let given = bits.filter(|n| *n < p.group_entries && bit(&bytes, *n));
                out.given.extend(given.map(|n| first.saturating_add(n)));
                used.insert(group, out.given.len() - before);
            }
            Role::Desc { first_group } => {
                let bytes = volume.read(*block)?;
                for group in first_group..first_group.saturating_add(p.desc_groups) {
                    described.insert(group, free_entries(&bytes, p.desc_at(group)));
                }
            }
        }
    }
    for (group, free) in &described {
        let right = p.group_entries - used.get(group).copied().unwrap_or(0) as u64;
        if u64::from(*free) != right {
            report.add(Kind::FreeCount, format!("{place}, group {group}"), free, right);
        }
    }
    for group in used.keys().filter(|g| !described.contains_key(*g)) {
        report.add(Kind::FreeCount, format!("{place}, group {group}"), "a hole", "a descriptor");
    }
    Ok(out)
}

/// The DAT.
pub(super) struct Numbers {
    given: BTreeSet<u64>,
    entries: BTreeMap<u64, DatEntry>,
    /// Numbers that the newest checkpoint refers to.
    live: RefCell<BTreeSet<u64>>,
}

impl Numbers {
    /// Reads the DAT. `None`: its map is bad, and all that follows would be.
    pub fn read(
        volume: &Volume<'_>,
        dat: &File,
        seen: &mut Seen,
        report: &mut Report,
    ) -> FsResult<Option<Numbers>> {
        let locate = |file: &File, block, offset, seen: &mut Seen, report: &mut Report| {
            let owner = Owner { ino: ino::DAT, number: 0, offset };
            let place = || file.place.clone();
            let is_right = volume.claim(block, owner, place, seen, report);
            is_right.then_some((block, Life::ALWAYS))
        };
        let walked = volume.walk((dat, false), &locate, seen, report)?;
        if walked.is_bad {
            return Ok(None);
        }
        let p = volume.g.dat;
        let found = allocated(volume, &p, "DAT", &walked.data, report)?;
        let mut entries = BTreeMap::new();
        for (first, (count, block)) in &found.entries {
            let bytes = volume.read(*block)?;
            for n in *first..first.saturating_add(*count) {
                let (_, at) = p.place(n);
                if let Some(entry) = view::<DatEntry>(&bytes, at)
                    && found.given.contains(&n)
                {
                    entries.insert(n, *entry);
                }
            }
        }
        let live = RefCell::default();
        Ok(Some(Numbers { given: found.given, entries, live }))
    }

    /// The block of number `pointer` of a file, and its life. `None`: it was reported.
    pub fn locate(
        &self,
        volume: &Volume<'_>,
        newest: u64,
        file: &File,
        (number, offset): (u64, Option<u64>),
        seen: &mut Seen,
        report: &mut Report,
    ) -> Option<(u64, Life)> {
        let place = || format!("{}, number {number}", file.place);
        if !self.given.contains(&number) {
            report.add(Kind::NotAllocated, place(), number, "an allocated number");
            return None;
        }
        let Some(entry) = self.entries.get(&number) else {
            report.add(Kind::DatEntry, place(), "a hole", "an entry in the DAT");
            return None;
        };
        let (start, end, cno) = (entry.start.get(), entry.end.get(), file.cno);
        let is_right = if cno == newest {
            self.live.borrow_mut().insert(number);
            start <= cno && end == DatEntry::LIVE
        } else {
            start <= cno && cno < end
        };
        if !is_right {
            let life = if end == DatEntry::LIVE {
                format!("{start} to now")
            } else {
                format!("{start} to {end}")
            };
            report.add(Kind::DatEntry, place(), life, format!("a lifetime that includes {cno}"));
            return None;
        }
        let owner = Owner { ino: file.ino, number, offset };
        let block = entry.blocknr.get();
        volume.claim(block, owner, place, seen, report).then_some((block, Life { start, end }))
    }

    /// What the newest checkpoint is to see is referred to by it.
    pub fn check_all_seen(&self, report: &mut Report) {
        let live = self.live.borrow();
        for (number, entry) in &self.entries {
            // Number 0 is given out from the start, and never used.
            if *number != 0 && entry.end.get() == DatEntry::LIVE && !live.contains(number) {
                let found = format!("block {}, no reference", entry.blocknr.get());
                report.add(Kind::DatLost, format!("number {number}"), found, "a reference");
            }
        }
    }
}
