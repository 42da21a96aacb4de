//! Mutants: each step that a crash is safe by is left out in turn, and power is cut until somebody
//! misses it.
//!
//! Picture:    [`sites`] -> for each, programs of each [`Setting`] that would do the step, played
//!             without it -> [`wp_crash::Explorer`] -> [`Fate`]. A rule counts if it is broken in a
//!             program that does not break it with the step in place.
//! Invariants: 1. what comes out does not depend on the number of workers;
//!             2. only the program is played with the step left out: mkfs, mount and recovery are
//!                whole;
//!             3. a survivor has an argument in `equivalent.toml`, and an argument a survivor.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;
use wp_base::site::{Site, watch};
use wp_crash::{Explorer, FsSubject, Plan, Profile, Rule, Violation};
use wp_vfs::Options;
use wp_workload::program::Program;

use super::play::{Asked, Bench, Played, play_with};
use super::wild::{self, Extras};
use super::{Space, sequences, wear};
use crate::registry;

/// Why survivors survive.
pub const EQUIVALENT_TOML: &str = include_str!("equivalent.toml");

/// Every site of every crate.
pub fn sites() -> Vec<&'static Site> {
    [wp_block::site::ALL, wp_cache::site::ALL, wp_jbd2::site::ALL, wp_ext4::site::ALL].concat()
}

/// Which programs a setting plays.
#[derive(Clone, Copy, Debug)]
enum Programs {
    /// Every sequence of one operation.
    Sequences,
    /// Some of the sequences of two.
    Pairs,
    /// Random ones of about so many calls.
    Wild(u32),
    /// [`wear::log`] of so many rounds.
    Log(u32),
    /// [`wear::space`] of so many rounds.
    Space(u32),
    /// [`wear::edges`] of so many rounds.
    Edges(u32),
    /// [`wear::bursts`] of so many rounds.
    Bursts(u32),
    /// [`wear::names`] of so many names.
    Names(u32),
}

/// A machine, programs, and what is asked of them.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name in reports.
    pub name: &'static str,
    /// Options of ext4.
    pub fs: &'static str,
    /// Device preset.
    pub device: &'static str,
    /// Bytes of the device.
    pub capacity: u64,
    /// Elevator; empty: the kernel's default.
    pub elevator: &'static str,
    programs: Programs,
    /// How many programs.
    pub count: u64,
    /// Bytes that the device writes whole.
    pub atomic: Option<u32>,
    /// Rules besides those of every journal.
    pub hold: Hold,
}

/// See [`Profile`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// [`Profile::EXT4`].
    Ext4,
    /// And lengths never run ahead of data.
    Size,
    /// And files are of one version.
    Version,
}

const MIB: u64 = 1 << 20;
/// Large writes in few units: which of a hundred blocks of data are lost matters little.
const COARSE: Option<u32> = Some(1 << 16);
const WILD: Setting = Setting {
    name: "6.18 wild",
    fs: "era=6.18",
    device: "fixed",
    capacity: 24 * MIB,
    elevator: "",
    programs: Programs::Wild(40),
    count: 16,
    atomic: COARSE,
    hold: Hold::Ext4,
};
const SHORT: Setting = Setting {
    name: "6.18 sequences",
    programs: Programs::Sequences,
    count: 116,
    atomic: None,
    ..WILD
};
const EMMC: Setting = Setting {
    name: "3.8 emmc cfq",
    fs: "era=3.8,dirty_background_bytes=262144",
    device: "emmc-16",
    elevator: "cfq",
    count: 12,
    ..WILD
};
const LOG: Setting = Setting {
    name: "6.18 journal log",
    fs: "era=6.18,data=journal,journal_mb=4",
    capacity: 32 * MIB,
    programs: Programs::Log(14),
    count: 10,
    ..WILD
};
const SMALL: Setting = Setting {
    name: "6.18 small",
    fs: "era=6.18,journal_mb=4",
    capacity: 16 * MIB,
    programs: Programs::Space(30),
    atomic: None,
    ..WILD
};

const EDGES: Setting =
    Setting { name: "6.18 edges", programs: Programs::Edges(30), atomic: None, count: 32, ..WILD };
const BURSTS: Setting = Setting {
    name: "4.6 nodelalloc bursts",
    fs: "era=4.6,nodelalloc,commit=1",
    programs: Programs::Bursts(300),
    count: 16,
    ..EMMC
};

