//! Throttling, errors, cancelled waits, power cuts, and CFQ's idling.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::*;
use wp_base::event::Flags;
use wp_base::live::census;
use wp_base::{Sector, Span, Time};
use wp_block::{Bio, ElevatorKind, Limits, QueueConfig, Status};
use wp_rt::Outcome;

#[test]
fn submit_throttled_keeps_to_nr_requests() {
    let mut config = QueueConfig::linux(4, 6).with_elevator(ElevatorKind::Noop);
    config.nr_requests = 16;
    let w = world(config, TestDevice::new(Limits { queue_depth: 2, ..limits() }));
    let (most, order) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
    for t in 0..3u64 {
        let (q, most, order) = (w.queue.clone(), most.clone(), order.clone());
        w.rt.spawn(format!("t{t}"), async move {
            for i in 0..40 {
                // Apart from one another: nothing merges.
                let order = order.clone();
                let bio = block(80 * (100 * t + i), i, Flags::NONE);
                q.submit_throttled(bio.on_end(move |_| order.borrow_mut().push((t, i)))).await;
                most.set(most.get().max(q.pending()));
                if q.pending() == 16 {
                    assert!(q.is_congested(false) && !q.is_congested(true));
                }
            }
        });
    }
    assert_eq!(w.rt.run(), Outcome::Idle);
    w.rt.run_until(Time(1_000_000_000));
    assert_eq!(most.get(), 16);
    assert!(!w.queue.is_congested(false));
    assert_eq!(order.borrow().len(), 120);
    // First come, first served: nobody is more than a round ahead.
    let at = |t, i| order.borrow().iter().position(|e| *e == (t, i)).expect("all have ended");
    assert!(at(0, 36) < at(1, 22) && at(1, 20) < at(2, 22) && at(2, 20) < at(0, 38));
}

#[test]
fn waiting_for_a_request_flushes_the_plug() {
    // All requests are in the task's own plug: without the flush it would wait for ever.
    let mut config = QueueConfig::linux(4, 6);
    config.nr_requests = 4;
    let w = world(config, TestDevice::new(limits()));
    let q = w.queue.clone();
    w.rt.spawn("t", async move {
        let _plug = q.plug();
        for i in 0..10 {
            q.submit_throttled(block(80 * i, i, Flags::SYNC)).await;
        }
    });
    assert_eq!(w.rt.run(), Outcome::Idle);
}

#[test]
fn a_failed_command_fails_the_bios_of_its_request_only() {
    let mut device = TestDevice::new(limits());
    device.bad = Some(20);
    let w = world(QueueConfig::linux(4, 6), device);
    let ends = Rc::new(RefCell::new(Vec::new()));
    let (q, e) = (w.queue.clone(), ends.clone());
    w.rt.spawn("t", async move {
        let _plug = q.plug();
        for at in [8, 16, 80] {
            let e = e.clone();
            q.submit(
                block(at, at, Flags::SYNC).on_end(move |end| e.borrow_mut().push((at, end.status))),
            );
        }
    });
    w.rt.run();
    w.rt.run_until(Time(1_000_000_000));
    assert_eq!(*ends.borrow(), [(8, Err(Status::Io)), (16, Err(Status::Io)), (80, Ok(()))]);
}

#[test]
fn a_failed_commit_record_is_not_followed_by_a_flush() {
    let mut device = TestDevice::new(limits());
    device.bad = Some(20);
    let w = world(QueueConfig::linux(4, 6), device);
    let q = w.queue.clone();
    let end = w.rt.block_on("t", async move { q.submit_wait(block(16, 1, commit_flags())).await });
    assert_eq!(end.expect("it ends"), Err(Status::Io));
    assert_eq!(w.queue.counters().flushes, 1);
}

#[test]
fn an_operation_that_the_device_does_not_know_ends_in_interrupt_context() {
    let w = world(QueueConfig::linux(4, 6), TestDevice::new(Limits { discard: false, ..limits() }));
    let (q, rt) = (w.queue.clone(), w.rt.clone());
    let told = Rc::new(Cell::new(false));
    w.rt.spawn("t", async move {
        let (t, r) = (told.clone(), rt.clone());
        q.submit(Bio::discard(Sector(0), 8, Flags::NONE).on_end(move |end| {
            assert_eq!(end.status, Err(Status::NotSupported));
            assert_eq!(r.current(), None);
            t.set(true);
        }));
        assert!(!told.get(), "not from inside submit");
        rt.yield_now().await;
        assert!(told.get());
    });
    w.rt.run();
    assert_eq!(w.shape(""), "");
}

#[test]
fn an_end_may_submit() {
    let w = world(QueueConfig::linux(4, 6), TestDevice::new(limits()));
    let q = w.queue.clone();
    w.queue.submit(block(0, 1, Flags::NONE).on_end(move |_| {
        let again = q.clone();
        q.submit(
            block(80, 2, Flags::NONE).on_end(move |_| again.submit(block(160, 3, Flags::NONE))),
        );
    }));
    w.rt.run_until(Time(1_000_000_000));
    assert_eq!(w.shape("DC").lines().count(), 6);
}

