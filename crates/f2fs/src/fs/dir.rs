//! Names of directories: looked for, added, removed; in the inode and in blocks.
//!
//! Invariants: 1. the caller has the directory's `lock`; who changes it has [`F2fs::lock_op`] too.
//!             2. a block's bytes are read and changed without waiting in between.
//! Source:     Linux `fs/f2fs/dir.c`, `fs/f2fs/inline.c`.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer};
use wp_vfs::FileType;

use super::dnode::{Find, Found};
use super::ino_sets::InoSet;
use super::inode::{Inode, block_mut, block_of, fi};
use super::io::Kind;
use super::mount::F2fs;
use crate::disk::dir::{Dentry, slots_of};
use crate::disk::inode::{advise, inline};
use crate::disk::{self, DentryArea, DentryEntry, Geometry, addr, count, hash, lo16};

/// A name where it stands.
#[derive(Clone)]
pub(super) struct Place {
    /// The block, or the inode's node.
    pub buf: Rc<Buffer>,
    /// In the inode?
    pub is_inline: bool,
    /// Its first slot.
    pub slot: u32,
    /// Its entry.
    pub entry: DentryEntry,
}

impl Place {
    /// Where it leads.
    pub fn ino(&self) -> u32 {
        self.entry.ino.get()
    }
}

/// A name for an inode to be added.
#[derive(Clone, Copy)]
pub(super) struct Link<'a> {
    pub name: &'a [u8],
    pub ino: u32,
    /// [`FileType::entry`].
    pub file_type: u8,
}

impl Link<'_> {
    fn hash(&self) -> u32 {
        hash::name_hash(self.name)
    }

    fn entry(&self) -> DentryEntry {
        DentryEntry {
            hash_code: self.hash().into(),
            ino: self.ino.into(),
            name_len: lo16(count(self.name.len())).into(),
            file_type: self.file_type,
        }
    }
}

impl F2fs {
    /// Looks at an area of names in a directory's buffer.
    fn with_names<R>(
        inode: &Inode,
        buf: &Rc<Buffer>,
        is_inline: bool,
        f: impl FnOnce(&DentryArea, &[u8]) -> R,
    ) -> R {
        if !is_inline {
            return buf.with(|b| f(&DentryArea::BLOCK, b));
        }
        let shape = inode.shape();
        let area = DentryArea::inline(shape.inline_bytes());
        buf.with(|b| f(&area, disk::Inode::of(block_of(b)).inline_area(&shape)))
    }

    /// Changes an area of names: waits for its writeback, and marks it dirty.
    async fn change_names(
        &self,
        inode: &Rc<Inode>,
        buf: &Rc<Buffer>,
        is_inline: bool,
        f: impl FnOnce(&DentryArea, &mut [u8]),
    ) {
        let kind = if is_inline { Kind::Node } else { Kind::Data };
        self.wait_on_page_writeback(buf, kind, true).await;
        if is_inline {
            let shape = inode.shape();
            let area = DentryArea::inline(shape.inline_bytes());
            buf.with_mut(|b| f(&area, disk::Inode::of_mut(block_mut(b)).inline_area_mut(&shape)));
            self.dirty_node(buf);
        } else {
            buf.with_mut(|b| f(&DentryArea::BLOCK, b));
            self.dirty_data(inode, buf);
        }
    }

    /// Block `index` of a directory; the next one that may be there, if it is not
    /// (`f2fs_find_data_page`).
    async fn dir_block(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        index: u64,
    ) -> FsResult<Result<Rc<Buffer>, u64>> {
        if let Some(b) = dir.map.peek(index).filter(|b| b.flag(BufFlag::Uptodate)) {
            return Ok(Ok(b));
        }
        let tree = dir.map_lock.lock().await;
        let at = match self.dnode(dir, index, Find::Lookup).await? {
            Found::Hole(next) => return Ok(Err(next)),
            Found::At(dn) => dn.addr(dir, dn.slot),
        };
        drop(tree);
        if at == addr::NULL {
            return Ok(Err(index + 1));
        }
        self.data_block(dir, index).await.map(Ok)
    }

