//! One subvolume of several mounted: images with snapshots that the host's kernel made, changed
//! here, cut off or unmounted, and looked at by that kernel. Needs the right to mount.

use crate::mounted;
use crate::skip;
use crate::tools;
use std::path::Path;
use std::process::Command;

use crate::mounted::{Setup, World, assert_nothing_lives};
use wp_base::FsError;
use wp_btrfs::fs::{MountOptions, Subvolume};
use wp_medium::{Medium, Slice};
use wp_vfs::{Fd, OpenFlags, RenameHow, Vfs};

/// Bytes of each file.
const BYTES: usize = 200 << 10;

/// Runs it in a scratch folder; `None`: nothing can be mounted here.
fn host(folder: &Path, script: &str) -> Option<String> {
    let mut bash = Command::new("bash");
    let out = bash.args(["-ec", script]).current_dir(folder).output().ok()?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success() || said.starts_with("no mount"),
        "{said} {}",
        String::from_utf8_lossy(&out.stderr)
    );
    (!said.starts_with("no mount")).then_some(said)
}

/// `live` with two files of which `kept` is a snapshot, and `fixed` one that cannot be changed;
/// `live` is default, with `inner` in it.
const MAKE: &str = r#"
truncate -s 256M image; mkfs.btrfs -q image > /dev/null; mkdir -p m
mount -o loop image m 2> /dev/null || { echo no mount; exit 0; }
trap 'umount m' EXIT
btrfs -q subvolume create m/live
for f in a b; do head -c 204800 /dev/zero | tr '\0' $f > m/live/$f; done
sync
btrfs -q subvolume snapshot m/live m/kept
btrfs -q subvolume snapshot -r m/live m/fixed
btrfs -q subvolume create m/live/inner
mkdir m/plain
echo inner > m/live/inner/file
btrfs -q subvolume set-default m/live
"#;

/// Files, with a letter for each run of equal blocks' first bytes.
const LOOK: &str = r#"
mount -o loop,subvolid=5 image m 2> /dev/null
trap 'umount m' EXIT
cd m
for f in $(find . -type f | sort); do
    n=0; s=
    while [ $n -lt $(stat -c %s $f) ]; do
        s=$s$(head -c $((n + 1)) $f | tail -c 1); n=$((n + 65536))
    done
    echo $f $(stat -c %s $f) $s
done
cd ..
"#;

fn load(folder: &Path) -> Medium {
    let bytes = std::fs::read(folder.join("image")).expect("it is there");
    let mut medium = Medium::new();
    for (n, part) in bytes.chunks(4096).enumerate() {
        if part.iter().any(|b| *b != 0) {
            let at = wp_base::Sector(n as u64 * 8);
            medium.write(at, &Slice::from_bytes(part));
        }
    }
    medium
}

fn setup(subvolume: Subvolume) -> Setup {
    let mount = MountOptions { subvolume, epoch_secs: 1_800_000_000, ..MountOptions::default() };
    Setup { device: "ssd-128", mount, ..Setup::new() }
}

async fn put(v: &Vfs, fd: Fd, byte: u8, at: u64, len: usize) {
    let data: Vec<Slice> = vec![byte; len].chunks(4096).map(Slice::from_bytes).collect();
    assert_eq!(v.pwrite(fd, at, &data).await, Ok(len as u64));
}

#[test]
fn a_subvolume_is_changed_and_its_snapshots_are_not() {
    const NAME: &str = "btrfs subvolumes in the host's kernel";
    if !tools::has_tool(NAME, "btrfs") {
        return;
    }
    let by_path = Subvolume::Path("kept".to_owned());
    for (which, dir, is_cut) in [
        (Subvolume::Default, "live", false),
        (Subvolume::Default, "live", true),
        (by_path.clone(), "kept", false),
        (by_path, "kept", true),
        (Subvolume::Id(256), "live", true),
    ] {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let at = folder.path();
        if host(at, MAKE).is_none() {
            return skip::skipped(NAME, "an image cannot be mounted here");
        }
        let setup = setup(which.clone());
        let w = World::empty(&setup);
        w.load(&load(at));
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        w.run(async move {
            let a = v.open("a", OpenFlags::WRITE, 0).await.expect("opens");
            put(&v, a, b'x', 65536, 65536).await;
            let new = v.open("new", OpenFlags::CREATE, 0o644).await.expect("opens");
            put(&v, new, b'n', 0, 9000).await;
            v.unlink("b").await.expect("is there");
            assert_eq!((v.fsync(a).await, v.fsync(new).await), (Ok(()), Ok(())));
            v.close(a).await.expect("closes");
            v.close(new).await.expect("closes");
        });
        // The first fsync commits, as a chunk was made, which Linux makes here, too; the second has
        // the subvolume's log.
        let all = vfs.fs().counters();
        let count = |name| all.iter().find(|(n, _)| *n == name).expect("is counted").1;
        assert_eq!((count("fsyncs_that_committed"), count("log_syncs")), (1, 1));
        drop(all);
        drop_and_look(w, vfs, &setup, is_cut, at);
        let said = host(at, LOOK).expect("the kernel mounts it");
        let of = |name: &str| {
            let is_it = name == dir;
            let inner = if name == "live" { "./live/inner/file 6 i\n" } else { "" };
            let (a, new) = (["aaaa", "axaa"][usize::from(is_it)], format!("./{name}/new 9000 n\n"));
            let b = if is_it { String::new() } else { format!("./{name}/b {BYTES} bbbb\n") };
            format!("./{name}/a {BYTES} {a}\n{b}{inner}{}", if is_it { &*new } else { "" })
        };
        let want = format!("{}{}{}", of("fixed"), of("kept"), of("live"));
        assert_eq!(said, want, "{which:?}, cut: {is_cut}");
    }
}