/// All of them, the quickest first.
pub const SETTINGS: &[Setting] = &[
    SHORT,
    Setting { name: "6.18 pairs", programs: Programs::Pairs, count: 60, ..SHORT },
    SMALL,
    EDGES,
    WILD,
    Setting { name: "6.18 dioread_lock", fs: "era=6.18,dioread_lock", count: 8, ..WILD },
    Setting {
        name: "6.18 orphan_file",
        fs: "era=6.18,features=today+orphan_file",
        count: 6,
        ..WILD
    },
    Setting {
        name: "6.18 names",
        fs: "era=6.18,block_size=1024",
        programs: Programs::Names(90),
        count: 2,
        ..WILD
    },
    Setting { name: "4.6 no FUA", fs: "era=4.6", device: "fixed-nofua", count: 12, ..WILD },
    Setting {
        name: "4.6 nodelalloc",
        fs: "era=4.6,nodelalloc",
        device: "fixed-nofua",
        count: 8,
        ..WILD
    },
    Setting { name: "4.6 edges", fs: "era=4.6", device: "fixed-nofua", ..EDGES },
    Setting {
        name: "3.4 edges",
        fs: "era=3.4",
        device: "emmc-16",
        elevator: "cfq",
        hold: Hold::Size,
        ..EDGES
    },
    BURSTS,
    Setting { name: "6.18 emmc bursts", fs: "era=6.18,commit=1", elevator: "", count: 8, ..BURSTS },
    Setting {
        name: "4.6 dioread_nolock emmc cfq",
        fs: "era=4.6,dioread_nolock,dirty_background_bytes=262144",
        ..EMMC
    },
    EMMC,
    Setting {
        name: "3.4 emmc cfq",
        fs: "era=3.4,dirty_background_bytes=262144",
        hold: Hold::Size,
        ..EMMC
    },
    Setting {
        name: "6.18 journal",
        fs: "era=6.18,data=journal",
        hold: Hold::Version,
        count: 8,
        ..WILD
    },
    LOG,
    Setting {
        name: "4.6 journal log",
        fs: "era=4.6,data=journal,journal_mb=4",
        device: "fixed-nofua",
        count: 4,
        ..LOG
    },
    Setting {
        name: "6.18 journal small",
        fs: "era=6.18,data=journal,journal_mb=4",
        count: 10,
        ..SMALL
    },
];

impl Setting {
    /// Program number `n`.
    pub fn program(&self, n: u64) -> Program {
        match self.programs {
            Programs::Sequences => sequences::program(1, n),
            // A stride that has nothing in common with how they are numbered.
            Programs::Pairs => sequences::program(2, n * 7919 % sequences::count(2)),
            Programs::Wild(calls) => wild::generate(1 + n, calls, Extras::ALL),
            Programs::Log(rounds) => wear::log(1 + n, rounds),
            Programs::Space(rounds) => wear::space(1 + n, rounds),
            Programs::Edges(rounds) => wear::edges(1 + n, rounds),
            Programs::Bursts(rounds) => wear::bursts(1 + n, rounds),
            Programs::Names(count) => wear::names(1 + n, count),
        }
    }

    fn bench(&self) -> Result<Bench, String> {
        let fs = registry::FILE_SYSTEMS[0];
        let fs_options = Options::parse(self.fs, fs.options).map_err(|e| e.to_string())?;
        let era = fs_options.get("era", fs.options).unwrap_or("4.6");
        let version = wp_ext4::era::Version::parse(era).ok_or("not a kernel version")?;
        Ok(Bench {
            fs,
            fs_options,
            device: self.device.to_owned(),
            device_params: vec![("capacity_bytes".to_owned(), self.capacity)],
            elevator: self.elevator.to_owned(),
            kernel: (version.0, version.1),
            settle_s: 60,
            stale: true,
            model: false,
        })
    }

    fn profile(&self) -> Profile {
        match self.hold {
            Hold::Ext4 => Profile::EXT4,
            Hold::Size => Profile { size_with_data: true, ..Profile::EXT4 },
            Hold::Version => Profile { size_with_data: true, one_version: true, ..Profile::EXT4 },
        }
    }

    /// Visits the states of a program that was played until a rule that is not in `but` is broken.
    /// Answers that, all rules broken by then, and how many states were visited.
    fn explore(&self, bench: &Bench, played: &Played, but: &[u64]) -> Explored {
        let subject = FsSubject {
            entry: bench.fs,
            options: bench.fs_options.clone(),
            block_bytes: played.ledger.block_bytes() as u32,
            check: true,
        };
        let options = wp_crash::Options {
            plan: Plan { complete: 9, pairs: 12, samples: 12 },
            seed: 1,
            profile: self.profile(),
            partition: played.partition,
            keep: 1,
            second_cuts: 0,
        };
        let space = Space::Permitted {
            lying_flush: false,
            lost_fua: false,
            faulty_plp: false,
            atomic: self.atomic,
        };
        let history = space.history(played);
        let mut explorer = Explorer::new(&subject, options);
        let new = |broken: &[u64]| broken.iter().zip(but).any(|(n, known)| *n > 0 && *known == 0);
        explorer.explore(&played.tape, &history, &played.ledger, &mut |t| !new(&t.broken));
        let broken = explorer.totals.broken;
        let first = explorer.failures.iter().find(|f| but[f.violation.rule as usize] == 0);
        Explored { broken, states: explorer.totals.raw, first: first.map(|f| f.violation.clone()) }
    }
}

