//! Inodes with a meaning of their own: reserved ones, journal, resize inode, orphan file.

use wp_jbd2::disk as log;
use zerocopy::FromBytes;

use crate::disk::inode::flag;
use crate::disk::orphan::{self, OrphanTail};
use crate::disk::{Inode, compat, incompat, ino, ro_compat};

use super::finding::Kind;
use super::state::{State, Used};
use super::{blocks, inodes};

/// `EXT4_BOOT_LOADER_INO`: may hold a boot loader, without a name.
const BOOT_LOADER: u32 = 5;

/// Is it a quota file? That of projects has no reserved number.
pub(super) fn is_hidden(s: &State<'_>, number: u32) -> bool {
    let quota = [s.sb.usr_quota_inum.get(), s.sb.grp_quota_inum.get(), s.sb.prj_quota_inum.get()];
    s.sb.has_ro_compat(ro_compat::QUOTA) && quota.contains(&number)
}

/// An inode below the first free one, root excepted, that is not all zero.
pub(super) fn reserved(s: &mut State<'_>, number: u32, i: &Inode) {
    low_dtime(s, number, i);
    let is_quota = is_hidden(s, number);
    let has_journal = s.sb.has_internal_journal() && number == s.sb.journal_inum.get();
    if number == ino::RESIZE && s.sb.has_compat(compat::RESIZE_INODE) {
        hidden(s, number, i);
        return resize(s, i);
    }
    if has_journal || is_quota {
        hidden(s, number, i);
        if !i.is_file() {
            let kind = if has_journal { Kind::JournalInode } else { Kind::InodeMode };
            s.add(kind, format!("inode {number}, i_mode"), i.mode.get(), "a regular file");
            if i.kind() != 0 {
                return;
            }
        }
        return if has_journal { journal(s, number, i) } else { inodes::file(s, number, i) };
    }
    // What mke2fs and kernels leave in the others are times.
    let place = |field: &str| format!("inode {number}, {field}");
    if number == ino::USER_QUOTA || number == ino::GROUP_QUOTA {
        if i.links_count.get() != 0 || i.blocks_lo.get() != 0 || i.pointer(0) != 0 {
            s.add(Kind::InodeReserved, place("i_block"), i.pointer(0), "an inode not in use");
        }
        return;
    }
    if i.has(flag::CASEFOLD) {
        let expected = "no flag of a feature that the file system lacks";
        s.add(Kind::InodeReserved, place("i_flags"), i.flags.get(), expected);
    }
    let is_boot = number == BOOT_LOADER && !i.is_dir();
    if is_boot && i.is_file() {
        hidden(s, number, i);
        return inodes::file(s, number, i);
    }
    if number == 1 {
        if i.uid_lo.get() != 0 || i.gid_lo.get() != 0 || i.links_count.get() != 0 {
            let expected = "no owner and no links";
            s.add(Kind::InodeReserved, place("i_links_count"), i.links_count.get(), expected);
        }
        // Blocks that the device cannot read; where they lie is not its fault.
        let extents = i.has(flag::EXTENTS) && s.sb.has_incompat(incompat::EXTENTS);
        if extents {
            blocks::walk(s, number, i, false);
        }
        let pointers = if extents { 0..0 } else { 0..12 };
        for p in pointers.map(|n| u64::from(i.pointer(n))).filter(|p| *p != 0) {
            s.claimed.add(p >> s.g.cluster_bits);
            let first = u64::from(s.g.first_data_block);
            if (first..=first + u64::from(s.g.gdt_blocks)).contains(&p) {
                let expected = "no block of the super block or the group descriptors";
                s.add(Kind::BlockTwice, place("i_block"), p, expected);
            } else if s.meta.has(p >> s.g.cluster_bits) {
                let expected = "no bitmap and no block of an inode table: move it";
                s.add(Kind::BlockTwice, place("i_block"), p, expected);
            } else if !s.g.holds(p, 1) {
                s.add(Kind::BlockRange, place("i_block"), p, "a block of the file system");
            }
        }
    }
    let has_blocks = i.blocks_raw() != 0 && number != 1;
    let has_attributes =
        s.sb.has_compat(compat::EXT_ATTR) && (s.g.holds(i.file_acl(), 1) || i.file_acl() == 1);
    let has_mode = i.mode.get() != 0 && !is_boot;
    let is_inline = number == 1 && i.has(flag::INLINE_DATA);
    if has_mode || has_blocks || has_attributes || is_inline {
        let expected = "an inode that is not in use";
        s.add(Kind::InodeReserved, place("i_mode"), i.mode.get(), expected);
    }
    if number != 1 && !inodes::fits_pointers(s, i.size()) {
        s.add(Kind::InodeSize, place("i_size"), i.size(), "at most the limit of the block map");
    }
}

