//! Images of ours in a real kernel: mounted, listed, changed and read back (`writepath kernels
//! mounts` does it for many). Skipped by name where there is no guest.
//!
//! btrfs also goes to the kernel of this host and back, which needs root and loop devices.

use wp_machine::spec::file_system;
use wp_machine::testing::skipped;
use wp_parity::kernel_lab::Kernel;
use wp_parity::roundtrip::{Plan, trips};
use wp_testkit::btrfs_twin;
use wp_testkit::btrfs_twin::World;

/// A few images, two programs each, one in two cut off; nothing may differ.
fn there_and_back(fs: &str, zoned: bool) {
    travel(fs, zoned, None, 1);
}

/// The same, first made by us or by the real mkfs, so many times there and back.
fn travel(fs: &str, zoned: bool, real_mkfs: Option<&str>, rounds: u64) {
    let more = match (zoned, real_mkfs) {
        (true, _) => ", zoned,".to_owned(),
        (false, Some(args)) => format!(" of its mkfs {args}"),
        (false, None) => String::new(),
    };
    let check = format!("images of {fs}{more} in a real kernel");
    let guest = match Kernel::find(None, None) {
        Ok(guest) => guest,
        Err(why) => return skipped(&check, &why),
    };
    let (fs, options) = file_system(fs).expect("a file system");
    let scratch = tempfile::tempdir().expect("a directory");
    let plan =
        Plan { fs, options: &options, kernel_mount: "", seeds: (1, 4), zoned, real_mkfs, rounds };
    let all = trips(&guest, scratch.path(), &plan).expect("the guest runs");
    assert_eq!(all.len(), 4);
    for trip in &all {
        assert!(trip.differences.is_empty(), "{check}: {trip:#?}");
        assert!(trip.files > 0 && trip.after > trip.files, "{trip:#?}");
    }
    assert_eq!(all.iter().filter(|t| t.crashed).count(), 2);
}

#[test]
fn a_real_kernel_mounts_our_f2fs() {
    there_and_back("f2fs,era=6.12.117", false);
}

#[test]
fn a_real_kernel_mounts_our_f2fs_on_a_zoned_device() {
    there_and_back("f2fs,era=6.12.117", true);
}

#[test]
fn a_real_kernel_mounts_our_f2fs_that_only_appends() {
    there_and_back("f2fs,era=6.12.117,mode=lfs", false);
}

#[test]
fn a_real_kernel_mounts_our_nilfs2() {
    there_and_back("nilfs2,era=6.12.117,blocks_per_segment=256", false);
    there_and_back("nilfs2,era=6.12.117,block_size=1024,blocks_per_segment=512", false);
}

#[test]
fn a_real_kernel_mounts_nilfs2_that_our_cleaner_has_cleaned() {
    let cleaner = "cleaner,protection_period=0,min_clean_segments=0,clean_check_interval=1,\
                   cleaning_interval=1,min_reclaimable_blocks=1";
    there_and_back(&format!("nilfs2,era=6.12.117,blocks_per_segment=64,{cleaner}"), false);
}

#[test]
fn a_real_kernel_mounts_our_btrfs_again_and_again() {
    travel("btrfs,era=6.12.117", false, None, 4);
    travel("btrfs,era=6.12.117,node_size=4096,metadata=single", false, None, 2);
}

#[test]
fn a_real_kernels_btrfs_is_mounted_here_again_and_again() {
    let check = "btrfs of the real mkfs in a real kernel";
    if !btrfs_twin::has_programs(check) {
        return;
    }
    travel("btrfs,era=6.12.117", false, Some("-n 4096 -m dup"), 2);
    travel("btrfs,era=6.12.117,notreelog", false, Some("-m single --csum xxhash"), 2);
}

/// The first images of mkfs.btrfs and of ours; sizes of tree blocks, copies of metadata, checksums,
/// files written in place.
#[test]
fn btrfs_goes_to_the_hosts_kernel_and_back_cut_off_and_not() {
    if !btrfs_twin::is_possible("btrfs on the host kernel and back") {
        return;
    }
    let worlds = [
        World { seed: 31, mkfs: Some(""), ours: "era=6.12.117", theirs: "" },
        World { seed: 32, mkfs: Some("-n 4096 -m single"), ours: "era=6.12.117", theirs: "" },
        World { seed: 33, mkfs: Some("-m dup --csum xxhash"), ours: "era=6.12.117", theirs: "" },
        World { seed: 34, mkfs: None, ours: "era=6.12.117,node_size=4096", theirs: "" },
        World { seed: 35, mkfs: None, ours: "era=6.12.117,nodatacow", theirs: "nodatacow" },
    ];
    let trip = btrfs_twin::Trip { turns: 6, calls: 150, cuts: true };
    for world in &worlds {
        btrfs_twin::there_and_back(world, &trip);
    }
}
