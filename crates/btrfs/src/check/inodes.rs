//! Inodes: what they say of themselves, and their extents.

use wp_vfs::FileType;

use crate::disk::file_extent::{compression, extent_type};
use crate::disk::inode::{flag, mode};
use crate::disk::{FileExtent, InodeItem, Reference, extent, view};

use super::Report;
use super::extents::Extents;
use super::finding::{At, Kind};
use super::sums::PieceSeen;
use super::volume::{Found, Seen};

const SECTOR: u64 = 4096;
/// All bits of `flags` that Linux knows, and in the upper half those for older kernels to read.
const FLAGS: u64 = ((1 << 12) - 1) | flag::ROOT_ITEM_INIT | (1 << 32);

/// What inodes are held to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Of the super block.
    pub generation: u64,
    /// May files have holes without items?
    pub no_holes: bool,
}

/// An inode, with what was counted of it.
pub(super) struct Inode {
    item: Option<InodeItem>,
    /// Its item, or the first of its items.
    at: At,
    /// Names that it has.
    pub names: u32,
    /// Bytes of names in it, each entry of a name by itself.
    pub name_bytes: u64,
    /// Bytes that its extents have.
    bytes: u64,
    /// Up to where they reach.
    end: u64,
    /// The first byte that none of them has, before the last.
    gap: Option<u64>,
    /// Bytes of an inline extent.
    inline: Option<u64>,
    /// Is the last of them a NUL?
    ends_with_nul: bool,
}

impl Inode {
    pub fn new(at: At) -> Inode {
        let (names, name_bytes, bytes, end) = (0, 0, 0, 0);
        let (inline, ends_with_nul) = (None, false);
        let gap = None;
        Inode { item: None, at, names, name_bytes, bytes, end, gap, inline, ends_with_nul }
    }

    pub fn is_there(&self) -> bool {
        self.item.is_some()
    }
    pub fn is_dir(&self) -> bool {
        self.item.is_some_and(|i| i.is_dir())
    }
    pub fn mode(&self) -> u32 {
        self.item.map_or(0, |i| i.mode.get())
    }
    pub fn links(&self) -> u32 {
        self.item.map_or(0, |i| i.nlink.get())
    }
    pub fn has_sums(&self) -> bool {
        self.item.is_none_or(|i| i.flags.get() & flag::NODATASUM == 0)
    }

    /// Its item.
    pub fn load(&mut self, item: &Found<'_>, report: &mut Report) {
        self.at = item.at;
        match view::<InodeItem>(item.bytes, 0) {
            Some(i) if item.bytes.len() == size_of::<InodeItem>() && item.at.key.offset == 0 => {
                self.item = Some(*i);
            }
            _ => report.add(Kind::Item, item.at, item.bytes.len(), "160 bytes, at 0"),
        }
    }

    /// One of its extents. Answers the part of a data extent that it is.
    pub fn extent(
        &mut self,
        item: &Found<'_>,
        extents: &Extents,
        seen: &mut Seen,
        report: &mut Report,
    ) -> Option<PieceSeen> {
        let (key, at) = (item.at.key, item.at);
        let loaded = match FileExtent::load(key, item.bytes, at.byte) {
            Ok(extent) => extent,
            Err(e) => {
                report.error(Kind::FileExtent, at, e);
                seen.is_torn = true;
                return None;
            }
        };
        let Some(end) = key.offset.checked_add(loaded.len()) else {
            report.add(Kind::FileExtent, at, loaded.len(), "an end below 2^64");
            return None;
        };
        if key.offset < self.end || !key.offset.is_multiple_of(SECTOR) {
            let expected = format!("{} or more: they overlap", self.end);
            report.add(Kind::FileExtent, at, key.offset, expected);
        }
        if key.offset > self.end {
            self.gap = self.gap.or(Some(self.end));
        }
        self.end = self.end.max(end.checked_next_multiple_of(SECTOR).unwrap_or(u64::MAX));
        let e = match loaded {
            FileExtent::Inline(head, data) => {
                self.bytes = self.bytes.saturating_add(head.ram_bytes.get());
                self.inline = Some(head.ram_bytes.get());
                self.ends_with_nul =
                    head.compression == compression::NONE && data.last() == Some(&0);
                if key.offset != 0 || data.is_empty() {
                    report.add(Kind::FileExtent, at, "an inline extent", "bytes, and at 0");
                }
                return None;
            }
            FileExtent::Regular(e) => e,
        };
        if !e.has_place() {
            if e.head.kind == extent_type::PREALLOC {
                report.add(Kind::FileExtent, at, "a hole", "an allocated address");
            }
            return None;
        }
        self.bytes = self.bytes.saturating_add(e.num_bytes.get());
        let (newest, generation) = (extents.newest(), e.head.generation.get());
        if generation > newest {
            let found = format!("generation {generation}");
            report.add(Kind::FileExtent, at, found, format!("{newest} or less"));
        }
        let (extent, bytes) = (e.disk_bytenr.get(), e.disk_num_bytes.get());
        let is_plain = e.head.compression == compression::NONE;
        let part = e.offset.get().checked_add(e.num_bytes.get());
        if is_plain && part.is_none_or(|p| p > bytes) {
            report.add(Kind::FileExtent, at, e.num_bytes, "a part of the extent");
        }
        seen.add_subvolume(extent, at.tree);
        if item.is_first {
            // `parent` is a leaf whose extents are counted by its address.
            let leaf = extents.all.get(&item.leaf);
            let by_address = leaf.is_some_and(|l| l.flags & extent::flag::FULL_BACKREF != 0);
            let who = if by_address {
                Reference::SharedData { parent: item.leaf }
            } else {
                let offset = key.offset.wrapping_sub(e.offset.get());
                Reference::Data { root: item.owner, objectid: key.objectid, offset }
            };
            seen.add_user(extent, who);
            let known = *seen.data.entry(extent).or_insert(bytes);
            if known != bytes {
                report.add(Kind::FileExtent, at, bytes, format!("{known}, as in other references"));
            }
        }
        let (start, length) = if is_plain {
            (extent.saturating_add(e.offset.get()), e.num_bytes.get())
        } else {
            (extent, bytes)
        };
        let is_written = e.head.kind == extent_type::REGULAR;
        let (has_sums, is_compressed) = (true, !is_plain);
        let bytes = length;
        Some(PieceSeen { extent, start, bytes, is_written, has_sums, is_compressed, at })
    }

