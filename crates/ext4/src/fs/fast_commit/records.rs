//! The records of one fast commit, block by block.
//!
//! Picture:    [`Records::put`] fills a block of the journal's area; where a record and the head of
//!             a pad do not fit, a pad ends the block and it is submitted -> [`Records::end`] puts
//!             the tail, whose checksum covers every byte of the commit before it.
//! Source:     Linux 6.12 `ext4_fc_reserve_space`, `ext4_fc_write_tail`, `ext4_fc_submit_bh`.

use wp_base::crc::crc32c;
use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_jbd2::{FastWrites, Journal};
use wp_medium::{Page, Slice};
use wp_rt::{CpuOp, Rt};
use zerocopy::{Immutable, IntoBytes};

use crate::disk::fast_commit::{TagLength, Tail, tag};

/// Bytes of a record before its value.
const HEAD: usize = size_of::<TagLength>();

/// A fast commit being written.
pub(super) struct Records<'a> {
    journal: &'a Journal,
    /// The part of the area that they are in.
    part: u32,
    rt: &'a Rt,
    block_bytes: usize,
    flags: Flags,
    /// Added to the flags of every block but the tail's.
    others: Flags,
    crc: u32,
    open: Option<Block>,
    /// The first block is written last ([`Records::hold_first`]), and is this.
    holds: bool,
    /// Blocks at the end of the area that stay unused.
    pub spare: u32,
    held: Option<Block>,
    /// What was submitted.
    pub writes: FastWrites,
}

struct Block {
    log: u32,
    page: Page,
    used: usize,
}

impl<'a> Records<'a> {
    /// Nothing yet. `flags` are every block's, `others` those of blocks before the tail's.
    pub fn new(
        (journal, part): (&'a Journal, u32),
        rt: &'a Rt,
        bytes: u32,
        flags: Flags,
        others: Flags,
    ) -> Self {
        Records {
            journal,
            part,
            rt,
            block_bytes: bytes as usize,
            flags,
            others,
            crc: 0,
            open: None,
            holds: false,
            spare: 0,
            held: None,
            writes: journal.fast_writes(),
        }
    }

    /// The first block, unless it is the tail's too, is left for [`Records::submit_first`].
    pub fn hold_first(&mut self) {
        self.holds = true;
    }

    /// Submits the first block, if it was left out, with `extra` flags.
    pub fn submit_first(&mut self, extra: Flags) -> FsResult<()> {
        match self.held.take() {
            Some(block) => self.submit(block, self.flags | extra),
            None => Ok(()),
        }
    }

    /// Adds a record whose value is `parts`, one behind the other. Errors: `NoSpace` if the area is
    /// full or the record longer than a block.
    pub async fn put(&mut self, kind: u16, parts: &[&[u8]]) -> FsResult<()> {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        let room = self.room(HEAD + len).await?;
        let (head, mut value) = room.split_at_mut(HEAD);
        put_head(head, kind, len);
        for part in parts {
            let (here, rest) = value.split_at_mut(part.len());
            here.copy_from_slice(part);
            value = rest;
        }
        Ok(())
    }

    /// [`Records::put`] of a structure.
    pub async fn put_of(
        &mut self,
        kind: u16,
        value: &(impl IntoBytes + Immutable),
    ) -> FsResult<()> {
        self.put(kind, &[value.as_bytes()]).await
    }

    /// `len` bytes of a block in which a pad's head still fits behind them.
    async fn room(&mut self, len: usize) -> FsResult<&mut [u8]> {
        if len > self.block_bytes - HEAD {
            return Err(FsError::NoSpace);
        }
        let full = |b: &Block| len > self.block_bytes - HEAD - b.used;
        if let Some(mut block) = self.open.take_if(|b| full(b)) {
            let rest = &mut block.page.make_mut()[block.used..self.block_bytes];
            put_head(rest, tag::PAD, rest.len() - HEAD);
            self.crc = crc32c(self.crc, &block.page.bytes()[..self.block_bytes]);
            if std::mem::take(&mut self.holds) {
                self.held = Some(block);
            } else {
                self.submit(block, self.flags | self.others)?;
            }
        }
        if self.open.is_none() {
            self.rt.cpu(CpuOp::JournalBlock, 1).await;
            let log =
                self.journal.take_fast_block(self.part, self.spare).ok_or(FsError::NoSpace)?;
            self.open = Some(Block { log, page: Page::zeroed(), used: 0 });
        }
        let block = self.open.as_mut().expect("one is open");
        let from = block.used;
        block.used += len;
        Ok(&mut block.page.make_mut()[from..from + len])
    }

    fn submit(&mut self, block: Block, flags: Flags) -> FsResult<()> {
        let data = Slice::of_page(block.page, 0, self.block_bytes as u32);
        self.journal.submit_fast(&self.writes, block.log, data, flags)
    }

    /// Puts the tail in its block, which is not submitted yet.
    pub async fn end(&mut self, tid: u32) -> FsResult<()> {
        let tail = HEAD + size_of::<Tail>();
        self.room(tail).await?;
        let block = self.open.as_mut().expect("the tail's is open");
        let at = block.used - tail;
        let bytes = &mut block.page.make_mut()[..self.block_bytes];
        // Nothing else goes into this block: the tail is as long as it.
        put_head(&mut bytes[at..], tag::TAIL, self.block_bytes - at - HEAD);
        let covered = at + HEAD + size_of::<u32>();
        bytes[at + HEAD..covered].copy_from_slice(&tid.to_le_bytes());
        let crc = crc32c(self.crc, &bytes[..covered]);
        bytes[covered..covered + size_of::<u32>()].copy_from_slice(&crc.to_le_bytes());
        Ok(())
    }

    /// Submits the tail's block, with `extra` flags.
    pub fn submit_tail(&mut self, extra: Flags) -> FsResult<()> {
        let block = self.open.take().expect("the tail's is open");
        self.submit(block, self.flags | extra)
    }
}

fn put_head(at: &mut [u8], kind: u16, len: usize) {
    let len = u16::try_from(len).expect("a record is shorter than a block");
    let head = TagLength { tag: kind.into(), len: len.into() };
    at[..HEAD].copy_from_slice(head.as_bytes());
}
