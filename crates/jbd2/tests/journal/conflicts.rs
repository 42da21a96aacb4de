//! Journal conflicts, each case reached on purpose, and what they do to the bytes.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use wp_base::kernel::Version;
use wp_base::{FsError, FsResult, Span};
use wp_cache::BufFlag;
use wp_jbd2::{
    Conflict, ConflictObserver, Credits, Era, Handle, JournalOptions, Ordered, OrderedData,
    RecoverPolicy, TransactionState, disk, recover,
};
use wp_medium::{Overlay, View};
use wp_rt::Rt;

use crate::world::{Config, World, contents, fill, world};

/// Journal writes take 1 ms, flushes 4 ms: every phase of a commit is long enough to meet.
fn slow(c: &Config) -> World {
    let w = world(c);
    w.shared.write_latency.set(Span::millis(1));
    w.shared.flush_latency.set(Span::millis(4));
    w
}

/// Ordered data whose submission takes its time: keeps a commit in FLUSH.
struct SlowFile(Rt);

impl OrderedData for SlowFile {
    fn ino(&self) -> u64 {
        12
    }
    fn submit<'a>(
        &'a self,
        _range: (u64, u64),
    ) -> Pin<Box<dyn Future<Output = FsResult<()>> + 'a>> {
        Box::pin(async {
            self.0.sleep(Span::millis(2)).await;
            Ok(())
        })
    }
    fn wait<'a>(&'a self) -> Pin<Box<dyn Future<Output = FsResult<()>> + 'a>> {
        Box::pin(async { Ok(()) })
    }
}

async fn change(h: &Handle, w: &Env, block: u64, id: u64) -> Conflict {
    let b = w.bdev.read(block).await.expect("reads");
    let met = h.get_write_access_met(&b).await.expect("access");
    fill(&b, id);
    h.dirty_metadata(&b).expect("dirty");
    met
}

/// What a test task needs of the world.
struct Env {
    rt: Rt,
    j: Rc<wp_jbd2::Journal>,
    bdev: Rc<wp_cache::Bdev>,
}

fn env(w: &World) -> Env {
    Env { rt: w.rt.clone(), j: w.journal.clone(), bdev: w.bdev.clone() }
}

/// Waits until the transaction is in `state`.
async fn until(e: &Env, tid: u32, state: TransactionState) {
    for _ in 0..10_000 {
        if e.j.transaction_state(tid) == Some(state) {
            return;
        }
        e.rt.sleep(Span::micros(10)).await;
    }
    panic!("{tid} never comes to {state:?}: {:?}", e.j.transaction_state(tid));
}

/// Commits block 10 as `id` and returns when the commit is in `state`.
async fn commit_until(
    e: &Env,
    id: u64,
    state: TransactionState,
    inode: Option<&Rc<wp_jbd2::JournalInode>>,
) -> u32 {
    let h = e.j.start(2).await.expect("starts");
    change(&h, e, 10, id).await;
    if let Some(inode) = inode {
        h.file_inode(inode, Ordered::WriteAndWait).expect("filed");
    }
    let tid = h.tid();
    h.stop().await.expect("stops");
    e.j.request_commit(tid);
    until(e, tid, state).await;
    tid
}

/// After a power cut that keeps exactly what the log holds up to now, block 10 is `id`.
fn recovered_block(w: &World, block: u64) -> Vec<u8> {
    let view = w.view(w.durable());
    let overlay = Overlay::new(&view);
    recover(&overlay, &w.log, w.bs, &RecoverPolicy::linux(6, 1)).expect("recovers");
    let mut out = vec![0; 1024];
    overlay.read_at(block * 1024, &mut out).expect("reads");
    out
}

#[test]
fn case_0_nobody_or_ourselves() {
    let w = slow(&Config::default());
    let e = env(&w);
    w.run(async move {
        let h = e.j.start(2).await.expect("starts");
        assert_eq!(change(&h, &e, 10, 1).await, Conflict::None);
        assert_eq!(change(&h, &e, 10, 2).await, Conflict::None);
        assert_eq!(h.credits(), 1, "one block, one credit");
        h.stop().await.expect("stops");
        assert_eq!(e.j.counters().conflicts_total(), 0);
    });
    w.cut();
}

