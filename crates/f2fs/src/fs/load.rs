//! From the medium to memory: recovery, checkpoint, SIT, logs.
//!
//! Source: Linux `fs/f2fs/super.c` (`f2fs_fill_super`), `segment.c` (`build_sit_entries`,
//!         `restore_curseg_summaries`), `node.c` (`__get_nat_bitmaps`, `load_free_nid_bitmap`).

use wp_base::event::{Flags, ZoneOp};
use wp_base::{FsError, FsResult, Sector, Zone, ZoneKind};
use wp_block::{Bio, Partition};
use wp_medium::{Joined, MediumView, Overlay, Slice, View, WithZones};
use wp_rt::Rt;

use super::curseg::Curseg;
use super::io::SECTORS;
use super::meta::show;
use super::mount::{F2fs, MountOptions};
use super::segments::Segments;
use super::sit::{Seg, Sit};
use super::space::Space;
use crate::disk::{
    Checkpoint, Geometry, Journal, Log, NatBits, SEGMENT_BLOCKS, SitEntry, Summary, SummaryBlock,
    SuperBlock, alloc, bits, cp_flag, feature,
};
use crate::image::{Image, RecoverOptions, Rules, recover};
use crate::site;

/// What a mount begins with.
pub(super) struct Loaded {
    pub sb: SuperBlock,
    pub g: Geometry,
    pub cp: Checkpoint,
    /// The checkpoint is in the second pack.
    pub second: bool,
    /// Blocks of a section that can be written.
    pub cap: u32,
}

/// Features that the mounted file system does not have.
const REFUSED: &[(u32, &str)] = &[
    (feature::ENCRYPT, "encryption"),
    (feature::COMPRESSION, "compression"),
    (feature::CASEFOLD, "casefolded names"),
    (feature::QUOTA_INO, "quotas"),
    (feature::PRJQUOTA, "project quotas"),
    (feature::VERITY, "verity"),
    (feature::RO, "read-only images"),
    (feature::DEVICE_ALIAS, "device aliases"),
];

fn check(sb: &SuperBlock, cp: &Checkpoint) -> FsResult<()> {
    for (bit, what) in REFUSED {
        if sb.has(*bit) {
            return Err(FsError::Unsupported(format!("F2FS with {what}")));
        }
    }
    if cp.has(cp_flag::DISABLED) {
        return Err(FsError::Unsupported("F2FS with checkpoint=disable".into()));
    }
    Ok(())
}

/// Are these the devices that the super block names (`f2fs_scan_devices`)?
fn check_devices(g: &Geometry, parts: &[Partition]) -> FsResult<()> {
    if g.devices.len() != parts.len() {
        let (made, there) = (g.devices.len(), parts.len());
        let text = format!("an F2FS made on {made} devices, mounted on {there}");
        return Err(FsError::Unsupported(text));
    }
    for (n, (device, part)) in g.devices.iter().zip(parts).enumerate() {
        let sectors = u64::from(device.end - device.start) * u64::from(SECTORS);
        if part.sectors() < sectors {
            let (number, has) = (n + 1, part.sectors());
            let text = format!("device {number} of {has} sectors for an F2FS with {sectors} on it");
            return Err(FsError::Unsupported(text));
        }
    }
    Ok(())
}

/// The zones of all devices, addressed from the start of the first. Conventional devices before a
/// zoned one count as conventional zones. Waits: for a report. Errors: `Io`, `Unsupported`.
async fn zones_of(parts: &[Partition]) -> FsResult<Vec<Zone>> {
    let mut out: Vec<Zone> = Vec::new();
    let mut start = 0u64;
    for part in parts {
        if let Some(limits) = part.limits().zones {
            let own = part.report_zones().await.map_err(|_| FsError::Io)?;
            if out.is_empty() && start > 0 {
                if !start.is_multiple_of(limits.zone_sectors) {
                    let text = format!(
                        "zones of {} sectors behind a device of {start}",
                        limits.zone_sectors
                    );
                    return Err(FsError::Unsupported(text));
                }
                let zones = u32::try_from(start / limits.zone_sectors).unwrap_or(u32::MAX);
                let plain = wp_base::ZoneLimits { zones, conventional: zones, ..limits };
                out = plain.fresh();
            }
            out.extend(own.into_iter().map(|z| Zone {
                start: z.start.advance(start),
                wp: z.wp.advance(start),
                ..z
            }));
        } else if !out.is_empty() {
            return Err(FsError::Unsupported("a conventional device behind a zoned one".into()));
        }
        start += part.sectors();
    }
    Ok(out)
}

