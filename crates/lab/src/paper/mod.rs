//! The papers, as experiments.

pub mod direct_io;
pub mod ext4_fsync;
pub mod f2fs_oprw;
pub mod inode_trim;
pub mod journal_conflict;
pub mod kernels;
pub mod today;
pub mod vary;
