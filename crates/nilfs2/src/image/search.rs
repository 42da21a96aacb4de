//! From the super blocks along the logs to the newest super root.
//!
//! Picture:    the newer good super block -> the log that it names -> log after log, segment after
//!             segment, as long as sequence number and checksum are right.
//! Invariants: ends: each step reads a log of the sequence number that the step before told, and
//!             no two segments in a row without one.
//! Source:     `nilfs_load_super_block`, `nilfs_search_super_root`, `load_nilfs`.

use wp_base::{Corruption, FsError, FsResult};
use wp_medium::View;
use zerocopy::IntoBytes;

use crate::disk::summary::{data_sum, flag};
use crate::disk::super_block::state;
use crate::disk::{Geometry, SummaryHead, SuperBlock};
use crate::site;

/// Logs behind the newest super root that belong to no checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Orphans {
    /// First block of the first.
    pub start: u64,
    /// Its sequence number.
    pub seq: u64,
    /// First block of the last that ends a group.
    pub end: u64,
}

/// A log, and the segment where the next one is when its own is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogAt {
    /// Its first block.
    pub start: u64,
    /// Its blocks.
    pub blocks: u64,
    /// Its sequence number.
    pub seq: u64,
    /// The segment that it lies in.
    pub segment: u64,
    /// The next segment.
    pub next_segment: u64,
}

/// The newest super root, and how it was found.
#[derive(Clone)]
pub struct Tip {
    /// The super block that led to it.
    pub sb: SuperBlock,
    /// Is the place of the newer copy at the end of the device? It is written first.
    pub is_second: bool,
    /// The other copy, if it is good.
    pub other: Option<SuperBlock>,
    /// The layout.
    pub g: Geometry,
    /// The log with the super root.
    pub root: LogAt,
    /// The checkpoint that it ends.
    pub cno: u64,
    /// When that log was written, in seconds since 1970.
    pub create: u64,
    /// The last good log, perhaps the same.
    pub last: LogAt,
    /// Was the file system unmounted in order, so that nothing lies behind?
    pub is_clean: bool,
    /// What lies behind.
    pub orphans: Option<Orphans>,
    /// Did another super root lie behind the one that the super block names?
    pub is_newer: bool,
    /// Did the newer super block lead nowhere, so that the other one was taken?
    pub fell_back: bool,
}

/// Why a place holds no good log.
pub(super) enum Stray {
    /// It is not what it should be.
    Bad(Corruption),
    /// The log at this block has this head, and another checksum. Nobody reads what it is until it
    /// is to be said ([`wrong_sum`]).
    WrongSum(u64, SummaryHead),
    /// It cannot be read.
    Failed(FsError),
}

impl Stray {
    /// The error that it is to whoever needed that log.
    fn error(self, view: &dyn View, g: &Geometry) -> FsError {
        match self {
            Stray::Bad(c) => c.into(),
            Stray::Failed(e) => e,
            Stray::WrongSum(start, head) => match wrong_sum(view, g, start, &head) {
                Ok(c) => c.into(),
                Err(e) => e,
            },
        }
    }
}

/// Reads block `n`. Errors: `Corrupt`, naming `structure`, beyond the image.
pub(super) fn read_block(
    view: &dyn View,
    g: &Geometry,
    n: u64,
    structure: &'static str,
) -> FsResult<Vec<u8>> {
    let blocks = view.len_bytes() >> g.block_bits;
    if n >= blocks {
        let expected = format!("less than {blocks}");
        return Err(FsError::corrupt(structure, "block", 0, n, expected));
    }
    let mut block = vec![0; g.block_bytes()];
    view.read_at(g.byte_of(n), &mut block)?;
    Ok(block)
}

/// Reads the head of the log at block `start`, which is to have this sequence number, and checks
/// the log.
///
/// Source: `nilfs_validate_log`.
pub(super) fn read_log(
    view: &dyn View,
    g: &Geometry,
    start: u64,
    seq: u64,
) -> Result<SummaryHead, Stray> {
    let failed = Stray::Failed;
    let first = read_block(view, g, start, "nilfs2 log").map_err(failed)?;
    let head = SummaryHead::load(&first);
    let wrong = |field, found, expected: String| {
        let (structure, at) = ("nilfs2 log", g.byte_of(start));
        Err(Stray::Bad(Corruption { structure, field, at, found, expected }))
    };
    if head.magic.get() != SummaryHead::MAGIC {
        return wrong("ss_magic", head.magic.get().into(), format!("{:#x}", SummaryHead::MAGIC));
    }
    if head.seq.get() != seq {
        return wrong("ss_seq", head.seq.get(), seq.to_string());
    }
    let blocks = u64::from(head.nblocks.get());
    if blocks == 0 || blocks > g.segment_blocks {
        return wrong("ss_nblocks", blocks, format!("1 to {}", g.segment_blocks));
    }
    let missing = view.len_bytes() >> g.block_bits;
    if start + blocks > missing {
        read_block(view, g, missing, "nilfs2 log").map_err(failed)?;
    }
    if !head.has_data_sum(view, g, start).map_err(failed)? && site::RECOVERY_SUM.on() {
        return Err(Stray::WrongSum(start, head));
    }
    Ok(head)
}

