//! blk-mq: who issues what, and in which order.

use crate::common::{TestDevice, World, block, commit_flags, limits, world, world_on};
use wp_base::Span;
use wp_base::event::{Class, Flags, Op};
use wp_block::{Bio, ElevatorKind, IoClass, Layer, Limits, QueueConfig};
use wp_rt::{CostProfile, CpuModel, CpuOp, Rt, TimeMode};

fn none() -> QueueConfig {
    QueueConfig::linux(6, 1).with_elevator(ElevatorKind::None)
}

/// A commit as jbd2 writes it: blocks of the journal under a plug, then the record.
fn commit(w: &World) -> String {
    let queue = w.queue.clone();
    w.rt.spawn("jbd2", async move {
        let plug = queue.plug();
        (0..4).for_each(|i| queue.submit(block(800 + 8 * i, i, Flags::SYNC)));
        drop(plug);
        let last = block(832, 9, Flags::SYNC);
        queue.submit_wait(last).await.expect("written");
        queue.submit_wait(block(840, 5, commit_flags())).await.expect("committed");
    });
    w.rt.run();
    w.shape("QMIDC")
}

#[test]
fn the_flush_machine_goes_through_kblockd() {
    let w = world(QueueConfig::linux(5, 10), TestDevice::new(limits()));
    let lines = commit(&w);
    let record = lines.split_once("Q FWFS 840 8 jbd2\n").expect("the record is queued").1;
    assert_eq!(
        record,
        "D FF 0 0 kworker/0:1H\nC FF 0 0 swapper\nD WS 840 8 kworker/0:1H\nC WS 840 8 swapper\n\
         D FF 0 0 kworker/0:1H\nC FF 0 0 swapper\nC WS 848 0 swapper\n"
    );
}

#[test]
fn a_plug_is_issued_by_its_task_and_a_single_request_by_kblockd() {
    let w = world(QueueConfig::linux(5, 10), TestDevice::new(limits()));
    let lines = commit(&w);
    assert!(lines.contains("I WS 800 32 jbd2\nD WS 800 32 jbd2\n"), "{lines}");
    assert!(lines.contains("I WS 832 8 jbd2\nD WS 832 8 kworker/0:1H\n"), "{lines}");
    // Without an elevator nothing is inserted, and nobody but the task issues.
    let w = world(none(), TestDevice::new(limits()));
    let lines = commit(&w);
    assert!(!lines.contains("I "), "{lines}");
    assert!(lines.contains("D WS 832 8 jbd2\n"), "{lines}");
}

#[test]
fn a_record_for_a_device_with_fua_is_issued_by_kblockd_or_its_task_by_era() {
    for (config, issuer) in
        [(QueueConfig::linux(5, 10), "kworker/0:1H"), (QueueConfig::linux(6, 1), "a")]
    {
        let w = world(config, TestDevice::new(Limits { fua: true, ..limits() }));
        let queue = w.queue.clone();
        w.rt.spawn("a", async move {
            queue.submit_wait(block(80, 1, Flags::SYNC | Flags::FUA)).await.expect("written");
        });
        w.rt.run();
        let expected = format!("Q WFS 80 8 a\nD WFS 80 8 {issuer}\nC WFS 80 8 swapper\n");
        assert_eq!(w.shape("QIDC"), expected);
    }
}

#[test]
fn what_finds_the_device_full_is_issued_by_kblockd_and_can_still_be_merged_with() {
    for config in [QueueConfig::linux(6, 1), none()] {
        let kind = config.elevator.name();
        let w = world(config, TestDevice::new(Limits { queue_depth: 1, ..limits() }));
        let (queue, rt) = (w.queue.clone(), w.rt.clone());
        w.rt.spawn("a", async move {
            queue.submit(block(80, 1, Flags::NONE));
            rt.sleep(Span::micros(10)).await;
            queue.submit(block(800, 2, Flags::NONE));
            queue.submit(block(808, 3, Flags::NONE));
            rt.sleep(Span::millis(10)).await;
        });
        w.rt.run();
        let lines = w.shape("QMID");
        let after = lines.split_once("Q W 808 8 a\n").expect("queued").1;
        assert_eq!(after, "M W 808 8 a\nD W 800 16 kworker/0:1H\n", "{kind}: {lines}");
    }
}