/// Numbers so low in place of a time are those of a next orphan, if clocks have been right.
pub(super) fn low_dtime(s: &mut State<'_>, number: u32, i: &Inode) {
    let (count, found) = (s.g.inodes_count, i.dtime.get());
    let is_old = |t: u32| t != 0 && t < count;
    let clock_is_wrong =
        is_old(s.sb.wtime.get()) || is_old(s.sb.mtime.get()) || is_old(s.sb.mkfs_time.get());
    if found != 0 && found < count && !clock_is_wrong {
        let expected = "a deletion time, not the next orphan";
        s.add(Kind::InodeDtime, format!("inode {number}, i_dtime"), found, expected);
    }
}

/// In use without a name.
fn hidden(s: &mut State<'_>, number: u32, i: &Inode) {
    let links = i.links_count.get();
    let (mode, names) = (i.mode.get(), u32::from(links));
    s.used.insert(number, Used { mode, links, names, indexed: false });
}

fn journal(s: &mut State<'_>, number: u32, i: &Inode) {
    if i.links_count.get() == 0 {
        s.add(Kind::JournalInode, format!("inode {number}, i_links_count"), 0, "1");
    }
    let map = blocks::walk(s, number, i, true);
    inodes::file_of(s, number, i, &map);
    let mut next = 0u64;
    for (logical, _, n) in &map.runs {
        if u64::from(*logical) != next || map.has_unwritten {
            let expected = "a journal without holes";
            s.add(Kind::JournalInode, format!("inode {number}, i_block"), next, expected);
            break;
        }
        next += u64::from(*n);
    }
    let Some((0, first, _)) = map.runs.first().copied() else {
        let expected = "a log";
        s.add(Kind::JournalInode, format!("inode {number}, i_block"), "no block", expected);
        return;
    };
    let Some(bytes) = (s.g.holds(first, 1)).then(|| s.read(first)).flatten() else { return };
    let Ok((sb, _)) = log::SuperBlock::read_from_prefix(&bytes) else { return };
    let mut value = |field: &str, is_right: bool, found: u32, expected: &dyn ToString| {
        if !is_right {
            let place = format!("journal super block, {field}");
            s.report.add(Kind::JournalSuper, place, found, expected.to_string());
        }
    };
    let h = &sb.header;
    value("h_magic", h.magic.get() == log::MAGIC, h.magic.get(), &log::MAGIC);
    let version = h.blocktype.get();
    value("h_blocktype", version == log::SUPER_V1 || version == log::SUPER_V2, version, &"3 or 4");
    let bs = s.g.block_size.bytes();
    value("s_blocksize", sb.blocksize.get() == bs, sb.blocksize.get(), &bs);
    let len = sb.maxlen.get();
    let fits = u64::from(len) <= next && len >= log::LOG_BLOCKS_MIN;
    value("s_maxlen", fits, len, &format!("1024 to {next}"));
    let format = log::Format::of(&sb);
    if version == log::SUPER_V2 {
        let unknown = format.incompat & !log::INCOMPAT_KNOWN;
        value("s_feature_incompat", unknown == 0, unknown, &"known features");
        let ro = sb.feature_ro_compat.get();
        value("s_feature_ro_compat", ro == 0, ro, &0);
        let users = sb.nr_users.get();
        value("s_nr_users", users <= 1, users, &"at most 1");
        let both = log::INCOMPAT_CSUM_V2 | log::INCOMPAT_CSUM_V3;
        value(
            "s_feature_incompat",
            format.incompat & both != both,
            both,
            &"only one kind of checksum",
        );
        let left = len.saturating_sub(sb.fast_commit_blocks());
        let is_enough = sb.fast_commit_blocks() == 0 || left >= log::LOG_BLOCKS_MIN;
        value("s_num_fc_blks", is_enough, sb.fast_commit_blocks(), &"at least 1024 log blocks");
        if format.csum_v2or3() {
            let kind = sb.checksum_type;
            value("s_checksum_type", kind == log::CHECKSUM_TYPE_CRC32C, kind.into(), &4);
            let right = sb.checksum_now();
            value("s_checksum", sb.checksum.get() == right, sb.checksum.get(), &right);
        }
    }
    let (start, head) = (sb.start.get(), sb.first.get());
    value("s_first", head >= 1 && head < len, head, &"1 or more, within the log");
    if start != 0 && !s.sb.has_incompat(incompat::RECOVER) {
        let place = "journal super block, s_start".to_owned();
        // A mount empties it.
        s.harmless(Kind::JournalDirty, place, start, "0, or needs_recovery");
    }
}

