//! Views of what a run recorded: files for other tools, and answers to "why" and "what differs".
//!
//! Invariant: everything here is a function of recorded events or of the documents of runs; nothing
//! runs, reads or writes files.

mod causality;
pub mod claim;
pub mod commands;
pub mod compare;
pub mod diff;
pub mod document;
pub mod draw;
pub mod explain;
pub mod flow;
pub mod latency;
mod myers;
pub mod necessity;
pub mod page;
pub mod perfetto;
pub mod requests;
pub mod run;
pub mod shared;
pub mod summary;
pub mod waits;
mod walk;
