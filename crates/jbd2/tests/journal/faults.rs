//! Dual mode on a device that fails: everybody ends, and nothing that was acknowledged is lost.

use std::cell::Cell;
use std::rc::Rc;

use wp_base::event::{Flags, Op};
use wp_base::{FsError, FsResult, Rng, Span};
use wp_block::DevRequest;
use wp_jbd2::{Credits, RecoverPolicy, disk, recover};
use wp_medium::Overlay;

use crate::crash::{dual_config, dual_modes};
use crate::world::{Change, History, LOG_AT, World, fill, set_blocks, world};

/// What fails.
#[derive(Clone, Copy, Debug)]
enum What {
    Flush,
    Log,
    Barrier,
    Home,
    Super,
}

fn is(what: What, rq: &DevRequest) -> bool {
    let log = LOG_AT * 2;
    match what {
        What::Flush => rq.op == Op::Flush,
        What::Log => rq.op == Op::Write && rq.at.0 > log + 1,
        What::Barrier => rq.op == Op::Write && rq.flags.has(Flags::BARRIER),
        What::Home => rq.op == Op::Write && rq.at.0 < log,
        What::Super => rq.op == Op::Write && rq.at.0 == log,
    }
}

/// From the `after`th on, one such request fails, or all.
fn inject(w: &World, what: What, after: u64, once: bool) {
    let seen = Cell::new(0);
    *w.shared.fault.borrow_mut() = Some(Box::new(move |rq| {
        if !is(what, rq) {
            return false;
        }
        seen.set(seen.get() + 1);
        if once { seen.get() == after } else { seen.get() >= after }
    }));
}

async fn forget_one(
    j: &Rc<wp_jbd2::Journal>,
    bdev: &Rc<wp_cache::Bdev>,
    history: &History,
    block: u64,
) -> FsResult<u32> {
    let h = j.start_with(Credits { blocks: 1, revokes: 1, reserve: 0 }).await?;
    let tid = h.tid();
    let b = bdev.read(block).await?;
    history.note(tid, block, Change::Free);
    h.revoke(block, Some(&b)).await?;
    h.stop().await?;
    Ok(tid)
}

/// One update; what it met is its end.
async fn update(
    j: &Rc<wp_jbd2::Journal>,
    bdev: &Rc<wp_cache::Bdev>,
    history: &History,
    rng: &mut Rng,
    id: u64,
    own: u64,
) -> FsResult<u32> {
    match rng.below(8) {
        0 => {
            let block = 100 + own;
            let tid = set_blocks(j, bdev, history, id, &[block]).await?;
            if rng.below(2) == 0 {
                j.order_transaction(tid).await?;
            }
            let tid = forget_one(j, bdev, history, block).await?;
            j.complete_transaction(tid).await?;
            Ok(tid)
        }
        1 => {
            // Access, and no change.
            let h = j.start(3).await?;
            for _ in 0..3 {
                let b = bdev.read(10 + rng.below(20)).await?;
                h.get_write_access(&b).await?;
            }
            let tid = h.tid();
            h.stop().await?;
            Ok(tid)
        }
        2 => {
            let h = j.start(1).await?;
            h.set_sync();
            let b = bdev.read(10 + rng.below(20)).await?;
            h.get_write_access(&b).await?;
            fill(&b, id);
            history.note(h.tid(), b.block(), Change::Set(id));
            h.dirty_metadata(&b)?;
            let tid = h.tid();
            h.stop().await?;
            Ok(tid)
        }
        _ => {
            let mut blocks: Vec<u64> = (0..1 + rng.below(8)).map(|_| 10 + rng.below(30)).collect();
            blocks.sort_unstable();
            blocks.dedup();
            set_blocks(j, bdev, history, id, &blocks).await
        }
    }
}

