//! Damaged images: whatever stands in them, an error or a result, and soon.
//!
//! `ROBUSTNESS_ROUNDS` sets the number of rounds.

use crate::damage::Map;
use crate::images::Bytes;
use crate::reference;
use wp_base::Rng;
use wp_btrfs::check::{CheckOptions, check};
use wp_btrfs::core::{Core, Disk};
use wp_btrfs::disk::node::{HEADER_BYTES, ITEM_BYTES, PTR_BYTES};
use wp_btrfs::disk::{NodeRef, SuperBlock};
use wp_btrfs::image::{InspectOptions, inspect, survey};
use wp_btrfs::replay::{RecoverOptions, recover};
use wp_medium::{Overlay, View};

/// A view that counts what is read of it.
struct Counted<'a> {
    below: &'a Bytes,
    bytes: std::cell::Cell<u64>,
}

impl View for Counted<'_> {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> wp_base::FsResult<()> {
        self.bytes.set(self.bytes.get() + out.len() as u64);
        self.below.read_at(at, out)
    }
}

#[test]
fn damaged_images_give_an_error_or_a_result() {
    let rounds: u64 =
        std::env::var("ROBUSTNESS_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    for name in ["btrfs-treelog", "btrfs-n4k", "btrfs-subvol"] {
        let Some((bytes, _)) = reference::reference("btrfs robustness", name) else { return };
        let mut bytes = Bytes(bytes);
        let map = Map::of(&bytes);
        let (mut refused, mut found, mut most) = (0, 0, 0);
        for seed in 0..rounds {
            let mut rng = Rng::stream(seed, "btrfs-damage");
            let mut old = Vec::new();
            let sb = SuperBlock::AT as usize;
            old.push((sb, bytes.0[sb..sb + SuperBlock::BYTES].to_vec()));
            for _ in 0..1 + rng.below(6) {
                let (at, before, _) = map.damage(&mut bytes.0, &mut rng);
                old.push((at, before));
            }
            if rng.below(4) == 0 {
                let at = sb + 32 + rng.below(0xB2B - 32) as usize;
                bytes.0[at] = rng.next_u64() as u8;
                map.common.csum.seal(&mut bytes.0[sb..sb + SuperBlock::BYTES]);
            }
            let view = Counted { below: &bytes, bytes: std::cell::Cell::new(0) };
            let overlay = Overlay::new(&view);
            if recover(&overlay, &RecoverOptions::default()).is_err() {
                refused += 1;
                assert!(overlay.is_empty(), "{name}, seed {seed}: written in spite of an error");
            } else {
                let again = recover(&Overlay::new(&overlay), &RecoverOptions::default());
                assert!(again.is_ok_and(|r| !r.is_needed), "{name}, seed {seed}");
            }
            let _ = survey(&Overlay::new(&view), &RecoverOptions::default());
            // Sizes may be anything: hashing is bounded.
            let options = InspectOptions { hash_bytes_max: 64 << 20, ..Default::default() };
            if let Ok(listed) = inspect(&view, &options) {
                found += listed.findings.len();
            }
            for recover in [None, Some(RecoverOptions::default())] {
                let options = CheckOptions { recover, contents: true };
                if let Ok(report) = check(&view, &options) {
                    found += report.findings.len();
                }
            }
            most = most.max(view.bytes.get());
            for (at, block) in old.iter().rev() {
                bytes.0[*at..*at + block.len()].copy_from_slice(block);
            }
        }
        println!("{name}: {rounds} rounds, {refused} refused, {found} findings, {most} bytes read");
        assert!(refused > 0 && found > 20, "{name}: {refused} refused, {found} findings");
        assert!(most < 64 << 20, "{name}: {most} bytes read");
    }
}

/// Puts a number near the greatest (or 0) where a number of an item or of its key may be.
/// Answers as [`Map::damage`].
fn stretch(map: &Map, bytes: &mut [u8], rng: &mut Rng) -> (usize, Vec<u8>, String) {
    let at = map.blocks[rng.below(map.blocks.len() as u64) as usize];
    let block = &mut bytes[at..at + map.common.node_bytes];
    let before = block.to_vec();
    let node = NodeRef::trusted(block);
    let slot = rng.below(node.len().max(1) as u64) as usize;
    let key = node.key(slot).map_or(String::new(), |k| k.to_string());
    let slot_bytes = if node.level() == 0 { ITEM_BYTES } else { PTR_BYTES };
    let head = HEADER_BYTES + slot * slot_bytes;
    let item = node.data(slot).filter(|d| node.level() == 0 && d.len() >= 8);
    let (place, n) = match (rng.below(8), item) {
        (0, _) => (head, 8),
        (1, _) | (_, None) => (head + 9, 8),
        (what, Some(item)) => {
            let (from, size) = (node.data_at(slot), item.len() as u64);
            match what {
                2 => (from + rng.below(size - 3) as usize, 4),
                3 => (from + rng.below(size - 7) as usize, 8),
                // Behind the first bytes of an extent of a file.
                4 if size == 53 => (from + 21 + 8 * rng.below(4) as usize, 8),
                _ => (from + 8 * rng.below(size / 8) as usize, 8),
            }
        }
    };
    let ends = [u64::MAX, u64::MAX - 1, u64::MAX - 4095, u64::MAX - 8191, 1 << 63, 0];
    let end = ends[rng.below(ends.len() as u64) as usize];
    let owner = node.header().owner.get().cast_signed();
    block[place..place + n].copy_from_slice(&end.to_le_bytes()[8 - n..]);
    map.common.csum.seal(block);
    (at, before, format!("tree {owner} {key}: {n} bytes at byte {place} of {at:#x}: {end:#x}"))
}

/// The same of numbers near the greatest, one at a time, in trees and logs: what is added to them
/// does not stop the program.
#[test]
fn numbers_near_their_end_give_an_error_or_a_result() {
    let rounds: u64 =
        std::env::var("ROBUSTNESS_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    for name in ["btrfs-treelog", "btrfs-n4k", "btrfs-subvol"] {
        let Some((bytes, _)) = reference::reference("btrfs numbers", name) else { return };
        let mut bytes = Bytes(bytes);
        let map = Map::of(&bytes);
        let mut refused = 0;
        for seed in 0..rounds {
            let mut rng = Rng::stream(seed, "btrfs-numbers");
            let (at, before, said) = stretch(&map, &mut bytes.0, &mut rng);
            println!("{name}, seed {seed}: {said}");
            let overlay = Overlay::new(&bytes);
            if recover(&overlay, &RecoverOptions::default()).is_err() {
                refused += 1;
                assert!(overlay.is_empty(), "{name}, seed {seed}: written in spite of an error");
            } else {
                // A commit on top of it.
                let mut core = Core::open(Disk::of_view(&overlay)).expect("it opened before");
                let _ = core.begin().and_then(|()| core.commit_plan().map(|_| ()));
            }
            let _ = survey(&Overlay::new(&bytes), &RecoverOptions::default());
            let options = InspectOptions { hash_bytes_max: 64 << 20, ..Default::default() };
            let _ = inspect(&bytes, &options);
            for recover in [None, Some(RecoverOptions::default())] {
                let _ = check(&bytes, &CheckOptions { recover, contents: true });
            }
            bytes.0[at..at + before.len()].copy_from_slice(&before);
        }
        println!("{name}: {rounds} rounds, {refused} refused");
        assert!(refused > 0, "{name}");
    }
}
