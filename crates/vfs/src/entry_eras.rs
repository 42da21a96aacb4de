//! Kernel versions that a file system's rules are of.

use wp_base::kernel::{Base, Distribution, Version};

use crate::entry::FsEntry;

impl FsEntry {
    /// Is a kernel version between the oldest and the newest of [`FsEntry::held`]? If not, rules
    /// may be missing.
    pub fn has_evidence(&self, era: &str) -> bool {
        let held = || self.held.iter().filter_map(|t| series(t));
        series(era).is_some_and(|v| held().min() <= Some(v) && Some(v) <= held().max())
    }

    /// What the user of an era should know of it.
    pub fn era_note(&self, era: &str) -> Option<String> {
        let version = Version::parse(era)?;
        if era == Version::NEXT {
            return self.next.map(|rests_on| format!("era next is {rests_on}"));
        }
        let own = Distribution::find(era).filter(|d| d.base == Base::Own);
        match own {
            Some(d) => Some(format!(
                "{} stands for Linux {version}: fixes that it took over itself are not modelled",
                d.name
            )),
            None if !self.has_evidence(era) => Some(format!(
                "the rules of Linux {version} are not validated against a real kernel"
            )),
            None => None,
        }
    }

    /// The newest kernel version whose rules it has.
    pub fn newest(&self) -> &'static str {
        let [_, newest] = self.kernels;
        newest
    }

    /// Errors: `era` is no kernel version, or one whose rules it has not; which it has.
    pub fn check_era(&self, era: &str) -> Result<(), String> {
        let [oldest, newest] = self.kernels;
        self.check_range(era, (oldest, newest), "has the rules of")
    }

    /// The same for a run whose power stays on.
    pub fn check_run(&self, era: &str) -> Result<(), String> {
        self.check_range(era, (self.runs_since, self.newest()), "runs as in")
    }

    fn check_range(
        &self,
        era: &str,
        (oldest, newest): (&str, &str),
        does: &str,
    ) -> Result<(), String> {
        let name = self.name;
        if era == Version::NEXT && self.next.is_none() {
            return Err(format!("{name} has no era next: there are no patches for it here"));
        }
        let Some(version) = series(era) else {
            return Err(format!(
                "{name}: era={era} is neither a kernel version nor a distribution: write one from \
                 {oldest} to {newest}, as in era={newest} or era=debian-12 (`writepath list eras`)"
            ));
        };
        match series(oldest) <= Some(version) && Some(version) <= series(newest) {
            true => Ok(()),
            false => Err(format!("{name} {does} Linux {oldest} to {newest}, not {era}")),
        }
    }
}

/// The series of a kernel version.
fn series(text: &str) -> Option<Version> {
    Version::parse(text).map(Version::series)
}
