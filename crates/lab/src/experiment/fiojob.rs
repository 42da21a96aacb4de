//! A fio job as a program of system calls, so that power failures know what each call promised.
//!
//! Its files are laid out as `fio` does, then come its operations one after the other, each write
//! with contents of its own. Left out: what goes on at once (several jobs without `stonewall`), and
//! what depends on time (`runtime`, `rate`).

use wp_vfs::{Reserve, SyncKind};
use wp_workload::fio::{Action, Direction, Job, JobFile, Layout, Sequence, SyncWhat, layout};
use wp_workload::program::{Alloc, Call, Flags, LIMITS, Program, Step};

/// Most calls of a program: power failures look at what each may leave.
const CALLS_MAX: usize = 20_000;

/// The program of a job file. Errors: what in the job file cannot be a program.
pub(super) fn program(file: &JobFile, chance: u64) -> Result<Program, String> {
    let mut out = Steps { steps: Vec::new(), seed: 1 };
    for (n, job) in file.jobs.iter().enumerate() {
        if n > 0 && !job.stonewall {
            return Err(format!(
                "job `{}` runs in parallel: [crash] needs jobs one after the other (stonewall)",
                job.name
            ));
        }
        out.job(job, chance)?;
    }
    Ok(Program(out.steps))
}

struct Steps {
    steps: Vec<Step>,
    seed: u32,
}

impl Steps {
    fn call(&mut self, call: Call) -> Result<(), String> {
        if self.steps.len() >= CALLS_MAX {
            return Err(format!("more than {CALLS_MAX} calls: let the job write less"));
        }
        self.steps.push(Step::Call(None, call));
        Ok(())
    }

    fn write(&mut self, fd: u32, at: u64, bytes: u64) -> Result<(), String> {
        let seed = self.seed;
        self.seed += 1;
        let longest = u64::from(LIMITS.1);
        if bytes > longest {
            return Err(format!("a write of {bytes} bytes: at most {longest} are one call"));
        }
        self.call(Call::Pwrite { fd, len: bytes as u32, at, seed })
    }

    fn job(&mut self, job: &Job, chance: u64) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("job `{}`: {what}", job.name));
        if job.runtime > 0 {
            return wrong("`runtime` depends on time; write `size` or `number_ios`");
        }
        if job.rate.iter().chain(&job.rate_iops).any(|n| *n > 0) {
            return wrong("`rate` depends on time; write `thinktime`");
        }
        let layout = layout(job, &mut |_| 0).map_err(|e| format!("job `{}`: {e}", job.name))?;
        if layout.files.len() > LIMITS.0 as usize {
            return wrong("more files than a program has descriptors (64)");
        }
        if layout.files.iter().any(|f| f.path.contains(char::is_whitespace)) {
            return wrong("a file name with blanks");
        }
        self.lay_out(job, &layout)?;
        if job.startdelay > 0 {
            self.steps.push(Step::Nap(job.startdelay));
        }
        self.operations(job, &layout, chance)?;
        if job.unlink {
            for file in &layout.files {
                self.call(Call::Unlink(file.path.clone()))?;
            }
        }
        Ok(())
    }

    fn lay_out(&mut self, job: &Job, layout: &Layout) -> Result<(), String> {
        let mut made: Vec<&str> = Vec::new();
        for file in &layout.files {
            for (i, _) in file.path.match_indices('/') {
                if !made.contains(&&file.path[..i]) {
                    made.push(&file.path[..i]);
                    self.call(Call::Mkdir(file.path[..i].to_owned()))?;
                }
            }
        }
        let filled = job.reads || job.overwrite;
        for file in layout.files.iter().filter(|f| f.extend && !job.create_on_open) {
            self.open(0, &file.path, Flags { write: true, create: true, ..Flags::default() })?;
            if let Some(Reserve::Space { keep_size }) = job.reserve_first {
                let how = if keep_size { Alloc::Keep } else { Alloc::Extend };
                self.call(Call::Fallocate(0, how, 0, file.length))?;
            }
            if filled || job.truncate_first {
                self.call(Call::Ftruncate(0, file.length))?;
            }
            if filled {
                let mut at = 0;
                while at < file.length {
                    let bytes = job.max_bs[1].min(file.length - at);
                    self.write(0, at, bytes)?;
                    at += bytes;
                }
                if job.create_fsync {
                    self.call(Call::Fsync(0))?;
                }
            }
            self.call(Call::Close(0))?;
        }
        Ok(())
    }

    fn open(&mut self, fd: u32, path: &str, how: Flags) -> Result<(), String> {
        self.call(Call::Open(fd, path.to_owned(), how))
    }

    fn operations(&mut self, job: &Job, layout: &Layout, chance: u64) -> Result<(), String> {
        let mut sequence = Sequence::new(job, layout, chance, false)
            .map_err(|e| format!("job `{}`: {e}", job.name))?;
        let how = Flags {
            write: job.writes,
            create: job.writes,
            direct: job.direct,
            sync: job.open_sync == Some(SyncKind::Full),
            dsync: job.open_sync == Some(SyncKind::DataOnly),
            ..Flags::default()
        };
        let (mut thought, mut operations) = (0, 0u64);
        let mut open = vec![false; layout.files.len()];
        loop {
            match sequence.next_action() {
                Action::Done => return Ok(()),
                Action::Open(i) => {
                    open[i] = true;
                    self.open(i as u32, &layout.files[i].path, how)?;
                }
                Action::Close { file } => {
                    open[file] = false;
                    self.call(Call::Close(file as u32))?;
                }
                Action::Io { file, direction, offset, length } => {
                    match direction {
                        Direction::Write => self.write(file as u32, offset, length)?,
                        Direction::Read => {
                            let len = u32::try_from(length).map_err(|_| "a read too long")?;
                            self.call(Call::Pread { fd: file as u32, len, at: offset })?;
                        }
                    }
                    operations += 1;
                    if job.thinktime > 0 && operations >= thought + job.thinktime_blocks {
                        self.steps.push(Step::Nap(job.thinktime));
                        thought = operations;
                    }
                }
                Action::Sync { file, what } => self.call(match what {
                    SyncWhat::All => Call::Fsync(file as u32),
                    SyncWhat::Data => Call::Fdatasync(file as u32),
                })?,
                Action::RoundEnd { sync } => {
                    let all = if sync { open.clone() } else { Vec::new() };
                    for (i, is_open) in all.into_iter().enumerate() {
                        let fd = i as u32;
                        if !is_open {
                            self.open(fd, &layout.files[i].path, how)?;
                        }
                        self.call(Call::Fsync(fd))?;
                        if !is_open {
                            self.call(Call::Close(fd))?;
                        }
                    }
                }
            }
        }
    }
}
