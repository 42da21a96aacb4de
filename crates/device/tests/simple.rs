//! The devices without geometry.

use crate::common;
use crate::common::{World, bytes};
use wp_base::Time;
use wp_base::event::{Flags, Op};
use wp_block::DeviceModel;
use wp_device::find;
use wp_medium::Slice;

fn world(name: &str, replaced: &[(&str, u64)]) -> World<dyn DeviceModel> {
    World::new(find(name).expect("in the list").make(replaced).expect("a possible device"))
}

#[test]
fn on_fixed_every_command_takes_one_latency_whatever_else_goes_on() {
    let mut w = world("fixed", &[("latency_ns", 15_000)]);
    let ids = [
        w.write(0, Slice::pattern(1, 0, 4096)),
        w.write(80, Slice::pattern(1, 0, 1 << 20)),
        w.read(0, 8),
        w.flush(),
        w.write_fua(8, Slice::zero(512)),
    ];
    for id in ids {
        assert_eq!(w.wait(id).0, Time(15_000));
    }
    w.run_to(Time(20_000));
    let id = w.flush();
    assert_eq!(w.wait(id).0, Time(35_000));
}

#[test]
fn fixed_holds_its_queue_depth_and_no_more() {
    let mut w = world("fixed", &[("queue_depth", 3)]);
    for i in 0..3 {
        w.read(i * 8, 8);
    }
    assert_eq!(w.try_submit(Op::Read, Flags::NONE, 0, 8, Vec::new()), None);
    w.step();
    assert!(w.try_submit(Op::Read, Flags::NONE, 0, 8, Vec::new()).is_some());
}

#[test]
fn a_flush_covers_what_was_complete_when_it_was_submitted_and_not_more() {
    let mut w = world("fixed", &[]);
    let id = w.write(0, Slice::pattern(1, 0, 512));
    w.wait(id);
    let late = w.write(1, Slice::pattern(2, 0, 512));
    let flush = w.flush();
    w.wait(late);
    w.wait(flush);
    let view = w.device.crash_view(w.now);
    let runs: Vec<_> = view.medium.runs().map(|(at, n)| (at.0, n)).collect();
    assert_eq!(
        (runs, view.loss.len(), view.loss[0].at.0, view.loss[0].acked),
        (vec![(0, 1)], 1, 1, true)
    );
}

#[test]
fn a_cache_that_is_full_loses_its_oldest_to_the_medium() {
    let mut w = world("fixed", &[("cache_bytes", 3 * 4096)]);
    for i in 0..5u64 {
        let id = w.write(i * 8, Slice::pattern(i, 0, 4096));
        w.wait(id);
    }
    let at: Vec<u64> = w.device.crash_view(w.now).loss.iter().map(|u| u.at.0).collect();
    assert_eq!(at, [16, 24, 32]);
}

#[test]
fn without_a_cache_everything_complete_is_durable_and_transfers_are_not() {
    let mut w = world("fixed", &[("cache_bytes", 0)]);
    assert!(!w.device.limits().volatile_cache);
    let id = w.write(0, Slice::pattern(1, 0, 4096));
    let view = w.device.crash_view(w.now);
    assert_eq!((view.loss.len(), view.loss[0].acked, view.medium.runs().count()), (1, false, 0));
    w.wait(id);
    let view = w.device.crash_view(w.now);
    assert_eq!((view.loss.len(), view.medium.runs().count()), (0, 1));
}

#[test]
fn a_plain_disk_serves_one_after_the_other_and_writes_back_on_flush() {
    let set = [
        ("command_ns", 1_000),
        ("link_mb_s", 1_024),
        ("flush_ns", 100_000),
        ("writeback_mb_s", 512),
        ("cache_bytes", 64 * 4096),
    ];
    let mut w = world("sata-disk-nofua", &set);
    let one = 1_000 + 4_000;
    let ids: Vec<u64> = (0..3).map(|i| w.write(i * 8, Slice::pattern(1, i * 4096, 4096))).collect();
    let ends: Vec<u64> = ids.into_iter().map(|id| w.wait(id).0.0).collect();
    assert_eq!(ends, [one, 2 * one, 3 * one]);
    let start = w.now;
    let id = w.flush();
    assert_eq!((w.wait(id).0 - start).0, 100_000 + 3 * 8_000);
    let (start, id) = (w.now, w.flush());
    assert_eq!((w.wait(id).0 - start).0, 100_000);
    // A full cache: the write pays for the writing back of as much.
    for i in 0..64 {
        let id = w.write(800 + i * 8, Slice::pattern(1, i * 4096, 4096));
        w.wait(id);
    }
    let (start, id) = (w.now, w.write(4000, Slice::pattern(1, 0, 8192)));
    assert_eq!((w.wait(id).0 - start).0, 1_000 + 8_000 + 16_000);
    let id = w.read(4000, 16);
    assert_eq!(bytes(&w.wait(id).1.data), Slice::pattern(1, 0, 8192).to_vec());
}

#[test]
fn a_forked_device_goes_its_own_way() {
    let mut w = world("fixed", &[]);
    let id = w.write(0, Slice::pattern(1, 0, 4096));
    w.wait(id);
    let mut f = common::forked(&w);
    let id = f.write(0, Slice::pattern(2, 0, 4096));
    f.wait(id);
    let id = f.flush();
    f.wait(id);
    assert_eq!(w.device.crash_view(w.now).loss.len(), 1);
    let id = w.read(0, 8);
    assert_eq!(bytes(&w.wait(id).1.data), Slice::pattern(1, 0, 4096).to_vec());
}
