//! How often a system call says that it will change a block of metadata (`get_write_access`), by
//! type of block: the unit in which journal conflicts are counted.

use std::collections::BTreeMap;

use crate::support::{Setup, World, assert_nothing_lives};
use wp_base::Span;
use wp_medium::Slice;
use wp_vfs::{OpenFlags, Vfs};

/// Calls by type of block since the mount.
fn calls(v: &Vfs) -> BTreeMap<&'static str, u64> {
    let mut out = BTreeMap::new();
    for row in v.fs().journal_conflicts() {
        *out.entry(row.block).or_default() += row.calls;
    }
    out
}

/// What came between.
fn more(before: &BTreeMap<&'static str, u64>, after: &BTreeMap<&'static str, u64>) -> String {
    let rows = after.iter().map(|(k, n)| (k, n - before.get(k).unwrap_or(&0)));
    let some: Vec<String> = rows.filter(|(_, n)| *n > 0).map(|(k, n)| format!("{k} {n}")).collect();
    some.join(", ")
}

/// By its source (`ext4_reserve_inode_write`, `ext4_journal_get_write_access` and who calls them);
/// sums of a real run are in the laboratory's test of journal conflicts.
#[test]
fn a_call_says_so_as_often_as_linux_3_10() {
    let mut setup = Setup::new("3.10");
    setup.count_access = true;
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let (v, v2) = (vfs.clone(), vfs.clone());
    w.run(async move {
        v.mkdir("d", 0o755).await.expect("makes");
        for n in 0..600 {
            let fd = v.open(&format!("d/{n:08}"), OpenFlags::CREATE, 0o644).await.expect("opens");
            v.close(fd).await.expect("closes");
        }
        v.sync().await.expect("syncs");
        let mut at = calls(&v);
        let mut step = |what: &str, expected: &str| {
            let now = calls(&v2);
            assert_eq!(more(&at, &now), expected, "{what}");
            at = now;
        };
        let page = |n: u64| vec![Slice::pattern(n, 0, 4096)];
        let later = || v.rt().sleep(Span::millis(20));
        let fd = v.open("d/new", OpenFlags::CREATE, 0o644).await.expect("opens");
        // The directory's block once to find room and once to fill it; of the inode: its tree,
        // itself, with its name; the directory's inode.
        step("create", "D 2, G 1, IB 1, IT 4");
        v.pwrite(fd, 0, &page(1)).await.expect("writes");
        step("a page within the tick", "IT 1");
        later().await;
        v.pwrite(fd, 4096, &page(2)).await.expect("writes");
        step("a page with new times", "IT 2");
        v.fsync(fd).await.expect("syncs");
        // The tree, what was claimed of the promise, the size.
        step("fsync", "DB 1, G 1, IT 3");
        later().await;
        v.pread(fd, 0, 4096).await.expect("reads");
        step("a read after a change", "IT 1");
        later().await;
        v.pread(fd, 0, 4096).await.expect("reads");
        step("a read after a read", "");
        v.close(fd).await.expect("closes");
        v.unlink("d/new").await.expect("removes");
        // unlink: directory, orphan list, inode. evict: size, truncate, tree, freed blocks, depth,
        // times, orphan list, deletion time.
        step("unlink", "D 1, DB 1, G 2, IB 1, IT 11, S 2");
    });
    w.unmount(&vfs);
    drop(vfs);
    w.end();
    assert_nothing_lives();
}
