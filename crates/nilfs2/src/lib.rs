//! NILFS2.

pub mod disk;
