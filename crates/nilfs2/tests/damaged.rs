//! Damaged images that mount: whatever stands in them, calls end with an error or a result, and
//! soon.
//!
//! `ROBUSTNESS_ROUNDS` sets the number of rounds.

use crate::reseal;
use std::mem::offset_of;

use crate::images::Bytes;
use crate::world::{Setup, World, view_of};
use wp_base::{FsResult, Rng};
use wp_medium::{Medium, Slice};
use wp_nilfs2::disk::{Checkpoint, Geometry, Inode, SummaryHead, SuperBlock, ino};
use wp_nilfs2::image::Image;
use wp_vfs::{OpenFlags, Vfs};
use zerocopy::{FromBytes, IntoBytes};

fn small() -> Setup {
    Setup { mib: 4, block_bytes: 1024, segment_blocks: 64, ..Setup::new() }
}

fn slices(byte: u8, len: usize) -> Vec<Slice> {
    vec![byte; len].chunks(4096).map(Slice::from_bytes).collect()
}

/// Directories, links, a file with a tree of two levels, one that is mostly a hole.
async fn fill(v: &Vfs) -> FsResult<()> {
    for dir in ["d", "d/e", "d/e/f", "m"] {
        v.mkdir(dir, 0o755).await?;
    }
    v.symlink("d/e", "link").await?;
    let files = [
        ("tree", 0, 200 << 10),
        ("two", 0, 100 << 10),
        ("hole", 60 << 20, 5000),
        ("d/small", 0, 100),
    ];
    for (path, at, len) in files {
        let fd = v.open(path, OpenFlags::CREATE, 0o644).await?;
        v.pwrite(fd, at, &slices(7, len)).await?;
        v.close(fd).await?;
    }
    for n in 0..40 {
        let fd = v.open(&format!("d/e/a rather long name {n}"), OpenFlags::CREATE, 0o600).await?;
        v.close(fd).await?;
    }
    v.link("tree", "d/tree").await
}

/// An image that was cut off, with a log of an fdatasync behind its checkpoint.
fn image() -> Vec<u8> {
    let setup = small();
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    let done = w.run(async move {
        fill(&v).await?;
        v.sync().await?;
        let fd = v.open("tree", OpenFlags::WRITE, 0).await?;
        v.pwrite(fd, 4096, &slices(8, 3000)).await?;
        v.fdatasync(fd).await
    });
    done.expect("is filled");
    let medium: Medium = w.durable();
    drop(vfs);
    w.end();
    let mut bytes = vec![0; (setup.mib << 20) as usize];
    for (at, sectors) in medium.runs() {
        let part: Vec<u8> = Slice::concat(&medium.read(at, sectors as u32));
        bytes[at.bytes() as usize..][..part.len()].copy_from_slice(&part);
    }
    bytes
}

/// Every call, on whatever is there; what it answers does not matter.
async fn use_all(v: &Vfs) {
    for path in ["d", "d/e", "d/e/f", "link", "tree", "hole", "d/small", "d/tree", "."] {
        let _ = v.stat(path).await;
        let _ = v.read_dir(path).await;
    }
    let places =
        [("tree", 0), ("tree", 150 << 10), ("two", 90 << 10), ("hole", 60 << 20), ("d/small", 50)];
    for (path, at) in places {
        let Ok(fd) = v.open(path, OpenFlags::WRITE, 0).await else { continue };
        let _ = v.pread(fd, at, 8 << 10).await;
        let _ = v.pwrite(fd, at + 500, &slices(9, 3000)).await;
        let _ = v.fdatasync(fd).await;
        let _ = v.close(fd).await;
    }
    for n in 0..20 {
        if let Ok(fd) = v.open(&format!("d/new {n}"), OpenFlags::CREATE, 0o600).await {
            let _ = v.pwrite(fd, n << 14, &slices(3, 2000)).await;
            let _ = v.close(fd).await;
        }
    }
    let _ = v.mkdir("d/e/g", 0o755).await;
    let _ = v.rename("m", "d/e/f/m").await;
    let _ = v.rename("d/e", "e").await;
    let _ = v.rename("e/f", "d/f").await;
    let _ = v.rename("d/small", "d/e/f/x").await;
    let _ = v.sync().await;
    for size in [190 << 10, 70 << 10, 5 << 10, 10] {
        let _ = v.truncate("tree", size).await;
        let _ = v.truncate("two", size).await;
        let _ = v.truncate("hole", size).await;
    }
    for n in 0..40 {
        let _ = v.unlink(&format!("e/a rather long name {n}")).await;
    }
    for path in ["tree", "d/tree", "hole", "link", "d/small"] {
        let _ = v.unlink(path).await;
    }
    for path in ["d/f/m", "d/f", "e/g", "e", "d"] {
        let _ = v.rmdir(path).await;
    }
    let _ = v.stat_fs().await;
}

