//! Bitmaps and counts against what is in use.

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
        free_blocks += blocks(s, group, &desc);
        free_inodes += inodes(s, group, &desc);
    }
    let place = |field: &str| format!("super block, {field}");
    let totals = [
        ("s_free_blocks_count", s.sb.free_blocks_count(), free_blocks),
        ("s_free_inodes_count", s.sb.free_inodes_count.get().into(), free_inodes),
    ];
    for (field, found, right) in totals {
        // Kernels count anew at mount.
        if found != right {
            s.harmless(Kind::TotalCount, place(field), found, right);
        }
    }
}

fn bit(bytes: &[u8], n: u32) -> bool {
    bytes.get((n / 8) as usize).is_some_and(|b| b >> (n % 8) & 1 == 1)
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

    fn note(&mut self, n: u64, says: bool) {
        self.first = self.first.or(Some((n, says)));
        self.count += 1;
    }

    fn report(&self, s: &mut State<'_>, kind: Kind, group: u32) {
        let Some((n, says)) = self.first else { return };
        let found = format!(
            "{} wrong, the first is {n}: {}",
            self.count,
            if says { "in use" } else { "free" }
        );
        s.add(kind, format!("group {group}"), found, "what is in use");
    }
}

fn padding(s: &mut State<'_>, bytes: &[u8], from: u32, group: u32, what: &str) {
    let bits = s.g.block_size.bytes() * 8;
    if (from..bits).any(|n| !bit(bytes, n)) {
        let place = format!("group {group}, {what}");
        s.add(Kind::BitmapPadding, place, "bits that are clear", "set bits behind the end");
    }
}

/// Checks a group's block bitmap; its free blocks.
fn blocks(s: &mut State<'_>, group: u32, desc: &GroupDesc) -> u64 {
    let (start, count) = (s.g.group_start(group), s.g.blocks_in_group(group));
    let is_unwritten = s.sums.descriptors() && desc.has(GroupDesc::BLOCK_UNINIT);
    let bytes = if is_unwritten { None } else { s.read(desc.block_bitmap()) };
    let (mut free, mut wrong) = (0u64, Differences::new());
    for n in 0..count {
        let block = start + u64::from(n);
        let is_used = s.claimed.has(block);
        let says = match &bytes {
            Some(b) => bit(b, n),
            None => s.meta.has(block),
        };
        free += u64::from(!is_used);
        if is_used != says {
            wrong.note(block, says);
        }
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
    let (mut free, mut dirs, mut wrong) = (0u64, 0u64, Differences::new());
    for n in 0..count {
        let number = first + n;
        let used = s.used.get(&number);
        // Reserved inodes are never free.
        let is_used = used.is_some() || number < s.g.first_inode;
        dirs += u64::from(used.is_some_and(|u| u.mode & mode::TYPE == mode::DIR));
        free += u64::from(!is_used);
        let says = bytes.as_ref().is_some_and(|b| bit(b, n));
        if is_used != says {
            wrong.note(number.into(), says);
        }
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
