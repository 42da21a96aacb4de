//! Power failures: what a run can leave behind at every instant, what recovery makes of each, and
//! what of that is allowed.
//!
//! Picture:    run -> [`Tape`] (device events and the program's calls, in order) -> [`History`]
//!             (unpersisted units, frame by frame) -> states -> recovery ([`Subject`]) -> oracles
//!             ([`judge`]) with a [`Ledger`] of what the program did.
//! Invariants: 1. one run: no state needs another;
//!             2. a state whose pages read the same as an earlier one's is not recovered again;
//!             3. nothing here knows a file system: it is reached through its line in the registry.
//! Left out:   probabilities. A state is possible or it is not.

mod atomic;
mod ends;
mod explore;
mod faults;
mod flushed;
mod history;
mod ledger;
mod oracle;
mod order;
mod pages;
mod parts;
mod paths;
mod prefixes;
mod promises;
mod recovery_memo;
mod rules;
mod second;
mod snapshots;
mod state;
mod states;
mod stretches;
mod subject;
mod sums;
mod tape;
mod zoned;

pub use explore::{Case, Explorer, Failure, Judged, Look, Opinion, Options, Totals, Visit};
pub use faults::{Faults, Faulty, Late, Regions};
pub use history::{Contract, Frame, History, NO_EPOCH, Unit};
pub use ledger::{Before, Did, Ledger, Overlaps, Used};
pub use oracle::judge;
pub use rules::{Profile, Rule, Telling, Violation};
pub use state::{Pages, State};
pub use states::{Kept, Member, Next, Plan, Visited, Visitor, most_of_frame, of_frame, of_instant};
pub use subject::{FsSubject, Outcome, Subject, Survivor};
pub use tape::{Entry, Recorder, Tape, Taped, Untorn};
pub use zoned::{TapeZones, ZoneSpace};
