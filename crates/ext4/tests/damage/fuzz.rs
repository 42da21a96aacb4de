//! Whatever the bytes: the check ends with a report, and reads and keeps a bounded amount.

use std::cell::Cell;

use proptest::prelude::*;
use wp_base::{FsError, FsResult, Sector};
use wp_ext4::check::{CheckOptions, check};
use wp_ext4::mkfs::Features;
use wp_medium::{MediumView, View};

use super::bases::program;
use crate::support::{Setup, World, assert_nothing_lives};

/// An image that counts what is read of it.
struct Counted<'a> {
    bytes: &'a [u8],
    reads: Cell<u64>,
}

impl View for Counted<'_> {
    fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        self.reads.set(self.reads.get() + 1);
        let from = usize::try_from(at).map_err(|_| FsError::Io)?;
        let bytes = from.checked_add(out.len()).and_then(|to| self.bytes.get(from..to));
        out.copy_from_slice(bytes.ok_or(FsError::Io)?);
        Ok(())
    }
}

fn image(features: Features, block_size: u32) -> Vec<u8> {
    let mut setup = Setup::new("4.6");
    (setup.mib, setup.block_size, setup.features) = (16, block_size, features);
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move { program(&v).await });
    w.unmount(&vfs);
    let view = MediumView { medium: w.medium(), start: Sector(0), bytes: setup.mib << 20 };
    let mut bytes = vec![0; (setup.mib << 20) as usize];
    view.read_at(0, &mut bytes).expect("reads");
    drop((vfs, view));
    w.end();
    assert_nothing_lives();
    bytes
}

/// Where a patch goes: the super block, the metadata behind it, an address that the image itself
/// names, or anywhere.
#[derive(Clone, Debug)]
enum Place {
    Super(u16),
    Front(u32),
    Used(u32),
    Anywhere(u32),
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        2 => (0u16..1024).prop_map(Place::Super),
        3 => (2048u32..600_000).prop_map(Place::Front),
        3 => any::<u32>().prop_map(Place::Used),
        1 => any::<u32>().prop_map(Place::Anywhere),
    ]
}

fn patch() -> impl Strategy<Value = (Place, Vec<u8>)> {
    let bytes = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 1..5),
        1 => prop::collection::vec(any::<u8>(), 1..200),
        1 => Just(vec![0; 64]),
        1 => Just(vec![0xFF; 4]),
        1 => (0u32..20_000).prop_map(|n| n.to_le_bytes().to_vec()),
    ];
    (place(), bytes)
}

/// Checks `bytes`; panics unless it ends with a report that is within bounds. Reads.
fn bounded(bytes: &[u8], options: &CheckOptions) -> u64 {
    let view = Counted { bytes, reads: Cell::new(0) };
    match check(&view, options) {
        Ok(report) => assert!(report.findings.len() <= options.findings_max),
        Err(FsError::Unsupported(_)) => {}
        Err(e) => panic!("{e}"),
    }
    // Blocks of 1 KiB at the smallest. A block is read a few times at most: as a table, for its
    // inode, as a node, and in each of the two runs of an image that needs recovery.
    let blocks = bytes.len() as u64 / 1024;
    assert!(view.reads.get() <= 8 * blocks + 1024, "{} reads of {blocks} blocks", view.reads.get());
    view.reads.get()
}

fn number(name: &str, otherwise: u32) -> u32 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn whatever_is_written_over_an_image_and_however_it_is_cut_the_check_ends_within_bounds() {
    let bases = [image(Features::today(), 1024), image(Features::era_2012(), 4096)].map(|bytes| {
        // Kilobytes that hold something: patches there hit structures.
        let used: Vec<usize> = (0..bytes.len() / 1024)
            .filter(|n| bytes[n * 1024..(n + 1) * 1024].iter().any(|b| *b != 0))
            .collect();
        (bytes, used)
    });
    let cases = number("CHECK_FUZZ", 200);
    let most = Cell::new(0);
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: prop::test_runner::RngSeed::Fixed(7),
        ..ProptestConfig::default()
    };
    let cut = prop_oneof![4 => Just(None), 1 => (0usize..16 << 20).prop_map(Some)];
    let input = (0usize..2, prop::collection::vec(patch(), 1..12), cut, any::<bool>());
    let mut runner = prop::test_runner::TestRunner::new(config);
    runner
        .run(&input, |(n, patches, cut, recover)| {
            let (base, used) = &bases[n];
            let mut bytes = base.clone();
            for (place, data) in &patches {
                let at = match place {
                    Place::Super(n) => 1024 + usize::from(*n),
                    Place::Front(n) => *n as usize,
                    Place::Used(n) => {
                        used[*n as usize / 1024 % used.len()] * 1024 + *n as usize % 1024
                    }
                    Place::Anywhere(n) => *n as usize % bytes.len(),
                };
                let end = (at + data.len()).min(bytes.len());
                bytes[at..end].copy_from_slice(&data[..end - at]);
            }
            bytes.truncate(cut.unwrap_or(bytes.len()));
            let options = CheckOptions { recover, ..CheckOptions::default() };
            most.set(most.get().max(bounded(&bytes, &options)));
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
    println!("{cases} images, none beyond its bounds; at most {} reads", most.get());
}

#[test]
fn an_image_cut_at_any_length_is_reported_as_too_short() {
    let bytes = image(Features::today(), 1024);
    for len in [0, 1, 1023, 1024, 1500, 2047, 2048, 4096, 65_536, 1 << 20, (16 << 20) - 1] {
        let view = Counted { bytes: &bytes[..len], reads: Cell::new(0) };
        let report = check(&view, &CheckOptions::default()).expect("a report");
        let first = report.findings.first().expect("a finding");
        assert_eq!(first.kind, wp_ext4::check::Kind::DeviceTooShort, "{len} bytes");
        assert!(!report.is_clean());
    }
}

#[test]
fn a_damaged_image_takes_no_more_reads_than_its_blocks_allow() {
    // Every indirect pointer and extent of every inode points back to the front of the device:
    // the budget stops the walk.
    for (features, block_size) in [(Features::today(), 1024), (Features::era_2012(), 4096)] {
        let sound = image(features, block_size);
        let reads = bounded(&sound, &CheckOptions::default());
        for (from, to, word) in [(0, 16 << 20, 5u32), (80_000, 700_000, 9), (40_000, 400_000, 700)]
        {
            let mut bytes = sound.clone();
            for w in bytes[from.max(2048)..to].chunks_exact_mut(4).step_by(3) {
                w.copy_from_slice(&word.to_le_bytes());
            }
            let damaged = bounded(&bytes, &CheckOptions::default());
            println!("{block_size}: sound {reads} reads, words {word}: {damaged}");
        }
    }
}