    /// Blocks of a directory (`dir_blocks`).
    fn dir_blocks(dir: &Inode) -> u64 {
        dir.size.get().div_ceil(4096)
    }

    /// Where a name stands (`__f2fs_find_entry`). Errors: `NameTooLong`; `Corrupt`, `Io`.
    pub(super) async fn find_name(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        name: &[u8],
    ) -> FsResult<Option<Place>> {
        if name.len() > disk::Inode::NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        let wanted = hash::name_hash(name);
        if dir.has_inline(inline::DENTRY) {
            let buf = self.node(dir.ino).await?;
            let found = F2fs::with_names(dir, &buf, true, |a, b| a.find(b, wanted, name));
            return Ok(found.map(|(slot, entry)| Place { buf, is_inline: true, slot, entry }));
        }
        let (depth, dir_level) = {
            let f = dir.f.borrow();
            (f.depth.min(hash::LEVELS_MAX), f.dir_level)
        };
        if F2fs::dir_blocks(dir) == 0 {
            return Ok(None);
        }
        for level in 0..depth {
            let bucket = hash::bucket_of(level, dir_level, wanted);
            let mut room = false;
            let mut index = bucket.start;
            while index < bucket.end {
                let buf = match self.dir_block(dir, index).await? {
                    Ok(buf) => buf,
                    Err(next) => {
                        room = true;
                        index = next;
                        continue;
                    }
                };
                let found = buf.with(|b| DentryArea::BLOCK.find(b, wanted, name));
                if let Some((slot, entry)) = found {
                    return Ok(Some(Place { buf, is_inline: false, slot, entry }));
                }
                room |= buf.with(|b| DentryArea::BLOCK.has_room(b, slots_of(name.len())));
                index += 1;
            }
            if room && dir.room.get().0 != wanted {
                dir.room.set((wanted, level));
            }
        }
        Ok(None)
    }

    /// Adds a name (`f2fs_do_add_link`), and makes the node of an inode that is new. The caller
    /// knows that the name is not there.
    ///
    /// Errors: `NoSpace`; nothing was added then.
    pub(super) async fn add_link(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        name: &[u8],
        inode: &Rc<Inode>,
    ) -> FsResult<()> {
        let file_type = FileType::entry_of_mode(inode.f.borrow().mode.into());
        let link = Link { name, ino: inode.ino, file_type };
        if dir.has_inline(inline::DENTRY) {
            let buf = self.node(dir.ino).await?;
            let slots = slots_of(name.len());
            let room = F2fs::with_names(dir, &buf, true, |a, b| a.find_room(b, slots));
            match room {
                Some(slot) => {
                    self.init_metadata(inode, dir, Some(name)).await?;
                    self.change_names(dir, &buf, true, |a, b| a.put(b, slot, &link.entry(), name))
                        .await;
                    self.linked(dir, inode, None).await?;
                    return Ok(());
                }
                None => self.convert_inline_dir(dir, &buf).await?,
            }
        }
        self.add_regular(dir, &link, Some(inode)).await
    }