/// Damages a few places in logs.
fn damage(bytes: &mut [u8], places: &[u64], block: usize, rng: &mut Rng) {
    for _ in 0..1 + rng.below(4) {
        let place = places[rng.below(places.len() as u64) as usize] as usize * block;
        let inside = match rng.below(3) {
            0 => rng.below(block as u64 - 8),
            1 => rng.below(64),
            _ => rng.below(400),
        } as usize;
        let n = 1 << rng.below(4);
        for b in &mut bytes[place + inside..][..n] {
            *b = match rng.below(3) {
                0 => rng.next_u64() as u8,
                1 => *b ^ (1 << rng.below(8)),
                _ => [0, 0xFF, 0x7F][rng.below(3) as usize],
            };
        }
    }
}

fn reseal_supers(bytes: &mut [u8]) {
    for at in [SuperBlock::AT, SuperBlock::second_at(bytes.len() as u64)] {
        let place = &mut bytes[at as usize..][..SuperBlock::SPACE];
        let mut sb = SuperBlock::read_from_bytes(place).expect("the size is right");
        if let Some(sum) = sb.right_sum() {
            sb.sum = sum.into();
            place.copy_from_slice(sb.as_bytes());
        }
    }
}

/// Mounts an image and uses it; did it mount?
fn try_out(bytes: &[u8]) -> bool {
    let setup = small();
    let w = World::empty(&setup);
    w.load(&view_of(bytes).medium);
    let mounted = w.mount(&setup);
    let is_mounted = mounted.is_ok();
    if let Ok(vfs) = mounted {
        let v = vfs.clone();
        w.run(async move {
            use_all(&v).await;
            let _ = v.fs().unmount().await;
        });
    }
    w.end();
    is_mounted
}

