//! Machines put together by name: file system, device, elevator, CPU and workload, and what a run
//! of one leaves in its results folder.
//!
//! Invariant: nothing here decides what a file system or device does, or judges what it did.

pub mod classify;
pub mod container;
pub mod device_file;
pub mod files;
pub mod further;
pub mod host;
pub mod identify;
pub mod lines;
mod machine;
pub mod memory;
pub mod parallel;
pub mod profile;
pub mod recover;
pub mod registry;
pub mod results;
pub mod scale;
pub mod spec;
pub mod testing;
pub mod workload;

pub use machine::{
    At, Machine, MachineError, MachineSpec, describe, further_devices, make_device, make_image,
    rest_of,
};

/// Seconds since 1970 at power-on of every machine: 2014-01-01, the year of the papers' kernels.
pub const EPOCH_SECS: i64 = 1_388_534_400;
