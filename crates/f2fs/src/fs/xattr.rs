//! Extended attributes: in the inode, and what does not fit there in a node of their own.
//!
//! Left out:   setting POSIX ACLs; attributes of other file systems' prefixes.
//! Source:     Linux `fs/f2fs/xattr.c` (`__f2fs_setxattr`, `write_all_xattrs`), `fs/xattr.c`
//!             (`xattr_permission`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_vfs::{FileType, XattrSet};
use zerocopy::IntoBytes;

use super::ino_sets::InoSet;
use super::inode::{Inode, block_mut, block_of, fi};
use super::io::Kind;
use super::mount::F2fs;
use crate::disk::inode::inline;
use crate::disk::xattr::{self, Attribute, XattrEntry, XattrHeader};
use crate::disk::{self, Node, tree};

/// Longest name with its prefix (`XATTR_NAME_MAX`).
const NAME_MAX: usize = 255;

impl F2fs {
    /// Index and rest of a name. Errors: `Range`, `Unsupported`, `Invalid`.
    fn split_xattr<'a>(&self, full: &'a [u8]) -> FsResult<(u8, &'a [u8])> {
        if full.is_empty() || full.len() > NAME_MAX {
            return Err(FsError::Range);
        }
        let unknown = || FsError::Unsupported("an attribute without a known prefix".into());
        let (index, prefix) = (1..=11)
            .filter_map(|n| Some((n, xattr::prefix(n)?.as_bytes())))
            .find(|(_, p)| full.starts_with(p))
            .ok_or_else(unknown)?;
        if !matches!(index, 1 | 2 | 3 | 4 | 6) || (index == 1 && !self.opts.user_xattr) {
            return Err(unknown());
        }
        let name = &full[prefix.len()..];
        if name.is_empty() != matches!(index, 2 | 3) {
            return Err(FsError::Invalid("an attribute's name is its prefix and something behind"));
        }
        Ok((index, name))
    }

    /// All attributes (`read_all_xattrs`).
    async fn xattrs(&self, inode: &Inode) -> FsResult<Vec<Attribute>> {
        let mut bytes = Vec::new();
        if inode.has_inline(inline::XATTR) {
            let shape = inode.shape();
            let node = self.node(inode.ino).await?;
            bytes = node.with(|b| disk::Inode::of(block_of(b)).xattr_area(&shape).to_vec());
        }
        let nid = inode.f.borrow().xattr_nid;
        let mut at = self.node_at(inode.ino).await;
        if nid != 0 {
            let node = self.node(nid).await?;
            node.with(|b| bytes.extend_from_slice(&b[..Node::BODY_BYTES]));
            at = self.node_at(nid).await;
        }
        Ok(xattr::load(&bytes, at)?)
    }

    /// The value of an attribute. Errors: `NoData`.
    pub(super) async fn get_xattr(&self, inode: &Inode, full: &[u8]) -> FsResult<Vec<u8>> {
        let (index, name) = self.split_xattr(full)?;
        let all = self.xattrs(inode).await?;
        let found = all.into_iter().find(|a| a.name_index == index && a.name == name);
        found.map(|a| a.value).ok_or(FsError::NoData)
    }

    /// The full names of all attributes.
    pub(super) async fn list_xattrs(&self, inode: &Inode) -> FsResult<Vec<Vec<u8>>> {
        let full = |a: Attribute| {
            let prefix = xattr::prefix(a.name_index)?;
            Some([prefix.as_bytes(), &a.name].concat())
        };
        Ok(self.xattrs(inode).await?.into_iter().filter_map(full).collect())
    }

    /// Sets (`Some`) or removes an attribute (`f2fs_setxattr`). The caller has the inode's `lock`.
    ///
    /// Errors: `Exists` and `NoData` as `how` says; `NoSpace` if it does not fit; `NotPermitted`
    /// for `user.` on what is no file or directory.
    pub(super) async fn set_xattr(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        full: &[u8],
        value: Option<&[u8]>,
        how: XattrSet,
    ) -> FsResult<()> {
        let (index, name) = self.split_xattr(full)?;
        if matches!(index, 2 | 3) {
            return Err(FsError::Unsupported("setting attributes of the prefix system.".into()));
        }
        if index == 1 && !matches!(inode.kind(), FileType::File | FileType::Dir) {
            return Err(FsError::NotPermitted);
        }
        self.check_writable()?;
        self.check_mutable(inode)?;
        self.balance_fs(true).await;
        let _op = self.lock_op().await;
        let _tree = inode.map_lock.lock().await;
        let mut all = self.xattrs(inode).await?;
        let old = all.iter().position(|a| a.name_index == index && a.name == name);
        match (old, how) {
            (Some(_), XattrSet::Create) => return Err(FsError::Exists),
            (None, XattrSet::Replace) => return Err(FsError::NoData),
            _ => {}
        }
        let same = old.is_some_and(|at| value == Some(all[at].value.as_slice()));
        if !same {
            if let Some(at) = old {
                all.remove(at);
            }
            if let Some(value) = value {
                all.push(Attribute {
                    name_index: index,
                    name: name.to_vec(),
                    value: value.to_vec(),
                });
            }
            self.store_xattrs(inode, &all).await?;
            if inode.is_dir() {
                self.note_dir_xattr(inode);
            }
        }
        inode.f.borrow_mut().ctime = self.time();
        self.mark_inode_dirty(inode, true);
        if self.opts.sync_attributes {
            // An fsync in the tick of the change before would take the inode for unchanged.
            inode.clear(fi::AUTO_RECOVER);
        }
        Ok(())
    }

    /// What an fsync below a directory must know of its changed attributes.
    fn note_dir_xattr(&self, dir: &Inode) {
        let strict = self.opts.fsync_mode.keeps_names();
        if strict || !self.opts.era.xattr_dir_checkpoint() {
            self.set_need_cp();
        } else {
            self.add_ino(dir.ino, InoSet::XattrDir);
        }
    }

    /// Writes all attributes (`write_all_xattrs`). Errors: `NoSpace` if they do not fit.
    async fn store_xattrs(self: &Rc<Self>, inode: &Rc<Inode>, all: &[Attribute]) -> FsResult<()> {
        let has_room = inode.has_inline(inline::XATTR);
        let room = if has_room { 4 * usize::from(inode.f.borrow().xattr_words) } else { 0 };
        let most = (room + Node::BODY_BYTES) / 4 * 4;
        let mut bytes = xattr::store(all);
        if bytes.is_empty() {
            // The header stays (`h_magic`), so that it is clear that there are none.
            let header = XattrHeader {
                magic: XattrHeader::MAGIC.into(),
                refcount: 1.into(),
                reserved: [0.into(); 4],
            };
            bytes = header.as_bytes().to_vec();
        } else {
            // What ends the list need not fit.
            bytes.truncate(bytes.len() - 4);
        }
        let used = bytes.len();
        if used > most
            || all.iter().any(|a| a.value.len() > most - XattrHeader::BYTES - XattrEntry::BYTES)
        {
            return Err(FsError::NoSpace);
        }
        bytes.resize(room + Node::BODY_BYTES, 0);
        let nid = inode.f.borrow().xattr_nid;
        if used > room {
            let node = match nid {
                0 => self.new_xattr_node(inode).await?,
                nid => self.node(nid).await?,
            };
            self.wait_on_page_writeback(&node, Kind::Node, true).await;
            node.with_mut(|b| b[..Node::BODY_BYTES].copy_from_slice(&bytes[room..]));
            self.dirty_node(&node);
        } else if nid != 0 {
            self.free_xattr_node(inode).await?;
        }
        if room > 0 {
            let (node, shape) = (self.node(inode.ino).await?, inode.shape());
            self.wait_on_page_writeback(&node, Kind::Node, true).await;
            node.with_mut(|b| {
                disk::Inode::of_mut(block_mut(b))
                    .xattr_area_mut(&shape)
                    .copy_from_slice(&bytes[..room]);
            });
            self.dirty_node(&node);
        }
        Ok(())
    }

    async fn new_xattr_node(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<Rc<wp_cache::Buffer>> {
        let nid = self.alloc_nid().await?;
        match self.new_node(inode.ino, nid, tree::XATTR_OFFSET, inode.is_dir()).await {
            Ok(node) => {
                self.add_blocks(inode, 1);
                self.change(inode, |f| f.xattr_nid = nid);
                self.alloc_nid_done(nid);
                Ok(node)
            }
            Err(e) => {
                self.alloc_nid_failed(nid);
                Err(e)
            }
        }
    }
}
