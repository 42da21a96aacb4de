//! Crash states whose journal holds fast commits, recovered by everybody who replays them:
//! Writepath, `e2fsck -fy`, and a guest's kernel.
//!
//! Picture:    programs here -> crash states ([`ours`])
//!             programs in a guest -> log of its drive -> crash states ([`theirs`])
//!             state -> our recovery | e2fsck | the guest's mount -> [`Tree`] of each
//! Invariants: 1. only states count whose area holds records of a fast commit that a mount would
//!                read ([`Area`]); which are taken depends on the seed only;
//!             2. trees hold names, modes, owners, links, lengths, times and contents.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use wp_base::plain::Shown as _;
use wp_base::{FsResult, Rng, SECTOR_BYTES, Sector};
use wp_campaign::{Bench, Cut, Extras, LogFile, LoggedRun, Source, Space, play, sample_log};
use wp_crash::{Explorer, FsSubject, Plan, Profile};
use wp_ext4::image::{Image, log_map, recover_at_mount, replay_journal};
use wp_jbd2::RecoverPolicy;
use wp_machine::files::{load, save};
use wp_machine::profile::PROFILES;
use wp_machine::spec::recoverable;
use wp_medium::log_order::{BEGIN, END};
use wp_medium::write_log::write_log;
use wp_medium::{Medium, MediumView, Overlay, Slice, Sound};

use crate::kernel_lab::{
    Kernel, Mounted, ProgramPlan, StatesPlan, Tree, mount_states, run_program, tree_of,
};
use crate::vtime::guest::{PROG_C, compile};
use crate::vtime::random::{self, generate};

/// Bytes of the device.
pub const BYTES: u64 = 64 << 20;
const BLOCK: u32 = 4096;
/// The guest's kernel.
const ERA: &str = "6.12.117";
/// Distinct recoveries of a program among which states are drawn.
const ENOUGH: u64 = 300;
/// Calls of a program, about.
const CALLS: u32 = 14;
/// Wall-clock seconds that a guest may take.
const LIMIT: Duration = Duration::from_secs(600);

/// What the area for fast commits holds behind the last whole transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Area {
    /// Nothing that a mount reads.
    Nothing,
    /// This number of whole fast commits.
    Whole(u32),
    /// Records with which a mount fails; why.
    Refused(String),
}

/// A crash state with fast commits.
#[derive(Clone, Debug)]
pub struct State {
    /// The device.
    pub medium: Medium,
    /// What its area holds.
    pub area: Area,
    /// How `writepath crash show` shows it, or which run of the guest it is of.
    pub name: String,
}

/// Where e2fsck 1.47.0 replays fast commits otherwise than Linux does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Known {
    /// With `metadata_csum` it does not come back to its own super block after the replay, and ends
    /// with 12: nothing is compared.
    Checksum,
    /// A directory whose record of creation is replayed has no block, and is cleared (N38's twin).
    Directory,
    /// A removed range that reaches to the last block that a file can have, as a cut has one,
    /// leaves an extent there: the length "should be 17592186044416".
    LastBlock,
    /// It replays on what it had read of the metadata before it replayed the transactions in the
    /// same log: with their blocks in place ([`checkpointed`]) it comes to Linux' tree.
    Stale,
}

/// What e2fsck has made of a state.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Exit codes of `-fy`, and of `-fn` afterwards.
    pub codes: (i32, i32),
    /// What the first has printed, errors too.
    pub said: String,
    /// The files that are there now; why there are none.
    pub tree: Result<Tree, String>,
}

/// What the area of a device holds.
pub fn area(medium: &Medium) -> Area {
    let view = MediumView { medium: medium.clone(), start: Sector(0), bytes: BYTES };
    let overlay = Overlay::new(&view);
    let found = recover_at_mount(&overlay, &RecoverPolicy::linux(6, 12), 0);
    match (found.recovery.fast_commits.commits, found.mounted) {
        (_, Err((_, e))) if e.to_string().contains("fast-commit") => Area::Refused(e.to_string()),
        (0, _) | (_, Err(_)) => Area::Nothing,
        (commits, Ok(())) => Area::Whole(commits),
    }
}

