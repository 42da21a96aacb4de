//! Recovered trees of given programs beside a real kernel's: the same image is recovered here and
//! mounted there, and every file compared.
//!
//! Picture:    program and configuration -> [`Campaign::play`] -> explorer -> the states at the
//!             end and some before -> kernel -> [`difference`] -> [`Row`].
//! Invariants: 1. a state goes by the rules of the kernel that mounts it on both sides;
//!             2. which states are taken depends on seed and program only;
//!             3. no state that was taken is left out of the numbers.

mod guest;

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use wp_base::plain::Shown as _;
use wp_campaign::folder::ProgramFile;
use wp_campaign::lives::Lives;
use wp_campaign::reservoir::Reservoir;
use wp_campaign::{Bench, Campaign, Cut, Played, Source, Space, play_on};
use wp_crash::{Case, Explorer, FsSubject, History, Kept, Outcome, Plan, Profile, Survivor};
use wp_machine::registry;
use wp_medium::{Medium, Sound};
use wp_vfs::{Options, TimeSpec};
use wp_workload::program::{Interleavings, Program, Step};

use self::guest::{Mounter, Task, image};
use crate::host_kernel::{Found, HostKernel, MOUNTED_FROM, Theirs, difference, release};
use crate::vtime::Config;

/// Bytes of a block.
const BLOCK: u32 = 4096;
/// A MiB.
const MIB: u64 = 1 << 20;
/// The guest's kernel. NILFS2 has had the same rules in all releases of this series.
const GUEST_ERA: &str = "6.12.117";
const NILFS2_ERA: &str = "6.12";
/// Images of one boot of the guest.
const IMAGES_A_BOOT: usize = 150;
/// A life is not explored further once it has this number of states that recovery can tell apart.
const ENOUGH: u64 = 600;
/// What is in flight ends within this time, microseconds.
const A_MOMENT_US: u64 = 1000;
/// Lives and interleavings of a program that are taken.
const LIVES: u64 = 6;

/// What to do.
pub struct Ask<'a> {
    /// Programs.
    pub programs: &'a [ProgramFile],
    /// File systems and their options.
    pub configs: &'a [&'static Config],
    /// States of each life before its end, at most.
    pub each: usize,
    /// Seed of their choice.
    pub seed: u64,
    /// Folder for images.
    pub dir: &'a Path,
}

/// A tree that is not the same.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Different {
    /// Name of the program.
    pub program: String,
    /// Name of the configuration.
    pub config: String,
    /// Which tree, and the first thing that is not the same.
    pub what: String,
    /// Arguments of `writepath crash show` that show the state; empty: the kernel's own run.
    pub replay: String,
}

/// Numbers of a configuration.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Row {
    /// Its name.
    pub config: String,
    /// Programs that were played.
    pub programs: u64,
    /// Programs with a call that the file system does not have, or that could not run.
    pub left_out: u64,
    /// Recovered trees, each of another image.
    pub trees: u64,
    /// Of these: the same on both sides.
    pub equal: u64,
    /// Of these: refused by both.
    pub refused: u64,
    /// Files in those trees.
    pub files: u64,
    /// Trees that the kernel's own runs of the programs left.
    pub own: u64,
    /// Of these: the same as the tree here.
    pub own_equal: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Agreement {
    /// The kernel.
    pub kernel: String,
    /// By configuration.
    pub rows: Vec<Row>,
    /// Every difference.
    pub different: Vec<Different>,
    /// Programs that were left out: configuration, program, why.
    pub left_out: Vec<(String, String, String)>,
}

/// Who mounts the images.
pub enum Kernel {
    /// A guest of this one.
    Guest(crate::kernel_lab::Kernel),
    /// This host's, which has to have the file system.
    Host,
}

/// A tree to compare.
struct Tree<'a> {
    row: usize,
    program: &'a str,
    config: &'static Config,
    /// What the kernel does.
    task: Task,
    ours: Rc<Outcome>,
    /// See [`Different::replay`].
    replay: String,
}

impl Tree<'_> {
    fn is_own(&self) -> bool {
        matches!(self.task, Task::Run(..))
    }
}

struct Comparing<'a> {
    ask: &'a Ask<'a>,
    kernel: &'a Kernel,
    era: String,
    guest: Option<Mounter>,
    waiting: Vec<Tree<'a>>,
    seen: BTreeSet<Vec<u8>>,
    out: Agreement,
}

