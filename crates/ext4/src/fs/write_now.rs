//! Buffered writes that need not wait: one whole block, over what is there or at the end of the
//! file, with a place or a promise of one to be had at once. Most writes are such.
//!
//! Invariant: what is done is what [`Ext4::write_data`] does, in its order; what may have to wait
//! is found out before anything is done, and then nothing is, or only what it does first.

use std::rc::Rc;

use wp_base::FsResult;
use wp_cache::{BufFlag, Buffer};
use wp_jbd2::Handle;
use wp_medium::Slice;
use wp_rt::{MaybeReady, soon};
use wp_vfs::InUse;

use super::data::After;
use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::inode::flag;
use crate::site;

impl Ext4 {
    /// A write of `data` at `offset` (at the end if `None`), with the inode's lock taken and its
    /// use counted, if that need not wait until the bytes are in the cache. `None`: it may, or
    /// something is wrong, and nothing is done but that the times are new.
    pub(super) fn write_now<'a>(
        self: &'a Rc<Self>,
        inode: &Rc<Inode>,
        offset: Option<u64>,
        data: &'a [Slice],
    ) -> Option<MaybeReady<'a, FsResult<u64>>> {
        let [chunk] = data else { return None };
        let bytes = u64::from(self.bs().bytes());
        let size = inode.size.get();
        let at = offset.unwrap_or(size);
        if u64::from(chunk.len()) != bytes || !at.is_multiple_of(bytes) || at > size {
            return None;
        }
        let end = at.checked_add(bytes).filter(|end| *end <= i32::MAX as u64)?;
        if !self.is_free_to_write(inode) {
            return None;
        }
        let index = at / bytes;
        let cached = inode.map.peek(index);
        let hole = match &cached {
            Some(b) if self.takes_bytes(b) => None,
            Some(_) => return None,
            None => Some(self.hole_now(inode, index)?),
        };
        match self.update_time(inode) {
            MaybeReady::Now(Some(Ok(()))) => {}
            timed => {
                return Some(MaybeReady::later(self.write_later(timed, inode.clone(), at, data)));
            }
        }
        let h = match self.opts.era.delalloc_write_without_handle() {
            true => None,
            false => Some(self.journal().start_now(1)?),
        };
        // From here on it is done.
        let b = cached.unwrap_or_else(|| inode.map.get(index));
        if let Some(hole) = hole
            && let Err(e) = self.promise(inode, &b, Err(hole), false)
        {
            return Some(match h {
                Some(h) => self.stop(h, Err(e)),
                None => MaybeReady::now(Err(e)),
            });
        }
        b.put(0, chunk);
        b.set(BufFlag::Uptodate);
        let (mut after, mut out) = (After::Nothing, Ok(()));
        if end > size || end > inode.disksize.get() {
            match self.sizes_after(h.as_ref(), inode, &b, end, true) {
                Ok(what) => after = what,
                Err(e) => out = Err(e),
            }
        }
        if let (After::Touch, Some(h)) = (&after, &h)
            && let Some(put) = self.write_inode_now(h, inode)
        {
            (after, out) = (After::Nothing, put);
        }
        if after != After::Nothing {
            return Some(MaybeReady::later(self.end_write_later(h, inode.clone(), b, after, end)));
        }
        if out.is_ok() {
            inode.map.mark_dirty(&b);
        }
        let out = out.map(|()| bytes);
        Some(match h {
            Some(h) => self.stop(h, out),
            None => MaybeReady::now(out),
        })
    }

    /// The end of [`Ext4::write_now`] where the new times have to be waited for, or are refused. To
    /// be awaited at once, as the next.
    async fn write_later(
        self: &Rc<Self>,
        timed: MaybeReady<'_, FsResult<()>>,
        inode: Rc<Inode>,
        at: u64,
        data: &[Slice],
    ) -> FsResult<u64> {
        let user = InUse::new(&inode);
        let alone = inode.lock.lock().await;
        let out = match timed.await {
            Ok(()) => self.write_data(&inode, at, data).await,
            Err(e) => Err(e),
        };
        drop((alone, user));
        let freed = self.free_if_unused(&inode).await;
        out.and_then(|n| freed.map(|()| n))
    }

    /// The end of [`Ext4::write_now`] where the inode's slot has to be waited for. To be awaited at
    /// once: nobody has run since the inode was seen to be free.
    async fn end_write_later(
        self: &Rc<Self>,
        h: Option<Handle>,
        inode: Rc<Inode>,
        b: Rc<Buffer>,
        after: After,
        end: u64,
    ) -> FsResult<u64> {
        let user = InUse::new(&inode);
        let alone = inode.lock.lock().await;
        let out = self.follow(h.as_ref(), &inode, after, end).await;
        if out.is_ok() {
            inode.map.mark_dirty(&b);
        }
        let out = match h {
            Some(h) => soon!(self.stop(h, out)),
            None => out,
        };
        if out.is_ok() {
            self.wb.balance_dirty().await;
        }
        drop((alone, user));
        let freed = self.free_if_unused(&inode).await;
        out.and(freed).map(|()| u64::from(b.len()))
    }

    /// Can the caller write to the inode at once: is it nobody else's, is its data not journalled,
    /// is there space, and does CPU time cost nothing?
    fn is_free_to_write(&self, inode: &Inode) -> bool {
        !self.rt.is_modelled()
            && self.is_mounted()
            && !self.is_stopped()
            && !inode.lock.is_locked()
            && inode.dio.get() == 0
            && inode.nlink() > 0
            && self.delays(inode)
            && self.wb.has_room()
    }

    /// Has the cached block its place, or a promise, and may it be changed?
    fn takes_bytes(&self, b: &Buffer) -> bool {
        let held = self.opts.writeback.era.stable_pages()
            && site::STABLE.on()
            && b.flag(BufFlag::Writeback);
        !held && (b.flag(BufFlag::Mapped) || b.flag(BufFlag::Delay))
    }

    /// How long the hole at block `index` is, if there is one, the map says so at once, and a block
    /// can be promised.
    fn hole_now(&self, inode: &Inode, index: u64) -> Option<u64> {
        if !inode.has(flag::EXTENTS) || inode.map_lock.is_locked() || self.free_for_delay() == 0 {
            return None;
        }
        if self.geo.cluster_bits > 0 {
            // The rest of its cluster has to be looked at, too.
            return None;
        }
        self.root_lookup(inode, u32::try_from(index).ok()?).ok()??.err()
    }
}
