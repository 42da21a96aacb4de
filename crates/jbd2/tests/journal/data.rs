//! File data in the journal (`data=journal`): cached in the file, logged and checkpointed to its
//! place on the device.

use std::rc::Rc;

use wp_base::Span;
use wp_cache::{BufFlag, Buffer, Mapping};
use wp_jbd2::{Journal, RecoverPolicy, TransactionState, recover};
use wp_medium::{Overlay, View};

use crate::world::{Config, World, contents, world};

fn file(w: &World) -> Rc<Mapping> {
    Mapping::new(&w.rt, "file", 1024, &w.wb)
}

/// The file's block `index`, which lives at device block `300 + index`, set to what operation `id`
/// leaves there.
async fn write(j: &Rc<Journal>, map: &Rc<Mapping>, index: u64, id: u64) -> (u32, Rc<Buffer>) {
    let h = j.start(1).await.expect("starts");
    let b = map.get(index);
    b.map_to(300 + index);
    h.get_write_access_in(map, &b).await.expect("access");
    let bytes = contents(id, 300 + index, 1024);
    b.with_mut(|x| x.copy_from_slice(&bytes));
    h.dirty_metadata(&b).expect("dirty");
    let tid = h.tid();
    h.stop().await.expect("stops");
    (tid, b)
}

#[test]
fn journaled_data_is_replayed_to_its_place() {
    let w = world(&Config::default());
    let (j, map) = (w.journal.clone(), file(&w));
    w.run(async move {
        // Escaped, as it begins like a control block: file data may.
        write(&j, &map, 0, 3).await;
        write(&j, &map, 1, 1).await;
        j.force_commit().await.expect("commits");
        assert!(
            map.get(0).flag(BufFlag::Dirty) && map.has_dirty(),
            "to be written home by the file's owner"
        );
    });
    let view = w.view(w.durable());
    let overlay = Overlay::new(&view);
    recover(&overlay, &w.log, w.bs, &RecoverPolicy::linux(6, 1)).expect("recovers");
    let mut out = vec![0; 1024];
    for (block, id) in [(300, 3), (301, 1)] {
        overlay.read_at(block * 1024, &mut out).expect("reads");
        assert_eq!(out, contents(id, block, 1024));
    }
    w.cut();
}

#[test]
fn checkpoint_writes_journaled_data_to_its_place() {
    let w = world(&Config::default());
    let (j, map) = (w.journal.clone(), file(&w));
    w.run(async move {
        let (_, b) = write(&j, &map, 0, 5).await;
        j.checkpoint_all().await.expect("checkpoints");
        assert!(!b.flag(BufFlag::Dirty) && b.jh() == 0);
    });
    assert_eq!(w.on_device(300), contents(5, 300, 1024));
    w.cut();
}

#[test]
fn truncated_block_of_the_running_transaction_is_not_logged() {
    let w = world(&Config::default());
    let (j, map) = (w.journal.clone(), file(&w));
    w.run(async move {
        let (_, b) = write(&j, &map, 0, 5).await;
        j.invalidate(&b).await;
        assert_eq!(b.jh(), 0);
        j.force_commit().await.expect("commits");
        assert_eq!(j.counters().blocks_logged, 0);
        assert!(!b.flag(BufFlag::Dirty));
    });
    w.cut();
}

#[test]
fn truncated_block_of_the_committing_transaction_never_goes_home() {
    let w = world(&Config::default());
    let (rt, j, map) = (w.rt.clone(), w.journal.clone(), file(&w));
    w.run(async move {
        let (tid, b) = write(&j, &map, 0, 5).await;
        j.request_commit(tid);
        for _ in 0..1000 {
            if j.transaction_state(tid) == Some(TransactionState::CommitDflush) {
                break;
            }
            rt.sleep(Span::micros(5)).await;
        }
        assert!(b.flag(BufFlag::Shadow));
        // The truncate's own handle: the next transaction.
        let h = j.start(1).await.expect("starts");
        j.invalidate(&b).await;
        h.stop().await.expect("stops");
        j.wait_commit(tid).await.expect("commits");
        assert!(!b.flag(BufFlag::Dirty));
        j.force_commit().await.expect("commits");
        assert!(!b.flag(BufFlag::Dirty) && !b.flag(BufFlag::JbdDirty) && b.jh() == 0);
        // Committed and not home yet: its log copy stays until the truncate has committed.
        let (_, b) = write(&j, &map, 1, 7).await;
        j.force_commit().await.expect("commits");
        let h = j.start(1).await.expect("starts");
        j.invalidate(&b).await;
        assert!(b.jh() != 0 && !b.flag(BufFlag::Dirty));
        h.stop().await.expect("stops");
        j.force_commit().await.expect("commits");
        assert_eq!(b.jh(), 0);
    });
    w.cut();
}

/// The same where transactions keep versions, and none runs: the truncate's own is in its commit.
#[test]
fn truncated_block_of_a_version_never_goes_home() {
    for (name, dual) in crate::crash::dual_modes() {
        let w = world(&crate::crash::dual_config(7, dual));
        let (j, map, name) = (w.journal.clone(), file(&w), name.to_owned());
        w.run(async move {
            let (tid, b) = write(&j, &map, 0, 5).await;
            j.order_transaction(tid).await.expect("commits");
            assert_eq!(j.running_tid(), None);
            assert!(!j.is_committed(tid), "{name}");
            j.invalidate(&b).await;
            j.wait_commit(tid).await.expect("commits");
            assert!(!b.flag(BufFlag::Dirty) && !b.flag(BufFlag::JbdDirty), "{name}: goes home");
            j.force_commit().await.expect("commits");
            assert_eq!(b.jh(), 0, "{name}");
        });
        w.cut();
    }
}
