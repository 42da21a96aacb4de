//! Event sequences as golden text. Those of real kernels are from ftrace of Linux 3.4.2, 3.8.0 and
//! 4.6.2 on QEMU's AHCI disk (CFQ, volatile cache, no FUA): actions Q I M F D C. There `C` is seen
//! by whatever task the interrupt comes upon; here by `swapper`, always.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::*;
use wp_base::event::Flags;
use wp_base::{Sector, Span, Time};
use wp_block::{Bio, ElevatorKind, QueueConfig, WaitUnplug};

const REAL: &str = "QIMFDC";

#[test]
fn a_synchronous_write_is_issued_by_its_task() {
    let w = world(QueueConfig::linux(3, 4), TestDevice::new(limits()));
    let q = w.queue.clone();
    w.rt.spawn("w2", async move {
        q.submit_wait(block(187_310_080, 9, Flags::SYNC)).await.expect("it is written");
    });
    w.rt.run();
    let expected = "\
Q WS 187310080 8 w2
G WS 187310080 8 w2
I WS 187310080 8 w2
D WS 187310080 8 w2
C WS 187310080 8 swapper
";
    assert_eq!(w.shape(""), expected);
}

/// A transaction's blocks and its commit record, as `jbd2` writes them.
async fn commit(q: Rc<wp_block::BlockQueue>, rt: wp_rt::Rt) {
    let left = Rc::new(Cell::new(5));
    {
        let _plug = q.plug();
        for i in 0..5 {
            let left = left.clone();
            q.submit(
                block(216_658_008 + 8 * i, i, Flags::SYNC)
                    .on_end(move |_| left.set(left.get() - 1)),
            );
        }
    }
    rt.sleep(Span::millis(1)).await;
    assert_eq!(left.get(), 0);
    q.submit_wait(block(216_658_048, 5, commit_flags())).await.expect("it is durable");
}

fn commit_trace(config: QueueConfig, device: TestDevice, actions: &str) -> String {
    let w = world(config, device);
    let task = commit(w.queue.clone(), w.rt.clone());
    w.rt.spawn("jbd2", task);
    w.rt.run();
    w.shape(actions)
}

/// Lines 12 to 30 of the real allocating fsync with 10 files on Linux 3.4.2.
const COMMIT_3_4: &str = "\
Q WS 216658008 8 jbd2
Q WS 216658016 8 jbd2
M WS 216658016 8 jbd2
Q WS 216658024 8 jbd2
M WS 216658024 8 jbd2
Q WS 216658032 8 jbd2
M WS 216658032 8 jbd2
Q WS 216658040 8 jbd2
M WS 216658040 8 jbd2
I WS 216658008 40 jbd2
D WS 216658008 40 jbd2
C WS 216658008 40 swapper
Q FWFS 216658048 8 jbd2
I FWFS 216658048 8 jbd2
D FWS 0 0 jbd2
D WS 216658048 8 swapper
C WS 216658048 8 swapper
D FWS 0 0 swapper
C WS 216658056 0 swapper
";

#[test]
fn a_commit_looks_as_on_linux_3_4_and_3_8() {
    let trace = commit_trace(QueueConfig::linux(3, 4), TestDevice::new(limits()), REAL);
    assert_eq!(trace, COMMIT_3_4);
    assert_eq!(commit_trace(QueueConfig::linux(3, 8), TestDevice::new(limits()), REAL), COMMIT_3_4);
}

#[test]
fn a_commit_looks_as_on_linux_4_6() {
    let trace = commit_trace(QueueConfig::linux(4, 6), TestDevice::new(limits()), REAL);
    let commit = trace.split_once("Q FWFS").expect("a commit record").1;
    let expected = " 216658048 8 jbd2
I FWFS 216658048 8 jbd2
D FWS 0 0 jbd2
C FWS 0 0 swapper
D WS 216658048 8 swapper
C WS 216658048 8 swapper
D FWS 0 0 swapper
C FWS 0 0 swapper
C WS 216658056 0 swapper
";
    assert_eq!(commit, expected);
}

