//! The mounted btrfs beside the kernel of this host: the same calls give the same answers and the
//! same trees, and `btrfs check` has nothing to say of either image.
//!
//! Needs root, loop devices and btrfs-progs; skipped by name elsewhere.

use wp_testkit::btrfs_twin::{Trip, World, is_possible, there_and_back};

/// Settings: sizes of tree blocks, copies of metadata, checksums, data in place, no logs, nothing
/// in items.
const WORLDS: &[World] = &[
    World { seed: 1, mkfs: Some(""), ours: "era=6.12.117", theirs: "" },
    World { seed: 2, mkfs: Some("-n 4096 -m single"), ours: "era=6.12.117", theirs: "" },
    World { seed: 3, mkfs: None, ours: "era=6.12.117,node_size=4096", theirs: "" },
    World {
        seed: 4,
        mkfs: Some("-m dup --csum xxhash"),
        ours: "era=6.12.117,notreelog",
        theirs: "notreelog",
    },
    World { seed: 5, mkfs: Some(""), ours: "era=6.12.117,nodatacow", theirs: "nodatacow" },
    World {
        seed: 6,
        mkfs: None,
        ours: "era=6.12.117,metadata=single,nodatasum",
        theirs: "nodatasum",
    },
    World {
        seed: 7,
        mkfs: Some("-n 8192"),
        ours: "era=6.12.117,max_inline=0,commit=1",
        theirs: "max_inline=0,commit=1",
    },
];

/// `DIFFERENTIAL_ROUNDS` times all settings, each time with other seeds.
#[test]
fn the_same_calls_give_the_same_answers_on_btrfs_here_and_on_the_host_kernel() {
    if !is_possible("btrfs programs here and on the host kernel") {
        return;
    }
    let rounds = std::env::var("DIFFERENTIAL_ROUNDS").ok().and_then(|n| n.parse().ok());
    let rounds: u64 = rounds.unwrap_or(1);
    let trip = Trip { turns: 1, calls: 1500, cuts: false };
    let mut same = 0;
    for round in 0..rounds {
        for world in WORLDS {
            let world = World { seed: world.seed + 1000 * round, ..*world };
            same += there_and_back(&world, &trip);
        }
    }
    println!("btrfs: {same} calls, the same answers; trees equal, images clean");
}
