//! Every test of this crate beside its sources, as one program: a program each has the linker
//! and the code generator do the same work over and over.

mod aged;
mod barrier;
mod common;
mod durability;
mod emmc;
mod presets;
mod simple;
mod ssd_ftl;
mod ssd_gc;
mod ssd_sync;
mod ssd_timing;
mod tells;
mod untorn;
mod zns;
mod zns_timing;