#[test]
fn plugging_shows_in_the_full_trace() {
    let trace = commit_trace(QueueConfig::linux(3, 4), TestDevice::new(limits()), "QGPMIUD");
    let expected = "\
Q WS 216658008 8 jbd2
G WS 216658008 8 jbd2
P N 0 0 jbd2
Q WS 216658016 8 jbd2
M WS 216658016 8 jbd2
Q WS 216658024 8 jbd2
M WS 216658024 8 jbd2
Q WS 216658032 8 jbd2
M WS 216658032 8 jbd2
Q WS 216658040 8 jbd2
M WS 216658040 8 jbd2
I WS 216658008 40 jbd2
U N 0 1 jbd2
D WS 216658008 40 jbd2
Q FWFS 216658048 8 jbd2
G FWFS 216658048 8 jbd2
I FWFS 216658048 8 jbd2
D FWS 0 0 jbd2
D WS 216658048 8 swapper
D FWS 0 0 swapper
";
    assert_eq!(trace, expected);
}

#[test]
fn a_commit_on_a_device_with_fua_needs_one_flush() {
    let device = TestDevice::new(wp_block::Limits { fua: true, ..limits() });
    let trace = commit_trace(QueueConfig::linux(4, 6), device, REAL);
    let commit = trace.split_once("Q FWFS").expect("a commit record").1;
    let expected = " 216658048 8 jbd2
I FWFS 216658048 8 jbd2
D FWS 0 0 jbd2
C FWS 0 0 swapper
D WFS 216658048 8 swapper
C WFS 216658048 8 swapper
C WFS 216658056 0 swapper
";
    assert_eq!(commit, expected);
}

#[test]
fn a_commit_on_a_device_without_a_cache_is_a_plain_write() {
    let device = TestDevice::new(wp_block::Limits { volatile_cache: false, ..limits() });
    let trace = commit_trace(QueueConfig::linux(3, 4), device, REAL);
    assert!(trace.ends_with(
        "\
Q WS 216658048 8 jbd2
I WS 216658048 8 jbd2
D WS 216658048 8 jbd2
C WS 216658048 8 swapper
"
    ));
    assert!(!trace.contains('F'));
}

#[test]
fn an_empty_flush_is_one_command_or_none() {
    for (cache, expected) in [
        (true, "Q FWS 0 0 t\nI FWS 0 0 t\nD FWS 0 0 t\nC FWS 0 0 swapper\nC WS 0 0 swapper\n"),
        (false, ""),
    ] {
        let device = TestDevice::new(wp_block::Limits { volatile_cache: cache, ..limits() });
        let w = world(QueueConfig::linux(4, 6), device);
        let q = w.queue.clone();
        w.rt.spawn("t", async move {
            q.flush().await.expect("flushed");
            // Without a cache it ends in the queue's entry, too.
            if !cache {
                q.submit_wait(Bio::flush()).await.expect("flushed");
            }
        });
        w.rt.run();
        assert_eq!(w.shape(REAL), expected);
    }
}

#[test]
fn flushes_that_are_pending_together_are_one() {
    let w = world(QueueConfig::linux(3, 4), TestDevice::new(limits()));
    for i in 0..4u64 {
        let q = w.queue.clone();
        w.rt.spawn(format!("t{i}"), async move {
            q.submit_wait(block(800 * i, i, commit_flags())).await.expect("durable");
        });
    }
    w.rt.run();
    // t0's preflush goes alone; t1..t3 gather behind it. t0's record is then under way, so their
    // preflush is put off until it is done, and serves as t0's postflush too. Then three records,
    // then one postflush for all.
    let expected = "\
D FWS 0 0 t0
D WS 0 8 swapper
C WS 0 8 swapper
D FWS 0 0 swapper
C WS 8 0 swapper
D WS 2400 8 swapper
D WS 1600 8 swapper
D WS 800 8 swapper
C WS 2400 8 swapper
C WS 1600 8 swapper
C WS 800 8 swapper
D FWS 0 0 swapper
C WS 2408 0 swapper
C WS 1608 0 swapper
C WS 808 0 swapper
";
    // The data of a shared flush are queued each at the head, so the last comes first, as in the
    // kernel.
    assert_eq!(w.shape("DC"), expected);
    assert_eq!(w.queue.counters().flushes, 3);
    assert_eq!(w.queue.counters().flush_steps, 8);
}