#[test]
fn case_1_and_4_before_the_block_is_logged_the_commit_gets_a_copy() {
    let w = slow(&Config::default());
    let e = env(&w);
    let file = Rc::new(SlowFile(w.rt.clone()));
    let weak: std::rc::Weak<SlowFile> = Rc::downgrade(&file);
    let inode = w.journal.new_inode(weak);
    let first = w.run(async move {
        let tid = commit_until(&e, 1, TransactionState::Flush, Some(&inode)).await;
        let h = e.j.start(2).await.expect("starts in the next one");
        let before = e.rt.now();
        assert_eq!(change(&h, &e, 10, 2).await, Conflict::Copy);
        assert_eq!(change(&h, &e, 10, 4).await, Conflict::Joined);
        assert_eq!(e.rt.now(), before, "nobody waited");
        h.stop().await.expect("stops");
        e.j.wait_commit(tid).await.expect("commits");
        tid
    });
    assert_eq!(recovered_block(&w, 10), contents(1, 10, 1024), "the log has the older contents");
    let e = env(&w);
    w.run(async move { e.j.force_commit().await }).expect("commits");
    assert_eq!(recovered_block(&w, 10), contents(4, 10, 1024));
    assert_eq!(w.journal.commit_sequence(), first + 1);
    let c = w.journal.counters();
    assert_eq!(c.conflicts, [1, 1, 0, 0, 1, 0, 0, 0]);
    w.cut();
}

#[test]
fn case_2_an_escaped_block_has_a_copy_while_it_is_logged() {
    let w = slow(&Config::default());
    let e = env(&w);
    w.run(async move {
        // Contents 3 begin like a control block.
        let tid = commit_until(&e, 3, TransactionState::CommitDflush, None).await;
        let h = e.j.start(2).await.expect("starts");
        let before = e.rt.now();
        assert_eq!(change(&h, &e, 10, 2).await, Conflict::Frozen);
        assert_eq!(e.rt.now(), before);
        h.stop().await.expect("stops");
        e.j.wait_commit(tid).await.expect("commits");
    });
    assert_eq!(recovered_block(&w, 10), contents(3, 10, 1024));
    assert_eq!(w.journal.counters().escaped, 1);
    w.cut();
}

struct Seen(RefCell<Vec<(u64, Conflict, Span)>>);

impl ConflictObserver for Seen {
    fn conflict(&self, block: u64, case: Conflict, waited: Span) {
        self.0.borrow_mut().push((block, case, waited));
    }
}

#[test]
fn case_3_a_block_in_the_shadow_is_waited_for() {
    let seen = Rc::new(Seen(RefCell::default()));
    let options = JournalOptions { observer: Some(seen.clone()), ..JournalOptions::default() };
    let w = slow(&Config { options, ..Config::default() });
    let e = env(&w);
    w.run(async move {
        let tid = commit_until(&e, 1, TransactionState::CommitDflush, None).await;
        let b = e.bdev.read(10).await.expect("reads");
        assert!(b.flag(BufFlag::Shadow));
        let h = e.j.start(2).await.expect("starts");
        let before = e.rt.now();
        assert_eq!(change(&h, &e, 10, 2).await, Conflict::Shadow);
        let waited = e.rt.now().since(before);
        assert!(
            waited > Span::micros(900) && waited <= Span::millis(1),
            "{waited:?}: until the log write ends"
        );
        assert!(e.j.committing_tid() == Some(tid), "not until the commit ends");
        h.stop().await.expect("stops");
        e.j.wait_commit(tid).await.expect("commits");
    });
    assert_eq!(recovered_block(&w, 10), contents(1, 10, 1024));
    let c = w.journal.counters();
    // After the wait the block was found logged: the fifth case.
    assert_eq!(c.conflicts, [1, 0, 0, 1, 0, 1, 0, 0]);
    assert!(c.shadow_wait_ns > 900_000);
    let seen = seen.0.borrow();
    // One call, told of once.
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].0, seen[0].1, seen[0].2.0), (10, Conflict::Shadow, c.shadow_wait_ns));
    drop(seen);
    w.cut();
}

#[test]
fn case_5_a_logged_block_is_free_while_the_record_is_written() {
    let w = slow(&Config::default());
    let e = env(&w);
    w.run(async move {
        let tid = commit_until(&e, 1, TransactionState::CommitJflush, None).await;
        let h = e.j.start(2).await.expect("starts");
        let before = e.rt.now();
        assert_eq!(change(&h, &e, 10, 2).await, Conflict::Logged);
        assert_eq!(e.rt.now(), before);
        h.stop().await.expect("stops");
        e.j.wait_commit(tid).await.expect("commits");
        // The next transaction took it over with its changes.
        let b = e.bdev.read(10).await.expect("reads");
        assert!(b.flag(BufFlag::JbdDirty) && !b.flag(BufFlag::Dirty));
    });
    assert_eq!(recovered_block(&w, 10), contents(1, 10, 1024));
    let e = env(&w);
    w.run(async move { e.j.force_commit().await }).expect("commits");
    assert_eq!(recovered_block(&w, 10), contents(2, 10, 1024));
    w.cut();
}

