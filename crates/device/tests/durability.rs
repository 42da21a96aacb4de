//! Every device against the naive model: whatever is written, flushed, discarded and cut, at
//! whatever instant.

use crate::common::oracle::{Oracle, Step};
use crate::common::small_config;
use proptest::prelude::*;
use wp_block::DeviceModel;
use wp_device::find;
use wp_device::ssd::Ssd;

const SLOTS: u64 = 300;

/// Small enough that a few hundred requests write it over and over.
const TINY: [(&str, u64); 4] = [
    ("capacity_bytes", 4096 * SLOTS),
    ("blocks_per_plane", 11),
    ("pages_per_block", 4),
    ("buffer_bytes", 4096 * 40),
];

fn ssd(more: &[(&str, u64)]) -> Box<dyn DeviceModel> {
    let config = small_config(&[&TINY, more].concat()).expect("a possible device");
    Box::new(Ssd::new(config))
}

fn simple(name: &str, more: &[(&str, u64)]) -> Box<dyn DeviceModel> {
    let small = [("capacity_bytes", 4096 * SLOTS), ("cache_bytes", 4096 * 50)];
    find(name).expect("in the list").make(&[&small, more].concat()).expect("a possible device")
}

fn devices() -> Vec<(&'static str, Box<dyn DeviceModel>)> {
    vec![
        ("ssd", ssd(&[])),
        (
            "ssd, slow dies",
            ssd(&[("program_ns", 1_500_000), ("channels", 1), ("blocks_per_plane", 20)]),
        ),
        (
            "ssd, quick link",
            ssd(&[("link_mb_s", 100_000), ("command_ns", 10), ("write_overhead_ns", 0)]),
        ),
        ("ssd, no FUA", ssd(&[("fua", 0), ("internal_flush_ns", 300_000)])),
        ("ssd, PLP", ssd(&[("plp", 1)])),
        (
            "ssd, hot and cold",
            ssd(&[("hot_cold", 1), ("blocks_per_plane", 13), ("buffer_bytes", 4096 * 44)]),
        ),
        ("ssd, cost-benefit", ssd(&[("gc_policy", 1), ("wear_gap", 1), ("blocks_per_plane", 12)])),
        (
            "ssd, d-choices, discards of 12 KiB, PLP",
            ssd(&[
                ("gc_policy", 2),
                ("gc_choices", 3),
                ("trim_granularity_bytes", 12288),
                ("plp", 1),
            ]),
        ),
        (
            "ssd, all of it, discarded data stay",
            ssd(&[
                ("hot_cold", 1),
                ("gc_policy", 2),
                ("gc_choices", 2),
                ("wear_gap", 2),
                ("trim_granularity_bytes", 8192),
                ("read_after_trim", 1),
                ("bad_blocks", 50),
                ("blocks_per_plane", 18),
                ("buffer_bytes", 4096 * 44),
                ("internal_flush_ns", 700_000),
            ]),
        ),
        ("ssd, old at the start", ssd(&[("aged_fill", 1000), ("aged_erases", 9)])),
        ("ssd, PLP, discarded data stay", ssd(&[("plp", 1), ("read_after_trim", 1)])),
        ("ssd, barriers", ssd(&[("barrier_writes", 1)])),
        (
            "ssd, barriers, slow dies",
            ssd(&[("barrier_writes", 1), ("fua", 1), ("program_ns", 1_500_000)]),
        ),
        (
            "ssd, barriers, hot and cold, moved data, small discards",
            ssd(&[
                ("barrier_writes", 1),
                ("hot_cold", 1),
                ("wear_gap", 2),
                ("internal_flush_ns", 300_000),
                ("blocks_per_plane", 18),
                ("buffer_bytes", 4096 * 44),
            ]),
        ),
        ("ssd, barriers, PLP", ssd(&[("barrier_writes", 1), ("plp", 1)])),
        ("fixed, barriers", simple("fixed", &[("barrier_writes", 1)])),
        ("sata-disk-nofua, barriers", simple("sata-disk-nofua", &[("barrier_writes", 1)])),
        ("emmc-5.1, barriers", simple("emmc-5.1", &[("barrier_writes", 1), ("barriers_max", 3)])),
        ("fixed", simple("fixed", &[])),
        ("fixed, no cache", simple("fixed", &[("cache_bytes", 0)])),
        ("fixed-nofua", simple("fixed-nofua", &[])),
        ("sata-disk-nofua", simple("sata-disk-nofua", &[])),
    ]
}

