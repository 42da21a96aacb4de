//! From measurements of a real drive to a preset, with the error of what was held out.
//!
//! Picture:    reports of fio, pg_test_fsync, ioping and iostat, lists of points, block traces ->
//!             [`Input`] -> loads, of which some are held out -> numbers of a [`Class`] that the
//!             others tell (`fit`) -> a device file, and the model beside every measured value.
//! Laws:       1. a number is fitted only if the fitted loads tell it from all others; what they do
//!                not tell stays as the class has it, and is `assumed`;
//!             2. held out: of the loads of one operation, pattern and sync, sorted by size, jobs
//!                and depth, the second of each three (`is_held_out`); or those that are named. One
//!                load of several reports is one: all of it is held out, or none;
//!             3. of a held-out load nothing that was measured is told to the model: its host is
//!                that of the fitted ones (`of_the_others`).
//! Invariants: the same input gives the same numbers.
//! Left out:   tails of latencies, which no model here has; collection of flash in the steady
//!             state: the model is run as a new drive.

mod bench;
mod calibration;
pub mod drive;
mod fit;
mod load;
mod measured;
mod recorded;
mod reports;
mod scale;
pub mod sync;

pub use calibration::{CLASSES, Calibrated, Class, Held, Judged, Parameter, Plan, calibrate};
pub use fit::Unidentified;
pub use load::{Figures, Load, run as run_load};
pub use measured::{Input, Measured, parse};
pub use recorded::{Served, recorded};
