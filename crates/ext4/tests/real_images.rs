//! Images of the real `mkfs.ext4`, filled by the host's kernel, changed by us and given back: clean
//! for `e2fsck`, and the same files for that kernel.

use crate::images;
use crate::images::{Tree, can_mount, fill, host_tree, kernel_tree, load, mkfs, our_tree};
use crate::support::{Setup, World, assert_e2fsck_clean, assert_nothing_lives};
use wp_base::{FsError, Rng, Span};
use wp_ext4::disk::{GroupDesc, SuperBlock, incompat};
use wp_ext4::fs::{Ext4, Mounted};
use wp_ext4::mkfs::Features;
use wp_medium::{Medium, MediumView, Slice};
use wp_vfs::{AttrChange, OpenFlags, TimeSpec, Vfs};

const MIB: u64 = 96;

fn setup(era: &'static str) -> Setup {
    Setup { mib: MIB, ..Setup::new(era) }
}

/// An image made with these arguments and filled by the kernel, and what is on it.
fn filled(args: &str) -> (Medium, Tree) {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    mkfs(&image, MIB, args);
    let mounted = images::LoopMount::new(&image, dir.path().join("mnt"), "").expect("mounts");
    fill(&mounted.at);
    drop(mounted);
    let mounted = images::LoopMount::new(&image, dir.path().join("mnt"), ",ro").expect("mounts");
    let tree = host_tree(&mounted.at);
    drop(mounted);
    (load(&image), tree)
}

/// Changes of all kinds to what [`fill`] made.
async fn change(v: &Vfs, seed: u64) {
    let mut rng = Rng::stream(seed, "changes");
    for step in 0..150u64 {
        let f = format!("a/f{}", rng.below(10));
        match rng.below(10) {
            0..=3 => {
                let fd = v.open(&f, OpenFlags::CREATE, 0o640).await.expect("opens");
                let (at, len) = (rng.below(400_000), 1 + rng.below(60_000) as u32);
                v.pwrite(fd, at, &[Slice::pattern(step, 0, len)]).await.expect("writes");
                if rng.below(3) == 0 {
                    v.fsync(fd).await.expect("syncs");
                }
                v.close(fd).await.expect("closes");
            }
            4 => v.truncate(&f, rng.below(200_000)).await.expect("cuts"),
            5 => {
                let n = format!("many/a file with a name of some length {}", rng.below(400));
                match v.unlink(&n).await {
                    Ok(()) | Err(FsError::NotFound) => {}
                    Err(e) => panic!("{n}: {e}"),
                }
            }
            6 => {
                let n = format!("many/another file, which we have made, number {step}");
                let fd = v.open(&n, OpenFlags::CREATE, 0o600).await.expect("opens");
                v.pwrite(fd, 0, &[Slice::pattern(step, 0, 100)]).await.expect("writes");
                v.close(fd).await.expect("closes");
            }
            7 => {
                let d = format!("gone/d{step}");
                v.mkdir(&d, 0o755).await.expect("makes");
                v.symlink(&"t".repeat(1 + rng.below(150) as usize), &format!("{d}/l"))
                    .await
                    .expect("links");
            }
            8 => {
                let n = format!("gone/f{}", rng.below(40));
                match v.rename(&n, &format!("a/b/moved{step}")).await {
                    Ok(()) | Err(FsError::NotFound) => {}
                    Err(e) => panic!("{n}: {e}"),
                }
            }
            _ => v.rt().sleep(Span::millis(rng.below(4_000))).await,
        }
    }
    v.truncate("a/sparse", 5_000).await.expect("cuts");
    v.truncate("a/sparse", 2_000_000).await.expect("extends");
    v.unlink("short").await.expect("removes");
    v.unlink("a/long").await.expect("removes");
}

/// Seconds since 1970 at which recovery here sets times.
const OUR_CLOCK: i64 = 1_700_000_000;

