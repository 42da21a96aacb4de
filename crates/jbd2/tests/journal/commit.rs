//! One commit after the other: what is written, in which order, by whom, and who is told when.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use crate::world::{self, Config, History, LOG_AT, World, contents, set_blocks, world};
use wp_base::event::{BlockAction, Event, Flags, Op, rwbs};
use wp_base::kernel::Version;
use wp_base::live::census;
use wp_base::{FsResult, Span, Time};
use wp_jbd2::{Era, JournalOptions, Ordered, OrderedData, RecoverPolicy, disk, recover};
use wp_medium::Overlay;

fn era(major: u16, minor: u16) -> Config {
    let options =
        JournalOptions { era: Era::of(Version(major, minor, 0)), ..JournalOptions::default() };
    let incompat = if major < 4 { 0 } else { disk::INCOMPAT_REVOKE | disk::INCOMPAT_CSUM_V3 };
    Config { options, incompat, ..Config::default() }
}

fn set(w: &World, id: u64, blocks: &'static [u64]) -> u32 {
    let (j, bdev) = (w.journal.clone(), w.bdev.clone());
    w.run(async move {
        set_blocks(&j, &bdev, &History::default(), id, blocks).await.expect("a handle")
    })
}

fn force(w: &World) {
    let j = w.journal.clone();
    w.run(async move { j.force_commit().await }).expect("commits");
}

/// Block events of the given actions as `D WS 808 3`, log block numbers relative to the log.
fn block_lines(w: &World, actions: &[BlockAction]) -> Vec<String> {
    let per = u64::from(w.bs.sectors());
    w.events()
        .into_iter()
        .filter_map(|r| match r.event {
            Event::Block { action, op, flags, at, sectors, .. } if actions.contains(&action) => {
                let at = at.0 / per;
                let place = if sectors == 0 {
                    "-".to_owned()
                } else if at >= LOG_AT {
                    format!("log+{}", at - LOG_AT)
                } else {
                    format!("home {at}")
                };
                let n = u64::from(sectors) / per;
                Some(format!("{} {} {place} {n} {}", action.letter(), rwbs(op, flags), r.task))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn first_commit_writes_start_then_one_merged_request_then_the_record() {
    let w = world(&era(3, 4));
    w.trace();
    set(&w, 1, &[10, 11, 12]);
    force(&w);
    assert_eq!(
        block_lines(&w, &[BlockAction::Issue]),
        [
            "D RM home 10 1 test",
            "D RM home 11 1 test",
            "D RM home 12 1 test",
            // Phase 0: the log was empty on disk.
            "D WS log+0 1 jbd2/sdb1-8",
            // Descriptor and three blocks in one request.
            "D WS log+1 4 jbd2/sdb1-8",
            "D FWS - 0 jbd2/sdb1-8",
            "D WFS log+5 1 swapper",
        ]
    );
    let queued = block_lines(&w, &[BlockAction::Queue]);
    assert_eq!(queued.last().map(String::as_str), Some("Q FWFS log+5 1 jbd2/sdb1-8"));
    assert_eq!(queued.iter().filter(|l| l.contains("log+")).count(), 6, "{queued:?}");
    let what: Vec<String> = w.journal_events().into_iter().map(|(what, ..)| what).collect();
    assert_eq!(
        what,
        [
            "write_superblock",
            "start_commit",
            "commit_locking",
            "commit_flushing",
            "commit_logging",
            "run_stats",
            "end_commit"
        ]
    );
    let (_, tid, logged) = w.journal_events()[5].clone();
    assert_eq!((tid, logged), (2, 5), "three blocks, a descriptor and a record");
    w.cut();
}

#[test]
fn device_without_fua_gets_flush_write_flush() {
    let w = world(&Config { fua: false, ..era(3, 4) });
    set(&w, 1, &[10]);
    force(&w);
    w.trace();
    set(&w, 2, &[10]);
    force(&w);
    assert_eq!(
        block_lines(&w, &[BlockAction::Issue]),
        [
            "D WS log+4 2 jbd2/sdb1-8",
            "D FWS - 0 jbd2/sdb1-8",
            "D WS log+6 1 swapper",
            "D FWS - 0 swapper",
        ]
    );
    w.cut();
}

#[test]
fn log_writes_carry_meta_since_6_1_and_not_before() {
    for (minor, expect) in [((4, 6), "Q WS"), ((5, 10), "Q WS"), ((6, 1), "Q WSM")] {
        let w = world(&era(minor.0, minor.1));
        set(&w, 1, &[10]);
        force(&w);
        w.trace();
        set(&w, 2, &[10]);
        force(&w);
        let queued = block_lines(&w, &[BlockAction::Queue]);
        assert!(queued[0].starts_with(&format!("{expect} log")), "{queued:?}");
        assert!(
            queued[2].starts_with(if minor.0 == 6 { "Q FWFSM" } else { "Q FWFS " }),
            "{queued:?}"
        );
        w.cut();
    }
}

#[test]
fn without_barriers_nothing_is_flushed() {
    let mut c = era(4, 6);
    c.options.barrier = false;
    let w = world(&c);
    w.trace();
    set(&w, 1, &[10]);
    force(&w);
    let lines = block_lines(&w, &[BlockAction::Issue]);
    assert!(lines.iter().all(|l| !l.contains("FW") && !l.contains("WF")), "{lines:?}");
    assert!(!w.journal.will_send_data_barrier(99));
    w.cut();
}

/// A file whose data is one block.
struct File {
    ino: u64,
    block: u64,
    w: (Rc<wp_cache::Bdev>, wp_rt::Rt),
    log: Rc<RefCell<Vec<String>>>,
    in_flight: Rc<Cell<bool>>,
}

impl OrderedData for File {
    fn ino(&self) -> u64 {
        self.ino
    }
    fn submit<'a>(
        &'a self,
        _range: (u64, u64),
    ) -> Pin<Box<dyn Future<Output = FsResult<()>> + 'a>> {
        Box::pin(async move {
            self.log.borrow_mut().push(format!("submit {}", self.ino));
            let flag = self.in_flight.clone();
            flag.set(true);
            let data = wp_medium::Slice::pattern(self.ino, 0, 1024);
            let at = self.w.0.block_size().sector_of(self.block);
            let bio =
                wp_block::Bio::write(at, vec![data], Flags::SYNC).on_end(move |_| flag.set(false));
            self.w.0.queue().submit(bio);
            Ok(())
        })
    }
    fn wait<'a>(&'a self) -> Pin<Box<dyn Future<Output = FsResult<()>> + 'a>> {
        Box::pin(async move {
            while self.in_flight.get() {
                self.w.1.sleep(Span::micros(10)).await;
            }
            self.log.borrow_mut().push(format!("waited {}", self.ino));
            Ok(())
        })
    }
}

