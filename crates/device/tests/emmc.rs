//! eMMC: one command at a time, the cache, and what a power cut may leave of it.

use crate::common::World;
use wp_base::event::{Flags, Op};
use wp_block::DeviceModel;
use wp_device::find;
use wp_medium::Slice;

fn world(name: &str, replaced: &[(&str, u64)]) -> World<dyn DeviceModel> {
    World::new(find(name).expect("in the list").make(replaced).expect("a possible device"))
}

fn page(tag: u64) -> Slice {
    Slice::pattern(tag, 0, 4096)
}

/// Duration of one command on an idle device.
fn time(
    w: &mut World<dyn DeviceModel>,
    submit: impl Fn(&mut World<dyn DeviceModel>) -> u64,
) -> u64 {
    let start = w.now;
    let id = submit(w);
    w.wait(id).0.since(start).0
}

fn barrier(w: &mut World<dyn DeviceModel>) -> u64 {
    w.submit(Op::Flush, Flags::SYNC | Flags::BARRIER, 0, 0, Vec::new())
}

#[test]
fn a_cached_write_costs_the_bus_a_reliable_one_and_a_flush_the_flash() {
    let mut w = world("emmc-16", &[]);
    // Command 80 us, 4096 bytes at 200 MB/s 20.48 us.
    assert_eq!(time(&mut w, |w| w.write(0, page(1))), 100_480);
    assert_eq!(time(&mut w, |w| w.write_fua(80, page(2))), 100_480 + 1_300_000);
    assert_eq!(time(&mut w, |w| w.flush()), 80_000 + 300_000 + 1_300_000);
    // Nothing left to program.
    assert_eq!(time(&mut w, |w| w.flush()), 80_000 + 300_000);
    assert_eq!(time(&mut w, |w| w.read(0, 8)), 80_000 + 100_000 + 20_480);
    assert!(w.device.crash_view(w.now).loss.is_empty());
}

#[test]
fn it_takes_one_command_at_a_time_and_with_a_command_queue_hides_the_overhead() {
    let mut w = world("emmc-16", &[]);
    w.read(0, 8);
    assert_eq!(w.try_submit(Op::Read, Flags::NONE, 0, 8, Vec::new()), None);
    let rate = |name: &str| {
        let mut w = world(name, &[("bus_mb_s", 200)]);
        for i in 0..32 {
            while w.try_submit(Op::Write, Flags::NONE, 8 * i, 8, vec![page(i)]).is_none() {
                w.step();
            }
        }
        w.drain();
        w.now.0
    };
    assert_eq!(rate("emmc-16"), 32 * 100_480);
    assert_eq!(rate("emmc-5.1"), 80_000 + 32 * 20_480);
}

#[test]
fn a_full_cache_makes_a_write_wait_for_the_oldest() {
    let mut w = world("emmc-16", &[("cache_bytes", 8192)]);
    assert_eq!(time(&mut w, |w| w.write(0, page(1))), 100_480);
    assert_eq!(time(&mut w, |w| w.write(8, page(2))), 100_480);
    assert_eq!(time(&mut w, |w| w.write(16, page(3))), 100_480 + 1_300_000);
    let view = w.device.crash_view(w.now);
    assert_eq!(view.medium.runs().map(|r| r.0.0).collect::<Vec<_>>(), [0]);
    assert_eq!(view.loss.iter().map(|u| u.at.0).collect::<Vec<_>>(), [8, 16]);
}

#[test]
fn a_cut_keeps_whole_epochs_and_any_part_of_the_next() {
    let mut w = world("emmc-5.1", &[]);
    for (i, at) in [0, 8, 16, 24].into_iter().enumerate() {
        let id = w.write(at, page(i as u64));
        w.wait(id);
        if i % 2 == 1 {
            let id = barrier(&mut w);
            w.wait(id);
        }
    }
    let id = w.write(32, page(9));
    w.wait(id);
    let view = w.device.crash_view(w.now);
    assert_eq!(view.loss.iter().map(|u| u.epoch).collect::<Vec<_>>(), [0, 0, 1, 1, 2]);
    let legal: Vec<u32> = (0..32u32).filter(|set| view.is_legal(|i| set & (1 << i) != 0)).collect();
    // Nothing; one of the first epoch; both, with nothing, one, or both of the second; all but or
    // with the last.
    assert_eq!(legal, [0, 1, 2, 3, 7, 11, 15, 31]);
    // Without barriers any subset is.
    let mut w = world("emmc-16", &[]);
    for at in [0, 8, 16] {
        let id = w.write(at, page(at));
        w.wait(id);
    }
    let view = w.device.crash_view(w.now);
    assert!((0..8u32).all(|set| view.is_legal(|i| set & (1 << i) != 0)));
}

#[test]
fn a_barrier_is_cheap_until_there_are_too_many_and_binds_reliable_writes_too() {
    let mut w = world("emmc-5.1", &[("barriers_max", 2)]);
    let id = w.write(0, page(1));
    w.wait(id);
    assert_eq!(time(&mut w, barrier), 100_000);
    assert_eq!(time(&mut w, barrier), 100_000);
    assert_eq!(time(&mut w, barrier), 80_000 + 150_000 + 400_000, "the third flushes");
    assert!(w.device.crash_view(w.now).loss.is_empty());
    let id = w.write(8, page(2));
    w.wait(id);
    let id = barrier(&mut w);
    w.wait(id);
    // What lies before the barrier is programmed first: both fit one program.
    assert_eq!(time(&mut w, |w| w.write_fua(16, page(3))), 80_000 + 10_240 + 400_000);
    let view = w.device.crash_view(w.now);
    assert_eq!((view.loss.len(), view.medium.runs().count()), (0, 1));
}

#[test]
fn barriers_need_a_cache() {
    let entry = find("emmc-5.1").expect("in the list");
    let error = entry.make(&[("cache_bytes", 0)]).err().expect("refused");
    assert!(error.to_string().contains("needs a cache"), "{error}");
    let limits = *find("emmc-16").expect("in the list").make(&[]).expect("possible").limits();
    assert!(limits.fua && limits.volatile_cache && !limits.barrier && !limits.flush_beside_others);
}
