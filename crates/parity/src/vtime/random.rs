//! Random programs, and how ours and the kernel's runs of them compare.

use std::collections::BTreeSet;

use wp_base::rng::Rng;
use wp_machine::further::{self, Author, Open};
use wp_vfs::Offers;
use wp_workload::program::{AIO_MOST, Advise, Alloc, Call, Flags, Label, Program, Step};

use super::config::Config;
use super::guest::{Guest, Ran};
use super::listed::{Finding, check, parse_differences};
use super::run::{RunError, Sent, Setup, Timed, run};

/// The known differences.
pub const DIFFERENCES_TOML: &str = include_str!("../../../../kernels/linux-6.12/random.toml");

/// Latency of the device: so long that the guest's clock steps (256 ns a reading) never add up to
/// one.
pub const LATENCY_NS: u64 = 100_000;
/// Rest after the mount, microseconds.
pub const SETTLE_US: u64 = 10_000_000;
/// Descriptors in use at most, and names of files.
const NAMES: u32 = further::OPEN;
/// Sleeps, microseconds: none, within a tick, some ticks, to the commit timer and beyond.
const NAPS: [u64; 6] = [3_000, 20_000, 20_000, 150_000, 1_000_000, 6_000_000];

/// What programs may do besides the plain calls.
#[derive(Clone, Copy, Debug)]
pub struct Extras {
    /// `O_DIRECT`, `O_DSYNC` and `O_SYNC`.
    pub direct: bool,
    /// `fallocate`.
    pub fallocate: bool,
    /// `io_submit` and `io_getevents`, mostly of files opened with `O_DIRECT`.
    pub aio: bool,
    /// `pread` of what is no longer cached, and `fadvise`.
    pub reads: bool,
    /// What [`further::call`] adds.
    pub calls: bool,
    /// Those that the file system has.
    pub offers: Offers,
}

struct Generator {
    rng: Rng,
    extras: Extras,
    /// Names that exist, and whether they are directories.
    files: Vec<String>,
    dirs: Vec<String>,
    /// Open descriptors, with the sizes of their files as the program believes.
    open: Vec<Open>,
    made: u32,
    /// Asynchronous calls that may be in flight.
    in_flight: u32,
    /// Where the last read ended.
    place_read: u64,
    steps: Vec<Step>,
}

/// Calls of a program, about, if nothing else is asked for.
pub const CALLS: u32 = 30;

/// What a program is called: its seed, and whatever else it is not made of as usual.
fn name(seed: u64, calls: u32, extras: Extras) -> String {
    let calls = if calls == CALLS { String::new() } else { format!("-calls{calls}") };
    let direct = if extras.direct { "" } else { "-nodirect" };
    let fallocate = if extras.fallocate { "" } else { "-nofallocate" };
    let aio = if extras.aio { "-aio" } else { "" };
    let reads = if extras.reads { "-reads" } else { "" };
    let further = if extras.calls { "-all" } else { "" };
    format!("r{seed}{calls}{direct}{fallocate}{aio}{reads}{further}")
}

/// A program of about `calls` calls.
pub fn generate(seed: u64, calls: u32, extras: Extras) -> Program {
    let mut g = Generator {
        rng: Rng::stream(seed, "vtime programs"),
        extras,
        files: Vec::new(),
        dirs: Vec::new(),
        open: Vec::new(),
        made: 0,
        in_flight: 0,
        place_read: 0,
        steps: vec![
            Step::Case(name(seed, calls, extras)),
            Step::Nap(SETTLE_US),
            Step::Align,
            Step::call(Call::Open(63, ".".to_owned(), Flags::default())),
        ],
    };
    for _ in 0..calls {
        g.step();
    }
    g.wait_for(AIO_MOST);
    g.push(Call::Syncfs(63));
    Program(g.steps)
}

