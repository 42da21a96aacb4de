//! What a sync takes of an SSD beside programming: FLUSHes that hold what comes later, FUA, slow
//! FLUSHes, and FLUSHes of a drive with power-loss protection.

use crate::common::{World, small, small_config};
use wp_base::Span;
use wp_base::event::{Flags, Op};
use wp_block::DeviceModel;
use wp_device::ssd::Ssd;
use wp_medium::Slice;

fn page(tag: u64) -> Slice {
    Slice::pattern(tag, 0, 4096)
}

/// When each of these is over, in ns from now.
fn over(w: &mut World<Ssd>, ids: &[u64]) -> Vec<u64> {
    let start = w.now;
    ids.iter().map(|id| (w.wait(*id).0 - start).0).collect()
}

#[test]
fn flushes_overlap_unless_one_holds_the_next() {
    let mut w = small(&[]);
    let ids = [w.flush(), w.flush()];
    let both = over(&mut w, &ids);
    assert!(both[1] - both[0] <= 1_000, "a command apart: {both:?}");
    let mut w = small(&[("flush_serial_ns", 300_000)]);
    let ids = [w.flush(), w.flush(), w.flush()];
    let all = over(&mut w, &ids);
    assert_eq!([all[1] - all[0], all[2] - all[1]], [300_000, 300_000]);
    // One that is alone waits for nothing.
    w.run_to(w.now + Span(300_000));
    let id = w.flush();
    let alone = over(&mut w, &[id]);
    assert!(alone[0] < 10_000, "{alone:?}");
}

#[test]
fn a_flush_holds_later_writes_only_where_it_does() {
    for (holds, waits) in [(0, false), (1, true)] {
        let mut w = small(&[("flush_serial_ns", 300_000), ("flush_holds_writes", holds)]);
        let flush = w.flush();
        let write = w.write(0, page(1));
        let read = w.read(800, 8);
        let times = over(&mut w, &[read, write, flush]);
        assert!(times[0] < 300_000, "reads go on: {times:?}");
        assert_eq!(times[1] > 300_000, waits, "{times:?}");
    }
}

#[test]
fn what_waits_for_a_flush_is_served_in_its_order() {
    let mut w = small(&[("flush_serial_ns", 300_000), ("flush_holds_writes", 1)]);
    let first = w.flush();
    let (write, second, late) = (w.write(0, page(1)), w.flush(), w.write(80, page(2)));
    let times = over(&mut w, &[first, write, second, late]);
    assert!(times[0] < times[1] && times[1] < times[3], "{times:?}");
    assert!(times[3] > 600_000, "behind the second FLUSH, too: {times:?}");
}

#[test]
fn a_fua_write_takes_its_overhead_and_a_slow_flush_its_own() {
    let one = |replaced: &[(&str, u64)], fua: bool| {
        let mut w = small(replaced);
        let id = if fua { w.write_fua(0, page(1)) } else { w.flush() };
        over(&mut w, &[id])[0]
    };
    let overhead = [("fua_overhead_ns", 70_000)];
    assert_eq!(one(&overhead, true) - one(&[], true), 70_000);
    assert_eq!(one(&overhead, false), one(&[], false));
    let slow = [("slow_flush_permille", 1000), ("slow_flush_ns", 2_000_000)];
    assert_eq!(one(&slow, false) - one(&[], false), 2_000_000);
    // A share of them, the same with the same seed.
    let slow_of = |seed: u64| {
        let share = [("slow_flush_permille", 100), ("slow_flush_ns", 9_000_000)];
        let mut w = small(&[share[0], share[1], ("ftl_seed", seed)]);
        let each = (0..1000).map(|_| {
            let id = w.flush();
            over(&mut w, &[id])[0] > 9_000_000
        });
        each.collect::<Vec<bool>>()
    };
    let slow = slow_of(1).iter().filter(|is| **is).count();
    assert!((70..130).contains(&slow), "{slow} of 1000");
    assert!(slow_of(1) == slow_of(1) && slow_of(1) != slow_of(2));
}

#[test]
fn a_drive_with_power_loss_protection_may_report_a_cache_and_take_flushes() {
    let limits = |with: u64| {
        let config = small_config(&[("plp", 1), ("flush_with_plp", with)]).expect("possible");
        Ssd::new(config)
    };
    assert!(!limits(0).limits().volatile_cache && limits(1).limits().volatile_cache);
    let mut w = small(&[("plp", 1), ("flush_with_plp", 1), ("flush_overhead_ns", 115_000)]);
    let write = w.submit(Op::Write, Flags::NONE, 0, 8, vec![page(1)]);
    over(&mut w, &[write]);
    assert!(w.device.crash_view(w.now).loss.is_empty(), "durable when it has completed");
    let flush = w.flush();
    assert_eq!(over(&mut w, &[flush])[0], 116_000, "a command and the overhead: no program");
}

#[test]
fn a_flush_is_fast_until_the_slc_cache_is_full_and_again_once_the_idle_drive_has_emptied_it() {
    // Four padded units fill it, each of the size that the small drive programs at once.
    let unit = small_config(&[]).expect("possible").geometry.unit_bytes();
    let slc = [
        ("slc_bytes", 4 * unit),
        ("slc_program_ns", 100_000),
        ("program_ns", 1_000_000),
        ("slow_flush_permille", 1000),
        ("slow_flush_ns", 5_000_000),
        ("slow_flush_slc_full", 1),
    ];
    let synced = |w: &mut World<Ssd>, page_of: u64| {
        let write = w.submit(Op::Write, Flags::NONE, 8 * page_of, 8, vec![page(page_of)]);
        over(w, &[write]);
        let flush = w.flush();
        over(w, &[flush])[0]
    };
    let mut w = small(&slc);
    let each: Vec<u64> = (0..6).map(|n| synced(&mut w, n)).collect();
    assert!(each[..3].iter().all(|ns| *ns < 300_000), "{each:?}");
    // The fourth fills it, and its FLUSH ends with the cache full.
    assert!((5_000_000..5_300_000).contains(&each[3]), "{each:?}");
    assert!(each[4..].iter().all(|ns| *ns > 6_000_000), "{each:?}");
    w.run_to(w.now + Span(1_000_000_000));
    assert!(synced(&mut w, 7) > 6_000_000, "nothing empties it");
    let mut w = small(&[&slc[..], &[("slc_used_permille", 1000), ("slc_fold_mb_s", 1)]].concat());
    assert!(synced(&mut w, 0) > 6_000_000, "full at the start");
    // One unit leaves in `unit` microseconds.
    w.run_to(w.now + Span(unit * 1000));
    assert!(synced(&mut w, 1) < 6_000_000, "there is room for a unit again");
}

#[test]
fn what_makes_no_drive_is_refused_by_its_key() {
    for (key, value) in [
        ("flush_holds_writes", 2),
        ("slow_flush_permille", 1001),
        ("hardware_queues", 0),
        ("slow_flush_slc_full", 2),
        ("slc_used_permille", 1001),
    ] {
        let why = small_config(&[(key, value)]).expect_err("refused").to_string();
        assert!(why.contains(key), "{why}");
    }
}
