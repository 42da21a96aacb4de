//! A drive that begins old against one that has been made old, by overwriting it at random, and
//! both against the formulas.

use crate::common;
use std::collections::VecDeque;

use crate::common::{World, small};
use wp_base::{Rng, Sector, Time};
use wp_block::DeviceModel;
use wp_device::find;
use wp_device::ssd::{Ssd, SuperState};
use wp_medium::{Medium, Slice};

/// 160 superblocks of 512 slots in program units of 4; 3 are kept free.
const SUPERBLOCKS: u64 = 160;
const SUPERBLOCK_SLOTS: u64 = 512;

/// A host that writes no faster than the flash collects, so that as many superblocks are free as
/// collection keeps.
const MODERATE: (&str, u64) = ("command_ns", 400_000);

fn drive(fill_permille: u64, more: &[(&str, u64)]) -> (World<Ssd>, u64) {
    let slots = SUPERBLOCKS * SUPERBLOCK_SLOTS * fill_permille / 1000;
    let base = [
        ("capacity_bytes", 4096 * slots),
        ("blocks_per_plane", SUPERBLOCKS),
        ("pages_per_block", 32),
        MODERATE,
    ];
    (small(&[&base, more].concat()), slots)
}

/// Overwrites slots at queue depth 16.
fn overwrite(w: &mut World<Ssd>, requests: u64, mut place: impl FnMut(u64) -> u64) {
    let mut flying = VecDeque::new();
    for i in 0..requests {
        let at = place(i) * 8;
        flying.push_back(w.write(at, Slice::pattern(i, at * 512, 4096)));
        if flying.len() == 16 {
            w.wait(flying.pop_front().expect("sixteen"));
            w.log.clear();
        }
    }
    flying.into_iter().for_each(|id| drop(w.wait(id)));
}

/// Valid slots of closed superblocks, and host slots written and slots moved.
fn look(w: &World<Ssd>) -> (Vec<u32>, u64, u64) {
    let closed = w.device.superblocks().into_iter().filter(|s| s.state == SuperState::Closed);
    let mut valid: Vec<u32> = closed.map(|s| s.valid).collect();
    valid.sort_unstable();
    (valid, w.count("host_slots_written"), w.count("gc_slots_moved"))
}

/// Overwrites at random for `rounds` times the capacity. Returns the valid slots of closed
/// superblocks, sampled ten times a round and sorted, and the amplification in that time.
fn watch(w: &mut World<Ssd>, slots: u64, rounds: u64, rng: &mut Rng) -> (Vec<u32>, f64) {
    let (_, host, moved) = look(w);
    let mut all = Vec::new();
    for _ in 0..rounds * 10 {
        overwrite(w, slots / 10, |_| rng.below(slots));
        all.extend(look(w).0);
    }
    all.sort_unstable();
    let (_, host_then, moved_then) = look(w);
    (all, 1.0 + (moved_then - moved) as f64 / (host_then - host) as f64)
}

/// Kolmogorov's distance: the most by which the parts below a number differ.
fn distance(a: &[u32], b: &[u32]) -> f64 {
    let below = |all: &[u32], x: u32| all.partition_point(|v| *v <= x) as f64 / all.len() as f64;
    (0..=SUPERBLOCK_SLOTS as u32).map(|x| (below(a, x) - below(b, x)).abs()).fold(0.0, f64::max)
}

fn compare(fill: u64, policy: &[(&str, u64)], most: f64) -> f64 {
    // Made old: filled in order, then ten times its capacity at random.
    let (mut made, slots) = drive(fill, policy);
    let mut rng = Rng::stream(1, "ageing");
    overwrite(&mut made, slots / 8 * 8, |i| i);
    overwrite(&mut made, slots * 10, |_| rng.below(slots));
    let (want, want_amplification) = watch(&mut made, slots, 4, &mut rng);
    made.drain();
    made.device.assert_valid();
    // Begun old.
    let (mut begun, _) = drive(fill, &[&[("aged_fill", 1000)], policy].concat());
    begun.device.assert_valid();
    let at_start = look(&begun).0;
    let start = distance(&at_start, &want);
    let (then, amplification) = watch(&mut begun, slots, 4, &mut Rng::stream(2, "then"));
    let error = amplification / want_amplification - 1.0;
    println!(
        "fill {fill} {policy:?}: amplification {want_amplification:.3} made, {amplification:.3} begun ({:+.2} %); distance {start:.3} at the start, {:.3} then",
        error * 100.0,
        distance(&then, &want)
    );
    assert!(error.abs() < 0.02, "{want_amplification} and {amplification}");
    // One drive of 150 superblocks against forty samples of one.
    assert!(start < most, "distance {start}");
    begun.drain();
    begun.device.assert_valid();
    want_amplification
}

/// Amplification of greedy collection: (1 - u) / -ln u = fill of what holds data; 1 / (1 - u).
fn analytic(fill: f64) -> f64 {
    let (mut low, mut high) = (0.0f64, 1.0f64);
    for _ in 0..100 {
        let u = (low + high) / 2.0;
        if (1.0 - u) / -u.ln() < fill { low = u } else { high = u }
    }
    1.0 / (1.0 - low)
}

