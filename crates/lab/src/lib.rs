//! Experiments: machines put together by name, workloads, the papers, and how their claims are
//!              judged.
//!
//! Invariant: nothing here decides what a file system or device does; it builds, runs, reads and
//!            judges.

pub mod calibrate;
pub mod claims;
pub mod classify;
pub mod container;
pub mod crash;
pub mod device_file;
pub mod drive;
pub mod experiment;
pub mod files;
pub mod further;
pub mod host;
pub mod identify;
pub mod machine;
pub mod matrix;
pub mod memory;
pub mod paper;
pub mod parallel;
pub mod perturb;
pub mod profile;
pub mod recover;
pub mod recovered;
pub mod reference;
pub mod registry;
pub mod results;
pub mod roundtrip;
pub mod scale;
pub mod spec;
pub mod techniques;
pub mod testing;
pub mod vtime;
pub mod workload;

/// Seconds since 1970 at power-on of every machine: 2014-01-01, the year of the papers' kernels.
pub const EPOCH_SECS: i64 = 1_388_534_400;
