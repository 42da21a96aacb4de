//! Every test of this crate beside its sources, as one program: a program each has the linker
//! and the code generator do the same work over and over.

mod attributes;
mod blk_mq;
mod crash_failures;
mod errors;
mod fast_commits;
mod found;
mod fstests;
mod guest;
mod host_crash;
mod mounts;
mod recovered;
mod trees;
mod waits;