impl Author for Generator {
    fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n.max(1))
    }
    fn call(&mut self, call: Call) {
        self.push(call);
    }
    fn new_name(&mut self) -> String {
        self.made += 1;
        let name = format!("n{}", self.made);
        match self.dirs.is_empty() || self.below(3) > 0 {
            true => name,
            false => {
                let d = self.pick(self.dirs.len());
                format!("{}/{name}", self.dirs[d])
            }
        }
    }
    fn files(&mut self) -> &mut Vec<String> {
        &mut self.files
    }
    fn dirs(&mut self) -> &mut Vec<String> {
        &mut self.dirs
    }
    fn open(&mut self) -> &mut Vec<Open> {
        &mut self.open
    }
    fn seed(&mut self) -> u32 {
        self.below(1000) as u32
    }
}

impl Generator {
    fn pick(&mut self, n: usize) -> usize {
        self.below(n.max(1) as u64) as usize
    }

    fn push(&mut self, call: Call) {
        let index = self.steps.len() as u32;
        let label = Label { op: call.name().to_owned(), index };
        self.steps.push(Step::timed(label, call));
    }

    fn step(&mut self) {
        if self.open.is_empty() {
            return self.open_new();
        }
        let at = self.pick(self.open.len());
        let Open { fd, size, direct } = self.open[at];
        if self.extras.aio && self.below(2) == 0 {
            return self.asynchronous(at);
        }
        if self.extras.reads && self.below(2) == 0 {
            return self.read(at);
        }
        if self.extras.calls && self.below(3) == 0 {
            let offers = self.extras.offers;
            return further::call(self, &offers);
        }
        match self.below(100) {
            0..=11 => self.open_new(),
            12..=15 => self.open_old(),
            16..=19 => {
                self.open.remove(at);
                self.push(Call::Close(fd));
            }
            20..=46 => self.write(at),
            47..=59 => self.push(Call::Fsync(fd)),
            60..=66 => self.push(Call::Fdatasync(fd)),
            67..=69 => self.push(Call::Syncfs(fd)),
            70..=73 => self.push(Call::Fsync(63)),
            74..=77 => {
                let len = if direct { size / 8192 * 4096 } else { self.below(size + 6000) };
                self.open[at].size = len;
                self.push(Call::Ftruncate(fd, len));
            }
            78..=80 => self.rename(),
            81..=82 => self.link(),
            83..=85 => self.unlink(),
            86..=87 => self.directory(),
            88..=91 if self.extras.fallocate => self.fallocate(at),
            _ => {
                let n = self.pick(NAPS.len());
                self.steps.push(Step::Nap(NAPS[n]));
            }
        }
    }

    fn flags(&mut self, create: bool) -> Flags {
        let mut f = Flags { write: true, create, ..Flags::default() };
        if self.extras.aio && self.below(2) == 0 {
            f.direct = true;
        } else if self.extras.direct {
            match self.below(8) {
                0 => f.direct = true,
                1 => f.dsync = true,
                2 => (f.direct, f.dsync) = (true, true),
                3 => f.sync = true,
                _ => {}
            }
        }
        f
    }

    fn free_fd(&self) -> Option<u32> {
        (0..NAMES).find(|fd| !self.open.iter().any(|o| o.fd == *fd))
    }

    fn open_new(&mut self) {
        let Some(fd) = self.free_fd() else { return };
        let (name, flags) = (self.new_name(), self.flags(true));
        self.files.push(name.clone());
        self.open.push(Open { fd, size: 0, direct: flags.direct });
        self.push(Call::Open(fd, name, flags));
    }

    fn open_old(&mut self) {
        let Some(fd) = self.free_fd() else { return };
        if self.files.is_empty() {
            return;
        }
        let n = self.pick(self.files.len());
        let (name, mut flags) = (self.files[n].clone(), self.flags(false));
        flags.truncate = self.below(4) == 0;
        // What it holds is not known here; writes go to its beginning then.
        self.open.push(Open { fd, size: 0, direct: flags.direct });
        self.push(Call::Open(fd, name, flags));
    }

