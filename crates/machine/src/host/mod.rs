//! What a command leaves on the host: outputs, scratch directories, processes, mounts.
//!
//! Invariants: 1. no name of a temporary file or directory can be known beforehand, and none is
//!                taken that is there already: another user's link leads nowhere;
//!             2. what is not to stay is registered in [`leftover`] in the moment in which it is
//!                made, so that every end of the program removes it (SIGKILL excepted).

pub mod contents;
pub mod folder;
pub mod group;
pub mod leftover;
pub mod output;
pub mod program;
pub mod scratch;
pub mod text;

pub use group::Group;
pub use output::{Existing, Output, Shape};
pub use scratch::Scratch;
