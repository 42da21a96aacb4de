//! Recovery as a crash explorer uses it: what it reads decides what it writes, and a mount goes on
//! where a kernel's does.

#![expect(clippy::unwrap_used, reason = "what cannot be read or run fails the test")]

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::reference::{Bytes, reference};
use crate::support::{Setup, World};
use wp_base::{FsError, Sector};
use wp_ext4::disk::SuperBlock;
use wp_ext4::image::{Image, InspectOptions, inspect, log_map, recover, recover_at_mount};
use wp_jbd2::RecoverPolicy;
use wp_medium::{Medium, MediumView, Overlay, Slice, View, Watched};

const NOW: u32 = 1_800_000_000;
const NAMES: [&str; 7] = [
    "ext4-ordered",
    "ext4-j1k",
    "ext4-revoke",
    "ext4-orphan",
    "ext4-orphanfile",
    "ext4-fc",
    "ext4-wrap",
];

fn policy() -> RecoverPolicy {
    RecoverPolicy::linux(6, 18)
}

/// Page index to contents.
fn pages(overlay: &Overlay<'_>) -> BTreeMap<u64, Vec<u8>> {
    let mut out = BTreeMap::new();
    overlay.each_page(|n, page| drop(out.insert(n, page.bytes().to_vec())));
    out
}

#[test]
fn what_is_not_read_does_not_matter() {
    for name in NAMES {
        let Some((image, _)) = reference("what_is_not_read_does_not_matter", name) else {
            continue;
        };
        let seen = RefCell::new(vec![false; image.0.len()]);
        let watch = |at: u64, bytes: &[u8]| {
            assert_eq!(&image.0[at as usize..at as usize + bytes.len()], bytes);
            seen.borrow_mut()[at as usize..at as usize + bytes.len()].fill(true);
        };
        let watched = Watched::new(&image, &watch);
        let overlay = Overlay::new(&watched);
        let done = recover_at_mount(&overlay, &policy(), NOW);
        assert_eq!(done.errno(), None, "{name}: {:?}", done.mounted);
        assert!(done.recovery.reported.is_empty(), "{name}");
        // Everything else may be anything.
        let seen = seen.borrow().clone();
        let other: Vec<u8> =
            image.0.iter().zip(&seen).map(|(b, seen)| if *seen { *b } else { !*b }).collect();
        let other = Bytes(other);
        let again = Overlay::new(&other);
        assert_eq!(recover_at_mount(&again, &policy(), NOW), done, "{name}");
        assert!(pages(&again) == pages(&overlay), "{name}");
        // The log, the tables, and little more: no walk over the device.
        let read = seen.iter().filter(|s| **s).count();
        assert!(read < image.0.len() / 8, "{name}: {read} bytes are read");
    }
}

fn medium(image: &Bytes) -> Medium {
    let mut medium = Medium::new();
    for (n, page) in (0u64..).zip(image.0.chunks(4096)) {
        if page.iter().any(|b| *b != 0) {
            medium.write(Sector(n * 8), &Slice::from_bytes(page));
        }
    }
    medium
}

/// Path, inode, links, size, contents.
fn files(view: &dyn View) -> Vec<String> {
    let found = inspect(view, &InspectOptions { now: NOW, ..Default::default() }).unwrap();
    assert!(found.findings.is_empty(), "{:?}", found.findings);
    let line = |f: &wp_vfs::FileInfo| {
        let path = String::from_utf8_lossy(&f.path).into_owned();
        format!("{path} {:?} {} {} {} {:?}", f.kind, f.ino, f.nlink, f.size, f.sha256)
    };
    found.files.iter().map(line).collect()
}

#[test]
fn mounting_a_crashed_image_brings_back_the_same_files() {
    for name in NAMES {
        let test = "mounting_a_crashed_image_brings_back_the_same_files";
        let Some((image, _)) = reference(test, name) else { continue };
        let mut setup = Setup::new("6.12");
        setup.mib = image.len_bytes() >> 20;
        let w = World::with_image(&setup, &medium(&image));
        let vfs = w.mount(&setup).unwrap_or_else(|e| panic!("{name}: {e}"));
        w.unmount(&vfs);
        let after = MediumView { medium: w.medium(), start: Sector(0), bytes: image.len_bytes() };
        assert_eq!(files(&after), files(&image), "{name}");
        drop((vfs, after));
        w.end();
    }
}

#[test]
fn an_error_in_the_log_moves_to_the_super_block_and_orphans_are_left_then() {
    let test = "an_error_in_the_log_moves_to_the_super_block_and_orphans_are_left_then";
    let Some((mut image, _)) = reference(test, "ext4-orphan") else { return };
    let at = {
        let opened = Image::open(&image).unwrap();
        let block = log_map(&opened).unwrap().block(0).unwrap();
        (block * u64::from(opened.geometry().block_size.bytes())) as usize
    };
    // `s_errno`, and the checksum of the 1024 bytes with its own field zero.
    image.0[at + 32..at + 36].copy_from_slice(&(-5i32).to_be_bytes());
    let mut sb = image.0[at..at + 1024].to_vec();
    sb[0xFC..0x100].fill(0);
    let crc = wp_base::crc::crc32c(!0, &sb);
    image.0[at + 0xFC..at + 0x100].copy_from_slice(&crc.to_be_bytes());
    let overlay = Overlay::new(&image);
    let done = recover_at_mount(&overlay, &policy(), NOW);
    assert_eq!(done.errno(), None, "{:?}", done.mounted);
    assert_eq!(done.recovery.journal_errno, (-5i32) as u32);
    assert_eq!(done.recovery.orphans_deleted, 0);
    let after = Image::open(&overlay).unwrap();
    assert!(after.super_block().state.get() & SuperBlock::STATE_ERROR != 0);
    assert_eq!(after.super_block().last_orphan.get(), 0);
    let mut errno = [0u8; 4];
    overlay.read_at(at as u64 + 32, &mut errno).unwrap();
    assert_eq!(errno, [0; 4]);
    // And it is not found again.
    let again = Overlay::new(&overlay);
    assert!(!recover_at_mount(&again, &policy(), NOW).recovery.is_needed());
}

#[test]
fn a_bad_orphan_is_reported_and_does_not_end_the_mount() {
    let test = "a_bad_orphan_is_reported_and_does_not_end_the_mount";
    let Some((image, _)) = reference(test, "ext4-orphan") else { return };
    // After the log is replayed, the chain's head names no file.
    let replayed = Overlay::new(&image);
    wp_ext4::image::replay_journal(&replayed, &policy(), NOW).unwrap();
    let mut sb = [0u8; 1024];
    replayed.read_at(1024, &mut sb).unwrap();
    assert_ne!(sb[0xE8..0xEC], [0; 4]);
    sb[0xE8..0xEC].copy_from_slice(&16_000u32.to_le_bytes());
    let crc = wp_base::crc::crc32c(!0, &sb[..0x3FC]);
    sb[0x3FC..].copy_from_slice(&crc.to_le_bytes());
    replayed.write_at(1024, &sb).unwrap();
    let overlay = Overlay::new(&replayed);
    let done = recover_at_mount(&overlay, &policy(), NOW);
    assert_eq!(done.errno(), None, "{:?}", done.mounted);
    assert!(matches!(done.recovery.reported[..], [FsError::Corrupt(_)]));
    let after = Image::open(&overlay).unwrap();
    assert!(after.super_block().state.get() & SuperBlock::STATE_ERROR != 0);
    let strict = recover(&Overlay::new(&replayed), &policy(), NOW);
    assert!(matches!(strict, Err(FsError::Corrupt(_))), "{strict:?}");
}