/// Compares. `go_on` is told how many trees are compared and differ, and asked after each program.
///
/// Errors: what the host, or its guest, cannot do.
pub fn agree(
    ask: &Ask<'_>,
    kernel: &Kernel,
    go_on: &dyn Fn(u64, u64) -> bool,
) -> Result<Agreement, String> {
    let (era, name, guest) = match kernel {
        Kernel::Guest(kernel) => {
            let guest = Mounter::new(kernel, ask.dir)?;
            (GUEST_ERA.to_owned(), format!("{GUEST_ERA}, guest"), Some(guest))
        }
        Kernel::Host => {
            let (release, major, minor) = release()?;
            (format!("{major}.{minor}"), format!("{release}, host"), None)
        }
    };
    let out = Agreement { kernel: name, ..Agreement::default() };
    let (waiting, seen) = (Vec::new(), BTreeSet::new());
    let mut all = Comparing { ask, kernel, era, guest, waiting, seen, out };
    for config in ask.configs {
        all.out.rows.push(Row { config: config.name.to_owned(), ..Row::default() });
        all.seen.clear();
        for file in ask.programs {
            let done = match file.is_for(config.fs) {
                true => all.program(config, file),
                false => Err(format!("not for {}", config.fs)),
            };
            match done {
                Ok(()) => all.row().programs += 1,
                Err(why) => {
                    all.row().left_out += 1;
                    all.out.left_out.push((config.name.to_owned(), file.name.clone(), why));
                }
            }
            if all.waiting.len() >= IMAGES_A_BOOT {
                all.compare()?;
            }
            let trees: u64 = all.out.rows.iter().map(|r| r.trees + r.own).sum();
            if !go_on(trees, all.out.different.len() as u64) {
                return Ok(all.out);
            }
        }
        // The host's kernel has one file system on its loop device.
        all.compare()?;
    }
    let trees: u64 = all.out.rows.iter().map(|r| r.trees + r.own).sum();
    go_on(trees, all.out.different.len() as u64);
    Ok(all.out)
}

fn parsed(config: &Config, era: &str) -> Result<(Bench, Options), String> {
    let fs = registry::FILE_SYSTEMS.iter().copied().find(|f| f.name == config.fs);
    let fs = fs.ok_or_else(|| format!("{}: no such file system", config.fs))?;
    let options = |era: &str| {
        let era = if era == GUEST_ERA { guest_era(config) } else { era };
        let text = format!("era={era},{}", config.ours);
        let text = text.trim_end_matches(',');
        Options::parse(text, fs.options).map_err(|e| e.to_string())
    };
    let fresh = Bench::of(fs, options(GUEST_ERA)?).map_err(|e| e.to_string())?;
    let device_params = vec![("capacity_bytes".to_owned(), bytes(config))];
    Ok((Bench { device_params, stale: false, ..fresh }, options(era)?))
}

fn guest_era(config: &Config) -> &'static str {
    if config.fs == "nilfs2" { NILFS2_ERA } else { GUEST_ERA }
}

fn bytes(config: &Config) -> u64 {
    match config.fs {
        "nilfs2" => 256 * MIB,
        "btrfs" => 128 * MIB,
        _ => 64 * MIB,
    }
}

/// The option of `crash` for this configuration.
fn fs_of(config: &Config) -> String {
    let comma = if config.ours.is_empty() { "" } else { "," };
    format!("{},era={}{comma}{}", config.fs, guest_era(config), config.ours)
}

impl<'a> Comparing<'a> {
    fn row(&mut self) -> &mut Row {
        self.out.rows.last_mut().expect("one of this configuration")
    }

    /// The trees of one program. Errors: why it cannot be played.
    fn program(
        &mut self,
        config: &'static Config,
        ProgramFile { name, program, path, .. }: &'a ProgramFile,
    ) -> Result<(), String> {
        let (bench, options) = parsed(config, &self.era)?;
        let text = |e: wp_machine::MachineError| e.to_string();
        let lives = Lives::of(&bench, Space::HONEST, program, (LIVES as usize, self.ask.seed));
        let source = match lives.map_err(text)? {
            Some(lives) => Source::Lives(Arc::new(lives)),
            None => match Interleavings::of(program, LIVES as usize, self.ask.seed) {
                Some(all) => Source::Threads(Arc::new(all)),
                None => Source::Text(program.clone()),
            },
        };
        let count = source.count().unwrap_or(1);
        let is_one = matches!(source, Source::Text(_));
        let campaign = Campaign::new(bench, source, (0, count));
        let fresh = campaign.bench.image().map_err(text)?;
        for n in 0..count.min(LIVES) {
            let played = campaign.play(fresh.clone(), n).map_err(text)?;
            if let Some(why) = lacking(&played) {
                return Err(why);
            }
            self.life(config, &campaign, (&options, &played), (name, path, n));
        }
        if is_one && self.guest.is_some() && runs_there(program) {
            // What is in flight at the end of a program has ended a moment later.
            let mut all = program.clone();
            all.0.push(Step::Nap(A_MOMENT_US));
            let played = play_on(&campaign.bench, fresh, &all).map_err(text)?;
            let (task, ours) =
                (Task::Run(all, bytes(config)), at_end(&campaign, &options, &played));
            let (row, replay) = (self.out.rows.len() - 1, String::new());
            self.waiting.push(Tree { row, program: name, config, task, ours, replay });
        }
        Ok(())
    }

