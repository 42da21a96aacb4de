//! Programs with power failures in them: what is called after one runs on what it left.
//!
//! Picture:    life 1 on a new file system -> states that a power failure at its end can leave, one
//!             of each recovered tree -> each is recovered by a mount, and life 2 runs on it -> …
//! Invariants: 1. program 0 is life 1 alone; each further one is a later life on one state of the
//!                life before. They are numbered life by life.
//!             2. the tape of a later life begins before its mount: power fails in recovery too.
//!                All that recovery brings back is promised from the beginning.
//! Left out:   zoned devices; power failures within a life that another life follows.

use wp_base::{FsError, Sector};
use wp_crash::{Before, History};
use wp_medium::{Medium, MediumView, Overlay, PAGE_BYTES, Slice, View};
use wp_vfs::{FileType, SurveyedFile};
use wp_workload::program::{Program, Step};

use super::campaign::Space;
use super::play::{Bench, Played, play_after, play_on};
use super::story::Cut;
use crate::machine::MachineError;

/// States of a power failure that a life is run on, at most.
const STATES: usize = 8;
/// Programs of a life, at most.
const PROGRAMS: usize = 32;
/// Unpersisted writes of which each is lost alone, and kept alone.
const SINGLES: usize = 16;

/// A program with power failures in it.
#[derive(Clone, PartialEq, Debug)]
pub struct Lives {
    /// What is called between them.
    lives: Vec<Program>,
    /// For each program: which state of each life before its own.
    paths: Vec<Vec<usize>>,
}

/// What a power failure left.
struct Left {
    medium: Medium,
    before: Vec<Before>,
}

impl Lives {
    /// Of a program with [`Step::PowerFailure`]; `None`: it has none. Plays all lives but the last.
    ///
    /// Errors: a machine that cannot be, a zoned device, a life that cannot be played.
    pub fn of(
        bench: &Bench,
        space: Space,
        program: &Program,
    ) -> Result<Option<Lives>, MachineError> {
        let mut lives = vec![Program::default()];
        for step in &program.0 {
            match step {
                Step::PowerFailure => lives.push(Program::default()),
                step => lives.last_mut().expect("one at least").0.push(step.clone()),
            }
        }
        if lives.len() == 1 {
            return Ok(None);
        }
        let mut all = Lives { lives, paths: vec![Vec::new()] };
        let image = bench.image()?;
        let mut before = vec![Vec::new()];
        for life in 1..all.lives.len() {
            let mut next = Vec::new();
            for path in before {
                let played = all.play_path(bench, space, image.clone(), &path)?;
                let left = left(bench, space, &played)?;
                next.extend((0..left.len()).map(|n| [&path[..], &[n]].concat()));
            }
            if next.is_empty() {
                let why =
                    format!("no power failure at the end of life {life} leaves a file system");
                return Err(MachineError::Config(why));
            }
            let of = next.len();
            if of > PROGRAMS {
                // From all of them, not those of the first states only.
                let some = (0..PROGRAMS).map(|n| next[n * of / PROGRAMS].clone());
                next = some.collect();
            }
            all.paths.extend(next.iter().cloned());
            before = next;
        }
        Ok(Some(all))
    }

    /// How many programs there are.
    pub fn count(&self) -> u64 {
        self.paths.len() as u64
    }

    /// Calls of program `n`: those of its own life.
    pub fn program(&self, n: u64) -> Program {
        let life = self.paths.get(n as usize).map_or(0, Vec::len);
        self.lives.get(life).cloned().unwrap_or_default()
    }

    /// Steps of the whole program before those of program `n`.
    pub fn steps_before(&self, n: u64) -> usize {
        let life = self.paths.get(n as usize).map_or(0, Vec::len);
        self.lives[..life].iter().map(|l| l.0.len() + 1).sum()
    }

    /// Its life, from 1, and how many states each life before was left in: for people.
    pub fn describe(&self, n: u64) -> String {
        match self.paths.get(n as usize).map(Vec::as_slice) {
            None | Some([]) => "life 1".to_owned(),
            Some(path) => {
                let states: Vec<String> = path.iter().map(|s| (s + 1).to_string()).collect();
                format!("life {}, after state {}", path.len() + 1, states.join(", then state "))
            }
        }
    }

