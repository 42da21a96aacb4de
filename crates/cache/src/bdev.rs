//! The block device's own mapping: where a file system's metadata is cached (`blkdev` buffer
//! cache).

use std::rc::{Rc, Weak};

use wp_base::event::{Flags, Op};
use wp_base::{BlockSize, FsError, FsResult};
use wp_block::{Bio, Partition};
use wp_rt::Rt;

use crate::Fut;
use crate::buffer::{BufFlag, Buffer};
use crate::mapping::{Mapping, WbControl, WbOps};
use crate::writeback::Writeback;

/// Metadata cache of one mounted file system.
pub struct Bdev {
    rt: Rt,
    part: Partition,
    block: BlockSize,
    map: Rc<Mapping>,
    wb: Weak<Writeback>,
}

impl Bdev {
    /// An empty cache over `part`, in blocks of `block` (at most 4096 bytes), cleaned by `wb`.
    pub fn new(rt: &Rt, part: Partition, block: BlockSize, wb: &Rc<Writeback>) -> Rc<Bdev> {
        let map = Mapping::new(rt, crate::mapping::DEVICE, block.bytes(), wb);
        let dev = Rc::new(Bdev { rt: rt.clone(), part, block, map, wb: Rc::downgrade(wb) });
        let ops: Rc<dyn WbOps> = dev.clone();
        dev.map.set_ops(Rc::downgrade(&ops));
        dev.map.keep_ahead();
        dev
    }

    /// Its block size.
    pub fn block_size(&self) -> BlockSize {
        self.block
    }

    /// Where it reads and writes.
    pub fn queue(&self) -> &Partition {
        &self.part
    }

    /// The runtime it lives on.
    pub fn rt(&self) -> &Rt {
        &self.rt
    }

    /// Its mapping.
    pub fn mapping(&self) -> &Rc<Mapping> {
        &self.map
    }

    /// The flusher that cleans it, unless it is gone already.
    pub fn writeback(&self) -> Option<Rc<Writeback>> {
        self.wb.upgrade()
    }

    /// The block, up to date. Waits: for the device if it is not cached. Errors: `Io`.
    pub async fn read(&self, block: u64) -> FsResult<Rc<Buffer>> {
        let b = self.map.get(block);
        if !b.flag(BufFlag::Uptodate) {
            Box::pin(self.fetch(&b)).await?;
        }
        Ok(b)
    }

    async fn fetch(&self, b: &Rc<Buffer>) -> FsResult<()> {
        let block = b.block();
        loop {
            if b.flag(BufFlag::Uptodate) {
                return Ok(());
            }
            if b.flag(BufFlag::Reading) {
                b.wait_clear(BufFlag::Reading).await;
                continue;
            }
            b.set(BufFlag::Reading);
            let got = self
                .part
                .submit_wait(Bio {
                    op: Op::Read,
                    flags: Flags::META | Flags::PRIO,
                    at: self.block.sector_of(block),
                    segs: Vec::new(),
                    sectors: self.block.sectors(),
                    end: None,
                    dispatched: None,
                })
                .await;
            b.clear(BufFlag::Reading);
            let done = match got {
                // A writer may have filled it while we read; then its bytes are newer.
                Ok(slices) if !b.flag(BufFlag::Uptodate) => {
                    fill(b, &slices);
                    b.set(BufFlag::Uptodate);
                    Ok(())
                }
                Ok(_) => Ok(()),
                Err(_) => Err(FsError::Io),
            };
            b.wake();
            done?;
        }
    }

    /// Starts reading a block that is not cached (`sb_breadahead`); nobody waits, and an error is
    /// found by whoever reads it.
    pub fn read_ahead(&self, block: u64) {
        let b = self.map.get(block);
        if b.flag(BufFlag::Uptodate) || b.flag(BufFlag::Reading) {
            return;
        }
        b.set(BufFlag::Reading);
        self.part.submit(Bio {
            op: Op::Read,
            flags: Flags::META | Flags::PRIO | Flags::RAHEAD,
            at: self.block.sector_of(block),
            segs: Vec::new(),
            sectors: self.block.sectors(),
            end: Some(Box::new(move |end| {
                b.clear(BufFlag::Reading);
                if end.status.is_ok() && !b.flag(BufFlag::Uptodate) {
                    fill(&b, &end.data);
                    b.set(BufFlag::Uptodate);
                }
                b.wake();
            })),
            dispatched: None,
        });
    }

