//! Damaged images: whatever stands in them, an error or a result, and soon.
//!
//! `ROBUSTNESS_ROUNDS` sets the number of rounds.

use crate::images::Bytes;
use crate::reference;
use crate::reseal;
use wp_base::Rng;
use wp_medium::Overlay;
use wp_nilfs2::check::{CheckOptions, check};
use wp_nilfs2::disk::SuperBlock;
use wp_nilfs2::image::{Image, InspectOptions, RecoverOptions, inspect, recover, survey};
use zerocopy::{FromBytes, IntoBytes};

/// Blocks in which damage is felt: logs, but not the data of files.
fn places(bytes: &Bytes) -> Vec<u64> {
    let blocks = (wp_nilfs2::ENTRY.blocks)(bytes).expect("classes");
    let image = Image::open(bytes).expect("an image");
    let all = 0..image.geometry().end();
    all.filter(|b| !matches!(blocks.class(*b), "free" | "data")).collect()
}

/// Damages a few places.
fn damage(bytes: &mut [u8], places: &[u64], block: usize, rng: &mut Rng) {
    for _ in 0..1 + rng.below(4) {
        let place = places[rng.below(places.len() as u64) as usize] as usize * block;
        // Fields are at the start of most blocks.
        let inside = match rng.below(3) {
            0 => rng.below(block as u64 - 8),
            1 => rng.below(64),
            _ => rng.below(400),
        } as usize;
        let at = place + inside;
        let n = 1 << rng.below(4);
        for b in &mut bytes[at..at + n] {
            *b = match rng.below(3) {
                0 => rng.next_u64() as u8,
                1 => *b ^ (1 << rng.below(8)),
                _ => [0, 0xFF, 0x7F][rng.below(3) as usize],
            };
        }
    }
}

/// Makes both super blocks right again.
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

#[test]
fn damaged_images_give_an_error_or_a_result() {
    let rounds: u64 =
        std::env::var("ROBUSTNESS_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    for name in ["nilfs2-dsync", "nilfs2-small"] {
        let Some((bytes, _)) = reference::reference("nilfs2 robustness", name) else { return };
        let whole = Bytes(bytes);
        let (places, g) = {
            let image = Image::open(&whole).expect("an image");
            (places(&whole), image.geometry().clone())
        };
        let mut bytes = Bytes(whole.0.clone());
        let (mut refused, mut found) = (0, 0);
        for seed in 0..rounds {
            let mut rng = Rng::stream(seed, "nilfs2-damage");
            damage(&mut bytes.0, &places, g.block_bytes(), &mut rng);
            if rng.below(4) > 0 {
                reseal::reseal(&mut bytes.0, &g);
                reseal_supers(&mut bytes.0);
            }
            let overlay = Overlay::new(&bytes);
            match recover(&overlay, &RecoverOptions::default()) {
                Err(_) => refused += 1,
                Ok(done) => {
                    let again = recover(&Overlay::new(&overlay), &RecoverOptions::default());
                    assert!(again.is_ok_and(|r| !r.is_needed), "{name}, seed {seed}: {done}");
                }
            }
            let _ = survey(&Overlay::new(&bytes), &RecoverOptions::default());
            // Sizes may be anything: hashing is bounded.
            let options = InspectOptions { hash_bytes_max: 64 << 20, ..Default::default() };
            if let Ok(listed) = inspect(&bytes, &options) {
                found += listed.findings.len();
            }
            for recover in [None, Some(RecoverOptions::default())] {
                if let Ok(report) = check(&bytes, &CheckOptions { recover }) {
                    found += report.findings.len();
                }
            }
            let _ = (wp_nilfs2::ENTRY.blocks)(&bytes);
            bytes.0.copy_from_slice(&whole.0);
        }
        println!("{name}: {rounds} rounds, {refused} refused, {found} findings");
        assert!(refused > 0 && found > 20, "{name}: {refused} refused, {found} findings");
    }
}
