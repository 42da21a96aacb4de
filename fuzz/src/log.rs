//! Journals put together by rule: whole, sealed blocks, in an order and with contents that the
//! fuzzer chooses.

use std::cell::RefCell;
use std::rc::Rc;

use wp_base::BlockSize;
use wp_base::crc::crc32c;
use wp_ext4::disk::fast_commit::tag;
use wp_ext4::disk::{Extent, SuperBlock};
use wp_ext4::image::{Image, log_map, recover};
use wp_jbd2::{BadCommit, LogMap, RecoverPolicy, ScanEnd, disk};
use wp_medium::{Overlay, View};
use zerocopy::IntoBytes;

use super::base::{Base, FAST_COMMIT, FAST_COMMIT_BLOCKS, named};
use super::ext4::recovered_once;
use super::feed::Feed;
use super::image::{Counted, Sparse};

const BS: usize = 1024;
/// The log: device blocks from 8 on.
const LOG_AT: u64 = 8;
const LOG_BLOCKS: u32 = 64;
/// With a fast-commit area it takes more, or there would be none.
const LOG_BLOCKS_MOST: u32 = 1100;
const DEVICE_BLOCKS: u64 = 2400;

/// A log that is being written.
struct Writer<'a> {
    over: &'a Overlay<'a>,
    map: &'a LogMap,
    format: disk::Format,
    first: u32,
    last: u32,
    at: u32,
    tid: u32,
    crc: u32,
}

impl Writer<'_> {
    /// The next block. Always `at` is within the log.
    fn put(&mut self, block: &[u8]) {
        let place = self.map.block(self.at).expect("mapped") * BS as u64;
        self.over.write_at(place, block).expect("within the device");
        self.at = if self.at + 1 >= self.last { self.first } else { self.at + 1 };
    }

    fn descriptor(&mut self, feed: &mut Feed<'_>) {
        let mut block = disk::control_block(BS, disk::DESCRIPTOR, self.tid);
        let room = BS - self.format.tail_bytes();
        let (how, want) = (feed.u8(), feed.u8() % 12);
        let (mut data, mut at) = (Vec::new(), 12);
        for n in 0..want {
            let flags = feed.u8();
            let mut bytes = vec![feed.u8(); BS];
            let home = match flags & 0x30 {
                0x30 => feed.u64(),
                // The log itself, and what lies before it.
                0x20 => u64::from(feed.u8()),
                _ => u64::from(feed.u16()) % DEVICE_BLOCKS,
            };
            if flags & disk::TAG_ESCAPE as u8 != 0 {
                bytes[..4].fill(0);
            }
            let mut checksum = self.format.tag_checksum(self.tid, &bytes);
            if flags & 0xC0 == 0xC0 {
                checksum ^= 1;
            }
            let mut flags = u16::from(flags) & (disk::TAG_ESCAPE | disk::TAG_SAME_UUID);
            if n + 1 == want && how & 1 == 0 {
                flags |= disk::TAG_LAST;
            }
            if at + self.format.tag_bytes() > room {
                break;
            }
            self.format.put_tag(&mut block, at, &disk::ParsedTag { block: home, flags, checksum });
            at += self.format.tag_bytes();
            if flags & disk::TAG_SAME_UUID == 0 {
                at += disk::UUID_BYTES;
            }
            data.push(bytes);
        }
        self.format.set_tail(&mut block);
        if how & 6 == 6 {
            block[BS - 1] ^= 1;
        }
        for block in std::iter::once(&block).chain(&data) {
            self.crc = disk::crc32_be(self.crc, block);
            self.put(block);
        }
    }

    fn revoke(&mut self, feed: &mut Feed<'_>) {
        let mut block = disk::control_block(BS, disk::REVOKE, self.tid);
        let (how, n) = (feed.u8(), usize::from(feed.u8() % 16));
        let width = self.format.revoke_bytes();
        for k in 0..n {
            let home = u64::from(feed.u16());
            block[16 + k * width..][..width].copy_from_slice(&home.to_be_bytes()[8 - width..]);
        }
        let used = match how & 3 {
            0 => u32::from(feed.u16()),
            1 => feed.u32(),
            _ => (16 + n * width) as u32,
        };
        block[12..16].copy_from_slice(&used.to_be_bytes());
        self.format.set_tail(&mut block);
        if how & 0x0C == 0x0C {
            block[BS - 1] ^= 1;
        }
        self.put(&block);
    }

    fn commit(&mut self, feed: &mut Feed<'_>) {
        let mut block = disk::control_block(BS, disk::COMMIT, self.tid);
        let how = feed.u8();
        if self.format.csum_v1() && how & 1 == 0 {
            (block[12], block[13]) = (disk::CHECKSUM_TYPE_CRC32, disk::CHECKSUM_SIZE_CRC32);
            block[16..20].copy_from_slice(&self.crc.to_be_bytes());
        }
        block[0x30..0x38].copy_from_slice(&u64::from(feed.u16()).to_be_bytes());
        self.format.set_commit(&mut block);
        match how & 0xC0 {
            // The rest of its block is old.
            0x40 => block[BS - 1] = 1,
            0xC0 => block[0x31] ^= 1,
            _ => {}
        }
        self.put(&block);
        self.crc = !0;
        self.tid = self.tid.wrapping_add(1);
    }
}

