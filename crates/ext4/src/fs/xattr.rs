//! Extended attributes: in the inode behind its fields, and in a block that inodes may share.
//!
//! Invariants: 1. a shared block is never changed but for its count of users: who changes an
//!                attribute gets a copy.
//!             2. a name stands in one of the two places.
//! Left out:   sharing blocks that come out equal (the kernel's `mbcache`); setting POSIX ACLs;
//!             values in inodes of their own (`ea_inode` is refused at mount).
//! Source:     Linux 6.1 `fs/ext4/xattr.c` (`ext4_xattr_set_handle`, `ext4_xattr_block_set`,
//!             `ext4_xattr_release_block`), `fs/xattr.c` (`xattr_permission`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer};
use wp_jbd2::Handle;
use wp_vfs::{FileType, XattrSet};
use zerocopy::{FromBytes, IntoBytes};

use super::fast_commit::Ineligible;
use super::inode::Inode;
use super::mballoc::Request;
use super::mount::Ext4;
use crate::disk::compat;
use crate::disk::xattr::{self, Attribute, XattrHeader};

/// Longest name with its prefix (`XATTR_NAME_MAX`).
const NAME_MAX: usize = 255;
/// Where the entries of a block start.
const FIRST: usize = size_of::<XattrHeader>();
/// Credits of a change: inode, two blocks of attributes, bitmap, descriptor, super block.
const CREDITS: u32 = 16;

/// Splits a full name. Errors: `Range` for a name too long, `Unsupported` for an unknown prefix.
fn split(full: &[u8]) -> FsResult<(u8, &[u8])> {
    if full.is_empty() || full.len() > NAME_MAX {
        return Err(FsError::Range);
    }
    let (index, name) = xattr::split_name(full)
        .ok_or_else(|| FsError::Unsupported("an attribute without a known prefix".into()))?;
    // Only the two ACL names are whole.
    if name.is_empty() != matches!(index, 2 | 3) {
        return Err(FsError::Invalid("an attribute's name is its prefix and something behind it"));
    }
    Ok((index, name))
}

fn owned(area: &[u8], at: u64, first: usize, base: usize) -> FsResult<Vec<Attribute>> {
    let all = xattr::load(area, at, first, base)?;
    if all.iter().any(|e| e.header.value_inum.get() != 0) {
        return Err(FsError::Unsupported("attribute values in inodes of their own".into()));
    }
    let copy = |e: &xattr::XattrEntry<'_>| Attribute {
        index: e.header.name_index,
        name: e.name.to_vec(),
        value: e.value.to_vec(),
    };
    Ok(all.iter().map(copy).collect())
}

impl Ext4 {
    /// The attributes in the inode, and how many bytes there are for them (0: no room for any).
    fn inode_xattrs(&self, inode: &Inode) -> FsResult<(Vec<Attribute>, usize)> {
        let area = inode.xattr_area();
        let room = area.len().saturating_sub(4);
        let magic = area.first_chunk::<4>().map(|b| u32::from_le_bytes(*b));
        if magic != Some(xattr::MAGIC) {
            return Ok((Vec::new(), room));
        }
        Ok((owned(&area, 0, 4, 4)?, room))
    }

    /// The attribute block and what it holds.
    async fn block_xattrs(&self, inode: &Inode) -> FsResult<Option<(Rc<Buffer>, Vec<Attribute>)>> {
        let block = inode.disk.borrow().file_acl();
        if block == 0 {
            return Ok(None);
        }
        let at = block * u64::from(self.bs().bytes());
        let wrong = |field, at, found: u64, expected: &str| {
            let expected = format!("{expected} (inode {})", inode.ino);
            Err(FsError::corrupt("ext4 xattr block", field, at, found, expected))
        };
        if !self.geo.holds(block, 1) {
            return wrong("i_file_acl", 0, block, "a block of this file system");
        }
        let buf = self.bdev.read(block).await?;
        let header = header_of(&buf);
        if header.magic.get() != xattr::MAGIC || header.blocks.get() != 1 {
            return wrong("h_magic", at, header.magic.get().into(), "0xea020000, one block");
        }
        if header.refcount.get() == 0 || header.refcount.get() > xattr::REFCOUNT_MAX {
            return wrong("h_refcount", at, header.refcount.get().into(), "1 to 1024");
        }
        if !buf.flag(BufFlag::Verified) {
            if !buf.with(|b| self.csum.xattr_block_ok(block, b)) {
                return wrong("h_checksum", at, header.checksum.get().into(), "its checksum");
            }
            buf.set(BufFlag::Verified);
        }
        let all = buf.with(|b| owned(b, at, FIRST, 0))?;
        Ok(Some((buf, all)))
    }