fn file(w: &World, ino: u64, log: &Rc<RefCell<Vec<String>>>) -> Rc<File> {
    Rc::new(File {
        ino,
        block: 200 + ino,
        w: (w.bdev.clone(), w.rt.clone()),
        log: log.clone(),
        in_flight: Rc::default(),
    })
}

#[test]
fn ordered_data_is_submitted_newest_first_and_complete_before_the_record() {
    let w = world(&era(3, 4));
    let log = Rc::default();
    let files: Vec<Rc<File>> = (12..15).map(|i| file(&w, i, &log)).collect();
    let inodes: Vec<_> = files
        .iter()
        .map(|f| {
            let weak: std::rc::Weak<File> = Rc::downgrade(f);
            w.journal.new_inode(weak)
        })
        .collect();
    w.shared.write_latency.set(Span::millis(3));
    w.trace();
    let (j, bdev) = (w.journal.clone(), w.bdev.clone());
    let filed = inodes.clone();
    w.run(async move {
        let h = j.start(4).await.expect("starts");
        let b = bdev.read(10).await.expect("reads");
        h.get_write_access(&b).await.expect("access");
        b.with_mut(|x| x[0] = 1);
        h.dirty_metadata(&b).expect("dirty");
        for (i, inode) in filed.iter().enumerate() {
            let how = if i == 1 { Ordered::Wait } else { Ordered::WriteAndWait };
            h.file_inode(inode, how).expect("filed");
        }
        let tid = h.tid();
        h.stop().await.expect("stops");
        j.complete_transaction(tid).await.expect("commits");
    });
    assert_eq!(
        *log.borrow(),
        ["submit 14", "submit 12", "waited 14", "waited 13", "waited 12"],
        "13 was filed to be waited for only"
    );
    let submitted: Vec<u64> = w
        .journal_events()
        .into_iter()
        .filter(|e| e.0 == "submit_inode_data")
        .map(|e| e.2)
        .collect();
    assert_eq!(submitted, [14, 12]);
    let lines = block_lines(&w, &[BlockAction::Issue, BlockAction::Complete]);
    let record = lines.iter().position(|l| l.starts_with("D WFS log")).expect("a record");
    for home in ["C WS home 214", "C WS home 212"] {
        let done = lines.iter().position(|l| l.starts_with(home)).expect("data completes");
        assert!(done < record, "{lines:?}");
    }
    // Filed again, and only once on the list.
    let (j, filed) = (w.journal.clone(), inodes[0].clone());
    w.run(async move {
        let h = j.start(1).await.expect("starts");
        h.file_inode(&filed, Ordered::WriteAndWait).expect("filed");
        h.file_inode(&filed, Ordered::WriteAndWait).expect("filed again");
        h.stop().await.expect("stops");
        j.release_inode(&filed).await;
        j.force_commit().await.expect("commits");
    });
    assert_eq!(log.borrow().len(), 5, "a released inode is not written");
    w.cut();
}

