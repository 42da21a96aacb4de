//! The orphan file: slots for inode numbers, so that those who delete files at the same time do not
//! all change the super block.
//!
//! Invariants: 1. a slot changes only under `orphan_lock` and in a handle; its block is sealed
//!                then.
//!             2. the file is never grown: when it is full, the chain takes over.
//! Source:     Linux `fs/ext4/orphan.c` (`ext4_orphan_file_add`, `ext4_orphan_file_del`,
//!             `ext4_init_orphan_info`); "ext4: Speedup ext4 orphan inode handling" (5.15).

use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::Buffer;
use wp_jbd2::Handle;

use super::mount::Ext4;
use crate::disk::orphan::{self, OrphanTail};
use crate::disk::{compat, ro_compat};

/// Blocks of the largest orphan file that is believed (`EXT4_MAX_ORPHAN_FILE_BLOCKS`).
const BLOCKS_MAX: u64 = 512;

/// The orphan file in memory.
pub(super) struct OrphanFile {
    blocks: Vec<Rc<Buffer>>,
    /// Where its blocks' checksums start.
    seed: u32,
    /// Inode number to (block, slot).
    slots: BTreeMap<u32, (usize, usize)>,
}

impl Ext4 {
    /// Reads the orphan file, if the image has one and the kernel of this era uses it.
    ///
    /// Errors: `Corrupt` for a block that is none of it, `Unsupported` for a file in use before its
    /// era, `Io`.
    pub(super) async fn load_orphan_file(self: &Rc<Self>) -> FsResult<()> {
        let sb = *self.sb.borrow();
        if !self.opts.era.orphan_file() && sb.has_ro_compat(ro_compat::ORPHAN_PRESENT) {
            return Err(FsError::Unsupported(format!(
                "Linux {} and an orphan file in use: it came with 5.15",
                self.opts.era.version()
            )));
        }
        if !self.opts.era.orphan_file() || !sb.has_compat(compat::ORPHAN_FILE) {
            return Ok(());
        }
        let inode = self.inode(sb.orphan_file_inum.get()).await?;
        let bs = u64::from(self.bs().bytes());
        let wrong = |field, at: u64, found: u64, expected: String| {
            Err(FsError::corrupt("ext4 orphan file", field, at, found, expected))
        };
        let count = inode.size.get() / bs;
        if count > BLOCKS_MAX {
            return wrong("i_size", 0, inode.size.get(), format!("at most {BLOCKS_MAX} blocks"));
        }
        let seed = self.csum.inode_seed(inode.ino, inode.disk.borrow().generation.get());
        let mut file = OrphanFile { blocks: Vec::new(), seed, slots: BTreeMap::new() };
        for n in 0..count {
            let Ok(run) = self.find_run(&inode, n).await? else {
                return wrong("i_block", 0, n, "a file without holes".into());
            };
            let buf = self.bdev.read(run.phys).await?;
            let (magic, stored, right, used) = buf.with(|b| {
                let tail = OrphanTail::load(b).expect("a block holds its tail");
                let used: Vec<(usize, u32)> = orphan::slots(b)
                    .iter()
                    .enumerate()
                    .filter(|(_, ino)| ino.get() != 0)
                    .map(|(slot, ino)| (slot, ino.get()))
                    .collect();
                let right = self.csum.orphan_block(seed, run.phys, b);
                (tail.magic.get(), tail.checksum.get(), right, used)
            });
            if magic != OrphanTail::MAGIC {
                return wrong("ob_magic", run.phys * bs, magic.into(), "0x0b10ca04".into());
            }
            if self.csum.metadata() && stored != right {
                return wrong("ob_checksum", run.phys * bs, stored.into(), format!("{right:#x}"));
            }
            file.slots.extend(used.into_iter().map(|(slot, ino)| (ino, (file.blocks.len(), slot))));
            file.blocks.push(buf);
        }
        *self.orphan_file.borrow_mut() = Some(file);
        Ok(())
    }

    /// Does the orphan file list the inode?
    pub(super) fn orphan_file_holds(&self, ino: u32) -> bool {
        self.orphan_file.borrow().as_ref().is_some_and(|f| f.slots.contains_key(&ino))
    }

    /// What the orphan file lists, in the order of its slots.
    pub(super) fn orphan_file_inodes(&self) -> Vec<u32> {
        let file = self.orphan_file.borrow();
        let Some(f) = file.as_ref() else { return Vec::new() };
        let mut all: Vec<((usize, usize), u32)> = f.slots.iter().map(|(i, at)| (*at, *i)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, ino)| ino).collect()
    }

    /// Leaves what the file lists alone; its slots stay in use.
    pub(super) fn forget_orphan_file_slots(&self) {
        if let Some(f) = self.orphan_file.borrow_mut().as_mut() {
            f.slots.clear();
        }
    }

    /// Lists the inode in the orphan file. `false`: there is no file, or it is full. The caller
    /// holds `orphan_lock`.
    pub(super) async fn add_to_orphan_file(&self, h: &Handle, ino: u32) -> FsResult<bool> {
        if self.orphan_file_holds(ino) {
            return Ok(true);
        }
        let place = self.orphan_file.borrow().as_ref().and_then(|f| {
            f.blocks.iter().enumerate().find_map(|(n, buf)| {
                let slot = buf.with(|b| orphan::slots(b).iter().position(|i| i.get() == 0))?;
                Some((n, slot))
            })
        });
        let Some(place) = place else { return Ok(false) };
        self.set_orphan_slot(h, place, ino).await?;
        if let Some(f) = self.orphan_file.borrow_mut().as_mut() {
            f.slots.insert(ino, place);
        }
        Ok(true)
    }

    /// Takes the inode off the orphan file. `false`: it is not listed there. The caller holds
    /// `orphan_lock`.
    pub(super) async fn remove_from_orphan_file(&self, h: &Handle, ino: u32) -> FsResult<bool> {
        let place = self.orphan_file.borrow().as_ref().and_then(|f| f.slots.get(&ino).copied());
        let Some(place) = place else { return Ok(false) };
        self.set_orphan_slot(h, place, 0).await?;
        if let Some(f) = self.orphan_file.borrow_mut().as_mut() {
            f.slots.remove(&ino);
        }
        Ok(true)
    }

    async fn set_orphan_slot(
        &self,
        h: &Handle,
        (block, slot): (usize, usize),
        ino: u32,
    ) -> FsResult<()> {
        let (buf, seed) = {
            let file = self.orphan_file.borrow();
            let f = file.as_ref().expect("a slot is one of the file's");
            (f.blocks[block].clone(), f.seed)
        };
        h.get_write_access(&buf).await?;
        buf.with_mut(|b| {
            orphan::set_slot(b, slot, ino);
            let checksum = if self.csum.metadata() && crate::site::ORPHAN_CHECKSUM.on() {
                self.csum.orphan_block(seed, buf.block(), b)
            } else {
                OrphanTail::load(b).expect("a block holds its tail").checksum.get()
            };
            OrphanTail { magic: OrphanTail::MAGIC.into(), checksum: checksum.into() }.store(b);
        });
        self.dirty(h, &buf)
    }
}