    fn asynchronous(&mut self, at: usize) {
        let Open { fd, size, direct } = self.open[at];
        match self.below(8) {
            0..=1 if self.in_flight > 0 => {
                let n = 1 + self.below(u64::from(self.in_flight)) as u32;
                self.wait_for(n);
            }
            // Through the cache Linux reads ahead.
            2..=3 if size > 0 && direct => {
                let (offset, len) = (self.below(size / 4096 + 1) * 4096, 1 + self.below(8));
                self.in_flight += 1;
                self.push(Call::AioRead { fd, len: len as u32 * 4096, at: offset });
            }
            _ => {
                let (len, offset) = self.place(at);
                let seed = self.below(1000) as u32;
                self.in_flight += 1;
                self.push(Call::AioWrite { fd, len, at: offset, seed });
            }
        }
    }

    /// Waits for `n` of the calls in flight.
    fn wait_for(&mut self, n: u32) {
        if self.in_flight > 0 {
            self.in_flight -= n.min(self.in_flight);
            self.push(Call::AioWait(n));
        }
    }

    fn write(&mut self, at: usize) {
        let fd = self.open[at].fd;
        let (len, offset) = self.place(at);
        let seed = self.below(1000) as u32;
        self.push(Call::pwrite(fd, len, offset, seed));
    }

    /// Reads what was forgotten before, in order or not, or says which.
    fn read(&mut self, at: usize) {
        let Open { fd, size, direct } = self.open[at];
        match self.below(16) {
            0 => {
                let what = [Advise::Normal, Advise::Sequential, Advise::Random];
                let n = self.pick(what.len());
                self.push(Call::Fadvise(fd, what[n]));
            }
            1..=2 => {
                // What is dirty is written, and stays.
                if self.below(4) > 0 {
                    self.push(Call::Fsync(fd));
                }
                self.push(Call::Fadvise(fd, Advise::DontNeed));
                self.place_read = 0;
            }
            3..=4 if !direct => {
                let (len, seed) = ((16 + self.below(112)) * 4096, self.below(1000) as u32);
                self.open[at].size = size.max(size / 4096 * 4096 + len);
                self.push(Call::pwrite(fd, len as u32, size / 4096 * 4096, seed));
            }
            kind => {
                let grain = if direct || self.below(4) > 0 { 4096 } else { 512 };
                let many = if self.below(8) == 0 { 48 } else { 4 };
                let len = (1 + self.below(many)) * grain;
                if kind > 12 || self.place_read >= size {
                    self.place_read = self.below(size / grain + 1) * grain;
                }
                let from = self.place_read / grain * grain;
                self.place_read = from + len;
                self.push(Call::Pread { fd, len: len as u32, at: from });
            }
        }
    }

    /// Bytes and offset of a write.
    fn place(&mut self, at: usize) -> (u32, u64) {
        let Open { size, direct, .. } = self.open[at];
        let grain = if direct || self.below(2) == 0 { 4096 } else { 512 };
        let len = (1 + self.below(if grain == 4096 { 4 } else { 24 })) * grain;
        let offset = match self.below(8) {
            0..=3 => size.div_ceil(grain) * grain,
            4..=6 => self.below(size / grain + 1) * grain,
            _ => (size / grain + self.below(16)) * grain,
        };
        self.open[at].size = size.max(offset + len);
        (len as u32, offset)
    }

    fn rename(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let from = self.pick(self.files.len());
        let old = self.files[from].clone();
        let new = if self.files.len() > 1 && self.below(2) == 0 {
            let to = self.pick(self.files.len());
            let name = self.files[to].clone();
            if name == old {
                return;
            }
            self.files.retain(|f| *f != name);
            name
        } else {
            self.new_name()
        };
        self.files.retain(|f| *f != old);
        self.files.push(new.clone());
        self.push(Call::Rename(old, new));
    }

