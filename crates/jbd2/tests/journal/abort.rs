//! Device errors, and what an aborted journal still does.

use wp_base::event::{Flags, Op};
use wp_base::{FsError, Span};
use wp_jbd2::{RecoverPolicy, disk, recover};
use wp_medium::Overlay;

use crate::world::{Config, History, LOG_AT, World, set_blocks, world};

fn fail_log_writes(w: &World) {
    let at = w.bs.sector_of(LOG_AT + 1);
    *w.shared.fault.borrow_mut() = Some(Box::new(move |rq| rq.op == Op::Write && rq.at.0 >= at.0));
}

fn fail_home_writes(w: &World) {
    let at = w.bs.sector_of(LOG_AT);
    *w.shared.fault.borrow_mut() = Some(Box::new(move |rq| rq.op == Op::Write && rq.at.0 < at.0));
}

#[test]
fn failed_log_write_aborts_the_journal_and_leaves_the_prefix() {
    let w = world(&Config::default());
    let (j, bdev) = (w.journal.clone(), w.bdev.clone());
    let history = History::default();
    let h = history.clone();
    w.run(async move {
        set_blocks(&j, &bdev, &h, 1, &[10, 11]).await.expect("a handle");
        j.force_commit().await.expect("commits");
    });
    fail_log_writes(&w);
    let (j, bdev, rt) = (w.journal.clone(), w.bdev.clone(), w.rt.clone());
    let h = history.clone();
    w.run(async move {
        let tid = set_blocks(&j, &bdev, &h, 2, &[11, 12]).await.expect("a handle");
        assert_eq!(j.complete_transaction(tid).await, Err(FsError::Io));
        assert_eq!(j.error(), Some(FsError::Io));
        assert_eq!(j.start(1).await.err(), Some(FsError::ReadOnly));
        assert_eq!(j.force_commit().await, Ok(()), "nothing is running");
        rt.sleep(Span::millis(5)).await;
    });
    assert_eq!(w.journal.superblock().errno.get(), 5u32.wrapping_neg());
    let view = w.view(w.all());
    let on_disk = wp_jbd2::recover::read_super(&view, &w.log, w.bs).expect("reads");
    assert_eq!(on_disk.errno.get(), 5u32.wrapping_neg(), "the reason is on disk");
    let overlay = Overlay::new(&view);
    let report = recover(&overlay, &w.log, w.bs, &RecoverPolicy::linux(6, 18)).expect("recovers");
    assert_eq!((report.transactions(), report.errno), (1, 5u32.wrapping_neg()));
    crate::crash::assert_state(&overlay, w.bs, &history, report.end_tid - 1, "after the abort");
    let j = w.journal.clone();
    assert_eq!(w.run(async move { j.destroy().await }), Err(FsError::Io), "no clean close");
    w.cut();
}

#[test]
fn open_handles_of_an_aborted_journal_end_with_an_error() {
    let w = world(&Config::default());
    let (j, bdev) = (w.journal.clone(), w.bdev.clone());
    w.run(async move {
        let h = j.start(2).await.expect("starts");
        let b = bdev.read(10).await.expect("reads");
        h.get_write_access(&b).await.expect("access");
        j.abort(FsError::Corrupt(Box::new(wp_base::Corruption {
            structure: "test",
            field: "test",
            at: 0,
            found: 0,
            expected: String::new(),
        })));
        j.abort(FsError::Io);
        assert!(matches!(j.error(), Some(FsError::Corrupt(_))), "the first reason stays");
        assert_eq!(h.dirty_metadata(&b), Err(FsError::ReadOnly));
        assert_eq!(h.get_write_access(&b).await, Err(FsError::ReadOnly));
        assert_eq!(h.forget(&b).await, Err(FsError::ReadOnly));
        assert_eq!(h.restart(1).await, Err(FsError::ReadOnly));
        assert!(!h.extend(1));
        assert_eq!(h.stop().await, Err(FsError::Io));
        // The commit that the abort asked for ends, and writes nothing.
        while j.running_tid().is_some() || j.committing_tid().is_some() {
            j.wait_commit(j.running_tid().or(j.committing_tid()).unwrap_or(0))
                .await
                .expect_err("aborted");
        }
        assert_eq!(j.counters().blocks_logged, 0);
    });
    w.cut();
}