    /// A name's place in a block (`f2fs_add_regular_entry`).
    async fn add_regular(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        link: &Link<'_>,
        inode: Option<&Rc<Inode>>,
    ) -> FsResult<()> {
        let (mut depth, dir_level) = {
            let f = dir.f.borrow();
            (f.depth, f.dir_level)
        };
        let mut level = 0;
        let (hash, known) = dir.room.get();
        if hash == link.hash() {
            level = known;
            dir.room.set((0, known));
        }
        let slots = slots_of(link.name.len());
        loop {
            if depth >= hash::LEVELS_MAX {
                return Err(FsError::NoSpace);
            }
            if level == depth {
                depth += 1;
            }
            for index in hash::bucket_of(level, dir_level, link.hash()) {
                let buf = self.new_block(dir, index, true).await?;
                let Some(slot) = buf.with(|b| DentryArea::BLOCK.find_room(b, slots)) else {
                    continue;
                };
                if let Some(inode) = inode {
                    self.init_metadata(inode, dir, Some(link.name)).await?;
                }
                self.change_names(dir, &buf, false, |a, b| {
                    a.put(b, slot, &link.entry(), link.name);
                })
                .await;
                match inode {
                    Some(inode) => self.linked(dir, inode, Some(depth)).await?,
                    None => self.update_parent(dir, None, Some(depth)),
                }
                return Ok(());
            }
            level += 1;
        }
    }

    /// Makes the node of a new inode, and writes its name there for recovery
    /// (`f2fs_init_inode_metadata`).
    pub(super) async fn init_metadata(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        dir: &Rc<Inode>,
        name: Option<&[u8]>,
    ) -> FsResult<()> {
        let node = if inode.is(fi::NEW) {
            let node = self.new_node(inode.ino, inode.ino, 0, inode.is_dir()).await?;
            if inode.is_dir()
                && let Err(e) = self.make_empty_dir(inode, dir, &node).await
            {
                inode.f.borrow_mut().nlink = 0;
                self.update_inode(inode, &node).await?;
                return Err(e);
            }
            node
        } else {
            self.node(inode.ino).await?
        };
        self.wait_on_page_writeback(&node, Kind::Node, true).await;
        if let Some(name) = name {
            node.with_mut(|b| disk::Inode::of_mut(block_mut(b)).set_own_name(name));
        }
        self.dirty_node(&node);
        if inode.is(fi::INC_LINK) {
            if !inode.is_dir() {
                self.change(inode, |f| f.advise |= advise::LOST_PINO);
            }
            if inode.nlink() == 0 {
                self.remove_orphan(inode.ino);
            }
            self.add_links(inode, 1);
        }
        Ok(())
    }

    /// What follows a name for an inode: its parent, its node, the directory's fields.
    async fn linked(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        inode: &Rc<Inode>,
        depth: Option<u32>,
    ) -> FsResult<()> {
        self.change(inode, |f| f.pino = dir.ino);
        if inode.is(fi::NEW) {
            let node = self.node(inode.ino).await?;
            self.update_inode(inode, &node).await?;
        }
        self.update_parent(dir, Some(inode), depth);
        Ok(())
    }

    /// `f2fs_update_parent_metadata`. Without `depth` the directory's names are in its inode, for
    /// which it is 0.
    fn update_parent(&self, dir: &Rc<Inode>, inode: Option<&Rc<Inode>>, depth: Option<u32>) {
        if let Some(inode) = inode
            && inode.is(fi::NEW)
        {
            if inode.is_dir() {
                self.add_links(dir, 1);
            }
            inode.clear(fi::NEW);
            // Though its node says all of it: clearing this flag marks it (`clear_inode_flag`).
            self.mark_inode_dirty(inode, true);
        }
        self.touch(dir);
        let depth = depth.unwrap_or(0);
        if dir.f.borrow().depth != depth {
            self.change(dir, |f| f.depth = depth);
        }
        if let Some(inode) = inode {
            inode.clear(fi::INC_LINK);
        }
    }

    /// `.` and `..` of a new directory (`make_empty_dir`).
    async fn make_empty_dir(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        parent: &Rc<Inode>,
        node: &Rc<Buffer>,
    ) -> FsResult<()> {
        let dots = |area: &DentryArea, bytes: &mut [u8]| {
            let one =
                |name: &'static [u8], ino| Link { name, ino, file_type: FileType::Dir.entry() };
            area.put(bytes, 0, &one(b".", inode.ino).entry(), b".");
            area.put(bytes, 1, &one(b"..", parent.ino).entry(), b"..");
        };
        if inode.has_inline(inline::DENTRY) {
            self.change_names(inode, node, true, dots).await;
            let room = u64::from(inode.shape().inline_bytes());
            self.set_size(inode, inode.size.get().max(room));
            return Ok(());
        }
        let buf = self.new_block(inode, 0, true).await?;
        self.change_names(inode, &buf, false, dots).await;
        Ok(())
    }