/// A log of any format on a small device: recovery ends, is done after that, and writes the same
/// when it is done again before the log was marked empty.
pub fn jbd2(input: &[u8]) {
    let mut feed = Feed::new(input);
    let below = Sparse::zeroes(DEVICE_BLOCKS * BS as u64);
    let over = Overlay::new(&below);
    let (features, how) = (feed.u8(), feed.u8());
    let total = if u32::from(features) & disk::INCOMPAT_FAST_COMMIT != 0 {
        LOG_BLOCKS_MOST
    } else {
        LOG_BLOCKS
    };
    let map = match how & 1 {
        0 => LogMap::contiguous(LOG_AT, total),
        // In two parts, the second before the first.
        _ => LogMap { blocks: vec![(0, LOG_AT + 30, 10), (10, LOG_AT, 20), (30, 60, total - 30)] },
    };
    let mut sb = zeroed_super();
    sb.header.blocktype = if how & 2 != 0 { disk::SUPER_V1.into() } else { disk::SUPER_V2.into() };
    sb.maxlen = if how & 4 != 0 { u32::from(feed.u16()).into() } else { total.into() };
    sb.first = if how & 8 != 0 { u32::from(feed.u8()).into() } else { 1.into() };
    let start = u32::from(feed.u8());
    sb.start = start.into();
    sb.sequence = if how & 16 != 0 { feed.u32().into() } else { 7.into() };
    sb.feature_incompat = u32::from(features & 0x3F).into();
    sb.feature_compat = u32::from(features >> 6 & 1).into();
    sb.num_fc_blks = if how & 32 != 0 { feed.u32().into() } else { 64.into() };
    sb.head = u32::from(feed.u8()).into();
    if sb.feature_incompat.get() & (disk::INCOMPAT_CSUM_V2 | disk::INCOMPAT_CSUM_V3) != 0 {
        sb.checksum_type = disk::CHECKSUM_TYPE_CRC32C;
    }
    sb.checksum = sb.checksum_now().into();
    let fc = sb.fast_commit_blocks();
    let has_area = fc != 0 && sb.maxlen.get().saturating_sub(fc) >= disk::LOG_BLOCKS_MIN;
    let last = if has_area { sb.maxlen.get() - fc } else { sb.maxlen.get() };
    let mut writer = Writer {
        over: &over,
        map: &map,
        format: disk::Format::of(&sb),
        first: sb.first.get().min(total - 1),
        last: last.clamp(1, total),
        at: start.min(total - 1),
        tid: sb.sequence.get(),
        crc: !0,
    };
    for _ in 0..80 {
        if feed.is_empty() {
            break;
        }
        match feed.u8() % 8 {
            0..=2 => writer.descriptor(&mut feed),
            3 | 4 => writer.commit(&mut feed),
            5 => writer.revoke(&mut feed),
            6 => writer.tid = writer.tid.wrapping_add(u32::from(feed.u8())),
            _ => {
                let mut block = vec![0; BS];
                let (at, bytes) = (usize::from(feed.u16()), feed.u8());
                let bytes = feed.bytes(bytes.into());
                block.iter_mut().skip(at % BS).zip(bytes).for_each(|(to, from)| *to = *from);
                writer.put(&block);
            }
        }
    }
    let at = map.block(0).expect("mapped") * BS as u64;
    over.write_at(at, sb.as_bytes()).expect("within the device");
    for policy in [
        RecoverPolicy::linux(3, 4),
        RecoverPolicy::linux(6, 1),
        RecoverPolicy::linux(6, 18),
        RecoverPolicy::e2fsck(),
    ] {
        replayed(&over, &map, &policy);
    }
}

fn zeroed_super() -> disk::SuperBlock {
    use zerocopy::FromZeros;
    let mut sb = disk::SuperBlock::new_zeroed();
    sb.header.magic = disk::MAGIC.into();
    sb.blocksize = (BS as u32).into();
    sb
}