/// The error of a log at block `start` whose checksum is wrong, with the right one.
fn wrong_sum(
    view: &dyn View,
    g: &Geometry,
    start: u64,
    head: &SummaryHead,
) -> FsResult<Corruption> {
    let blocks = start..start + u64::from(head.nblocks.get());
    let all: FsResult<Vec<_>> = blocks.map(|n| read_block(view, g, n, "nilfs2 log")).collect();
    let right = data_sum(g.crc_seed, all?.iter().map(Vec::as_slice));
    Ok(Corruption {
        structure: "nilfs2 log",
        field: "ss_datasum",
        at: g.byte_of(start),
        found: head.datasum.get().into(),
        expected: format!("{right:#x}"),
    })
}

/// Both super blocks, the one that counts first: whether it is the one at the end, and the copies.
type Copies = (bool, SuperBlock, Option<SuperBlock>);

fn read_supers(view: &dyn View) -> FsResult<Copies> {
    let second_at = SuperBlock::second_at(view.len_bytes());
    let read = |at: u64| -> FsResult<SuperBlock> {
        let mut sb = SuperBlock::zeroed();
        view.read_at(at, sb.as_mut_bytes())?;
        sb.verify(at)?;
        Ok(sb)
    };
    if view.len_bytes() < 16 * 1024 + 4096 {
        let (structure, found) = ("nilfs2 image", view.len_bytes());
        return Err(FsError::corrupt(structure, "length", 0, found, "20480 bytes or more"));
    }
    let first = read(SuperBlock::AT);
    let second = read(second_at).ok();
    let is_newer = |b: &SuperBlock| match &first {
        Ok(a) => b.last_cno.get() > a.last_cno.get(),
        Err(_) => true,
    };
    // A newer copy within a segment by its own account is none, and takes the mount with it unless
    // the first is good.
    let second = match second {
        Some(b) if is_newer(&b) && b.overlaps(second_at) => None,
        other => other,
    };
    match (first, second) {
        (Ok(a), Some(b)) if b.last_cno.get() > a.last_cno.get() => Ok((true, b, Some(a))),
        (Ok(a), b) => Ok((false, a, b.filter(|_| !a.overlaps(second_at)))),
        (Err(_), Some(b)) => Ok((true, b, None)),
        (Err(e), None) => Err(e),
    }
}

/// Finds the newest super root.
///
/// Errors: `Corrupt` where no super block is good, or none leads to a good log with a super root;
///         `Unsupported` for unknown features.
pub fn search(view: &dyn View) -> FsResult<Tip> {
    let (is_second, sb, other) = read_supers(view)?;
    let g = Geometry::from_super(&sb, view.len_bytes())?;
    check_cursor(&sb, &g)?;
    let is_clean = sb.state.get() & state::VALID != 0;
    let start = Start { sb, is_second, other, is_clean, fell_back: false };
    match (follow(view, &g, start.clone()), other) {
        (Ok(tip), _) => Ok(tip),
        (Err(stray @ Stray::Failed(_)), _) | (Err(stray), None) => Err(stray.error(view, &g)),
        (Err(_), Some(spare)) => {
            if spare.log_block_size != sb.log_block_size {
                let found = spare.log_block_size.get().into();
                let expected = format!("{}, as in the other copy", sb.log_block_size);
                let structure = "nilfs2 super block";
                let at = SuperBlock::AT;
                return Err(FsError::corrupt(structure, "s_log_block_size", at, found, expected));
            }
            let g = Geometry::from_super(&spare, view.len_bytes())?;
            check_cursor(&spare, &g)?;
            // The copy that leads nowhere is written over.
            let start = Start {
                sb: spare,
                is_second,
                other: Some(spare),
                is_clean: false,
                fell_back: true,
            };
            follow(view, &g, start).map_err(|stray| stray.error(view, &g))
        }
    }
}

