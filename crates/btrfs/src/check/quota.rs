//! Quota groups: what each says that its subvolumes have, and what they have alone.

use std::collections::{BTreeMap, BTreeSet};

use zerocopy::little_endian::U64;

use crate::disk::{kind, view};

use super::Report;
use super::extents::Extents;
use super::finding::{At, Kind};
use super::roots::Roots;
use super::volume::{Found, Seen};

/// Bits of the status' flags. `BTRFS_QGROUP_STATUS_FLAG_*`.
const RESCAN: u64 = 1 << 1;
const INCONSISTENT: u64 = 1 << 2;
/// A group's level is above this bit of its number; below are subvolumes, on level 0.
const LEVEL_BIT: u32 = 48;

/// What the quota tree says.
#[derive(Default)]
pub(super) struct Quota {
    /// Generation and flags.
    status: Option<(u64, u64)>,
    /// Bytes that are referenced, and those that are exclusive, by group.
    groups: BTreeMap<u64, (u64, u64, At)>,
    /// Members by group.
    members: BTreeMap<u64, BTreeSet<u64>>,
}

impl Quota {
    /// An item of the tree.
    pub fn item(&mut self, item: &Found<'_>, report: &mut Report) {
        let key = item.at.key;
        let word = |n: usize| view::<U64>(item.bytes, n * 8).map(|n| n.get());
        match key.kind {
            kind::QGROUP_STATUS => match (word(1), word(2)) {
                (Some(generation), Some(flags)) => self.status = Some((generation, flags)),
                _ => report.add(Kind::Item, item.at, item.bytes.len(), "32 bytes"),
            },
            kind::QGROUP_INFO => match (word(1), word(3), word(4)) {
                (Some(referenced), Some(exclusive), Some(_)) => {
                    self.groups.insert(key.offset, (referenced, exclusive, item.at));
                }
                _ => report.add(Kind::Item, item.at, item.bytes.len(), "40 bytes"),
            },
            kind::QGROUP_RELATION => {
                // Both directions have an item.
                let (low, high) = (key.objectid.min(key.offset), key.objectid.max(key.offset));
                self.members.entry(high).or_default().insert(low);
            }
            _ => {}
        }
    }

    /// Holds the counts against what trees of files have. Those that Linux does not believe either
    /// are not checked.
    pub fn compare(
        &self,
        generation: u64,
        roots: &Roots,
        extents: &Extents,
        seen: &Seen,
        report: &mut Report,
    ) {
        let is_believed = self.status.is_some_and(|(newest, flags)| {
            newest == generation && flags & (RESCAN | INCONSISTENT) == 0
        });
        let Some(users) = seen.subvolumes.as_ref().filter(|_| is_believed) else {
            report.not_checked.push("quota groups, which are marked to be counted again");
            return;
        };
        // Extents of the same subvolumes count alike.
        let mut sums: BTreeMap<&BTreeSet<u64>, u64> = BTreeMap::new();
        for (start, set) in users {
            let bytes = extents.all.get(start).map_or(0, |e| e.bytes);
            let sum = sums.entry(set).or_default();
            *sum = sum.saturating_add(bytes);
        }
        let numbers: BTreeSet<u64> = roots.numbers().into_iter().collect();
        for (group, (referenced, exclusive, at)) in &self.groups {
            let below = self.subvolumes(*group);
            // Of a subvolume that is gone nobody counts any more.
            if below.is_disjoint(&numbers) {
                continue;
            }
            let (mut any, mut only) = (0u64, 0u64);
            for (set, bytes) in sums.iter().filter(|(set, _)| !set.is_disjoint(&below)) {
                any = any.saturating_add(*bytes);
                if set.is_subset(&below) {
                    only = only.saturating_add(*bytes);
                }
            }
            for (what, found, right) in
                [("referenced", *referenced, any), ("exclusive", *exclusive, only)]
            {
                if found != right {
                    report.add(Kind::Quota, at, format!("{found} bytes {what}"), right);
                }
            }
        }
    }

    /// The subvolumes in a group, and in the groups in it.
    fn subvolumes(&self, group: u64) -> BTreeSet<u64> {
        let (mut out, mut seen, mut left) = (BTreeSet::new(), BTreeSet::new(), vec![group]);
        while let Some(group) = left.pop() {
            if !seen.insert(group) {
                continue;
            }
            match group >> LEVEL_BIT {
                0 => drop(out.insert(group)),
                _ => left.extend(self.members.get(&group).into_iter().flatten()),
            }
        }
        out
    }
}
