//! A campaign of `crash run` in parts, which other processes explore.
//!
//! Laws: a part is the same command with `--first`, `--count` and `--state-file`; the joined state
//!       file is the one that the whole command would have written at its end, so that the whole
//!       command, started with it, answers at once. Parts begin where chunks do: what is known of
//!       recoveries is forgotten there in any case.

use std::path::Path;

use wp_campaign::{CHUNK, Findings, parse_campaign, save_campaign};

use super::args::{Args, RunArgs, What};
use super::key::{build, key};
use super::plan::{Named, One, Run};
use super::programs::Programs;
use crate::session::Failure;

/// The parts of a campaign.
pub struct CrashParts {
    one: One,
    programs: (u64, u64),
    step: u64,
}

fn failure(code: &str, message: &str, help: &str) -> Failure {
    Failure { code: code.to_owned(), message: message.to_owned(), help: help.to_owned() }
}

impl CrashParts {
    /// Of the arguments of `crash`; a part has `step` programs, rounded up to whole chunks.
    ///
    /// Errors: what is wrong in them; a campaign that has no parts.
    pub(crate) fn new(a: &Args, step: u64) -> Result<CrashParts, Failure> {
        let run: &RunArgs = match &a.what {
            None => &a.run,
            Some(What::Run(run)) => run,
            Some(_) => return Err(failure("parts", "only `crash run` has parts", "")),
        };
        let told = |w: super::plan::Wrong| failure(w.code(), w.message(), w.help());
        let Run::One(one) = Run::new(run).map_err(told)? else {
            let help = "name one --fs, and no folder; leave out --every-mode, --every-version";
            return Err(failure("parts", "only programs on one file system have parts", help));
        };
        let mut parts = CrashParts { one: *one, programs: (0, 0), step: 1 };
        parts.programs = parts.exploration(None)?.0;
        parts.step = step.max(1).next_multiple_of(CHUNK);
        Ok(parts)
    }

    fn named(&self) -> Result<&Programs, Failure> {
        match &self.one.programs {
            Named::Programs(programs) if programs.log().is_none() => Ok(programs),
            _ => Err(failure("parts", "a program of the host has no parts", "name programs")),
        }
    }

    /// The first program and the one after the last; and what the findings depend on. `part`: of
    /// these programs only.
    fn exploration(&self, part: Option<(u64, u64)>) -> Result<((u64, u64), String), Failure> {
        let mut setup = self.one.setup.clone();
        if let Some((first, end)) = part {
            (setup.first, setup.count) = (first, Some(end - first));
        }
        let x = setup.exploration(self.named()?).map_err(|e| failure("crash", &e, ""))?;
        Ok((x.campaign.programs, key(&x, true)))
    }

    /// The first program of the campaign, and the one after the last.
    pub fn programs(&self) -> (u64, u64) {
        self.programs
    }

    /// The first program of each part, and the one after its last.
    pub fn parts(&self) -> Vec<(u64, u64)> {
        let (first, end) = self.programs;
        let starts = (first..end).step_by(usize::try_from(self.step).unwrap_or(usize::MAX));
        starts.map(|from| (from, end.min(from.saturating_add(self.step)))).collect()
    }

    /// Joins the state files of all parts, in order, into that of the whole campaign.
    ///
    /// Errors: a part that is missing, of another campaign or build, or not done; the host's.
    pub fn join(&self, parts: &[Vec<u8>], to: &Path) -> Result<(), Failure> {
        let (build, ranges) = (build(), self.parts());
        let mut all = Findings { done: self.programs.0, ..Findings::default() };
        if parts.len() != ranges.len() {
            let what = format!("{} parts instead of {}", parts.len(), ranges.len());
            return Err(failure("parts", &what, "join what every part has written"));
        }
        for (bytes, range) in parts.iter().zip(ranges) {
            let wrong = |what: &str| {
                let what = format!("programs {} to {}: {what}", range.0, range.1);
                failure("parts", &what, "explore this part again")
            };
            let (_, key) = self.exploration(Some(range))?;
            let (found, is_other) = parse_campaign(bytes, &key, &build).map_err(|e| wrong(&e))?;
            if is_other {
                return Err(wrong("explored by another build of writepath"));
            }
            if found.done != range.1 {
                return Err(wrong("not explored to its end"));
            }
            all.add(found);
        }
        let (_, key) = self.exploration(None)?;
        let saved = save_campaign(to, &key, &build, &all);
        saved.map_err(|e| failure("host-io", &format!("{}: {e}", to.display()), ""))
    }
}