/// Recovers what lies on `parts` if it must, and reads super block and checkpoint.
///
/// What recovery reads takes no time; what it writes goes out as requests. Super block and
/// checkpoint packs are read as a mount reads them.
pub(super) async fn recover_and_read(
    rt: &Rt,
    parts: &[Partition],
    opts: &MountOptions,
) -> FsResult<Loaded> {
    let zones = zones_of(parts).await?;
    let (is_zoned, refused) = seen(parts, |view| {
        // What the others hold is of no use without them.
        let image = Image::open(view)?;
        let (sb, g, cp) = (image.super_block(), image.geometry(), image.checkpoint());
        Ok((g.is_zoned, check_devices(g, parts).and_then(|()| check(sb, cp))))
    })?;
    refused?;
    if is_zoned && zones.is_empty() {
        return Err(FsError::Unsupported("an F2FS made for zones on a device without".into()));
    }
    let is_sequential = |z: &Zone| z.kind == ZoneKind::Sequential;
    if !is_zoned && zones.iter().any(is_sequential) {
        return Err(FsError::Unsupported("an F2FS not made for zones on a zoned device".into()));
    }
    let now = opts.epoch_secs.saturating_add((rt.now().0 / 1_000_000_000).cast_signed());
    let options = RecoverOptions {
        rules: Rules::of(opts.era),
        oprw: opts.oprw,
        aside: opts.recover_aside,
        now: crate::disk::inode::Stamp { secs: now, nanos: 0 },
    };
    replay(rt, parts, &zones, &options).await?;
    read_packs(parts).await?;
    seen(parts, |view| {
        let image = Image::open(view)?;
        let g = image.geometry().clone();
        let cap = capacity(&g, &zones)?;
        Ok(Loaded {
            sb: *image.super_block(),
            cap,
            cp: image.checkpoint().clone(),
            second: image.is_second_pack(),
            g,
        })
    })
}

/// Blocks of a section that can be written, by the zones' capacity (`init_blkz_info`, which wants
/// one capacity for all). Errors: `Unsupported` for zones that do not fit sections.
fn capacity(g: &Geometry, zones: &[Zone]) -> FsResult<u32> {
    let whole = g.section_blocks();
    let sequential = || zones.iter().filter(|z| z.kind == ZoneKind::Sequential);
    let Some(first) = sequential().next() else { return Ok(whole) };
    let blocks = |sectors: u64| u32::try_from(sectors / u64::from(SECTORS)).unwrap_or(u32::MAX);
    if sequential().any(|z| z.capacity != first.capacity) {
        return Err(FsError::Unsupported("zones of several capacities".into()));
    }
    if blocks(first.sectors) != whole {
        let text = format!("sections of {whole} blocks on zones of {}", blocks(first.sectors));
        return Err(FsError::Unsupported(text));
    }
    Ok(blocks(first.capacity).min(whole))
}

/// What a mount reads first: both super blocks, and first and last block of both packs with the
/// payload (`read_raw_super_block`, `f2fs_get_valid_checkpoint`).
async fn read_packs(parts: &[Partition]) -> FsResult<()> {
    let blocks = seen(parts, |view| {
        let image = Image::open(view)?;
        let g = image.geometry();
        let mut blocks = vec![0, 1];
        for second in [false, true] {
            let start = g.pack(second);
            let head = image.read_block(start, "f2fs checkpoint")?;
            let total = Checkpoint::new(&head, 0).head().cp_pack_total_block_count.get();
            blocks.push(start);
            if (2..=SEGMENT_BLOCKS).contains(&total) {
                blocks.push(start + total - 1);
            }
        }
        let valid = g.pack(image.is_second_pack());
        blocks.extend((1..=g.cp_payload).map(|n| valid + n));
        Ok(blocks)
    })?;
    for n in blocks {
        let at = Sector(u64::from(n) * u64::from(SECTORS));
        let bio = Bio::read(at, SECTORS, Flags::META | Flags::PRIO);
        parts[0].submit_wait(bio).await.map_err(|_| FsError::Io)?;
    }
    Ok(())
}

/// The partition that a sector of the image is on, and where there; the last one's if it is beyond
/// all of them.
fn place(parts: &[Partition], at: Sector) -> (&Partition, Sector) {
    let mut left = at.0;
    let last = parts.len() - 1;
    for part in &parts[..last] {
        if left < part.sectors() {
            return (part, Sector(left));
        }
        left -= part.sectors();
    }
    (&parts[last], Sector(left))
}