    /// The trees of one life.
    fn life(
        &mut self,
        config: &'static Config,
        campaign: &Campaign,
        (options, played): (&Options, &Played),
        (name, path, n): (&'a str, &Path, u64),
    ) {
        let bench = &campaign.bench;
        let subject = subject(bench, options);
        let history: History = Space::HONEST.history(played);
        let end = history.frames.len() - 1;
        let live = history.frames[end].live.len();
        // The end, with all that is not durable lost, and with all of it there.
        let both = [Kept::none(live), Kept::all(live)];
        let ends = recovered(&subject, played, &history, (end, &both));
        let mut some = Reservoir::new(self.ask.each, self.ask.seed ^ (n << 20), name);
        let mut explorer = Explorer::new(&subject, exploration(self.ask.seed, played));
        explorer.expect(std::iter::once(&history));
        explorer.watch(|v| {
            if v.is_new {
                some.offer(v);
            }
        });
        let enough = &mut |t: &wp_crash::Totals| t.distinct < ENOUGH;
        explorer.explore(&played.tape, &history, &played.ledger, enough);
        drop(explorer);
        let before = some.take().into_iter().map(|t| (t.frame, t.kept, t.outcome));
        for (frame, kept, ours) in ends.into_iter().chain(before) {
            let live = history.frames[frame].live.len();
            let lost: Vec<usize> = (0..live).filter(|i| !kept.has(*i)).collect();
            let fs = (bench.fs, &bench.fs_options);
            let medium = Cut { fs, played, history: &history, frame, lost: &lost }.medium();
            if !self.is_new(&history, &medium) {
                continue;
            }
            let units: Vec<String> = lost.iter().map(usize::to_string).collect();
            let replay = format!(
                "{} {frame}{}{} --fs {} --size {}M --trimmed --first {n}",
                path.shown(),
                if lost.is_empty() { "" } else { ":" },
                units.join(","),
                fs_of(config),
                bytes(config) >> 20,
            );
            let (row, task) = (self.out.rows.len() - 1, image(medium, played.partition));
            self.waiting.push(Tree { row, program: name, config, task, ours, replay });
        }
    }

    /// Notes an image; was there none like it of this configuration?
    fn is_new(&mut self, history: &History, medium: &Medium) -> bool {
        let Some(first) = history.frames.first() else { return true };
        let mut key = Vec::new();
        first.base.diff(medium, &mut |at, sectors| {
            key.extend(at.0.to_le_bytes());
            for slice in medium.read(at, sectors) {
                key.extend(slice.id().to_le_bytes());
            }
        });
        self.seen.insert(wp_machine::results::sha256(&key).into_bytes())
    }

    /// Has the kernel mount all that wait, and compares.
    fn compare(&mut self) -> Result<(), String> {
        let waiting = std::mem::take(&mut self.waiting);
        let Some(first) = waiting.first() else { return Ok(()) };
        let theirs = match (&mut self.guest, self.kernel) {
            (Some(guest), _) => {
                let mut all = Vec::new();
                let mut rest = &waiting[..];
                while !rest.is_empty() {
                    let (some, after) = rest.split_at(rest.len().min(IMAGES_A_BOOT));
                    let tasks: Vec<(&Config, &Task)> =
                        some.iter().map(|t| (t.config, &t.task)).collect();
                    all.extend(guest.mount(&tasks)?);
                    rest = after;
                }
                all
            }
            _ => {
                let config = first.config;
                let dir = self.ask.dir.join(config.name);
                let mut host = HostKernel::of(&dir, bytes(config), config.fs)?;
                let one = |t: &Tree<'_>| match &t.task {
                    Task::Mount(view) => host.recover(&view.medium, config.mount, BLOCK),
                    Task::Run(..) => Err("the host runs no programs".to_owned()),
                };
                waiting.iter().map(one).collect::<Result<Vec<_>, _>>()?
            }
        };
        for (tree, theirs) in waiting.iter().zip(theirs) {
            let what = match tree.is_own() {
                true => {
                    let (ours, theirs) = of_own_run(&tree.ours, theirs.clone());
                    difference(&ours, &theirs, BLOCK)
                }
                false => difference(&tree.ours, &theirs, BLOCK),
            };
            let row = &mut self.out.rows[tree.row];
            let is_equal = u64::from(what.is_none());
            match tree.is_own() {
                true => (row.own, row.own_equal) = (row.own + 1, row.own_equal + is_equal),
                false => {
                    (row.trees, row.equal) = (row.trees + 1, row.equal + is_equal);
                    row.refused += u64::from(matches!(theirs, Theirs::Refused(_))) & is_equal;
                }
            }
            if let Theirs::Files(files) = &theirs {
                row.files += files.len() as u64;
            }
            if let Some(what) = what {
                let of = if tree.is_own() { "its own run: " } else { "" };
                self.out.different.push(Different {
                    program: tree.program.to_owned(),
                    config: tree.config.name.to_owned(),
                    what: format!("{of}{what}"),
                    replay: tree.replay.clone(),
                });
            }
        }
        Ok(())
    }
}

