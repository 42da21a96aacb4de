//! How many waits for the device each call takes: as in Linux 6.12, recorded in virtual time on a
//! device on which every request takes as long as every other.

use crate::skip;
use std::path::PathBuf;

use crate::mounted::{Setup, World, assert_nothing_lives};
use wp_base::Span;
use wp_medium::Slice;
use wp_rt::Rt;
use wp_vfs::{Fd, OpenFlags, Reserve, Vfs};

/// Calls of a case with their waits.
struct Timed {
    v: Vfs,
    rt: Rt,
    calls: Vec<(String, u64)>,
    latency: u64,
}

impl Timed {
    async fn time<T>(&mut self, name: &str, call: impl Future<Output = T>) -> T {
        let from = self.rt.now();
        let out = call.await;
        let took = self.rt.now().since(from).0;
        self.calls.push((name.to_owned(), took / self.latency));
        out
    }

    async fn write(&mut self, fd: Fd, at: u64, tag: u64) {
        let n = self.v.pwrite(fd, at, &[Slice::pattern(tag, 0, 4096)]).await;
        assert_eq!(n, Ok(4096));
    }

    async fn fsync(&mut self, name: &str, fd: Fd) {
        let v = self.v.clone();
        self.time(name, v.fsync(fd)).await.expect("syncs");
    }
}

/// `tl seq` of the recording.
async fn seq(t: &mut Timed) {
    let v = t.v.clone();
    let dir = v.open("", OpenFlags::READ, 0).await.expect("opens");
    let fd = v.open("s_a", OpenFlags::CREATE, 0o644).await.expect("opens");
    t.fsync("fsync_empty", fd).await;
    for i in 0..5 {
        t.write(fd, i * 4096, i).await;
        t.fsync("append.fsync", fd).await;
    }
    for i in 5..10 {
        t.write(fd, i * 4096, i).await;
        let v = v.clone();
        t.time("append.fdatasync", v.fdatasync(fd)).await.expect("syncs");
    }
    for i in 0..5 {
        t.write(fd, i * 4096, 50 + i).await;
        t.fsync("over.fsync", fd).await;
    }
    for i in 5..10 {
        t.write(fd, i * 4096, 50 + i).await;
        let v = v.clone();
        t.time("over.fdatasync", v.fdatasync(fd)).await.expect("syncs");
    }
    t.fsync("clean.fsync", fd).await;
    t.fsync("dir.fsync", dir).await;
    t.fsync("dir.fsync", dir).await;
    v.rename("s_a", "s_b").await.expect("renames");
    t.fsync("rename.fsync", fd).await;
    t.fsync("rename.dirfsync", dir).await;
    v.ftruncate(fd, 8192).await.expect("cuts");
    t.fsync("trunc.fsync", fd).await;
    v.link("s_b", "s_l").await.expect("links");
    t.fsync("link.fsync", fd).await;
    v.unlink("s_l").await.expect("removes");
    t.fsync("unlink.dirfsync", dir).await;
    v.unlink("s_b").await.expect("removes");
    t.fsync("unlink.dirfsync", dir).await;
    t.fsync("unlinked_open.fsync", fd).await;
    v.close(fd).await.expect("closes");
    t.fsync("dir.fsync", dir).await;
    let s = v.clone();
    t.time("syncfs", s.syncfs(dir)).await.expect("syncs");
    t.time("syncfs", s.syncfs(dir)).await.expect("syncs");
}

/// `tl odir` of the recording, up to its descriptors with `O_DSYNC`.
async fn direct(t: &mut Timed) {
    let v = t.v.clone();
    let flags = OpenFlags { direct: true, ..OpenFlags::CREATE };
    let fd = v.open("d_a", flags, 0o644).await.expect("opens");
    let s = v.clone();
    t.time("syncfs", s.syncfs(fd)).await.expect("syncs");
    let mut end = 0;
    let data = |tag: u64| vec![Slice::pattern(tag, 0, 4096)];
    let write = |at: u64, tag: u64| {
        let (v, data) = (v.clone(), data(tag));
        async move { v.pwrite(fd, at * 4096, &data).await.expect("writes") }
    };
    for _ in 0..4 {
        t.time("dappend", write(end, end)).await;
        end += 1;
    }
    for _ in 0..4 {
        t.time("dappend_f", write(end, end)).await;
        t.fsync("dappend_f.fsync", fd).await;
        end += 1;
    }
    for i in 0..4 {
        t.time("dover", write(i, 20 + i)).await;
    }
    for i in 0..4 {
        t.time("dover_f", write(i, 30 + i)).await;
        t.fsync("dover_f.fsync", fd).await;
    }
    for i in 0..4 {
        t.time("dover_fd", write(i, 40 + i)).await;
        let s = v.clone();
        t.time("dover_fd.fdatasync", s.fdatasync(fd)).await.expect("syncs");
    }
    let how = Reserve::Space { keep_size: false };
    let s = v.clone();
    t.time("fallocate", s.fallocate(fd, how, 4096 * 64, 4096 * 8)).await.expect("allocates");
    t.fsync("fallocate.fsync", fd).await;
    for i in 0..4 {
        t.time("dunwritten", write(64 + i, 60 + i)).await;
    }
    for i in 0..4 {
        t.time("dunwritten_f", write(68 + i, 70 + i)).await;
        t.fsync("dunwritten_f.fsync", fd).await;
    }
    v.close(fd).await.expect("closes");
}