/// Recovery is a pure function of the image; what it changed is then written, and the block that
/// makes the new checkpoint valid last, behind a flush.
async fn replay(
    rt: &Rt,
    parts: &[Partition],
    zones: &[Zone],
    options: &RecoverOptions,
) -> FsResult<()> {
    let (found, writes) = seen(parts, |view| {
        let with_zones = WithZones::new(view, zones.to_vec());
        let overlay = Overlay::new(&with_zones as &dyn View);
        let found = recover(&overlay, options)?;
        Ok((found, overlay.writes()))
    })?;
    let at = |block: u32| Sector(u64::from(block) * u64::from(SECTORS));
    let manage = async |op: ZoneOp, blocks: &[u32]| {
        for block in blocks {
            let (part, at) = place(parts, at(*block));
            part.manage_zone(op, at).await.map_err(|_| FsError::Io)?;
        }
        Ok(())
    };
    manage(ZoneOp::Reset, &found.zones.reset).await?;
    manage(ZoneOp::Finish, &found.zones.finished).await?;
    let last = found.last_block.map(at);
    let (end, rest): (Vec<_>, Vec<_>) = writes.into_iter().partition(|(at, _)| Some(*at) == last);
    send(rt, parts, rest, Flags::SYNC).await?;
    if !end.is_empty() && site::RECOVER_LAST.on() {
        for part in parts.iter().skip(1) {
            part.flush().await.map_err(|_| FsError::Io)?;
        }
    }
    let ordered = site::RECOVER_LAST.on();
    let last_flags = if ordered { Flags::PREFLUSH | Flags::FUA } else { Flags::NONE };
    send(rt, parts, end, Flags::META | Flags::PRIO | Flags::SYNC | last_flags).await?;
    let (reset, finished) = &found.zones.later;
    manage(ZoneOp::Reset, reset).await?;
    manage(ZoneOp::Finish, finished).await
}

async fn send(
    rt: &Rt,
    parts: &[Partition],
    writes: Vec<(Sector, Slice)>,
    flags: Flags,
) -> FsResult<()> {
    let plugs: Vec<_> = parts.iter().map(Partition::plug).collect();
    let mut waits = Vec::new();
    for (at, data) in writes {
        let (part, at) = place(parts, at);
        let p = part.clone();
        waits.push(
            rt.spawn(
                "mount",
                async move { p.submit_wait(Bio::write(at, vec![data], flags)).await },
            ),
        );
    }
    drop(plugs);
    for w in waits {
        w.await.map_err(|_| FsError::Io)?;
    }
    Ok(())
}

/// Shows the partitions as they would be read now, one behind the other, in no time.
fn seen<T>(parts: &[Partition], f: impl FnOnce(&dyn View) -> FsResult<T>) -> FsResult<T> {
    let views: Vec<MediumView> = parts
        .iter()
        .map(|part| MediumView {
            medium: part.queue().with_device(|d| d.medium()),
            start: part.start(),
            bytes: part.sectors() * wp_base::SECTOR_BYTES,
        })
        .collect();
    if let [one] = &views[..] {
        return f(one);
    }
    let all: Vec<&dyn View> = views.iter().map(|v| -> &dyn View { v }).collect();
    f(&Joined::new(&all))
}

impl Space {
    /// With the logs where a checkpoint has them, and nothing known of segments yet.
    pub(super) fn new(g: &Geometry, cp: &Checkpoint, cap: u32, lfs: bool) -> Space {
        let empty = Seg { valid: 0, ckpt_valid: 0, log: Log::HotData, mtime: 0, maps: None };
        let logs = Log::ALL.map(|log| {
            let (segment, next) = cp.log(log);
            let summary = Box::new(SummaryBlock::empty(log.is_node()));
            Curseg { segment, next, alloc: cp.alloc_type(log), summary }
        });
        Space {
            g: g.clone(),
            cap,
            lfs,
            sit: Sit {
                segs: vec![empty; g.segments as usize],
                sections: vec![0; g.segments.div_ceil(g.section_segments) as usize],
                dirty: Default::default(),
                versions: cp.sit_bitmap().to_vec(),
                written: 0,
                min_mtime: u64::MAX,
                max_mtime: 0,
                trimmed: cp.has(cp_flag::TRIMMED),
                overwrites: false,
                discard_blocks: 0,
            },
            segs: Segments::new(g.segments, g.sections),
            logs: logs.into(),
            nat_journal: Journal::empty(),
            sit_journal: Journal::empty(),
            now: cp.head().elapsed_time.get(),
        }
    }

