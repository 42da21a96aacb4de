//! filebench personalities: filesets, and threads that go through lists of flowops.
//!
//! Picture:    [`Personality`] (what a WML file says) -> [`run()`] on a mounted file system ->
//!             [`BenchResult`]. [`varmail`] is the published mail server's.
//! Semantics:  read in filebench 1.5 and watched with strace:
//!             - a file is not picked at random. All threads and kinds of operations share one
//!               rotor over files that exist (the next higher one that nobody has picked, from the
//!               lowest again after the highest), and another over those that do not;
//!             - an append has a uniform length from 0 up to its `iosize` less a byte; nothing is
//!               written for 0, and it counts;
//!             - a whole file is read in pieces of `iosize` until nothing comes;
//!             - a deletion of a file that another thread has open does nothing and counts nothing;
//!             - every flowop counts as an operation.
//! Left out:   processes, events and rates; the parser of WML.

mod fileset;
mod personality;
mod random;
mod run;

pub use personality::{Fileset, Flowop, Personality, Sizes, fileserver, varmail};
pub use random::{gamma, ln};
pub use run::{BenchResult, OpCount, RunLength, ThreadResult, Watch, run, run_watched};
