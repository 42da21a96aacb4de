//! The log as a ring of blocks, and a walk over its control blocks.

use std::mem::size_of;
use std::ops::Deref;

use wp_base::{BlockSize, FsError, FsResult};
use wp_medium::{Overlay, PAGE_BYTES, Page, View};
use zerocopy::FromBytes;

use super::{MayRead, ScanEnd};
use crate::disk::{self, Format, Header, SuperBlock};
use crate::log::LogMap;
use crate::site;

/// The ring of log blocks, as one recovery sees it.
pub(super) struct Ring<'a, 'b> {
    pub dev: &'a Overlay<'b>,
    log: &'a LogMap,
    bs: BlockSize,
    pub format: Format,
    /// First block of the ring.
    first: u32,
    /// Block after its last.
    last: u32,
    /// Blocks of the log, fast-commit area included.
    total: u32,
    pub fast_commit: Option<(u32, u32)>,
    may_read: MayRead<'a>,
}

impl<'a, 'b> Ring<'a, 'b> {
    pub fn new(
        dev: &'a Overlay<'b>,
        log: &'a LogMap,
        bs: BlockSize,
        sb: &SuperBlock,
        may_read: MayRead<'a>,
    ) -> FsResult<Ring<'a, 'b>> {
        let ((first, last), fc, total) =
            (Ring::bounds(sb)?, sb.fast_commit_blocks(), sb.maxlen.get());
        // The kernel leaves the block at `last` unused: its area starts one later.
        let fast_commit = (last < total).then(|| (last + 1, fc - 1));
        Ok(Ring { dev, log, bs, format: Format::of(sb), first, last, total, fast_commit, may_read })
    }

    /// First block of the ring, and the block after its last.
    ///
    /// Errors: `Corrupt` for a fast-commit area that leaves no room.
    pub fn bounds(sb: &SuperBlock) -> FsResult<(u32, u32)> {
        let (first, total, fc) = (sb.first.get(), sb.maxlen.get(), sb.fast_commit_blocks());
        let has_area = fc != 0 && total.saturating_sub(fc) >= disk::LOG_BLOCKS_MIN;
        let last = if has_area { total - fc } else { total };
        if first < last {
            return Ok((first, last));
        }
        let expected = "room for a log before the fast-commit area";
        Err(FsError::corrupt("jbd2 superblock", "s_num_fc_blks", 0, u64::from(fc), expected))
    }

    pub fn byte(&self, log: u32) -> Option<u64> {
        self.log.block(log)?.checked_mul(u64::from(self.bs.bytes()))
    }

    pub fn read(&self, log: u32, out: &mut [u8]) -> FsResult<()> {
        self.dev.read_at(self.place(log)?, out)
    }

    /// Reads a block by reference where the device has its page.
    pub fn read_block(&self, log: u32, out: &mut Block) -> FsResult<()> {
        let at = self.place(log)?;
        if self.block_bytes() == PAGE_BYTES
            && let Some(page) = self.dev.page_at(at)?
        {
            *out = Block::Page(page);
            return Ok(());
        }
        if let Block::Page(_) = out {
            *out = Block::new(self.block_bytes());
        }
        match out {
            Block::Own(bytes) => self.dev.read_at(at, bytes),
            Block::Page(_) => unreachable!("it was replaced"),
        }
    }

    /// The byte address of a block that may be read.
    fn place(&self, log: u32) -> FsResult<u64> {
        if log >= self.total {
            return Err(FsError::corrupt(
                "jbd2 log",
                "position",
                0,
                u64::from(log),
                "a block of the log",
            ));
        }
        let block = self.log.block(log).ok_or(FsError::Io)?;
        if !(self.may_read)(self.dev, block) {
            let expected = "a block that the replayed super block has room for";
            return Err(FsError::corrupt("jbd2 log", "block", 0, block, expected));
        }
        self.byte(log).ok_or(FsError::Io)
    }

    /// The position `by` blocks on: one turn around the ring at most, as `wrap()` does.
    fn advance(&self, at: u32, by: u32) -> u32 {
        let next = u64::from(at) + u64::from(by);
        if next >= u64::from(self.last) {
            (next - u64::from(self.last - self.first)) as u32
        } else {
            next as u32
        }
    }

    pub fn block_bytes(&self) -> usize {
        self.bs.bytes() as usize
    }
}

/// A block of the log that was read.
pub(super) enum Block {
    /// A page of the device: most recoveries of a set of crash states read the same ones, whose
    /// checksums are known by then.
    Page(Page),
    Own(Vec<u8>),
}

impl Block {
    /// Room for one of this length.
    pub fn new(bytes: usize) -> Block {
        Block::Own(vec![0; bytes])
    }