#[test]
fn calls_on_damaged_images_end() {
    let rounds: u64 =
        std::env::var("ROBUSTNESS_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let first: u64 =
        std::env::var("ROBUSTNESS_FIRST").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let whole = Bytes(image());
    assert!(try_out(&whole.0), "without damage");
    let blocks = (wp_nilfs2::ENTRY.blocks)(&whole).expect("classes");
    let g: Geometry = Image::open(&whole).expect("an image").geometry().clone();
    let places: Vec<u64> =
        (0..g.end()).filter(|b| !matches!(blocks.class(*b), "free" | "data")).collect();
    let mut mounted = 0;
    for seed in first..first + rounds {
        let mut bytes = whole.0.clone();
        let mut rng = Rng::stream(seed, "nilfs2-damaged");
        damage(&mut bytes, &places, g.block_bytes(), &mut rng);
        reseal::reseal(&mut bytes, &g);
        reseal_supers(&mut bytes);
        if std::env::var_os("ROBUSTNESS_SAY").is_some() {
            println!("seed {seed}");
        }
        mounted += u32::from(try_out(&bytes));
    }
    println!("{rounds} rounds, {mounted} mounted");
    assert!(u64::from(mounted) > rounds / 3, "{mounted} of {rounds} mounted");
}

/// Where in the image the inode of a path stands.
fn inode_at(bytes: &Bytes, path: &str) -> (u64, usize) {
    let image = Image::open(bytes).expect("an image");
    let mut record = image.inode(ino::ROOT).expect("the root");
    for part in path.split('/').filter(|p| !p.is_empty()) {
        let names = image.names(&record).expect("names");
        let found = names.iter().find(|n| n.name == part.as_bytes()).expect("is there");
        record = image.inode(found.ino).expect("an inode");
    }
    (record.ino, record.at as usize)
}

/// Where the first block of the file at a path stands.
fn block_at(bytes: &Bytes, path: &str) -> usize {
    let image = Image::open(bytes).expect("an image");
    let record = image.inode(inode_at(bytes, path).0).expect("an inode");
    let block = image.block_of(&record, 0).expect("a map").expect("no hole");
    image.geometry().byte_of(block) as usize
}

fn set(bytes: &mut Bytes, at: usize, n: u64) {
    bytes.0[at..at + 8].copy_from_slice(&n.to_le_bytes());
}

/// Uses an image that `change` has damaged; it mounts.
fn with(whole: &[u8], what: &str, change: impl FnOnce(&mut Bytes)) {
    let mut bytes = Bytes(whole.to_vec());
    let g = Image::open(&bytes).expect("an image").geometry().clone();
    change(&mut bytes);
    reseal::reseal(&mut bytes.0, &g);
    reseal_supers(&mut bytes.0);
    assert!(try_out(&bytes.0), "{what}");
}

const SIZE: usize = offset_of!(Inode, size);
const BMAP: usize = offset_of!(Inode, bmap);

#[test]
fn lengths_beyond_all_blocks_take_no_time() {
    let whole = image();
    for path in ["d", "link", "tree"] {
        for size in [1 << 50, u64::MAX, u64::MAX >> 1] {
            with(&whole, path, |b| {
                let at = inode_at(b, path).1;
                set(b, at + SIZE, size);
            });
        }
    }
}

#[test]
fn directories_in_a_ring_end() {
    with(&image(), "ring", |b| {
        let (inner, _) = inode_at(b, "d/e/f");
        // `..` is the second entry.
        let at = block_at(b, "d/e") + 16;
        set(b, at, inner);
    });
}

#[test]
fn a_node_below_two_places_is_no_panic() {
    with(&image(), "shared node", |b| {
        // A word with flags, three keys, three pointers.
        let first = inode_at(b, "two").1 + BMAP + 32;
        let pointer: [u8; 8] = b.0[first..first + 8].try_into().expect("eight");
        set(b, first + 8, u64::from_le_bytes(pointer));
    });
}

#[test]
fn names_of_metadata_files_are_no_panic() {
    with(&image(), "reserved", |b| {
        let (tree, from) = inode_at(b, "tree");
        let (root, at) = inode_at(b, "");
        let names = block_at(b, "");
        let inode = b.0[from..from + Inode::BYTES].to_vec();
        for reserved in 3..=7u64 {
            let place = at + (reserved - root) as usize * Inode::BYTES;
            b.0[place..place + Inode::BYTES].copy_from_slice(&inode);
        }
        let entry = b.0[names..names + 1024].windows(8).position(|w| w == tree.to_le_bytes());
        set(b, names + entry.expect("the name"), ino::DAT);
    });
}

#[test]
fn counts_at_their_ends_are_no_panic() {
    let whole = image();
    let (tip, cp) = {
        let bytes = Bytes(whole.clone());
        let image = Image::open(&bytes).expect("an image");
        let tip = image.tip().clone();
        let (at, _) = image.checkpoint_of(tip.cno).expect("reads").expect("is there");
        (tip, at as usize)
    };
    with(&whole, "inodes and blocks", |b| {
        set(b, cp + offset_of!(Checkpoint, inodes_count), u64::MAX);
        set(b, cp + offset_of!(Checkpoint, blocks_count), u64::MAX);
    });
    with(&whole, "sequence", |b| {
        for at in [SuperBlock::AT, SuperBlock::second_at(b.0.len() as u64)] {
            set(b, at as usize + offset_of!(SuperBlock, last_seq), u64::MAX);
            set(b, at as usize + offset_of!(SuperBlock, last_pseg), tip.root.start);
            set(b, at as usize + offset_of!(SuperBlock, last_cno), tip.cno);
        }
        let log = tip.g.byte_of(tip.root.start) as usize;
        set(b, log + offset_of!(SummaryHead, seq), u64::MAX);
    });
}
