//! Checksums: data that has some, all of it; nothing else.

use std::collections::BTreeMap;

use crate::disk::misc::check_csum_item;
use crate::disk::{id, index, kind, wide};

use super::Report;
use super::extents::Extents;
use super::finding::{At, Kind};
use super::volume::{Found, Volume};

const SECTOR: u64 = 4096;

/// A part of a data extent that a file has.
#[derive(Clone, Copy, Debug)]
pub(super) struct PieceSeen {
    /// The extent.
    pub extent: u64,
    /// First address and bytes of the part that has checksums.
    pub start: u64,
    pub bytes: u64,
    /// Was it written, rather than allocated beforehand?
    pub is_written: bool,
    /// Is its file one with checksums?
    pub has_sums: bool,
    /// Is it compressed? Then it has checksums whatever its file says: wrong bytes must never reach
    /// a decompressor.
    pub is_compressed: bool,
    pub at: At,
}

/// All checksums.
pub(super) struct Sums {
    each: usize,
    /// First address and bytes, joined where they touch.
    runs: BTreeMap<u64, u64>,
    /// Address, checksums, where they stand.
    items: Vec<(u64, Vec<u8>, At)>,
    end: u64,
}

impl Sums {
    pub fn new(each: usize) -> Sums {
        Sums { each, runs: BTreeMap::new(), items: Vec::new(), end: 0 }
    }

    /// An item of the tree.
    pub fn item(&mut self, item: &Found<'_>, report: &mut Report) {
        let key = item.at.key;
        if key.kind != kind::EXTENT_CSUM || key.objectid != id::EXTENT_CSUM {
            report.add(Kind::Sums, item.at, key, "a checksum item");
            return;
        }
        if let Err(e) = check_csum_item(key, item.bytes.len(), self.each, item.at.byte) {
            return report.error(Kind::Sums, item.at, e);
        }
        let bytes = wide(item.bytes.len() / self.each) * SECTOR;
        let Some(end) = key.offset.checked_add(bytes) else {
            report.add(Kind::Sums, item.at, key.offset, "an end below 2^64");
            return;
        };
        if key.offset < self.end {
            let expected = format!("{} or more: they overlap", self.end);
            report.add(Kind::Sums, item.at, key.offset, expected);
        }
        self.items.push((key.offset, item.bytes.to_vec(), item.at));
        let joined = key.offset == self.end;
        match self.runs.last_entry().filter(|_| joined) {
            Some(mut last) => *last.get_mut() += bytes,
            None => {
                self.runs.insert(key.offset, bytes);
            }
        }
        self.end = self.end.max(end);
    }

    /// How many bytes of these have checksums?
    fn covered(&self, start: u64, bytes: u64) -> u64 {
        let end = start.saturating_add(bytes);
        let mut sum = 0;
        let before = self.runs.range(..start).next_back();
        for (from, n) in before.into_iter().chain(self.runs.range(start..end)) {
            let stop = from.saturating_add(*n).min(end);
            sum += stop.saturating_sub(start.max(*from));
        }
        sum
    }

    /// Holds them against extents and files.
    pub fn compare(
        &self,
        volume: &Volume<'_>,
        extents: &Extents,
        pieces: &[PieceSeen],
        report: &mut Report,
    ) {
        for (start, bytes) in &self.runs {
            let end = start + bytes;
            let mut at = *start;
            while at < end {
                let extent = extents.all.range(..=at).next_back();
                let extent = extent.filter(|(s, e)| e.is_data() && at - **s < e.bytes);
                let Some((from, e)) = extent else {
                    let key = crate::disk::misc::csum_key(at);
                    let place = At { tree: id::CSUM_TREE, key, byte: volume.place(at) };
                    report.add(Kind::Sums, place, "checksums", "a data extent with checksums");
                    break;
                };
                at = from.saturating_add(e.bytes);
            }
        }
        let written: std::collections::BTreeSet<u64> =
            pieces.iter().filter(|p| p.is_written).map(|p| p.extent).collect();
        for p in pieces {
            let have = self.covered(p.start, p.bytes);
            let said = format!("{have} of {} bytes", p.bytes);
            if p.is_written && p.is_compressed && have < p.bytes {
                report.add(Kind::Sums, p.at, said, "checksums of all of a compressed extent");
            } else if p.is_written && p.has_sums && have < p.bytes {
                report.add(Kind::Sums, p.at, said, "checksums of all sectors");
            } else if p.is_written && !p.has_sums && !p.is_compressed && have > 0 {
                report.add(Kind::Sums, p.at, said, "none (NODATASUM)");
            } else if !p.is_written && have > 0 && !written.contains(&p.extent) {
                report.add(Kind::Sums, p.at, said, "none (not written)");
            }
        }
    }

    /// Holds data against them.
    pub fn check_contents(&self, volume: &Volume<'_>, report: &mut Report) {
        let csum = volume.common.csum;
        let mut sector = vec![0; index(SECTOR)];
        for (start, sums, place) in &self.items {
            for (n, sum) in sums.chunks(self.each).enumerate() {
                let logical = start + wide(n) * SECTOR;
                for at in volume.places(logical, SECTOR) {
                    let read = volume.view.read_at(at, &mut sector);
                    let found = csum.sum(&sector);
                    if let Err(e) = read {
                        report.error(Kind::Contents, place, e);
                    } else if found != csum.stored(sum) {
                        let place = format!("{place}: data of {logical} at byte {at:#x}");
                        let right = format!("{:#x}", csum.stored(sum));
                        report.add(Kind::Contents, place, format!("{found:#x}"), right);
                    }
                }
            }
        }
    }
}