#[test]
fn a_flush_sequence_that_waits_long_is_not_put_off_any_more() {
    // A FUA write without preflush always has data under way; 5 s after a flush became pending it
    // goes all the same.
    let mut device = TestDevice::new(limits());
    device.latency = Latency::Fixed(Span::millis(700));
    let w = world(QueueConfig::linux(3, 4), device);
    for i in 0..2u64 {
        let q = w.queue.clone();
        let rt = w.rt.clone();
        w.rt.spawn(format!("fua{i}"), async move {
            rt.sleep(Span::millis(350 * i)).await;
            for n in 0..20 {
                let bio = block(8 * (n + 100 * i), n, Flags::SYNC | Flags::FUA);
                let q = q.clone();
                rt.spawn("one", async move { q.submit_wait(bio).await.expect("durable") });
                rt.sleep(Span::millis(700)).await;
            }
        });
    }
    w.rt.run();
    let flushes = w.queue.counters().flushes;
    assert!((2..=6).contains(&flushes), "{flushes} flushes in 15 s of overlapping FUA writes");
}

/// The flusher's data blocks of 100 files on Linux 3.8.0: 32 are issued one by one, the 33rd finds
/// the disk full. From then on bios merge in the elevator, up to 256 sectors, and completions issue
/// them.
#[test]
fn what_finds_the_queue_full_is_issued_by_completions() {
    let w = world(
        QueueConfig::linux(3, 8),
        TestDevice::new(wp_block::Limits { queue_depth: 31, ..limits() }),
    );
    let q = w.queue.clone();
    w.rt.spawn("flush-8:112", async move {
        for i in 0..98 {
            let _plug = q.plug();
            q.submit(block(187_306_000 + 8 * i, i, Flags::NONE));
        }
        let _plug = q.plug();
        (0..7).for_each(|i| q.submit(block(187_044_104 + 8 * i, i, Flags::NONE)));
    });
    w.rt.run();
    w.rt.run_until(Time(1_000_000_000));
    let trace = w.shape("MIDC");
    let lines: Vec<&str> = trace.lines().collect();
    // 31 in the device, and one that the driver has seen and cannot send.
    let by_flusher =
        lines.iter().filter(|l| l.starts_with("D W ") && l.ends_with("flush-8:112")).count();
    assert_eq!(by_flusher, 32);
    assert_eq!(lines[64], "I W 187306256 8 flush-8:112");
    assert_eq!(lines[65], "M W 187306264 8 flush-8:112");
    let later: Vec<&str> =
        lines.iter().filter(|l| l.starts_with("D W ") && l.ends_with("swapper")).copied().collect();
    let expected = [
        "D W 187306256 256 swapper",
        "D W 187306512 256 swapper",
        "D W 187306768 16 swapper",
        "D W 187044104 56 swapper",
    ];
    assert_eq!(later, expected);
    // The first completion, then the first dispatch.
    let at = lines.iter().position(|l| *l == expected[0]).expect("issued");
    assert_eq!(lines[at - 1], "C W 187306000 8 swapper");
    assert_eq!(lines[at + 1], "C W 187306008 8 swapper");
}

#[test]
fn what_the_device_has_no_room_for_can_stay_in_the_elevator() {
    let mut config = QueueConfig::linux(4, 6);
    config.habits.issue_ahead = false;
    let w = world(config, TestDevice::new(wp_block::Limits { queue_depth: 1, ..limits() }));
    let q = w.queue.clone();
    w.rt.spawn("t", async move {
        q.submit(block(0, 0, Flags::NONE));
        q.submit(block(80, 0, Flags::NONE));
        q.submit_wait(block(88, 0, Flags::NONE)).await.expect("written");
    });
    w.rt.run();
    let expected = "D W 0 8 t\nM W 88 8 t\nC W 0 8 swapper\nD W 80 16 swapper\nC W 80 16 swapper\n";
    assert_eq!(w.shape("MDC"), expected);
}

