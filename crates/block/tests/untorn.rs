//! Untorn writes: which bios are refused, what they merge with, and that none is split.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::*;
use wp_base::event::Flags;
use wp_base::{Sector, Time};
use wp_block::{Bio, BlockQueue, DriverKind, ElevatorKind, Limits, QueueConfig, Status};
use wp_medium::Slice;

const UNTORN: Flags = Flags(Flags::SYNC.0 | Flags::ATOMIC.0);

/// 16 KiB whole, in pieces of 64 KiB.
fn drive() -> Limits {
    Limits { atomic_bytes: 16 << 10, atomic_boundary_bytes: 64 << 10, ..limits() }
}

/// 32 KiB whole in requests of up to 64 KiB: more than a unit.
fn wide() -> Limits {
    Limits { atomic_bytes: 48 << 10, atomic_boundary_bytes: 64 << 10, ..limits() }
}

fn write(at: u64, blocks: u64, flags: Flags) -> Bio {
    let slices = (0..blocks).map(|n| Slice::pattern(at + 1, n * 4096, 4096)).collect();
    Bio::write(Sector(at), slices, flags)
}

/// How each bio ends.
fn ends(queue: &Rc<BlockQueue>, bios: Vec<Bio>) -> Rc<RefCell<Vec<Result<(), Status>>>> {
    let ends = Rc::new(RefCell::new(Vec::new()));
    for bio in bios {
        let ends = ends.clone();
        queue.submit(bio.on_end(move |end| ends.borrow_mut().push(end.status)));
    }
    ends
}

fn one(config: QueueConfig, limits: Limits, bio: Bio) -> Result<(), Status> {
    let w = world(config, TestDevice::new(limits));
    let ends = ends(&w.queue, vec![bio]);
    w.rt.run_until(Time(1_000_000_000));
    ends.borrow()[0]
}

#[test]
fn what_would_be_torn_is_refused() {
    let of = |bio| one(QueueConfig::linux(6, 12), drive(), bio);
    assert_eq!(of(write(0, 4, UNTORN)), Ok(()));
    assert_eq!(of(write(0, 8, UNTORN)), Err(Status::Invalid), "longer than a unit");
    assert_eq!(of(write(112, 4, UNTORN)), Err(Status::Invalid), "across the boundary");
    assert_eq!(of(write(112, 4, Flags::SYNC)), Ok(()), "a plain write");
    let apart = (0..3).map(|n| Slice::pattern(n, 0, 4096)).collect();
    let few = Limits { max_segments: 2, ..drive() };
    let bio = Bio::write(Sector(0), apart, UNTORN);
    assert_eq!(one(QueueConfig::linux(6, 12), few, bio), Err(Status::Invalid), "it would be split");
}

#[test]
fn a_queue_without_untorn_writes_says_so() {
    let bio = || write(0, 1, UNTORN);
    assert_eq!(one(QueueConfig::linux(6, 10), drive(), bio()), Err(Status::NotSupported));
    assert_eq!(one(QueueConfig::linux(6, 12), limits(), bio()), Err(Status::NotSupported));
    let mut pieces = QueueConfig::linux(6, 12);
    pieces.driver = DriverKind::OneSegmentPerDma;
    assert_eq!(one(pieces, drive(), bio()), Err(Status::NotSupported));
    // A partition that begins within a unit.
    let w = world(QueueConfig::linux(6, 12), TestDevice::new(drive()));
    assert_eq!(w.queue.partition(Sector(8), 1 << 16).atomic_limits(), None);
    assert!(w.queue.partition(Sector(2048), 1 << 16).atomic_limits().is_some());
}

/// Requests that the device got of bios that were plugged together: (sector, sectors).
fn merged(limits: Limits, bios: Vec<Bio>) -> Vec<(u64, u32)> {
    let config = QueueConfig::linux(6, 12).with_elevator(ElevatorKind::MqDeadline);
    let w = world(config, TestDevice::new(limits));
    let (queue, sent) = (w.queue.clone(), bios.len());
    let ended = Rc::new(RefCell::new(0));
    let count = ended.clone();
    w.rt.spawn("t", async move {
        let _plug = queue.plug();
        for bio in bios {
            let count = count.clone();
            queue.submit(bio.on_end(move |end| {
                assert_eq!(end.status, Ok(()));
                *count.borrow_mut() += 1;
            }));
        }
    });
    w.rt.run_until(Time(1_000_000_000));
    assert_eq!(*ended.borrow(), sent);
    let got: Vec<(u64, u32)> = w.log.borrow().iter().map(|(_, _, at, n)| (*at, *n)).collect();
    got
}

#[test]
fn untorn_writes_merge_with_their_like_up_to_what_is_whole() {
    let plain = Flags::SYNC;
    assert_eq!(merged(wide(), vec![write(0, 4, UNTORN), write(32, 4, UNTORN)]), [(0, 64)]);
    let mixed = vec![write(0, 4, UNTORN), write(32, 4, plain)];
    assert_eq!(merged(wide(), mixed), [(0, 32), (32, 32)]);
    // 48 KiB and no more.
    let four = (0..4).map(|n| write(32 * n, 4, UNTORN)).collect();
    assert_eq!(merged(wide(), four), [(0, 96), (96, 32)]);
    let plain = (0..4).map(|n| write(32 * n, 4, plain)).collect();
    assert_eq!(merged(wide(), plain), [(0, 128)]);
    // Not across 64 KiB.
    let across = vec![write(96, 4, UNTORN), write(128, 4, UNTORN)];
    assert_eq!(merged(wide(), across), [(96, 32), (128, 32)]);
}

#[test]
fn an_untorn_write_is_one_request_unless_the_step_is_left_out() {
    let requests = || merged(drive(), vec![write(0, 4, UNTORN)]).len();
    assert_eq!(requests(), 1);
    let armed = wp_block::site::UNTORN_WHOLE.leave_out();
    assert_eq!(requests(), 2);
    assert!(armed.reached() > 0);
}
