//! Machines and programs that mutants are played on.

use serde::Deserialize;
use wp_base::site::Site;
use wp_crash::{Explorer, FsSubject, Plan, Profile, Rule, Violation};
use wp_ext4::site::{RECOVER_FLUSH, RECOVER_HOME_FIRST};
use wp_f2fs::site::RECOVER_LAST;
use wp_machine::registry;
use wp_medium::{Medium, Sound};
use wp_workload::program::Program;

use super::super::bugs::{ZONES, mends};
use super::super::play::{Around, Bench, Played};
use super::super::programs::{far, logged, moved, ordered};
use super::super::sequences::Of;
use super::super::wild::{self, Extras};
use super::super::{Space, sequences, stress};
use super::of_techniques::{RFLUSH, UNTORN};

/// Which programs a setting plays.
#[derive(Clone, Copy, Debug)]
pub(super) enum Programs {
    /// Every sequence of one operation.
    Sequences,
    /// Some of the sequences of two.
    Pairs,
    /// Random ones of about this number of calls.
    Wild(u32),
    /// The same with every call that programs have.
    WildCalls(u32),
    /// [`stress::log`] of this number of rounds.
    Log(u32),
    /// [`stress::space`] of this number of rounds.
    Space(u32),
    /// [`stress::edges`] of this number of rounds.
    Edges(u32),
    /// [`stress::bursts`] of this number of rounds.
    Bursts(u32),
    /// [`stress::names`] of this number of names.
    Names(u32),
    /// [`stress::image`] of this number of rounds.
    Image(u32),
    /// [`stress::mail`] of this number of messages.
    Mail(u32),
    /// [`far::behind_the_inode`].
    Far,
    /// [`moved::directories`].
    Moved,
    /// [`logged::names`].
    Logged,
    /// Random ones of about this number of calls, with barriers.
    Barriers(u32),
    /// [`ordered::logs`].
    Ordered,
    /// [`ordered::bursts`].
    OrderedBursts,
}

/// A machine, programs, and what is asked of them.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// Its name in reports.
    pub name: &'a str,
    /// File system: its own steps are looked for on it, those below all file systems on ext4.
    pub on: &'a str,
    /// Its options.
    pub fs: &'a str,
    /// Device preset.
    pub device: &'a str,
    /// Bytes of the device.
    pub capacity: u64,
    /// Replaced parameters of a device, instead of the capacity.
    pub params: &'a [(&'a str, u64)],
    /// Devices behind the first one.
    pub more: &'a [(&'a str, &'a [(&'a str, u64)])],
    /// Elevator; empty: the kernel's default.
    pub elevator: &'a str,
    pub(super) programs: Programs,
    /// How many programs.
    pub count: u64,
    /// Bytes that the device writes whole.
    pub atomic: Option<u32>,
    /// How much of each cut is visited.
    pub plan: Plan,
    /// Rules besides those of every journal.
    pub hold: Hold,
    /// Mean microseconds between calls of another process that syncs; 0: there is none.
    pub neighbour_us: u64,
    /// Cuts during mount, the first writes and unmount as well.
    pub whole_life: bool,
    /// What the drive says and choices of writes of a recovery that are cut: for recovery's own
    /// steps only, whose mutants are left out when it is at work.
    pub recovery: Option<Recovery>,
    /// What the device held before mkfs is still in the inode tables that mkfs left as they were.
    pub stale_tables: bool,
}

/// How recovery is put to the test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    /// On an honest drive.
    Honest,
    /// The drive does neither FLUSH nor FUA: checksums are all that is left.
    Lying,
    /// The power fails during each recovery, with this number of choices of its writes.
    Cut(u32),
}

/// See [`Profile`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// [`Profile::EXT4`]; of another file system what it promises.
    Ext4,
    /// And lengths never run ahead of data.
    Size,
    /// And files are of one version.
    Version,
}

