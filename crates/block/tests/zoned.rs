//! Zoned devices: one write at a time in a zone, requests that stay within one, commands for zones.

use crate::common;
use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{TestDevice, World, limits, world};
use wp_base::event::{Flags, Op, ZoneOp};
use wp_base::{Sector, Span, ZoneLimits};
use wp_block::{Bio, Limits, QueueConfig, Status};
use wp_medium::Slice;

const ZONE: u64 = 0x1000;

fn zoned() -> Limits {
    let zones = ZoneLimits {
        zone_sectors: ZONE,
        capacity_sectors: 0xC00,
        zones: 64,
        conventional: 2,
        max_open: 14,
        max_active: 14,
        append_max_sectors: 128,
    };
    Limits { sectors: 64 * ZONE, discard: false, zones: Some(zones), ..limits() }
}

/// Runs until nothing is left to do: a world without tasks stops at once.
fn run(w: &World) {
    let rt = w.rt.clone();
    w.rt.spawn("end", async move { rt.sleep(Span::millis(100)).await });
    w.rt.run();
}

fn config(kernel: (u16, u16)) -> QueueConfig {
    QueueConfig::for_kernel(kernel, Some("mq-deadline")).expect("it has that")
}

fn zoned_world(kernel: (u16, u16)) -> World {
    let mut device = TestDevice::new(zoned());
    device.latency = common::Latency::Fixed(Span::micros(50));
    world(config(kernel), device)
}

/// Three writes each to two sequential zones and a conventional one, all at once; the most that
/// were in the device together for each of the three.
fn most_at_once(kernel: (u16, u16)) -> ([u32; 3], Vec<u64>) {
    let w = zoned_world(kernel);
    let starts = [2 * ZONE, 5 * ZONE, ZONE];
    let flying = Rc::new(RefCell::new([0u32; 3]));
    for n in 0..3u64 {
        for start in starts {
            // Not next to one another, so that nothing merges.
            let bio =
                Bio::write(Sector(start + n * 16), vec![Slice::pattern(n, 0, 4096)], Flags::SYNC);
            let flying = flying.clone();
            w.queue.submit(bio.on_end(move |end| {
                assert_eq!(end.status, Ok(()));
                flying.borrow_mut()[0] += 1;
            }));
        }
    }
    let mut most = [0; 3];
    let (mut seen, mut sent) = (0, Vec::new());
    let mut open = [0u32; 3];
    w.rt.probe().set_mask(wp_base::event::Class::BLOCK);
    run(&w);
    for record in w.rt.probe().take() {
        let wp_base::event::Event::Block { action, at, op: Op::Write, sectors, .. } = record.event
        else {
            continue;
        };
        let Some(i) = starts.iter().position(|s| at.0 / ZONE == s / ZONE) else { continue };
        match action.letter() {
            'D' => {
                open[i] += 1;
                most[i] = most[i].max(open[i]);
                sent.push(at.0);
            }
            'C' if sectors > 0 => {
                open[i] -= 1;
                seen += 1;
            }
            _ => {}
        }
    }
    assert_eq!(seen, 9, "all have completed");
    assert_eq!(w.queue.pending(), 0);
    (most, sent)
}

#[test]
fn a_sequential_zone_is_written_by_one_request_at_a_time_in_every_era() {
    for kernel in [(5, 10), (6, 1), (6, 9), (6, 10), (6, 12)] {
        let (most, sent) = most_at_once(kernel);
        assert_eq!(most[..2], [1, 1], "{kernel:?}");
        assert_eq!(most[2], 3, "{kernel:?}: a conventional zone is not held back");
        for zone in [2, 5] {
            let of: Vec<u64> = sent.iter().copied().filter(|at| at / ZONE == zone).collect();
            assert!(of.is_sorted(), "{kernel:?}: {of:?}");
        }
    }
    // Before mq-deadline knew zones nobody held anything back.
    assert_eq!(most_at_once((4, 15)).0, [3, 3, 3]);
}

#[test]
fn who_orders_writes_is_a_rule_of_the_era() {
    use wp_block::ZoneWrites;
    let of = |kernel| config(kernel).zone_writes();
    assert_eq!(of((6, 9)), ZoneWrites::Elevator);
    assert_eq!(of((6, 10)), ZoneWrites::Plug);
    let none = QueueConfig::for_kernel((6, 12), Some("none")).expect("it has that");
    assert_eq!(none.zone_writes(), ZoneWrites::Plug);
}

