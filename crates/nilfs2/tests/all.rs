//! Every test of this crate beside its sources, as one program: a program each has the linker
//! and the code generator do the same work over and over.

mod cleaner;
mod damaged;
mod faulty;
mod images;
mod mkfs_vs_program;
mod model;
mod page_cache;
mod planted;
mod programs;
mod reference;
mod reference_images;
mod reseal;
mod robustness;
#[path = "../../base/tests/skip/mod.rs"]
mod skip;
mod together;
mod tools;
mod trouble;
mod world;
mod writer;