/// A few hot places and all the others; whole slots mostly, parts of them sometimes.
fn place() -> impl Strategy<Value = (u64, u64)> {
    let slot = prop_oneof![2 => 0..8u64, 3 => 0..SLOTS];
    (slot, 1..24u64, 0..8u64, 0..8u64, 0..4u8).prop_map(|(slot, slots, skip, cut, kind)| match kind
    {
        0 => (slot * 8 + skip, (slots * 8 - cut).max(1)),
        1 => (slot * 8, 8),
        _ => (slot * 8, slots * 8),
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (place(), 0..6u8)
            .prop_map(|((at, sectors), f)| Step::Write {
                at,
                sectors,
                fua: f == 0,
                barrier: f % 3 == 0,
            }),
        1 => place().prop_map(|(at, sectors)| Step::Discard { at, sectors }),
        1 => place().prop_map(|(at, sectors)| Step::Read { at, sectors }),
        1 => Just(Step::Flush),
        6 => (0..8u8, 0..2_000_000u64)
            .prop_map(|(k, ns)| Step::Pass { ns: if k == 0 { ns } else { ns / 100 } }),
        1 => Just(Step::Cut),
    ]
}

fn run(steps: &[Step]) {
    for (name, device) in devices() {
        let mut oracle = Oracle::new(device, 1);
        oracle.old_after_trim = name.contains("discarded data stay");
        let run = std::panic::AssertUnwindSafe(|| {
            steps.iter().for_each(|s| oracle.step(s));
            oracle.finish();
        });
        if let Err(panic) = std::panic::catch_unwind(run) {
            let text = panic.downcast_ref::<String>().cloned();
            panic!("{name}: {}", text.unwrap_or_else(|| "a panic without text".to_owned()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn what_was_flushed_survives_any_cut(steps in prop::collection::vec(step(), 1..150)) {
        run(&steps);
    }
}

/// Longer than proptest would shrink in sensible time: what only happens when the device is old.
#[test]
fn an_old_device_keeps_its_contract() {
    for seed in 0..6 {
        let mut rng = wp_base::Rng::stream(seed, "steps");
        let steps: Vec<Step> = (0..2500)
            .map(|_| {
                let slot = if rng.below(3) == 0 { rng.below(8) } else { rng.below(SLOTS) };
                let (skip, cut) =
                    if rng.below(5) == 0 { (rng.below(8), rng.below(8)) } else { (0, 0) };
                let (at, sectors) = (slot * 8 + skip, ((1 + rng.below(20)) * 8 - cut).max(1));
                match rng.below(16) {
                    0 => Step::Discard { at, sectors },
                    1 => Step::Read { at, sectors },
                    2 if rng.below(2) == 0 => Step::Flush,
                    3 if rng.below(4) == 0 => Step::Cut,
                    n if n < 9 => {
                        let fua = rng.below(8) == 0;
                        Step::Write { at, sectors, fua, barrier: (at + sectors) % 5 < 2 }
                    }
                    _ => Step::Pass { ns: rng.below(200_000) },
                }
            })
            .collect();
        for (name, device) in devices() {
            let mut oracle = Oracle::new(device, seed);
            oracle.old_after_trim = name.contains("discarded data stay");
            steps.iter().for_each(|s| oracle.step(s));
            oracle.finish();
            assert!(oracle.cuts > 10, "{name}");
            assert!(
                name.contains("no cache") || oracle.losses > 50,
                "{name}: {} losses",
                oracle.losses
            );
            if name.starts_with("ssd") {
                assert!(
                    oracle.world.count("gc_victims") > 5,
                    "{name}: {}",
                    oracle.world.count("gc_victims")
                );
            }
        }
    }
}
