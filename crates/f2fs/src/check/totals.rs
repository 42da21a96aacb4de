//! SIT, NAT, summaries, counts, logs and zones against what the walk has seen.

use wp_base::{FsResult, Sector, Zone, ZoneKind};

use crate::disk::{Log, SEGMENT_BLOCKS, SitEntry, Summary, SummaryBlock, alloc, bits};

use super::tables::Tables;
use super::walk::{Owner, Seen};
use super::{Kind, Report};

pub(super) fn check(t: &Tables<'_>, s: &Seen, zones: &[Zone], report: &mut Report) -> FsResult<()> {
    if !s.gaps {
        for nid in t.nat.keys().filter(|n| !s.nodes.contains(n)) {
            report.add(Kind::NodeLost, format!("node {nid}"), "a block", "no reference");
        }
    }
    for segment in 0..t.g.segments {
        of_segment(t, s, segment, report)?;
    }
    counts(t, s, report);
    logs(t, report);
    of_zones(t, zones, report);
    Ok(())
}

fn of_segment(t: &Tables<'_>, s: &Seen, segment: u32, report: &mut Report) -> FsResult<()> {
    let Some(entry) = t.sit.get(segment as usize) else { return Ok(()) };
    let first = t.g.block(segment, 0);
    let mut owned = [0u8; 64];
    let mut summary: Option<Option<SummaryBlock>> = None;
    for (block, owner) in s.owners.range(first..first + SEGMENT_BLOCKS) {
        bits::set(&mut owned, block - first, true);
        if entry.is_valid(block - first) {
            let known = match &summary {
                Some(known) => known,
                None => {
                    let read = summaries(t, segment)?;
                    footer(t, segment, entry, read.as_ref(), report);
                    summary.insert(read)
                }
            };
            let version = t.nat.get(&owner.nid).map_or(0, |e| e.version);
            let right = Summary::new(owner.nid, version, owner.slot.unwrap_or(0));
            of_block(entry, (segment, first, *block), owner, known.as_ref(), &right, report);
        }
    }
    if owned == entry.valid_map {
        return Ok(());
    }
    for n in 0..SEGMENT_BLOCKS {
        let place = || format!("block {} of segment {segment}", first + n);
        match (entry.is_valid(n), s.owners.get(&(first + n))) {
            (true, None) if !s.gaps => {
                report.add(Kind::BlockLost, place(), "in use", "no reference");
            }
            (false, Some(o)) => {
                let expected = format!("in use by node {}", o.nid);
                report.add(Kind::BlockFree, place(), "free", expected);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Says a summary block in the SSA of which sort of segment it is?
fn footer(
    t: &Tables<'_>,
    segment: u32,
    entry: &SitEntry,
    summary: Option<&SummaryBlock>,
    report: &mut Report,
) {
    let (Some(log), Some(summary)) = (Log::of(entry.kind()), summary) else { return };
    let right = if log.is_node() { SummaryBlock::NODE } else { SummaryBlock::DATA };
    let found = summary.footer.entry_type;
    if t.log_in(segment).is_none() && found != right {
        let place = format!("summary of segment {segment}: entry_type");
        report.add(Kind::Summary, place, found, right);
    }
}

/// A block that is in use, by what its segment and its summary say. `at`: segment, its first block,
/// and the block.
fn of_block(
    entry: &SitEntry,
    at: (u32, u32, u32),
    owner: &Owner,
    summary: Option<&SummaryBlock>,
    right: &Summary,
    report: &mut Report,
) {
    let (segment, first, block) = at;
    let place = || format!("block {block} of segment {segment}");
    let is_node = owner.slot.is_none();
    if Log::of(entry.kind()).is_some_and(|l| l.is_node() != is_node) {
        let kind = Log::of(entry.kind()).map_or("", Log::name);
        report.add(Kind::SegmentType, place(), kind, if is_node { "node" } else { "data" });
    }
    let Some(summary) = summary else { return };
    let found = summary.entry(block - first);
    // Of a node's own block only the number counts.
    if found.nid != right.nid || !is_node && found != *right {
        report.add(Kind::Summary, place(), named(&found), named(right));
    }
}

fn named(s: &Summary) -> String {
    format!("node {} version {} address {}", s.nid.get(), s.version, s.ofs_in_node.get())
}

/// Summaries of a segment; those of a node log are nowhere before it leaves, or an unmount.
fn summaries(t: &Tables<'_>, segment: u32) -> FsResult<Option<SummaryBlock>> {
    Ok(match t.log_in(segment) {
        None => Some(SummaryBlock::load(&t.block(t.g.summary_block(segment))?)),
        Some(log) if !log.is_node() => t.data.get(usize::from(log.number())).cloned(),
        Some(log) => match t.cp.summary_place(log) {
            Some(n) => Some(SummaryBlock::load(&t.block(t.pack + n)?)),
            None => None,
        },
    })
}

fn counts(t: &Tables<'_>, s: &Seen, report: &mut Report) {
    if s.gaps {
        return;
    }
    let h = t.cp.head();
    // Whether unusable segments of zones count as free cannot be seen here.
    let free = (0..t.g.segments)
        .filter(|n| t.log_in(*n).is_none())
        .filter(|n| t.sit.get(*n as usize).is_some_and(|e| e.valid_blocks() == 0))
        .count() as u64;
    let valid = s.owners.len() as u64 + s.promised;
    let exact = [
        ("valid_block_count", h.valid_block_count.get(), valid),
        ("valid_node_count", h.valid_node_count.get().into(), s.nodes.len() as u64),
        ("valid_inode_count", h.valid_inode_count.get().into(), s.inodes.into()),
        ("free_segment_count", h.free_segment_count.get().into(), free),
    ];
    for (field, found, right) in exact {
        let is_zoned = t.g.is_zoned && field == "free_segment_count" && found <= right;
        if found != right && !is_zoned {
            report.add(Kind::CheckpointCount, field, found, right);
        }
    }
}

fn logs(t: &Tables<'_>, report: &mut Report) {
    for log in Log::ALL {
        let (segment, offset) = t.cp.log(log);
        let Some(entry) = t.sit.get(segment as usize) else { continue };
        let place = format!("{} log", log.name());
        let ahead = match t.cp.alloc_type(log) {
            alloc::LFS => offset..SEGMENT_BLOCKS,
            _ => offset..offset + 1,
        };
        if let Some(n) = ahead.clone().find(|n| entry.is_valid(*n)) {
            let block = t.g.block(segment, n);
            report.add(Kind::LogHead, place.as_str(), format!("block {block} in use"), "free ones");
        }
        if Log::of(entry.kind()) != Some(log) {
            let found = Log::of(entry.kind()).map_or("none", Log::name);
            report.add(Kind::SegmentType, place, found, log.name());
        }
    }
}

/// Every block in use lies below its zone's write pointer, and every log goes on at it.
fn of_zones(t: &Tables<'_>, zones: &[Zone], report: &mut Report) {
    let log_at: Vec<u32> = Log::ALL
        .iter()
        .map(|l| {
            let (segment, offset) = t.cp.log(*l);
            t.g.block(segment, offset)
        })
        .collect();
    for z in zones.iter().filter(|z| z.kind == ZoneKind::Sequential) {
        let block = |sector: Sector| sector.0 / 8;
        let (start, end) = (block(z.start), block(z.start.advance(z.sectors)));
        let pointer = block(z.wp);
        let inside = |b: u32| (start..end).contains(&u64::from(b));
        for (log, at) in Log::ALL.iter().zip(&log_at).filter(|(_, at)| inside(**at)) {
            if u64::from(*at) != pointer || z.wp.0 % 8 != 0 {
                let place = format!("{} log", log.name());
                report.add(Kind::WritePointer, place, format!("continues at {at}"), pointer);
            }
        }
        let first = pointer.max(t.g.main.into());
        if let Some(b) = first_in_use(t, first, end.min(t.g.end().into())) {
            report.add(
                Kind::WritePointer,
                format!("block {b}"),
                "in use",
                format!("below {pointer}"),
            );
        }
    }
}

/// The first block in use from `from` until `end`, both of the main area.
fn first_in_use(t: &Tables<'_>, from: u64, end: u64) -> Option<u64> {
    let (mut at, step) = (from, u64::from(SEGMENT_BLOCKS));
    while at < end {
        let (segment, offset) = t.g.place(u32::try_from(at).ok()?)?;
        let left = (step - u64::from(offset)).min(end - at);
        let entry = t.sit.get(segment as usize)?;
        if !bits::is_zero(&entry.valid_map) {
            let is_valid = |n: &u64| u32::try_from(*n).is_ok_and(|n| entry.is_valid(offset + n));
            if let Some(n) = (0..left).find(is_valid) {
                return Some(at + n);
            }
        }
        at += left;
    }
    None
}
