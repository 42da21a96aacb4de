//! Whatever compares with a real kernel: recorded runs, guests in virtual time, the kernel of this
//! host, and images that kernels left.

pub mod fast_commits;
pub mod host_kernel;
pub mod kernel_lab;
pub mod recovered;
pub mod reference;
pub mod roundtrip;
pub mod trees;
pub mod vtime;