/// The same state a little later: the blocks of the transactions in its log are in place, and the
/// log does not say so yet. A kernel that was about to move the tail of its log leaves that.
///
/// Errors: those of a mount.
pub fn checkpointed(medium: &Medium) -> FsResult<Medium> {
    let (policy, start) = (RecoverPolicy::linux(6, 12), Sector(0));
    let view = |medium: &Medium| MediumView { medium: medium.clone(), start, bytes: BYTES };
    let below = view(medium);
    let overlay = Overlay::new(&below);
    let report = recover_at_mount(&overlay, &policy, 0).recovery.journal;
    let log = log_map(&Image::open(&below)?)?;
    let sector = |block: u64| Sector(block * u64::from(BLOCK) / SECTOR_BYTES);
    // The transactions alone.
    let mut bare = medium.clone();
    let (first, blocks) = report.and_then(|r| r.fast_commit).unwrap_or_default();
    for block in (first..first + blocks).filter_map(|n| log.block(n)) {
        bare.write(sector(block), &Slice::zero(BLOCK));
    }
    let below = view(&bare);
    let overlay = Overlay::new(&below);
    replay_journal(&overlay, &policy, 0)?;
    let mut out = medium.clone();
    let says_so = [sector(0), log.block(0).map_or(sector(0), sector)];
    for (at, data) in overlay.writes().into_iter().filter(|(at, _)| !says_so.contains(at)) {
        out.write(at, &data);
    }
    Ok(out)
}

/// What e2fsck makes of a state beside our recovery of it: `None`, the same; or by which of its
/// known differences it does not come to the same.
///
/// Errors: another difference, in words; as of [`by_e2fsck`].
pub fn against_e2fsck(state: &State, image: &Path) -> Result<Option<Known>, String> {
    let ours = recovered(&state.medium)?;
    let differs = |checked: &Checked| match &checked.tree {
        Ok(tree) => difference(&ours, tree),
        Err(why) => Some(why.clone()),
    };
    let checked = by_e2fsck(state, image)?;
    let Some(what) = differs(&checked) else { return Ok(None) };
    if checked.codes.0 == 12 && checked.said.contains("Superblock checksum does not match") {
        return Ok(Some(Known::Checksum));
    }
    let later =
        State { medium: checkpointed(&state.medium).map_err(|e| e.to_string())?, ..state.clone() };
    if recovered(&later.medium).as_ref() != Ok(&ours) {
        return Err(format!("{}: another tree with its transactions in place", state.name));
    }
    let checked = by_e2fsck(&later, image)?;
    match differs(&checked) {
        None => Ok(Some(Known::Stale)),
        Some(_) if checked.said.contains("is a zero-length directory") => {
            Ok(Some(Known::Directory))
        }
        Some(_) if checked.said.contains("should be 17592186044416") => Ok(Some(Known::LastBlock)),
        Some(_) => Err(format!("{}: {what}: {}", state.name, checked.said)),
    }
}

/// What our recovery makes of a state by the rules of the guest's kernel. Errors: the mount's.
pub fn recovered(medium: &Medium) -> Result<Tree, String> {
    let (entry, options) = recoverable(&format!("ext4,era={ERA}"))?;
    tree_of((entry, &options), medium, BYTES)
}