fn round_trip(args: &str, seed: u64) {
    let (image, before) = filled(args);
    let s = setup("6.1");
    let w = World::with_image(&s, &image);
    let vfs = w.mount(&s).unwrap_or_else(|e| panic!("{args}: {e}"));
    let v = vfs.clone();
    assert_eq!(w.run(async move { our_tree(&v).await }), before, "{args}: what the kernel left");
    let v = vfs.clone();
    let after = w.run(async move {
        change(&v, seed).await;
        our_tree(&v).await
    });
    w.unmount(&vfs);
    let medium = w.medium();
    assert_e2fsck_clean(&medium, MIB, args);
    assert_eq!(kernel_tree(&medium, MIB), Ok(after), "{args}: what we left");
    drop(vfs);
    w.end();
    // And without the courtesy of an unmount: cut anywhere, the kernel and we recover the same.
    let w = World::with_image(&s, &image);
    let vfs = w.mount(&s).expect("mounts");
    let v = vfs.clone();
    drop(w.rt.spawn("change", async move { change(&v, seed).await }));
    let mut rng = Rng::stream(seed, "cuts");
    for cut in 0..4 {
        w.rt.run_until(w.rt.now() + Span::micros(rng.below(20_000_000)));
        let now = w.rt.now();
        let view = w.queue.with_device(|d| d.crash_view(now));
        let mut medium = view.medium.clone();
        for unit in &view.loss {
            if rng.below(2) == 0 {
                unit.apply(&mut medium);
            }
        }
        let what = format!("{args}: cut {cut} at {now}");
        let theirs = kernel_tree(&medium, MIB).unwrap_or_else(|e| panic!("{what}: {e}"));
        let r = World::with_image(&s, &medium);
        let again = r.mount(&s).unwrap_or_else(|e| panic!("{what}: {e}"));
        let v = again.clone();
        let mut ours = r.run(async move { our_tree(&v).await });
        if args.contains("fast_commit") {
            // A replayed name changes its directory at the time of the replay, whosever clock it
            // is.
            for (path, dir) in ours.iter_mut().filter(|(_, file)| file.0 == 'd') {
                let Some(other) = theirs.get(path) else { continue };
                if dir.5 == OUR_CLOCK && other.5 > OUR_CLOCK + 86_400 {
                    dir.5 = other.5;
                }
            }
        }
        assert_eq!(ours, theirs, "{what}");
        r.unmount(&again);
        assert_e2fsck_clean(&r.medium(), MIB, &what);
        drop(again);
        r.end();
    }
    drop(vfs);
    w.end();
    drop((image, medium));
    assert_nothing_lives();
}

const TODAY: &str = "-O orphan_file,metadata_csum_seed";

#[test]
fn an_image_with_todays_defaults_goes_to_and_fro() {
    if !can_mount("round trip of default images") {
        return;
    }
    round_trip(&format!("{TODAY} -b 4096"), 1);
    round_trip(&format!("{TODAY} -b 2048"), 2);
    round_trip(&format!("{TODAY} -b 1024"), 3);
}

#[test]
fn images_with_other_features_go_to_and_fro() {
    if !can_mount("round trip of images with other features") {
        return;
    }
    for (seed, args) in [
        "-O ^metadata_csum,uninit_bg",
        "-O ^metadata_csum,^64bit -b 1024",
        "-O ^64bit -b 2048",
        "-O ^flex_bg",
        "-O ^dir_index",
        "-O ^resize_inode,sparse_super2,^sparse_super",
        "-O ^sparse_super,^resize_inode -b 1024",
        "-O ^extra_isize,^huge_file,^dir_nlink,^large_file",
        "-O ^filetype",
        "-I 128 -b 4096",
        "-I 512 -b 1024",
        "-O fast_commit",
        "-E lazy_itable_init=0",
        "-g 2048 -b 1024 -N 20000",
        "-O ^extents,^64bit -b 1024",
        "-O ^extents,^64bit -b 4096",
        "-O ^extents,^64bit,^metadata_csum,uninit_bg,^dir_index -b 2048",
        "-O bigalloc -b 4096 -C 16384",
        "-O bigalloc,^64bit,^metadata_csum,uninit_bg -b 2048 -C 32768",
    ]
    .into_iter()
    .enumerate()
    {
        round_trip(args, 10 + seed as u64);
    }
}

#[test]
fn features_that_we_cannot_write_are_refused_by_name() {
    if !can_mount("refusals of images") {
        return;
    }
    for (args, name) in [
        ("-O bigalloc,fast_commit -b 4096", "bigalloc"),
        ("-O bigalloc -b 1024", "bigalloc"),
        ("-O inline_data", "inline_data"),
        ("-O casefold", "casefold"),
        ("-O encrypt", "encrypt"),
        ("-O quota", "quota"),
        ("-O quota,project", "quota,project"),
        ("-O meta_bg,^resize_inode", "meta_bg"),
        ("-O ea_inode", "ea_inode"),
        ("-O verity", "verity"),
        ("-O mmp", "mmp"),
        ("-O large_dir", "large_dir"),
        ("-O ^has_journal", "journal"),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("image");
        mkfs(&path, MIB, args);
        let image = load(&path);
        let s = setup("6.1");
        let w = World::with_image(&s, &image);
        match w.mount(&s) {
            Err(FsError::Unsupported(why)) => assert!(why.contains(name), "{args}: {why}"),
            Err(e) => panic!("{args}: {e}"),
            Ok(_) => panic!("{args}: mounted"),
        }
        w.medium().diff(&image, &mut |at, _| panic!("{args}: {at:?} of a refused image changed"));
        w.end();
    }
}

