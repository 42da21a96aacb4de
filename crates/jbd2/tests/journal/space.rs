//! Credits, room in the log, checkpoints and the log's tail.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use wp_base::kernel::Version;
use wp_base::{FsError, Span};
use wp_cache::BufFlag;
use wp_jbd2::{Credits, Era, JournalOptions, RecoverPolicy, TransactionState, disk, recover};
use wp_medium::Overlay;

use crate::world::{Config, History, World, contents, set_blocks, world};

fn checked(w: &World, history: &History, expect_end: u32) {
    let view = w.view(w.all());
    let overlay = Overlay::new(&view);
    let report = recover(&overlay, &w.log, w.bs, &RecoverPolicy::linux(6, 18)).expect("recovers");
    assert_eq!(report.end_tid, expect_end, "{report:?}");
    crate::crash::assert_state(&overlay, w.bs, history, expect_end.wrapping_sub(1), "all kept");
}

#[test]
fn handle_waits_while_the_transaction_is_locked() {
    let w = world(&Config::default());
    let (rt, j) = (w.rt.clone(), w.journal.clone());
    let order: Rc<RefCell<Vec<&str>>> = Rc::default();
    let (o1, o2) = (order.clone(), order.clone());
    let (rt2, j2) = (rt.clone(), j.clone());
    w.rt.spawn("holder", async move {
        let h = j.start(1).await.expect("starts");
        j.request_commit(h.tid());
        rt.sleep(Span::millis(5)).await;
        assert_eq!(j.transaction_state(h.tid()), Some(TransactionState::Locked));
        o1.borrow_mut().push("holder stops");
        h.stop().await.expect("stops");
    });
    w.rt.spawn("joiner", async move {
        rt2.sleep(Span::millis(1)).await;
        let h = j2.start(1).await.expect("starts");
        o2.borrow_mut().push("joiner starts");
        assert_eq!(h.tid(), 3, "in the next transaction");
        assert!(
            j2.committing_tid().is_some(),
            "as soon as the other one is flushing, not when it is committed"
        );
        h.stop().await.expect("stops");
    });
    w.settle();
    assert_eq!(*order.borrow(), ["holder stops", "joiner starts"]);
    assert_eq!(w.journal.counters().locked_waits, 1);
    w.cut();
}

#[test]
fn full_transaction_is_committed_and_the_handle_joins_the_next() {
    let w = world(&Config::default());
    let max = w.journal.transaction_blocks_max();
    assert_eq!(max, 256, "a quarter of the log");
    let j = w.journal.clone();
    w.run(async move {
        let a = j.start(200).await.expect("starts");
        let first = a.tid();
        assert!(!a.extend(100), "no room for so many");
        assert!(a.extend(10));
        a.stop().await.expect("stops");
        // Unused credits came back.
        let b = j.start(200).await.expect("starts");
        assert_eq!(b.tid(), first);
        let j2 = j.clone();
        b.stop().await.expect("stops");
        let c = j2.start(150).await.expect("starts");
        let d = j2.start(60).await.expect("starts");
        assert_eq!(d.tid(), first);
        c.stop().await.expect("stops");
        d.stop().await.expect("stops");
    });
    let (rt, j) = (w.rt.clone(), w.journal.clone());
    w.rt.spawn("big", async move {
        let a = j.start(200).await.expect("starts");
        rt.sleep(Span::millis(3)).await;
        a.stop().await.expect("stops");
    });
    let j = w.journal.clone();
    w.run(async move {
        let running = j.running_tid().expect("running");
        let b = j.start(100).await.expect("starts");
        assert_eq!(b.tid(), running + 1);
        assert!(j.counters().full_waits >= 1);
        b.stop().await.expect("stops");
        assert_eq!(j.start(300).await.err(), Some(FsError::NoSpace), "no transaction holds that");
    });
    w.cut();
}

