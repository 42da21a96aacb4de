//! Checkpoints that a program made, and those that it made snapshots.

use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checkpoints {
    /// By number: the version that a checkpoint has.
    made: BTreeMap<u64, u32>,
    /// By number: which version made it a snapshot, or one no more.
    changes: BTreeMap<u64, Vec<(u32, bool)>>,
}

impl Checkpoints {
    /// Was none made, and none changed?
    pub(crate) fn is_empty(&self) -> bool {
        self.made.is_empty() && self.changes.is_empty()
    }

    /// `mkcp` answered this number.
    pub(super) fn made(&mut self, version: u32, number: u64, is_snapshot: bool) {
        self.made.entry(number).or_insert(version);
        if is_snapshot {
            self.changed(version, number, true);
        }
    }

    /// `chcp` made it a snapshot, or one no more.
    pub(super) fn changed(&mut self, version: u32, number: u64, is_snapshot: bool) {
        self.changes.entry(number).or_default().push((version, is_snapshot));
    }

    /// The version that a checkpoint has; `None`: it is not known.
    pub(crate) fn version(&self, number: u64) -> Option<u32> {
        self.made.get(&number).copied()
    }

    /// Checkpoints that are snapshots if version `durable` is durable and no call behind `begun`
    /// was made, each with the version that made it one.
    pub(crate) fn snapshots(&self, durable: u32, begun: u32) -> impl Iterator<Item = (u64, u32)> {
        self.changes.iter().filter_map(move |(number, changes)| {
            let (then, is_snapshot) = changes.iter().rev().find(|(v, _)| *v <= durable)?;
            let later = changes.iter().filter(|(v, _)| *v > durable && *v <= begun);
            let stays = *is_snapshot && later.into_iter().all(|(_, is_snapshot)| *is_snapshot);
            stays.then_some((*number, *then))
        })
    }
}