#[test]
fn inode_filed_during_its_own_commit_moves_to_the_next_transaction() {
    let w = world(&era(4, 6));
    let log = Rc::default();
    let f = file(&w, 12, &log);
    let weak: std::rc::Weak<File> = Rc::downgrade(&f);
    let inode = w.journal.new_inode(weak);
    w.shared.write_latency.set(Span::millis(3));
    let (j, i, rt) = (w.journal.clone(), inode.clone(), w.rt.clone());
    w.run(async move {
        let h = j.start(1).await.expect("starts");
        h.file_inode(&i, Ordered::WriteAndWait).expect("filed");
        h.stop().await.expect("stops");
        let first = j.running_tid().expect("running");
        j.request_commit(first);
        while j.committing_tid() != Some(first) {
            rt.sleep(Span::micros(100)).await;
        }
        let h = j.start(1).await.expect("starts in the next");
        assert_ne!(h.tid(), first);
        h.file_inode(&i, Ordered::WriteAndWait).expect("filed in the next");
        h.stop().await.expect("stops");
        j.force_commit().await.expect("commits");
    });
    assert_eq!(*log.borrow(), ["submit 12", "waited 12", "submit 12", "waited 12"]);
    w.cut();
}

#[test]
fn commit_callbacks_run_in_order_before_the_waiters() {
    let w = world(&Config::default());
    let seen: Rc<RefCell<Vec<u32>>> = Rc::default();
    let (j, log) = (w.journal.clone(), seen.clone());
    w.run(async move {
        let h = j.start(1).await.expect("starts");
        for n in 0..3 {
            let log = log.clone();
            h.on_commit(Box::new(move || log.borrow_mut().push(n)));
        }
        let tid = h.tid();
        h.stop().await.expect("stops");
        j.complete_transaction(tid).await.expect("commits");
        log.borrow_mut().push(99);
        // Stale and unknown ids are committed already.
        j.complete_transaction(tid).await.expect("nothing to wait for");
        assert!(j.is_committed(tid));
    });
    assert_eq!(*seen.borrow(), [0, 1, 2, 99]);
    w.cut();
}

#[test]
fn old_transaction_is_committed_soon_after_the_next_whole_second() {
    let w = world(&era(4, 6));
    let rt = w.rt.clone();
    w.run(async move { rt.sleep(Span::millis(300)).await });
    w.trace();
    set(&w, 1, &[10]);
    assert_eq!(w.rt.run_until(Time(5_999_999_999)), wp_rt::Outcome::Reached);
    assert!(w.journal_events().is_empty());
    w.rt.run_until(Time(6_100_000_000));
    let events = w.events();
    let start = events
        .iter()
        .find(|r| matches!(r.event, Event::Jbd2 { what: "start_commit", .. }))
        .expect("commits by age");
    // Phase 0 came first. A timer of 6 s may be late by a 256th of that (`apply_slack`).
    assert!(start.at >= Time(6_000_000_000) && start.at < Time(6_025_000_000), "{:?}", start.at);
    assert_eq!(&*start.task, "jbd2/sdb1-8");
    // Every transaction has its own timer.
    set(&w, 2, &[10]);
    w.rt.run_until(Time(11_900_000_000));
    assert_eq!(w.journal.commit_sequence(), 2);
    w.rt.run_until(Time(12_100_000_000));
    assert_eq!(w.journal.commit_sequence(), 3);
    w.cut();
}

#[test]
fn transaction_without_changes_writes_a_lone_record() {
    let w = world(&era(3, 4));
    set(&w, 1, &[10]);
    force(&w);
    w.trace();
    let j = w.journal.clone();
    w.run(async move {
        let h = j.start(5).await.expect("starts");
        h.stop().await.expect("stops");
    });
    force(&w);
    assert_eq!(
        block_lines(&w, &[BlockAction::Queue]),
        ["Q FWFS log+4 1 jbd2/sdb1-8"],
        "no descriptor, the record next in the log"
    );
    let overlay_of = w.view(w.durable());
    let overlay = Overlay::new(&overlay_of);
    let report = recover(&overlay, &w.log, w.bs, &RecoverPolicy::linux(3, 4)).expect("recovers");
    assert_eq!((report.first_tid, report.end_tid), (2, 4));
    w.cut();
}