/// Checkpoint of 100 files' inode tables: on 4.6.2 the plug is sorted, the last block joins the
/// request before it as it is inserted (`I`, and no `D` of its own), and the first is issued at
/// once, as it preempts a queue whose slice ran out long ago. On 3.8.0 the order is that of
/// submission.
#[test]
fn a_checkpoint_is_sorted_in_4_6_and_not_in_3_8() {
    let run = |config: QueueConfig| {
        let mut device = TestDevice::new(limits());
        device.latency = Latency::Fixed(Span::millis(1));
        let w = world(config, device);
        let (q, rt) = (w.queue.clone(), w.rt.clone());
        w.rt.spawn("jbd2", async move {
            q.submit_wait(block(216_658_144, 1, Flags::SYNC)).await.expect("written");
            rt.sleep(Span::secs(15)).await;
            let q2 = q.clone();
            rt.spawn("flusher", async move {
                let _plug = q2.plug();
                for at in [187_044_152, 187_035_656, 187_043_856] {
                    q2.submit(block(at, at, Flags::META));
                }
                for i in 0..6 {
                    q2.submit(block(187_044_104 + 8 * i, i, Flags::META));
                }
            })
            .await;
        });
        w.rt.run();
        w.rt.run_until(Time(20_000_000_000));
        w.shape("ID").lines().skip(2).map(|l| format!("{l}\n")).collect::<String>()
    };
    let expected = "\
I WM 187035656 8 flusher
D WM 187035656 8 flusher
I WM 187043856 8 flusher
I WM 187044104 48 flusher
I WM 187044152 8 flusher
D WM 187043856 8 flusher
D WM 187044104 56 flusher
";
    assert_eq!(run(QueueConfig::linux(4, 6)), expected);
    let expected = "\
I WM 187044152 8 flusher
D WM 187044152 8 flusher
I WM 187035656 8 flusher
I WM 187043856 8 flusher
I WM 187044104 48 flusher
D WM 187044104 48 flusher
D WM 187043856 8 flusher
D WM 187035656 8 flusher
";
    assert_eq!(run(QueueConfig::linux(3, 8)), expected);
}

#[test]
fn a_bio_joins_the_front_of_a_plugged_request() {
    let w = world(QueueConfig::linux(3, 4), TestDevice::new(limits()));
    let q = w.queue.clone();
    w.rt.spawn("flush-8:48", async move {
        let _plug = q.plug();
        for at in [187_044_112, 187_035_656, 187_043_856, 187_044_104] {
            q.submit(block(at, at, Flags::NONE));
        }
    });
    w.rt.run();
    // As on 3.4.2 at 40.9 s, but for the preemption.
    let expected = "\
Q W 187044112 8 flush-8:48
Q W 187035656 8 flush-8:48
Q W 187043856 8 flush-8:48
Q W 187044104 8 flush-8:48
F W 187044104 8 flush-8:48
I W 187044104 16 flush-8:48
I W 187035656 8 flush-8:48
I W 187043856 8 flush-8:48
";
    assert_eq!(w.shape("QIMF"), expected);
}

#[test]
fn the_seventeenth_request_flushes_the_plug_first() {
    let w = world(QueueConfig::linux(4, 6), TestDevice::new(limits()));
    let q = w.queue.clone();
    w.rt.spawn("t", async move {
        let _plug = q.plug();
        (0..18).for_each(|i| q.submit(block(80 * i, i, Flags::SYNC)));
        assert_eq!(q.plugged(), 2);
    });
    w.rt.run();
    let kinds: String = w
        .shape("PUQGI")
        .chars()
        .filter(char::is_ascii_uppercase)
        .filter(|c| "PUQGI".contains(*c))
        .collect();
    let expected = format!("QGP{}QG{}UPQG{}U", "QG".repeat(15), "I".repeat(16), "II");
    assert_eq!(kinds, expected);
}

