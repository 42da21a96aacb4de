//! Replay of fast commits that we make up: random operations, as a kernel would have logged them,
//! in the area of an image that a real kernel left. The host's kernel replays the same image.

#![expect(clippy::unwrap_used, reason = "what cannot be read or run fails the test")]

use crate::host;
use crate::skip;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::reference::{Bytes, reference};
use wp_base::Rng;
use wp_base::crc::crc32c;
use wp_ext4::disk::fast_commit::tag;
use wp_ext4::disk::{Extent, Inode};
use wp_ext4::image::{
    BlockClass, BlockClasses, Image, InspectOptions, inspect, list, log_map, recover,
    recover_at_mount,
};
use wp_jbd2::RecoverPolicy;
use wp_medium::Overlay;
use wp_vfs::FileType;
use zerocopy::IntoBytes;

const BS: usize = 4096;
/// The area of both reference images with one: 15 blocks, of which the last stays free.
const BLOCKS: usize = 14;
/// Size of files whose blocks are recorded: 410 blocks and a part.
const SIZE: u32 = (410 << 12) + 5;
/// When they are recovered.
const NOW: u32 = 1_800_000_000;

/// An area that is being filled.
struct Area {
    tid: u32,
    blocks: Vec<Vec<u8>>,
    crc: u32,
    has_head: bool,
}

impl Area {
    fn new(tid: u32) -> Area {
        Area { tid, blocks: vec![Vec::new()], crc: 0, has_head: false }
    }

    fn raw(&mut self, kind: u16, value: &[u8]) {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
        bytes.extend_from_slice(value);
        let counted = if kind == tag::TAIL { 8 } else { bytes.len() };
        self.crc = crc32c(self.crc, &bytes[..counted]);
        self.blocks.last_mut().unwrap().extend_from_slice(&bytes);
    }

    /// Records keep room for the padding, or the tail, that ends their block.
    fn push(&mut self, kind: u16, value: &[u8]) {
        if !self.has_head {
            self.has_head = true;
            let head = [0u32.to_le_bytes(), self.tid.to_le_bytes()].concat();
            self.raw(tag::HEAD, &head);
        }
        let used = self.blocks.last().unwrap().len();
        if used + 4 + value.len() + 12 > BS {
            self.raw(tag::PAD, &vec![0; BS - used - 4]);
            self.blocks.push(Vec::new());
        }
        self.raw(kind, value);
    }

    /// Ends a commit, and its block.
    fn commit(&mut self) {
        let used = self.blocks.last().unwrap().len();
        let mut value = vec![0; BS - used - 4];
        value[..4].copy_from_slice(&self.tid.to_le_bytes());
        let mut head = tag::TAIL.to_le_bytes().to_vec();
        head.extend_from_slice(&(value.len() as u16).to_le_bytes());
        head.extend_from_slice(&value[..4]);
        let crc = crc32c(self.crc, &head);
        value[4..8].copy_from_slice(&crc.to_le_bytes());
        self.raw(tag::TAIL, &value);
        self.crc = 0;
        self.blocks.push(Vec::new());
    }

    fn is_full(&self) -> bool {
        self.blocks.len() > BLOCKS - 2
    }

    fn add(&mut self, ino: u32, e: &Extent) {
        self.push(tag::ADD_RANGE, &[&ino.to_le_bytes()[..], e.as_bytes()].concat());
    }

    fn del(&mut self, ino: u32, logical: u32, blocks: u32) {
        let words = [ino, logical, blocks].map(u32::to_le_bytes).concat();
        self.push(tag::DEL_RANGE, &words);
    }

    fn name(&mut self, kind: u16, parent: u32, ino: u32, name: &[u8]) {
        let head = [parent, ino].map(u32::to_le_bytes).concat();
        self.push(kind, &[&head[..], name].concat());
    }

    fn inode(&mut self, ino: u32, raw: &[u8]) {
        self.push(tag::INODE, &[&ino.to_le_bytes()[..], raw].concat());
    }
}

