//! Units, errors, checksums, random streams, phrases and the event schema: what every other crate
//! speaks.
//!
//! Invariant: nothing here knows the operating system, a clock, or any other crate of the project.

pub mod crc;
pub mod csv;
mod device_number;
pub mod era;
pub mod error;
pub mod event;
pub mod kernel;
pub mod live;
pub mod phrase;
pub mod plain;
pub mod quantity;
pub mod rng;
pub mod site;
pub mod stage;
pub mod table;
pub mod units;
pub mod zone;
pub mod zone_report;

pub use device_number::DeviceNumber;
pub use error::{Corruption, FsError, FsResult, LINUX_ERRNOS, errno_number};
pub use rng::Rng;
pub use units::{BlockSize, Ino, SECTOR_BYTES, Sector, Span, Time};
pub use zone::{Zone, ZoneKind, ZoneLimits, ZoneState};