fn stress(seed: u64, dual: wp_jbd2::DualMode, fault: Option<(What, u64, bool)>) -> bool {
    let w = world(&dual_config(seed, dual));
    w.shared.jitter.set(true);
    let history = History::default();
    let first = w.journal.commit_sequence().wrapping_add(1);
    if let Some((what, after, once)) = fault {
        inject(&w, what, after, once);
    }
    for n in 0..3 {
        let (rt, j, bdev, shared, history) =
            (w.rt.clone(), w.journal.clone(), w.bdev.clone(), w.shared.clone(), history.clone());
        w.rt.spawn(format!("writer {n}"), async move {
            let mut rng = rt.rng(&format!("writer {n}"));
            for round in 1..=50 {
                let id = round * 10 + n;
                let Ok(tid) = update(&j, &bdev, &history, &mut rng, id, n).await else { break };
                let asked = match rng.below(6) {
                    0 => j.order_transaction(tid).await.map(|()| false),
                    1 => {
                        let flush = !j.will_send_data_barrier(tid);
                        let done = j.complete_transaction(tid).await;
                        let flushed = match flush {
                            true => bdev.queue().flush().await.map_err(|_| FsError::Io),
                            false => Ok(()),
                        };
                        done.and(flushed).map(|()| true)
                    }
                    2 => j.force_commit().await.map(|()| true),
                    3 => {
                        j.request_commit(tid);
                        Ok(false)
                    }
                    4 => {
                        rt.sleep(Span::micros(rng.below(900))).await;
                        Ok(false)
                    }
                    _ => Ok(false),
                };
                match asked {
                    Ok(true) if !j.is_aborted() => {
                        if shared.acked.get().is_none_or(|a| disk::tid_after(tid, a)) {
                            shared.acked.set(Some(tid));
                        }
                        // What is lost now is lost for good.
                        shared.keep_snapshots.set(true);
                    }
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
        });
    }
    w.settle();
    let j = w.journal.clone();
    let closed = w.run(async move { j.destroy().await });
    let aborted = w.journal.is_aborted();
    assert_eq!(closed.is_err(), aborted, "{closed:?}");
    // Every acknowledged transaction is in the log, or at home.
    let policy =
        RecoverPolicy { bad_commit: wp_jbd2::BadCommit::StopBefore, ..RecoverPolicy::linux(6, 18) };
    let snapshots = w.shared.snapshots.borrow().clone();
    for (i, s) in snapshots.iter().enumerate().step_by(snapshots.len() / 40 + 1) {
        let Some(acked) = s.acked else { continue };
        let view = w.view(s.durable.clone());
        let sb = wp_jbd2::recover::read_super(&view, &w.log, w.bs).expect("reads");
        if sb.start.get() == 0 {
            continue;
        }
        let report = recover(&Overlay::new(&view), &w.log, w.bs, &policy).expect("recovers");
        let last = match report.scan_end {
            wp_jbd2::ScanEnd::Clean => first.wrapping_sub(1),
            _ => report.end_tid.wrapping_sub(1),
        };
        assert!(
            disk::tid_at_least(last, acked),
            "cut {i} at {}: {acked} was acknowledged, the log ends with {last}",
            s.at
        );
    }
    w.cut();
    aborted
}

fn seeds() -> u64 {
    std::env::var("FAULT_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(4)
}

#[test]
fn whatever_fails_in_dual_mode_all_end() {
    let mut aborted = 0;
    for seed in 0..seeds() {
        for (i, (name, dual)) in dual_modes().into_iter().enumerate() {
            let mut rng = Rng::stream(seed * 100 + i as u64, "faults");
            let kinds = [What::Flush, What::Log, What::Barrier, What::Home, What::Super];
            let what = kinds[rng.below(5) as usize];
            let many = matches!(what, What::Log | What::Barrier);
            let after = 1 + rng.below(if many { 80 } else { 8 });
            let once = rng.below(2) == 0;
            println!("seed {seed} {name} {what:?} {after} {once}");
            aborted += u32::from(stress(seed, dual, Some((what, after, once))));
        }
    }
    assert!(aborted > 0, "some faults must be met");
}

#[test]
fn without_faults_nothing_aborts() {
    for seed in 0..seeds() {
        for (name, dual) in dual_modes() {
            println!("seed {seed} {name}");
            assert!(!stress(1000 + seed, dual, None));
        }
    }
}

/// A commit that only order was asked of is not durable; who then forces one, with nothing left to
/// commit, wants it durable all the same (`fsync` of a directory, `sync`).
#[test]
fn a_forced_commit_is_durable_though_the_journal_is_idle() {
    for (name, dual) in dual_modes() {
        let w = world(&dual_config(1, dual));
        let (j, bdev, rt) = (w.journal.clone(), w.bdev.clone(), w.rt.clone());
        let tid = w.run(async move {
            let tid = set_blocks(&j, &bdev, &History::default(), 1, &[10]).await.expect("changes");
            j.order_transaction(tid).await.expect("commits");
            rt.sleep(Span::millis(20)).await;
            assert!(j.is_committed(tid));
            j.force_commit().await.expect("forces");
            let flushes = j.counters().flushes;
            j.force_commit().await.expect("forces");
            assert_eq!(j.counters().flushes, flushes, "a flush is sent once");
            tid
        });
        let view = w.view(w.durable());
        let report = recover(&Overlay::new(&view), &w.log, w.bs, &RecoverPolicy::linux(6, 18))
            .expect("recovers");
        assert_eq!(report.end_tid, tid.wrapping_add(1), "{name}: {:?}", report.scan_end);
        w.cut();
    }
}

/// The log's new tail did not reach the disk, and the log before it is about to be used again.
#[test]
fn a_tail_that_could_not_be_written_aborts() {
    for (name, dual) in dual_modes() {
        let w = world(&dual_config(2, dual));
        let (j, bdev) = (w.journal.clone(), w.bdev.clone());
        w.run(async move {
            set_blocks(&j, &bdev, &History::default(), 1, &[10]).await.expect("changes");
            j.force_commit().await.expect("commits");
        });
        inject(&w, What::Super, 1, true);
        let (j, bdev) = (w.journal.clone(), w.bdev.clone());
        let seen = w.run(async move {
            // Wide enough that the log goes round.
            for id in 1..400 {
                let blocks: Vec<u64> = (0..30).map(|i| 2000 + (id * 7 + i * 11) % 2000).collect();
                let mut sorted = blocks.clone();
                sorted.sort_unstable();
                let tid = match set_blocks(&j, &bdev, &History::default(), id, &sorted).await {
                    Ok(tid) => tid,
                    Err(_) => return true,
                };
                if j.complete_transaction(tid).await.is_err() {
                    return true;
                }
            }
            false
        });
        assert!(seen, "{name}: nobody was told that the tail is not on disk");
        w.cut();
    }
}

/// A file whose data are with the device only when somebody waits for that.
struct Slow {
    rt: wp_rt::Rt,
    shared: Rc<crate::world::Shared>,
    written: Cell<bool>,
    /// Barriers that the device had by then.
    early: Cell<u32>,
}

impl wp_jbd2::OrderedData for Slow {
    fn ino(&self) -> u64 {
        12
    }
    fn submit<'a>(
        &'a self,
        _range: (u64, u64),
    ) -> std::pin::Pin<Box<dyn Future<Output = FsResult<()>> + 'a>> {
        Box::pin(async { Ok(()) })
    }
    fn dispatched<'a>(&'a self) -> std::pin::Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(async {
            self.rt.sleep(Span::millis(3)).await;
            let store = self.shared.store.borrow();
            let epochs = store.pending.iter().filter(|u| u.at.0 >= LOG_AT * 2).count();
            self.early.set(epochs as u32);
            self.written.set(true);
        })
    }
    fn wait<'a>(&'a self) -> std::pin::Pin<Box<dyn Future<Output = FsResult<()>> + 'a>> {
        Box::pin(async { Ok(()) })
    }
}