struct Explored {
    broken: [u64; Rule::ALL.len()],
    states: u64,
    first: Option<Violation>,
}

/// What became of a mutant.
#[derive(Clone, Debug)]
pub enum Fate {
    /// A rule is broken that is not without the mutation.
    Killed {
        /// Setting and program.
        by: (&'static str, u64),
        /// What is wrong.
        violation: Violation,
    },
    /// No rule is, but the mounted file system itself stopped, at an assertion or at damage that it
    /// saw.
    Stopped {
        /// Setting and program.
        by: (&'static str, u64),
        /// How.
        why: String,
    },
    /// Nobody misses the step.
    Survives,
    /// No program does the step.
    NotReached,
}

/// A step left out, and what came of that.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The step.
    pub site: &'static Site,
    /// What came of it.
    pub fate: Fate,
    /// Programs that would have done it and were played without it.
    pub programs: u64,
    /// States that were visited.
    pub states: u64,
}

impl Mutant {
    /// Is it noticed?
    pub fn is_killed(&self) -> bool {
        matches!(self.fate, Fate::Killed { .. } | Fate::Stopped { .. })
    }
}

/// An argument why a survivor is one.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argument {
    /// The site.
    pub site: String,
    /// What is said.
    pub class: Class,
    /// Why.
    pub why: String,
}

/// What an argument says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// No cut can tell: the mutant is the same program to a crash.
    Equivalent,
    /// It breaks something that no rule of ours forbids.
    NotJudged,
    /// A cut could tell, but our programs do not come to it.
    NotPlayed,
}

impl Class {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Equivalent => "equivalent",
            Class::NotJudged => "not judged",
            Class::NotPlayed => "not played",
        }
    }
}

/// The arguments of [`EQUIVALENT_TOML`] by site. Errors: one that cannot be read, of no site, or
/// given twice.
pub fn arguments() -> Result<BTreeMap<String, Argument>, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default)]
        survivor: Vec<Argument>,
    }
    let file: File = toml::from_str(EQUIVALENT_TOML).map_err(|e| e.to_string())?;
    let known = sites();
    let mut out = BTreeMap::new();
    for a in file.survivor {
        if !known.iter().any(|s| s.name == a.site) {
            return Err(format!("there is no site `{}`", a.site));
        }
        if let Some(twice) = out.insert(a.site.clone(), a) {
            return Err(format!("`{}` has two arguments", twice.site));
        }
    }
    Ok(out)
}

/// Everything that mutants are held against.
struct Ground {
    settings: Vec<(Setting, Bench)>,
    /// Sites that each program asks as it is; `None`: it cannot be played.
    asked: Vec<Vec<OnceLock<Option<Vec<&'static str>>>>>,
    /// Rules that each program breaks without any mutation. Few are needed.
    broken: Vec<Vec<OnceLock<Broken>>>,
}

type Broken = [u64; Rule::ALL.len()];

/// Programs of each setting in the first round; the others follow when no setting's first ones
/// showed anything.
const FIRST: u64 = 4;

impl Ground {
    fn new(settings: &[Setting]) -> Result<Ground, String> {
        let settings: Result<Vec<(Setting, Bench)>, String> = settings
            .iter()
            .map(|s| s.bench().map(|b| (*s, b)).map_err(|e| format!("{}: {e}", s.name)))
            .collect();
        let settings = settings?;
        fn slots<T>(settings: &[(Setting, Bench)]) -> Vec<Vec<OnceLock<T>>> {
            let of = |s: &Setting| (0..s.count).map(|_| OnceLock::new()).collect();
            settings.iter().map(|(s, _)| of(s)).collect()
        }
        Ok(Ground { asked: slots(&settings), broken: slots(&settings), settings })
    }

    /// Would program `n` of setting `s` do the step?
    fn asks(&self, s: usize, n: u64, site: &Site) -> bool {
        let (setting, bench) = &self.settings[s];
        let slot = self.asked[s][n as usize].get_or_init(|| {
            let played = play_with(bench, &setting.program(n), || Some(watch()));
            played.ok().map(|(_, asked)| asked.names)
        });
        slot.as_ref().is_some_and(|names| names.contains(&site.name))
    }

