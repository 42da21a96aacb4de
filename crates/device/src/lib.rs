//! Block devices as state machines: where time goes, and what a power cut leaves.
//!
//! Picture:    [`fixed`] one latency for everything · [`plain`] one request after another ·
//!             [`emmc`] one bus, a cache with flush and barrier · [`ssd`] buffer and page-mapping
//!             FTL on the NAND core [`nand`] · [`zns`] zones on the same core. [`DEVICES`] lists
//!             them ready-made, with the source of every number.
//! Invariants: 1. nothing here has a clock, chance only from a seed that is one of its numbers, and
//!                floats only to begin an aged SSD (`ssd::steady`): same calls, same effects;
//!             2. contents move by reference, from the request to the medium;
//!             3. what was completed before a flush was submitted is in `crash_view().medium` when
//!                the flush completes.
//! Left out:   media errors.

mod chain;
mod check;
pub mod config;
mod contents;
pub mod emmc;
pub mod fixed;
mod lane;
pub mod nand;
mod nvme;
mod offset_device;
pub mod plain;
pub mod preset;
pub mod ssd;
mod untorn;
mod zn540;
pub mod zns;

pub use config::{ConfigError, DeviceEntry, Param, Rated, Settings};
pub use offset_device::OffsetDevice;
pub use preset::{DEVICES, find};