#[test]
fn a_wait_that_is_given_up_leaves_no_trace() {
    let w = world(QueueConfig::linux(4, 6), TestDevice::new(limits()));
    let (q, rt) = (w.queue.clone(), w.rt.clone());
    w.rt.spawn("t", async move {
        for i in 0..10 {
            let bio = block(80 * i, i, Flags::SYNC);
            // Half of the time is not enough.
            let span = Span::micros(if i % 2 == 0 { 50 } else { 500 });
            let out = wp_rt::timeout(&rt, span, q.submit_wait(bio)).await;
            assert_eq!(out.is_some(), i % 2 == 1);
        }
    });
    assert_eq!(w.rt.run(), Outcome::Idle);
    w.rt.run_until(Time(1_000_000_000));
    assert_eq!((w.queue.pending(), w.queue.counters().completed), (0, 10));
}

#[test]
fn a_power_cut_leaves_nothing_behind() {
    let before = census();
    for ms in 0..40 {
        let mut device = TestDevice::new(Limits { queue_depth: 3, ..limits() });
        device.latency = Latency::Fixed(Span::millis(4));
        let w = world(QueueConfig::linux(4, 6), device);
        for t in 0..4u64 {
            let (q, rt) = (w.queue.clone(), w.rt.clone());
            w.rt.spawn(format!("t{t}"), async move {
                for i in 0..20 {
                    let plug = q.plug();
                    // The end owns the queue: a cycle while the bio is under way.
                    let owner = q.clone();
                    q.submit(block(80 * (t + 10 * i), i, Flags::NONE).on_end(move |_| drop(owner)));
                    if t == 1 {
                        rt.sleep(Span::micros(700)).await;
                    }
                    drop(plug);
                    let flags = if t == 2 { commit_flags() } else { Flags::SYNC };
                    q.submit_wait(block(8000 + 80 * (t + 10 * i), i, flags))
                        .await
                        .expect("written");
                }
            });
        }
        w.rt.run_until(Time(ms * 1_000_000));
        let events = w.rt.probe().len();
        w.rt.cut();
        assert_eq!(w.rt.probe().len(), events, "destructors do no I/O");
    }
    assert_eq!(census(), before);
}

/// Two tasks that read sequentially, each with a short pause after each read, far apart.
fn switches(rotational: bool, depth: u32) -> usize {
    let mut config = QueueConfig::linux(4, 6);
    config.rotational = rotational;
    let mut device = TestDevice::new(Limits { queue_depth: depth, ..limits() });
    device.latency = Latency::Fixed(Span::millis(1));
    let w = world(config, device);
    for t in 0..2u64 {
        let (q, rt) = (w.queue.clone(), w.rt.clone());
        w.rt.spawn(format!("t{t}"), async move {
            for i in 0..200 {
                let at = Sector(1_000_000_000 * t + 128 * i);
                q.submit_wait(Bio::read(at, 128, Flags::NONE)).await.expect("read");
                rt.sleep(Span::micros(200)).await;
            }
        });
    }
    w.rt.run();
    let trace = w.shape("D");
    let near: Vec<bool> =
        trace.lines().map(|l| l.split(' ').nth(2).expect("sector").len() < 9).collect();
    near.windows(2).filter(|p| p[0] != p[1]).count()
}

#[test]
fn cfq_idles_for_a_reader_on_a_disk_and_not_on_an_ssd() {
    // 200 reads of 1.2 ms each: slices of 100 ms hold some 80.
    assert!(switches(true, 31) < 12, "{} switches", switches(true, 31));
    assert!(switches(false, 31) > 300, "{} switches", switches(false, 31));
    // Without a queue in the device it idles, turning or not.
    assert!(switches(false, 1) < 12);
}

/// When an asynchronous write, submitted at 50 ms, is done, while tasks write synchronously without
/// a pause for 2 s.
fn async_among(sync_tasks: u64) -> Time {
    let w = world(QueueConfig::linux(4, 6), TestDevice::new(Limits { queue_depth: 1, ..limits() }));
    let done = Rc::new(Cell::new(Time::NEVER));
    let (q, rt, d) = (w.queue.clone(), w.rt.clone(), done.clone());
    w.rt.spawn("flusher", async move {
        rt.sleep(Span::millis(50)).await;
        q.submit_wait(block(8_000_000, 1, Flags::NONE)).await.expect("written");
        d.set(rt.now());
    });
    for t in 0..sync_tasks {
        let (q, rt) = (w.queue.clone(), w.rt.clone());
        w.rt.spawn(format!("t{t}"), async move {
            for i in 0.. {
                q.submit_wait(block(800 * (i % 1000) + 8 * t, i, Flags::SYNC))
                    .await
                    .expect("written");
                if rt.now() > Time(2_000_000_000) {
                    break;
                }
            }
        });
    }
    w.rt.run();
    done.get()
}

#[test]
fn cfq_serves_asynchronous_requests_when_no_synchronous_one_is_under_way() {
    // One task leaves a gap after each of its writes: at the end of its slice, the other's turn
    // comes.
    assert!(async_among(1) < Time(150_000_000), "served at {}", async_among(1));
    // Two or more leave none: as in the kernel, the asynchronous request waits as long as they go
    // on.
    assert!(async_among(4) > Time(2_000_000_000), "served at {}", async_among(4));
    assert!(async_among(4) < Time(2_010_000_000), "served at {}", async_among(4));
}