#[test]
fn synchronous_handle_waits_for_its_commit() {
    let w = world(&Config::default());
    let j = w.journal.clone();
    let bdev = w.bdev.clone();
    let tid = w.run(async move {
        let h = j.start(1).await.expect("starts");
        let b = bdev.read(10).await.expect("reads");
        h.get_write_access(&b).await.expect("access");
        world::fill(&b, 7);
        h.dirty_metadata(&b).expect("dirty");
        h.set_sync();
        let tid = h.tid();
        h.stop().await.expect("commits");
        assert_eq!(j.commit_sequence(), tid);
        tid
    });
    let view = w.view(w.durable());
    let overlay = Overlay::new(&view);
    let report = recover(&overlay, &w.log, w.bs, &RecoverPolicy::linux(6, 1)).expect("recovers");
    assert_eq!(report.end_tid, tid + 1);
    w.cut();
}

#[test]
fn synchronous_handles_of_two_tasks_share_commits() {
    // A task that was not the last to sync waits a commit's usual time for others.
    let w = world(&Config::default());
    w.shared.flush_latency.set(Span::millis(4));
    for n in 0..2u64 {
        let (rt, j, bdev) = (w.rt.clone(), w.journal.clone(), w.bdev.clone());
        w.rt.spawn(format!("writer {n}"), async move {
            for round in 0..20u64 {
                rt.sleep(Span::micros(200 + 130 * n)).await;
                let h = j.start(1).await.expect("starts");
                let b = bdev.read(20 + n).await.expect("reads");
                h.get_write_access(&b).await.expect("access");
                world::fill(&b, 1 + round);
                h.dirty_metadata(&b).expect("dirty");
                h.set_sync();
                h.stop().await.expect("commits");
            }
        });
    }
    w.settle();
    let c = w.journal.counters();
    assert!(c.batch_sleeps > 10, "{c:?}");
    assert!(c.commits <= 24, "40 syncs in {} commits", c.commits);
    w.cut();
}

#[test]
fn asynchronous_commit_sends_the_record_with_the_transaction() {
    let mut c = era(4, 6);
    c.options.async_commit = true;
    let w = world(&c);
    set(&w, 1, &[10]);
    force(&w);
    w.trace();
    set(&w, 2, &[10, 11]);
    force(&w);
    assert_eq!(
        block_lines(&w, &[BlockAction::Issue]),
        ["D RM home 11 1 test", "D WS log+4 4 jbd2/sdb1-8", "D FWS - 0 jbd2/sdb1-8"],
        "descriptor, two blocks and the record in one request, then one flush"
    );
    let view = w.view(w.durable());
    let overlay = Overlay::new(&view);
    let report = recover(&overlay, &w.log, w.bs, &RecoverPolicy::linux(4, 6)).expect("recovers");
    assert_eq!(report.transactions(), 2);
    w.cut();
}

#[test]
fn barrier_question_is_answered_by_state() {
    let w = world(&Config::default());
    w.shared.flush_latency.set(Span::millis(10));
    w.shared.write_latency.set(Span::millis(1));
    let tid = set(&w, 1, &[10]);
    assert!(w.journal.will_send_data_barrier(tid), "running");
    w.journal.request_commit(tid);
    let begun = w.rt.now();
    w.rt.run_until(begun + Span::micros(1500));
    assert_eq!(w.journal.transaction_state(tid), Some(wp_jbd2::TransactionState::CommitDflush));
    assert!(w.journal.will_send_data_barrier(tid), "committing, the record not sent");
    w.rt.run_until(begun + Span::millis(5));
    assert_eq!(w.journal.transaction_state(tid), Some(wp_jbd2::TransactionState::CommitJflush));
    assert!(!w.journal.will_send_data_barrier(tid), "the flush is under way");
    w.rt.run_until(begun + Span::millis(40));
    assert!(!w.journal.will_send_data_barrier(tid), "committed");
    w.cut();
}

