//! The SSD when it is full: contents, map, and the cost of garbage collection.

use crate::common;
use crate::common::{World, small};
use wp_base::{Rng, Sector};
use wp_block::DeviceModel;
use wp_device::ssd::Ssd;
use wp_medium::{Medium, Slice};

/// Writes `requests` of `slots` slots each at queue depth 16, at places that `place` gives; the
/// same to `want`.
fn write_many(
    w: &mut World<Ssd>,
    want: &mut Medium,
    requests: u64,
    slots: u64,
    mut place: impl FnMut(u64) -> u64,
) {
    let mut flying = Vec::new();
    for i in 0..requests {
        let at = place(i) * 8;
        let data = Slice::pattern(i + 1, at * 512, slots as u32 * 4096);
        want.write(Sector(at), &data);
        flying.push(w.write(at, data));
        if flying.len() == 16 {
            w.wait(flying.remove(0));
        }
    }
    flying.into_iter().for_each(|id| drop(w.wait(id)));
}

fn assert_holds(w: &mut World<Ssd>, want: &Medium) {
    w.device.medium().diff(want, &mut |at, _| panic!("sector {} is not what was written", at.0));
    let id = w.flush();
    w.wait(id);
    let view = w.device.crash_view(w.now);
    assert!(view.loss.is_empty());
    view.medium.diff(want, &mut |at, _| panic!("sector {} is not durable after a flush", at.0));
    w.drain();
    w.device.assert_valid();
}

#[test]
fn filling_the_device_three_times_at_random_keeps_the_newest_of_everything() {
    let mut w = small(&[]);
    let (mut want, mut rng) = (Medium::new(), Rng::stream(1, "places"));
    write_many(&mut w, &mut want, 3_000, 1, |_| rng.below(1000));
    assert_holds(&mut w, &want);
    assert!(w.count("gc_victims") > 5, "{:?}", w.device.counters());
    assert!(w.count("gc_slots_moved") > 0);
    // And once more, so that blocks go round.
    write_many(&mut w, &mut want, 6_000, 1, |_| rng.below(1000));
    assert_holds(&mut w, &want);
}

#[test]
fn filling_the_device_three_times_in_order_moves_next_to_nothing() {
    let mut w = small(&[]);
    let mut want = Medium::new();
    write_many(&mut w, &mut want, 375, 8, |i| i % 125 * 8);
    assert_holds(&mut w, &want);
    // A superblock's worth may be half old when it is picked, since superblocks do not divide the
    // device.
    assert!(w.count("gc_slots_moved") <= 256, "{}", w.count("gc_slots_moved"));
}

#[test]
fn synced_writes_fill_the_flash_with_padding_and_garbage_collection_copes() {
    let mut w = small(&[]);
    let mut want = Medium::new();
    let mut rng = Rng::stream(2, "places");
    for i in 0..2_000u64 {
        let at = rng.below(1000) * 8;
        let data = Slice::pattern(i + 1, at * 512, 4096);
        want.write(Sector(at), &data);
        let id = w.write(at, data);
        w.wait(id);
        let id = w.flush();
        w.wait(id);
        if i % 100 == 0 {
            w.device.crash_view(w.now).medium.diff(&want, &mut |at, _| panic!("lost {}", at.0));
        }
    }
    assert_holds(&mut w, &want);
    // Each write had a unit of four slots to itself.
    assert_eq!(
        (
            w.count("units_padded") - w.count("gc_victims") <= 2_000,
            w.count("slots_padded") >= 6_000
        ),
        (true, true)
    );
}

#[test]
fn the_fullest_device_that_is_accepted_can_be_overwritten_for_ever() {
    for capacity in (900u64..2_500).rev() {
        let bytes = capacity * 4096;
        if common::small_config(&[("capacity_bytes", bytes)]).is_ok() {
            let mut w = small(&[("capacity_bytes", bytes)]);
            let (mut want, mut rng) = (Medium::new(), Rng::stream(3, "places"));
            write_many(&mut w, &mut want, 8 * capacity, 1, |i| {
                if i < capacity { i } else { rng.below(capacity) }
            });
            assert_holds(&mut w, &want);
            // It is so full that the host had to wait for garbage collection.
            assert!(w.count("space_waits") > 0);
            return;
        }
    }
    panic!("no capacity is accepted");
}

#[test]
fn a_large_device_filled_in_order_costs_next_to_nothing() {
    // 64 GiB in requests of 8 MiB and program units of 1 MiB, to be quick.
    let mut w = small(&[
        ("capacity_bytes", 64 << 30),
        ("max_request_sectors", 16384),
        ("buffer_bytes", 16 << 20),
        ("page_bytes", 65536),
        ("pages_per_program", 8),
        ("pages_per_block", 2048),
        ("blocks_per_plane", 80),
    ]);
    let mut want = Medium::new();
    let mut most = 0;
    for i in 0..(64 << 30) / (8 << 20) {
        let data = Slice::pattern(9, i * (8 << 20), 8 << 20);
        want.write(Sector(i * 16384), &data);
        let id = w.write(i * 16384, data);
        w.wait(id);
        most = most.max(w.device.map_bytes());
    }
    assert!(most < 1 << 20, "{most} bytes");
    assert_holds(&mut w, &want);
}

#[test]
fn discarded_slots_are_not_moved() {
    let run = |discard: bool| {
        let mut w = small(&[]);
        let (mut want, mut rng) = (Medium::new(), Rng::stream(4, "places"));
        write_many(&mut w, &mut want, 125, 8, |i| i * 8);
        if discard {
            let id = w.discard(500 * 8, 500 * 8);
            w.wait(id);
            want.discard(Sector(500 * 8), 500 * 8);
        }
        write_many(&mut w, &mut want, 4_000, 1, |_| rng.below(500));
        assert_holds(&mut w, &want);
        w.count("gc_slots_moved")
    };
    let (without, with) = (run(false), run(true));
    assert!(with * 2 < without, "{with} of {without}");
}

#[test]
fn erased_blocks_wear_evenly_enough_and_every_superblock_is_used() {
    let mut w = small(&[]);
    let (mut want, mut rng) = (Medium::new(), Rng::stream(5, "places"));
    write_many(&mut w, &mut want, 20_000, 1, |_| rng.below(1000));
    // Four dies of two planes each time.
    assert_eq!(w.count("flash_blocks_erased") % 8, 0);
    let moved = w.count("gc_slots_moved");
    // Greedy with this much spare (2560 slots for 1000, less four superblocks) amplifies by well
    // under two.
    assert!(moved < 20_000, "{moved}");
}
