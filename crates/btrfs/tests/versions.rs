//! What the log of each kernel version has of the same calls, and that it is sound: our check and
//! `btrfs check` judge each image that a power failure leaves.

use std::collections::BTreeSet;

use wp_base::Sector;
use wp_btrfs::core::{Core, Disk};
use wp_btrfs::disk::{Key, kind};
use wp_btrfs::era::Era;
use wp_btrfs::fs::MountOptions;
use wp_medium::MediumView;
use wp_vfs::{OpenFlags, Version};

use crate::mounted::{Setup, World, assert_nothing_lives, judge};

fn setup(version: &str) -> Setup {
    let era = Era::of(Version::parse(version).expect("a version"));
    let plain = Setup::new();
    Setup { mount: MountOptions { era, ..plain.mount.clone() }, ..plain }
}

/// Items of the log by inode and kind, after calls and a power failure.
fn logged(version: &str) -> BTreeSet<(u64, u8)> {
    let setup = setup(version);
    let world = World::fresh(&setup);
    let v = world.mount(&setup).expect("mounts");
    world.run(async move {
        let make = async |path: &str| v.open(path, OpenFlags::CREATE, 0o644).await.expect("opens");
        // 257 and 258, then 259 and 260.
        v.mkdir("dir", 0o755).await.expect("makes");
        v.mkdir("dir/old", 0o755).await.expect("makes");
        make("dir/kept").await;
        make("dir/gone").await;
        v.sync().await.expect("syncs");
        // 261 to 263: in the old subdirectory; a new name for it; the name of a removed file.
        make("dir/old/inner").await;
        v.unlink("dir/gone").await.expect("removes");
        make("dir/new").await;
        v.link("dir/new", "dir/link").await.expect("links");
        let dir = v.open("dir", OpenFlags::READ, 0).await.expect("opens");
        v.fsync(dir).await.expect("syncs");
    });
    let medium = world.durable();
    let view = MediumView { medium: medium.clone(), start: Sector(0), bytes: setup.mib << 20 };
    let mut core = Core::open(Disk::of_view(&view)).expect("it opens");
    let logs = core.open_logs().expect("they are sound");
    let mut found = BTreeSet::new();
    let (mut from, to) = (Key::new(256, 0, 0), Key::new(1000, u8::MAX, u64::MAX));
    while let Some((key, _)) = core.first(logs[0].1, from, to).expect("it is sound") {
        found.insert((key.objectid, key.kind));
        from = key.next().expect("not the last that there can be");
    }
    drop(core);
    world.end();
    judge(&medium, setup.mib, version);
    found
}

#[test]
fn the_log_of_a_directory_is_that_of_the_version() {
    let logs = ["5.15", "5.16", "5.17", "5.18", "6.1", "7.1"].map(|v| (v, logged(v)));
    let has = |ino, kind| logs.each_ref().map(|(_, found)| found.contains(&(ino, kind)));
    // By hash until 5.16, by index always.
    let by_hash = [true, true, false, false, false, false];
    assert_eq!(has(257, kind::DIR_ITEM), by_hash);
    assert_eq!(has(257, kind::DIR_LOG_ITEM), by_hash);
    assert_eq!(has(257, kind::DIR_INDEX), [true; 6]);
    assert_eq!(has(257, kind::DIR_LOG_INDEX), [true; 6]);
    // The older subdirectory until 5.17, and what is new in it.
    let with_old = [true, true, true, false, false, false];
    assert_eq!(has(258, kind::INODE_ITEM), with_old);
    assert_eq!(has(261, kind::INODE_ITEM), with_old);
    // A file that has not changed in none of them, a new one in all.
    assert_eq!(has(259, kind::INODE_ITEM), [false; 6]);
    assert_eq!(has(262, kind::INODE_ITEM), [true; 6]);
    assert_nothing_lives();
}

/// A rename of a file that was not logged logs it in 5.15, with or without a log; in 5.16 and 5.17
/// only if there is a log.
#[test]
fn a_new_name_is_logged_by_guess_before_5_18() {
    let renamed = |version: &str, has_log: bool| {
        let setup = setup(version);
        let world = World::fresh(&setup);
        let v = world.mount(&setup).expect("mounts");
        world.run(async move {
            let other = v.open("other", OpenFlags::CREATE, 0o644).await.expect("opens");
            if has_log {
                v.fsync(other).await.expect("syncs");
            }
            v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
            v.rename("f", "g").await.expect("renames");
            v.open("last", OpenFlags::CREATE, 0o644).await.expect("opens");
            let last = v.open("last", OpenFlags::WRITE, 0).await.expect("opens");
            v.fsync(last).await.expect("syncs");
        });
        let world_cut = world.durable();
        world.end();
        judge(&world_cut, setup.mib, version);
        let after = World::empty(&setup);
        after.load(&world_cut);
        let v = after.mount(&setup).expect("mounts");
        let is_there = after.run(async move { v.stat("g").await.is_ok() });
        after.end();
        is_there
    };
    let there = |has_log| ["5.15", "5.16", "5.17", "5.18"].map(|v| renamed(v, has_log));
    assert_eq!(there(false), [true, false, false, false]);
    assert_eq!(there(true), [true, true, true, false]);
    assert_nothing_lives();
}
