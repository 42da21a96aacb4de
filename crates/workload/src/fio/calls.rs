//! A job file as a [`Program`]: the calls that [`super::run`] makes, written down, so that power
//! can be cut between and within them.
//!
//! A program is one process, so jobs that run beside each other are refused, and so is what depends
//! on the clock: a job that goes on for a time, or keeps a rate. Every write has contents of its
//! own, whatever the job says of its buffers: only so can a cut tell which of them is there.

use std::collections::{BTreeMap, BTreeSet};

use wp_vfs::{Reserve, SyncKind};

use super::direct::Direct;
use super::job::{Engine, Job, JobFile, SyncWhat};
use super::run::RunOptions;
use super::sequence::{Action, Direction, Sequence};
use super::setup::{self, Existing, Layout};
use crate::program::{AIO_MOST, Alloc, Call, Flags, LIMITS, Program, Step};

/// Most calls of a program made of jobs: each is a place for power cuts.
const CALLS_MAX: usize = 5000;

/// Most blocks of a job: its map takes a bit for each.
const BLOCKS_MAX: u64 = 1 << 24;

impl JobFile {
    /// The calls of its jobs, in order: what lays out their files, then what each does.
    ///
    /// Errors: the first job that is no program, or does not fit its files, by its name.
    pub fn program(&self, options: RunOptions) -> Result<Program, String> {
        let mut made = Made::default();
        let of = |job: &Job, e: String| format!("job `{}`: {e}", job.name);
        let mut layouts = Vec::new();
        for (n, job) in self.jobs.iter().enumerate() {
            refuse(job, n > 0).map_err(|e| of(job, e))?;
            let early = job.create_serialize.then(|| made.lay_out(job, options)).transpose();
            layouts.push(early.map_err(|e| of(job, e))?);
        }
        for (job, layout) in self.jobs.iter().zip(layouts) {
            made.job(job, layout, options).map_err(|e| of(job, e))?;
        }
        Ok(Program(made.steps))
    }
}

/// Why a job is no part of a program.
fn refuse(job: &Job, is_later: bool) -> Result<(), String> {
    let why = if job.engine == Engine::Null {
        "has engine `null`, which does no I/O: use psync"
    } else if job.replay.is_some() {
        "replays a log: `crash` needs a job or a program"
    } else if job.engine.is_of_names() {
        "makes, looks at or removes names with its engine: write a program (`open`, `unlink`)"
    } else if job.engine.lays_out() {
        "changes the layout of files with its engine, and `crash` has programs for that: use psync"
    } else if job.verifies() {
        "verifies what it wrote; `crash` checks contents itself: leave out `verify`"
    } else if is_later && !job.stonewall {
        "runs in parallel with the previous job; crash needs one process: add `stonewall`"
    } else if job.time_based || job.runtime > 0 {
        "ends after a time; `crash` needs a list of calls: set `size` or `number_ios`, without `runtime`"
    } else if job.is_on_devices() || job.trims || job.zbd {
        "is on a block device or zones, and `crash` is about files: name a file"
    } else if is_queued(job) && job.iodepth > u64::from(AIO_MOST) {
        "has more than 256 operations in flight, the most that `crash` has: set a smaller iodepth"
    } else if [job.rate, job.rate_iops, job.rate_min, job.rate_iops_min].as_flattened() != [0; 12] {
        "keeps a rate in time: leave out `rate`, or set `thinktime`"
    } else if job.latency_target.is_some() || job.steady_state.is_some() {
        "changes its depth or ends by what it measures: leave out `latency_target` and `steadystate`"
    } else if job.unlink_each_loop || job.file_append || job.pre_read {
        "has `unlink_each_loop`, `file_append` or `pre_read`, which `crash` does not support: leave it out"
    } else {
        return Ok(());
    };
    Err(why.to_owned())
}

/// Has it several operations in flight? Asynchronous engines are one to a program.
fn is_queued(job: &Job) -> bool {
    job.iodepth > 1 && job.engine.is_async()
}