#[test]
fn a_wait_under_a_plug_leaves_the_rest_to_kblockd() {
    let w = world(QueueConfig::linux(5, 10), TestDevice::new(limits()));
    let (queue, rt) = (w.queue.clone(), w.rt.clone());
    w.rt.spawn("a", async move {
        let plug = queue.plug();
        queue.submit(block(800, 1, Flags::NONE));
        queue.submit(block(80, 2, Flags::NONE));
        rt.sleep(Span::millis(1)).await;
        drop(plug);
    });
    w.rt.run();
    // In the order of submission: blk-mq sorts a plug only if it holds requests of several disks.
    let expected = "I W 800 8 a\nI W 80 8 a\nD W 800 8 kworker/0:1H\nD W 80 8 kworker/0:1H\n";
    // mq-deadline begins with the oldest request, and 80 lies behind it.
    assert_eq!(w.shape("ID"), expected);
}

#[test]
fn a_plug_is_flushed_by_count_or_by_the_size_of_its_newest_request() {
    let unplugs = |config: QueueConfig, count: u64, blocks: u64| {
        let w = world(config, TestDevice::new(limits()));
        let queue = w.queue.clone();
        w.rt.spawn("a", async move {
            let plug = queue.plug();
            for i in 0..count {
                for b in 0..blocks {
                    queue.submit(block(10_000 * i + 8 * b, i, Flags::NONE));
                }
            }
            drop(plug);
        });
        w.rt.run();
        let lines = w.shape("U");
        let counts = lines.lines().filter_map(|l| l.split(' ').nth(3)?.parse::<u32>().ok());
        counts.collect::<Vec<u32>>()
    };
    assert_eq!(unplugs(QueueConfig::linux(5, 10), 40, 1), [16, 16, 8]);
    assert_eq!(unplugs(QueueConfig::linux(6, 1), 40, 1), [32, 8]);
    assert_eq!(unplugs(QueueConfig::linux(4, 6), 40, 1), [16, 16, 8]);
    // 124 KiB wait, 128 KiB (256 sectors) do not.
    assert_eq!(unplugs(QueueConfig::linux(5, 10), 3, 31), [3]);
    assert_eq!(unplugs(QueueConfig::linux(5, 10), 3, 32), [1, 1, 1]);
    assert_eq!(unplugs(QueueConfig::linux(4, 6), 3, 32), [3]);
}

#[test]
fn a_disk_without_queued_flushes_is_emptied_before_one() {
    for (config, issuer) in
        [(QueueConfig::linux(6, 1), "kworker/0:1H"), (QueueConfig::linux(4, 6), "swapper")]
    {
        let limits = Limits { flush_beside_others: false, ..limits() };
        let w = world(config, TestDevice::new(limits));
        let (queue, rt) = (w.queue.clone(), w.rt.clone());
        let other = w.queue.clone();
        w.rt.spawn("a", async move {
            other.submit_wait(block(80, 1, Flags::SYNC)).await.expect("written");
        });
        w.rt.spawn("b", async move {
            rt.sleep(Span::micros(10)).await;
            queue.flush().await.expect("flushed");
        });
        w.rt.run();
        let log: Vec<Op> = w.log.borrow().iter().map(|l| l.0).collect();
        assert_eq!(log, [Op::Write, Op::Flush]);
        let lines = w.shape("RDC");
        let done = lines.find("C WS 80 8 swapper").expect("the write completes");
        let turned_down = lines.find("R F").expect("the flush is turned down");
        assert!(turned_down < done, "{lines}");
        let issued: Vec<&str> = lines[done..].lines().filter(|l| l.starts_with("D F")).collect();
        assert_eq!(issued.len(), 1, "{lines}");
        assert!(issued[0].ends_with(issuer), "{lines}");
    }
}