fn super_block(m: &Medium) -> SuperBlock {
    let mut bytes = [0u8; SuperBlock::BYTES];
    m.read_bytes(SuperBlock::AT, &mut bytes);
    SuperBlock::load(&bytes).expect("a super block")
}

#[test]
fn mounting_keeps_the_books_of_the_super_block_as_the_kernel_does() {
    for (era, features, version) in [
        ("3.4", Features::era_2012(), 0),
        ("3.17", Features::today(), 0),
        ("6.1", Features::today(), 0x12),
    ] {
        let s = Setup { features, ..setup(era) };
        let w = World::fresh(&s);
        let before = super_block(&w.medium());
        let vfs = w.mount(&s).expect("mounts");
        let v = vfs.clone();
        let mounted = super_block(&w.medium());
        assert!(mounted.has_incompat(incompat::RECOVER), "{era}");
        assert_eq!(mounted.state.get(), 1, "{era}: with a journal the state stays valid");
        assert_eq!(mounted.mnt_count.get(), before.mnt_count.get() + 1, "{era}");
        w.run(async move {
            let fd = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
            v.pwrite(fd, 0, &[Slice::pattern(1, 0, 1 << 20)]).await.expect("writes");
            v.fsync(fd).await.expect("syncs");
            v.close(fd).await.expect("closes");
        });
        let crashed = w.medium();
        w.unmount(&vfs);
        let after = super_block(&w.medium());
        let kib = after.kbytes_written.get() - before.kbytes_written.get();
        assert!((1024..1400).contains(&kib), "{era}: {kib} KiB written");
        assert!(!after.has_incompat(incompat::RECOVER) && after.state.get() == 1, "{era}");
        assert!(after.wtime.get() >= mounted.mtime.get(), "{era}");
        // What the journal of a crashed image says of its format.
        let view = MediumView { medium: crashed, start: wp_base::Sector(0), bytes: MIB << 20 };
        let at = wp_ext4::evidence::journal_super_sector(&view).expect("a journal").bytes();
        let mut bytes = [0u8; 1024];
        view.medium.read_bytes(at, &mut bytes);
        let word = u32::from_be_bytes([bytes[0x28], bytes[0x29], bytes[0x2A], bytes[0x2B]]);
        assert_eq!(word & 0x1A, if era == "3.17" { 2 } else { version }, "{era}: journal features");
        drop(vfs);
        w.end();
    }
}

/// Files without extents, through all three levels of pointers.
#[test]
fn files_of_indirect_blocks_grow_shrink_and_have_holes_at_every_level() {
    if !can_mount("indirect blocks beside the host kernel") {
        return;
    }
    let (image, _) = filled("-O ^extents,^64bit,^large_file -b 1024");
    for nodelalloc in [false, true] {
        let s = Setup { nodelalloc, ..setup("6.1") };
        let w = World::with_image(&s, &image);
        let vfs = w.mount(&s).expect("mounts");
        let v = vfs.clone();
        let tree = w.run(async move {
            let write = async |name: &str, at: u64, len: u32| {
                let fd = v.open(name, OpenFlags::CREATE, 0o644).await.expect("opens");
                let out = v.pwrite(fd, at, &[Slice::pattern(at, 0, len)]).await;
                v.close(fd).await.expect("closes");
                out
            };
            // 1 KiB blocks: one level up to 268 KiB, two up to 64 MiB, three up to 16 GiB.
            for at in [0, 11 << 10, 12 << 10, 267 << 10, 268 << 10, 65 << 20, 80 << 20, 15 << 30] {
                write("holes", at, 5_000).await.expect("writes");
            }
            write("dense", 0, 900_000).await.expect("writes");
            let limit = (12 + 256 + 256 * 256 + 256 * 256 * 256) << 10;
            assert_eq!(write("end", limit - 100, 300).await, Ok(100));
            assert_eq!(write("end", limit, 1).await, Err(FsError::TooBig));
            v.sync().await.expect("syncs");
            assert_eq!(v.truncate("holes", limit + 1).await, Err(FsError::TooBig));
            for size in [15 << 30, 81 << 20, 65 << 20, 300 << 10, 13 << 10] {
                let name = format!("cut{size}");
                for at in [0, 12 << 10, 290 << 10, 66 << 20, 90 << 20] {
                    write(&name, at, 30_000).await.expect("writes");
                }
                v.sync().await.expect("syncs");
                v.truncate(&name, size).await.expect("cuts");
            }
            v.unlink("end").await.expect("removes");
            // The host reads holes byte by byte: keep that short.
            v.truncate("holes", 70 << 20).await.expect("cuts");
            v.truncate(&format!("cut{}", 15u64 << 30), 91 << 20).await.expect("cuts");
            our_tree(&v).await
        });
        w.unmount(&vfs);
        assert_e2fsck_clean(&w.medium(), MIB, "indirect blocks");
        assert_eq!(kernel_tree(&w.medium(), MIB), Ok(tree));
        drop(vfs);
        w.end();
    }
}

