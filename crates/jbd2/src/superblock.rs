//! The journal's superblock: where the log starts, and why it was aborted.
//!
//! Picture:    log block 0, one writer at a time; the log's tail moves only when the write is on
//!             the medium.
//! Invariants: 1. log space is reused only after a superblock that no longer needs it is durable.
//!             2. on an aborted journal only `s_errno` is written.
//! Source:     Linux 6.1 `jbd2_write_superblock`, `jbd2_journal_update_sb_log_tail`,
//!             `jbd2_mark_journal_empty`.

use std::cell::Cell;
use std::mem::size_of;
use std::rc::Rc;

use wp_base::event::{Class, Event, Flags};
use wp_base::{FsError, FsResult};
use wp_block::Bio;
use wp_cache::Buffer;
use wp_rt::{LockGuard, Rt, WaitQueue};
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use crate::disk::{Format, SuperBlock};
use crate::fast::{self, FastKind};
use crate::journal::Journal;
use crate::site;

/// The cached superblock and the write of it in flight.
pub(crate) struct SuperState {
    /// Log block 0.
    pub buffer: Rc<Buffer>,
    io: Rc<SuperIo>,
}

struct SuperIo {
    busy: Cell<bool>,
    /// One that is only to be in order is on its way to the device.
    in_order: Cell<bool>,
    failed: Cell<bool>,
    done: WaitQueue,
}

impl SuperState {
    pub fn new(rt: &Rt, buffer: Rc<Buffer>) -> SuperState {
        let done = WaitQueue::new(rt, "journal superblock");
        SuperState {
            buffer,
            io: Rc::new(SuperIo {
                busy: Cell::new(false),
                in_order: Cell::new(false),
                failed: Cell::new(false),
                done,
            }),
        }
    }

    pub fn get(&self) -> SuperBlock {
        self.buffer.with(|b| {
            SuperBlock::read_from_prefix(b)
                .expect("a block is at least 1024 bytes, checked at load")
                .0
        })
    }

    /// Changes the copy in memory; its checksum is kept right.
    pub fn set(&self, change: impl FnOnce(&mut SuperBlock)) {
        let mut sb = self.get();
        change(&mut sb);
        if Format::of(&sb).csum_v2or3() && site::SUPER_CHECKSUM.on() {
            sb.checksum = U32::new(sb.checksum_now());
        }
        self.buffer.with_mut(|b| b[..size_of::<SuperBlock>()].copy_from_slice(sb.as_bytes()));
    }
}

impl Journal {
    /// The superblock as it is in memory.
    pub fn superblock(&self) -> SuperBlock {
        self.sb.get()
    }

    /// Flags of a superblock write: without barriers no flush and no FUA.
    fn super_flags(&self, flags: Flags) -> Flags {
        let flags = flags | self.opts.era.log_flags();
        if self.opts.barrier { flags } else { flags.without(Flags::PREFLUSH | Flags::FUA) }
    }

    fn submit_super(&self, flags: Flags) {
        let io = self.sb.io.clone();
        io.busy.set(true);
        self.st.borrow_mut().counters.superblock_writes += 1;
        let ordered = flags.has(Flags::ORDERED);
        io.in_order.set(ordered);
        self.rt.emit(Class::JBD2, || Event::Jbd2 {
            what: "write_superblock",
            tid: self.sb.get().sequence.get(),
            value: u64::from(self.sb.get().start.get()),
        });
        let at = self.bs.sector_of(self.sb.buffer.block());
        let bio = Bio::write(at, vec![self.sb.buffer.snapshot()], self.super_flags(flags));
        let bio = if ordered {
            let io = io.clone();
            bio.on_dispatch(move || {
                io.in_order.set(false);
                io.done.wake_all();
            })
        } else {
            bio
        };
        let journal = self.me.clone();
        self.bdev.queue().submit(bio.on_end(move |end| {
            let failed = end.status.is_err();
            io.failed.set(failed && !ordered);
            io.busy.set(false);
            io.done.wake_all();
            // Nobody waits for one that is only in order, and log space is reused behind it.
            if let Some(journal) = journal.upgrade().filter(|_| failed && ordered) {
                journal.abort(FsError::Io);
            }
        }));
    }