const MIB: u64 = 1 << 20;
/// Large writes in few units: which of a hundred blocks of data are lost matters little.
const COARSE: Option<u32> = Some(1 << 16);
/// No block is torn.
const BLOCKS: Option<u32> = Some(4096);
/// For programs of many cuts.
const LONG: Plan = Plan { complete: 5, pairs: 6, samples: 4, pages: Plan::PAGES, most: u64::MAX };
pub(super) const WILD: Setting<'static> = Setting {
    name: "6.18 wild",
    on: "ext4",
    fs: "era=6.18",
    device: "fixed",
    capacity: 24 * MIB,
    params: &[],
    more: &[],
    elevator: "",
    programs: Programs::Wild(40),
    count: 16,
    atomic: COARSE,
    plan: Plan { complete: 8, pairs: 10, samples: 8, pages: Plan::PAGES, most: u64::MAX },
    hold: Hold::Ext4,
    neighbour_us: 0,
    whole_life: false,
    recovery: None,
    stale_tables: false,
};
const SHORT: Setting<'static> = Setting {
    name: "6.18 sequences",
    programs: Programs::Sequences,
    count: 116,
    atomic: None,
    ..WILD
};
const CALLS: Setting<'static> = Setting {
    name: "6.18 all calls",
    programs: Programs::WildCalls(40),
    count: 32,
    atomic: None,
    ..WILD
};
const EMMC: Setting<'static> = Setting {
    name: "3.8 emmc cfq",
    fs: "era=3.8,dirty_background_bytes=262144",
    device: "emmc-16",
    elevator: "cfq",
    count: 12,
    ..WILD
};
const LOG: Setting<'static> = Setting {
    name: "6.18 journal log",
    fs: "era=6.18,data=journal,journal_mb=4",
    capacity: 32 * MIB,
    programs: Programs::Log(14),
    count: 10,
    ..WILD
};
const SMALL: Setting<'static> = Setting {
    name: "6.18 small",
    fs: "era=6.18,journal_mb=4",
    capacity: 16 * MIB,
    programs: Programs::Space(30),
    atomic: None,
    ..WILD
};
const MAIL: Setting<'static> = Setting {
    name: "6.18 mail",
    fs: "era=6.18,block_size=1024,journal_mb=1",
    programs: Programs::Mail(220),
    atomic: BLOCKS,
    count: 4,
    plan: LONG,
    ..WILD
};
const IMAGE: Setting<'static> = Setting {
    name: "6.18 journal images",
    fs: "era=6.18,data=journal,journal_mb=4",
    capacity: 32 * MIB,
    programs: Programs::Image(40),
    count: 8,
    plan: LONG,
    ..WILD
};
const EDGES: Setting<'static> =
    Setting { name: "6.18 edges", programs: Programs::Edges(30), atomic: None, count: 32, ..WILD };
const BURSTS: Setting<'static> = Setting {
    name: "4.6 nodelalloc bursts",
    fs: "era=4.6,nodelalloc,commit=1",
    programs: Programs::Bursts(300),
    count: 16,
    plan: LONG,
    ..EMMC
};

/// BarrierFS' journaling on a device that keeps order.
const DUAL: Setting<'static> = Setting {
    name: "4.6 barrier ordered",
    fs: "era=4.6,journaling=barrier",
    params: ORDERED_24,
    elevator: "cfq",
    programs: Programs::Ordered,
    count: 16,
    atomic: None,
    ..WILD
};
const ORDERED_24: &[(&str, u64)] = &[("capacity_bytes", 24 * MIB), ("barrier_writes", 1)];
/// The elevator has what it can hold back.
const ONE_BY_ONE: &[(&str, u64)] =
    &[("capacity_bytes", 24 * MIB), ("barrier_writes", 1), ("queue_depth", 1)];
/// CJFS' part of it.
const DUAL_VERSIONS: &str = "era=4.6,journaling=barrier,jh_versions=3,coalesce,compound_flush=3";

/// F2FS without any known bug: a flush between data and nodes, and every fix.
pub(super) const FIXED: Setting<'static> = Setting {
    name: "f2fs fixed",
    on: "f2fs",
    fs: concat!("mode=lfs,fsync_mode=strict_fixed,", mends!()),
    capacity: 64 * MIB,
    programs: Programs::Sequences,
    count: 112,
    ..WILD
};
/// On zones as bugs have them.
const ZONED: Setting<'static> = Setting {
    name: "f2fs zones",
    fs: concat!("fsync_mode=strict_fixed,", mends!()),
    device: ZONES.0,
    params: ZONES.1,
    elevator: "mq-deadline",
    ..FIXED
};

