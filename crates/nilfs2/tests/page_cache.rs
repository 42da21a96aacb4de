//! The page cache: writers that wait while too much is dirty, windows that are read ahead, blocks
//! that are dropped.

use crate::world::{Setup, World, assert_nothing_lives};
use wp_base::Span;
use wp_cache::WbPolicy;
use wp_medium::Slice;
use wp_vfs::{Fd, OpenFlags, Vfs};

async fn put(v: &Vfs, fd: Fd, blocks: u64) {
    for n in 0..blocks {
        let page = [Slice::pattern(1, n * 4096, 4096)];
        assert_eq!(v.pwrite(fd, n * 4096, &page).await, Ok(4096));
    }
}

/// The flusher writes no page of its own accord: a writer above the limit waits for the log that
/// comes five seconds after the first change. The block of the directory is dirty, too.
#[test]
fn a_writer_waits_for_a_log_while_too_much_is_dirty() {
    let limits = WbPolicy { background_blocks: 16, dirty_blocks: 64, ..WbPolicy::default() };
    for (blocks, seconds) in [(63, 0), (64, 5), (128, 5), (129, 10)] {
        let setup = Setup { writeback: limits.clone(), ..Setup::new() };
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let (v, rt) = (vfs.clone(), w.rt.clone());
        let waited = w.run(async move {
            let f = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
            let begin = rt.now();
            put(&v, f, blocks).await;
            let waited = rt.now().since(begin);
            v.close(f).await.expect("closes");
            waited
        });
        let off = waited.0.abs_diff(Span::secs(seconds).0);
        assert!(off < 100_000_000, "{blocks} blocks: {waited:?}");
        w.unmount(&vfs);
        w.judge("limits");
        drop(vfs);
        w.end();
    }
    assert_nothing_lives();
}

#[test]
fn a_stream_is_read_ahead_and_what_is_dropped_is_read_again() {
    let setup = Setup::new();
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let (v, rt) = (vfs.clone(), w.rt.clone());
    w.run(async move {
        let f = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
        put(&v, f, 64).await;
        v.fsync(f).await.expect("syncs");
        let waits = async |block: u64| {
            let begin = rt.now();
            let got = v.pread(f, block * 4096, 4096).await.expect("reads");
            assert_eq!(Slice::concat(&got), Slice::pattern(1, block * 4096, 4096).to_vec());
            rt.now() > begin
        };
        assert!(!waits(0).await, "it was just written");
        v.fs().drop_caches();
        assert!(waits(0).await, "it was dropped");
        // The window has four pages; the second starts the next one, whose pages come later.
        assert!(!waits(3).await && !waits(2).await);
        assert!(waits(40).await, "nobody asked for it");
        v.close(f).await.expect("closes");
    });
    w.unmount(&vfs);
    drop(vfs);
    w.end();
    assert_nothing_lives();
}
