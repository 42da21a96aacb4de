//! Recoveries of crashed images in one CPU second: `cargo bench -p wp-ext4 --bench recover
//! [-- --json]`.
//!
//! The images: 64 MiB, cut while they were mounted. Each recovery starts from the medium of the cut
//! (cloned in O(1)) and ends with what a mount would have written.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

#[expect(dead_code, reason = "shared with the tests, which use more of it")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::time::Instant;

use support::{Setup, World};
use wp_base::Sector;
use wp_ext4::image::recover_at_mount;
use wp_ext4::mkfs::Features;
use wp_jbd2::RecoverPolicy;
use wp_medium::{Medium, MediumView, Overlay, Slice};
use wp_vfs::{OpenFlags, Vfs};

/// How often each case is repeated; the best run counts, the others met a busy machine.
const RUNS: u32 = 7;
/// Recoveries in a run.
const CALLS: u32 = 2000;

/// The medium as a power cut leaves it after `program`.
fn cut<F: Future<Output = ()> + 'static>(program: impl Fn(Vfs) -> F) -> Medium {
    let mut setup = Setup::new("6.12");
    setup.features = Features::today();
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    w.run(program(vfs.clone()));
    let medium = w.medium();
    drop(vfs);
    w.end();
    medium
}

async fn write(v: &Vfs, name: &str, bytes: u32) {
    let fd = v.open(name, OpenFlags::CREATE, 0o644).await.expect("opens");
    v.pwrite(fd, 0, &[Slice::pattern(7, 0, bytes)]).await.expect("writes");
    v.fsync(fd).await.expect("syncs");
}

fn main() {
    let json = std::env::args().any(|a| a == "--json");
    let cases = [
        ("clean journal, needs_recovery", cut(|_| async {})),
        ("one fsync of a new file", cut(|v| async move { write(&v, "/a", 4096).await })),
        (
            "ten fsyncs of new files",
            cut(|v| async move {
                for n in 0..10 {
                    write(&v, &format!("/f{n}"), 4096).await;
                }
            }),
        ),
        (
            "an orphan of 64 blocks",
            cut(|v| async move {
                let fd = v.open("/o", OpenFlags::CREATE, 0o644).await.expect("opens");
                v.pwrite(fd, 0, &[Slice::pattern(7, 0, 64 << 12)]).await.expect("writes");
                v.unlink("/o").await.expect("unlinks");
                v.fsync(fd).await.expect("syncs");
            }),
        ),
    ];
    let policy = RecoverPolicy::linux(6, 12);
    let mut rows = Vec::new();
    for (name, medium) in &cases {
        let one = || {
            let view = MediumView { medium: medium.clone(), start: Sector(0), bytes: 64 << 20 };
            let overlay = Overlay::new(&view);
            let done = recover_at_mount(&overlay, &policy, 1);
            (done, overlay.pages().len())
        };
        let (done, pages) = one();
        assert!(done.mounted.is_ok(), "{name}: {:?}", done.mounted);
        let blocks = done.recovery.journal.as_ref().map_or(0, |j| j.blocks_replayed);
        let ns = (0..RUNS)
            .map(|_| {
                let start = Instant::now();
                (0..CALLS).for_each(|_| drop(black_box(one())));
                start.elapsed().as_nanos() as u64 / u64::from(CALLS)
            })
            .min()
            .unwrap_or(1);
        rows.push((name, ns, blocks, pages));
    }
    for (name, ns, blocks, pages) in rows {
        let per_s = 1_000_000_000 / ns.max(1);
        if json {
            println!(
                r#"{{"case":"{name}","ns":{ns},"per_s":{per_s},"blocks":{blocks},"pages":{pages}}}"#
            );
        } else {
            println!(
                "{name:32} {ns:>8} ns  {per_s:>8} a second  {blocks:>3} blocks replayed, \
                 {pages} pages written"
            );
        }
    }
}