/// NILFS2 with its bug fixed.
const LOGS: Setting<'static> = Setting {
    name: "nilfs2 sequences",
    on: "nilfs2",
    fs: "sync_inodes,flush_segments,blocks_per_segment=64",
    programs: Programs::Sequences,
    count: 116,
    ..WILD
};
/// Its cleaner is always at work, on a device that is soon full.
const CLEANED: Setting<'static> = Setting {
    name: "nilfs2 cleaned",
    fs: concat!(
        "sync_inodes,flush_segments,blocks_per_segment=16,cleaner=wait,protection_period=0,",
        "min_clean_segments=0,clean_check_interval=1,cleaning_interval=1,nsegments_per_clean=8,",
        "min_reclaimable_blocks=1"
    ),
    capacity: 6 * MIB,
    programs: Programs::Mail(220),
    atomic: BLOCKS,
    count: 4,
    plan: LONG,
    ..LOGS
};

/// btrfs with what Linux 6.12 lacks, and short programs of names.
const LOGGED: Setting<'static> = Setting {
    name: "btrfs names",
    on: "btrfs",
    fs: "fix=nameless+renamed,overgrown=replace",
    capacity: 128 * MIB,
    programs: Programs::Logged,
    count: 400,
    atomic: None,
    ..WILD
};
const BTRFS: Setting<'static> =
    Setting { name: "btrfs wild", programs: Programs::Wild(40), count: 24, plan: LONG, ..LOGGED };

/// The device behind a conventional one; all of its zones are sequential.
const TWO_ZONED: &[(&str, u64)] = &[
    ("zone_bytes", 16 << 20),
    ("blocks_per_plane", 24),
    ("conventional_zones", 0),
    ("pages_per_block", 12),
];