/// The resize inode owns each reserved descriptor block of group 0, and each of those lists its
/// copies in the groups with backups.
fn resize(s: &mut State<'_>, i: &Inode) {
    let wrong = |s: &mut State<'_>, field: &str, found: u64, expected: u64| {
        s.add(Kind::ResizeInode, format!("inode 7, {field}"), found, expected);
    };
    if !i.is_file() || i.links_count.get() == 0 {
        wrong(s, "i_mode or i_links_count", i.mode.get().into(), 0o100_600);
        if !i.is_file() {
            return;
        }
    }
    if i.file_acl() != 0 {
        wrong(s, "i_file_acl", i.file_acl(), 0);
    }
    let others: u32 = (0..15).filter(|n| *n != 13).map(|n| i.pointer(n)).fold(0, |a, p| a | p);
    let reserved = u64::from(s.g.reserved_gdt_blocks);
    let double = u64::from(i.pointer(13));
    if others != 0 || double == 0 {
        wrong(s, "i_block", others.into(), 0);
        return;
    }
    if !blocks::claim(s, "inode 7, i_block", double) {
        return;
    }
    let (first, gdt) = (u64::from(s.g.first_data_block), u64::from(s.g.gdt_blocks));
    let backups: Vec<u32> = (1..s.g.groups).filter(|n| s.g.has_super(*n)).collect();
    let copies = backups.len() as u64;
    let owned = 1 + reserved * (1 + copies);
    let lists = Lists { double, first: first + 1 + gdt, reserved, backups };
    // Nobody writes to these but a resize, and there can be a thousand of them.
    if s.is_fixed(double, 1) && s.is_fixed(lists.first, reserved) {
        let shape = u64::from(s.g.blocks_per_group) << 32 | u64::from(s.g.block_size.bytes());
        let mut piece = vec![double, first, gdt, reserved, shape];
        piece.extend(lists.backups.iter().map(|b| u64::from(*b)));
        if !s.sound.has(&piece) {
            let before = s.report.findings.len() as u64 + s.report.left_out;
            lists.check(s);
            if s.report.findings.len() as u64 + s.report.left_out == before {
                s.sound.add(piece);
            }
        }
    } else {
        lists.check(s);
    }
    let right = (owned * u64::from(s.g.block_size.sectors())) << s.g.cluster_bits;
    if i.blocks_raw() != right {
        wrong(s, "i_blocks", i.blocks_raw(), right);
    }
}

/// What the resize inode leads to.
struct Lists {
    /// The double indirect block.
    double: u64,
    /// First of the blocks reserved for descriptors, each an indirect block.
    first: u64,
    reserved: u64,
    /// Groups with a copy of each.
    backups: Vec<u32>,
}

