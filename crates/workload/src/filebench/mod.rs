//! filebench 1.5: its language, its filesets, and threads that go through lists of flowops.
//!
//! Picture:    a text -> [`wml::parse`] -> [`Personality`] -> [`run()`] on a mounted file system ->
//!             [`BenchResult`]. [`PERSONALITIES`] come with it, [`varmail`] and [`fileserver`]
//!             among them.
//! Semantics:  read in filebench 1.5, and compared with the program under strace
//!             (`tests/filebench_oracle.rs`): with [`Personality::own_numbers`], one thread makes
//!             the same calls, with the same files and lengths. The main ones:
//!             - a file is not picked at random. All threads and kinds of operations share one
//!               rotor over files that exist (the next higher one that nobody has picked, from the
//!               lowest again after the highest), and another over those that do not;
//!             - each file is there at the start by chance: their number is about `prealloc`
//!               percent;
//!             - an append has a uniform length from 0 up to its `iosize` less a byte; nothing is
//!               written for 0, and it counts;
//!             - a whole file is read in pieces of `iosize` until nothing comes; one that is
//!               written ends with a whole piece;
//!             - a deletion of a file that another thread has open does nothing and counts nothing;
//!             - every flowop counts as an operation, but for waits, limits and checks; a read or
//!               write that opens its file counts twice.
//! Left out:   several clients, commands of the host.

mod chance;
mod fileset;
pub(crate) mod math;
mod model;
mod numbers;
mod personality;
mod result;
mod ring;
mod run;
mod tree;
pub mod wml;

pub use chance::{CustomKind, Drawn, RandKind};
pub use math::ln;
pub use model::{
    Command, Fileset, Flowop, Kind, Num, Personality, Process, QuitMode, Step, ThreadKind,
};
pub use personality::{BuiltIn, PERSONALITIES, built_in, fileserver, varmail, varmail_nodel};
pub use result::{BenchResult, End, FlowopResult, OpCount, ThreadResult};
pub use run::{RunLength, Watch, run, run_watched};