/// The program so far, and what it leaves.
#[derive(Default)]
struct Made {
    /// Operations in flight: fewer, where several ended at once.
    in_flight: u64,
    steps: Vec<Step>,
    calls: usize,
    writes: u32,
    directories: BTreeSet<String>,
    lengths: BTreeMap<String, u64>,
}

impl Made {
    fn call(&mut self, call: Call) -> Result<(), String> {
        self.calls += 1;
        if self.calls > CALLS_MAX {
            return Err(format!(
                "more than {CALLS_MAX} calls, each with crash points: set a smaller `size`, `io_size` or `number_ios`"
            ));
        }
        self.steps.push(Step::call(call));
        Ok(())
    }

    fn sleep(&mut self, us: u64) {
        if us > 0 {
            self.steps.push(Step::Nap(us));
        }
    }

    fn write(&mut self, fd: u32, at: u64, len: u64, how: (bool, Direct)) -> Result<(), String> {
        let len = u32::try_from(len).ok().filter(|n| *n <= LIMITS.1).ok_or_else(|| {
            format!("a block of {len} bytes; a program's writes have at most {}", LIMITS.1)
        })?;
        self.writes += 1;
        let seed = self.writes;
        self.call(match how {
            (true, Direct::Untorn) => {
                let why = "has atomic=1 with a queue, which a program has not: use iodepth=1";
                return Err(why.to_owned());
            }
            (true, _) => Call::AioWrite { fd, len, at, seed },
            (false, how) => {
                Call::Pwrite { fd, len, at, data: seed.into(), atomic: how == Direct::Untorn }
            }
        })
    }

    fn descriptor(file: usize) -> Result<u32, String> {
        u32::try_from(file)
            .ok()
            .filter(|n| *n < LIMITS.0)
            .ok_or_else(|| format!("a program has at most {} files open", LIMITS.0))
    }

    /// What `super::run` does before a job: directories, and files that must be there.
    fn lay_out(&mut self, job: &Job, how: RunOptions) -> Result<Layout, String> {
        for path in job.paths() {
            if path.is_empty() || path.contains(|c: char| c.is_whitespace() || c == '#') {
                return Err(format!("`{path}`: paths of a program have neither spaces nor `#`"));
            }
        }
        for dir in job.directories() {
            if self.directories.insert(dir.clone()) {
                self.call(Call::Mkdir(dir))?;
            }
        }
        let lengths = &self.lengths;
        let existing = &mut |p: &str| Existing::file(lengths.get(p).copied().unwrap_or(0));
        let layout = setup::layout(job, existing)?;
        let filled = job.reads || job.overwrite;
        for file in layout.files.iter().filter(|f| f.extend && !job.create_on_open) {
            if self.lengths.contains_key(&file.path) {
                self.call(Call::Unlink(file.path.clone()))?;
            }
            let made = Flags { write: true, create: true, ..Flags::default() };
            self.call(Call::Open(0, file.path.clone(), made))?;
            let reserve = job.reserve_first.filter(|_| !how.no_fallocate);
            if let Some(Reserve::Space { keep_size }) = reserve {
                let how = if keep_size { Alloc::Keep } else { Alloc::Extend };
                self.call(Call::Fallocate(0, how, 0, file.length))?;
            }
            if filled || job.truncate_first {
                self.call(Call::Ftruncate(0, file.length))?;
            }
            if filled {
                let block = job.max_bs[1].min(u64::from(LIMITS.1)).max(1);
                for at in (0..file.length).step_by(block as usize) {
                    self.write(0, at, block.min(file.length - at), (false, Direct::Off))?;
                }
                if job.create_fsync {
                    self.call(Call::Fsync(0))?;
                }
            }
            self.call(Call::Close(0))?;
            let grown = reserve == Some(Reserve::Space { keep_size: false });
            let there = if filled || job.truncate_first || grown { file.length } else { 0 };
            self.lengths.insert(file.path.clone(), there);
        }
        Ok(layout)
    }