#[test]
fn restart_moves_the_handle_to_the_next_transaction() {
    let w = world(&Config::default());
    let (rt, j, bdev) = (w.rt.clone(), w.journal.clone(), w.bdev.clone());
    w.run(async move {
        let h = j.start(1).await.expect("starts");
        let first = h.tid();
        let b = bdev.read(10).await.expect("reads");
        h.get_write_access(&b).await.expect("access");
        crate::world::fill(&b, 1);
        h.dirty_metadata(&b).expect("dirty");
        // Someone else holds the transaction open: it is locked for its commit, and restarting
        // means the next one.
        let other = j.start(1).await.expect("starts");
        j.request_commit(first);
        rt.sleep(Span::millis(1)).await;
        let j2 = j.clone();
        rt.spawn("other", async move {
            let _ = j2;
            other.stop().await.expect("stops");
        });
        h.restart(2).await.expect("restarts");
        assert_eq!((h.tid(), h.credits()), (first + 1, 2));
        h.get_write_access(&b).await.expect("access");
        crate::world::fill(&b, 2);
        h.dirty_metadata(&b).expect("dirty");
        h.stop().await.expect("stops");
        j.force_commit().await.expect("commits");
        assert_eq!(j.commit_sequence(), first + 1);
    });
    w.cut();
}

#[test]
fn reserved_handle_joins_a_locked_transaction_and_never_waits_for_room() {
    let w = world(&Config::default());
    let (rt, j) = (w.rt.clone(), w.journal.clone());
    w.run(async move {
        let parent =
            j.start_with(Credits { blocks: 1, revokes: 0, reserve: 5 }).await.expect("starts");
        let reserved = parent.take_reserved().expect("reserved");
        assert_eq!(reserved.blocks(), 5);
        let tid = parent.tid();
        j.request_commit(tid);
        rt.sleep(Span::millis(2)).await;
        assert_eq!(j.transaction_state(tid), Some(TransactionState::Locked));
        let child = j.start_reserved(reserved).await.expect("joins although it is locked");
        assert_eq!(child.tid(), tid);
        child.stop().await.expect("stops");
        parent.stop().await.expect("stops");
        j.wait_commit(tid).await.expect("commits");
        // A reservation outlives its parent's transaction; dropped unused, it is given back.
        let parent =
            j.start_with(Credits { blocks: 1, revokes: 0, reserve: 100 }).await.expect("starts");
        let reserved = parent.take_reserved().expect("reserved");
        parent.stop().await.expect("stops");
        j.force_commit().await.expect("commits");
        let h = j.start(100).await.expect("starts");
        assert!(!h.extend(100), "100 are spoken for");
        drop(reserved);
        assert!(h.extend(100));
        h.stop().await.expect("stops");
    });
    w.cut();
}

#[test]
fn too_many_reservations_wait_for_one_to_go() {
    let w = world(&Config::default());
    let (rt, j) = (w.rt.clone(), w.journal.clone());
    let (rt2, j2) = (rt.clone(), j.clone());
    w.rt.spawn("first", async move {
        let h =
            j.start_with(Credits { blocks: 1, revokes: 0, reserve: 100 }).await.expect("starts");
        rt.sleep(Span::millis(4)).await;
        h.stop().await.expect("stops");
    });
    w.rt.spawn("second", async move {
        rt2.sleep(Span::millis(1)).await;
        let h =
            j2.start_with(Credits { blocks: 1, revokes: 0, reserve: 100 }).await.expect("starts");
        assert!(rt2.now().0 >= 4_000_000, "half a transaction may be reserved, not more");
        assert_eq!(j2.counters().reserved_waits, 1);
        h.stop().await.expect("stops");
    });
    w.settle();
    w.cut();
}

/// Fills the log several times over; every block is set many times.
fn hammer(c: &Config, rounds: u64, blocks_each: u64) -> (World, History) {
    let w = world(c);
    let history = History::default();
    for n in 0..2u64 {
        let (j, bdev, history) = (w.journal.clone(), w.bdev.clone(), history.clone());
        w.rt.spawn(format!("writer {n}"), async move {
            for round in 1..=rounds {
                // Most blocks are changed once and must be written home to make room; some again
                // and again.
                let blocks: Vec<u64> = (0..blocks_each)
                    .map(|i| if i < 4 { 10 + i } else { 2000 + (round * 80 + n * 40 + i) % 1500 })
                    .collect();
                let mut blocks = blocks;
                blocks.sort_unstable();
                blocks.dedup();
                let tid = set_blocks(&j, &bdev, &history, round * 2 + n, &blocks)
                    .await
                    .expect("a handle");
                if round % 3 == n {
                    j.complete_transaction(tid).await.expect("commits");
                }
            }
        });
    }
    w.settle();
    (w, history)
}

