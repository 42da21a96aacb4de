//! Bitmaps and counts against what is in use.

use std::collections::BTreeMap;

use crate::disk::GroupDesc;
use crate::disk::inode::mode;

use super::finding::Kind;
use super::state::State;

/// Compares each group's bitmaps and counts, then the super block's.
pub(super) fn pass(s: &mut State<'_>) {
    if s.budget == 0 {
        return;
    }
    let (mut free_blocks, mut free_inodes) = (0u64, 0u64);
    for group in 0..s.g.groups {
        let Some(desc) = s.groups.get(group as usize).copied() else { return };
        if s.base.as_ref().is_some_and(|b| b.has_counts(s, group, &desc)) {
            free_blocks += u64::from(desc.free_blocks_count());
            free_inodes += u64::from(desc.free_inodes_count());
            continue;
        }
        free_blocks += blocks(s, group, &desc);
        free_inodes += inodes(s, group, &desc);
    }
    let place = |field: &str| format!("super block, {field}");
    let totals = [
        ("s_free_blocks_count", s.sb.free_blocks_count(), free_blocks << s.g.cluster_bits),
        ("s_free_inodes_count", s.sb.free_inodes_count.get().into(), free_inodes),
    ];
    for (field, found, right) in totals {
        // Kernels count anew at mount.
        if found != right {
            s.harmless(Kind::TotalCount, place(field), found, right);
        }
    }
}

/// What a bitmap says wrongly: first such bit, and how many.
struct Differences {
    first: Option<(u64, bool)>,
    count: u64,
}

impl Differences {
    fn new() -> Differences {
        Differences { first: None, count: 0 }
    }

    /// Notes where `says` is not `is`: one bit a number from `n` on.
    fn note(&mut self, n: u64, says: u64, is: u64) {
        let wrong = says ^ is;
        if wrong != 0 {
            let bit = wrong.trailing_zeros();
            self.first = self.first.or(Some((n + u64::from(bit), says >> bit & 1 == 1)));
            self.count += u64::from(wrong.count_ones());
        }
    }

    fn report(&self, s: &mut State<'_>, kind: Kind, group: u32) {
        let Some((n, says)) = self.first else { return };
        let found = format!(
            "{} wrong bits, the first is {n}: {}",
            self.count,
            if says { "in use" } else { "free" }
        );
        s.add(kind, format!("group {group}"), found, "the actual state");
    }
}

/// Word `n` of a bitmap; zeroes behind its end.
fn word(bytes: &[u8], n: u32) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    words.get(n as usize).map_or(0, |w| u64::from_le_bytes(*w))
}

/// The bits of word `n` that stand for one of `count` things.
fn mask(n: u32, count: u32) -> u64 {
    u64::MAX >> (64 - (count - n * 64).min(64))
}

fn padding(s: &mut State<'_>, bytes: &[u8], from: u32, group: u32, what: &str) {
    let (whole, rest) = (from.div_ceil(8) as usize, from % 8);
    let begun = bytes.get((from / 8) as usize).filter(|_| rest != 0);
    let is_set = begun.is_none_or(|b| b >> rest == 0xFF >> rest)
        && bytes.get(whole..).is_none_or(|b| b.iter().all(|b| *b == 0xFF));
    if !is_set {
        let place = format!("group {group}, {what}");
        s.add(Kind::BitmapPadding, place, "clear bits", "set padding bits");
    }
}

/// Checks a group's block bitmap; its free blocks, or clusters with bigalloc.
fn blocks(s: &mut State<'_>, group: u32, desc: &GroupDesc) -> u64 {
    let (start, count) = s.group_clusters(group);
    let is_unwritten = s.sums.descriptors() && desc.has(GroupDesc::BLOCK_UNINIT);
    let bytes = if is_unwritten { None } else { s.read(desc.block_bitmap()) };
    let (mut free, mut wrong) = (u64::from(count), Differences::new());
    let is_empty = bytes.is_none() && s.claimed.is_untouched(start, count.into());
    for n in 0..if is_empty { 0 } else { count.div_ceil(64) } {
        let (block, mask) = (start + u64::from(n) * 64, mask(n, count));
        let used = s.claimed.at(block) & mask;
        // A bitmap that is not there says what its group's metadata takes.
        let says = bytes.as_ref().map_or_else(|| s.meta.at(block), |b| word(b, n)) & mask;
        free -= u64::from(used.count_ones());
        wrong.note(block, says, used);
    }
    wrong.report(s, Kind::BlockBitmap, group);
    if let Some(bytes) = &bytes {
        padding(s, bytes, count, group, "block bitmap");
        let own = bytes.get(..s.g.block_bitmap_bytes()).unwrap_or(bytes);
        if !s.sums.bitmap_ok(own, desc.block_bitmap_csum()) {
            let (found, right) = (desc.block_bitmap_csum(), s.sums.bitmap(own));
            s.add(Kind::BitmapChecksum, format!("group {group}, block bitmap"), found, right);
        }
    }
    if u64::from(desc.free_blocks_count()) != free {
        let place = format!("group {group}, bg_free_blocks_count");
        s.add(Kind::GroupCount, place, desc.free_blocks_count(), free);
    }
    free
}

/// Checks a group's inode bitmap; its free inodes.
fn inodes(s: &mut State<'_>, group: u32, desc: &GroupDesc) -> u64 {
    let count = s.g.inodes_per_group;
    let first = group * count + 1;
    let is_unwritten = s.sums.descriptors() && desc.has(GroupDesc::INODE_UNINIT);
    let bytes = if is_unwritten { None } else { s.read(desc.inode_bitmap()) };
    let (mut free, mut dirs, mut wrong) = (u64::from(count), 0u64, Differences::new());
    let mut used = BTreeMap::new();
    let mut take = |number: u32| {
        let n = number - first;
        *used.entry(n / 64).or_insert(0u64) |= 1 << (n % 64);
    };
    for (number, u) in s.used.range(first..=first + (count - 1)) {
        dirs += u64::from(u.mode & mode::TYPE == mode::DIR);
        take(*number);
    }
    // Reserved inodes are never free.
    (first..s.g.first_inode).take(count as usize).for_each(take);
    let is_empty = bytes.is_none() && used.is_empty();
    for n in 0..if is_empty { 0 } else { count.div_ceil(64) } {
        let used = used.get(&n).copied().unwrap_or(0);
        let says = bytes.as_ref().map_or(0, |b| word(b, n)) & mask(n, count);
        free -= u64::from(used.count_ones());
        wrong.note(u64::from(first) + u64::from(n) * 64, says, used);
    }
    wrong.report(s, Kind::InodeBitmap, group);
    if let Some(bytes) = &bytes {
        padding(s, bytes, count, group, "inode bitmap");
        let own = bytes.get(..s.g.inode_bitmap_bytes()).unwrap_or(bytes);
        if !s.sums.bitmap_ok(own, desc.inode_bitmap_csum()) {
            let (found, right) = (desc.inode_bitmap_csum(), s.sums.bitmap(own));
            s.add(Kind::BitmapChecksum, format!("group {group}, inode bitmap"), found, right);
        }
    }
    let counts = [
        ("bg_free_inodes_count", desc.free_inodes_count(), free),
        ("bg_used_dirs_count", desc.used_dirs_count(), dirs),
    ];
    for (field, found, right) in counts {
        if u64::from(found) != right {
            s.add(Kind::GroupCount, format!("group {group}, {field}"), found, right);
        }
    }
    free
}
