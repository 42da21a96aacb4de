//! Runs with a thousand files: hash-tree directories inside the paper's runs.

use wp_papers::ext4_fsync::{self, RunPlan};
use wp_parity::reference::Phase;

/// From the real kernels (all three eras alike), descriptor included, commit record not.
const JOURNAL_BLOCKS: [(u32, u32, u32); 4] = [(1, 4, 2), (10, 5, 3), (100, 10, 8), (1000, 67, 65)];

#[test]
fn the_fsync_logs_as_many_blocks_as_in_the_real_kernels_up_to_a_thousand_files() {
    for era in ext4_fsync::ERAS {
        for (files, alloc, others) in JOURNAL_BLOCKS {
            for (case, blocks) in [("alloc", alloc), ("extend", others), ("over", others)] {
                let r = ext4_fsync::run(&RunPlan::figure_10(era, case, files, 1)).expect("runs");
                let logged = r.summary.class(Phase::Fsync, "journal").map_or(0, |c| c.blocks());
                assert_eq!(logged, blocks, "{era} {case}, {files} files");
            }
        }
    }
}