fn replayed(device: &Overlay<'_>, map: &LogMap, policy: &RecoverPolicy) {
    let bs = BlockSize::new(BS as u32).expect("a block size");
    // Three passes over the log, its superblock, and a page for each block that is replayed.
    let most = 8 * u64::from(map.len()) + 100;
    let view = Counted::new(device, device.len_bytes(), most);
    let first = Overlay::new(&view);
    let may = &|_: &Overlay<'_>, _: u64| true;
    let report = wp_jbd2::recover::replay_log(&first, map, bs, policy, may);
    let Ok(report) = report else { return };
    assert!(report.blocks_replayed <= u64::from(map.len()), "{report:?}");
    if report.scan_end == ScanEnd::Clean {
        assert!(first.is_empty(), "nothing to recover, and yet written");
        return;
    }
    // A block of the log may be the home of another: then the log is no longer what it was.
    let in_log = |page: u64| {
        let blocks = page * 4096 / BS as u64..(page + 1) * 4096 / BS as u64;
        let of =
            |run: &(u32, u64, u32)| blocks.start < run.1 + u64::from(run.2) && run.1 < blocks.end;
        map.blocks.iter().any(of)
    };
    // Of a log that replays over itself nothing can be said.
    let overwritten = first.pages().iter().any(|(n, _)| in_log(*n));
    if !overwritten {
        view.allow(most);
        let again = Overlay::new(&first);
        let second = wp_jbd2::recover::replay_log(&again, map, bs, policy, may);
        assert_eq!(second.as_ref(), Ok(&report), "another replay says something else");
        again.each_page(|n, page| {
            let mut before = [0u8; 4096];
            first.read_at(n * 4096, &mut before).expect("within the device");
            assert!(&before == page.bytes(), "page {n} is changed again");
        });
    }
    let ended = wp_jbd2::recover::end_recovery(&first, map, bs, policy, &report);
    if ended.is_err() {
        assert!(report.failed_commit.is_some() && policy.bad_commit == BadCommit::Refuse);
        return;
    }
    view.allow(most);
    let after = wp_jbd2::recover(&first, map, bs, policy);
    let is_done = |r: &wp_jbd2::RecoveryReport| r.scan_end == ScanEnd::Clean;
    assert!(after.as_ref().is_ok_and(is_done) || overwritten, "recovered, and then {after:?}");
}

/// What fast commits are laid over.
struct Ground {
    base: Rc<Base>,
    /// Byte addresses of the area's blocks.
    places: Vec<u64>,
    /// The transaction that they stand on.
    tid: u32,
    /// Inodes that are there, with their bytes.
    inodes: Vec<(u32, Vec<u8>)>,
}

thread_local! {
    static GROUND: RefCell<Option<Rc<Ground>>> = const { RefCell::new(None) };
}

fn ground() -> Rc<Ground> {
    GROUND.with_borrow_mut(|held| held.get_or_insert_with(|| Rc::new(new_ground())).clone())
}

fn new_ground() -> Ground {
    let base = named(FAST_COMMIT).expect("made here");
    let image = Image::open(&base.image).expect("an image");
    let map = log_map(&image).expect("a journal");
    let bs = u64::from(image.geometry().block_size.bytes());
    let first = map.len() - FAST_COMMIT_BLOCKS + 1;
    let places = (first..map.len()).map(|n| map.block(n).expect("mapped") * bs).collect();
    let over = Overlay::new(&base.image);
    let done = recover(&over, &RecoverPolicy::linux(6, 18), 1).expect("recovers");
    let tid = done.journal.expect("a log").end_tid;
    let after = Image::open(&over).expect("an image");
    let numbers = after.used_inodes().expect("bitmaps");
    let inodes = numbers
        .iter()
        .filter(|n| **n == 2 || **n > 10)
        .map(|n| (*n, after.inode(*n).expect("an inode").raw))
        .collect();
    Ground { places, tid, inodes, base: base.clone() }
}

/// The records of an area.
struct Area {
    blocks: Vec<Vec<u8>>,
    crc: u32,
    tid: u32,
    has_head: bool,
}

impl Area {
    fn raw(&mut self, kind: u16, value: &[u8]) {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
        bytes.extend_from_slice(value);
        self.crc = crc32c(self.crc, &bytes);
        self.blocks.last_mut().expect("one").extend_from_slice(&bytes);
    }

    /// A record, in the next block if this one has no room for it and a tail.
    fn push(&mut self, kind: u16, value: &[u8]) {
        if !self.has_head {
            self.has_head = true;
            let head = [0u32.to_le_bytes(), self.tid.to_le_bytes()].concat();
            self.raw(tag::HEAD, &head);
        }
        let used = self.blocks.last().expect("one").len();
        if used + 4 + value.len() + 12 > BS {
            if used + 4 <= BS {
                self.raw(tag::PAD, &vec![0; BS - used - 4]);
            }
            self.blocks.push(Vec::new());
        }
        self.raw(kind, value);
    }