    /// Moves the names in an inode to a block (`f2fs_move_inline_dirents`,
    /// `f2fs_move_rehashed_dirents`).
    async fn convert_inline_dir(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        node: &Rc<Buffer>,
    ) -> FsResult<()> {
        let shape = dir.shape();
        let area = DentryArea::inline(shape.inline_bytes());
        let bytes = node.with(|b| disk::Inode::of(block_of(b)).inline_area(&shape).to_vec());
        if dir.f.borrow().dir_level > 0 {
            return self.rehash_inline_dir(dir, node, &area, bytes).await;
        }
        let tree = dir.map_lock.lock().await;
        let (_, at) = self.reserve_block(dir, 0).await?;
        if at != addr::NEW {
            self.set_need_fsck();
            let place = self.node_at(dir.ino).await;
            let expected = format!("no address beside inline names (inode {})", dir.ino);
            return Err(FsError::corrupt("f2fs inode", "i_addr", place, at.into(), expected));
        }
        let buf = dir.map.get(0);
        drop(tree);
        self.wait_on_page_writeback(&buf, Kind::Data, true).await;
        let all = area.names(&bytes, 0)?;
        buf.with_mut(|b| {
            b.fill(0);
            all.iter().for_each(|d| DentryArea::BLOCK.put(b, d.slot, &d.entry, d.name));
        });
        buf.set(BufFlag::Uptodate);
        self.dirty_data(dir, &buf);
        self.truncate_inline(dir, node, 0).await;
        self.end_inline_dir(dir);
        self.change(dir, |f| f.depth = 1);
        if dir.size.get() < 4096 {
            self.set_size(dir, 4096);
        }
        Ok(())
    }

    fn end_inline_dir(&self, dir: &Rc<Inode>) {
        let keeps = self.sb.has(disk::feature::FLEXIBLE_INLINE_XATTR);
        self.change(dir, |f| {
            f.inline &= !inline::DENTRY;
            if !keeps && f.inline & inline::XATTR == 0 {
                f.xattr_words = 0;
            }
        });
    }

    /// The same for a directory whose hash table begins with more than one bucket.
    async fn rehash_inline_dir(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        node: &Rc<Buffer>,
        area: &DentryArea,
        bytes: Vec<u8>,
    ) -> FsResult<()> {
        self.truncate_inline(dir, node, 0).await;
        let all = area.names(&bytes, 0)?;
        for d in &all {
            let file_type = d.entry.file_type;
            let link = Link { name: d.name, ino: d.entry.ino.get(), file_type };
            if let Err(e) = self.add_regular(dir, &link, None).await {
                self.truncate_blocks(dir, 0, false).await?;
                self.change_names(dir, node, true, |_, b| b.copy_from_slice(&bytes)).await;
                self.change(dir, |f| f.depth = 0);
                self.set_size(dir, u64::from(dir.shape().inline_bytes()));
                return Err(e);
            }
        }
        self.end_inline_dir(dir);
        Ok(())
    }

    /// Before a rename within a directory: names in its inode go to a block if one more does not
    /// fit (`f2fs_try_convert_inline_dir`).
    pub(super) async fn make_room_inline(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        name: &[u8],
    ) -> FsResult<()> {
        if !dir.has_inline(inline::DENTRY) {
            return Ok(());
        }
        let _op = self.lock_op().await;
        let buf = self.node(dir.ino).await?;
        let slots = slots_of(name.len());
        let fits = F2fs::with_names(dir, &buf, true, |a, b| a.find_room(b, slots)).is_some();
        if fits { Ok(()) } else { self.convert_inline_dir(dir, &buf).await }
    }