    /// What the SIT says of a segment.
    fn set_segment(&mut self, segment: u32, e: &SitEntry, at: u64) -> FsResult<()> {
        e.verify(segment, at)?;
        let log = Log::of(e.kind()).ok_or_else(|| {
            let found = u64::from(e.kind());
            FsError::corrupt("f2fs SIT entry", "vblocks", at, found, "a log, 0 to 5")
        })?;
        let usable = self.usable(segment);
        if e.valid_blocks() > usable {
            let found = u64::from(e.valid_blocks());
            let expected = format!("up to {usable} (segment {segment})");
            return Err(FsError::corrupt("f2fs SIT entry", "vblocks", at, found, expected));
        }
        let trimmed = self.sit.trimmed;
        let section = self.g.section_of(segment) as usize;
        let old = self.seg(segment).valid;
        let se = self.seg_mut(segment);
        (se.valid, se.ckpt_valid, se.log) = (e.valid_blocks(), e.valid_blocks(), log);
        se.mtime = e.mtime.get();
        se.maps = None;
        if e.valid_blocks() > 0 {
            let m = se.maps(trimmed);
            (m.cur, m.ckpt) = (e.valid_map, e.valid_map);
            if !trimmed {
                m.discard = e.valid_map;
            }
        }
        self.sit.sections[section] = self.sit.sections[section] + e.valid_blocks() - old;
        Ok(())
    }

    /// Sums and states, once all segments are known (`init_min_max_mtime`).
    fn settle_segments(&mut self, now: u64) {
        self.sit.written = self.sit.segs.iter().map(|s| u64::from(s.valid)).sum();
        if !self.sit.trimmed {
            let all = u64::from(self.g.segments) * u64::from(SEGMENT_BLOCKS);
            self.sit.discard_blocks = all - self.sit.written;
        }
        let per = self.g.section_segments as usize;
        let mean = |s: &[Seg]| s.iter().map(|s| s.mtime).sum::<u64>() / per as u64;
        self.sit.min_mtime = self.sit.segs.chunks(per).map(mean).min().unwrap_or(0);
        self.sit.max_mtime = now;
        self.now = now;
        self.sort_segments();
    }

    /// Errors: `Corrupt` if a log does not stand before free blocks (`sanity_check_curseg`).
    fn check_logs(&self) -> FsResult<()> {
        for log in Log::ALL {
            let l = self.log(log);
            let wrong = |field, found: u32, expected: String| {
                FsError::corrupt("f2fs checkpoint", field, 0, u64::from(found), expected)
            };
            if l.alloc > alloc::SSR {
                return Err(wrong("alloc_type", u32::from(l.alloc), "0 or 1".to_owned()));
            }
            let se = self.seg(l.segment);
            let end = if l.alloc == alloc::SSR { l.next + 1 } else { SEGMENT_BLOCKS };
            if let Some(used) = (l.next..end.min(SEGMENT_BLOCKS)).find(|n| se.is_valid(*n)) {
                let expected =
                    format!("a free block, and only such behind it ({}: {used})", log.name());
                return Err(wrong("cur_blkoff", l.next, expected));
            }
        }
        Ok(())
    }
}

impl F2fs {
    /// Reads the SIT and the logs' summaries (`f2fs_build_segment_manager`).
    pub(super) async fn read_segments(&self) -> FsResult<()> {
        self.read_logs().await?;
        let used = self.g.sit_blocks_used();
        let place = |n: u32| {
            let space = self.space.borrow();
            self.g.sit_block(n, bits::test(&space.sit.versions, n))
        };
        for first in (0..used).step_by(256) {
            self.read_ahead_meta((first..(first + 256).min(used)).map(place));
            for n in first..(first + 256).min(used) {
                let addr = place(n);
                let buf = self.meta_block(addr).await?;
                let segments = n * SitEntry::PER_BLOCK..self.g.segments;
                let mut space = self.space.borrow_mut();
                show(&buf, |b| {
                    for (segment, e) in segments.zip(SitEntry::all(b)) {
                        space.set_segment(segment, e, Geometry::byte_of(addr))?;
                    }
                    Ok::<(), FsError>(())
                })?;
            }
        }
        let journal = self.space.borrow().sit_journal;
        let mut space = self.space.borrow_mut();
        for e in journal.sits() {
            let segment = e.segment.get();
            if segment >= self.g.segments {
                let found = u64::from(segment);
                let expected = format!("less than {}", self.g.segments);
                return Err(FsError::corrupt("f2fs SIT journal", "segno", 0, found, expected));
            }
            space.set_segment(segment, &e.entry, 0)?;
        }
        self.check_totals(&space)?;
        space.settle_segments(self.mtime());
        space.check_logs()
    }

