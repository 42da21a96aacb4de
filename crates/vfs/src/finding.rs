//! What the check of an image finds.
//!
//! Picture:    a file system's check has [`Kind`]s of its own and adds [`Finding`]s to a
//!             [`Report`]; [`Report::checked`] is what the command prints.

use std::fmt::{Debug, Display};

use wp_base::{Corruption, FsError};

use crate::{Checked, Fault};

/// How much a finding weighs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// The image is wrong.
    Error,
    /// It is wrong as it stands, and replaying the journal or log puts it right.
    FixedByReplay,
    /// Worth knowing; the file system's own checker would not mind.
    Harmless,
}

impl Severity {
    /// Its name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::FixedByReplay => "fixed-by-replay",
            Severity::Harmless => "harmless",
        }
    }
}

/// What can be wrong in one file system.
pub trait Kind: Copy + PartialEq + Debug {
    /// A stable name: `super-block`.
    fn name(self) -> &'static str;
    /// The part of the format that it is about.
    fn structure(self) -> &'static str;
    /// Does it do no harm, wherever it is found?
    fn is_harmless(self) -> bool {
        false
    }
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding<K> {
    /// What.
    pub kind: K,
    /// How much it weighs.
    pub severity: Severity,
    /// Where, for people: `inode 12`, `block 77`, with a field's name.
    pub place: String,
    /// What stands there.
    pub found: String,
    /// What would have been right.
    pub expected: String,
}

/// The outcome of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report<K> {
    /// Was the image recovered in memory first, and was there anything to recover?
    pub recovered: bool,
    /// What was found, in the order of the passes.
    pub findings: Vec<Finding<K>>,
    /// Findings beyond those kept.
    pub left_out: u64,
    /// What the image has and the check did not look at.
    pub not_checked: Vec<&'static str>,
    /// Was one of those left out harmful?
    left_out_harm: bool,
    most: usize,
}

impl<K> Default for Report<K> {
    /// One that keeps 200 findings.
    fn default() -> Report<K> {
        Report::keeping(200)
    }
}

impl<K> Report<K> {
    /// One that keeps this number of findings.
    pub const fn keeping(most: usize) -> Report<K> {
        Report {
            recovered: false,
            findings: Vec::new(),
            left_out: 0,
            not_checked: Vec::new(),
            left_out_harm: false,
            most,
        }
    }
}

impl<K: Kind> Report<K> {
    /// Is nothing wrong? Harmless findings, and those that a replay puts right, do not count.
    pub fn is_clean(&self) -> bool {
        !self.left_out_harm && self.findings.iter().all(|f| f.severity != Severity::Error)
    }

    /// Is nothing wrong as it stands, before any replay?
    pub fn is_clean_as_it_stands(&self) -> bool {
        !self.left_out_harm && self.findings.iter().all(|f| f.severity == Severity::Harmless)
    }

    /// Adds a finding, as heavy as its kind.
    pub fn add(
        &mut self,
        kind: K,
        place: impl ToString,
        found: impl ToString,
        expected: impl ToString,
    ) {
        let severity = if kind.is_harmless() { Severity::Harmless } else { Severity::Error };
        self.add_as(severity, kind, place, found, expected);
    }

    /// Adds a finding of another weight.
    pub fn add_as(
        &mut self,
        severity: Severity,
        kind: K,
        place: impl ToString,
        found: impl ToString,
        expected: impl ToString,
    ) {
        if self.findings.len() >= self.most {
            self.left_out += 1;
            self.left_out_harm |= severity != Severity::Harmless;
            return;
        }
        let (place, found, expected) = (place.to_string(), found.to_string(), expected.to_string());
        self.findings.push(Finding { kind, severity, place, found, expected });
    }

    /// Adds what could not be read of a structure.
    pub fn corrupt(&mut self, kind: K, place: impl Display, c: &Corruption) {
        let place = format!("{place}: {} {} at byte {:#x}", c.structure, c.field, c.at);
        self.add(kind, place, format!("{:#x}", c.found), &c.expected);
    }

    /// Adds what could not be read, whatever the error.
    pub fn error(&mut self, kind: K, place: impl Display, e: FsError) {
        match e {
            FsError::Corrupt(c) => self.corrupt(kind, place, &c),
            other => self.add(kind, place.to_string(), other, "readable data"),
        }
    }

    /// Those of this check, of an image that was not replayed, which `after` does not have any
    /// more, are put right by a replay.
    pub fn mark_fixed_by_replay(&mut self, after: &Report<K>) {
        if after.left_out > 0 {
            return;
        }
        let is_left =
            |f: &Finding<K>| after.findings.iter().any(|g| g.kind == f.kind && g.place == f.place);
        for f in self.findings.iter_mut().filter(|f| f.severity == Severity::Error) {
            if !is_left(f) {
                f.severity = Severity::FixedByReplay;
            }
        }
    }

    /// As the command prints it.
    pub fn checked(self) -> Checked {
        let fault = |f: Finding<K>| Fault {
            kind: f.kind.name(),
            structure: f.kind.structure(),
            severity: f.severity.name(),
            place: f.place,
            found: f.found,
            expected: f.expected,
        };
        Checked {
            is_clean: self.is_clean(),
            recovered: self.recovered,
            left_out: self.left_out,
            not_checked: self.not_checked.iter().map(|what| (*what).to_owned()).collect(),
            faults: self.findings.into_iter().map(fault).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Wrong {
        Block,
        Copy,
    }

    impl Kind for Wrong {
        fn name(self) -> &'static str {
            "wrong"
        }
        fn structure(self) -> &'static str {
            "block"
        }
        fn is_harmless(self) -> bool {
            self == Wrong::Copy
        }
    }

    #[test]
    fn what_is_left_out_counts_by_its_weight() {
        let mut report = Report::keeping(1);
        report.add(Wrong::Copy, "a", 1, 2);
        report.add(Wrong::Copy, "b", 1, 2);
        assert!(report.is_clean() && report.is_clean_as_it_stands());
        report.add(Wrong::Block, "c", 1, 2);
        assert!(!report.is_clean());
        let checked = report.checked();
        assert_eq!((checked.left_out, checked.faults.len(), checked.is_clean), (2, 1, false));
    }

    #[test]
    fn a_replay_puts_right_what_it_no_longer_finds() {
        let of = |places: &[&str]| {
            let mut report = Report::default();
            places.iter().for_each(|p| report.add(Wrong::Block, p, 1, 2));
            report
        };
        let mut before = of(&["a", "b"]);
        before.mark_fixed_by_replay(&of(&["b"]));
        let weights: Vec<_> = before.findings.iter().map(|f| f.severity).collect();
        assert_eq!(weights, [Severity::FixedByReplay, Severity::Error]);
        before.mark_fixed_by_replay(&of(&[]));
        assert!(before.is_clean() && !before.is_clean_as_it_stands());
    }
}
