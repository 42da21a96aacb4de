//! Power cuts on machines put together here: programs are played with a tape on the device, and
//! every state that a cut could leave is recovered and judged.
//!
//! Picture:    [`Source`] -> program -> [`play()`] -> [`Played`] (tape, ledger) ->
//!             [`wp_crash::Explorer`] -> [`Findings`]; a [`Campaign`] says all of it.

pub mod bugs;
mod campaign;
pub mod database;
pub mod host;
mod play;
pub mod programs;
pub mod sequences;
mod story;
pub mod wild;

pub use campaign::{Campaign, Findings, Found, Source, Space, run};
pub use play::{Bench, Played, play};
pub use story::Cut;
