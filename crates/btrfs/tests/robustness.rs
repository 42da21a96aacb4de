//! Damaged images: whatever stands in them, an error or a result, and soon.
//!
//! `ROBUSTNESS_ROUNDS` sets the number of rounds.

mod damage;
mod images;
mod reference;
mod skip;

use damage::Map;
use images::Bytes;
use wp_base::Rng;
use wp_btrfs::check::{CheckOptions, check};

use wp_btrfs::disk::SuperBlock;
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