/// Are the unused inodes of all groups zero, and how many groups say so?
fn zeroed_tables(m: &Medium) -> (bool, usize, usize) {
    let view = MediumView { medium: m.clone(), start: wp_base::Sector(0), bytes: MIB << 20 };
    let image = wp_ext4::image::Image::open(&view).expect("opens");
    let g = *image.geometry();
    let (mut zero, mut said) = (true, 0);
    for d in image.groups() {
        said += usize::from(d.has(GroupDesc::INODE_ZEROED));
        let unused = u64::from(d.itable_unused()) * u64::from(g.inode_bytes);
        let table = u64::from(g.inodes_per_group) * u64::from(g.inode_bytes);
        let bs = u64::from(g.block_size.bytes());
        let first = (table - unused).next_multiple_of(bs);
        let mut bytes = vec![0; (table - first) as usize];
        m.read_bytes(d.inode_table() * bs + first, &mut bytes);
        zero &= bytes.iter().all(|b| *b == 0);
    }
    (zero, said, image.groups().len())
}

#[test]
fn inode_tables_that_mkfs_left_are_zeroed_in_the_background() {
    if !can_mount("lazy initialisation of inode tables") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    mkfs(&path, MIB, "-E lazy_itable_init=1,nodiscard -b 1024");
    let mut image = load(&path);
    // What a used device would show there.
    let view = MediumView { medium: image.clone(), start: wp_base::Sector(0), bytes: MIB << 20 };
    let tables: Vec<(u64, u64)> = {
        let i = wp_ext4::image::Image::open(&view).expect("opens");
        let blocks = u64::from(i.geometry().itable_blocks);
        i.groups().iter().skip(1).map(|d| (d.inode_table(), blocks)).collect()
    };
    for (first, n) in tables {
        image.write_bytes(first * 1024, &vec![0xA5; n as usize * 1024]);
    }
    let (zero, said, groups) = zeroed_tables(&image);
    assert!(!zero && said < groups, "{zero} {said} {groups}");
    for (init_itable, seconds, device) in [
        (None, 60, "fixed"),
        (Some(10), 60, "fixed"),
        (Some(10), 600, "ssd-128"),
        (Some(10), 6, "fixed"),
    ] {
        let s = Setup { device, ..setup("6.1") };
        let w = World::with_image(&s, &image);
        let (rt, part) = (w.rt.clone(), w.part.clone());
        let options = wp_ext4::fs::MountOptions { init_itable, ..s.mount_options() };
        let fs = w.run(async move { Ext4::mount(&rt, part, options).await }).expect("mounts");
        let vfs = Vfs::new(&w.rt, std::rc::Rc::new(Mounted(fs)));
        // Inodes are taken from the same tables meanwhile.
        let v = vfs.clone();
        w.run(async move {
            for i in 0..seconds * 4 {
                v.mkdir(&format!("d{i}"), 0o755).await.expect("makes");
                v.rt().sleep(Span::millis(250)).await;
            }
        });
        let now = w.rt.now();
        let crashed = w.queue.with_device(|d| d.crash_view(now)).medium;
        kernel_tree(&crashed, MIB).expect("the kernel recovers it");
        w.unmount(&vfs);
        assert_e2fsck_clean(&w.medium(), MIB, "lazy init");
        let (zero, said_now, _) = zeroed_tables(&w.medium());
        if init_itable.is_none() {
            assert_eq!((zero, said_now), (false, said));
        } else if seconds >= 60 {
            assert_eq!((zero, said_now), (true, groups), "{device}");
        }
        drop(vfs);
        w.end();
    }
}

