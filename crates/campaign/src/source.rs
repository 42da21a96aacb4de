//! Where the programs of a campaign come from.

use std::sync::Arc;

use wp_vfs::AtomicWrite;
use wp_workload::program::{Call, Interleavings, Program};

use super::lives::Lives;
use super::sequences::Of;
use super::wild::{self, Extras};
use super::write_log::LoggedRun;
use super::{database, sequences};

/// Where programs come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// One, as text.
    Text(Program),
    /// One with power failures in it.
    Lives(Arc<Lives>),
    /// What a log of writes has in it; nothing is played.
    Log(Arc<LoggedRun>),
    /// Interleavings of one with threads.
    Threads(Arc<Interleavings>),
    /// Every sequence of this number of these operations.
    Sequences(Of, u32),
    /// Random ones.
    Wild {
        /// Seed of the first.
        seed: u64,
        /// Calls of each, about.
        calls: u32,
        /// What they may do.
        extras: Extras,
    },
    /// Databases with rollback journals.
    Database {
        /// Seed of the first.
        seed: u64,
        /// Databases of a transaction.
        journals: u32,
    },
    /// Those of [`super::programs`].
    Made {
        /// Seed of the first.
        seed: u64,
        /// The one of a seed.
        make: super::programs::Make,
    },
}

impl Source {
    /// How many there are; `None`: as many as one likes.
    pub fn count(&self) -> Option<u64> {
        match self {
            Source::Text(_) | Source::Log(_) => Some(1),
            Source::Lives(lives) => Some(lives.count()),
            Source::Threads(all) => Some(all.programs().len() as u64),
            Source::Sequences(of, length) => Some(sequences::count(*of, *length)),
            Source::Wild { .. } | Source::Database { .. } | Source::Made { .. } => None,
        }
    }

    /// Do its programs write atomically? Of random ones only those can that are made for it.
    pub fn commits(&self) -> bool {
        let commits = |call: &Call| {
            matches!(call, Call::Atomic(_, AtomicWrite::Commit) | Call::Pwrite { atomic: true, .. })
        };
        let is_atomic = |n: u64| self.program(n).calls().any(commits);
        match self {
            Source::Log(_) | Source::Sequences(..) | Source::Wild { .. } => false,
            Source::Database { .. } => false,
            Source::Text(_) | Source::Lives(_) | Source::Threads(_) => is_atomic(0),
            Source::Made { .. } => (0..4).any(is_atomic),
        }
    }

    /// Program number `n`; of a log one without calls.
    pub fn program(&self, n: u64) -> Program {
        match self {
            Source::Text(p) => p.clone(),
            Source::Lives(lives) => lives.program(n),
            Source::Log(_) => Program::default(),
            Source::Threads(all) => all.programs().get(n as usize).cloned().unwrap_or_default(),
            Source::Sequences(of, length) => sequences::program(*of, *length, n),
            Source::Wild { seed, calls, extras } => {
                wild::generate(seed.wrapping_add(n), *calls, *extras)
            }
            Source::Database { seed, journals } => {
                database::program(seed.wrapping_add(n), *journals)
            }
            Source::Made { seed, make } => make(seed.wrapping_add(n)),
        }
    }
}