    /// The value of an attribute; ACLs in the form that programs see. Errors: `NoData`.
    pub(super) async fn get_xattr(&self, inode: &Inode, full: &[u8]) -> FsResult<Vec<u8>> {
        let (index, name) = split(full)?;
        let (mut all, _) = self.inode_xattrs(inode)?;
        if let Some((_, more)) = self.block_xattrs(inode).await? {
            all.extend(more);
        }
        let found = all.into_iter().find(|a| a.index == index && a.name == name);
        let value = found.ok_or(FsError::NoData)?.value;
        if matches!(index, 2 | 3) { Ok(xattr::acl_value(&value, 0)?) } else { Ok(value) }
    }

    /// The full names of all attributes, those in the inode first.
    pub(super) async fn list_xattrs(&self, inode: &Inode) -> FsResult<Vec<Vec<u8>>> {
        let (mut all, _) = self.inode_xattrs(inode)?;
        if let Some((_, more)) = self.block_xattrs(inode).await? {
            all.extend(more);
        }
        let full = |a: Attribute| {
            let prefix = xattr::PREFIXES.iter().find(|(i, _)| *i == a.index)?.1;
            Some([prefix.as_bytes(), &a.name].concat())
        };
        Ok(all.into_iter().filter_map(full).collect())
    }

    /// Sets (`Some`) or removes an attribute. The caller holds the inode's `lock`.
    ///
    /// Waits: for the blocks, the journal. Errors: `Exists` and `NoData` as `how` says; `NoSpace`
    /// if it fits neither place; `NotPermitted` for `user.` on what is no file or directory.
    pub(super) async fn set_xattr(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        full: &[u8],
        value: Option<&[u8]>,
        how: XattrSet,
    ) -> FsResult<()> {
        let (index, name) = split(full)?;
        if matches!(index, 2 | 3 | 7 | 8) {
            return Err(FsError::Unsupported("setting attributes of the prefix system.".into()));
        }
        if full.starts_with(b"user.") && !matches!(inode.kind(), FileType::File | FileType::Dir) {
            return Err(FsError::NotPermitted);
        }
        self.check_mutable(inode)?;
        let h = self.start_revoking(CREDITS, self.revokes(1)).await?;
        self.sync_with(&h, inode);
        let out = self.set_in(&h, inode, (index, name), value, how).await;
        self.fast_ineligible(&h, Ineligible::Xattr);
        self.stop(h, out).await
    }

    async fn set_in(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        (index, name): (u8, &[u8]),
        value: Option<&[u8]>,
        how: XattrSet,
    ) -> FsResult<()> {
        let is_it = |a: &Attribute| a.index == index && a.name == name;
        let (mut near, room) = self.inode_xattrs(inode)?;
        let far = self.block_xattrs(inode).await?;
        let (far_buf, mut far_all) = match far {
            Some((b, all)) => (Some(b), all),
            None => (None, Vec::new()),
        };
        let near_at = near.iter().position(is_it);
        let far_at = if near_at.is_some() { None } else { far_all.iter().position(is_it) };
        let old = near_at.map(|i| &near[i]).or(far_at.map(|i| &far_all[i]));
        match (old, how) {
            (None, XattrSet::Replace) => return Err(FsError::NoData),
            (Some(_), XattrSet::Create) => return Err(FsError::Exists),
            (None, _) if value.is_none() => return Ok(()),
            (Some(old), _) if value == Some(&old.value) => return Ok(()),
            _ => {}
        }
        let new = value.map(|v| Attribute { index, name: name.to_vec(), value: v.to_vec() });
        let near_before = near.clone();
        // In the inode a new value keeps its entry's place, and a new entry is the last.
        match (&new, near_at) {
            (Some(new), Some(i)) => near[i] = new.clone(),
            (Some(new), None) => near.push(new.clone()),
            (None, Some(i)) => drop(near.remove(i)),
            (None, None) => {}
        }
        let fits = near.is_empty() || xattr::space(&near) <= room;
        if let Some(i) = far_at {
            far_all.remove(i);
        }
        let mut far_changes = far_at.is_some();
        if !fits {
            let new = new.expect("less always fits");
            near = near_before;
            if let Some(i) = near_at {
                near.remove(i);
            }
            far_all.push(new);
            // Entries of a block are in order.
            far_all.sort_by(|a, b| a.order().cmp(&b.order()));
            if xattr::space(&far_all) + FIRST > self.bs().bytes() as usize {
                return Err(FsError::NoSpace);
            }
            far_changes = true;
        }
        if far_changes {
            self.put_block(h, inode, far_buf, &far_all).await?;
        }
        if fits || near_at.is_some() {
            let mut area = inode.xattr_area();
            if area.len() > 4 {
                let magic = if near.is_empty() { 0 } else { xattr::MAGIC };
                area[..4].copy_from_slice(&magic.to_le_bytes());
                xattr::store(&mut area, 4, 4, &near, false);
                inode.set_xattr_area(&area);
            }
        }
        if !self.sb.borrow().has_compat(compat::EXT_ATTR) {
            self.change_super(h, |sb| {
                sb.feature_compat = (sb.feature_compat.get() | compat::EXT_ATTR).into();
            })
            .await?;
        }
        inode.set_ctime(self.time());
        self.write_inode(h, inode).await
    }