#[test]
fn a_task_that_waits_flushes_its_plug_and_issues_itself_or_has_kblockd_do_it() {
    assert_eq!(waiting_under_a_plug(WaitUnplug::Task), UNPLUGGED.replace("KWORKER", "t"));
    let by_kblockd = waiting_under_a_plug(WaitUnplug::Kblockd);
    assert_eq!(by_kblockd, UNPLUGGED.replace("KWORKER", "kworker/0:1H"));
}

const UNPLUGGED: &str = "\
I WS 80 8 t
I WS 0 8 t
U N 0 2 t
D WS 0 8 KWORKER
D WS 80 8 KWORKER
C WS 0 8 swapper
C WS 80 8 swapper
";

fn waiting_under_a_plug(on_wait: WaitUnplug) -> String {
    let mut config = QueueConfig::linux(3, 4);
    config.plug.on_wait = on_wait;
    let w = world(config, TestDevice::new(limits()));
    let q = w.queue.clone();
    w.rt.spawn("t", async move {
        let _plug = q.plug();
        q.submit(block(80, 1, Flags::SYNC));
        q.submit_wait(block(0, 2, Flags::SYNC)).await.expect("written");
    });
    w.rt.run_until(Time(1_000_000_000));
    w.shape("IUDC")
}

#[test]
fn nested_plugs_are_the_outermost_one() {
    let w = world(QueueConfig::linux(3, 4), TestDevice::new(limits()));
    let q = w.queue.clone();
    w.rt.spawn("t", async move {
        let outer = q.plug();
        {
            let _inner = q.plug();
            q.submit(block(0, 1, Flags::SYNC));
        }
        assert_eq!((q.plugged(), q.in_flight()), (1, 0));
        drop(outer);
        assert_eq!((q.plugged(), q.in_flight()), (0, 1));
    });
    w.rt.run();
}

#[test]
fn a_partition_remaps_and_checks() {
    let mut config = QueueConfig::linux(3, 4);
    config.habits.remap_event = true;
    let w = world(config, TestDevice::new(limits()));
    let part = w.queue.partition(Sector(2048), 1024);
    assert_eq!((part.start(), part.limits().sectors), (Sector(2048), 1024));
    let p = part.clone();
    let beyond = w.rt.block_on("t", async move {
        p.submit_wait(block(16, 1, Flags::SYNC)).await.expect("inside");
        let data = p.submit_wait(Bio::read(Sector(16), 8, Flags::NONE)).await.expect("inside");
        let bytes: Vec<u8> = wp_medium::Slice::concat(&data);
        assert!(bytes == wp_medium::Slice::pattern(1, 0, 4096).to_vec());
        p.submit_wait(block(1020, 1, Flags::SYNC)).await
    });
    assert_eq!(beyond.expect("it ran"), Err(wp_block::Status::Io));
    let expected = "\
A WS 2064 8 t
Q WS 2064 8 t
G WS 2064 8 t
I WS 2064 8 t
D WS 2064 8 t
C WS 2064 8 swapper
";
    assert!(w.shape("").starts_with(expected));
}

#[test]
fn a_device_without_scatter_gather_gets_a_command_for_each_segment() {
    let mut config = QueueConfig::linux(3, 4);
    config.driver = wp_block::DriverKind::OneSegmentPerDma;
    let w = world(config, TestDevice::new(wp_block::Limits { queue_depth: 2, ..limits() }));
    let (q, rt) = (w.queue.clone(), w.rt.clone());
    w.rt.spawn("t", async move {
        {
            let _plug = q.plug();
            (0..5).for_each(|i| q.submit(block(8 * i, i, Flags::SYNC)));
        }
        rt.sleep(Span::millis(1)).await;
        let data = q.submit_wait(Bio::read(Sector(4), 20, Flags::NONE)).await.expect("read");
        let bytes: Vec<u8> = wp_medium::Slice::concat(&data);
        let written = (0..5).flat_map(|i| wp_medium::Slice::pattern(i, 0, 4096).to_vec());
        assert!(bytes == written.skip(4 * 512).take(20 * 512).collect::<Vec<_>>());
    });
    w.rt.run();
    let expected = "I WS 0 40 t\nD WS 0 40 t\nC WS 0 40 swapper\nI R 4 20 t\n";
    let trace = w.shape("IDC");
    assert!(trace.starts_with(expected), "{trace}");
    let commands: Vec<(u64, u32)> = w.log.borrow().iter().map(|c| (c.2, c.3)).collect();
    assert_eq!(commands, [(0, 8), (8, 8), (16, 8), (24, 8), (32, 8), (4, 8), (12, 8), (20, 4)]);
}

