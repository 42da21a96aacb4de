//! The running journal: commits, conflicts, credits, checkpoints, errors, and every power cut.

mod abort;
mod commit;
mod conflicts;
mod crash;
mod data;
mod faults;
mod format;
#[path = "../../../base/tests/skip/mod.rs"]
mod skip;
mod space;
mod world;
