//! Random programs to be cut: small files, large ones in writeback while others are synced, names
//! that come and go.

use wp_base::rng::Rng;
use wp_machine::further::{self, Author, Open};
use wp_vfs::{FsEntry, Offers};
use wp_workload::program::{Alloc, Call, Flags, Interleavings, LIMITS, Program, Step};

/// Names of attributes.
const ATTRIBUTES: [&str; 2] = ["user.a", "user.b"];
/// Descriptors in use at most.
const OPEN: u32 = 6;
/// Sleeps, microseconds: none, within a tick, some ticks, the commit timer, the age at which data
/// are written.
const NAPS: [u64; 7] = [500, 3_000, 20_000, 150_000, 1_000_000, 6_000_000, 31_000_000];

/// What programs may do besides the plain calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extras {
    /// `O_DIRECT`, `O_DSYNC` and `O_SYNC`.
    pub direct: bool,
    /// `fallocate`.
    pub fallocate: bool,
    /// Writes of up to a MiB.
    pub large: bool,
    /// `symlink`, `setxattr` and `removexattr`.
    pub attributes: bool,
    /// The last two of them.
    pub xattrs: bool,
    /// `fbarrier` and `fdatabarrier`, mostly in place of `fsync` and `fdatasync`.
    pub barriers: bool,
    /// Files without a name, exchanges and whiteouts, devices and pipes, permissions, owners and
    /// times, stores through mappings, ranges taken out and put in, writes to the end, copies.
    pub calls: bool,
    /// Copies, clones and dedupes alone, where the file system shares blocks.
    pub shares: bool,
    /// Two or three threads make the calls, in one of their interleavings.
    pub threads: bool,
    /// Those that the file system has.
    pub offers: Offers,
}

impl Extras {
    /// All.
    pub const ALL: Extras = Extras { attributes: true, ..Extras::DATA };
    /// Without symbolic links and attributes: programs on which published numbers stand.
    pub const DATA: Extras = Extras {
        direct: true,
        fallocate: true,
        large: true,
        attributes: false,
        xattrs: true,
        barriers: false,
        calls: false,
        shares: false,
        threads: false,
        offers: Offers::ALL,
    };

    /// The same without what a file system does not have.
    pub const fn on(self, fs: &FsEntry) -> Extras {
        Extras {
            fallocate: self.fallocate && fs.offers.fallocate,
            xattrs: self.xattrs && fs.offers.xattrs,
            shares: self.shares && fs.offers.shares,
            offers: fs.offers,
            ..self
        }
    }
}

struct Wild {
    rng: Rng,
    extras: Extras,
    files: Vec<String>,
    dirs: Vec<String>,
    open: Vec<Open>,
    made: u32,
    written: u32,
    steps: Vec<Step>,
}

/// The program of `seed`, of about `calls` calls. Every write has contents of its own.
pub fn generate(seed: u64, calls: u32, extras: Extras) -> Program {
    let mut w = Wild {
        // Those of one thread are what they were.
        rng: Rng::stream(seed, if extras.threads { "thread programs" } else { "crash programs" }),
        extras,
        files: Vec::new(),
        dirs: Vec::new(),
        open: Vec::new(),
        made: 0,
        written: 0,
        steps: Vec::new(),
    };
    w.call(Call::Open(63, ".".to_owned(), Flags::default()));
    if !extras.threads {
        for _ in 0..calls {
            w.step();
        }
        return Program(w.steps);
    }
    for _ in 0..calls / 4 {
        w.step();
    }
    w.steps.push(Step::Join);
    let threads = 2 + w.below(2);
    for _ in calls / 4..calls {
        w.step_of_thread(threads);
    }
    Interleavings::random(&Program(w.steps), seed)
}

impl Author for Wild {
    fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n.max(1))
    }
    fn call(&mut self, call: Call) {
        self.steps.push(Step::call(call));
    }
    fn new_name(&mut self) -> String {
        self.made += 1;
        let name = format!("n{}", self.made);
        match self.below(3) {
            0 => match self.one_of(&self.dirs.clone()) {
                Some(dir) => format!("{dir}/{name}"),
                None => name,
            },
            _ => name,
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
        self.written += 1;
        self.written
    }
}

