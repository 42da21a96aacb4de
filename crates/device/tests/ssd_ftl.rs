//! What the settings of the FTL do: policies of garbage collection, hot and cold data, wear,
//! discards, bad blocks, and what is told of them.

use crate::common;
use std::collections::VecDeque;

use crate::common::{World, bytes, small};
use wp_base::event::{Flags, Op};
use wp_base::{Rng, Sector};
use wp_block::{DeviceModel, Status};
use wp_device::ssd::{Ssd, SuperState};
use wp_medium::{Medium, Slice};

/// Overwrites single slots at queue depth 16, at places that `place` gives; the same to `want`.
fn overwrite(
    w: &mut World<Ssd>,
    want: &mut Medium,
    requests: u64,
    mut place: impl FnMut(u64) -> u64,
) {
    let mut flying = VecDeque::new();
    for i in 0..requests {
        let at = place(i) * 8;
        let data = Slice::pattern(w.next_id, at * 512, 4096);
        want.write(Sector(at), &data);
        flying.push_back(w.write(at, data));
        if flying.len() == 16 {
            w.wait(flying.pop_front().expect("sixteen"));
        }
    }
    flying.into_iter().for_each(|id| drop(w.wait(id)));
}

fn assert_holds(w: &mut World<Ssd>, want: &Medium) {
    w.device.medium().diff(want, &mut |at, _| panic!("sector {} is not what was written", at.0));
    let id = w.flush();
    w.wait(id);
    w.drain();
    w.device.assert_valid();
}

/// Write amplification in thousandths over `requests` overwrites, after `before` to get there.
fn amplification(
    more: &[(&str, u64)],
    (before, requests): (u64, u64),
    mut place: impl FnMut(u64) -> u64,
) -> u64 {
    let mut w = small(more);
    let mut want = Medium::new();
    let slots = w.device.config().limits.sectors / 8;
    overwrite(&mut w, &mut want, slots, |i| i);
    overwrite(&mut w, &mut want, before, &mut place);
    let count = |w: &World<Ssd>| (w.count("host_slots_written"), w.count("flash_slots_programmed"));
    let start = count(&w);
    overwrite(&mut w, &mut want, requests, &mut place);
    let end = count(&w);
    assert_holds(&mut w, &want);
    (end.1 - start.1) * 1000 / (end.0 - start.0)
}

/// 80 superblocks of 128 slots, 82 % of them shown.
const MID: [(&str, u64); 2] = [("capacity_bytes", 4096 * SLOTS), ("blocks_per_plane", 80)];
const SLOTS: u64 = 8400;

/// `share` of 100 writes go to one slot in `part`, scattered.
fn skewed(seed: u64, part: u64, share: u64) -> impl FnMut(u64) -> u64 {
    let mut rng = Rng::stream(seed, "places");
    move |_| {
        let n = rng.below(SLOTS / part) * part;
        if rng.below(100) < share { n } else { n + 1 + rng.below(part - 1) }
    }
}