#[test]
fn clean_close_writes_everything_home_and_empties_the_log() {
    let w = world(&Config::default());
    set(&w, 1, &[10, 11]);
    force(&w);
    set(&w, 2, &[11, 12]);
    let j = w.journal.clone();
    w.run(async move { j.destroy().await }).expect("closes");
    let durable = w.durable();
    let mut home = vec![0; 1024];
    for (block, id) in [(10, 1), (11, 2), (12, 2)] {
        durable.read_bytes(block * 1024, &mut home);
        assert_eq!(home, contents(id, block, 1024), "block {block} is home and flushed");
    }
    let view = w.view(durable);
    let overlay = Overlay::new(&view);
    let report = recover(&overlay, &w.log, w.bs, &RecoverPolicy::linux(6, 1)).expect("a clean log");
    assert_eq!(report.scan_end, wp_jbd2::ScanEnd::Clean);
    assert!(disk::tid_after(report.next_sequence, 3), "ids are never used twice: {report:?}");
    w.cut();
}

#[test]
fn log_can_be_mounted_again_after_a_clean_close() {
    let w = world(&Config::default());
    set(&w, 1, &[10]);
    let j = w.journal.clone();
    w.run(async move { j.destroy().await }).expect("closes");
    let last = w.journal.commit_sequence();
    let medium = w.durable();
    let (log, bs) = (w.log.clone(), w.bs);
    w.cut();
    let again = world::world_on(&Config::default(), medium, log, bs);
    let tid = set(&again, 2, &[10]);
    assert!(disk::tid_after(tid, last));
    force(&again);
    again.cut();
}

#[test]
fn recovered_log_starts_anew_behind_everything_seen() {
    let w = world(&Config::default());
    set(&w, 1, &[10]);
    force(&w);
    let (durable, log, bs) = (w.durable(), w.log.clone(), w.bs);
    let view = w.view(durable.clone());
    let overlay = Overlay::new(&view);
    let policy = RecoverPolicy { mark_empty: false, ..RecoverPolicy::linux(6, 1) };
    let report = recover(&overlay, &log, bs, &policy).expect("recovers");
    let mut medium = durable;
    for (at, data) in overlay.writes() {
        medium.write(at, &data);
    }
    w.cut();
    let next = report.next_sequence;
    let mut c = Config::default();
    c.options.recovered = Some(report);
    let again = world::world_on(&c, medium, log, bs);
    assert_eq!(
        again.journal.superblock().start.get(),
        1,
        "written at once: the old log must not be replayed"
    );
    assert_eq!(set(&again, 2, &[10]), next);
    again.cut();
}

#[test]
fn power_cut_in_a_commit_frees_everything() {
    let before = census();
    for at in 0..40u64 {
        let w = world(&Config::default());
        for n in 0..3u64 {
            let (j, bdev) = (w.journal.clone(), w.bdev.clone());
            w.rt.spawn(format!("writer {n}"), async move {
                let history = History::default();
                for id in 1..50u64 {
                    let blocks = [10 + n, 13, 14 + id % 3];
                    let Ok(tid) = set_blocks(&j, &bdev, &history, id, &blocks).await else {
                        return;
                    };
                    j.complete_transaction(tid).await.expect("commits");
                }
            });
        }
        w.rt.run_until(Time(at * 137_000));
        w.cut();
    }
    assert_eq!(census(), before);
}

#[test]
fn two_runs_are_equal_event_by_event() {
    let run = || {
        let w = world(&Config { seed: 5, ..Config::default() });
        w.shared.jitter.set(true);
        w.trace();
        for n in 0..4u64 {
            let (rt, j, bdev) = (w.rt.clone(), w.journal.clone(), w.bdev.clone());
            w.rt.spawn(format!("writer {n}"), async move {
                let history = History::default();
                let mut rng = rt.rng(&format!("writer {n}"));
                for id in 1..60u64 {
                    let blocks: Vec<u64> =
                        (0..1 + rng.below(5)).map(|_| 10 + rng.below(40)).collect();
                    let tid = set_blocks(&j, &bdev, &history, id, &blocks).await.expect("a handle");
                    if rng.below(3) == 0 {
                        j.complete_transaction(tid).await.expect("commits");
                    }
                }
            });
        }
        w.settle();
        let events = w.events();
        let now = w.rt.now();
        w.cut();
        (events, now)
    };
    let (a, b) = (run(), run());
    assert!(a.0.len() > 1000);
    assert_eq!(a, b);
}

#[test]
fn reads_and_flushes_are_told_apart_in_traces() {
    // The helper above prints what blktrace would: pin it.
    assert_eq!(rwbs(Op::Write, Flags::PREFLUSH | Flags::FUA | Flags::SYNC), "FWFS");
}