/// All of them, the quickest first.
pub const SETTINGS: &[Setting<'static>] = &[
    SHORT,
    Setting { name: "6.18 pairs", programs: Programs::Pairs, count: 60, ..SHORT },
    SMALL,
    EDGES,
    WILD,
    CALLS,
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
    Setting { name: "6.18 concurrent-sync", neighbour_us: 900, count: 24, ..WILD },
    Setting { name: "6.18 edges concurrent-sync", neighbour_us: 700, ..EDGES },
    Setting {
        name: "4.6 concurrent-sync",
        fs: "era=4.6",
        device: "fixed-nofua",
        neighbour_us: 900,
        ..WILD
    },
    Setting {
        name: "4.6 nodelalloc edges concurrent-sync",
        fs: "era=4.6,nodelalloc",
        neighbour_us: 700,
        ..EDGES
    },
    Setting {
        name: "3.8 bursts concurrent-sync",
        fs: "era=3.8",
        neighbour_us: 9_000,
        programs: Programs::Bursts(120),
        ..BURSTS
    },
    Setting {
        name: "4.6 nodelalloc bursts concurrent-sync",
        neighbour_us: 9_000,
        programs: Programs::Bursts(120),
        count: 12,
        ..BURSTS
    },
    Setting {
        name: "4.6 journal bursts concurrent-sync",
        fs: "era=4.6,data=journal",
        neighbour_us: 9_000,
        programs: Programs::Bursts(120),
        count: 8,
        ..BURSTS
    },
    Setting { name: "6.18 small concurrent-sync", neighbour_us: 2_000, ..SMALL },
    Setting { name: "6.18 life", whole_life: true, count: 8, ..WILD },
    Setting {
        name: "4.6 life",
        fs: "era=4.6",
        device: "fixed-nofua",
        whole_life: true,
        count: 8,
        ..WILD
    },
    Setting {
        name: "4.6 journal concurrent-sync",
        fs: "era=4.6,data=journal",
        hold: Hold::Version,
        neighbour_us: 900,
        ..WILD
    },
    MAIL,
    Setting {
        name: "4.6 mail emmc cfq",
        fs: "era=4.6,block_size=1024,journal_mb=1",
        device: "emmc-16",
        elevator: "cfq",
        count: 4,
        ..MAIL
    },
    Setting { name: "6.18 mail ssd", device: "ssd-128", count: 4, ..MAIL },
    IMAGE,
    Setting {
        name: "4.6 journal log concurrent-sync",
        fs: "era=4.6,data=journal,journal_mb=4",
        device: "fixed-nofua",
        neighbour_us: 40_000,
        count: 8,
        ..LOG
    },
    Setting { name: "6.18 recovery", recovery: Some(Recovery::Honest), count: 16, ..WILD },
    Setting {
        name: "4.6 recovery of bursts",
        recovery: Some(Recovery::Honest),
        count: 6,
        ..BURSTS
    },
    Setting { name: "6.18 recovery of images", recovery: Some(Recovery::Honest), ..IMAGE },
    Setting { name: "6.18 lying", recovery: Some(Recovery::Lying), count: 8, ..WILD },
    Setting { name: "6.18 recovery cut", recovery: Some(Recovery::Cut(24)), count: 8, ..WILD },
    Setting {
        name: "6.18 journal small",
        fs: "era=6.18,data=journal,journal_mb=4",
        count: 10,
        ..SMALL
    },
    DUAL,
    Setting { name: "4.6 barrier wild", programs: Programs::Barriers(40), atomic: COARSE, ..DUAL },
    Setting {
        name: "4.6 barrier concurrent-sync",
        params: ONE_BY_ONE,
        programs: Programs::OrderedBursts,
        neighbour_us: 60,
        plan: LONG,
        ..DUAL
    },
    Setting {
        name: "4.6 versions concurrent-sync",
        fs: DUAL_VERSIONS,
        programs: Programs::OrderedBursts,
        neighbour_us: 25,
        plan: LONG,
        ..DUAL
    },
    FIXED,
    Setting { name: "f2fs posix", fs: "mode=lfs,wait_first_node,fsync_mode=posix", ..FIXED },
    RFLUSH,
    UNTORN,
    ZONED,
    Setting { name: "f2fs oprw", fs: "wait_first_node,fsync_mode=posix,oprw", ..ZONED },
    Setting { name: "f2fs wild", programs: Programs::Wild(40), count: 16, ..FIXED },
    Setting {
        name: "f2fs adaptive",
        fs: concat!("fsync_mode=strict_fixed,", mends!()),
        programs: Programs::Wild(40),
        count: 12,
        ..FIXED
    },
    Setting { name: "f2fs far", programs: Programs::Far, count: 12, ..FIXED },
    Setting { name: "f2fs moved", programs: Programs::Moved, count: 12, ..FIXED },
    Setting {
        name: "f2fs two devices",
        fs: ZONED.fs,
        params: &[("capacity_bytes", 64 * MIB), ("cache_bytes", MIB)],
        more: &[(ZONES.0, TWO_ZONED)],
        count: 4,
        ..FIXED
    },
    Setting { name: "f2fs zones wild", programs: Programs::Wild(40), count: 8, ..ZONED },
    Setting {
        name: "f2fs concurrent-sync",
        programs: Programs::Wild(40),
        neighbour_us: 900,
        count: 12,
        ..FIXED
    },
    Setting {
        name: "f2fs life",
        programs: Programs::Wild(40),
        whole_life: true,
        count: 8,
        ..FIXED
    },
    Setting {
        name: "f2fs recovery cut",
        fs: concat!("mode=lfs,fsync_mode=strict_fixed,recover_aside,", mends!()),
        programs: Programs::Wild(40),
        recovery: Some(Recovery::Cut(24)),
        count: 8,
        ..FIXED
    },
    LOGS,
    Setting { name: "nilfs2 wild", programs: Programs::Wild(40), count: 16, ..LOGS },
    Setting {
        name: "nilfs2 concurrent-sync",
        programs: Programs::Wild(40),
        neighbour_us: 900,
        count: 16,
        ..LOGS
    },
    CLEANED,
    Setting {
        name: "nilfs2 recovery",
        programs: Programs::Wild(40),
        recovery: Some(Recovery::Honest),
        count: 16,
        ..LOGS
    },
    Setting { name: "btrfs sequences", programs: Programs::Sequences, count: 132, ..LOGGED },
    LOGGED,
    BTRFS,
    Setting { name: "btrfs single", fs: "metadata=single,fix=nameless+renamed", ..BTRFS },
    Setting { name: "btrfs concurrent-sync", neighbour_us: 900, ..BTRFS },
    Setting { name: "btrfs names concurrent-sync", neighbour_us: 300, ..LOGGED },
    Setting { name: "btrfs slow concurrent-sync", device: "emmc-16", neighbour_us: 900, ..BTRFS },
    Setting { name: "btrfs life", whole_life: true, count: 8, ..BTRFS },
    Setting { name: "btrfs recovery", recovery: Some(Recovery::Honest), ..LOGGED },
    Setting { name: "btrfs recovery wild", recovery: Some(Recovery::Honest), ..BTRFS },
    Setting { name: "btrfs recovery cut", recovery: Some(Recovery::Cut(24)), count: 8, ..BTRFS },
];