/// At most `each` states of every one of `programs` random programs on `ext4,fast_commit` with
/// further options.
///
/// Errors: options that cannot be; a program that cannot run.
pub fn ours(
    options: &str,
    (seed, programs): (u64, u64),
    each: usize,
) -> Result<Vec<State>, String> {
    let text = |e: wp_machine::MachineError| e.to_string();
    let fs = format!("ext4,era={ERA},fast_commit{options}");
    let (entry, fs_options) = recoverable(&fs)?;
    let fresh = Bench::of(entry, fs_options).map_err(text)?;
    let device_params = vec![("capacity_bytes".to_owned(), BYTES)];
    let bench = Bench { device_params, stale: false, ..fresh };
    let source = Source::Wild { seed, calls: CALLS, extras: Extras::ALL.on(entry) };
    let mut states = Vec::new();
    for n in 0..programs {
        let played = play(&bench, &source.program(n)).map_err(text)?;
        let history = Space::HONEST.history(&played);
        let subject = FsSubject {
            entry,
            options: bench.fs_options.clone(),
            block_bytes: BLOCK,
            check: false,
            keep_writes: false,
            sound: Sound::default(),
        };
        let mut all = Vec::new();
        let mut explorer = Explorer::new(&subject, exploration(seed, played.partition));
        explorer.expect(std::iter::once(&history));
        explorer.watch(|v| {
            if v.is_new {
                all.push((v.frame, v.kept.clone()));
            }
        });
        let enough = &mut |t: &wp_crash::Totals| t.distinct < ENOUGH;
        explorer.explore(&played.tape, &history, &played.ledger, enough);
        drop(explorer);
        let state = |(frame, kept): (usize, wp_crash::Kept)| {
            let live = history.frames[frame].live.len();
            let lost: Vec<usize> = (0..live).filter(|i| !kept.has(*i)).collect();
            let fs = (entry, &bench.fs_options);
            let medium =
                Cut { fs, played: &played, history: &history, frame, lost: &lost }.medium();
            let area = area(&medium);
            let units: Vec<String> = lost.iter().map(usize::to_string).collect();
            let colon = if lost.is_empty() { "" } else { ":" };
            let name = format!(
                "wild --seed {seed} --calls {CALLS} --first {n} {frame}{colon}{} --fs {fs} \
                 --size 64M --trimmed",
                units.join(","),
                fs = format_args!("ext4,era={ERA},fast_commit{options}"),
            );
            State { medium, area, name }
        };
        let mut rng = Rng::stream(seed ^ n << 20, "states with fast commits");
        states.extend(drawn(all, each, &mut rng, state));
    }
    Ok(states)
}

/// Some of the states, in the order of a draw, that have something in their area.
fn drawn<T>(mut all: Vec<T>, each: usize, rng: &mut Rng, state: impl Fn(T) -> State) -> Vec<State> {
    let mut out = Vec::new();
    while out.len() < each && !all.is_empty() {
        let at = rng.below(all.len() as u64) as usize;
        let one = state(all.swap_remove(at));
        if one.area != Area::Nothing {
            out.push(one);
        }
    }
    out
}

fn exploration(seed: u64, partition: (u64, u64)) -> wp_crash::Options {
    wp_crash::Options {
        plan: plan(),
        seed,
        profile: Profile::POSIX,
        partition,
        keep: 0,
        second_cuts: 0,
        prune: true,
        recovery_in_order: true,
    }
}

fn plan() -> Plan {
    Plan { complete: 6, pairs: 12, samples: 16, pages: Plan::PAGES, most: u64::MAX }
}