    fn job(&mut self, job: &Job, early: Option<Layout>, how: RunOptions) -> Result<(), String> {
        let layout = match early {
            Some(layout) => layout,
            None => self.lay_out(job, how)?,
        };
        if layout.size / job.block_min().max(1) > BLOCKS_MAX {
            return Err(format!("its {} bytes are too many for `crash`", layout.size));
        }
        let mut sequence = Sequence::new(job, &layout, how.chance, how.bugs)?;
        self.sleep(job.delay());
        let mut is_open = vec![false; layout.files.len()];
        let (mut ios, mut thought) = (0, 0);
        loop {
            let action = sequence.next_action();
            if matches!(action, Action::Close { .. } | Action::RoundEnd { .. } | Action::Done) {
                self.drain()?;
            }
            match action {
                Action::Done => break,
                Action::Open(file) => {
                    self.open(job, &layout, file)?;
                    is_open[file] = true;
                }
                Action::Close { file } => {
                    self.call(Call::Close(Made::descriptor(file)?))?;
                    is_open[file] = false;
                }
                Action::Io { file, direction, offset, length } => {
                    self.io((job, &layout), file, direction, (offset, length))?;
                    ios += 1;
                    if job.thinktime > 0 && ios >= thought + job.thinktime_blocks {
                        self.drain()?;
                        self.sleep(job.thinktime);
                        thought = ios;
                    }
                }
                Action::Place { .. } => return Err("is on zones, which a program cannot".into()),
                // Neither a job that goes on for a time nor one that verifies is a program.
                Action::Rewind { .. } | Action::Verify => {}
                Action::Sync { file, what } => {
                    let fd = Made::descriptor(file)?;
                    self.call(match what {
                        SyncWhat::All => Call::Fsync(fd),
                        SyncWhat::Data => Call::Fdatasync(fd),
                    })?;
                }
                Action::RoundEnd { sync } => {
                    for (file, is_open) in is_open.iter().enumerate().filter(|_| sync) {
                        let fd = Made::descriptor(file)?;
                        if !is_open {
                            self.open(job, &layout, file)?;
                        }
                        self.call(Call::Fsync(fd))?;
                        if !is_open {
                            self.call(Call::Close(fd))?;
                        }
                    }
                }
            }
        }
        // The job's descriptors go with its process.
        self.steps.push(Step::Exit);
        for file in layout.files.iter().filter(|_| job.unlink) {
            if self.lengths.remove(&file.path).is_some() {
                self.call(Call::Unlink(file.path.clone()))?;
            }
        }
        Ok(())
    }

    fn open(&mut self, job: &Job, layout: &Layout, file: usize) -> Result<(), String> {
        let flags = Flags {
            write: job.writes,
            create: job.writes,
            direct: job.direct.is_on(),
            sync: job.open_sync == Some(SyncKind::Full),
            dsync: job.open_sync == Some(SyncKind::DataOnly),
            ..Flags::READ
        };
        let path = layout.files[file].path.clone();
        self.lengths.entry(path.clone()).or_insert(0);
        self.call(Call::Open(Made::descriptor(file)?, path, flags))
    }

    /// Waits for all that is in flight.
    fn drain(&mut self) -> Result<(), String> {
        match std::mem::take(&mut self.in_flight) {
            0 => Ok(()),
            n => self.call(Call::AioWait(n as u32)),
        }
    }