impl Setting<'_> {
    /// Program number `n`.
    pub fn program(&self, n: u64) -> Program {
        match self.programs {
            Programs::Sequences => sequences::program(Of::Ace, 1, n),
            // A stride that has nothing in common with how they are numbered.
            Programs::Pairs => {
                sequences::program(Of::Ace, 2, n * 7919 % sequences::count(Of::Ace, 2))
            }
            Programs::Wild(calls) => {
                let extras = match self.on {
                    "nilfs2" => Extras::DATA.on(&wp_nilfs2::ENTRY),
                    _ => Extras::DATA,
                };
                wild::generate(1 + n, calls, extras)
            }
            Programs::WildCalls(calls) => {
                wild::generate(1 + n, calls, Extras { calls: true, ..Extras::ALL })
            }
            Programs::Log(rounds) => stress::log(1 + n, rounds),
            Programs::Space(rounds) => stress::space(1 + n, rounds),
            Programs::Edges(rounds) => stress::edges(1 + n, rounds),
            Programs::Bursts(rounds) => stress::bursts(1 + n, rounds),
            Programs::Names(count) => stress::names(1 + n, count),
            Programs::Image(rounds) => stress::image(1 + n, rounds),
            Programs::Mail(messages) => stress::mail(1 + n, messages),
            Programs::Far => far::behind_the_inode(1 + n),
            Programs::Moved => moved::directories(1 + n),
            Programs::Logged => logged::names(1 + n),
            Programs::Barriers(calls) => {
                let extras = Extras { barriers: true, ..Extras::DATA };
                wild::generate(1 + n, calls, extras)
            }
            Programs::Ordered => ordered::logs(1 + n),
            Programs::OrderedBursts => ordered::bursts(1 + n),
        }
    }

    /// What else goes on while program `n` is played.
    pub(super) fn around(&self, n: u64) -> Around {
        Around {
            neighbour_us: self.neighbour_us,
            whole_life: self.whole_life,
            seed: 1 + n,
            ..Around::default()
        }
    }

    /// Is a mutant of `site` played here? Recovery has settings of its own.
    pub(super) fn takes(&self, site: &Site) -> bool {
        let owner = ["f2fs", "nilfs2", "btrfs"]
            .into_iter()
            .find(|fs| site.name.strip_prefix(fs).is_some_and(|rest| rest.starts_with('/')));
        let is_ours = owner.unwrap_or("ext4") == self.on;
        is_ours && super::is_of_recovery(site) == self.recovery.is_some()
    }

    pub(super) fn bench(&self) -> Result<Bench, String> {
        let fs = registry::find("file system", registry::FILE_SYSTEMS, |f| f.name, self.on)?;
        let fresh = Bench::new(fs, self.fs).map_err(|e| e.to_string())?;
        let capacity = [("capacity_bytes", self.capacity)];
        let params = if self.params.is_empty() { &capacity } else { self.params };
        let owned = |list: &[(&str, u64)]| {
            list.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect::<Vec<_>>()
        };
        Ok(Bench {
            device: self.device.to_owned(),
            device_params: owned(params),
            more: self.more.iter().map(|(name, list)| ((*name).to_owned(), owned(list))).collect(),
            elevator: self.elevator.to_owned(),
            settle_s: if self.whole_life { 0 } else { fresh.settle_s },
            ..fresh
        })
    }

    /// A new file system on a device that was used before. Errors: options that mkfs refuses.
    pub(super) fn image(&self, bench: &Bench) -> Result<Medium, String> {
        let image = match self.stale_tables {
            true => bench.image_with_old_tables(),
            false => bench.image(),
        };
        image.map_err(|e| e.to_string())
    }

    fn profile(&self) -> Profile {
        if self.on == "f2fs" {
            let own = Profile::of(&wp_f2fs::ENTRY.promises);
            return match self.hold {
                Hold::Ext4 | Hold::Size => own,
                Hold::Version => Profile { one_version: true, ..own },
            };
        }
        if self.on == "nilfs2" {
            // Names and lengths are in the same logs as data.
            let own = Profile::of(&wp_nilfs2::ENTRY.promises);
            return Profile { fsync_keeps_names: true, size_with_data: true, ..own };
        }
        if self.on == "btrfs" {
            return Profile::of(&wp_btrfs::ENTRY.promises);
        }
        // The kernel's default is ordered data, with auto_da_alloc.
        let ext4 = Profile {
            cut_stays_cut: true,
            replaces_whole: true,
            new_by_fdatasync: true,
            ..Profile::EXT4
        };
        match self.hold {
            Hold::Ext4 => ext4,
            Hold::Size => Profile { size_with_data: true, ..ext4 },
            Hold::Version => Profile { size_with_data: true, one_version: true, ..ext4 },
        }
    }

    /// Visits the states of a program that was played until a rule that is not in `but` is broken.
    /// Answers that, all rules broken by then, and how many states were visited.
    pub(super) fn explore(
        &self,
        bench: &Bench,
        played: &Played,
        but: &[u64],
        go_on: &dyn Fn() -> bool,
    ) -> Explored {
        let second_cuts = match self.recovery {
            Some(Recovery::Cut(n)) => n,
            _ => 0,
        };
        // What is written to the machine's medium at mount is ordered by these two; the explorer
        // cuts a recovery that only says what it would write.
        let in_order = second_cuts == 0
            || match self.on {
                "f2fs" => RECOVER_LAST.on(),
                _ => RECOVER_HOME_FIRST.on() && RECOVER_FLUSH.on(),
            };
        let subject = FsSubject {
            entry: bench.fs,
            options: bench.fs_options.clone(),
            block_bytes: played.ledger.block_bytes() as u32,
            check: true,
            keep_writes: second_cuts > 0,
            sound: Sound::default(),
        };
        let options = wp_crash::Options {
            plan: self.plan,
            seed: 1,
            profile: self.profile(),
            partition: played.partition,
            keep: 1,
            prune: true,
            recovery_in_order: in_order,
            second_cuts,
        };
        let space = Space::Permitted {
            lying_flush: self.recovery == Some(Recovery::Lying),
            lost_fua: self.recovery == Some(Recovery::Lying),
            faulty_plp: false,
            atomic: self.atomic,
        };
        let history = space.history(played);
        let mut explorer = Explorer::new(&subject, options);
        explorer.expect(std::iter::once(&history));
        let new = |broken: &[u64]| broken.iter().zip(but).any(|(n, known)| *n > 0 && *known == 0);
        explorer
            .explore(&played.tape, &history, &played.ledger, &mut |t| go_on() && !new(&t.broken));
        let broken = explorer.totals.broken;
        let first = explorer.failures.iter().find(|f| but[f.violation.rule as usize] == 0);
        Explored { broken, states: explorer.totals.raw, first: first.map(|f| f.violation.clone()) }
    }
}

/// What exploring came to.
pub(super) struct Explored {
    /// Broken rules.
    pub broken: [u64; Rule::ALL.len()],
    /// States visited.
    pub states: u64,
    /// The first violation of a rule that was not to be.
    pub first: Option<Violation>,
}
