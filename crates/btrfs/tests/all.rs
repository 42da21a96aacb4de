//! Every test of this crate beside its sources, as one program: a program each has the linker
//! and the code generator do the same work over and over.

mod check_vs_btrfs_check;
mod commit;
mod commits;
mod cuts;
mod damage;
mod damaged;
mod faulty;
mod files;
#[path = "../../testkit/src/host.rs"]
mod host;
mod hostile;
mod hostile_images;
mod hostile_numbers;
mod images;
mod judge;
mod kernel;
mod kernel_runs;
mod listings;
mod logs;
mod mkfs_vs_program;
mod model;
mod mounted;
mod program;
mod programs;
mod races;
mod reference;
mod reference_images;
mod reflink;
mod robustness;
#[path = "../../base/tests/skip/mod.rs"]
mod skip;
mod snapshots;
mod subvolumes;
mod together;
mod tool_made;
mod tools;
mod trees;
mod trouble;
mod verdicts;
mod versions;
mod waits;
mod world;