    /// The block as it is cached; a fresh one, not up to date, if it is not (`getblk`).
    pub fn get(&self, block: u64) -> Rc<Buffer> {
        self.map.get(block)
    }

    /// The block if it is cached.
    pub fn peek(&self, block: u64) -> Option<Rc<Buffer>> {
        self.map.peek(block)
    }

    /// Marks the block to be written home by the flusher or a checkpoint.
    pub fn mark_dirty(&self, b: &Rc<Buffer>) {
        self.map.mark_dirty(b);
    }

    /// Cancels a pending home write; true if there was one.
    pub fn clear_dirty(&self, b: &Buffer) -> bool {
        self.map.clear_dirty(b)
    }

    /// Sends the block to its home. Clears `Dirty`, sets `Writeback` until completion.
    pub fn submit_write(&self, b: &Rc<Buffer>, flags: Flags) {
        self.map.begin_writeback(b);
        let mut flags = flags;
        if b.flag(BufFlag::Meta) {
            flags |= Flags::META;
        }
        if b.flag(BufFlag::Prio) {
            flags |= Flags::PRIO;
        }
        let (map, done) = (self.map.clone(), b.clone());
        self.part.submit(Bio {
            op: Op::Write,
            flags,
            at: self.block.sector_of(b.block()),
            segs: vec![b.snapshot()],
            sectors: self.block.sectors(),
            end: Some(Box::new(move |end| map.end_writeback(&done, end.status.is_err()))),
            dispatched: None,
        });
    }

    /// Waits until the block is not under writeback. Errors: `Io` if the last write failed.
    pub async fn wait_on(&self, b: &Rc<Buffer>) -> FsResult<()> {
        b.wait_clear(BufFlag::Writeback).await;
        if b.clear(BufFlag::WriteError) { Err(FsError::Io) } else { Ok(()) }
    }

    /// Sends everything dirty to be written that is not being written already
    /// (`sync_blockdev_nowait`: nobody waits for it yet).
    pub async fn start_sync(&self) -> FsResult<()> {
        self.map.writepages(&WbControl::before_sync()).await
    }

    /// Writes everything dirty and waits for it (`sync_blockdev`).
    pub async fn sync(&self) -> FsResult<()> {
        self.map.write_and_wait().await
    }
}

/// Makes the device's answer the buffer's contents, by reference where it is one piece.
fn fill(b: &Buffer, slices: &[wp_medium::Slice]) {
    if let [one] = slices
        && one.len() == b.len()
    {
        b.set_contents(one.clone());
        return;
    }
    b.with_mut(|bytes| {
        let mut at = 0usize;
        for s in slices {
            let n = (s.len() as usize).min(bytes.len() - at);
            s.sub(0, n as u32).copy_to(&mut bytes[at..at + n]);
            at += n;
        }
    });
}

impl WbOps for Bdev {
    /// `block_write_full_page` over the tagged blocks: those whose buffer the journal has taken
    /// over have nothing to write and only lose their tag.
    fn writepages<'a>(&'a self, map: &'a Rc<Mapping>, wbc: &'a WbControl) -> Fut<'a, ()> {
        Box::pin(async move {
            let plug = self.part.plug();
            let start = if wbc.cyclic { map.next_index() } else { wbc.range.0 };
            let mut passes = vec![(start, wbc.range.1)];
            if wbc.cyclic && start > 0 {
                passes.push((0, start - 1));
            }
            for (from, to) in passes {
                for index in map.tagged(from, to, usize::MAX) {
                    if wbc.budget.get() == 0 {
                        return Ok(());
                    }
                    let Some(b) = map.peek(index) else {
                        map.drop_tag(index);
                        continue;
                    };
                    if b.flag(BufFlag::Writeback) {
                        if !wbc.sync {
                            continue;
                        }
                        if crate::site::HOME_AGAIN.on() {
                            b.wait_clear(BufFlag::Writeback).await;
                        }
                    }
                    if b.flag(BufFlag::Dirty) {
                        self.submit_write(&b, if wbc.sync { Flags::SYNC } else { Flags::NONE });
                        map.set_next_index(index + 1);
                    } else {
                        map.drop_tag(index);
                    }
                    wbc.budget.set(wbc.budget.get() - 1);
                }
            }
            drop(plug);
            Ok(())
        })
    }
}
