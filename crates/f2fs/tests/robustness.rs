//! Damaged images: whatever stands in them, an error or a result, and soon.
//!
//! `ROBUSTNESS_ROUNDS` sets the number of rounds.

use crate::images::Bytes;
use crate::reference;
use crate::zoned;
use wp_base::Rng;
use wp_f2fs::check::{CheckOptions, check, check_one_of};
use wp_f2fs::disk::{Checkpoint, Log};
use wp_f2fs::image::{Image, InspectOptions, RecoverOptions, Rules, inspect, recover};
use wp_medium::{Overlay, Sound, View, WithZones};

/// Blocks in which damage is felt: super blocks, the packs, used blocks of SIT and NAT, summaries
/// and the main area as far as it is written.
fn places(bytes: &Bytes) -> Vec<u32> {
    let image = Image::open(bytes).expect("an image");
    let g = image.geometry();
    let mut out = vec![0, 1];
    for second in [false, true] {
        out.extend(g.pack(second)..g.pack(second) + 8);
    }
    out.push(g.current_sit_block(0, image.checkpoint()));
    out.push(g.current_nat_block(0, image.checkpoint()));
    for log in Log::ALL {
        let (segment, offset) = image.checkpoint().log(log);
        out.push(g.summary_block(segment));
        // Nodes and names count more than data; behind the warm node log lies the chain.
        let more = if log == Log::WarmNode { 30 } else { 0 };
        let from = if log == Log::WarmData { offset } else { 0 };
        out.extend((from..(offset + more).min(512)).map(|n| g.block(segment, n)));
    }
    out
}

/// Damages a few places; what stood there.
fn damage(bytes: &mut Bytes, places: &[u32], rng: &mut Rng) -> Vec<(usize, [u8; 8])> {
    let mut undo = Vec::new();
    for _ in 0..1 + rng.below(4) {
        let block = places[rng.below(places.len() as u64) as usize] as usize;
        // Fields are at the start and at the end of most blocks.
        let inside = match rng.below(4) {
            0 => rng.below(4088),
            1 => 4072 + rng.below(17),
            2 => rng.below(120),
            _ => 360 + rng.below(700),
        } as usize;
        let at = block * 4096 + inside;
        let old: [u8; 8] = bytes.0[at..at + 8].try_into().expect("eight bytes");
        undo.push((at, old));
        let n = 1 << rng.below(4);
        for b in &mut bytes.0[at..at + n] {
            *b = match rng.below(3) {
                0 => rng.next_u64() as u8,
                1 => *b ^ (1 << rng.below(8)),
                _ => [0, 0xFF, 0x7F][rng.below(3) as usize],
            };
        }
    }
    undo
}

/// Makes a damaged checkpoint look whole, so that what it says is believed.
fn reseal(bytes: &mut Bytes, starts: [u32; 2]) {
    for start in starts {
        let at = start as usize * 4096;
        let block = bytes.0[at..at + 4096].try_into().expect("a block");
        let mut cp = Checkpoint::new(&block, 0);
        if !(192..=4092).contains(&cp.head().checksum_offset.get()) {
            continue;
        }
        cp.seal();
        let total = cp.head().cp_pack_total_block_count.get() as usize;
        for n in [0, total.saturating_sub(1)] {
            if n < 512 {
                bytes.0[at + n * 4096..][..4096].copy_from_slice(&cp.block(0));
            }
        }
    }
}