#[test]
fn times_links_and_flags_keep_to_what_the_image_can_hold() {
    if !can_mount("times, links and flags") {
        return;
    }
    // (arguments, are there nanoseconds and years beyond 2038)
    for (args, wide) in [("-I 128 -b 4096", false), ("-O ^extra_isize -b 4096", true)] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("image");
        mkfs(&path, MIB, args);
        {
            let mounted = images::LoopMount::new(&path, dir.path().join("m"), "").expect("mounts");
            for (name, flag) in [("fixed", "+i"), ("log", "+a"), ("free", "-i")] {
                let file = mounted.at.join(name).display().to_string();
                std::fs::write(&file, name).expect("written");
                assert!(images::tool("chattr", &[flag, &file]).0);
            }
        }
        let s = setup("6.1");
        let w = World::with_image(&s, &load(&path));
        let vfs = w.mount(&s).expect("mounts");
        let v = vfs.clone();
        let links = 65_000;
        w.run(async move {
            let one = [Slice::pattern(1, 0, 10)];
            let denied = Err(FsError::NotPermitted);
            assert_eq!(v.open("fixed", OpenFlags::WRITE, 0).await.map(|_| ()), denied);
            assert_eq!(v.unlink("fixed").await, denied);
            assert_eq!(v.rename("fixed", "x").await, denied);
            assert_eq!(v.link("fixed", "x").await, denied);
            assert_eq!(v.truncate("log", 1).await, denied);
            assert_eq!(v.unlink("log").await, denied);
            let fd = v.open("log", OpenFlags { append: true, ..OpenFlags::WRITE }, 0).await?;
            assert_eq!(v.write(fd, &one).await, Ok(10));
            v.close(fd).await?;
            let fd = v.open("new", OpenFlags::CREATE, 0o600).await?;
            v.pwrite(fd, 0, &one).await?;
            let t = TimeSpec { secs: 5_000_000_000, nanos: 123_456_789 };
            let times = AttrChange { atime: Some(t), mtime: Some(t), ..Default::default() };
            let ino = v.ino(fd)?;
            v.fs().set_attr(ino, &times).await?;
            v.close(fd).await?;
            let most = TimeSpec { secs: i64::from(i32::MAX), nanos: 0 };
            assert_eq!(v.stat("new").await?.mtime, if wide { t } else { most });
            v.mkdir("links", 0o755).await?;
            let (root, ino) = (v.fs().root(), v.stat("free").await?.ino);
            let dir = v.fs().lookup(root, b"links").await?;
            for n in 1..links {
                v.fs().link(ino, dir, format!("{n}").as_bytes()).await?;
            }
            let one_more = v.fs().link(ino, dir, b"too many").await;
            assert_eq!(one_more, Err(FsError::TooManyLinks));
            Ok::<_, FsError>(())
        })
        .expect("all of it works");
        let v = vfs.clone();
        let tree = w.run(async move { our_tree(&v).await });
        w.unmount(&vfs);
        assert_e2fsck_clean(&w.medium(), MIB, args);
        assert_eq!(kernel_tree(&w.medium(), MIB), Ok(tree), "{args}");
        drop(vfs);
        w.end();
    }
}

#[test]
fn fast_commits_of_the_hosts_kernel_are_replayed_by_a_mount() {
    if !can_mount("replay of fast commits") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    mkfs(&path, MIB, "-O fast_commit -b 4096");
    let image = {
        let mounted = images::LoopMount::new(&path, dir.path().join("mnt"), "").expect("mounts");
        let file = mounted.at.join("f");
        std::fs::write(&file, b"first").expect("written");
        std::fs::File::open(&mounted.at).and_then(|d| d.sync_all()).expect("synced");
        // A plain append and fsync is what fast commits are for.
        use std::io::Write;
        let mut f = std::fs::OpenOptions::new().append(true).open(&file).expect("opens");
        for _ in 0..3 {
            f.write_all(&[7; 5000]).and_then(|()| f.sync_all()).expect("synced");
        }
        drop(f);
        load(&path)
    };
    let s = setup("6.1");
    let w = World::with_image(&s, &image);
    let vfs = w.mount(&s).expect("mounts");
    let v = vfs.clone();
    let size = w.run(async move { v.stat("f").await.expect("there").size });
    assert_eq!(size, 5 + 3 * 5000, "the last fsyncs are there");
    let v = vfs.clone();
    let tree = w.run(async move { our_tree(&v).await });
    w.unmount(&vfs);
    assert_e2fsck_clean(&w.medium(), MIB, "fast commits");
    assert_eq!(kernel_tree(&w.medium(), MIB), Ok(tree));
    drop(vfs);
    w.end();
}