    /// Makes `all` the contents of the inode's attribute block: in place if it is alone with it,
    /// else in a new one. None are left: the block goes. The caller writes the inode.
    async fn put_block(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        old: Option<Rc<Buffer>>,
        all: &[Attribute],
    ) -> FsResult<()> {
        if all.is_empty() {
            return self.drop_xattrs(h, inode).await;
        }
        if let Some(buf) = &old {
            h.get_write_access(buf).await?;
            if header_of(buf).refcount.get() == 1 {
                return self.fill_xattr_block(h, buf, all);
            }
        }
        let rq = Request { promised: false, ..Request::meta(inode, self.first_goal(inode)) };
        let (block, _) = self.take_blocks(h, &rq).await?;
        let buf = self.bdev.get(block);
        h.get_create_access(&buf).await?;
        self.fill_xattr_block(h, &buf, all)?;
        match &old {
            Some(shared) => self.leave_xattr_block(h, shared).await?,
            None => self.count_clusters(inode, 1)?,
        }
        inode.disk.borrow_mut().set_file_acl(block);
        Ok(())
    }

    fn fill_xattr_block(&self, h: &Handle, buf: &Rc<Buffer>, all: &[Attribute]) -> FsResult<()> {
        buf.with_mut(|b| {
            let hashes = xattr::store(b, FIRST, 0, all, true);
            let header = XattrHeader {
                magic: xattr::MAGIC.into(),
                refcount: 1.into(),
                blocks: 1.into(),
                hash: xattr::block_hash(hashes).into(),
                checksum: 0.into(),
                reserved: [0.into(); 3],
            };
            header.write_to_prefix(b).expect("a block holds its header");
            self.csum.seal_xattr_block(buf.block(), b);
        });
        buf.set(BufFlag::Verified);
        self.dirty(h, buf)
    }

    /// One user fewer; the last one returns the block (`ext4_xattr_release_block`).
    async fn leave_xattr_block(self: &Rc<Self>, h: &Handle, buf: &Rc<Buffer>) -> FsResult<()> {
        h.get_write_access(buf).await?;
        let mut header = header_of(buf);
        let users = header.refcount.get();
        if users <= 1 {
            return self.return_blocks(h, buf.block(), 1, true).await;
        }
        header.refcount = (users - 1).into();
        buf.with_mut(|b| {
            header.write_to_prefix(b).expect("a block holds its header");
            self.csum.seal_xattr_block(buf.block(), b);
        });
        self.dirty(h, buf)
    }

    /// Gives up the inode's attribute block, if it has one. The caller writes the inode.
    pub(super) async fn drop_xattrs(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
    ) -> FsResult<()> {
        let Some((buf, _)) = self.block_xattrs(inode).await? else { return Ok(()) };
        self.leave_xattr_block(h, &buf).await?;
        self.count_clusters(inode, -1)?;
        inode.disk.borrow_mut().set_file_acl(0);
        Ok(())
    }
}

fn header_of(buf: &Buffer) -> XattrHeader {
    buf.with(|b| XattrHeader::read_from_prefix(b).expect("a block holds its header").0)
}
