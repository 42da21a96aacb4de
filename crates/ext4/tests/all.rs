//! Every test of this crate beside its sources, as one program: a program each has the linker
//! and the code generator do the same work over and over.

mod accesses;
mod barrier;
mod bigalloc;
mod check_vs_e2fsck;
mod damage;
mod data_modes;
mod fast_commit;
#[path = "../../testkit/src/host.rs"]
mod host;
mod htree;
mod ijournal;
mod images;
mod indirect;
mod mkfs_vs_mke2fs;
mod mounted;
mod real_images;
mod recover_at_mount;
mod reference;
mod reference_images;
mod robustness;
mod shift;
mod skip;
mod stress;
mod support;
mod tool_made_images;
mod unwritten;
mod writes_now;