/// Where the area's blocks lie, the transaction under it, and what is free once that is replayed.
struct Base {
    image: Vec<u8>,
    places: Vec<u64>,
    tid: u32,
    free: Vec<u64>,
    /// Path to (inode, its first 160 bytes, directory that it lies in).
    files: BTreeMap<Vec<u8>, (u32, Vec<u8>, u32)>,
    dirs: Vec<u32>,
}

fn base(test: &str) -> Option<Base> {
    let (mut bytes, _) = reference(test, "ext4-fc")?;
    let places: Vec<u64> = {
        let image = Image::open(&bytes).unwrap();
        let log = log_map(&image).unwrap();
        (2049..2064).map(|n| log.block(n).unwrap()).collect()
    };
    for block in &places {
        bytes.0[*block as usize * BS..][..BS].fill(0);
    }
    let overlay = Overlay::new(&bytes);
    let done = recover(&overlay, &RecoverPolicy::linux(6, 18), NOW).unwrap();
    let image = Image::open(&overlay).unwrap();
    let classes = BlockClasses::of(&image).unwrap();
    let free = (6000..16000).filter(|b| classes.class(*b) == BlockClass::Free).collect();
    let (found, _) = list(&image, &InspectOptions::default());
    let dirs: BTreeMap<Vec<u8>, u32> = std::iter::once((Vec::new(), 2))
        .chain(
            found
                .iter()
                .filter(|f| f.kind == FileType::Dir)
                .map(|f| (f.path.clone(), f.ino as u32)),
        )
        .filter(|(path, _)| path.as_slice() != b"lost+found")
        .collect();
    let parent = |path: &[u8]| {
        let cut = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
        dirs.get(&path[..cut]).copied().unwrap_or(2)
    };
    let files = found.iter().filter(|f| f.kind == FileType::File).map(|f| {
        let raw = image.inode(f.ino as u32).unwrap().raw[..160].to_vec();
        (f.path.clone(), (f.ino as u32, raw, parent(&f.path)))
    });
    let (files, dirs) = (files.collect(), dirs.values().copied().collect());
    let tid = done.journal.unwrap().end_tid;
    drop(overlay);
    Some(Base { image: bytes.0, places, tid, free, files, dirs })
}

impl Base {
    fn with(&self, area: &Area) -> Bytes {
        let mut bytes = self.image.clone();
        for (block, place) in area.blocks.iter().zip(&self.places) {
            bytes[*place as usize * BS..][..block.len()].copy_from_slice(block);
        }
        Bytes(bytes)
    }
}

fn fresh(mode: u16, size: u32, links: u16, generation: u32) -> Vec<u8> {
    let mut i = Inode::zeroed();
    i.mode = mode.into();
    i.set_size(size.into());
    i.links_count = links.into();
    i.flags = 0x8_0000.into();
    i.generation = generation.into();
    let mut raw = vec![0; 160];
    i.store(&mut raw);
    raw[128] = 32;
    raw
}

fn set_links(raw: &mut [u8], links: u16) {
    raw[26..28].copy_from_slice(&links.to_le_bytes());
}

/// A file in the model.
struct Held {
    raw: Vec<u8>,
    links: u16,
    names: Vec<(u32, Vec<u8>)>,
}

