//! Programs with power failures in them: what is called after one runs on what it left.
//!
//! Picture:    life 1 on a new file system -> states that a power failure at its end can leave, one
//!             of each recovered tree -> each is recovered by a mount, and life 2 runs on it -> …
//! Invariants: 1. program 0 is life 1 alone; each further one is a later life on one state of the
//!                life before. They are numbered life by life.
//!             2. each interleaving of a program with threads is a program of its own, whose lives
//!                follow those of the one before;
//!             3. the tape of a later life begins before its mount: power fails in recovery too.
//!                All that recovery brings back is promised from the beginning.
//! Left out:   zoned devices; power failures within a life that another life follows.

use wp_base::{FsError, Sector};
use wp_crash::{Before, History};
use wp_machine::MachineError;
use wp_medium::{Medium, MediumView, Overlay, PAGE_BYTES, Slice, View};
use wp_vfs::{FileType, SurveyedFile};
use wp_workload::program::{Interleavings, Program, Step};

use super::play::{Bench, Played, play_after, play_on};
use super::space::Space;
use super::story::Cut;

/// States of a power failure that a life is run on, at most.
const STATES: usize = 8;
/// Interleavings of threads, at most: each has up to 32 programs of a life.
const INTERLEAVINGS: usize = 16;
/// Programs of a life of one interleaving, at most.
const PROGRAMS: usize = 32;
/// Unpersisted writes of which each is lost alone, and kept alone.
const SINGLES: usize = 16;

/// A program with power failures in it.
#[derive(Clone, PartialEq, Debug)]
pub struct Lives {
    runs: Vec<Run>,
    /// How many interleavings of its threads there are; `None`: it has none, or says their order.
    threads: Option<Interleavings>,
}

/// One interleaving of it.
#[derive(Clone, PartialEq, Debug)]
struct Run {
    /// What is called between power failures.
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
    /// Of its threads some interleavings are taken, at most `most`, with a seed.
    ///
    /// Errors: a machine that cannot be, a zoned device, a life that cannot be played.
    pub fn of(
        bench: &Bench,
        space: Space,
        program: &Program,
        (most, seed): (usize, u64),
    ) -> Result<Option<Lives>, MachineError> {
        if !program.0.contains(&Step::PowerFailure) {
            return Ok(None);
        }
        let threads = Interleavings::of(program, most.min(INTERLEAVINGS), seed);
        let programs = match &threads {
            Some(threads) => threads.programs(),
            None => std::slice::from_ref(program),
        };
        let runs = programs.iter().map(|p| Run::of(bench, space, p)).collect::<Result<_, _>>()?;
        Ok(Some(Lives { runs, threads }))
    }

    /// How many programs there are.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|run| run.paths.len() as u64).sum()
    }

    /// The interleaving of program `n`, from 0, and its number among the programs of that one.
    fn place(&self, n: u64) -> (usize, usize) {
        let mut rest = n as usize;
        for (number, run) in self.runs.iter().enumerate() {
            if rest < run.paths.len() {
                return (number, rest);
            }
            rest -= run.paths.len();
        }
        (0, 0)
    }

    fn run(&self, n: u64) -> (&Run, &[usize]) {
        let (number, rest) = self.place(n);
        let run = &self.runs[number];
        (run, run.paths.get(rest).map_or(&[], Vec::as_slice))
    }

    /// Interleavings of its threads; `None`: it has none, or says their order.
    pub fn threads(&self) -> Option<&Interleavings> {
        self.threads.as_ref()
    }

    /// Calls of program `n`: those of its own life.
    pub fn program(&self, n: u64) -> Program {
        let (run, path) = self.run(n);
        run.lives.get(path.len()).cloned().unwrap_or_default()
    }

    /// Steps of the whole program before those of program `n`.
    pub fn steps_before(&self, n: u64) -> usize {
        let (run, path) = self.run(n);
        // That the order is said stands once there, and in each life here.
        let said = usize::from(!path.is_empty() && run.lives[0].0.first() == Some(&Step::InOrder));
        let before = run.lives[..path.len()].iter();
        before.map(|l| l.0.len() + 1 - said).sum::<usize>()
    }

    /// Its interleaving, its life, from 1, and how many states each life before was left in: for
    /// people.
    pub fn describe(&self, n: u64) -> String {
        let (number, _) = self.place(n);
        let (_, path) = self.run(n);
        let threads = match self.threads {
            Some(_) => format!("interleaving {}, ", number + 1),
            None => String::new(),
        };
        if path.is_empty() {
            return format!("{threads}life 1");
        }
        let states: Vec<String> = path.iter().map(|s| (s + 1).to_string()).collect();
        format!("{threads}life {}, after state {}", path.len() + 1, states.join(", then state "))
    }

    /// The whole program, with its power failures, in the interleaving of program `n`; and the
    /// number of that life among those of this interleaving.
    pub fn whole(&self, n: u64) -> (Program, u64) {
        let (number, rest) = self.place(n);
        (self.runs[number].whole(), rest as u64)
    }

    /// Plays program `n`, and what comes before it, on a new file system. Errors: as [`Lives::of`].
    pub fn play(
        &self,
        bench: &Bench,
        space: Space,
        image: Medium,
        n: u64,
    ) -> Result<Played, MachineError> {
        let (run, path) = self.run(n);
        run.play_path(bench, space, image, path)
    }
}

impl Run {
    fn of(bench: &Bench, space: Space, program: &Program) -> Result<Run, MachineError> {
        let in_order = || {
            Program(program.0.iter().take(1).filter(|s| **s == Step::InOrder).cloned().collect())
        };
        let mut lives = vec![Program::default()];
        for step in &program.0 {
            match step {
                Step::PowerFailure => lives.push(in_order()),
                step => lives.last_mut().expect("one at least").0.push(step.clone()),
            }
        }
        let mut all = Run { lives, paths: vec![Vec::new()] };
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
        Ok(all)
    }

    fn whole(&self) -> Program {
        let is_again =
            |life: usize, n: usize, step: &Step| life > 0 && n == 0 && *step == Step::InOrder;
        let mut steps = Vec::new();
        for (life, program) in self.lives.iter().enumerate() {
            if life > 0 {
                steps.push(Step::PowerFailure);
            }
            let own = program.0.iter().enumerate();
            steps.extend(own.filter(|(n, s)| !is_again(life, *n, s)).map(|(_, s)| s.clone()));
        }
        Program(steps)
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
        subvolume: true,
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
        subvolume: file.subvolume,
        size: file.size,
        stat: file.stat,
        target: file.target,
        xattrs: file.xattrs.unwrap_or_default(),
        data,
    })
}