#[test]
fn a_bio_that_is_too_large_is_split() {
    let w = world(QueueConfig::linux(4, 6), TestDevice::new(limits()));
    let q = w.queue.clone();
    w.rt.spawn("t", async move {
        let segs = (0..75).map(|i| wp_medium::Slice::pattern(i, 0, 4096)).collect::<Vec<_>>();
        let bytes: Vec<u8> = wp_medium::Slice::concat(&segs);
        q.submit_wait(Bio::write(Sector(0), segs, Flags::SYNC)).await.expect("written");
        let read = q.submit_wait(Bio::read(Sector(0), 600, Flags::NONE)).await.expect("read");
        assert!(wp_medium::Slice::concat(&read) == bytes);
    });
    w.rt.run();
    let trace = w.shape("QXD");
    let expected = "\
Q WS 0 600 t
X WS 0 256 t
X WS 256 256 t
D WS 0 256 t
D WS 256 256 t
D WS 512 88 t
";
    assert!(trace.starts_with(expected), "{trace}");
}

#[test]
fn a_busy_device_is_asked_again() {
    let mut device = TestDevice::new(limits());
    device.refuse = 2;
    let w = world(QueueConfig::linux(4, 6), device);
    let q = w.queue.clone();
    w.rt.spawn("t", async move {
        q.submit_wait(block(0, 1, Flags::SYNC)).await.expect("written");
    });
    w.rt.run();
    let expected = "D WS 0 8 t\nR WS 0 8 t\nD WS 0 8 swapper\nR WS 0 8 swapper\nD WS 0 8 swapper\nC WS 0 8 swapper\n";
    assert_eq!(w.shape("DRC"), expected);
    assert!(w.rt.now() > Time(6_000_000), "3 ms each time");
}

#[test]
fn a_flush_that_other_commands_cannot_run_beside_holds_the_queue() {
    for (beside, expected) in [
        (true, "D FWS 0 0 a\nD WS 80 8 b\nC WS 80 8 swapper\nC WS 0 0 swapper\n"),
        (false, "D FWS 0 0 a\nC WS 0 0 swapper\nD WS 80 8 swapper\nC WS 80 8 swapper\n"),
    ] {
        let limits = wp_block::Limits { flush_beside_others: beside, ..limits() };
        let w = world(QueueConfig::linux(3, 4), TestDevice::new(limits));
        let (a, b) = (w.queue.clone(), w.queue.clone());
        w.rt.spawn("a", async move { a.flush().await.expect("flushed") });
        w.rt.spawn("b", async move {
            b.submit_wait(block(80, 1, Flags::SYNC)).await.expect("written");
        });
        w.rt.run();
        let mut lines: Vec<String> = w.shape("DC").lines().map(|l| format!("{l}\n")).collect();
        if beside {
            // Both complete at one instant.
            lines[2..].sort_by_key(|l| l.contains("0 0"));
        }
        assert_eq!(lines.concat(), expected);
    }
}

#[test]
fn noop_serves_in_the_order_of_arrival_and_mixes_sync_with_async() {
    let config = QueueConfig::linux(3, 4).with_elevator(ElevatorKind::Noop);
    let w = world(config, TestDevice::new(wp_block::Limits { queue_depth: 1, ..limits() }));
    let q = w.queue.clone();
    w.rt.spawn("t", async move {
        for at in [1000, 2000, 400, 3000] {
            q.submit(block(at, at, Flags::NONE));
        }
        // Joins an asynchronous request at its back.
        q.submit_wait(block(3008, 5, Flags::SYNC)).await.expect("written");
    });
    w.rt.run();
    let expected =
        "D W 1000 8 t\nD W 2000 8 t\nM WS 3008 8 t\nD W 400 8 swapper\nD W 3000 16 swapper\n";
    assert_eq!(w.shape("MD"), expected);
}