    /// Ends a commit, and its block.
    fn commit(&mut self, is_wrong: bool) {
        let used = self.blocks.last().expect("one").len();
        if used + 12 > BS {
            self.blocks.push(Vec::new());
            return self.commit(is_wrong);
        }
        let mut bytes = tag::TAIL.to_le_bytes().to_vec();
        bytes.extend_from_slice(&((BS - used - 4) as u16).to_le_bytes());
        bytes.extend_from_slice(&self.tid.to_le_bytes());
        let crc = crc32c(self.crc, &bytes) ^ u32::from(is_wrong);
        bytes.extend_from_slice(&crc.to_le_bytes());
        self.blocks.last_mut().expect("one").extend_from_slice(&bytes);
        self.blocks.push(Vec::new());
        self.crc = 0;
    }
}

/// Fast commits of any records: recovery ends, and is done after that.
pub fn fast_commit(input: &[u8]) {
    let ground = ground();
    let mut feed = Feed::new(input);
    let how = feed.u8();
    let tid = if how & 1 != 0 { ground.tid.wrapping_sub(feed.u8().into()) } else { ground.tid };
    let mut area = Area { blocks: vec![Vec::new()], crc: 0, tid, has_head: false };
    while !feed.is_empty() && area.blocks.len() < ground.places.len() {
        let what = feed.u8();
        let held = &ground.inodes[usize::from(feed.u8()) % ground.inodes.len()];
        let mut ino = held.0;
        if what & 0x80 != 0 {
            ino = if what & 0x40 != 0 { feed.u32() } else { u32::from(feed.u16() % 600) };
        }
        match what & 15 {
            0..=3 => {
                let logical = match what & 0x10 {
                    0 => u32::from(feed.u8()),
                    _ => feed.u32(),
                };
                let start = match what & 0x20 {
                    0 => u64::from(feed.u16()),
                    _ => feed.u64() >> 16,
                };
                let len = u32::from(feed.u16());
                let mut bytes = Extent::new(logical, start, 1, false).as_bytes().to_vec();
                bytes[4..6].copy_from_slice(&(len as u16).to_le_bytes());
                area.push(tag::ADD_RANGE, &[&ino.to_le_bytes()[..], &bytes].concat());
            }
            4 | 5 => {
                let (logical, blocks) = match what & 0x10 {
                    0 => (u32::from(feed.u8()), u32::from(feed.u8())),
                    _ => (feed.u32(), feed.u32()),
                };
                let words = [ino, logical, blocks].map(u32::to_le_bytes).concat();
                area.push(tag::DEL_RANGE, &words);
            }
            6..=9 => {
                let kind = feed.pick(&[tag::CREAT, tag::LINK, tag::UNLINK]);
                let parent = match what & 0x10 {
                    0 => feed.pick(&[2, 12, 13, 14]),
                    _ => feed.u32(),
                };
                let name = match what & 0x20 {
                    0 => vec![b'a' + feed.u8() % 26; 1 + usize::from(feed.u8() % 60)],
                    _ => {
                        let n = usize::from(feed.u8());
                        feed.bytes(n).to_vec()
                    }
                };
                let head = [parent, ino].map(u32::to_le_bytes).concat();
                area.push(kind, &[&head[..], &name].concat());
            }
            10..=12 => {
                let mut raw = held.1.clone();
                raw.truncate(feed.pick(&[256, 160, 128, 256]));
                for _ in 0..feed.u8() % 6 {
                    let (at, byte) = (usize::from(feed.u8()), feed.u8());
                    if let Some(b) = raw.get_mut(at) {
                        *b = byte;
                    }
                }
                area.push(tag::INODE, &[&ino.to_le_bytes()[..], &raw].concat());
            }
            13 | 14 => area.commit(what & 0x30 == 0x30),
            _ => {
                let (kind, n) = (feed.u16(), usize::from(feed.u8()));
                area.push(kind, feed.bytes(n));
            }
        }
    }
    if how & 2 == 0 {
        area.commit(false);
    }
    let over = Overlay::new(&ground.base.image);
    for (block, place) in area.blocks.iter().zip(&ground.places) {
        over.write_at(*place, &block[..block.len().min(BS)]).expect("within the image");
    }
    if how & 4 != 0 {
        let mut at = [0u8; 4];
        at[..2].copy_from_slice(&feed.u16().to_le_bytes());
        let _ =
            over.write_at(SuperBlock::AT + u64::from(u32::from_le_bytes(at) % 1000), &[feed.u8()]);
    }
    let reads = 64 * (over.len_bytes() / 1024) + 100_000;
    let view = Counted::new(&over, over.len_bytes(), reads);
    recovered_once(&view, &RecoverPolicy::linux(6, 18), true);
}