#[test]
fn old_kernels_keep_the_shadow_until_the_thread_has_looked() {
    // In 3.4 the commit thread wakes the waiter, on its way to the record; later the completion
    // does, first.
    for (era, then) in [
        (Era::of(Version(3, 4, 0)), TransactionState::CommitJflush),
        (Era::of(Version(4, 6, 0)), TransactionState::CommitDflush),
    ] {
        let options = JournalOptions { era, ..JournalOptions::default() };
        let w = slow(&Config { options, incompat: 0, ..Config::default() });
        let e = env(&w);
        let state = w.run(async move {
            commit_until(&e, 1, TransactionState::CommitDflush, None).await;
            let h = e.j.start(2).await.expect("starts");
            change(&h, &e, 10, 2).await;
            let state = e.j.transaction_state(e.j.committing_tid().expect("committing"));
            h.stop().await.expect("stops");
            state
        });
        assert_eq!(state, Some(then));
        w.cut();
    }
}

#[test]
fn access_waits_for_a_write_to_the_buffers_home() {
    let w = slow(&Config::default());
    let e = env(&w);
    w.run(async move {
        let h = e.j.start(2).await.expect("starts");
        change(&h, &e, 10, 1).await;
        h.stop().await.expect("stops");
        e.j.force_commit().await.expect("commits");
        let b = e.bdev.read(10).await.expect("reads");
        assert!(b.flag(BufFlag::Dirty), "to be written home");
        e.bdev.submit_write(&b, wp_base::event::Flags::NONE);
        let h = e.j.start(2).await.expect("starts");
        let before = e.rt.now();
        assert_eq!(change(&h, &e, 10, 2).await, Conflict::None);
        assert_eq!(e.rt.now().since(before), Span::millis(1));
        assert_eq!(e.j.counters().home_write_waits, 1);
        h.stop().await.expect("stops");
    });
    w.cut();
}

#[test]
fn pending_home_write_is_cancelled_when_the_block_is_journaled_again() {
    let w = slow(&Config::default());
    let e = env(&w);
    w.run(async move {
        let h = e.j.start(2).await.expect("starts");
        change(&h, &e, 10, 1).await;
        h.stop().await.expect("stops");
        e.j.force_commit().await.expect("commits");
        let b = e.bdev.read(10).await.expect("reads");
        assert!(b.flag(BufFlag::Dirty));
        let h = e.j.start(2).await.expect("starts");
        h.get_write_access(&b).await.expect("access");
        assert!(!b.flag(BufFlag::Dirty) && b.flag(BufFlag::JbdDirty));
        h.stop().await.expect("stops");
        // Reserved, but not changed: the commit gives it back, still to be written home.
        e.j.force_commit().await.expect("commits");
        assert!(b.flag(BufFlag::Dirty) && !b.flag(BufFlag::JbdDirty));
    });
    w.cut();
}

#[test]
fn forgotten_block_of_the_running_transaction_is_not_logged() {
    let w = slow(&Config::default());
    let e = env(&w);
    w.run(async move {
        let h = e.j.start(2).await.expect("starts");
        change(&h, &e, 10, 1).await;
        let b = e.bdev.read(10).await.expect("reads");
        assert_eq!(h.credits(), 1);
        h.forget(&b).await.expect("forgets");
        assert_eq!(h.credits(), 2, "its credit comes back");
        assert_eq!(b.jh(), 0, "the journal knows nothing of it any more");
        h.stop().await.expect("stops");
        e.j.force_commit().await.expect("commits");
        assert!(!b.flag(BufFlag::Dirty));
        assert_eq!(e.j.counters().blocks_logged, 0);
    });
    w.cut();
}

#[test]
fn forgotten_block_of_the_committing_transaction_never_goes_home() {
    let w = slow(&Config::default());
    let e = env(&w);
    w.run(async move {
        let tid = commit_until(&e, 1, TransactionState::CommitDflush, None).await;
        let b = e.bdev.read(10).await.expect("reads");
        let h = e.j.start(2).await.expect("starts");
        h.forget(&b).await.expect("forgets");
        assert!(b.flag(BufFlag::Freed));
        h.stop().await.expect("stops");
        e.j.wait_commit(tid).await.expect("commits");
        assert!(!b.flag(BufFlag::Dirty), "kept by the transaction that freed it");
        e.j.force_commit().await.expect("commits");
        assert!(!b.flag(BufFlag::Dirty) && !b.flag(BufFlag::Freed));
        assert_eq!(b.jh(), 0);
    });
    w.cut();
}

