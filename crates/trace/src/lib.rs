//! Block traces: files of other tools, read and written, and replayed onto a device model.
//!
//! Picture:    files -> [`Trace`] (one format, in the order of time) -> [`Requests`] (one device,
//!             one step, with the recorded completion) -> [`replay`] -> what the device did.
//! Invariants: 1. nothing here opens a file, knows a clock or draws a number: the same bytes give
//!                the same requests, and these the same results;
//!             2. what is read takes memory for a window, not for a file;
//!             3. whatever the bytes are, the answer is requests or a [`TraceError`], never a
//!                panic.

mod blkparse;
pub mod blktrace;
pub mod compare;
mod disksim;
mod error;
mod format;
mod ftrace;
mod iolog;
mod item;
mod lines;
mod msr;
pub mod replay;
mod requests;
mod rwbs;
mod trace;

pub use error::{Place, TraceError};
pub use format::Format;
pub use item::{Event, Item, Names, Skip, Skipped, Step};
pub use requests::{Action, Request, Requests, Select};
pub use trace::{File, Trace};