    /// Points a name to another inode (`f2fs_set_link`).
    pub(super) async fn set_link(&self, dir: &Rc<Inode>, place: &Place, inode: &Inode) {
        let kind = FileType::entry_of_mode(inode.f.borrow().mode.into());
        self.change_names(dir, &place.buf, place.is_inline, |a, b| {
            a.set_target(b, place.slot, inode.ino, kind);
        })
        .await;
        self.touch(dir);
    }

    /// Removes a name (`f2fs_delete_entry`), and, with an inode, a link of it. A block without
    /// names goes.
    pub(super) async fn delete_name(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        place: &Place,
        inode: Option<&Rc<Inode>>,
    ) -> FsResult<()> {
        if self.opts.fsync_mode.keeps_names() {
            self.add_ino(dir.ino, InoSet::TransDir);
        }
        let len = usize::from(place.entry.name_len.get());
        self.change_names(dir, &place.buf, place.is_inline, |a, b| a.remove(b, place.slot, len))
            .await;
        let empty = !place.is_inline && place.buf.with(|b| DentryArea::BLOCK.is_empty(b));
        if empty {
            let index = place.buf.block();
            let tree = dir.map_lock.lock().await;
            self.drop_pages(dir, index, index + 1).await;
            self.truncate_hole(dir, index, index + 1).await?;
            drop(tree);
        }
        self.touch(dir);
        if let Some(inode) = inode {
            self.drop_link(dir, inode).await?;
        }
        Ok(())
    }

    /// One link of an inode fewer; without any it is an orphan (`f2fs_drop_nlink`).
    async fn drop_link(self: &Rc<Self>, dir: &Rc<Inode>, inode: &Rc<Inode>) -> FsResult<()> {
        let is_dir = inode.is_dir();
        if is_dir {
            self.add_links(dir, -1);
        }
        inode.f.borrow_mut().ctime = self.time();
        self.add_links(inode, -1);
        if is_dir {
            self.add_links(inode, -1);
            self.set_size(inode, 0);
        }
        self.orphan_or_not(inode).await
    }

    /// An inode that lost a link: on the list of orphans if it was the last, and its node block
    /// says so. Waits: for writeback of that block.
    pub(super) async fn orphan_or_not(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        if inode.nlink() > 0 {
            self.release_orphan();
            return Ok(());
        }
        self.add_orphan(inode.ino);
        self.update_inode_page(inode).await
    }

    /// Has it no names but `.` and `..` (`f2fs_empty_dir`)?
    pub(super) async fn is_empty_dir(self: &Rc<Self>, dir: &Rc<Inode>) -> FsResult<bool> {
        let mut any = false;
        self.each_name(dir, |d| any |= d.name != b"." && d.name != b"..").await?;
        Ok(!any)
    }

    /// Calls for each name, in order of places, `.` and `..` too.
    pub(super) async fn each_name(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        mut each: impl FnMut(&Dentry<'_>),
    ) -> FsResult<()> {
        if dir.has_inline(inline::DENTRY) {
            let buf = self.node(dir.ino).await?;
            return F2fs::with_names(dir, &buf, true, |a, b| {
                a.names(b, 0)?.iter().for_each(&mut each);
                Ok(())
            });
        }
        let mut index = 0;
        while index < F2fs::dir_blocks(dir) {
            let buf = match self.dir_block(dir, index).await? {
                Ok(buf) => buf,
                Err(next) => {
                    index = next;
                    continue;
                }
            };
            let at = Geometry::byte_of(0);
            buf.with(|b| -> FsResult<()> {
                DentryArea::BLOCK.names(b, at)?.iter().for_each(&mut each);
                Ok(())
            })?;
            index += 1;
        }
        Ok(())
    }
}
