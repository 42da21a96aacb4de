//! The papers, as experiments.

pub mod ext4_fsync;
pub mod kernels;
pub mod today;