#[test]
fn cfq_serves_synchronous_requests_first() {
    let w = world(
        QueueConfig::linux(4, 6),
        TestDevice::new(wp_block::Limits { queue_depth: 1, ..limits() }),
    );
    let (q, s) = (w.queue.clone(), w.queue.clone());
    w.rt.spawn("flusher", async move {
        (0..6).for_each(|i| q.submit(block(80 * i, i, Flags::NONE)));
    });
    w.rt.spawn("fsync", async move {
        s.submit_wait(block(100_000, 9, Flags::SYNC)).await.expect("written");
        s.submit_wait(block(100_800, 9, Flags::SYNC)).await.expect("written");
    });
    w.rt.run();
    w.rt.run_until(Time(1_000_000_000));
    let trace = w.shape("D");
    let order: Vec<&str> = trace.lines().map(|l| l.split(' ').nth(2).expect("a sector")).collect();
    // Two asynchronous ones were with the driver already.
    assert_eq!(order, ["0", "80", "100000", "100800", "160", "240", "320", "400"]);
    // Under noop they would be last.
    assert!(w.queue.counters().completed == 8);
}

#[test]
fn cfq_does_not_merge_a_synchronous_bio_into_an_asynchronous_request() {
    let w = world(
        QueueConfig::linux(4, 6),
        TestDevice::new(wp_block::Limits { queue_depth: 1, ..limits() }),
    );
    let q = w.queue.clone();
    w.rt.spawn("t", async move {
        q.submit(block(0, 0, Flags::NONE));
        q.submit(block(80, 0, Flags::NONE));
        q.submit(block(160, 1, Flags::NONE));
        q.submit_wait(block(168, 2, Flags::SYNC)).await.expect("written");
    });
    w.rt.run();
    assert_eq!(w.queue.counters().back_merges, 0);
}

fn sectors_of(trace: &str) -> Vec<&str> {
    trace.lines().map(|l| l.split(' ').nth(2).expect("a sector")).collect()
}

#[test]
fn deadline_serves_a_batch_upwards_by_sector() {
    let config = QueueConfig::linux(3, 4).with_elevator(ElevatorKind::Deadline);
    let w = world(config, TestDevice::new(wp_block::Limits { queue_depth: 1, ..limits() }));
    let q = w.queue.clone();
    w.rt.spawn("t", async move {
        for at in [8000, 1000, 5000, 3000, 7000, 2000] {
            q.submit(block(at, at, Flags::NONE));
        }
    });
    w.rt.run();
    w.rt.run_until(Time(1_000_000_000));
    // 8000 and 1000 were with the driver before the others came. Then the oldest begins a batch
    // that goes upwards, and the next oldest another.
    assert_eq!(sectors_of(&w.shape("D")), ["8000", "1000", "5000", "7000", "3000", "2000"]);
}

#[test]
fn deadline_lets_two_batches_of_reads_pass_and_then_writes() {
    let config = QueueConfig::linux(3, 4).with_elevator(ElevatorKind::Deadline);
    let w = world(config, TestDevice::new(wp_block::Limits { queue_depth: 1, ..limits() }));
    let q = w.queue.clone();
    w.rt.spawn("t", async move {
        for i in 0..3 {
            q.submit(block(1_000_000 + 80 * i, i, Flags::NONE));
        }
        for i in 0..60 {
            q.submit(Bio::read(Sector(80 * i), 8, Flags::NONE));
        }
    });
    w.rt.run();
    w.rt.run_until(Time(10_000_000_000));
    let trace = w.shape("D");
    let kinds: Vec<bool> = trace.lines().map(|l| l.starts_with("D R")).collect();
    assert_eq!(kinds.len(), 63);
    // Two writes were with the driver before any read came; the third waits for two batches of 16.
    let third =
        kinds.iter().enumerate().filter(|(_, read)| !**read).nth(2).expect("three writes").0;
    assert_eq!(third, 2 + 32, "{trace}");
}