#[test]
fn plugged_bios_that_continue_one_another_become_one_request() {
    let w = zoned_world((6, 12));
    for n in 0..4u64 {
        let data = vec![Slice::pattern(n, 0, 4096)];
        w.queue.submit(Bio::write(Sector(4 * ZONE + n * 8), data, Flags::FUA));
    }
    run(&w);
    let writes: Vec<(u64, u32)> =
        w.log.borrow().iter().filter(|e| e.0 == Op::Write).map(|e| (e.2, e.3)).collect();
    // FUA writes merge with nothing, and wait for one another.
    assert_eq!(writes, (0..4).map(|n| (4 * ZONE + n * 8, 8)).collect::<Vec<_>>());

    let w = zoned_world((6, 12));
    let none = QueueConfig::for_kernel((6, 12), Some("none")).expect("it has that");
    let w2 = world(none, {
        let mut device = TestDevice::new(zoned());
        device.latency = common::Latency::Fixed(Span::micros(50));
        device
    });
    drop(w);
    for n in 0..4u64 {
        let data = vec![Slice::pattern(n, 0, 4096)];
        w2.queue.submit(Bio::write(Sector(4 * ZONE + n * 8), data, Flags::NONE));
    }
    run(&w2);
    let writes: Vec<(u64, u32)> = w2.log.borrow().iter().map(|e| (e.2, e.3)).collect();
    assert_eq!(writes, [(4 * ZONE, 8), (4 * ZONE + 8, 24)]);
    assert_eq!(w2.queue.pending(), 0);
}

#[test]
fn nothing_crosses_from_one_zone_into_the_next() {
    let w = zoned_world((6, 1));
    let at = Sector(3 * ZONE - 64);
    w.queue.submit(Bio::read(at, 128, Flags::NONE));
    let guard = w.queue.plug();
    w.queue.submit(Bio::write(Sector(2 * ZONE - 8), vec![Slice::zero(4096)], Flags::NONE));
    w.queue.submit(Bio::write(Sector(2 * ZONE), vec![Slice::zero(4096)], Flags::NONE));
    drop(guard);
    run(&w);
    let log: Vec<(u64, u32)> = w.log.borrow().iter().map(|e| (e.2, e.3)).collect();
    for part in [(3 * ZONE - 64, 64), (3 * ZONE, 64), (2 * ZONE - 8, 8), (2 * ZONE, 8)] {
        assert!(log.contains(&part), "{part:?} of {log:?}");
    }
    assert_eq!(log.len(), 4);
}

#[test]
fn commands_for_zones_are_checked_and_printed_as_the_kernel_does() {
    let w = zoned_world((6, 1));
    let statuses = Rc::new(RefCell::new(Vec::new()));
    let data = |n: u32| vec![Slice::zero(n * 512)];
    let bios = [
        Bio::zone(ZoneOp::Reset, Sector(3 * ZONE)),
        Bio::zone(ZoneOp::Reset, Sector(3 * ZONE + 8)),
        Bio::zone(ZoneOp::Open, Sector(ZONE)),
        Bio::zone(ZoneOp::ResetAll, Sector(0)),
        Bio::append(Sector(3 * ZONE), data(128), Flags::NONE),
        Bio::append(Sector(3 * ZONE), data(136), Flags::NONE),
        Bio::append(Sector(3 * ZONE + 8), data(8), Flags::NONE),
    ];
    for (n, bio) in bios.into_iter().enumerate() {
        let statuses = statuses.clone();
        w.queue.submit(bio.on_end(move |end| statuses.borrow_mut().push((n, end.status))));
    }
    run(&w);
    let mut statuses = statuses.borrow().clone();
    statuses.sort_by_key(|s| s.0);
    let bad = Err(Status::Io);
    let found: Vec<_> = statuses.into_iter().map(|s| s.1).collect();
    assert_eq!(found, [Ok(()), bad, bad, Ok(()), Ok(()), bad, bad]);
    let shape = w.shape("D");
    assert!(shape.starts_with("D NS 12288 0 "), "{shape}");
    assert_eq!(shape.lines().count(), 3, "{shape}");

    // A device without zones.
    let w = world(config((6, 1)), TestDevice::new(limits()));
    let end = Rc::new(RefCell::new(None));
    let told = end.clone();
    let bio = Bio::zone(ZoneOp::Reset, Sector(0));
    w.queue.submit(bio.on_end(move |e| *told.borrow_mut() = Some(e.status)));
    run(&w);
    assert_eq!(*end.borrow(), Some(Err(Status::NotSupported)));
}
