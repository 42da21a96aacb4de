//! Damaged images: whatever the bytes, no panic, no endless walk.
//!
//! Each case lays a few seeded changes over a real image, mostly over its metadata, and reads
//! everything: recovery, listing with hashes, block classes. `ROBUSTNESS_ROUNDS` sets the number of
//! cases an image.

#![expect(clippy::unwrap_used, reason = "what cannot be read or run fails the test")]

use crate::skip;
use std::cell::Cell;

use crate::reference::{Bytes, reference};
use wp_base::{FsError, FsResult, Rng};
use wp_ext4::image::{BlockClass, BlockClasses, Image, InspectOptions, inspect, list, recover};
use wp_ext4::mkfs::{Features, MkfsOptions, mkfs};
use wp_jbd2::RecoverPolicy;
use wp_medium::{Overlay, View};

/// A view that counts, and that gives up on a reader who does not.
struct Counted<'a> {
    below: &'a dyn View,
    bytes: u64,
    reads_left: Cell<u64>,
}

impl View for Counted<'_> {
    fn len_bytes(&self) -> u64 {
        self.bytes
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        let left = self.reads_left.get();
        assert!(left > 0, "this walk does not end");
        self.reads_left.set(left - 1);
        if at.checked_add(out.len() as u64).is_none_or(|end| end > self.bytes) {
            return Err(FsError::Io);
        }
        self.below.read_at(at, out)
    }
}

/// Blocks that hold structures, and the block size.
fn targets(view: &dyn View) -> (Vec<u64>, u64) {
    let image = Image::open(view).unwrap();
    let classes = BlockClasses::of(&image).unwrap();
    let mut blocks = Vec::new();
    for (start, n, class) in classes.runs() {
        // Of long runs the first blocks: the rest of a log or of an inode table is empty in small
        // images.
        let take = match class {
            BlockClass::Data { .. }
            | BlockClass::Unowned
            | BlockClass::ReservedDescriptors { .. } => 0,
            BlockClass::Journal { .. } => 40,
            BlockClass::InodeTable { .. } => 30,
            _ => 8,
        };
        blocks.extend(start..start + n.min(take));
    }
    (blocks, image.geometry().block_size.bytes().into())
}

fn damage(overlay: &Overlay<'_>, rng: &mut Rng, targets: &[u64], block_bytes: u64) {
    for _ in 0..1 + rng.below(6) {
        let block = targets[rng.below(targets.len() as u64) as usize];
        // The first bytes of a structure are the busiest.
        let within = if rng.below(3) == 0 { block_bytes } else { 128 };
        let at = block * block_bytes + rng.below(within);
        let values: [u64; 6] =
            [0, u64::MAX, 1, rng.next_u64(), rng.below(1 << 17), 0x8000_0000_8000_8000];
        let value = values[rng.below(6) as usize].to_le_bytes();
        let width = [1usize, 1, 2, 4, 8][rng.below(5) as usize];
        match rng.below(8) {
            0 => {
                let other = targets[rng.below(targets.len() as u64) as usize];
                let mut bytes = vec![0; block_bytes as usize];
                overlay.read_at(other * block_bytes, &mut bytes).unwrap();
                overlay.write_at(block * block_bytes, &bytes).unwrap();
            }
            1 => overlay.write_at(block * block_bytes, &vec![0; block_bytes as usize]).unwrap(),
            2 | 3 => {
                let mut byte = [0u8];
                overlay.read_at(at, &mut byte).unwrap();
                overlay.write_at(at, &[byte[0] ^ 1 << rng.below(8)]).unwrap();
            }
            _ => {
                let width = width.min((overlay.len_bytes() - at) as usize);
                overlay.write_at(at, &value[..width]).unwrap();
            }
        }
    }
}

/// Reads everything there is to read; errors are fine.
fn read_all(view: &dyn View) {
    let options = InspectOptions { hash_bytes_max: 1 << 26, ..InspectOptions::default() };
    let _ = inspect(view, &options);
    let overlay = Overlay::new(view);
    let _ = recover(&overlay, &RecoverPolicy::e2fsck(), 1);
    if let Ok(image) = Image::open(&overlay) {
        let _ = list(&image, &options);
        let _ = BlockClasses::of(&image);
    }
    // And as it is, without recovery.
    if let Ok(image) = Image::open(view) {
        let _ = BlockClasses::of(&image);
    }
}

fn rounds() -> u64 {
    std::env::var("ROBUSTNESS_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(250)
}

fn check(name: &str, image: &dyn View) {
    let (targets, block_bytes) = targets(image);
    for seed in 0..rounds() {
        let mut rng = Rng::stream(seed, name);
        let damaged = Overlay::new(image);
        damage(&damaged, &mut rng, &targets, block_bytes);
        let cut = if rng.below(10) == 0 { rng.below(image.len_bytes()) } else { 0 };
        let blocks = image.len_bytes() / block_bytes;
        let counted = Counted {
            below: &damaged,
            bytes: image.len_bytes() - cut,
            reads_left: Cell::new(100 * blocks + 1_000_000),
        };
        // A panic names the case; the same name and seed repeat it.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read_all(&counted)));
        assert!(result.is_ok(), "{name}, seed {seed}");
    }
}

#[test]
fn damaged_images_of_real_kernels_do_no_harm() {
    // Two without checksums, so that damage is not found out at the door; then all kinds of journal
    // and orphans.
    for name in [
        "ext4-nocsum",
        "ext4-jcsum1",
        "ext4-orphan",
        "ext4-orphanfile",
        "ext4-j1k",
        "ext4-revoke",
        "ext4-fc",
    ] {
        let Some((image, _)) = reference("damaged_images_of_real_kernels_do_no_harm", name) else {
            continue;
        };
        check(name, &image);
    }
}

#[test]
fn damaged_new_file_systems_do_no_harm() {
    for (name, features) in [("new-era", Features::era_2012()), ("new-today", Features::today())] {
        let options = MkfsOptions::new(16 << 20, features);
        let mut bytes = vec![0u8; 16 << 20];
        for (at, data) in mkfs(&options).unwrap().writes() {
            bytes[at as usize..at as usize + data.len()].copy_from_slice(data);
        }
        check(name, &Bytes(bytes));
    }
}

#[test]
fn damaged_images_of_mke2fs_do_no_harm() {
    let test = "damaged_images_of_mke2fs_do_no_harm";
    if !skip::has_tool(test, "mke2fs") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("tree");
    std::fs::create_dir_all(source.join("dir/sub")).unwrap();
    for n in 0..40u32 {
        std::fs::write(source.join(format!("dir/f{n}")), vec![n as u8; (n * n * 40) as usize])
            .unwrap();
    }
    std::os::unix::fs::symlink("x".repeat(200), source.join("dir/sub/long")).unwrap();
    for (name, options) in [
        ("indirect", &["-O", "^extent,^64bit,^metadata_csum,^has_journal"][..]),
        ("inline", &["-O", "inline_data,ea_inode,^metadata_csum"]),
        ("extents", &["-O", "^metadata_csum"]),
    ] {
        let path = dir.path().join(name);
        std::fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
        let out = std::process::Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext4", "-d"])
            .arg(&source)
            .args(options)
            .arg(&path)
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        check(name, &Bytes(std::fs::read(&path).unwrap()));
    }
}