#[test]
fn log_wraps_and_lack_of_room_forces_checkpoints() {
    for era in [
        Era::of(Version(3, 4, 0)),
        Era::of(Version(4, 6, 0)),
        Era::of(Version(6, 1, 0)),
        Era::of(Version(6, 18, 0)),
    ] {
        let options = JournalOptions { era, ..JournalOptions::default() };
        let c = Config { options, incompat: 0, split_log: true, ..Config::default() };
        let (w, history) = hammer(&c, 120, 40);
        let n = w.journal.counters();
        assert!(n.checkpoints > 3 && n.space_waits > 0, "{n:?}");
        assert!(n.blocks_logged + n.control_blocks > 3 * 1024, "{n:?}");
        checked(&w, &history, w.journal.commit_sequence() + 1);
        let j = w.journal.clone();
        w.run(async move { j.destroy().await }).expect("closes");
        let state = history.upto(u32::MAX / 2);
        for (block, change) in state {
            let crate::world::Change::Set(id) = change else { continue };
            assert_eq!(w.on_device(block), contents(id, block, 1024));
        }
        w.cut();
    }
}

#[test]
fn forced_checkpoint_writes_batches_of_64_and_flushes_before_the_tail_moves() {
    use wp_base::event::{BlockAction, Event, rwbs};
    let w = world(&Config::default());
    let (j, bdev) = (w.journal.clone(), w.bdev.clone());
    w.run(async move {
        let all: Vec<u64> = (10..160).collect();
        set_blocks(&j, &bdev, &History::default(), 1, &all).await.expect("a handle");
        j.force_commit().await.expect("commits");
    });
    w.trace();
    let j = w.journal.clone();
    w.run(async move { j.checkpoint_all().await }).expect("checkpoints");
    let lines: Vec<String> = w
        .events()
        .into_iter()
        .filter_map(|r| match r.event {
            Event::Block { action: BlockAction::Issue, op, flags, at, sectors, .. } => {
                Some(format!("{} {} {}", rwbs(op, flags), at.0 / 2, sectors / 2))
            }
            Event::Jbd2 { what, .. } => Some(what.to_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(
        lines,
        [
            "checkpoint",
            "WS 10 64",
            "WS 74 64",
            "WS 138 22",
            "checkpoint_stats",
            // What is home is flushed; then the superblock with FUA; then the log is marked empty.
            "FWS 0 0",
            "write_superblock",
            "WFSM 400 1",
            "update_log_tail",
            "write_superblock",
            "WFSM 400 1",
        ]
    );
    assert_eq!(w.journal.free_blocks(), 1023);
    w.cut();
}

#[test]
fn checkpoint_commits_the_newer_owner_of_its_buffer_first() {
    let w = world(&Config::default());
    let (j, bdev) = (w.journal.clone(), w.bdev.clone());
    let history = History::default();
    let h2 = history.clone();
    w.run(async move {
        set_blocks(&j, &bdev, &h2, 1, &[10, 11]).await.expect("a handle");
        j.force_commit().await.expect("commits");
        set_blocks(&j, &bdev, &h2, 2, &[11]).await.expect("a handle");
        let b = bdev.read(11).await.expect("reads");
        assert!(b.flag(BufFlag::JbdDirty));
        j.checkpoint_all().await.expect("checkpoints");
        assert!(!b.flag(BufFlag::Dirty) && !b.flag(BufFlag::JbdDirty));
    });
    assert_eq!(w.on_device(11), contents(2, 11, 1024));
    let c = w.journal.counters();
    assert_eq!(c.commits, 2);
    w.cut();
}

#[test]
fn commit_moves_the_tail_by_its_own_flush_when_that_frees_enough() {
    // The flusher writes home what the first transactions logged; a later commit finds the log
    // mostly free and updates the superblock without a flush of its own.
    use wp_base::event::{BlockAction, Event, Op};
    let w = world(&Config::default());
    let (j, bdev, wb) = (w.journal.clone(), w.bdev.clone(), w.wb.clone());
    let history = History::default();
    w.run(async move {
        for id in 1..4 {
            let all: Vec<u64> = (10..160).collect();
            set_blocks(&j, &bdev, &history, id, &all).await.expect("a handle");
            j.force_commit().await.expect("commits");
        }
        wb.write_all(true).await;
        wb.wait_idle().await;
        let before = j.tail();
        set_blocks(&j, &bdev, &history, 5, &[170]).await.expect("a handle");
        assert_eq!(j.tail(), before);
    });
    w.trace();
    let j = w.journal.clone();
    w.run(async move { j.force_commit().await }).expect("commits");
    assert_eq!(
        w.journal.tail().0,
        w.journal.commit_sequence(),
        "the tail is the commit's own start"
    );
    let flushes = w
        .events()
        .iter()
        .filter(|r| {
            matches!(r.event, Event::Block { action: BlockAction::Issue, op: Op::Flush, .. })
        })
        .count();
    assert_eq!(flushes, 1, "the record's own");
    w.cut();
}

#[test]
fn large_transaction_takes_several_descriptors() {
    for incompat in [0, disk::INCOMPAT_CSUM_V2, disk::INCOMPAT_CSUM_V3 | disk::INCOMPAT_64BIT] {
        let w = world(&Config { incompat, ..Config::default() });
        let (j, bdev) = (w.journal.clone(), w.bdev.clone());
        let history = History::default();
        let h2 = history.clone();
        w.run(async move {
            let all: Vec<u64> = (10..250).collect();
            set_blocks(&j, &bdev, &h2, 3, &all).await.expect("a handle");
            j.force_commit().await.expect("commits");
        });
        assert!(w.journal.counters().control_blocks > 2, "more than a descriptor and a record");
        assert_eq!(w.journal.counters().escaped, 240);
        checked(&w, &history, w.journal.commit_sequence() + 1);
        w.cut();
    }
}

#[test]
fn handles_that_wait_for_room_do_not_deadlock_with_the_flusher() {
    let c = Config::default();
    let w = world(&c);
    w.shared.jitter.set(true);
    let done = Rc::new(Cell::new(0u32));
    for n in 0..8u64 {
        let (j, bdev, done, rt) = (w.journal.clone(), w.bdev.clone(), done.clone(), w.rt.clone());
        w.rt.spawn(format!("writer {n}"), async move {
            let mut rng = rt.rng(&format!("writer {n}"));
            let history = History::default();
            for id in 1..80u64 {
                let mut blocks: Vec<u64> = (0..30).map(|_| 10 + rng.below(300)).collect();
                blocks.sort_unstable();
                blocks.dedup();
                let tid = set_blocks(&j, &bdev, &history, id, &blocks).await.expect("a handle");
                if rng.below(4) == 0 {
                    j.complete_transaction(tid).await.expect("commits");
                }
            }
            done.set(done.get() + 1);
        });
    }
    w.settle();
    assert_eq!(done.get(), 8);
    assert!(w.journal.counters().space_waits > 0);
    w.cut();
}

#[test]
fn futures_of_handles_are_small() {
    let w = world(&Config::default());
    let j = w.journal.clone();
    let bdev = w.bdev.clone();
    w.run(async move {
        assert!(size_of_val(&j.start(1)) <= 1024, "{}", size_of_val(&j.start(1)));
        let h = j.start(1).await.expect("starts");
        let b = bdev.get(10);
        assert!(size_of_val(&h.get_write_access(&b)) <= 1024);
        assert!(size_of_val(&j.complete_transaction(1)) <= 1024);
        let stop = h.stop();
        assert!(size_of_val(&stop) <= 1024, "{}", size_of_val(&stop));
        stop.await.expect("stops");
    });
    w.cut();
}