/// Data that reach the device between the log's barrier and the record are in the record's epoch:
/// a power cut may leave the record without them.
#[test]
fn ordered_data_are_with_the_device_before_the_logs_barrier() {
    for (name, dual) in dual_modes() {
        let w = world(&dual_config(3, dual));
        let slow = Rc::new(Slow {
            rt: w.rt.clone(),
            shared: w.shared.clone(),
            written: Cell::new(false),
            early: Cell::new(0),
        });
        let weak: std::rc::Weak<Slow> = Rc::downgrade(&slow);
        let inode = w.journal.new_inode(weak);
        let (j, bdev) = (w.journal.clone(), w.bdev.clone());
        w.run(async move {
            let h = j.start(1).await.expect("starts");
            let b = bdev.read(10).await.expect("reads");
            h.get_write_access(&b).await.expect("access");
            fill(&b, 1);
            h.dirty_metadata(&b).expect("dirty");
            h.file_inode(&inode, wp_jbd2::Ordered::WriteAndWait).expect("filed");
            let tid = h.tid();
            h.stop().await.expect("stops");
            j.complete_transaction(tid).await.expect("commits");
        });
        assert!(slow.written.get(), "{name}");
        // The superblock of a log that was empty may go first.
        assert!(slow.early.get() <= 1, "{name}: {} log blocks went ahead", slow.early.get());
        w.cut();
    }
}