/// At most `each` states of what a guest's kernel has sent its drive in every one of `programs`
/// runs, each a random program on an ext4 with fast commits and these arguments of mkfs.
///
/// Errors: a guest that does not start or end; no C compiler; the host's.
pub fn theirs(
    kernel: &Kernel,
    scratch: &Path,
    mkfs: &str,
    (seed, programs): (u64, u64),
    each: usize,
) -> Result<Vec<State>, String> {
    let at = |e: std::io::Error| format!("{}: {e}", scratch.shown());
    let tools = scratch.join("tools");
    std::fs::create_dir_all(&tools).map_err(at)?;
    // The runner counts requests of a device that this guest does not have.
    compile(&PROG_C.replace("/sys/block/z0/stat", "/dev/zero"), &tools.join("prog"))?;
    let extras = random::Extras {
        direct: true,
        fallocate: true,
        aio: false,
        reads: false,
        calls: false,
        offers: wp_ext4::ENTRY.offers,
    };
    let mut states = Vec::new();
    for n in seed..seed + programs {
        let program = generate(n, random::CALLS, extras);
        std::fs::write(tools.join("program"), program.to_string()).map_err(at)?;
        let ran = run_program(kernel, &of_guest(&tools, mkfs), scratch, None, &mut || false);
        let ran = ran.map_err(|e| format!("program {n}: {e:?}"))?;
        if ran.code != 0 {
            return Err(format!("program {n}: {}", ran.output));
        }
        let path = tools.join("log");
        let mut log = Vec::new();
        write_log(&mut log, ran.sector_bytes, &ran.writes).map_err(|e| e.to_string())?;
        std::fs::write(&path, log).map_err(at)?;
        let file = LogFile {
            path,
            base: None,
            bytes: Some(ran.bytes),
            from: Some(BEGIN.to_owned()),
            to: Some(END.to_owned()),
            acks: false,
            name: None,
        };
        let (entry, options) = recoverable(&format!("ext4,era={ERA}"))?;
        let run = LoggedRun::open(file, entry, &options).map_err(|e| format!("{e:?}"))?;
        let chosen = (20 * each, &[][..]);
        let sample = sample_log(&run, (Space::HONEST, &self::plan(), n), chosen, &|| true);
        let sample = sample.map_err(|e| e.to_string())?;
        let state = |s: wp_campaign::LogState| State {
            area: area(&s.medium),
            name: format!("run {n} of the guest, {}:{:?}", s.frame, s.lost),
            medium: s.medium,
        };
        let mut rng = Rng::stream(n, "states of a guest with fast commits");
        states.extend(drawn(sample.states, each, &mut rng, state));
    }
    Ok(states)
}

/// The run of `program` by `prog`, both in this folder, on a new file system.
fn of_guest(tools: &Path, mkfs: &str) -> ProgramPlan {
    let place = tools.shown().to_string();
    ProgramPlan {
        fs: "ext4".to_owned(),
        mount: String::new(),
        mkfs: format!("-O fast_commit{mkfs}"),
        device: device(),
        setup: None,
        run: format!("{place}/prog {place}/program . exact"),
        folders: vec![tools.to_owned()],
        rest_s: 0,
        cpu: &PROFILES[0],
        limit: LIMIT,
    }
}

fn device() -> (String, Vec<(String, u64)>) {
    ("ssd-128".to_owned(), vec![("capacity_bytes".to_owned(), BYTES)])
}

/// What e2fsck makes of a state, as the file `image`. Errors: it is not here; the host's.
pub fn by_e2fsck(state: &State, image: &Path) -> Result<Checked, String> {
    let at = |e: std::io::Error| format!("{}: {e}", image.shown());
    save(&state.medium, Sector(0), BYTES, image).map_err(at)?;
    let run = |how: &str| {
        let out = Command::new("e2fsck").arg(how).arg(image).stdin(Stdio::null()).output();
        let out = out.map_err(|e| format!("e2fsck: {e}"))?;
        let said = [out.stdout, out.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        Ok::<_, String>((out.status.code().unwrap_or(-1), said))
    };
    let ((first, said), (again, _)) = (run("-fy")?, run("-fn")?);
    let (medium, _) = load(image).map_err(at)?;
    Ok(Checked { codes: (first, again), said, tree: recovered(&medium) })
}

/// What a guest's kernel makes of states, one after the other in one boot.
///
/// Errors: as of [`mount_states`].
pub fn by_kernel(
    kernel: &Kernel,
    scratch: &Path,
    states: &[State],
) -> Result<Vec<Mounted>, String> {
    let plan = StatesPlan {
        fs: "ext4".to_owned(),
        mount: String::new(),
        device: device(),
        check: None,
        folders: Vec::new(),
        limit: LIMIT,
    };
    let all: Vec<_> = states.iter().map(|s| (s.medium.clone(), Vec::new(), Vec::new())).collect();
    mount_states(kernel, &plan, scratch, &all, &mut |_| false)
}

/// The first path at which two trees differ, with what each has there.
pub fn difference(a: &Tree, b: &Tree) -> Option<String> {
    let path = a.keys().chain(b.keys()).find(|p| a.get(*p) != b.get(*p))?;
    let said = |tree: &Tree| tree.get(path).map_or("no file".to_owned(), |w| w.replace('\t', " "));
    Some(format!("{path}: {}, {}", said(a), said(b)))
}