#[test]
fn damaged_images_give_an_error_or_a_result() {
    let rounds: u64 =
        std::env::var("ROBUSTNESS_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    for name in reference::IMAGES.iter().filter(|n| matches!(**n, "f2fs-posix" | "f2fs-zns")) {
        let Some((bytes, _)) = reference::reference("f2fs robustness", name) else { return };
        let mut bytes = Bytes(bytes);
        let places = places(&bytes);
        let zones = zoned::with_zones(name, &bytes).zones();
        let starts = {
            let image = Image::open(&bytes).expect("an image");
            [false, true].map(|second| image.geometry().pack(second))
        };
        let packs: Vec<u8> =
            starts.iter().flat_map(|s| bytes.0[*s as usize * 4096..][..2 << 20].to_vec()).collect();
        let (mut refused, mut found) = (0, 0);
        for seed in 0..rounds {
            let mut rng = Rng::stream(seed, "f2fs-damage");
            let undo = damage(&mut bytes, &places, &mut rng);
            if rng.below(2) == 0 {
                reseal(&mut bytes, starts);
            }
            let oprw = !zones.is_empty() && rng.below(2) == 0;
            let rules = Rules::linux(6, if rng.below(2) == 0 { 1 } else { 18 });
            let how = RecoverOptions { rules, oprw, ..Default::default() };
            let view = WithZones::new(&bytes, zones.clone());
            match recover(&Overlay::new(&view), &how) {
                Err(_) => refused += 1,
                Ok(r) => found += u32::from(r.failed.is_some()),
            }
            // Sizes may be anything: hashing is bounded.
            let options = InspectOptions { hash: true, hash_bytes_max: 64 << 20, recover: how };
            if let Ok(listed) = inspect(&view, &options) {
                found += listed.findings.len() as u32;
            }
            for recover in [None, Some(RecoverOptions::default())] {
                if let Ok(report) = check(&bytes, &CheckOptions { recover }) {
                    found += report.findings.len() as u32;
                }
            }
            for (at, old) in undo.into_iter().rev() {
                bytes.0[at..at + 8].copy_from_slice(&old);
            }
            for (start, pack) in starts.iter().zip(packs.chunks(2 << 20)) {
                bytes.0[*start as usize * 4096..][..2 << 20].copy_from_slice(pack);
            }
        }
        println!("{name}: {rounds} rounds, {refused} refused, {found} findings");
        // Super block and pack are there twice: hardly an image is refused.
        assert!(found > 20, "{name}: {found}");
    }
}

/// Bytes of which only some blocks differ from one image of the set to the next.
struct OneOf<'a> {
    bytes: &'a Bytes,
    varying: &'a std::collections::BTreeSet<u32>,
}

impl View for OneOf<'_> {
    fn len_bytes(&self) -> u64 {
        self.bytes.len_bytes()
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> wp_base::FsResult<()> {
        self.bytes.read_at(at, out)
    }
    fn is_fixed(&self, at: u64, bytes: u64) -> bool {
        let block = |at: u64| (at / 4096) as u32;
        self.varying.range(block(at)..=block(at + bytes.max(1) - 1)).next().is_none()
    }
}

/// What is remembered of a set of images changes nothing of what is found in any of them, whichever
/// of them was seen before.
#[test]
fn one_of_a_set_is_checked_as_it_is_alone() {
    for name in reference::IMAGES.iter().filter(|n| matches!(**n, "f2fs-posix" | "f2fs-aged")) {
        let Some((bytes, _)) = reference::reference("f2fs sets of images", name) else { return };
        let mut bytes = Bytes(bytes);
        let mut varying: std::collections::BTreeSet<u32> = places(&bytes).into_iter().collect();
        // Blocks of the NAT in which nothing stands, far from those in use.
        let nat: Vec<u32> = {
            let image = Image::open(&bytes).expect("an image");
            let g = image.geometry();
            let far = [g.nat_blocks / 2, g.nat_blocks - 1];
            far.iter().flat_map(|n| [g.nat_block(*n, false), g.nat_block(*n, true)]).collect()
        };
        varying.extend(&nat);
        let places: Vec<u32> = varying.iter().copied().collect();
        let sound = Sound::default();
        let mut found = 0;
        for seed in 0..40 {
            let mut rng = Rng::stream(seed, "f2fs-sets");
            // The first image is whole, and now and then a later one.
            let undo = match seed % 5 {
                0 => Vec::new(),
                1 => damage(&mut bytes, &nat, &mut rng),
                _ => damage(&mut bytes, &places, &mut rng),
            };
            for recover in [None, Some(RecoverOptions::default())] {
                let options = CheckOptions { recover };
                let one = OneOf { bytes: &bytes, varying: &varying };
                let quick = check_one_of(&one, &options, &sound);
                let alone = check(&bytes, &options);
                found += alone.as_ref().map_or(0, |r| r.findings.len());
                assert_eq!(format!("{quick:?}"), format!("{alone:?}"), "{name}, seed {seed}");
            }
            for (at, old) in undo.into_iter().rev() {
                bytes.0[at..at + 8].copy_from_slice(&old);
            }
        }
        assert!(found > 20, "{name}: {found}");
    }
}
