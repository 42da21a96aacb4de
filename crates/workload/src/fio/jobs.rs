//! Job files and command lines as jobs: sections in order, with what each inherits.

use std::rc::Rc;

use super::command_line::CommandLine;
use super::diag::{Diagnostic, Place};
use super::ini::{self, Includes, Section, Variables};
use super::job::{Job, JobFile};
use super::replay::Log;
use super::resolve;
use super::sequence::Direction;
use super::value::Amount;

/// Most jobs that one file may make.
const JOBS_MAX: u64 = 4096;
/// Most files of one job.
const FILES_MAX: u64 = 1 << 20;
/// Largest block: an I/O's length is 32 bits wide below.
const BLOCK_MAX: u64 = 1 << 30;

/// Makes jobs of a file's bytes. Never fails: what is wrong is in the diagnostics.
pub fn parse(name: &str, bytes: &[u8], includes: Includes<'_>, variables: &Variables) -> JobFile {
    parse_all(&CommandLine::default(), &[(name.to_owned(), bytes.to_vec())], includes, variables)
}

/// Makes jobs of a command line and of the job files that it names, as fio does: the first file is
/// under the options of the command line, each further file begins with fio's defaults and behind a
/// stonewall. `--section` leaves out other jobs. Never fails.
pub fn parse_all(
    line: &CommandLine,
    files: &[(String, Vec<u8>)],
    includes: Includes<'_>,
    variables: &Variables,
) -> JobFile {
    let mut found = line.found.clone();
    let name = files.first().map_or("argument", |f| f.0.as_str());
    let start = Place { file: name.into(), line: 1, column: 1, width: 1, text: Rc::from("") };
    let wanted: Vec<&str> = line.all("section").collect();
    let keep = |s: &Section| {
        s.name.starts_with("global") || wanted.is_empty() || wanted.contains(&s.name.as_str())
    };
    // Sections, and whether they begin a further file.
    let mut sections: Vec<(Section, bool)> =
        line.sections.iter().filter(|s| keep(s)).map(|s| (s.clone(), false)).collect();
    for (n, (name, bytes)) in files.iter().enumerate() {
        let all = ini::split(name, bytes, includes, variables, &mut found);
        let all = all.into_iter().filter(keep).enumerate();
        sections.extend(all.map(|(i, s)| (s, n > 0 && i == 0)));
    }
    let mut file = JobFile {
        jobs: Vec::new(),
        global: Vec::new(),
        used: Vec::new(),
        diagnostics: found,
        sections: sections.iter().map(|s| s.0.clone()).collect(),
    };
    let mut defaults = Job::new(&start);
    let (mut group, mut in_group) = (0, 0u32);
    let mut is_behind = false;
    for (section, begins) in &sections {
        if *begins {
            (defaults, is_behind) = (Job::new(&start), true);
        }
        // fio compares six characters: `[global2]` is global as well.
        if section.name.starts_with("global") {
            resolve::section(section, &mut defaults, &mut file);
            file.global.append(&mut defaults.given);
            continue;
        }
        let mut job = defaults.clone();
        job.name.clone_from(&section.name);
        job.at = section.at.clone();
        resolve::section(section, &mut job, &mut file);
        job.stonewall |= std::mem::take(&mut is_behind);
        resolve::finish(&mut job, &mut file.diagnostics);
        read_log(&mut job, includes, &mut file.diagnostics);
        limits(&job, &mut file.diagnostics);
        if let Some(name) = &job.wait_for
            && !file.jobs.iter().any(|j| j.name == *name)
        {
            let what = format!("wait_for={name}: no job of that name stands before `{}`", job.name);
            file.diagnostics.push(Diagnostic::error(&job.at, what, "fio refuses it too"));
        }
        if file.jobs.len() as u64 + job.numjobs > JOBS_MAX {
            let e = Diagnostic::error(&job.at, format!("more than {JOBS_MAX} jobs"), "");
            file.diagnostics.push(e);
            break;
        }
        for nth in 0..job.numjobs as u32 {
            // fio makes clones with falling numbers: 0, then N - 1 down to 1.
            let subjob = if nth == 0 { 0 } else { job.numjobs as u32 - nth };
            let mut clone = job.clone();
            clone.subjob = subjob;
            clone.thread_number = file.jobs.len() as u32 + 1;
            clone.stonewall &= subjob == 0;
            clone.new_group &= subjob == 0;
            if (clone.stonewall || clone.new_group) && in_group > 0 {
                group += 1;
                in_group = 0;
            }
            clone.group = group;
            in_group += 1;
            file.jobs.push(clone);
        }
    }
    let is_other = |j: &&Job| {
        let first = file.jobs.iter().find(|o| o.group == j.group);
        first.is_some_and(|o| o.steady_state != j.steady_state)
    };
    if let Some(job) = file.jobs.iter().find(is_other) {
        let what =
            format!("job `{}`: another steadystate than of its group's other jobs", job.name);
        let help = "fio refuses it too: add `stonewall` or `new_group`, or make them the same";
        let error = Diagnostic::error(&job.at, what, help);
        file.diagnostics.push(error);
    }
    if file.jobs.is_empty() && !file.has_errors() {
        let (what, help) = match (files.is_empty(), wanted.is_empty()) {
            (_, false) => ("no job of `--section`".to_owned(), "name a section of the job file"),
            (true, true) => ("no job".to_owned(), "begin one with `--name=NAME`"),
            (false, true) => {
                ("this file has no job".to_owned(), "add a section that is not `[global]`")
            }
        };
        file.diagnostics.push(Diagnostic::error(&start, what, help));
    }
    file
}

/// Reads the log that a job replays; what it does, and to which files, is then the log's.
fn read_log(job: &mut Job, includes: Includes<'_>, found: &mut Vec<Diagnostic>) {
    let Some(how) = &job.replay else { return };
    let read = includes(&how.path).ok_or_else(|| "cannot be read".to_owned());
    let log = match read.and_then(|bytes| Log::parse(&bytes, how)) {
        Ok(log) => log,
        Err(e) => {
            let help = "`writepath replay` reads other formats";
            let what = format!("read_iolog: `{}` {e}", how.path);
            found.push(Diagnostic::error(&job.at, what, help));
            return;
        }
    };
    let does = |d: Direction| log.operations().any(|(of, _)| of == d);
    (job.reads, job.writes) = (does(Direction::Read), does(Direction::Write));
    (job.trims, job.random) = (does(Direction::Trim), false);
    for (direction, length) in log.operations() {
        let most = &mut job.max_bs[direction.index()];
        *most = (*most).max(length);
    }
    job.filenames.clone_from(&log.files);
    job.nrfiles = log.files.len() as u64;
    job.size = Amount::Bytes(log.operations().map(|(_, n)| n).sum());
    job.replayed = Some(Rc::new(log));
}

fn limits(job: &Job, found: &mut Vec<Diagnostic>) {
    let mut too_many = |what: &str, n: u64, max: u64| {
        if n > max {
            found.push(Diagnostic::error(&job.at, format!("{what} is {n}; {max} at most"), ""));
        }
    };
    too_many("nrfiles", job.nrfiles, FILES_MAX);
    // A trim has no data.
    let block = [(job.reads, 0), (job.writes, 1)].into_iter().filter(|(does, _)| *does);
    let block = block.map(|(_, d)| job.max_bs[d]).max().unwrap_or(0);
    too_many("the largest block", block, BLOCK_MAX);
}