/// The folder named by `WRITEPATH_REFERENCE`, or `testdata/reference`.
fn folder() -> PathBuf {
    std::env::var_os("WRITEPATH_REFERENCE").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/reference"),
        PathBuf::from,
    )
}

/// What the recording has of a case: its calls that wait or might.
fn recorded(case: &str, config: &str) -> Option<Vec<(String, u64)>> {
    let file = folder().join("linux-6.12-virtual-time/waits.tsv");
    let Ok(text) = std::fs::read_to_string(file) else {
        skip::skipped("waits", "the recording in virtual time is not here");
        return None;
    };
    let mut lines = text.lines().map(|l| l.split('\t').collect::<Vec<_>>());
    let column = lines.next()?.iter().position(|c| *c == config)?;
    let mut out = Vec::new();
    for line in lines.filter(|l| l[0] == "15" && l[1] == case) {
        if let Ok(n) = line[column].parse() {
            out.push((line[2].to_owned(), n));
        }
    }
    Some(out)
}

#[test]
fn calls_wait_as_often_as_linux_does() {
    let mut wrong = Vec::new();
    for (config, treelog, device) in [
        ("btrfs", true, "fixed"),
        ("btrfs-notreelog", false, "fixed"),
        ("btrfs-nofua", true, "fixed-nofua"),
    ] {
        for case in ["seq0", "odirect"] {
            let Some(mut want) = recorded(case, config) else { return };
            let mut setup = Setup { mib: 512, device, ..Setup::new() };
            setup.mount.treelog = treelog;
            let w = World::fresh(&setup);
            let vfs = w.mount(&setup).expect("mounts");
            let rt = w.rt.clone();
            let v = vfs.clone();
            let part = w.part.clone();
            let got = w.run(async move {
                // What the recording did before.
                v.sync().await.expect("syncs");
                rt.sleep(Span::secs(3)).await;
                let from = rt.now();
                part.flush().await.expect("flushes");
                let latency = rt.now().since(from).0;
                let mut t = Timed { v, rt, calls: Vec::new(), latency };
                if case == "seq0" {
                    seq(&mut t).await
                } else {
                    direct(&mut t).await
                }
                t.calls
            });
            want.truncate(got.len());
            for (n, (got, want)) in got.iter().zip(&want).enumerate() {
                if got != want {
                    wrong.push(format!("{config} {case} {n}: {got:?}, Linux {want:?}"));
                }
            }
            w.unmount(&vfs);
            w.judge(&setup, case);
            drop(vfs);
            w.end();
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_nothing_lives();
}

/// Runs `calls` on a new file system; what it has timed.
fn timed<F, T>(setup: &Setup, calls: F) -> Vec<(String, u64)>
where
    F: FnOnce(Timed) -> T + 'static,
    T: Future<Output = Timed>,
{
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    let (rt, v, part) = (w.rt.clone(), vfs.clone(), w.part.clone());
    let got = w.run(async move {
        v.sync().await.expect("syncs");
        let from = rt.now();
        part.flush().await.expect("flushes");
        let latency = rt.now().since(from).0;
        calls(Timed { v, rt, calls: Vec::new(), latency }).await.calls
    });
    w.unmount(&vfs);
    w.judge(setup, "timed");
    drop(vfs);
    w.end();
    got
}

fn assert_waits(got: &[(String, u64)], want: &[(&str, u64)]) {
    let got: Vec<(&str, u64)> = got.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    assert_eq!(got, want);
    assert_nothing_lives();
}

/// Counts beside Linux 6.12 in a guest (`writepath kernels random --program`).
#[test]
fn what_replaces_a_file_and_what_is_written_after_a_cut_is_on_its_way_before_the_fsync() {
    let got = timed(&Setup::new(), |mut t| async move {
        let v = t.v.clone();
        let a = v.open("a", OpenFlags::CREATE, 0o644).await.expect("opens");
        let b = v.open("b", OpenFlags::CREATE, 0o644).await.expect("opens");
        t.write(a, 0, 1).await;
        t.fsync("new", a).await;
        t.write(b, 0, 2).await;
        v.rename("b", "a").await.expect("renames");
        t.rt.sleep(Span::millis(3)).await;
        t.fsync("replacing", b).await;
        let flags = OpenFlags { truncate: true, ..OpenFlags::CREATE };
        let c = v.open("a", flags, 0o644).await.expect("opens");
        t.write(c, 0, 3).await;
        let s = v.clone();
        t.time("close", s.close(c)).await.expect("closes");
        t.rt.sleep(Span::millis(3)).await;
        t.fsync("cut", b).await;
        t
    });
    assert_waits(&got, &[("new", 4), ("replacing", 3), ("close", 0), ("cut", 3)]);
}

#[test]
fn a_hole_is_logged_without_all_that_the_file_has() {
    let got = timed(&Setup::new(), |mut t| async move {
        let v = t.v.clone();
        let fd = v.open("c", OpenFlags::CREATE, 0o644).await.expect("opens");
        for n in 0..4 {
            t.write(fd, n * 4096, n).await;
        }
        t.fsync("new", fd).await;
        t.rt.sleep(Span::millis(3)).await;
        v.fallocate(fd, Reserve::Punch, 4096, 4096).await.expect("makes a hole");
        t.write(fd, 4096, 5).await;
        t.fsync("hole", fd).await;
        // The extent has arrived after it was logged, and is logged once more.
        t.fsync("again", fd).await;
        t.fsync("clean", fd).await;
        // What is on its way elsewhere is not waited for.
        let flags = OpenFlags { truncate: true, ..OpenFlags::CREATE };
        let other = v.open("c", flags, 0o644).await.expect("opens");
        t.write(other, 0, 7).await;
        v.close(other).await.expect("closes");
        let s = v.clone();
        t.time("elsewhere", s.fallocate(fd, Reserve::Punch, 16384, 4096)).await.expect("no hole");
        t
    });
    let want = [("new", 4), ("hole", 4), ("again", 3), ("clean", 0), ("elsewhere", 0)];
    assert_waits(&got, &want);
}

#[test]
fn space_that_is_there_begins_no_transaction_in_the_tick_of_the_last_write() {
    let got = timed(&Setup::new(), |mut t| async move {
        let v = t.v.clone();
        let fd = v.open("c", OpenFlags::CREATE, 0o644).await.expect("opens");
        let tick = 4_000_000;
        let next = (t.rt.now().0 / tick + 1) * tick;
        t.rt.sleep_until(wp_base::Time(next)).await;
        t.write(fd, 0, 1).await;
        let how = Reserve::Space { keep_size: false };
        let s = v.clone();
        t.time("written", s.syncfs(fd)).await.expect("syncs");
        v.fallocate(fd, how, 0, 4096).await.expect("is there");
        let s = v.clone();
        t.time("same tick", s.syncfs(fd)).await.expect("syncs");
        t.rt.sleep(Span::millis(5)).await;
        v.fallocate(fd, how, 0, 4096).await.expect("is there");
        let s = v.clone();
        t.time("later", s.syncfs(fd)).await.expect("syncs");
        t
    });
    let waits: Vec<bool> = got.iter().map(|(_, n)| *n > 0).collect();
    assert_eq!(waits, [true, false, true], "{got:?}");
    assert_nothing_lives();
}

/// `wb_over_bg_thresh`: where others have written and it has not, a file system has no share of the
/// limit, and its flusher sends what is five seconds old.
#[test]
fn who_has_written_nothing_for_long_has_no_share_of_the_limit() {
    for (others_wrote, want) in [(0, 4), (1246, 3)] {
        let mut setup = Setup::new();
        setup.mount.writeback.others_wrote = others_wrote;
        let got = timed(&setup, |mut t| async move {
            let v = t.v.clone();
            t.rt.sleep(Span::secs(30)).await;
            let fd = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
            t.write(fd, 0, 1).await;
            t.rt.sleep(Span::secs(6)).await;
            t.fsync("fsync", fd).await;
            t
        });
        assert_waits(&got, &[("fsync", want)]);
    }
}