    /// Waits for the write in flight. Errors: `Io`, which also aborts the journal.
    async fn wait_super(&self) -> FsResult<()> {
        self.sb.io.done.wait_until(|| !self.sb.io.busy.get()).await;
        if self.sb.io.failed.replace(false) {
            self.abort(FsError::Io);
            return Err(FsError::Io);
        }
        Ok(())
    }

    async fn write_super(&self, flags: Flags) -> FsResult<()> {
        if self.sb.io.busy.get() && site::SUPER_ONE.on() {
            self.sb.io.done.wait_until(|| !self.sb.io.busy.get()).await;
        }
        self.submit_super(flags);
        if flags.has(Flags::ORDERED) {
            // Dispatched is enough. An error aborts the journal when it shows.
            self.sb.io.done.wait_until(|| !self.sb.io.in_order.get()).await;
            return if self.is_aborted() { Err(FsError::Io) } else { Ok(()) };
        }
        let result = if site::SUPER_WAIT.on() { self.wait_super().await } else { Ok(()) };
        // An abort that came while we wrote could not say why on disk.
        self.write_errno();
        result
    }

    /// Writes the reason of an abort, without waiting for it, unless it is on its way or another
    /// write is.
    pub(crate) fn write_errno(&self) {
        if self.errno_unwritten.get() && !self.sb.io.busy.get() {
            self.errno_unwritten.set(false);
            let forced = self.opts.era.errno_forced() && site::ERRNO_FUA.on();
            self.submit_super(if forced { Flags::FUA } else { Flags::NONE });
        }
    }

    /// Waits until the reason of an abort is written. Is it?
    pub(crate) async fn errno_written(&self) -> bool {
        let idle = || self.sb.io.done.wait_until(|| !self.sb.io.busy.get());
        idle().await;
        self.write_errno();
        idle().await;
        !self.sb.io.failed.replace(false)
    }

    /// Writes where the log starts. The guard is the checkpoint lock: nobody else moves the tail.
    ///
    /// Waits: for the write. Errors: `Io` on an aborted journal and when the write fails.
    pub(crate) async fn write_log_tail(
        &self,
        _guard: &LockGuard<'_, ()>,
        tid: u32,
        block: u32,
        flags: Flags,
    ) -> FsResult<()> {
        let failed_home = self.st.borrow().checkpoint_error;
        if failed_home && !self.is_aborted() {
            self.abort(FsError::Io);
        }
        if self.is_aborted() {
            return Err(FsError::Io);
        }
        self.sb.set(|sb| {
            sb.sequence = U32::new(tid);
            sb.start = U32::new(block);
        });
        self.write_super(flags).await?;
        self.st.borrow_mut().flushed = false;
        Ok(())
    }

    /// Moves the log's tail, on the medium and then in memory. Source: `__jbd2_update_log_tail`.
    pub(crate) async fn move_tail(
        &self,
        guard: &LockGuard<'_, ()>,
        tid: u32,
        block: u32,
    ) -> FsResult<()> {
        // FUA: as soon as the tail has moved here, the next transaction may reuse what lies before
        //      it.
        // In dual mode it goes ahead of it, in order.
        let forced = self.opts.era.forced_tail() && site::TAIL_FUA.on();
        let force = match self.opts.mode.dual() {
            Some(_) if site::TAIL_ORDER.on() => Flags::ORDERED | Flags::BARRIER,
            None if forced => Flags::FUA,
            _ => Flags::NONE,
        };
        if site::TAIL_WRITE.on() {
            self.write_log_tail(guard, tid, block, force).await?;
        }
        let mut st = self.st.borrow_mut();
        let freed = st.freed_up_to(block);
        st.set_tail(tid, block);
        drop(st);
        self.emit("update_log_tail", tid, freed as u64);
        Ok(())
    }