#[test]
fn forgotten_block_with_an_old_log_copy_keeps_it_until_the_commit() {
    let w = slow(&Config::default());
    let e = env(&w);
    w.run(async move {
        let h = e.j.start(2).await.expect("starts");
        change(&h, &e, 10, 1).await;
        h.stop().await.expect("stops");
        e.j.force_commit().await.expect("commits");
        let b = e.bdev.read(10).await.expect("reads");
        // Nobody owns it, its home write is pending.
        let h = e.j.start(2).await.expect("starts");
        h.forget(&b).await.expect("forgets");
        assert!(!b.flag(BufFlag::Dirty));
        assert_ne!(b.jh(), 0, "the older log copy is needed until this commit");
        h.stop().await.expect("stops");
        e.j.force_commit().await.expect("commits");
        assert_eq!(b.jh(), 0);
        // Not logged since: a buffer that the journal does not know is only cleaned.
        e.bdev.mark_dirty(&b);
        let h = e.j.start(1).await.expect("starts");
        h.forget(&b).await.expect("forgets");
        assert!(!b.flag(BufFlag::Dirty));
        h.stop().await.expect("stops");
    });
    w.cut();
}

#[test]
fn created_block_may_come_from_the_committing_transactions_forget_list() {
    let w = slow(&Config::default());
    let e = env(&w);
    w.run(async move {
        let tid = commit_until(&e, 1, TransactionState::CommitJflush, None).await;
        let b = e.bdev.get(10);
        let h = e.j.start(2).await.expect("starts");
        h.get_create_access(&b).await.expect("logged already: may be reused");
        fill(&b, 2);
        h.dirty_metadata(&b).expect("dirty");
        let fresh = e.bdev.get(11);
        h.get_create_access(&fresh).await.expect("a fresh block");
        fill(&fresh, 2);
        fresh.set(BufFlag::Uptodate);
        h.dirty_metadata(&fresh).expect("dirty");
        h.stop().await.expect("stops");
        e.j.wait_commit(tid).await.expect("commits");
        e.j.force_commit().await.expect("commits");
    });
    assert_eq!(recovered_block(&w, 10), contents(2, 10, 1024));
    assert_eq!(recovered_block(&w, 11), contents(2, 11, 1024));
    w.cut();
}

#[test]
fn creating_a_block_that_is_still_to_be_logged_aborts() {
    let w = slow(&Config::default());
    let e = env(&w);
    let file = Rc::new(SlowFile(w.rt.clone()));
    let weak: std::rc::Weak<SlowFile> = Rc::downgrade(&file);
    let inode = w.journal.new_inode(weak);
    w.run(async move {
        commit_until(&e, 1, TransactionState::Flush, Some(&inode)).await;
        let h = e.j.start(2).await.expect("starts");
        let b = e.bdev.get(10);
        assert_eq!(h.get_create_access(&b).await, Err(FsError::ReadOnly));
        assert!(e.j.is_aborted());
        assert_eq!(h.stop().await, Err(FsError::Io));
    });
    w.cut();
}

#[test]
fn undo_access_keeps_the_committed_contents_until_the_commit() {
    let w = slow(&Config::default());
    let e = env(&w);
    w.run(async move {
        let h = e.j.start(2).await.expect("starts");
        change(&h, &e, 10, 3).await;
        h.stop().await.expect("stops");
        e.j.force_commit().await.expect("commits");
        let b = e.bdev.read(10).await.expect("reads");
        let h = e.j.start(2).await.expect("starts");
        h.get_undo_access(&b).await.expect("access");
        fill(&b, 2);
        h.dirty_metadata(&b).expect("dirty");
        assert_eq!(e.j.committed_contents(&b).to_vec(), contents(3, 10, 1024));
        assert_eq!(h.forget(&b).await, Err(FsError::Io), "a bitmap is not forgotten");
        h.stop().await.expect("stops");
        // Undo access while it commits: what it commits becomes the committed contents.
        let tid = e.j.running_tid().expect("running");
        e.j.request_commit(tid);
        until(&e, tid, TransactionState::CommitJflush).await;
        let h = e.j.start(2).await.expect("starts");
        h.get_undo_access(&b).await.expect("access");
        fill(&b, 5);
        h.dirty_metadata(&b).expect("dirty");
        h.stop().await.expect("stops");
        assert_eq!(e.j.committed_contents(&b).to_vec(), contents(3, 10, 1024));
        e.j.wait_commit(tid).await.expect("commits");
        assert_eq!(e.j.committed_contents(&b).to_vec(), contents(2, 10, 1024));
        e.j.force_commit().await.expect("commits");
        assert_eq!(e.j.committed_contents(&b).to_vec(), contents(5, 10, 1024));
    });
    w.cut();
}