    fn link(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let n = self.pick(self.files.len());
        let (old, new) = (self.files[n].clone(), self.new_name());
        self.files.push(new.clone());
        self.push(Call::Link(old, new));
    }

    fn unlink(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let n = self.pick(self.files.len());
        let name = self.files.remove(n);
        self.push(Call::Unlink(name));
    }

    fn directory(&mut self) {
        if self.dirs.len() < 3 {
            self.made += 1;
            let name = format!("d{}", self.made);
            self.dirs.push(name.clone());
            return self.push(Call::Mkdir(name));
        }
        let d = self.pick(self.dirs.len());
        let inside = format!("{}/", self.dirs[d]);
        if !self.files.iter().any(|f| f.starts_with(&inside)) {
            let name = self.dirs.remove(d);
            self.push(Call::Rmdir(name));
        }
    }

    fn fallocate(&mut self, at: usize) {
        let Open { fd, size, .. } = self.open[at];
        let mode = [Alloc::Extend, Alloc::Keep, Alloc::Punch, Alloc::Zero][self.pick(4)];
        let offset = self.below(size / 4096 + 4) * 4096;
        let len = (1 + self.below(16)) * 4096;
        if mode == Alloc::Extend || mode == Alloc::Zero {
            self.open[at].size = size.max(offset + len);
        }
        self.push(Call::Fallocate(fd, mode, offset, len));
    }
}

/// A call that took another number of waits, or answered otherwise.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CallDifference {
    /// Name and index.
    pub call: String,
    /// Ours: waits, or `failed`.
    pub ours: String,
    /// The kernel's.
    pub theirs: String,
}

/// Name of a program, by which the list of differences knows it; `-`: it has none.
pub fn name_of(program: &Program) -> &str {
    let name = program.0.iter().find_map(|s| match s {
        Step::Case(name) => Some(name.as_str()),
        _ => None,
    });
    name.unwrap_or("-")
}

/// Holds the verdicts on programs against the list of known differences: which calls differ and
/// are not listed, which are listed and the same now. `requests` as in [`judge`]. Errors: the list
/// does not parse.
pub fn findings(
    ran: &[(&Config, &Program)],
    verdicts: &[Verdict],
    requests: bool,
) -> Result<Vec<Finding>, String> {
    let listed = parse_differences(DIFFERENCES_TOML)?;
    let mut found = BTreeSet::new();
    let mut runs = BTreeSet::new();
    for ((config, program), verdict) in ran.iter().zip(verdicts) {
        let run = (config.name, name_of(program));
        if let Verdict::Different(calls) = verdict {
            found.extend(calls.iter().map(|c| line(run, c)));
        }
        if !matches!(verdict, Verdict::NotRun(_)) {
            runs.insert(run);
        }
    }
    let was_run = |line: &str| {
        let (config, rest) = line.split_once(": ").unwrap_or_default();
        runs.contains(&(config, rest.split(' ').next().unwrap_or_default()))
            && (requests || !rest.contains(REQUESTS))
    };
    Ok(check(&found, &listed, was_run))
}

/// A call that differs, as the list has it.
fn line((config, program): (&str, &str), c: &CallDifference) -> String {
    format!("{config}: {program} {}: Writepath {}, Linux {}", c.call, c.ours, c.theirs)
}

/// What came of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every call took as many waits; how many calls there were.
    Same(usize),
    /// These did not.
    Different(Vec<CallDifference>),
    /// It could not run here, or not there.
    NotRun(String),
}

/// What follows the call in a difference of what the device was sent.
const REQUESTS: &str = " requests/flushes";