    /// The whole program, with its power failures.
    pub fn whole(&self) -> Program {
        let lives: Vec<&[Step]> = self.lives.iter().map(|l| &l.0[..]).collect();
        Program(lives.join(&Step::PowerFailure))
    }

    /// Plays program `n`, and what comes before it, on a new file system. Errors: as [`Lives::of`].
    pub fn play(
        &self,
        bench: &Bench,
        space: Space,
        image: Medium,
        n: u64,
    ) -> Result<Played, MachineError> {
        let path = self.paths.get(n as usize).cloned().unwrap_or_default();
        self.play_path(bench, space, image, &path)
    }

    fn play_path(
        &self,
        bench: &Bench,
        space: Space,
        image: Medium,
        path: &[usize],
    ) -> Result<Played, MachineError> {
        let mut played = play_on(bench, image, &self.lives[0])?;
        for (life, state) in path.iter().enumerate() {
            let mut states = left(bench, space, &played)?;
            if *state >= states.len() {
                let why = format!("life {}: no state {}", life + 1, state + 1);
                return Err(MachineError::Config(why));
            }
            let Left { medium, before } = states.swap_remove(*state);
            let block = played.ledger.block_bytes() as u32;
            played = play_after(bench, (medium, block), &before, &self.lives[life + 1])?;
        }
        Ok(played)
    }
}

/// States that a power failure at the end of a run can leave: one of each tree that recovery
/// brings back. First the one that has lost everything unpersisted, then the one that has all.
fn left(bench: &Bench, space: Space, played: &Played) -> Result<Vec<Left>, MachineError> {
    if played.tape.zones.is_some() {
        let why = "power_failure in a program: not on a zoned device";
        return Err(MachineError::Config(why.to_owned()));
    }
    let history: History = space.history(played);
    let frame = history.frames.len() - 1;
    let live = history.frames[frame].live.len();
    let all: Vec<usize> = (0..live).collect();
    let singles = 0..live.min(SINGLES);
    let mut losses = vec![all.clone(), Vec::new()];
    losses.extend(singles.clone().map(|i| vec![i]));
    losses.extend(singles.map(|i| all.iter().copied().filter(|l| *l != i).collect()));
    let mut out: Vec<Left> = Vec::new();
    for lost in losses {
        let fs = (bench.fs, &bench.fs_options);
        let medium = Cut { fs, played, history: &history, frame, lost: &lost }.medium();
        let view = MediumView {
            medium: medium.clone(),
            start: Sector(played.partition.0 / wp_base::SECTOR_BYTES),
            bytes: played.partition.1,
        };
        // What cannot be mounted is a broken rule of the life before.
        let Ok(before) = recovered(bench, &view) else { continue };
        if out.len() < STATES && !out.iter().any(|o| o.before == before) {
            out.push(Left { medium, before });
        }
    }
    Ok(out)
}

/// Every file that recovery brings back.
fn recovered(bench: &Bench, view: &dyn View) -> Result<Vec<Before>, FsError> {
    let overlay = Overlay::new(view);
    let survey = (bench.fs.survey)(&overlay, &bench.fs_options)?;
    let root = survey.root.map(|stat| Before {
        path: ".".to_owned(),
        kind: FileType::Dir,
        ino: 0,
        size: 0,
        stat,
        target: None,
        xattrs: Vec::new(),
        data: Vec::new(),
    });
    let files = survey.files.into_iter().map(|f| before(&overlay, f));
    root.into_iter().map(Ok).chain(files).collect()
}

fn before(overlay: &Overlay<'_>, file: SurveyedFile) -> Result<Before, FsError> {
    let mut data: Vec<(u64, Slice)> = Vec::new();
    for run in &file.map {
        let end = (run.at + run.bytes).min(file.size);
        let mut at = run.at;
        while at < end {
            let mut bytes = vec![0; (end - at).min(PAGE_BYTES as u64) as usize];
            overlay.read_at(run.place + (at - run.at), &mut bytes)?;
            data.push((at, Slice::from_bytes(&bytes)));
            at += bytes.len() as u64;
        }
    }
    Ok(Before {
        path: file.path,
        kind: file.kind,
        ino: file.ino,
        size: file.size,
        stat: file.stat,
        target: file.target,
        xattrs: file.xattrs.unwrap_or_default(),
        data,
    })
}