impl Wild {
    fn one_of<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let i = self.below(of.len() as u64) as usize;
        of.get(i).cloned()
    }

    /// What comes next, in one of some threads; now and then all of them wait for each other.
    fn step_of_thread(&mut self, threads: u64) {
        if self.below(10) == 0 {
            self.steps.push(Step::Join);
        }
        let thread = self.below(threads) as u32;
        let from = self.steps.len();
        self.step();
        for step in &mut self.steps[from..] {
            if let Step::Call(by, _) = step {
                by.thread = thread;
            }
        }
    }

    fn step(&mut self) {
        // Drawn only where it can happen, so that the programs without are what they were.
        if self.extras.calls && self.below(3) == 0 {
            let offers = self.extras.offers;
            return further::call(self, &offers);
        }
        if self.extras.shares && self.below(6) == 0 {
            let offers = self.extras.offers;
            return further::copy(self, &offers);
        }
        if self.extras.attributes && self.below(8) == 0 {
            return self.attribute();
        }
        let at = self.below(self.open.len() as u64) as usize;
        let Some(Open { fd, size, direct }) = self.open.get(at).copied() else {
            return self.open_one();
        };
        match self.below(100) {
            0..=11 => self.open_one(),
            12..=14 => {
                self.open.remove(at);
                self.call(Call::Close(fd));
            }
            15..=39 => self.write(at),
            40..=43 if self.extras.large => self.large(at),
            44..=58 => self.sync(Call::Fsync(fd), Call::Fbarrier(fd)),
            59..=64 => self.sync(Call::Fdatasync(fd), Call::Fdatabarrier(fd)),
            65..=66 => self.call(Call::Syncfs(63)),
            67..=69 => self.sync(Call::Fsync(63), Call::Fbarrier(63)),
            70..=72 => {
                let len = if direct { size / 8192 * 4096 } else { self.below(size + 6000) };
                self.open[at].size = len;
                self.call(Call::Ftruncate(fd, len));
            }
            73..=80 => self.names(),
            81..=86 if self.extras.fallocate => self.fallocate(at),
            87..=89 => self.directory(),
            90..=99 => {
                if let Some(us) = self.one_of(&NAPS) {
                    self.steps.push(Step::Nap(us));
                }
            }
            _ => self.write(at),
        }
    }

    /// A sync, or the call that only orders.
    fn sync(&mut self, durable: Call, ordered: Call) {
        let orders = self.extras.barriers && self.below(4) > 0;
        self.call(if orders { ordered } else { durable });
    }

    fn open_one(&mut self) {
        let Some(fd) = (0..OPEN).find(|fd| !self.open.iter().any(|o| o.fd == *fd)) else { return };
        let old = self.below(4) == 0;
        let name = old.then(|| self.one_of(&self.files.clone())).flatten();
        let create = name.is_none();
        let name = match name {
            Some(name) => name,
            None => {
                let name = self.new_name();
                self.files.push(name.clone());
                name
            }
        };
        let mut how = Flags { write: true, create, ..Flags::default() };
        how.truncate = !create && self.below(3) == 0;
        if self.extras.direct {
            match self.below(10) {
                0 => how.direct = true,
                1 => how.dsync = true,
                2 => (how.direct, how.dsync) = (true, true),
                3 => how.sync = true,
                _ => {}
            }
        }
        self.open.push(Open { fd, size: 0, direct: how.direct });
        self.call(Call::Open(fd, name, how));
    }

    fn pwrite(&mut self, at: usize, offset: u64, len: u32) {
        let open = &mut self.open[at];
        open.size = open.size.max(offset + u64::from(len));
        let fd = open.fd;
        self.written += 1;
        let seed = self.written;
        self.call(Call::pwrite(fd, len, offset, seed));
    }

    fn write(&mut self, at: usize) {
        let Open { size, direct, .. } = self.open[at];
        let grain = if direct || self.below(2) == 0 { 4096 } else { 512 };
        let len = (1 + self.below(if grain == 4096 { 4 } else { 24 })) * grain;
        let offset = match self.below(8) {
            0..=3 => size.div_ceil(grain) * grain,
            4..=6 => self.below(size / grain + 1) * grain,
            _ => (size / grain + self.below(16)) * grain,
        };
        self.pwrite(at, offset, len as u32);
    }

    /// Some of up to a MiB each, one behind the other: in writeback for a while.
    fn large(&mut self, at: usize) {
        for _ in 0..1 + self.below(3) {
            let len = (64 + self.below(193)) * 4096;
            let offset = self.open[at].size.next_multiple_of(4096);
            self.pwrite(at, offset, (len as u32).min(LIMITS.1));
        }
    }

    fn names(&mut self) {
        let Some(old) = self.one_of(&self.files.clone()) else { return };
        match self.below(4) {
            0 => {
                self.files.retain(|f| *f != old);
                self.call(Call::Unlink(old));
            }
            1 => {
                let new = self.new_name();
                self.files.push(new.clone());
                self.call(Call::Link(old, new));
            }
            other => {
                let over = if other == 2 { self.one_of(&self.files.clone()) } else { None };
                let new = over.unwrap_or_else(|| self.new_name());
                if new != old {
                    self.files.retain(|f| *f != old && *f != new);
                    self.files.push(new.clone());
                    self.call(Call::Rename(old, new));
                }
            }
        }
    }

    /// A symbolic link, or an attribute of a file or directory: values that fit beside the inode,
    /// and such that need a block of their own; links that fit into the inode, and such that do
    /// not.
    fn attribute(&mut self) {
        let all: Vec<String> = self.files.iter().chain(&self.dirs).cloned().collect();
        let Some(path) = self.one_of(&all) else { return self.open_one() };
        match self.below(8) {
            n if n < 2 || !self.extras.xattrs => {
                let name = self.new_name();
                let target = match self.below(3) {
                    0 => format!("{path}/{}", "long".repeat(20)),
                    _ => path,
                };
                self.files.push(name.clone());
                self.call(Call::Symlink(target, name));
            }
            2 => self.call(Call::RemoveXattr(path, ATTRIBUTES[self.written as usize % 2].into())),
            other => {
                self.written += 1;
                let seed = self.written;
                let name = ATTRIBUTES[self.below(2) as usize].to_owned();
                let most = if other < 6 { 40 } else { 1500 };
                let len = 1 + self.below(most) as u32;
                self.call(Call::SetXattr { path, name, len, data: seed.into() });
            }
        }
    }

    fn directory(&mut self) {
        if self.dirs.len() < 3 {
            self.made += 1;
            let name = format!("d{}", self.made);
            self.dirs.push(name.clone());
            return self.call(Call::Mkdir(name));
        }
        let Some(dir) = self.one_of(&self.dirs.clone()) else { return };
        let inside = format!("{dir}/");
        self.dirs.retain(|d| *d != dir);
        match self.files.iter().any(|f| f.starts_with(&inside)) {
            false => self.call(Call::Rmdir(dir)),
            true => {
                self.made += 1;
                let new = format!("d{}", self.made);
                for f in &mut self.files {
                    if let Some(rest) = f.strip_prefix(&inside) {
                        *f = format!("{new}/{rest}");
                    }
                }
                self.dirs.push(new.clone());
                self.call(Call::Rename(dir, new));
            }
        }
    }

    fn fallocate(&mut self, at: usize) {
        let Open { fd, size, .. } = self.open[at];
        let modes = [Alloc::Extend, Alloc::Keep, Alloc::Punch, Alloc::Zero];
        let mode = modes[self.below(4) as usize];
        let offset = self.below(size / 4096 + 4) * 4096;
        let len = (1 + self.below(16)) * 4096;
        if matches!(mode, Alloc::Extend | Alloc::Zero) {
            self.open[at].size = size.max(offset + len);
        }
        self.call(Call::Fallocate(fd, mode, offset, len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_those_of_their_seed_and_parse() {
        let mut shared = 0;
        for seed in 0..50 {
            let p = generate(seed, 40, Extras::ALL);
            assert_eq!(p, generate(seed, 40, Extras::ALL));
            assert_eq!(Program::parse(&p.to_string()), Ok(p));
            let p = generate(seed, 40, Extras { calls: true, ..Extras::ALL });
            assert_eq!(Program::parse(&p.to_string()), Ok(p));
            let p = generate(seed, 60, Extras { shares: true, ..Extras::ALL });
            shared += u32::from(p.to_string().contains("\nreflink "));
            assert_eq!(Program::parse(&p.to_string()), Ok(p));
            let p = generate(seed, 40, Extras { threads: true, ..Extras::ALL });
            assert!(p.has_threads() && p.is_in_order(), "{p}");
            assert_eq!(Program::parse(&p.to_string()), Ok(p));
        }
        assert!(shared > 30, "{shared} of 50 programs share blocks");
    }
}