/// The program on our side, against what the kernel did; `requests`: what the device was sent in
/// each call too. Errors: a machine of ours that stops.
pub fn judge(config: &Config, program: &Program, theirs: &Ran, requests: bool) -> Verdict {
    let setup = Setup { latency_ns: LATENCY_NS, mount_ns: theirs.mount_ns, settle_s: 0 };
    let ours = match run(config, program, &setup) {
        Ok(o) => o.timed,
        Err(RunError::NotModelled(why)) => return Verdict::NotRun(why),
        Err(e) => {
            let call = e.to_string();
            let (ours, theirs) = ("stops".to_owned(), "runs".to_owned());
            return Verdict::Different(vec![CallDifference { call, ours, theirs }]);
        }
    };
    let texts = |calls: &[Timed]| -> Vec<String> {
        let waits = Timed::all_waits(calls, LATENCY_NS);
        let text = |(t, waits): (&Timed, u64)| match (t.ok, t.answered()) {
            (true, None) => waits.to_string(),
            (true, Some(found)) => format!("{waits}, {found}"),
            (false, failed) => failed.unwrap_or_default(),
        };
        calls.iter().zip(waits).map(text).collect()
    };
    let (our_waits, their_waits) = (texts(&ours), texts(&theirs.timed));
    let mut differences = Vec::new();
    let mut compare = |call: String, ours: String, theirs: String| {
        if ours != theirs {
            differences.push(CallDifference { call, ours, theirs });
        }
    };
    for (i, t) in theirs.timed.iter().enumerate() {
        let call = format!("@{}:{}", t.op, t.index);
        let our = our_waits.get(i).cloned().unwrap_or_else(|| "-".to_owned());
        compare(call.clone(), our, their_waits[i].clone());
        if requests {
            let text =
                |sent: Option<Sent>| sent.map_or("not counted".to_owned(), |s| s.to_string());
            let our = text(ours.get(i).and_then(|o| o.sent));
            compare(format!("{call}{REQUESTS}"), our, text(t.sent));
        }
    }
    match differences.is_empty() {
        true => Verdict::Same(theirs.timed.len()),
        false => Verdict::Different(differences),
    }
}

/// Runs programs on both sides, all in one boot; `requests` as in [`judge`]. Errors: a guest that
/// does not start or end.
pub fn both(
    guest: &Guest,
    batch: &[(&Config, &Program)],
    requests: bool,
) -> Result<Vec<Verdict>, String> {
    let theirs = guest.run(LATENCY_NS, batch)?;
    let verdicts = batch.iter().zip(theirs).map(|((config, program), theirs)| match theirs {
        Ok(ran) => judge(config, program, &ran, requests),
        Err(why) => Verdict::NotRun(why),
    });
    Ok(verdicts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_those_of_their_seed_and_parse() {
        let extras = Extras {
            direct: true,
            fallocate: true,
            aio: false,
            reads: false,
            calls: false,
            offers: Offers::ALL,
        };
        for seed in 0..50 {
            let p = generate(seed, 30, extras);
            assert_eq!(p, generate(seed, 30, extras));
            assert_eq!(Program::parse(&p.to_string()), Ok(p));
        }
        assert_eq!(name_of(&generate(7, CALLS, extras)), "r7");
        let other = Extras {
            direct: true,
            fallocate: false,
            aio: false,
            reads: false,
            calls: false,
            offers: Offers::ALL,
        };
        assert_eq!(name_of(&generate(7, 40, other)), "r7-calls40-nofallocate");
    }

    #[test]
    fn a_difference_that_is_not_listed_is_a_finding_and_one_that_was_not_run_is_none() {
        let config = crate::vtime::config::find("ext4-default").expect("it is there");
        let program = generate(
            1,
            CALLS,
            Extras {
                direct: true,
                fallocate: true,
                aio: false,
                reads: false,
                calls: false,
                offers: Offers::ALL,
            },
        );
        let c = |n: &str| n.to_owned();
        let call = CallDifference { call: c("@fsync:9"), ours: c("4"), theirs: c("99") };
        let verdict = Verdict::Different(vec![call]);
        let findings = findings(&[(config, &program)], &[verdict], false).expect("the list parses");
        let line = "ext4-default: r1 @fsync:9: Writepath 4, Linux 99".to_owned();
        assert_eq!(findings, [Finding::Unlisted(line)]);
    }
}