    /// See [`Format::tail_is_right`].
    pub fn tail_is_right(&self, format: &Format) -> bool {
        match self {
            Block::Page(page) => format.tail_of_page_is_right(page),
            Block::Own(bytes) => format.tail_is_right(bytes),
        }
    }

    /// See [`Format::commit_is_right`].
    pub fn commit_is_right(&self, format: &Format) -> bool {
        match self {
            Block::Page(page) => format.commit_of_page_is_right(page),
            Block::Own(bytes) => format.commit_is_right(bytes),
        }
    }

    /// See [`Format::tag_is_right`].
    pub fn tag_is_right(&self, format: &Format, tag: &disk::ParsedTag, tid: u32) -> bool {
        match self {
            Block::Page(page) => format.tag_of_page_is_right(tag, tid, page),
            Block::Own(bytes) => format.tag_is_right(tag, tid, bytes),
        }
    }

    /// Its bytes for writing.
    pub fn make_mut(&mut self) -> &mut [u8] {
        match self {
            Block::Page(page) => page.make_mut(),
            Block::Own(bytes) => bytes,
        }
    }

    /// Writes it to byte address `at`. Errors: `Io` beyond the end.
    pub fn lay(&self, dev: &Overlay<'_>, at: u64) -> FsResult<()> {
        match self {
            Block::Page(page) if at.is_multiple_of(PAGE_BYTES as u64) => dev.lay(at, page.clone()),
            _ => dev.write_at(at, self),
        }
    }
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Block::Page(page) => page.bytes(),
            Block::Own(bytes) => bytes,
        }
    }
}

/// One pass over the log: yields control blocks while they belong to it.
pub(super) struct Walk<'r, 'a, 'b> {
    ring: &'r Ring<'a, 'b>,
    /// Next block to read.
    pub at: u32,
    /// Log blocks passed.
    walked: u64,
    /// The control block last read.
    pub block: Block,
}

/// What stands at the walk's position.
pub(super) enum Step {
    Control(u32),
    End(ScanEnd),
}

impl<'r, 'a, 'b> Walk<'r, 'a, 'b> {
    pub fn new(ring: &'r Ring<'a, 'b>, sb: &SuperBlock) -> Walk<'r, 'a, 'b> {
        Walk { ring, at: sb.start.get(), walked: 0, block: Block::new(ring.block_bytes()) }
    }

    /// Reads the next block, which should be a control block of `tid`.
    pub fn step(&mut self, tid: u32) -> FsResult<Step> {
        // A log can be crafted so that it never ends; a real one is no longer than itself.
        if self.walked > u64::from(self.ring.last) {
            return Ok(Step::End(ScanEnd::WholeLog));
        }
        self.ring.read_block(self.at, &mut self.block)?;
        self.skip(1);
        let Ok((h, _)) = Header::read_from_prefix(&self.block) else {
            return Ok(Step::End(ScanEnd::NoMagic));
        };
        if h.magic.get() != disk::MAGIC {
            return Ok(Step::End(ScanEnd::NoMagic));
        }
        if h.sequence.get() != tid && site::SCAN_SEQUENCE.on() {
            return Ok(Step::End(ScanEnd::OtherSequence(h.sequence.get())));
        }
        match h.blocktype.get() {
            t @ (disk::DESCRIPTOR | disk::COMMIT | disk::REVOKE) => Ok(Step::Control(t)),
            t => Ok(Step::End(ScanEnd::UnknownType(t))),
        }
    }

    pub fn skip(&mut self, blocks: u32) {
        self.at = self.ring.advance(self.at, blocks);
        self.walked += u64::from(blocks);
    }

    pub fn tags(&self) -> u32 {
        Tags::new(&self.ring.format, &self.block).count() as u32
    }
}

/// The tags of a descriptor block, in order.
pub(super) struct Tags<'a> {
    format: &'a Format,
    block: &'a [u8],
    at: usize,
    done: bool,
}

impl<'a> Tags<'a> {
    pub fn new(format: &'a Format, block: &'a [u8]) -> Tags<'a> {
        Tags { format, block, at: size_of::<Header>(), done: false }
    }
}

impl Iterator for Tags<'_> {
    type Item = disk::ParsedTag;
    fn next(&mut self) -> Option<disk::ParsedTag> {
        if self.done {
            return None;
        }
        let tag = self.format.tag(self.block, self.at)?;
        self.at += self.format.tag_bytes();
        if tag.flags & disk::TAG_SAME_UUID == 0 {
            self.at += disk::UUID_BYTES;
        }
        self.done = tag.flags & disk::TAG_LAST != 0;
        Some(tag)
    }
}