fn drop_and_look(w: World, vfs: Vfs, setup: &Setup, is_cut: bool, at: &Path) {
    let left = if is_cut {
        drop(vfs);
        w.cut()
    } else {
        w.unmount(&vfs);
        drop(vfs);
        let medium = w.medium();
        w.end();
        medium
    };
    if !is_cut {
        mounted::judge(&left, setup.mib, "after an unmount");
    }
    mounted::save(&left, setup.mib, &at.join("image"));
    drop(left);
    assert_nothing_lives();
}

#[test]
fn what_cannot_be_mounted_or_changed_is_said() {
    const NAME: &str = "btrfs subvolumes of the host's btrfs";
    if !tools::has_tool(NAME, "btrfs") {
        return;
    }
    let folder = tempfile::tempdir().expect("a scratch folder");
    if host(folder.path(), MAKE).is_none() {
        return skip::skipped(NAME, "an image cannot be mounted here");
    }
    let image = load(folder.path());
    let mount = |which: Subvolume, image: &Medium| {
        let setup = setup(which);
        let w = World::empty(&setup);
        w.load(image);
        let vfs = w.mount(&setup);
        (w, vfs)
    };
    let path = |p: &str| Subvolume::Path(p.to_owned());
    for (which, error) in [
        (path("nothing"), FsError::NotFound),
        (path("live/a/b"), FsError::NotFound),
        (path("plain"), FsError::Invalid("subvol: not a subvolume")),
        (Subvolume::Id(9), FsError::NotFound),
        (Subvolume::Id(1000), FsError::NotFound),
    ] {
        let (w, vfs) = mount(which.clone(), &image);
        assert_eq!(vfs.err(), Some(error), "{which:?}");
        w.end();
    }
    // One that is read-only is read.
    let (w, vfs) = mount(path("/fixed/"), &image);
    let vfs = vfs.expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        let a = v.open("a", OpenFlags::READ, 0).await.expect("opens");
        let read: usize =
            v.pread(a, 0, 1 << 20).await.expect("reads").iter().map(|s| s.to_vec().len()).sum();
        assert_eq!(read, BYTES);
        v.close(a).await.expect("closes");
        assert_eq!(v.unlink("a").await, Err(FsError::ReadOnly));
        assert_eq!(v.mkdir("d", 0o755).await, Err(FsError::ReadOnly));
    });
    w.unmount(&vfs);
    drop(vfs);
    w.end();
    // A subvolume in that which is mounted is gone into, and names are not moved out of it.
    let (w, vfs) = mount(Subvolume::Default, &image);
    let vfs = vfs.expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        let file = v.open("inner/file", OpenFlags::WRITE, 0).await.expect("opens");
        put(&v, file, b'i', 6, 100).await;
        assert_eq!(v.fsync(file).await, Ok(()));
        v.close(file).await.expect("closes");
        let moved = v.renameat2("inner/file", "file", RenameHow::Replace).await;
        assert_eq!(moved, Err(FsError::CrossDevice));
        assert_eq!(v.link("a", "inner/a").await, Err(FsError::CrossDevice));
        assert_eq!(v.stat("inner/file").await.map(|attr| attr.size), Ok(106));
    });
    w.unmount(&vfs);
    drop(vfs);
    w.end();
    let (w, vfs) = mount(path("live/inner"), &image);
    let vfs = vfs.expect("mounts");
    let v = vfs.clone();
    w.run(async move { assert!(v.stat("file").await.is_ok()) });
    w.unmount(&vfs);
    drop(vfs);
    w.end();
    drop(image);
    assert_nothing_lives();
}