fn subject(bench: &Bench, options: &Options) -> FsSubject {
    FsSubject {
        entry: bench.fs,
        options: options.clone(),
        block_bytes: BLOCK,
        check: false,
        keep_writes: false,
        sound: Sound::default(),
    }
}

fn exploration(seed: u64, played: &Played) -> wp_crash::Options {
    wp_crash::Options {
        plan: Plan { complete: 6, pairs: 12, samples: 16, pages: Plan::PAGES, most: u64::MAX },
        seed,
        profile: Profile::POSIX,
        partition: played.partition,
        keep: 0,
        second_cuts: 0,
        prune: true,
        recovery_in_order: true,
    }
}

/// What these states of a frame recover to.
fn recovered(
    subject: &FsSubject,
    played: &Played,
    history: &History,
    (frame, states): (usize, &[Kept]),
) -> Vec<(usize, Kept, Rc<Outcome>)> {
    let mut out = Vec::new();
    let mut explorer = Explorer::new(subject, exploration(0, played));
    explorer.watch(|v| out.push((v.frame, v.kept.clone(), v.outcome.clone())));
    let mut case = Case::new(&played.tape, history, &played.ledger);
    explorer.visit(&mut case, frame, &mut states.iter().cloned(), &mut |_, _| true);
    drop(explorer);
    out
}

/// What the end of a run recovers to, if nothing is lost.
fn at_end(campaign: &Campaign, options: &Options, played: &Played) -> Rc<Outcome> {
    let history = Space::HONEST.history(played);
    let end = history.frames.len() - 1;
    let all = [Kept::all(history.frames[end].live.len())];
    let subject = subject(&campaign.bench, options);
    recovered(&subject, played, &history, (end, &all)).swap_remove(0).2
}

/// A call that the file system does not have, if there is one.
fn lacking(played: &Played) -> Option<String> {
    let did = played.dids.iter().find(|d| d.error == Some(wp_base::FsError::NotInKernel))?;
    Some(format!("`{}`: the file system does not have this call", did.call))
}

/// Can the guest run it? Its device does not fail.
fn runs_there(program: &Program) -> bool {
    !program.has_faults() && !program.has_threads()
}

/// Both trees of a program's own run without what only a run decides: inode numbers, which begin
/// elsewhere in what the real mkfs makes, and times that are the guest's clock, not the program's.
fn of_own_run(ours: &Outcome, mut theirs: Theirs) -> (Outcome, Theirs) {
    let mut ours = ours.clone();
    let Theirs::Files(files) = &mut theirs else { return (ours, theirs) };
    let mut by_clock = BTreeSet::new();
    for (path, found) in files {
        let Found::File(file) = found else { continue };
        file.ino = 0;
        if let Some(stat) = file.stat.as_mut().filter(|s| s.mtime.secs >= MOUNTED_FROM) {
            stat.mtime = TimeSpec::default();
            by_clock.insert(path.clone());
        }
    }
    for file in &mut ours.files {
        let mut plain = Survivor { ino: 0, ..Survivor::clone(file) };
        if let Some(stat) = plain.stat.as_mut().filter(|_| by_clock.contains(&file.path)) {
            stat.mtime = TimeSpec::default();
        }
        *file = Rc::new(plain);
    }
    (ours, theirs)
}