    /// Errors: `Corrupt` if SIT and checkpoint count differently.
    fn check_totals(&self, space: &Space) -> FsResult<()> {
        let sum = |node: bool| {
            let of = space.sit.segs.iter().filter(|s| s.log.is_node() == node);
            of.map(|s| u64::from(s.valid)).sum::<u64>()
        };
        let (nodes, data) = (sum(true), sum(false));
        let wrong = |field, found: u64, expected: String| {
            Err(FsError::corrupt("f2fs checkpoint", field, 0, found, expected))
        };
        if nodes != u64::from(self.counts.nodes.get()) {
            let found = u64::from(self.counts.nodes.get());
            return wrong("valid_node_count", found, format!("{nodes}, as the SIT has it"));
        }
        if nodes + data > self.counts.blocks.get() {
            let expected = format!("{} or more, as the SIT has it", nodes + data);
            return wrong("valid_block_count", self.counts.blocks.get(), expected);
        }
        Ok(())
    }

    /// Reads the summaries of the six logs (`restore_curseg_summaries`).
    async fn read_logs(&self) -> FsResult<()> {
        let pack = self.g.pack(self.cps.second.get());
        let (start, total) = {
            let cp = self.cp.borrow();
            let h = cp.head();
            (h.cp_pack_start_sum.get(), h.cp_pack_total_block_count.get())
        };
        self.read_ahead_meta((start..total.saturating_sub(1)).map(|n| pack + n));
        // The data logs' are in the pack; reading them again takes no time.
        for n in start..total.saturating_sub(1) {
            self.meta_block(pack + n).await?;
        }
        let data = seen(self.io.parts(), |view| Ok(Image::open(view)?.data_summaries().clone()))?;
        {
            let mut space = self.space.borrow_mut();
            let [hot, _, cold] = &data;
            (space.nat_journal, space.sit_journal) = (hot.journal, cold.journal);
            for (log, from) in Log::DATA.into_iter().zip(&data) {
                space.log_mut(log).summary.entries = from.entries;
            }
        }
        for log in Log::NODE {
            let (place, segment) = {
                let cp = self.cp.borrow();
                (cp.summary_place(log), cp.log(log).0)
            };
            let at = place.map_or(self.g.summary_block(segment), |n| pack + n);
            let buf = self.meta_block(at).await?;
            let mut block = show(&buf, SummaryBlock::load);
            if log == Log::HotNode && place.is_some() {
                self.kbytes_at_mount.set(block.journal.kbytes_written());
            }
            for e in &mut block.entries {
                *e = Summary::new(e.nid.get(), 0, 0);
            }
            if place.is_none() {
                block.entries = self.scan_node_segment(segment).await?;
            }
            self.space.borrow_mut().log_mut(log).summary.entries = block.entries;
        }
        Ok(())
    }

    /// Summaries of a segment of nodes from their footers (`f2fs_restore_node_summary`).
    async fn scan_node_segment(&self, segment: u32) -> FsResult<[Summary; 512]> {
        let mut out = [Summary::default(); 512];
        for first in [0, 256] {
            self.read_ahead_meta((first..first + 256).map(|n| self.g.block(segment, n)));
            for n in first..first + 256 {
                let buf = self.meta_block(self.g.block(segment, n)).await?;
                out[n as usize] = Summary::new(super::node::footer(&buf).nid.get(), 0, 0);
            }
        }
        let start = u64::from(self.g.block(segment, 0));
        self.meta.invalidate(start, start + u64::from(SEGMENT_BLOCKS));
        Ok(out)
    }

    /// Reads the bitmaps of free numbers at the end of the pack, if the checkpoint has them
    /// (`__get_nat_bitmaps`).
    pub(super) async fn read_nat_bits(&self) -> FsResult<()> {
        if !self.cp.borrow().has(cp_flag::NAT_BITS) {
            return Ok(());
        }
        let n = self.g.nat_bits_blocks();
        let first = self.g.pack(self.cps.second.get()) + SEGMENT_BLOCKS - n;
        let mut bytes = Vec::new();
        for addr in first..first + n {
            let buf = self.meta_block(addr).await?;
            show(&buf, |b| bytes.extend_from_slice(b));
        }
        let version = self.cp_version() | u64::from(self.cp.borrow().crc()) << 32;
        match NatBits::load(&bytes, self.g.nat_blocks) {
            Some(bits) if bits.version == version => {
                self.nids.know(self.g.nat_blocks, &bits);
                *self.nat.bits.borrow_mut() = Some(bits);
            }
            _ => self.cp.borrow_mut().set_flag(cp_flag::NAT_BITS, false),
        }
        Ok(())
    }
}