#[test]
fn failed_flush_before_the_record_aborts() {
    let w = world(&Config::default());
    *w.shared.fault.borrow_mut() = Some(Box::new(|rq| rq.op == Op::Flush));
    let (j, bdev) = (w.journal.clone(), w.bdev.clone());
    w.run(async move {
        let tid = set_blocks(&j, &bdev, &History::default(), 1, &[10]).await.expect("a handle");
        assert_eq!(j.complete_transaction(tid).await, Err(FsError::Io));
    });
    w.cut();
}

#[test]
fn failed_home_write_keeps_the_log_for_recovery() {
    // The log copy of a block whose home write failed is the only good one: the tail must not pass
    // it.
    let w = world(&Config::default());
    let (j, bdev) = (w.journal.clone(), w.bdev.clone());
    let history = History::default();
    let h = history.clone();
    w.run(async move {
        set_blocks(&j, &bdev, &h, 1, &[10, 11]).await.expect("a handle");
        j.force_commit().await.expect("commits");
    });
    fail_home_writes(&w);
    let j = w.journal.clone();
    assert_eq!(w.run(async move { j.destroy().await }), Err(FsError::Io));
    let view = w.view(w.all());
    let overlay = Overlay::new(&view);
    let report = recover(&overlay, &w.log, w.bs, &RecoverPolicy::linux(6, 18)).expect("recovers");
    assert_eq!(report.transactions(), 1);
    crate::crash::assert_state(
        &overlay,
        w.bs,
        &history,
        report.end_tid - 1,
        "after the failed close",
    );
    w.cut();
}

#[test]
fn failed_ordered_data_aborts_only_when_asked_to() {
    use std::future::Future;
    use std::pin::Pin;
    use std::rc::Rc;
    struct Bad;
    impl wp_jbd2::OrderedData for Bad {
        fn ino(&self) -> u64 {
            12
        }
        fn submit<'a>(
            &'a self,
            _range: (u64, u64),
        ) -> Pin<Box<dyn Future<Output = wp_base::FsResult<()>> + 'a>> {
            Box::pin(async { Ok(()) })
        }
        fn wait<'a>(&'a self) -> Pin<Box<dyn Future<Output = wp_base::FsResult<()>> + 'a>> {
            Box::pin(async { Err(FsError::Io) })
        }
    }
    for abort_on_data_error in [false, true] {
        let mut c = Config::default();
        c.options.abort_on_data_error = abort_on_data_error;
        let w = world(&c);
        let bad = Rc::new(Bad);
        let weak: std::rc::Weak<Bad> = Rc::downgrade(&bad);
        let inode = w.journal.new_inode(weak);
        let j = w.journal.clone();
        let result = w.run(async move {
            let h = j.start(1).await.expect("starts");
            h.file_inode(&inode, wp_jbd2::Ordered::WriteAndWait).expect("filed");
            let tid = h.tid();
            h.stop().await.expect("stops");
            j.complete_transaction(tid).await
        });
        assert_eq!(result.is_err(), abort_on_data_error);
        w.cut();
    }
}

#[test]
fn features_are_checked_at_load() {
    let w = world(&Config { incompat: disk::INCOMPAT_64BIT, ..Config::default() });
    // v2 asked for becomes v3; it excludes v1.
    w.journal.set_features(disk::COMPAT_CHECKSUM, 0).expect("v1");
    w.journal.set_features(0, disk::INCOMPAT_CSUM_V2).expect("v3");
    let sb = w.journal.superblock();
    assert_eq!(sb.feature_compat.get(), 0);
    assert_eq!(sb.feature_incompat.get(), disk::INCOMPAT_64BIT | disk::INCOMPAT_CSUM_V3);
    assert_eq!(sb.checksum.get(), sb.checksum_now());
    w.journal.clear_features(0, disk::INCOMPAT_CSUM_V3);
    assert_eq!(w.journal.superblock().feature_incompat.get(), disk::INCOMPAT_64BIT);
    let flags = Flags::NONE;
    assert!(!flags.any(Flags::SYNC));
    w.cut();
}