    /// All of it was seen. What an orphan has left is not what
    /// it says: a mount removes it (`btrfs_orphan_cleanup`).
    pub fn check(&self, ino: u64, is_orphan: bool, rules: Rules, report: &mut Report) {
        let Some(inode) = &self.item else {
            report.add(Kind::Inode, self.at, "an item", format!("inode {ino}"));
            return;
        };
        let at = self.at;
        let is_orphan = is_orphan && inode.nlink.get() == 0;
        let is_known = FileType::from_mode(inode.mode.get()).is_some();
        if !is_known || inode.mode.get() > mode::TYPE | 0o7777 {
            report.add(Kind::Inode, at, format!("mode {:#o}", inode.mode.get()), "a type");
        }
        let unknown = inode.flags.get() & !FLAGS;
        if unknown != 0 {
            report.add(Kind::Inode, at, format!("flags {unknown:#x}"), "known flags");
        }
        let odd = inode.flags.get() & (flag::IMMUTABLE | flag::APPEND);
        if inode.is_symlink() && odd != 0 {
            let expected = "a symbolic link that is neither immutable nor append-only";
            report.add(Kind::Inode, at, format!("flags {odd:#x}"), expected);
        }
        let newest = rules.generation.saturating_add(1);
        for (field, n) in [("generation", inode.generation), ("transid", inode.transid)] {
            if n.get() > newest {
                report.add(Kind::Inode, at, format!("{field} {n}"), format!("{newest} or less"));
            }
        }
        let links = inode.nlink.get();
        if links != self.names {
            report.add(Kind::Links, at, links, format!("{} names", self.names));
        } else if links == 0 && !is_orphan {
            report.add(Kind::InodeLost, at, "no links", "an orphan item");
        }
        if inode.is_dir() && links > 1 {
            report.add(Kind::Links, at, links, "1 for a directory");
        }
        if inode.is_dir() {
            if !is_orphan && inode.size.get() != self.name_bytes {
                report.add(Kind::DirSize, at, inode.size, self.name_bytes);
            }
        } else if self.name_bytes != 0 {
            report.add(Kind::Dentry, at, "entries", "a directory");
        }
        // mkfs.btrfs says that root directories have a block.
        let has_contents = matches!(inode.file_type(), mode::FILE | mode::SYMLINK);
        if has_contents && !is_orphan && inode.nbytes.get() != self.bytes {
            report.add(Kind::InodeBytes, at, format!("{} bytes", inode.nbytes), self.bytes);
        }
        // Without NO_HOLES a hole has an item of its own.
        let gap = self.gap.unwrap_or(self.end);
        let is_open = has_contents && !is_orphan && gap < inode.size.get();
        if is_open && !rules.no_holes {
            report.add(Kind::FileExtent, at, format!("no extent at {gap}"), "one, or a hole");
        }
        if self.end > 0 && !has_contents {
            report.add(Kind::FileExtent, at, "extents", "none (not a regular file)");
        }
        // `mkfs.btrfs --rootdir` stores the NUL behind a target, too, which its size leaves out.
        let size = inode.size.get();
        let is_with_nul = self.ends_with_nul && self.inline == size.checked_add(1);
        if inode.is_symlink() && self.inline != Some(size) && !is_with_nul {
            let found = format!("{} bytes, size {}", self.inline.unwrap_or(0), inode.size);
            report.add(Kind::Inode, at, found, "a target of its size");
        }
    }
}