impl Lists {
    fn check(&self, s: &mut State<'_>) {
        let wrong = |s: &mut State<'_>, field: &str, found: u64, expected: u64| {
            s.add(Kind::ResizeInode, format!("inode 7, {field}"), found, expected);
        };
        let Some(list) = s.read(self.double) else { return };
        let per_block = s.block_bytes() as u64 / 4;
        let gdt = u64::from(s.g.gdt_blocks);
        let word = |n: u64| {
            let (words, _) = list.as_chunks::<4>();
            words.get(n as usize).map_or(0, |w| u64::from(u32::from_le_bytes(*w)))
        };
        let mut complained = false;
        for n in 0..self.reserved {
            let (block, found) = (self.first + n, word((gdt + n) % per_block));
            if found != block && !complained {
                complained = true;
                wrong(s, "double indirect block", found, block);
            }
        }
        indirect(s, (self.first, self.reserved), &self.backups);
        let is_ours = |n: u64| (n + per_block - gdt % per_block) % per_block < self.reserved;
        for found in (0..per_block).filter(|n| !is_ours(*n)).map(word) {
            if found != 0 {
                wrong(s, "other pointers of the double indirect block", found, 0);
            }
        }
    }
}

/// The resize inode's indirect blocks: `blocks` (first, number) are reserved for descriptors, and
/// each names its copies in the groups `backups`.
fn indirect(s: &mut State<'_>, blocks: (u64, u64), backups: &[u32]) {
    let wrong = |s: &mut State<'_>, field: &str, found: u64, expected: u64| {
        s.add(Kind::ResizeInode, format!("inode 7, {field}"), found, expected);
    };
    let mut complained = false;
    for block in blocks.0..blocks.0 + blocks.1 {
        let Some(copies) = s.read(block) else { continue };
        let (words, _) = copies.as_chunks::<4>();
        let others = words.iter().skip(backups.len()).map(|w| u32::from_le_bytes(*w));
        for found in others.filter(|w| *w != 0) {
            wrong(s, "pointers after the backup copies in an indirect block", found.into(), 0);
        }
        for (word, group) in words.iter().zip(backups) {
            let copy = block + u64::from(*group) * u64::from(s.g.blocks_per_group);
            let found = u64::from(u32::from_le_bytes(*word));
            if found != copy && !complained {
                complained = true;
                wrong(s, "indirect block", found, copy);
            }
        }
    }
}

/// The orphan file, and the chain of orphans.
pub(super) fn pass(s: &mut State<'_>) {
    let chain = s.sb.last_orphan.get();
    if chain != 0 {
        let place = "super block, s_last_orphan".to_owned();
        s.harmless(Kind::OrphanChain, place, chain, "0 after a clean unmount");
    }
    if !s.sb.has_compat(compat::ORPHAN_FILE) {
        return;
    }
    let number = s.sb.orphan_file_inum.get();
    let place = format!("orphan file, inode {number}");
    let Some((_, i)) = s.inode(number).filter(|(_, i)| i.is_file()) else {
        return s.add(Kind::OrphanFile, place, number, "a regular file");
    };
    if let Some(u) = s.used.get_mut(&number) {
        u.names = u32::from(u.links);
    }
    let has_orphans = s.sb.has_ro_compat(ro_compat::ORPHAN_PRESENT);
    let mut entries = false;
    let seed = s.sums.inode_seed(number, i.generation.get());
    for (_, start, n) in std::mem::take(&mut s.orphan_runs) {
        if !s.g.holds(start, n.into()) {
            continue;
        }
        for block in start..start + u64::from(n) {
            let Some(bytes) = s.read(block) else { return };
            let Some(tail) = OrphanTail::load(&bytes) else { return };
            let right = s.sums.orphan_block(seed, block, &bytes);
            entries |= orphan::slots(&bytes).iter().any(|n| n.get() != 0);
            let place = format!("orphan file, block {block}");
            if tail.magic.get() != OrphanTail::MAGIC {
                s.add(Kind::OrphanFile, place, tail.magic.get(), OrphanTail::MAGIC);
            } else if s.sums.metadata() && tail.checksum.get() != right {
                s.add(Kind::OrphanFile, place, tail.checksum.get(), right);
            } else if !has_orphans && orphan::slots(&bytes).iter().any(|n| n.get() != 0) {
                s.add(Kind::OrphanFile, place, "entries", "none without orphan_present");
            }
        }
    }
    if has_orphans && !entries {
        // The next mount clears it.
        let expected = "no orphan_present: the orphan file is empty";
        s.harmless(Kind::OrphanFile, place, "orphan_present", expected);
    }
}
