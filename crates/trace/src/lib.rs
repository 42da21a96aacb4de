//! Block traces: files of other tools, read and written, and replayed onto a device model.
//!
//! Picture:    files -> [`Trace`] (one format, in the order of time) -> [`Requests`] (chosen
//!             devices, one step, with the recorded completion) -> [`replay`] -> what the device
//!             did. Workload definitions of MQSim ([`mqsim`]) give streams of requests instead.
//! Invariants: 1. nothing here opens a file or knows a clock, and random numbers come from a seed:
//!                the same bytes give the same requests, and these the same results;
//!             2. what is read takes memory for a window, not for a file;
//!             3. whatever the bytes are, the answer is requests or a [`TraceError`], never a
//!                panic.

mod biosnoop;
mod blkparse;
pub mod blktrace;
mod columns;
pub mod compare;
mod devices;
mod dialects;
mod error;
mod format;
mod ftrace;
mod iolog;
mod item;
mod lines;
pub mod mqsim;
pub mod replay;
mod requests;
mod rwbs;
mod trace;
mod vscsi;

pub use columns::Columns;
pub use devices::{Devices, Found, bases, survey};
pub use error::{Place, TraceError};
pub use format::Format;
pub use item::{Event, Item, Names, Skip, Skipped, Step};
pub use requests::{Action, Request, Requests, Select};
pub use trace::{File, Trace};
