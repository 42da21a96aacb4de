//! O4 of snapshots: one that a sync made durable is one after the power failure, and has the files
//! that were there when its checkpoint was made.

use crate::ledger::{Basis, Promise, Scope};
use crate::oracle::Judge;
use crate::rules::{Rule, Violation};
use crate::subject::Outcome;

impl Judge<'_> {
    pub(crate) fn snapshots(&self, out: &mut Vec<Violation>) {
        let checkpoints = &self.ledger.checkpoints;
        // Of a device that failed nobody promised anything here; of threads nobody knows which
        // calls a checkpoint has.
        if checkpoints.is_empty() || self.ledger.failed || self.ledger.has_other_orders() {
            return;
        }
        let all = |p: &&Promise| p.scope == Scope::All && p.basis == Basis::Call;
        let returned = |p: &&Promise| {
            p.operation.is_none_or(|n| self.ledger.order.has_returned(n, self.ended))
        };
        let kept = self.ledger.promises.iter().filter(all).filter(returned);
        // The sync that made a checkpoint does not have what was made of that checkpoint then.
        let durable = kept.map(|p| p.covers.saturating_sub(1)).max().unwrap_or(0);
        for (number, by) in checkpoints.snapshots(durable, self.begun) {
            if !self.outcome.snapshots.iter().any(|(there, _)| *there == number) {
                out.push(Violation {
                    rule: Rule::LostSync,
                    path: String::new(),
                    offset: None,
                    expected: format!("snapshot {number}, by `{}`", self.ledger.text(by)),
                    seen: "no such snapshot".to_owned(),
                });
            }
        }
        for (number, files) in &self.outcome.snapshots {
            let Some(version) = checkpoints.version(*number) else { continue };
            let then = Outcome { files: files.clone(), ..Outcome::default() };
            // As if power had failed when the call returned that made it.
            let judge = Judge { outcome: &then, begun: version, ended: version, ..*self };
            let mut found = Vec::new();
            judge.of_files(&mut found);
            out.extend(found.into_iter().map(|mut violation| {
                violation.expected = format!("in snapshot {number}: {}", violation.expected);
                violation
            }));
        }
    }
}