    /// Writes the superblock of an empty log, unless it stands there already.
    pub(crate) async fn mark_empty(
        &self,
        _guard: &LockGuard<'_, ()>,
        flags: Flags,
    ) -> FsResult<()> {
        let (sequence, head) = {
            let st = self.st.borrow();
            (st.tail_sequence, st.head)
        };
        if self.sb.get().start.get() == 0 {
            return Ok(());
        }
        let mut flags = flags;
        if flags.has(Flags::PREFLUSH) && !site::EMPTY_PREFLUSH.on() {
            flags = flags.without(Flags::PREFLUSH);
        }
        if flags.has(Flags::FUA) && !site::EMPTY_FUA.on() {
            flags = flags.without(Flags::FUA);
        }
        let (record_head, fast) = (self.opts.era.cycle_record(), self.opts.fast);
        self.sb.set(|sb| {
            sb.sequence = U32::new(sequence);
            sb.start = U32::new(0);
            if record_head {
                sb.head = U32::new(head);
            }
            if fast != FastKind::Off {
                fast::turn_off(sb);
            }
        });
        let written = self.write_super(flags).await;
        self.sb.set(|sb| fast::turn_on(sb, fast));
        written?;
        self.st.borrow_mut().flushed = true;
        Ok(())
    }

    /// Turns features on in memory; they reach the disk with the next superblock write, as in the
    /// kernel.
    ///
    /// Checksum v2 becomes v3, and v3 excludes v1. Errors: `Unsupported` in format version 1.
    /// Source: `jbd2_journal_set_features`.
    pub fn set_features(&self, compat: u32, incompat: u32) -> FsResult<()> {
        use crate::disk as d;
        let sb = self.sb.get();
        if sb.feature_compat.get() & compat == compat
            && sb.feature_incompat.get() & incompat == incompat
        {
            return Ok(());
        }
        if sb.header.blocktype.get() != d::SUPER_V2 {
            return Err(FsError::Unsupported(
                "features in a journal of format version 1".to_owned(),
            ));
        }
        let (mut compat, mut incompat) = (compat, incompat);
        if incompat & d::INCOMPAT_CSUM_V2 != 0 {
            incompat = (incompat & !d::INCOMPAT_CSUM_V2) | d::INCOMPAT_CSUM_V3;
        }
        if incompat & d::INCOMPAT_CSUM_V3 != 0 {
            compat &= !d::COMPAT_CHECKSUM;
        }
        self.sb.set(|sb| {
            let (mut c, mut i) = (sb.feature_compat.get(), sb.feature_incompat.get());
            if incompat & d::INCOMPAT_CSUM_V3 != 0 && i & d::INCOMPAT_CSUM_V3 == 0 {
                sb.checksum_type = d::CHECKSUM_TYPE_CRC32C;
                c &= !d::COMPAT_CHECKSUM;
            }
            if compat & d::COMPAT_CHECKSUM != 0 && c & d::COMPAT_CHECKSUM == 0 {
                i &= !(d::INCOMPAT_CSUM_V2 | d::INCOMPAT_CSUM_V3);
            }
            sb.feature_compat = U32::new(c | compat);
            sb.feature_incompat = U32::new(i | incompat);
        });
        self.refresh_format();
        Ok(())
    }

    /// The errno that an abort left in the superblock, 0 for none; it is forgotten, on disk with
    /// the next superblock write. Source: `jbd2_journal_clear_err`.
    pub fn clear_error(&self) -> u32 {
        let errno = self.sb.get().errno.get();
        if errno != 0 {
            self.sb.set(|sb| sb.errno = U32::new(0));
        }
        errno
    }

    /// Turns features off in memory. Source: `jbd2_journal_clear_features`.
    pub fn clear_features(&self, compat: u32, incompat: u32) {
        self.sb.set(|sb| {
            sb.feature_compat = U32::new(sb.feature_compat.get() & !compat);
            sb.feature_incompat = U32::new(sb.feature_incompat.get() & !incompat);
        });
        self.refresh_format();
    }
}