fn with(more: &[(&'static str, u64)]) -> Vec<(&'static str, u64)> {
    [&MID, more].concat()
}

#[test]
fn the_more_superblocks_to_choose_from_the_less_is_moved() {
    let run = |more: &[(&'static str, u64)]| {
        let mut rng = Rng::stream(1, "places");
        amplification(&with(more), (20_000, 40_000), |_| rng.below(SLOTS))
    };
    let d = |n| run(&[("gc_policy", 2), ("gc_choices", n)]);
    let (random, two, ten, greedy) = (d(1), d(2), d(10), run(&[]));
    let cost_benefit = run(&[("gc_policy", 1)]);
    println!("random {random}, 2 {two}, 10 {ten}, greedy {greedy}, cost-benefit {cost_benefit}");
    assert!(random > two + 100 && two > ten && ten + 30 > greedy, "{random} {two} {ten} {greedy}");
    // Of data that are all alike the oldest superblock is the emptiest.
    assert!(cost_benefit.abs_diff(greedy) * 10 < greedy, "{cost_benefit} and {greedy}");
}

#[test]
fn hot_and_cold_data_apart_are_moved_less() {
    // Half of the writes go to one slot in a hundred.
    let run = |more: &[(&'static str, u64)]| {
        let base = with(&[("buffer_bytes", 4096 * 80)]);
        amplification(&[&base, more].concat(), (40_000, 40_000), skewed(2, 100, 50))
    };
    let hot_cold = ("hot_cold", 1);
    let (greedy, greedy_apart) = (run(&[]), run(&[hot_cold]));
    let (benefit, benefit_apart) = (run(&[("gc_policy", 1)]), run(&[("gc_policy", 1), hot_cold]));
    println!("greedy {greedy}, apart {greedy_apart}; cost-benefit {benefit}, {benefit_apart}");
    assert!(greedy_apart < greedy && benefit_apart * 100 < benefit * 92);
}

#[test]
fn cost_benefit_waits_for_hot_data_to_die() {
    let run = |more: &[(&'static str, u64)]| {
        amplification(&with(more), (40_000, 40_000), skewed(2, 10, 90))
    };
    let (greedy, cost_benefit) = (run(&[]), run(&[("gc_policy", 1)]));
    println!("greedy {greedy}, cost-benefit {cost_benefit}");
    assert!(cost_benefit * 10 < greedy * 8, "{cost_benefit} of {greedy}");
}

#[test]
fn levelling_keeps_the_least_worn_superblock_near_the_most_worn() {
    let run = |gap: u64| {
        let mut w = small(&with(&[("wear_gap", gap)]));
        let mut want = Medium::new();
        overwrite(&mut w, &mut want, SLOTS, |i| i);
        // Nine tenths of the drive are never written again.
        let mut rng = Rng::stream(3, "places");
        overwrite(&mut w, &mut want, 120_000, |_| rng.below(860));
        assert_holds(&mut w, &want);
        let (least, most) = (w.count("superblock_erases_min"), w.count("superblock_erases_max"));
        (least, most, w.count("gc_victims_for_wear"), w.count("write_amplification_permille"))
    };
    let (without, with) = (run(0), run(10));
    println!("(least, most, moved for it, amplification): {without:?} and {with:?}");
    assert_eq!((without.0, without.2), (0, 0));
    assert!(without.1 > 30);
    // One more between the choice and the erase of each of those on their way.
    assert!(with.1 - with.0 <= 13 && with.2 > 0, "{with:?}");
    assert!(with.3 < without.3 * 12 / 10, "levelling costs little: {without:?} {with:?}");
}

#[test]
fn discards_are_of_whole_units() {
    let mut w = small(&[("trim_granularity_bytes", 16384)]);
    assert_eq!(w.device.limits().discard_granularity_sectors, 32);
    let id = w.write(0, Slice::pattern(1, 0, 16 * 4096));
    w.wait(id);
    // Slots 3 to 12: of the units of four the second and the third are in it whole.
    let id = w.discard(3 * 8, 10 * 8);
    w.wait(id);
    let mut want = Medium::new();
    want.write(Sector(0), &Slice::pattern(1, 0, 16 * 4096));
    want.discard(Sector(4 * 8), 8 * 8);
    assert_holds(&mut w, &want);
}

#[test]
fn discarded_data_are_read_until_they_are_erased() {
    let mut w = small(&[("read_after_trim", 1)]);
    let data = Slice::pattern(1, 0, 32 * 4096);
    // From the buffer, and then from the flash.
    let id = w.write(0, data.clone());
    assert_eq!(w.wait(id).1.status, Ok(()));
    let id = w.discard(0, 256);
    w.wait(id);
    let read = |w: &mut World<Ssd>| {
        let id = w.submit(Op::Read, Flags::NONE, 0, 256, Vec::new());
        bytes(&w.wait(id).1.data)
    };
    let held = data.to_vec();
    assert_eq!(read(&mut w), held);
    let id = w.flush();
    w.wait(id);
    w.drain();
    assert_eq!(read(&mut w), held);
    assert!(w.device.superblocks().iter().all(|s| s.valid == 0), "nothing of it is valid");
    let mut want = Medium::new();
    let mut rng = Rng::stream(4, "places");
    overwrite(&mut w, &mut want, 6_000, |_| 100 + rng.below(800));
    assert_eq!(read(&mut w), vec![0; 128 * 1024]);
    assert_holds(&mut w, &want);
}

#[test]
fn a_drive_with_bad_blocks_from_the_factory_has_fewer_superblocks_and_works() {
    let mut w = small(&with(&[("bad_blocks", 20), ("ftl_seed", 5)]));
    let (bad, used) = (w.count("flash_blocks_bad"), w.count("superblocks_in_use"));
    assert!(bad > 3 && used < 80, "{bad} bad, {used} superblocks");
    let (mut want, mut rng) = (Medium::new(), Rng::stream(5, "places"));
    overwrite(&mut w, &mut want, 30_000, |_| rng.below(SLOTS));
    assert_holds(&mut w, &want);
    let not_used = w.device.superblocks().iter().filter(|s| s.state == SuperState::Bad).count();
    assert_eq!(not_used as u64, 80 - used);
}

#[test]
fn a_drive_wears_out_and_keeps_what_it_has_acknowledged() {
    for seed in 0..4 {
        let mut w = small(&[
            ("endurance_cycles", 20),
            ("bad_blocks", 20),
            ("wear_gap", 3),
            ("capacity_bytes", 4096 * 1000),
            ("ftl_seed", seed),
        ]);
        let (mut want, mut rng) = (Medium::new(), Rng::stream(seed, "places"));
        let (mut flying, mut written) = (VecDeque::new(), 0u64);
        // What a write that fails leaves of its slot is no matter; it is left out at the end.
        let mut failed = Vec::new();
        while failed.is_empty() {
            let at = rng.below(1000) * 8;
            if flying.iter().any(|(_, other, _)| *other == at) {
                continue;
            }
            let data = Slice::pattern(w.next_id, at * 512, 4096);
            flying.push_back((w.write(at, data.clone()), at, data));
            written += 1;
            if flying.len() < 16 {
                continue;
            }
            while let Some((id, at, data)) = flying.pop_front() {
                match w.wait(id).1.status {
                    Ok(()) => want.write(Sector(at), &data),
                    Err(status) => {
                        assert_eq!(status, Status::Io);
                        failed.push(at);
                    }
                }
            }
        }
        assert_eq!(w.count("read_only"), 1);
        // 20 superblocks of 128 slots bear 20 to 25 erases each, and are written less often than
        // that by the host for what collection moves.
        let all = 20 * 128 * 20;
        assert!((all / 4..all * 5 / 4).contains(&written), "{written} writes of {all}");
        assert!(w.count("flash_blocks_bad") > 0);
        w.drain();
        w.device.medium().diff(&want, &mut |at, _| {
            assert!(failed.contains(&(at.0 / 8 * 8)), "sector {} has changed", at.0)
        });
        let id = w.flush();
        assert_eq!(w.wait(id).1.status, Ok(()));
        let id = w.write(0, Slice::pattern(1, 0, 4096));
        assert_eq!(w.wait(id).1.status, Err(Status::Io));
        let id = w.discard(0, 8);
        assert_eq!(w.wait(id).1.status, Err(Status::Io));
        let id = w.read(0, 8);
        assert_eq!(w.wait(id).1.status, Ok(()));
        w.drain();
        w.device.assert_valid();
        assert!(w.device.crash_view(w.now).loss.is_empty());
    }
}

#[test]
fn what_is_told_of_the_flash_is_so() {
    let mut w = small(&with(&[]));
    let mut want = Medium::new();
    // Two superblocks' worth, of which every second is then written again in order.
    overwrite(&mut w, &mut want, 256, |i| i);
    overwrite(&mut w, &mut want, 128, |i| i);
    let id = w.flush();
    w.wait(id);
    w.drain();
    let usage = w.device.usage();
    assert_eq!((usage.superblocks_free, usage.superblocks_reusable), (77, 1));
    // Each superblock has eight blocks of 16 slots.
    assert_eq!((usage.blocks_reusable, usage.blocks_by_valid.len()), (8, 17));
    assert_eq!((usage.blocks_by_valid[0], usage.blocks_by_valid[16]), (8, 16));
    let told: Vec<u32> = w
        .device
        .superblocks()
        .iter()
        .filter(|s| s.state == SuperState::Closed)
        .map(|s| s.valid)
        .collect();
    assert_eq!(told, [0, 128, 128]);
    // One slot of each: superblocks are in use, most blocks still are not.
    let mut rng = Rng::stream(6, "places");
    overwrite(&mut w, &mut want, 30_000, |_| rng.below(SLOTS));
    w.drain();
    let usage = w.device.usage();
    let valid: u64 = (0..).zip(&usage.blocks_by_valid).map(|(n, blocks)| n * blocks).sum();
    let by_superblock: u64 = w.device.superblocks().iter().map(|s| u64::from(s.valid)).sum();
    assert_eq!(valid, by_superblock);
    let blocks: u64 = usage.blocks_by_valid.iter().sum();
    assert_eq!(blocks, (80 - u64::from(usage.superblocks_free)) * 8);
    assert_eq!(
        w.count("flash_slots_programmed"),
        w.count("host_slots_written") + w.count("gc_slots_moved") + w.count("slots_padded")
    );
}

#[test]
fn the_fullest_drive_that_is_accepted_can_be_overwritten_for_ever_by_every_policy() {
    // Of endurance only that one more superblock is kept for moved data; nothing fails.
    let endure = ("endurance_cycles", 1 << 20);
    let buffer = ("buffer_bytes", 4096 * 80);
    for more in [
        &[("gc_policy", 1)][..],
        &[("gc_policy", 2), ("gc_choices", 1)],
        &[("gc_policy", 2), ("gc_choices", 1), ("wear_gap", 1)],
        &[("gc_policy", 1), ("wear_gap", 1), ("hot_cold", 1), buffer, endure],
        &[("wear_gap", 1), ("bad_blocks", 20), endure, ("read_after_trim", 1)],
        &[("hot_cold", 1), buffer, ("aged_fill", 1000)],
    ] {
        let fits = |slots: &u64| {
            common::small_config(&[more, &[("capacity_bytes", slots * 4096)]].concat()).is_ok()
        };
        let slots = (900..2_560).rev().find(fits).expect("some capacity is accepted");
        let mut w = small(&[more, &[("capacity_bytes", slots * 4096)]].concat());
        let (mut want, mut rng) = (Medium::new(), Rng::stream(7, "places"));
        overwrite(&mut w, &mut want, slots, |i| i);
        overwrite(&mut w, &mut want, 4 * slots, |_| rng.below(slots));
        overwrite(&mut w, &mut want, 2 * slots, |_| rng.below(40) * (slots / 40));
        // Each with a unit to itself.
        for i in 0..slots {
            let at = rng.below(slots) * 8;
            let data = Slice::pattern(i, at * 512, 4096);
            want.write(Sector(at), &data);
            let id = w.write_fua(at, data);
            assert_eq!(w.wait(id).1.status, Ok(()), "{more:?}");
        }
        assert_holds(&mut w, &want);
        assert_eq!(w.count("read_only"), 0);
        assert!(w.count("space_waits") > 0, "{more:?}: never full");
    }
}

#[test]
fn impossible_settings_are_refused_by_name() {
    for (key, value) in [
        ("gc_policy", 3),
        ("hot_cold", 2),
        ("trim_granularity_bytes", 6000),
        ("trim_granularity_bytes", 0),
        ("read_after_trim", 2),
        ("bad_blocks", 501),
        ("aged_fill", 1001),
        ("aged_erases", 5),
    ] {
        let error = common::small_config(&[(key, value)]).expect_err("impossible");
        assert_eq!((error.key.as_str(), error.value), (key, value), "{error}");
    }
    let none = common::small_config(&[("gc_policy", 2), ("gc_choices", 0)]);
    assert_eq!(none.expect_err("of none").key, "gc_choices");
    let worn =
        common::small_config(&[("aged_fill", 500), ("aged_erases", 9), ("endurance_cycles", 9)]);
    assert_eq!(worn.expect_err("worn out").key, "aged_erases");
    let bad = common::small_config(&[("bad_blocks", 300)]);
    assert!(
        ["blocks_per_plane", "capacity_bytes"].contains(&bad.expect_err("too few").key.as_str())
    );
}