#[test]
fn a_drive_begins_as_greedy_collection_leaves_it_and_costs_what_the_formula_says() {
    for fill in [700, 800, 880] {
        let found = compare(fill, &[], 0.05);
        // Closed superblocks, and two half full; three are free.
        let holding = SUPERBLOCKS as f64 - 3.0 - 1.0;
        let formula = analytic(fill as f64 / 1000.0 * SUPERBLOCKS as f64 / holding);
        println!("    formula {formula:.3}: {:+.2} %", (found / formula - 1.0) * 100.0);
        // The formula is of infinitely many slots a superblock. Of 512 the valid ones vary by
        // chance, which helps whoever takes the least: the more, the less there is between the
        // emptiest and the fullest.
        let error = found / formula - 1.0;
        assert!((-0.035..0.005).contains(&error), "{found} and {formula}");
    }
}

#[test]
fn a_drive_that_begins_old_costs_the_same_when_the_host_waits_for_erases() {
    // Then none is free, and a drive with more superblocks in use moves less.
    let full_speed = ("command_ns", 1_000);
    let run = |more: &[(&str, u64)], before: u64| {
        let (mut w, slots) = drive(880, &[&[full_speed], more].concat());
        let mut rng = Rng::stream(5, "places");
        overwrite(&mut w, before * slots, |i| if i < slots { i } else { rng.below(slots) });
        watch(&mut w, slots, 4, &mut rng).1
    };
    let (made, begun) = (run(&[], 11), run(&[("aged_fill", 1000)], 0));
    println!("{made:.3} made, {begun:.3} begun");
    assert!((begun / made - 1.0).abs() < 0.02, "{made} and {begun}");
}

#[test]
fn a_drive_begins_as_d_choices_leave_it() {
    for (fill, d) in [(800, 3), (880, 10)] {
        compare(fill, &[("gc_policy", 2), ("gc_choices", d)], 0.05);
    }
}

#[test]
fn a_drive_begins_as_cost_benefit_leaves_it() {
    compare(800, &[("gc_policy", 1)], 0.1);
}

#[test]
fn an_old_drive_that_is_partly_full_holds_what_it_says() {
    let (mut w, slots) = drive(880, &[("aged_fill", 500), ("aged_erases", 70), ("hot_cold", 1)]);
    w.device.assert_valid();
    let mapped: u64 = w.device.superblocks().iter().map(|s| u64::from(s.valid)).sum();
    assert_eq!(mapped, slots / 2);
    assert_eq!((w.count("superblock_erases_min"), w.count("superblock_erases_max")), (70, 70));
    // What is mapped costs a read of the flash, what is not costs none; both read zeroes.
    for (slot, reads) in [(slots / 2 - 1, 1), (slots / 2, 1)] {
        let id = w.read(slot * 8, 8);
        let (_, done) = w.wait(id);
        assert!(common::bytes(&done.data).iter().all(|b| *b == 0));
        assert_eq!(w.count("slots_read_from_flash"), reads);
    }
}

#[test]
fn an_old_drive_keeps_what_is_written_to_it() {
    for more in [&[][..], &[("gc_policy", 2), ("hot_cold", 1), ("read_after_trim", 1)][..]] {
        let base = [("aged_fill", 1000), ("aged_erases", 3), ("capacity_bytes", 4096 * 1200)];
        let mut w = small(&[&base, more].concat());
        let (mut want, mut rng) = (Medium::new(), Rng::stream(3, "places"));
        for i in 0..6_000u64 {
            let at = rng.below(1200) * 8;
            let data = Slice::pattern(i + 1, at * 512, 4096);
            want.write(Sector(at), &data);
            let id = w.write(at, data);
            w.wait(id);
            if i % 500 == 0 {
                w.device.medium().diff(&want, &mut |at, _| panic!("sector {} has changed", at.0));
                w.device.assert_valid();
            }
            // Discards, of what old data there are too.
            if i % 7 == 0 && more.is_empty() {
                let at = rng.below(1190) * 8;
                let id = w.discard(at, 64);
                w.wait(id);
                want.discard(Sector(at), 64);
            }
        }
        w.drain();
        w.device.assert_valid();
        assert!(w.count("gc_victims") > 30);
    }
}

#[test]
fn a_fork_of_an_old_drive_goes_its_own_way() {
    let (mut w, slots) = drive(800, &[("aged_fill", 1000)]);
    let mut rng = Rng::stream(4, "places");
    overwrite(&mut w, 500, |_| rng.below(slots));
    let fork = w.device.fork();
    let before = fork.medium();
    overwrite(&mut w, 5_000, |_| rng.below(slots));
    fork.medium().diff(&before, &mut |at, _| panic!("sector {} of the fork", at.0));
    w.drain();
    w.device.assert_valid();
}

#[test]
fn a_large_old_drive_stores_next_to_nothing_at_the_start() {
    let entry = find("ssd-128").expect("in the list");
    let mut w = World::new(entry.make(&[("aged_fill", 1000)]).expect("possible"));
    assert_eq!(w.now, Time::ZERO);
    let id = w.read(100_000_000, 8);
    w.wait(id);
    assert_eq!(w.count("slots_read_from_flash"), 1);
    let config = {
        let mut s = wp_device::Settings::of(entry.params);
        s.set("aged_fill", 1000).expect("it has this");
        wp_device::ssd::SsdConfig::from_settings(&s).expect("possible")
    };
    let ssd = Ssd::new(config);
    assert!(ssd.map_bytes() < 1 << 20, "{}", ssd.map_bytes());
}
