//! A mounted file system of ours under the programs of this host, through FUSE.
//!
//! Picture:    program -> kernel (FUSE) -> [`Door`] (thread of the session) -> [`Live`] ->
//!             `Player` -> `Vfs`; each call is in the [`Recording`]. The simulation is on that
//!             thread ([`Here`]), or gets jobs on one of its own ([`serve`]), which also has a
//!             pace.
//! Invariants: 1. the simulation is one thread, and does one request at a time in the order in
//!                which they came: what it did, a program of the recorded calls does again;
//!             2. a call is recorded when it has been answered, before its caller knows;
//!             3. nothing that a program asks for is answered with success and not done.
//! Left out:   `sync(2)` and `syncfs(2)`, which the kernel does not pass on to FUSE; `ioctl` but
//!             for the flags of files and atomic writes; files without a name (`O_TMPFILE`);
//!             names that are no UTF-8.

mod control;
mod door;
mod flags;
mod live;
mod mount;
mod nodes;
mod private;
mod record;
mod recording;
mod reply;
mod requests;
mod serve;

pub use door::{Door, Ended, Make, config};
pub use live::Live;
pub use mount::{Mounted, mount};
pub use private::{entered, spawn};

pub use record::{RecordError, Recorded, record, record_on};
pub use recording::Recording;
pub use serve::{Here, Job, Over, Pace, Requests, serve};
