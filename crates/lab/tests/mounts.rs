//! Images of ours in a real kernel: mounted, listed, changed and read back (`writepath kernels
//! mounts` does it for many). Skipped by name where there is no guest.

use wp_lab::spec::file_system;
use wp_lab::testing::skipped;
use wp_lab::there::{Plan, trips};
use wp_lab::vtime::guest::Guest;

/// A few images, two programs each, one in two cut off; nothing may differ.
fn there_and_back(fs: &str, zoned: bool) {
    let check = format!("images of {fs}{} in a real kernel", if zoned { ", zoned," } else { "" });
    let script = Guest::usual_place();
    if let Err(why) = Guest::is_ready(&script) {
        return skipped(&check, &why);
    }
    let (fs, options) = file_system(fs).expect("a file system");
    let scratch = tempfile::tempdir().expect("a directory");
    let plan = Plan { fs, options: &options, kernel_mount: "", seeds: (1, 4), zoned };
    let all = trips(&script, scratch.path(), &plan).expect("the guest runs");
    assert_eq!(all.len(), 4);
    for trip in &all {
        assert!(trip.differences.is_empty(), "{check}: {trip:#?}");
        assert!(trip.files > 0 && trip.after > trip.files, "{trip:#?}");
    }
    assert_eq!(all.iter().filter(|t| t.crashed).count(), 2);
}

#[test]
fn a_real_kernel_mounts_our_f2fs() {
    there_and_back("f2fs,era=6.12", false);
}

#[test]
fn a_real_kernel_mounts_our_f2fs_on_a_zoned_device() {
    there_and_back("f2fs,era=6.12", true);
}

#[test]
fn a_real_kernel_mounts_our_nilfs2() {
    there_and_back("nilfs2,era=6.12,blocks_per_segment=256", false);
}

#[test]
fn a_real_kernel_mounts_nilfs2_that_our_cleaner_has_cleaned() {
    let cleaner = "cleaner,protection_period=0,min_clean_segments=0,clean_check_interval=1,\
                   cleaning_interval=1,min_reclaimable_blocks=1";
    there_and_back(&format!("nilfs2,era=6.12,blocks_per_segment=64,{cleaner}"), false);
}
