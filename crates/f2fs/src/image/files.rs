//! Contents, names, attributes and link targets of files.

use wp_base::{FsError, FsResult};
use wp_vfs::{Digest, FileType, Part, TakePart};

use crate::disk::inode::{advise, flag, inline};
use crate::disk::xattr::{self, Attribute};
use crate::disk::{Block, DentryArea, Footer, Geometry, Inode, Node, Place, addr, tree};

use super::{Image, InodeRecord};

/// Blocks of a file that lie one after another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First block in the file.
    pub logical: u64,
    /// Its address.
    pub start: u32,
    /// How many.
    pub blocks: u32,
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirName {
    /// The name.
    pub name: Vec<u8>,
    /// The inode that it names.
    pub ino: u32,
    /// Type, as the entry has it; `None`: it does not tell.
    pub kind: Option<FileType>,
}

impl Image<'_> {
    /// Reads the node with offset `offset` in the tree of `ino`. Errors: `Corrupt` if the node says
    /// that it is another one.
    fn tree_node(&self, ino: u32, nid: u32, offset: u32) -> FsResult<Box<Block>> {
        let (at, block) = self.node(nid)?;
        let footer = Footer::of(&block);
        for (field, found, right) in
            [("footer.ino", footer.ino.get(), ino), ("footer.flag", footer.offset(), offset)]
        {
            if found != right {
                let expected = format!("{right} (node {nid})");
                return Err(FsError::corrupt("f2fs node", field, at, found.into(), expected));
            }
        }
        Ok(block)
    }

    /// Calls `each` for every node of a file with addresses of data, in order: first block in the
    /// file, and the addresses. Of the file's first `blocks` blocks.
    pub(super) fn each_node(
        &self,
        record: &InodeRecord,
        blocks: u64,
        each: &mut dyn FnMut(u64, &mut dyn Iterator<Item = u32>) -> FsResult<()>,
    ) -> FsResult<()> {
        let shape = &record.shape;
        let inode = record.inode();
        if !inode.has_addresses() {
            return Ok(());
        }
        each(0, &mut (0..shape.inode_addrs).map(|n| inode.addr(shape, n)))?;
        let n = Node::WORDS;
        // Node ids of the inode: each is the root of a tree of `level` levels.
        let roots = [(0, 1, 0), (1, 2, 0), (2, 3, 1), (3, 4 + n, 1), (4, 5 + 2 * n, 2)];
        for (slot, offset, level) in roots {
            let nid = inode.nid(slot);
            if nid != 0 {
                self.each_below(record, (nid, offset, level), blocks, each)?;
            }
        }
        Ok(())
    }

    fn each_below(
        &self,
        record: &InodeRecord,
        (nid, offset, level): (u32, u32, u32),
        blocks: u64,
        each: &mut dyn FnMut(u64, &mut dyn Iterator<Item = u32>) -> FsResult<()>,
    ) -> FsResult<()> {
        // First block below it: that of its first direct node.
        let first = record.shape.first_block(offset + level).unwrap_or(u64::MAX);
        if first >= blocks {
            return Ok(());
        }
        let block = self.tree_node(record.ino, nid, offset)?;
        let node = Node::of(&block);
        if level == 0 {
            let addrs = record.shape.node_addrs as usize;
            return each(first, &mut node.words().take(addrs));
        }
        let step = if level == 2 { Node::WORDS + 1 } else { 1 };
        for (child, n) in node.words().zip(0..) {
            if child != 0 {
                let below = (child, offset + 1 + n * step, level - 1);
                self.each_below(record, below, blocks, each)?;
            }
        }
        Ok(())
    }

    /// Address of block `block` of a file; [`addr::NULL`] for a hole.
    pub fn address(&self, record: &InodeRecord, block: u64) -> FsResult<u32> {
        let Some(Place { depth: 1.., .. }) = record.shape.place(block) else {
            let slot = u32::try_from(block).unwrap_or(u32::MAX);
            let inside = slot < record.shape.inode_addrs;
            return Ok(if inside { record.inode().addr(&record.shape, slot) } else { addr::NULL });
        };
        let mut found = addr::NULL;
        let place = record.shape.place(block).ok_or(FsError::TooBig)?;
        let mut node: Option<Box<Block>> = None;
        for (child, offset) in place.steps() {
            let nid = match &node {
                None => record.inode().nid(*child),
                Some(node) => Node::of(node).word(*child),
            };
            if nid == 0 {
                return Ok(addr::NULL);
            }
            let read = self.tree_node(record.ino, nid, *offset)?;
            found = Node::of(&read).word(place.slot);
            node = Some(read);
        }
        Ok(found)
    }

    /// Where a file's blocks lie, in order; holes and promised blocks are left out.
    ///
    /// Errors: `Corrupt` for an address outside the main area; `Unsupported` for compressed files.
    pub fn map(&self, record: &InodeRecord) -> FsResult<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        let inode = record.inode();
        if inode.has_inline(inline::DATA) || inode.has_inline(inline::DENTRY) {
            return Ok(runs);
        }
        self.each_node(record, inode.size.get().div_ceil(4096), &mut |first, addrs| {
            for (found, logical) in addrs.zip(first..) {
                if found == addr::COMPRESS {
                    let why = format!("compressed data (inode {})", record.ino);
                    return Err(FsError::Unsupported(why));
                }
                if !addr::is_block(found) {
                    continue;
                }
                if !self.g.is_main(found) {
                    let expected = format!("a block of the main area (inode {})", record.ino);
                    let found = found.into();
                    return Err(FsError::corrupt("f2fs node", "addr", record.at, found, expected));
                }
                match runs.last_mut() {
                    Some(r)
                        if r.logical + u64::from(r.blocks) == logical
                            && u64::from(r.start) + u64::from(r.blocks) == u64::from(found) =>
                    {
                        r.blocks += 1;
                    }
                    _ => runs.push(Run { logical, start: found, blocks: 1 }),
                }
            }
            Ok(())
        })?;
        Ok(runs)
    }

    /// The contents of a file, in order, in pieces; holes as numbers of zeroes. Errors: those of
    /// [`Self::map`]; `Unsupported` for encrypted files; of `each`, which is called before others
    /// may be found.
    pub fn read_file(&self, record: &InodeRecord, each: &mut TakePart<'_>) -> FsResult<()> {
        let inode = record.inode();
        let size = inode.size.get();
        if inode.has_advice(advise::ENCRYPT) {
            return Err(FsError::Unsupported(format!("encrypted data (inode {})", record.ino)));
        }
        if inode.has_inline(inline::DATA) {
            let data = inode.inline_area(&record.shape);
            let len = usize::try_from(size).unwrap_or(usize::MAX);
            let bytes = data.get(..len);
            let wrong = || self.wrong_size(record, data.len() as u64);
            return each(Part::Bytes(bytes.ok_or_else(wrong)?));
        }
        let mut at = 0;
        for run in self.map(record)? {
            for n in 0..run.blocks {
                let from = (run.logical + u64::from(n)) * 4096;
                if from >= size {
                    break;
                }
                each(Part::Zeroes(from.saturating_sub(at)))?;
                let block = self.read_block(run.start + n, "f2fs data")?;
                let len = (size - from).min(4096);
                each(Part::Bytes(block.get(..len as usize).unwrap_or(&block)))?;
                at = from + len;
            }
        }
        each(Part::Zeroes(size.saturating_sub(at)))
    }

    /// Digest of a file's contents. `bytes_left`: data that may still be read.
    pub fn sha256(&self, record: &InodeRecord, bytes_left: &mut u64) -> FsResult<Digest> {
        Digest::of(bytes_left, |each| self.read_file(record, each))
    }

    /// Target of a symbolic link. Errors: `Invalid` if it is none; `Corrupt` if it is empty or
    /// longer than a block.
    pub fn link_target(&self, record: &InodeRecord) -> FsResult<Vec<u8>> {
        let size = record.inode().size.get();
        if !record.inode().is_symlink() {
            return Err(FsError::Invalid("not a symbolic link"));
        }
        if size == 0 || size > 4096 {
            return Err(self.wrong_size(record, 4096));
        }
        let mut out = Vec::new();
        self.read_file(record, &mut |part| part.append_to(&mut out, 4096))?;
        // `vfs_readlink()` copies up to the first NUL; nothing before it is a broken link
        // (`f2fs_get_link()`).
        let end = out.iter().position(|b| *b == 0).unwrap_or(out.len());
        out.truncate(end);
        if out.is_empty() {
            return Err(FsError::NotFound);
        }
        Ok(out)
    }

    fn wrong_size(&self, record: &InodeRecord, room: u64) -> FsError {
        let expected = format!("1 to {room} (inode {})", record.ino);
        FsError::corrupt("f2fs inode", "i_size", record.at, record.inode().size.get(), expected)
    }

    /// All attributes of a file, those of its node too. Errors: `Corrupt`. `read_all_xattrs`.
    pub fn attributes(&self, record: &InodeRecord) -> FsResult<Vec<Attribute>> {
        let inode = record.inode();
        let mut bytes = Vec::new();
        if inode.has_inline(inline::XATTR) {
            bytes.extend_from_slice(inode.xattr_area(&record.shape));
        }
        if inode.xattr_nid.get() != 0 {
            let node = self.tree_node(record.ino, inode.xattr_nid.get(), tree::XATTR_OFFSET)?;
            bytes.extend_from_slice(node.get(..Node::BODY_BYTES).unwrap_or(&[]));
        }
        Ok(xattr::load(&bytes, record.at)?)
    }

    /// The names in a directory but `.` and `..`, in order of places.
    ///
    /// Errors: `NotDir`; `Corrupt`; `Unsupported` for encrypted names.
    pub fn names(&self, record: &InodeRecord) -> FsResult<Vec<DirName>> {
        let inode = record.inode();
        if !inode.is_dir() {
            return Err(FsError::NotDir);
        }
        if inode.has_advice(advise::ENCRYPT) {
            return Err(FsError::Unsupported(format!("encrypted names (inode {})", record.ino)));
        }
        let mut out = Vec::new();
        if inode.has_inline(inline::DENTRY) {
            let bytes = inode.inline_area(&record.shape);
            let area = DentryArea::inline(record.shape.inline_bytes());
            take_names(&area, bytes, record.at, &mut out)?;
            return Ok(out);
        }
        for run in self.map(record)? {
            for n in 0..run.blocks {
                let block = self.read_block(run.start + n, "f2fs directory")?;
                let at = Geometry::byte_of(run.start + n);
                take_names(&DentryArea::BLOCK, &block, at, &mut out)?;
            }
        }
        Ok(out)
    }

    /// Does case not matter in a directory?
    pub fn ignores_case(inode: &Inode) -> bool {
        inode.flags.get() & flag::CASEFOLD != 0
    }
}

fn take_names(area: &DentryArea, bytes: &[u8], at: u64, out: &mut Vec<DirName>) -> FsResult<()> {
    for d in area.names(bytes, at)? {
        if d.name != b"." && d.name != b".." {
            let kind = FileType::from_entry(d.entry.file_type);
            out.push(DirName { name: d.name.to_vec(), ino: d.entry.ino.get(), kind });
        }
    }
    Ok(())
}