/// A mount ends at a super block whose log lies in no segment: it does not try the other copy.
/// `nilfs_store_log_cursor`.
fn check_cursor(sb: &SuperBlock, g: &Geometry) -> FsResult<()> {
    let found = sb.last_pseg.get();
    if g.segment_of(found) < g.segments {
        return Ok(());
    }
    let expected = format!("a block of {} segments", g.segments);
    Err(FsError::corrupt("nilfs2 super block", "s_last_pseg", SuperBlock::AT, found, expected))
}

#[derive(Clone)]
struct Start {
    sb: SuperBlock,
    is_second: bool,
    other: Option<SuperBlock>,
    is_clean: bool,
    fell_back: bool,
}

/// From the log that a super block names to the newest super root.
fn follow(view: &dyn View, g: &Geometry, s: Start) -> Result<Tip, Stray> {
    let (mut start, mut seq) = (s.sb.last_pseg.get(), s.sb.last_seq.get());
    let mut cno = s.sb.last_cno.get();
    let corruption = |field, found, expected: &str| {
        let (structure, at) = ("nilfs2 log", SuperBlock::AT);
        Corruption { structure, field, at, found, expected: expected.to_owned() }
    };
    let bad = |field, found, expected: &str| Stray::Bad(corruption(field, found, expected));
    if !g.is_in_segment(start) {
        return Err(bad("s_last_pseg", start, "a block in a segment"));
    }
    let mut segment = g.segment_of(start);
    let mut next_segment = 0;
    let mut tip: Option<Tip> = None;
    let mut last = LogAt::default();
    let mut was_empty = false;
    loop {
        let (_, end) = g.segment(segment);
        let found = match read_log(view, g, start, seq) {
            Ok(head) if start + u64::from(head.nblocks.get()) > end => {
                let expected = "a log within its segment";
                Err(bad("ss_nblocks", head.nblocks.get().into(), expected))
            }
            other => other,
        };
        let mut within = 0;
        match found {
            Err(Stray::Failed(e)) => return Err(Stray::Failed(e)),
            Err(stray) if tip.is_none() => return Err(stray),
            Err(_) => {}
            Ok(head) => {
                was_empty = false;
                within = u64::from(head.nblocks.get());
                next_segment = g.segment_of(head.next.get());
                last = LogAt { start, blocks: within, seq, segment, next_segment };
                let has_root = head.has(flag::SUPER_ROOT);
                match &mut tip {
                    None if !has_root => {
                        let found = head.flags.get().into();
                        return Err(bad("s_last_pseg", found, "a log with a super root"));
                    }
                    Some(tip) if !has_root => tip.add(&head, last),
                    _ => {
                        let found = Tip {
                            sb: s.sb,
                            is_second: s.is_second,
                            other: s.other,
                            g: g.clone(),
                            root: last,
                            cno,
                            create: head.create.get(),
                            last,
                            is_clean: s.is_clean,
                            orphans: None,
                            is_newer: tip.is_some(),
                            fell_back: s.fell_back,
                        };
                        cno = cno.wrapping_add(1);
                        if s.is_clean {
                            return Ok(found);
                        }
                        tip = Some(found);
                    }
                }
            }
        }
        start += within;
        if within > 0 && start + 1 < end {
            continue;
        }
        // The next segment; two in a row without a log are the end.
        if was_empty {
            break;
        }
        if next_segment >= g.segments {
            let expected = "an existing segment";
            let found = corruption("ss_next", next_segment, expected);
            return Err(Stray::Failed(found.into()));
        }
        was_empty = true;
        seq = seq.wrapping_add(1);
        segment = next_segment;
        (start, _) = g.segment(segment);
    }
    let mut tip = tip.ok_or_else(|| bad("s_last_pseg", start, "a log"))?;
    tip.last = last;
    tip.orphans = tip.orphans.filter(|o| o.end != 0);
    Ok(tip)
}

impl Tip {
    /// A good log without a super root lies behind.
    fn add(&mut self, head: &SummaryHead, log: LogAt) {
        if self.orphans.is_none() && head.has(flag::BEGIN) {
            self.orphans = Some(Orphans { start: log.start, seq: log.seq, end: 0 });
        }
        if let Some(orphans) = &mut self.orphans
            && head.has(flag::END)
        {
            orphans.end = log.start;
        }
    }
}
