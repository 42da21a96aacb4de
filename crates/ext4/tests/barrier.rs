//! BarrierFS' journaling: what says that it makes durable does.

use crate::support::{Setup, World, assert_e2fsck_clean, assert_nothing_lives};
use wp_base::Span;
use wp_medium::Slice;
use wp_vfs::OpenFlags;

/// How a program asks.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Fsync,
    Syncfs,
    Sync,
    /// The directory, after a commit that only order was asked of.
    Directory,
}

#[test]
fn what_was_asked_to_be_durable_is_there_after_a_power_cut() {
    for era in ["3.10", "4.6", "6.1"] {
        for ask in [Ask::Fsync, Ask::Syncfs, Ask::Sync, Ask::Directory] {
            for ordered_before in [false, true] {
                let setup = Setup {
                    barrier: true,
                    device_params: &[("barrier_writes", 1)],
                    ..Setup::new(era)
                };
                let w = World::fresh(&setup);
                let v = w.mount(&setup).expect("mounts");
                let (v2, rt) = (v.clone(), w.rt.clone());
                w.run(async move {
                    let rw = OpenFlags::CREATE;
                    let fd = v2.open("a", rw, 0o644).await.expect("creates");
                    v2.write(fd, &[Slice::pattern(5, 0, 4096)]).await.expect("writes");
                    if ordered_before || matches!(ask, Ask::Directory) {
                        v2.fbarrier(fd).await.expect("orders");
                        rt.sleep(Span::millis(300)).await;
                    }
                    match ask {
                        Ask::Fsync => v2.fsync(fd).await,
                        Ask::Syncfs => v2.syncfs(fd).await,
                        Ask::Sync => v2.sync().await,
                        Ask::Directory => {
                            let dir = v2.open("/", OpenFlags::READ, 0).await.expect("opens");
                            v2.fsync(dir).await
                        }
                    }
                    .expect("durable");
                });
                let left = w.queue.with_device(|d| d.crash_view(w.rt.now()).medium);
                drop(v);
                w.rt.cut();
                w.end();
                let w = World::with_image(&setup, &left);
                let v = w.mount(&setup).expect("mounts again");
                let v2 = v.clone();
                w.run(async move {
                    let fd = v2.open("a", OpenFlags::READ, 0).await;
                    let fd = fd.unwrap_or_else(|e| panic!("{era} {ask:?} {ordered_before}: {e}"));
                    let got = v2.pread(fd, 0, 4096).await.expect("reads");
                    let got: Vec<u8> = Slice::concat(&got);
                    let want = Slice::pattern(5, 0, 4096).to_vec();
                    assert!(got == want, "{era} {ask:?} {ordered_before}");
                });
                w.unmount(&v);
                assert_e2fsck_clean(&w.medium(), setup.mib, "after the second mount");
                drop(v);
                w.end();
                drop(left);
                assert_nothing_lives();
            }
        }
    }
}