/// Random operations until the area is full. Without `mkdir` the result must be clean: kernels
/// leave wrong counts after that one.
fn random_area(base: &Base, seed: u64, with_mkdir: bool) -> Area {
    let mut rng = Rng::stream(seed, "fast-commit");
    let mut area = Area::new(base.tid);
    let mut free = base.free.clone();
    let mut files: BTreeMap<u32, Held> = BTreeMap::new();
    for (path, (ino, raw, parent)) in &base.files {
        let name = path.rsplit(|b| *b == b'/').next().unwrap().to_vec();
        let links = u16::from_le_bytes([raw[26], raw[27]]);
        let held = || Held { raw: raw.clone(), links, names: Vec::new() };
        files.entry(*ino).or_insert_with(held).names.push((*parent, name));
    }
    let mut dirs = base.dirs.clone();
    let mut next = 300;
    let mut unique = 0;
    let mut name = |rng: &mut Rng| {
        unique += 1;
        let mut n = format!("n{unique}-").into_bytes();
        n.resize(n.len() + rng.below(180) as usize, b'a' + (unique % 26) as u8);
        n
    };
    while !area.is_full() {
        for _ in 0..1 + rng.below(25) {
            let inos: Vec<u32> = files.keys().copied().collect();
            let ino = inos[rng.below(inos.len() as u64) as usize];
            let dir = dirs[rng.below(dirs.len() as u64) as usize];
            let ranges = |rng: &mut Rng, area: &mut Area, ino: u32, free: &mut Vec<u64>| {
                let many = if rng.below(12) == 0 { 120 } else { 4 };
                for _ in 0..1 + rng.below(many) {
                    let blocks = 1 + rng.below(3) as u32;
                    let at = rng.below(free.len() as u64 - 4) as usize;
                    let start = free[at];
                    if free.get(at + blocks as usize - 1) != Some(&(start + u64::from(blocks) - 1))
                    {
                        continue;
                    }
                    free.drain(at..at + blocks as usize);
                    let logical = rng.below(400) as u32;
                    area.add(ino, &Extent::new(logical, start, blocks, rng.below(5) == 0));
                }
            };
            match rng.below(10) {
                0..=3 => {
                    let ino = next;
                    next += 1;
                    let raw = fresh(0o100_644, SIZE, 1, rng.next_u64() as u32);
                    area.inode(ino, &raw);
                    ranges(&mut rng, &mut area, ino, &mut free);
                    let n = name(&mut rng);
                    area.name(tag::CREAT, dir, ino, &n);
                    area.inode(ino, &raw);
                    files.insert(ino, Held { raw, links: 1, names: vec![(dir, n)] });
                }
                4 => {
                    let held = files.get_mut(&ino).unwrap();
                    let n = name(&mut rng);
                    area.name(tag::LINK, dir, ino, &n);
                    held.links += 1;
                    set_links(&mut held.raw, held.links);
                    area.inode(ino, &held.raw);
                    held.names.push((dir, n));
                }
                5 | 6 => {
                    let held = files.get_mut(&ino).unwrap();
                    let at = rng.below(held.names.len() as u64) as usize;
                    let (parent, n) = held.names.swap_remove(at);
                    area.name(tag::UNLINK, parent, ino, &n);
                    held.links -= 1;
                    set_links(&mut held.raw, held.links);
                    if held.names.is_empty() {
                        files.remove(&ino);
                    } else {
                        area.inode(ino, &held.raw);
                    }
                }
                7 => {
                    ranges(&mut rng, &mut area, ino, &mut free);
                    let held = files.get_mut(&ino).unwrap();
                    held.raw[4..8].copy_from_slice(&SIZE.to_le_bytes());
                    area.inode(ino, &held.raw);
                }
                8 => {
                    area.del(ino, rng.below(300) as u32, 1 + rng.below(100) as u32);
                    area.inode(ino, &files[&ino].raw);
                }
                _ if with_mkdir => {
                    let raw = fresh(0o40_755, BS as u32, 2, rng.next_u64() as u32);
                    area.inode(next, &raw);
                    area.name(tag::CREAT, dir, next, &name(&mut rng));
                    dirs.push(next);
                    next += 1;
                }
                _ => {}
            }
        }
        area.commit();
    }
    // The block that the last commit opened holds nothing.
    area.blocks.pop();
    area
}

/// Every file as a line, and its blocks: of those a few may be other ones, see below.
fn lines(bytes: &Bytes) -> Vec<(String, u64)> {
    let found = inspect(bytes, &InspectOptions::default()).unwrap();
    assert!(found.findings.is_empty(), "{:?}", found.findings);
    let line = |f: &wp_vfs::FileInfo| {
        let path = String::from_utf8_lossy(&f.path).into_owned();
        let line = format!(
            "{path} {:?} {} {:o} {} {} {:?}",
            f.kind, f.ino, f.mode, f.nlink, f.size, f.sha256
        );
        (line, f.sectors / (BS as u64 / 512))
    };
    found.files.iter().map(line).collect()
}

fn e2fsck(path: &Path) -> Vec<String> {
    let out = Command::new("e2fsck").arg("-fn").arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).replace(path.to_str().unwrap(), "IMAGE");
    text.lines().filter(|l| !l.contains("non-contiguous")).map(str::to_owned).collect()
}