/// Two tasks flush at once, each on a core of its own: one hardware queue shares the second FLUSH's
/// wait, two have a FLUSH each in the device.
#[test]
fn flushes_of_different_hardware_queues_are_not_shared() {
    for (queues, at_once) in [(1, 1), (2, 2)] {
        let limits = Limits { hardware_queues: queues, ..limits() };
        // What costs something keeps its core busy, so the second task has the other one.
        let mut profile = CostProfile::zero();
        profile.set(CpuOp::Syscall, 1_000);
        let cpu = CpuModel { cores: 2, profile };
        let rt = Rt::with(TimeMode::Virtual, 1, cpu);
        rt.probe().set_mask(Class::BLOCK);
        let w = world_on(rt, QueueConfig::linux(6, 1), TestDevice::new(limits));
        for name in ["a", "b"] {
            let (queue, rt) = (w.queue.clone(), w.rt.clone());
            w.rt.spawn(name, async move {
                rt.cpu(CpuOp::Syscall, 1).await;
                queue.flush().await.expect("flushed");
            });
        }
        w.rt.run();
        let lines = w.shape("DC");
        let before = lines.lines().take_while(|l| l.starts_with("D F")).count();
        assert_eq!(before, at_once, "{queues} queues:\n{lines}");
        assert_eq!(lines.lines().filter(|l| l.starts_with("D F")).count(), 2, "{lines}");
    }
}

#[test]
fn a_cache_barrier_is_a_command_where_the_device_has_it_and_a_flush_elsewhere() {
    for (barrier, flags) in
        [(true, Flags::SYNC | Flags::BARRIER), (false, Flags::SYNC), (false, Flags::NONE)]
    {
        let mq = flags == Flags::NONE;
        let config = if mq { QueueConfig::linux(6, 1) } else { QueueConfig::linux(4, 6) };
        let w = world(config, TestDevice::new(Limits { barrier, ..limits() }));
        let queue = w.queue.clone();
        w.rt.spawn("a", async move {
            queue.submit_wait(block(80, 1, Flags::SYNC)).await.expect("written");
            queue.barrier().await.expect("ordered");
            queue.flush().await.expect("flushed");
        });
        w.rt.run();
        let plain = if mq { Flags::NONE } else { Flags::SYNC };
        let log: Vec<(Op, Flags)> = w.log.borrow().iter().map(|l| (l.0, l.1)).collect();
        assert_eq!(log[1..], [(Op::Flush, flags), (Op::Flush, plain)]);
    }
}

#[test]
fn a_real_time_task_goes_first() {
    let order = |config: QueueConfig| {
        let w = world(config, TestDevice::new(Limits { queue_depth: 1, ..limits() }));
        let (a, b) = (w.queue.clone(), w.queue.clone());
        w.rt.spawn("bulk", async move {
            (0..4).for_each(|i| a.submit(block(8_000 * i, i, Flags::NONE)));
        });
        let rt = w.rt.clone();
        w.rt.spawn("urgent", async move {
            b.set_io_class(rt.current().expect("a task"), IoClass::RealTime);
            b.submit(Bio::read(wp_base::Sector(96_000), 8, Flags::NONE));
            b.submit(block(4_000, 7, Flags::NONE));
            rt.sleep(Span::millis(10)).await;
        });
        w.rt.run();
        let log: Vec<u64> = w.log.borrow().iter().map(|l| l.2).collect();
        log.iter().position(|at| *at == 4_000).expect("served")
    };
    assert_eq!(order(QueueConfig::linux(6, 1)), 1);
    // By sector, after what was first.
    assert_eq!(order(QueueConfig::linux(5, 10)), 2);
}

#[test]
fn a_kernel_has_the_elevators_of_its_block_layer() {
    let of = |version, name| QueueConfig::for_kernel(version, name);
    let default = |version| of(version, None).expect("a default").elevator.name();
    assert_eq!(
        [default((3, 4)), default((4, 20)), default((5, 0)), default((6, 1))],
        ["cfq", "cfq", "mq-deadline", "mq-deadline"]
    );
    assert_eq!(of((4, 6), Some("deadline")).expect("there").layer, Layer::Single);
    assert_eq!(of((6, 1), Some("none")).expect("there").layer, Layer::Multi);
    assert_eq!(of((6, 1), Some("noop")).expect("its new name").elevator.name(), "none");
    let refused =
        |version, name: &str| QueueConfig::for_kernel(version, Some(name)).expect_err("refused");
    assert_eq!(
        refused((6, 1), "cfq"),
        "Linux 6.1 has no elevator `cfq` (elevators: none, mq-deadline)"
    );
    assert_eq!(
        refused((3, 4), "mq-deadline"),
        "Linux 3.4 has no elevator `mq-deadline` (elevators: noop, cfq, deadline)"
    );
    assert!(refused((6, 1), "lift").contains("elevators: noop, cfq"));
}