#[test]
fn dirty_metadata_wants_access_and_credits() {
    let w = slow(&Config::default());
    let e = env(&w);
    w.run(async move {
        let h = e.j.start(1).await.expect("starts");
        let (a, b) = (e.bdev.read(10).await.expect("reads"), e.bdev.read(11).await.expect("reads"));
        assert!(matches!(h.dirty_metadata(&a), Err(FsError::Invalid(_))));
        h.get_write_access(&a).await.expect("access");
        h.get_write_access(&b).await.expect("access costs nothing");
        h.dirty_metadata(&a).expect("has a credit");
        h.dirty_metadata(&a).expect("again costs nothing");
        assert_eq!(h.dirty_metadata(&b), Err(FsError::NoSpace));
        h.stop().await.expect("stops");
    });
    w.cut();
}

#[test]
fn revoked_block_stays_as_its_new_owner_wrote_it() {
    // A directory block is journaled, freed and becomes a file's data. Replaying its old log copy
    // would put the directory into the file: lost data, and somebody else's names.
    let w = slow(&Config::default());
    let e = env(&w);
    w.run(async move {
        let h = e.j.start(2).await.expect("starts");
        change(&h, &e, 10, 1).await;
        h.stop().await.expect("stops");
        e.j.force_commit().await.expect("commits");
        let h =
            e.j.start_with(Credits { blocks: 2, revokes: 1, reserve: 0 }).await.expect("starts");
        let b = e.bdev.read(10).await.expect("reads");
        h.revoke(10, Some(&b)).await.expect("revokes");
        assert!(h.revoke(10, Some(&b)).await.is_err(), "freed twice");
        h.stop().await.expect("stops");
        e.j.force_commit().await.expect("commits");
        let data = wp_medium::Slice::pattern(77, 0, 1024);
        let at = e.bdev.block_size().sector_of(10);
        let bio = wp_block::Bio::write(at, vec![data], wp_base::event::Flags::FUA);
        e.bdev.queue().submit_wait(bio).await.expect("writes");
    });
    assert_eq!(recovered_block(&w, 10), wp_medium::Slice::pattern(77, 0, 1024).to_vec());
    w.cut();
}

#[test]
fn revoke_is_cancelled_when_the_block_is_journaled_again() {
    let w = slow(&Config::default());
    let e = env(&w);
    w.run(async move {
        let h = e.j.start(2).await.expect("starts");
        change(&h, &e, 10, 1).await;
        h.stop().await.expect("stops");
        e.j.force_commit().await.expect("commits");
        let h =
            e.j.start_with(Credits { blocks: 2, revokes: 1, reserve: 0 }).await.expect("starts");
        let b = e.bdev.read(10).await.expect("reads");
        h.revoke(10, Some(&b)).await.expect("revokes");
        h.get_create_access(&b).await.expect("allocated again");
        fill(&b, 2);
        h.dirty_metadata(&b).expect("dirty");
        h.stop().await.expect("stops");
        e.j.force_commit().await.expect("commits");
    });
    let view = w.view(w.durable());
    let overlay = Overlay::new(&view);
    let report = recover(&overlay, &w.log, w.bs, &RecoverPolicy::linux(6, 1)).expect("recovers");
    assert_eq!(report.revoke_records, 0);
    assert_eq!(recovered_block(&w, 10), contents(2, 10, 1024));
    w.cut();
}

#[test]
fn many_revokes_take_several_blocks() {
    for incompat in [0, disk::INCOMPAT_64BIT | disk::INCOMPAT_CSUM_V3] {
        let w = slow(&Config { incompat, ..Config::default() });
        let e = env(&w);
        w.run(async move {
            let h =
                e.j.start_with(Credits { blocks: 0, revokes: 700, reserve: 0 })
                    .await
                    .expect("starts");
            for block in 0..700 {
                h.revoke(5000 + block, None).await.expect("revokes");
            }
            assert!(h.revoke(9999, None).await.is_err(), "out of revoke credits");
            h.stop().await.expect("stops");
            e.j.force_commit().await.expect("commits");
        });
        let view = w.view(w.durable());
        let overlay = Overlay::new(&view);
        let report =
            recover(&overlay, &w.log, w.bs, &RecoverPolicy::linux(6, 1)).expect("recovers");
        assert_eq!((report.revoke_records, report.transactions()), (700, 1));
        assert!(w.journal.superblock().feature_incompat.get() & disk::INCOMPAT_REVOKE != 0);
        w.cut();
    }
}
