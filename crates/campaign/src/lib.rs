//! Power failures on machines put together here: programs are played with a tape on the device, and
//! every state that a cut could leave is recovered and judged.
//!
//! Picture:    [`Source`] -> program -> [`play()`] -> [`Played`] (tape, ledger) ->
//!             [`wp_crash::Explorer`] -> [`Findings`]; a [`Campaign`] says all of it.

pub mod against;
pub mod alike;
pub mod bugs;
pub mod calls;
mod campaign;
mod campaign_file;
mod chunk;
mod command;
pub mod database;
mod export;
mod findings;
pub mod folder;
mod known_failures;
pub mod line;
pub mod lives;
mod minimise;
mod mounts;
pub mod mutate;
mod play;
mod prefixes;
mod process;
pub mod programs;
mod reproducer;
pub mod reservoir;
mod sample;
pub mod sequences;
mod simpler;
mod source;
mod space;
mod speed;
mod story;
pub mod stress;
mod why;
pub mod wild;
mod write_log;

pub use alike::Alike;
pub use calls::{Calls, FailedCall};
pub use campaign::{CHUNK, Campaign, Watch, resume, run};
pub use campaign_file::{load as load_campaign, parse as parse_campaign, save as save_campaign};
pub use chunk::Stage;
pub use command::{Asking, Command, Runs};
pub use findings::{Findings, Found, Unfinished};
pub use known_failures::{KnownFailure, KnownFailures};
pub use minimise::{Bounds, Minimal, minimise, verdicts};
pub use play::{Bench, Played, leave, live, live_with_faults, play, play_on};
pub use prefixes::broken_at_prefixes;
pub use reproducer::{Reproducer, write as write_reproducer};
pub use sample::{LogSample, LogState, log_prefixes, sample_log};
pub use sequences::Of;
pub use source::Source;
pub use space::Space;
pub use speed::{Speed, speed};
pub use story::Cut;
pub use wild::Extras;
pub use write_log::{LogError, LogFile, LoggedRun};
