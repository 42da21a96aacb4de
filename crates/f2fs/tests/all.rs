//! Every test of this crate beside its sources, as one program: a program each has the linker
//! and the code generator do the same work over and over.

mod atomic;
mod check_vs_fsck;
mod direct;
mod fields;
mod images;
mod mkfs_vs_program;
mod model;
mod mounted;
mod programs;
mod reference;
mod reference_images;
mod robustness;
#[path = "../../base/tests/skip/mod.rs"]
mod skip;
mod structures;
mod together;
mod tools;
mod world;
mod zoned;
mod zones;