    /// Rules that program `n` of setting `s` breaks as it is.
    fn broken(&self, s: usize, n: u64) -> &Broken {
        let (setting, bench) = &self.settings[s];
        self.broken[s][n as usize].get_or_init(|| {
            match play_with(bench, &setting.program(n), || None) {
                Ok((played, _)) => setting.explore(bench, &played, &[1; Rule::ALL.len()]).broken,
                Err(_) => [1; Rule::ALL.len()],
            }
        })
    }

    fn mutant(&self, site: &'static Site, thorough: bool) -> Mutant {
        let mut out = Mutant { site, fate: Fate::NotReached, programs: 0, states: 0 };
        let rounds = if thorough { vec![(0, FIRST), (FIRST, u64::MAX)] } else { vec![(0, FIRST)] };
        for (from, to) in rounds {
            for s in 0..self.settings.len() {
                // The n-th program that does the step, not the n-th of all: some are rare.
                let count = self.settings[s].0.count;
                let programs = (0..count).filter(|n| self.asks(s, *n, site));
                for n in programs.skip(from as usize).take((to - from) as usize) {
                    self.try_one(s, n, &mut out);
                    if matches!(out.fate, Fate::Killed { .. }) {
                        return out;
                    }
                }
            }
        }
        out
    }

    /// Plays program `n` of setting `s` without the step, and looks who notices.
    fn try_one(&self, s: usize, n: u64, out: &mut Mutant) {
        let (setting, bench) = &self.settings[s];
        let (program, site) = (setting.program(n), out.site);
        let played: Result<(Played, Asked), String> = catch_unwind(AssertUnwindSafe(|| {
            play_with(bench, &program, || Some(site.leave_out())).map_err(|e| e.to_string())
        }))
        .unwrap_or_else(|panic| Err(said(&*panic)));
        let (played, asked) = match played {
            Ok(p) => p,
            Err(why) => {
                out.programs += 1;
                if !out.is_killed() {
                    out.fate = Fate::Stopped { by: (setting.name, n), why };
                }
                return;
            }
        };
        if asked.reached == 0 {
            return;
        }
        out.programs += 1;
        let mut explored = setting.explore(bench, &played, &[0; Rule::ALL.len()]);
        out.states += explored.states;
        if explored.first.is_some() {
            let known = self.broken(s, n);
            if known.iter().any(|n| *n > 0) {
                explored = setting.explore(bench, &played, known);
            }
        }
        if let Some(violation) = explored.first {
            out.fate = Fate::Killed { by: (setting.name, n), violation };
        } else if matches!(out.fate, Fate::NotReached) {
            out.fate = Fate::Survives;
        }
    }
}

/// What an assertion said.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("assertion: {}", text.unwrap_or("without a word"))
}

/// Leaves out each of `sites` in turn, with `workers` threads; those that have an argument why they
/// survive with the first programs of each setting only. `done` is told of each mutant as it
/// is through, in no order.
///
/// Errors: a setting that cannot be, and those of [`arguments`].
pub fn run(
    sites: &[&'static Site],
    settings: &[Setting],
    workers: usize,
    done: &(dyn Fn(&Mutant) + Sync),
) -> Result<Vec<Mutant>, String> {
    let known = arguments()?;
    let ground = Ground::new(settings)?;
    let slots: Vec<OnceLock<Mutant>> = sites.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..workers.max(1) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::SeqCst);
                    let (Some(site), Some(slot)) = (sites.get(n), slots.get(n)) else { return };
                    done(slot.get_or_init(|| ground.mutant(site, !known.contains_key(site.name))));
                }
            });
        }
    });
    Ok(slots.into_iter().filter_map(OnceLock::into_inner).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_site_has_a_name_of_its_own_and_is_asked_in_its_file() {
        let all = sites();
        let mut names: Vec<&str> = all.iter().map(|s| s.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        assert!(all.len() >= 60, "{} sites", all.len());
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for krate in ["block", "cache", "jbd2", "ext4"] {
            let table = root.join("crates").join(krate).join("src/site.rs");
            let table = std::fs::read_to_string(table).expect("the table is there");
            // `        ID, Kind, "name"…`
            let ids = table.lines().filter_map(|l| {
                let id = l.strip_prefix("        ")?.split_once(", ")?.0;
                id.chars().all(|c| c.is_ascii_uppercase() || c == '_').then_some(id)
            });
            for (id, site) in
                ids.zip(all.iter().filter(|s| s.file.starts_with(&format!("crates/{krate}/"))))
            {
                let text = std::fs::read_to_string(root.join(site.file)).expect("its file");
                assert!(table.contains(&format!("{id}, ")) && table.contains(site.name));
                let uses = [format!("site::{id}.on()"), format!("&site::{id}")];
                assert!(
                    uses.iter().any(|u| text.contains(u)),
                    "{id} is not asked in {}",
                    site.file
                );
            }
        }
    }

    #[test]
    fn arguments_are_of_sites() {
        arguments().expect("they are");
    }
}