    fn io(
        &mut self,
        (job, layout): (&Job, &Layout),
        file: usize,
        direction: Direction,
        (at, len): (u64, u64),
    ) -> Result<(), String> {
        let fd = Made::descriptor(file)?;
        let is_queued = is_queued(job);
        if is_queued && self.in_flight == job.iodepth {
            self.call(Call::AioWait(1))?;
            self.in_flight -= 1;
        }
        self.in_flight += u64::from(is_queued);
        match direction {
            Direction::Write => {
                let length = self.lengths.entry(layout.files[file].path.clone()).or_insert(0);
                *length = (*length).max(at + len);
                self.write(fd, at, len, (is_queued, job.direct))
            }
            Direction::Read => {
                let len = u32::try_from(len).map_err(|_| format!("a block of {len} bytes"))?;
                self.call(match is_queued {
                    true => Call::AioRead { fd, len, at },
                    false => Call::Pread { fd, len, at },
                })
            }
            Direction::Trim => Err("discards a range, which a program cannot".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Variables, parse};
    use super::*;

    fn program(text: &str) -> Result<String, String> {
        let file = parse("job.fio", text.as_bytes(), &|_| None, &Variables::default());
        assert!(!file.has_errors(), "{}", file.rendered());
        let made = file.program(RunOptions::default())?;
        let text = made.to_string();
        assert_eq!(Program::parse(&text).as_ref(), Ok(&made), "it is a program like another");
        Ok(text)
    }

    #[test]
    fn a_job_is_the_calls_that_it_makes() {
        let text = "[log]\nrw=write\nbs=4k\nsize=12k\nfilename=d/log\nfsync=2\nend_fsync=1\n";
        let made = program(text).expect("a program");
        let expected = "mkdir d\nopen 0 d/log rw,creat\nfallocate 0 extend 0 12288\nclose 0\n\
                        open 0 d/log rw,creat\n\
                        pwrite 0 4096 0 1\npwrite 0 4096 4096 2\nfsync 0\npwrite 0 4096 8192 3\n";
        assert!(made.starts_with(expected), "{made}");
        assert!(made.ends_with("fsync 0\nclose 0\nexit\n"), "{made}");
        let none = program(&format!("{text}fallocate=none\n")).expect("a program");
        assert_eq!(none, made.replace("fallocate 0 extend 0 12288\n", ""));
    }

    #[test]
    fn what_is_read_or_written_over_is_there_first() {
        let text = "[a]\nrw=write\nbs=4k\nsize=8k\noverwrite=1\nfilename=f\nthinktime=7\n\
                    [b]\nstonewall\nrw=read\nbs=4k\nsize=8k\nfilename=f\n";
        let made = program(text).expect("a program");
        assert!(made.contains("ftruncate 0 8192\npwrite 0 4096 0 1\npwrite 0 4096 4096 2\n"));
        assert!(made.contains("pwrite 0 4096 0 3\nnap 7\npwrite 0 4096 4096 4\n"), "{made}");
        assert!(made.contains("open 0 f r\npread 0 4096 0\npread 0 4096 4096\n"), "{made}");
    }

    #[test]
    fn operations_in_flight_are_submitted_and_waited_for() {
        let text = "[a]\nrw=write\nbs=4k\nsize=12k\nfilename=f\ndirect=1\nioengine=libaio\niodepth=2\n\
                    fsync=3\nfallocate=none\n";
        let made = program(text).expect("a program");
        let calls = "aio_write 0 4096 0 1\naio_write 0 4096 4096 2\naio_wait 1\n\
                     aio_write 0 4096 8192 3\naio_wait 2\nclose 0\nexit\n";
        assert!(made.ends_with(calls), "{made}");
    }

    #[test]
    fn what_is_no_list_of_calls_is_refused_with_the_way_out() {
        for (text, way) in [
            ("[a]\nrw=write\nsize=4k\n[b]\nrw=write\nsize=4k\n", "stonewall"),
            ("[a]\nrw=write\nsize=4k\nnumjobs=2\n", "stonewall"),
            ("[a]\nrw=write\nsize=4k\nruntime=3\ntime_based=1\n", "number_ios"),
            ("[a]\nrw=write\nsize=4k\nrate=1m\n", "thinktime"),
            ("[a]\nrw=write\nsize=64m\nbs=4k\n", "smaller `size`"),
            ("[a]\nrw=write\nsize=8m\nbs=2m\n", "at most 1048576"),
            ("[a]\nrw=write\nsize=4k\nfilename=a b\n", "neither spaces"),
        ] {
            let e = program(text).expect_err(text);
            assert!(e.starts_with("job `") && e.contains(way), "{e}");
        }
    }
}
