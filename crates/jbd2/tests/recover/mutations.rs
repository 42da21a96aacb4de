//! No bytes make recovery panic or hang.

use crate::image::{Image, journal_of, reference, unpack};
use wp_base::Rng;
use wp_jbd2::{RecoverPolicy, recover};
use wp_medium::Overlay;

/// Flips bytes in the log's first blocks, where the control blocks are, and recovers under every
/// policy.
fn flip(name: &str, rounds: u32) {
    let mut image = unpack(&reference().join(name).join("image.img.zst"));
    let (bs, log) = journal_of(&image.0);
    let mut rng = Rng::stream(20, name);
    let policies =
        [RecoverPolicy::linux(3, 4), RecoverPolicy::linux(6, 18), RecoverPolicy::e2fsck()];
    let mut refused = 0;
    for _ in 0..rounds {
        let mut undo = Vec::new();
        for _ in 0..1 + rng.below(4) {
            let block = log.block(rng.below(60) as u32).expect("mapped");
            let off =
                if rng.below(2) == 0 { rng.below(64) } else { rng.below(u64::from(bs.bytes())) };
            let at = (block * u64::from(bs.bytes()) + off) as usize;
            undo.push((at, image.0[at]));
            image.0[at] = if rng.below(3) == 0 {
                rng.next_u64() as u8
            } else {
                image.0[at] ^ (1 << rng.below(8))
            };
        }
        for policy in &policies {
            let overlay = Overlay::new(&image);
            refused += u32::from(recover(&overlay, &log, bs, policy).is_err());
        }
        for (at, old) in undo.into_iter().rev() {
            image.0[at] = old;
        }
    }
    assert!(refused > 0, "{name}: no mutation was noticed");
}

#[test]
fn flipped_bytes_never_panic_with_checksum_v3() {
    flip("ext4-ordered", 400);
}

#[test]
fn flipped_bytes_never_panic_without_checksums() {
    flip("ext4-nocsum", 400);
}

#[test]
fn flipped_bytes_never_panic_with_checksum_v1() {
    flip("ext4-jcsum1", 200);
}

#[test]
fn flipped_bytes_never_panic_with_1k_blocks() {
    flip("ext4-j1k", 400);
}

#[test]
fn flipped_bytes_never_panic_with_fast_commit() {
    flip("ext4-fc", 200);
}

#[test]
fn a_log_of_noise_is_refused() {
    let mut rng = Rng::stream(1, "noise");
    for round in 0..200u32 {
        let mut bytes = vec![0u8; 1 << 20];
        rng.fill(&mut bytes[..]);
        let bs = wp_base::BlockSize::new(1024).expect("a block size");
        let log = wp_jbd2::LogMap::contiguous(1, 1000);
        // Half of them with a plausible superblock before the noise.
        if round % 2 == 0 {
            let head = [0xC03B_3998u32, 4, 0, 1024, 1000, 1, 7, 1 + round, 0, 0, 0x3, 0];
            for (i, w) in head.iter().enumerate() {
                bytes[1024 + 4 * i..1024 + 4 * i + 4].copy_from_slice(&w.to_be_bytes());
            }
        }
        let image = Image(bytes);
        let overlay = Overlay::new(&image);
        let result = recover(&overlay, &log, bs, &RecoverPolicy::linux(6, 18));
        assert!(result.is_err() || result.is_ok_and(|r| r.transactions() == 0));
    }
}