fn scratch(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The image after the host's kernel has mounted and unmounted it; `None` if it refused.
fn by_host(bytes: &Bytes, name: &str) -> Option<Bytes> {
    let (image, at) = (scratch(&format!("{name}.img")), scratch(&format!("{name}.mnt")));
    std::fs::write(&image, &bytes.0).unwrap();
    std::fs::create_dir_all(&at).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-o", "loop", "-t", "ext4"]).arg(&image).arg(&at);
    let done = mount.output().unwrap().status.success();
    if done {
        host::unmount(&at.display().to_string());
    }
    let after = std::fs::read(&image).unwrap();
    std::fs::remove_file(&image).unwrap();
    std::fs::remove_dir(&at).unwrap();
    done.then_some(Bytes(after))
}

fn can_mount(test: &str, base: &Base) -> bool {
    let tool = Command::new("mount").arg("-V").output().is_ok();
    let done = tool && by_host(&Bytes(base.image.clone()), &format!("{test}.probe")).is_some();
    if !done {
        skip::skipped(test, "this host cannot mount an ext4 image through a loop device");
    }
    done
}

fn recovered(bytes: &Bytes) -> Bytes {
    let overlay = Overlay::new(bytes);
    recover(&overlay, &RecoverPolicy::linux(6, 18), NOW).unwrap();
    let mut after = bytes.0.clone();
    for (at, slice) in overlay.writes() {
        let slice = slice.to_vec();
        after[at.bytes() as usize..][..slice.len()].copy_from_slice(&slice);
    }
    Bytes(after)
}

fn rounds() -> u64 {
    std::env::var("FAST_COMMIT_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(6)
}

#[test]
fn random_fast_commits_replay_to_what_the_hosts_kernel_makes_of_them() {
    let test = "random_fast_commits_replay_to_what_the_hosts_kernel_makes_of_them";
    let Some(base) = base(test) else { return };
    let has_host = can_mount(test, &base);
    let has_e2fsck = skip::has_tool(test, "e2fsck");
    let (mut files, mut taller) = (0, 0);
    for seed in 0..rounds() {
        let with_mkdir = seed % 3 == 2;
        let crashed = base.with(&random_area(&base, seed, with_mkdir));
        let ours = recovered(&crashed);
        let (mine, path) = (lines(&ours), scratch(&format!("fast-commit-{seed}.img")));
        let verdict = |bytes: &Bytes| {
            std::fs::write(&path, &bytes.0).unwrap();
            let said = e2fsck(&path);
            std::fs::remove_file(&path).unwrap();
            said
        };
        let said = has_e2fsck.then(|| verdict(&ours));
        if let (Some(said), false) = (&said, with_mkdir) {
            let wrong = said.iter().any(|l| l.contains("no") && l.contains('?'));
            assert!(!wrong, "seed {seed}: {said:#?}");
        }
        if has_host {
            let theirs = by_host(&crashed, &format!("{test}-{seed}"))
                .unwrap_or_else(|| panic!("seed {seed}: the host refuses"));
            let kernel = lines(&theirs);
            for ((a, blocks), (b, theirs)) in mine.iter().zip(&kernel) {
                assert_eq!(a, b, "seed {seed}: ours, then the kernel's");
                // A tree that has grown stays with the kernel until it is merged; ours is packed.
                let more = theirs.checked_sub(*blocks).expect("a packed tree is no larger");
                assert!(more <= 1, "seed {seed}: {a}: {blocks} blocks, the kernel's {theirs}");
                (files, taller) = (files + 1, taller + more);
            }
            assert_eq!(mine.len(), kernel.len(), "seed {seed}");
            if let Some(said) = said {
                assert_eq!(said, verdict(&theirs), "seed {seed}: ours, then the kernel's");
            }
        }
    }
    println!(
        "{files} files as the kernel has them; {taller} with a tree that is a block larger there"
    );
}

#[test]
fn an_area_that_no_kernel_mounts_is_refused() {
    let test = "an_area_that_no_kernel_mounts_is_refused";
    let Some(base) = base(test) else { return };
    let whole = random_area(&base, 1, false);
    let raw = |links| fresh(0o100_644, 10, links, 1);
    let mut torn = base.with(&whole);
    torn.0[base.places[0] as usize * BS + 30] ^= 1;
    let mut unnamed = Area::new(base.tid);
    unnamed.inode(300, &raw(0));
    unnamed.commit();
    let mut reserved = Area::new(base.tid);
    reserved.inode(9, &raw(1));
    reserved.commit();
    let mut lone = Area::new(base.tid);
    lone.name(tag::CREAT, 2, 301, b"never-recorded");
    lone.commit();
    let mut full = Area::new(base.tid);
    for _ in 0..BLOCKS + 1 {
        full.push(tag::PAD, &[0; 8]);
        full.commit();
    }
    let cases = [
        ("first commit torn", torn),
        ("inode without links", base.with(&unnamed)),
        ("reserved inode", base.with(&reserved)),
        ("name of no inode", base.with(&lone)),
        ("area full to its last block", base.with(&full)),
    ];
    let has_host = can_mount(test, &base);
    for (what, bytes) in cases {
        let done = recover_at_mount(&Overlay::new(&bytes), &RecoverPolicy::linux(6, 18), NOW);
        assert_eq!(done.errno(), Some("EIO"), "{what}: {:?}", done.mounted);
        if has_host {
            let name = format!("{test}-{}", what.replace(' ', "-"));
            assert!(by_host(&bytes, &name).is_none(), "{what}: the host's kernel mounts it");
        }
    }
    // A torn commit behind a whole one is only the end.
    let mut torn = base.with(&whole);
    let last = base.places[whole.blocks.len() - 1] as usize * BS;
    torn.0[last + BS / 2] ^= 1;
    assert!(recover(&Overlay::new(&torn), &RecoverPolicy::linux(6, 18), NOW).is_ok());
}

#[test]
fn damaged_records_with_right_checksums_do_no_harm() {
    let test = "damaged_records_with_right_checksums_do_no_harm";
    let Some(base) = base(test) else { return };
    let rounds = std::env::var("ROBUSTNESS_ROUNDS").ok().and_then(|n| n.parse().ok());
    let (mut whole, mut refused) = (0, 0);
    for seed in 0..rounds.unwrap_or(150) {
        let mut rng = Rng::stream(seed, "damaged-records");
        let sound = random_area(&base, seed % 4, true);
        // The same records, some with other bytes, sealed again.
        let mut area = Area::new(base.tid);
        area.has_head = true;
        for block in &sound.blocks {
            let mut at = 0;
            while at + 4 <= block.len() {
                let word = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
                let (mut kind, len) = (word(at), usize::from(word(at + 2)));
                let mut value = block[at + 4..at + 4 + len].to_vec();
                at += 4 + len;
                if kind == tag::TAIL {
                    area.commit();
                    continue;
                }
                if rng.below(40) == 0 && kind != tag::HEAD && !value.is_empty() {
                    for _ in 0..1 + rng.below(3) {
                        let n = rng.below(value.len().min(32) as u64) as usize;
                        value[n] = [0, 1, 0xFF, 0x80, rng.next_u64() as u8][rng.below(5) as usize];
                    }
                    if rng.below(10) == 0 {
                        kind = 1 + rng.below(7) as u16;
                    }
                }
                area.raw(kind, &value);
                if area.blocks.last().unwrap().len() == BS {
                    area.blocks.push(Vec::new());
                }
            }
        }
        area.blocks.truncate(BLOCKS);
        let bytes = base.with(&area);
        let overlay = Overlay::new(&bytes);
        match recover(&overlay, &RecoverPolicy::linux(6, 18), NOW) {
            Ok(_) => {
                whole += 1;
                if let Ok(image) = Image::open(&overlay) {
                    drop(list(&image, &InspectOptions { hash: false, ..Default::default() }));
                    drop(BlockClasses::of(&image));
                }
            }
            Err(_) => refused += 1,
        }
    }
    assert!(whole > 0 && refused > 0, "{whole} replayed, {refused} refused");
}
