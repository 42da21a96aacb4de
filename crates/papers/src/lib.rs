//! The papers as experiments, their claims and how each is judged, and every technique on one
//! stack.

pub mod claims;
pub mod direct_io;
pub mod ext4_fsync;
pub mod f2fs_oprw;
pub mod inode_trim;
pub mod journal_conflict;
pub mod kernels;
pub mod matrix;
mod page;
pub mod perturb;
pub mod results;
pub mod techniques;
pub mod today;
pub mod vary;
