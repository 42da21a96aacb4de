//! Jobs: sections with their options in effect.

use std::collections::BTreeMap;
use std::rc::Rc;

use wp_vfs::{Reserve, SyncKind};

use super::diag::{Diagnostic, Place, Severity};
use super::direct::Direct;
use super::ini::Section;
use super::options::{self, OptionInfo};
use super::replay::{Log, ReplayOptions};
use super::sequence::{Streams, Zone};
use super::setup::{self, Existing};
use super::steady::SteadyState;
use super::value::Amount;
use super::{forms, paths, resolve};

/// The system calls that an engine makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// `lseek` and `read`/`write`; here positioned calls, since nobody shares the descriptor.
    Sync,
    /// `pread`/`pwrite`.
    Psync,
    /// `preadv`/`pwritev` with one buffer.
    Pvsync,
    /// `io_submit` and `io_getevents`.
    Libaio,
    /// `io_uring_enter`.
    IoUring,
    /// `aio_read` and `aio_write` of the C library: a thread for each file.
    Posixaio,
    /// `fallocate`: of a read `FALLOC_FL_KEEP_SIZE`, of a write mode 0, of a trim a hole.
    Falloc,
    /// `ftruncate` to the offset of each write.
    Ftruncate,
    /// Copies to and from a mapping of the file; `msync`. Here calls through the page cache.
    Mmap,
    /// `splice` and `vmsplice`; here calls through the page cache.
    Splice,
    /// Nothing: each operation has ended when it begins.
    Null,
    /// `open` of each file, which makes it; its operations do nothing.
    Filecreate,
    /// `stat` of each file; its operations do nothing.
    Filestat,
    /// `unlink` of each file; its operations do nothing.
    Filedelete,
}

impl Engine {
    /// Does it change the layout of files, in place of I/O?
    pub const fn lays_out(self) -> bool {
        matches!(self, Engine::Falloc | Engine::Ftruncate)
    }

    /// Does it measure calls on names, in place of I/O?
    pub const fn is_of_names(self) -> bool {
        matches!(self, Engine::Filecreate | Engine::Filestat | Engine::Filedelete)
    }

    /// Do its operations do nothing?
    pub const fn does_nothing(self) -> bool {
        self.is_of_names() || matches!(self, Engine::Null)
    }

    /// Can it have more than one operation in flight?
    pub const fn is_async(self) -> bool {
        matches!(self, Engine::Libaio | Engine::IoUring | Engine::Posixaio)
    }

    /// fio's name.
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Sync => "sync",
            Engine::Psync => "psync",
            Engine::Pvsync => "pvsync",
            Engine::Libaio => "libaio",
            Engine::IoUring => "io_uring",
            Engine::Posixaio => "posixaio",
            Engine::Falloc => "falloc",
            Engine::Ftruncate => "ftruncate",
            Engine::Mmap => "mmap",
            Engine::Splice => "splice",
            Engine::Null => "null",
            Engine::Filecreate => "filecreate",
            Engine::Filestat => "filestat",
            Engine::Filedelete => "filedelete",
        }
    }
}

/// Which jobs end with one of `exitall`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitWhat {
    /// Those of its group.
    Group,
    /// All that run; those behind the next stonewall begin.
    Stonewall,
    /// All.
    All,
}

/// Which places are likely, of random offsets. Parameters are in millionths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// All of them alike.
    Random,
    /// By Zipf's law, with this theta.
    Zipf(u64),
    /// By a power of a uniform number.
    Pareto(u64),
    /// Around a center, with this deviation in percent.
    Normal(u64),
    /// Uniform within parts of the file, by direction.
    Zoned([Vec<Zone>; 3]),
}

/// What a job says of its reads (`posix_fadvise`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hint {
    /// Nothing.
    None,
    /// Whether they are random, as it makes them.
    Pattern,
    /// They are random.
    Random,
    /// They are in order.
    Sequential,
}

/// How the next file is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileService {
    /// By a random number.
    Random,
    /// One after the other.
    RoundRobin,
    /// The next one when one is done.
    Sequential,
}

/// Where random offsets come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Generator {
    /// 32-bit Tausworthe.
    Taus88,
    /// 64-bit Tausworthe.
    Taus258,
    /// Shift register.
    Lfsr,
}

/// What `verify` compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verify {
    /// All bytes, whatever fio's checksum is.
    Contents,
    /// Nothing: what was written is only read (`verify=null`).
    Nothing,
}

/// What is synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncWhat {
    /// `fsync`.
    All,
    /// `fdatasync`.
    Data,
}

impl SyncWhat {
    /// The word of fio's logs.
    pub const fn word(self) -> &'static str {
        match self {
            SyncWhat::All => "sync",
            SyncWhat::Data => "datasync",
        }
    }
}

/// A latency that the depth is to be found for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LatencyTarget {
    /// Nanoseconds that an operation may take.
    pub ns: u64,
    /// Microseconds for which a depth is tried.
    pub window_us: u64,
    /// Percentage of the operations of a window that must not take longer.
    pub percentile: f64,
    /// The search goes on until the job is over.
    pub runs_on: bool,
}

/// One job, every option in effect. Arrays are by direction: read, write, trim.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// Number among all jobs, from 1, clones counted: part of every seed.
    pub thread_number: u32,
    /// Number among its clones, from 0.
    pub subjob: u32,
    /// Number of its group.
    pub group: u32,
    /// Begins when all before it are done.
    pub stonewall: bool,
    /// Begins a group for reporting.
    pub new_group: bool,
    /// Reads.
    pub reads: bool,
    /// Writes.
    pub writes: bool,
    /// Discards; with `writes`, what it then writes.
    pub trims: bool,
    /// In random order.
    pub random: bool,
    /// Random: operations for one drawn offset. (`rw=randwrite:8`)
    pub sequence: u64,
    /// Sequential: bytes skipped after each operation. (`rw=write:4k`)
    pub skip: i64,
    /// Operations between drawn offsets stay where they are.
    pub identical: bool,
    /// `bs`.
    pub bs: [u64; 3],
    /// Smallest block; 0: `bs`.
    pub min_bs: [u64; 3],
    /// Largest block; 0: `bs`.
    pub max_bs: [u64; 3],
    /// Lengths and their percentages, rarest first.
    pub split: [Vec<(u64, u64)>; 3],
    /// Alignment of random offsets; 0: the smallest block.
    pub align: [u64; 3],
    /// Lengths need not be multiples of the smallest block.
    pub unaligned: bool,
    /// Read lengths are for sequential, write lengths for random operations.
    pub bs_is_seq_rand: bool,
    /// `size`.
    pub size: Amount,
    /// `io_size`; 0: `size`.
    pub io_size: Amount,
    /// `filesize` in bytes, from the first to the second; 0: a share of `size`.
    pub file_size: (u64, u64),
    /// `offset`.
    pub offset: Amount,
    /// `offset_increment`.
    pub offset_increment: Amount,
    /// Writes until there is no space left.
    pub fill_device: bool,
    /// Offsets given as a share are multiples of this; 0: of the smallest block.
    pub offset_align: u64,
    /// Operations at most; 0: no limit.
    pub number_ios: u64,
    /// Rounds.
    pub loops: u64,
    /// Clones.
    pub numjobs: u64,
    /// Percentage of reads in a mixed job.
    pub rwmix_read: u64,
    /// Percentage of random operations in a random job.
    pub percent_random: [u64; 3],
    /// Blocks may come twice.
    pub no_map: bool,
    /// Where random offsets come from.
    pub generator: Generator,
    /// Which places are likely.
    pub distribution: Distribution,
    /// Where the likeliest place is, in millionths of the file; `None`: anywhere.
    pub distribution_center: Option<u64>,
    /// Was `random_generator` given?
    pub generator_given: bool,
    /// `randseed`.
    pub seed: u64,
    /// Was `randseed` given? Then later rounds go on where the first one ended.
    pub seed_given: bool,
    /// Offsets are the same in each run, and in each round.
    pub repeat: bool,
    /// So is everything else.
    pub all_repeat: bool,
    /// `filename`; empty: made of job, clone and number.
    pub filenames: Vec<String>,
    /// `filename_format`.
    pub filename_format: String,
    /// `directory`: its clones take turns with these.
    pub directory: Vec<String>,
    /// Files.
    pub nrfiles: u64,
    /// Files open at a time; 0: all.
    pub openfiles: u64,
    /// How the next file is chosen.
    pub service: FileService,
    /// Operations before another file is chosen.
    pub service_count: u64,
    /// Writes go over what is there.
    pub overwrite: bool,
    /// Files are laid out one job after the other, before any begins.
    pub create_serialize: bool,
    /// A file that was laid out is synced.
    pub create_fsync: bool,
    /// Files that are not there may be made (`allow_file_create`).
    pub makes_files: bool,
    /// Files are made when they are opened.
    pub create_on_open: bool,
    /// Only lay out files.
    pub create_only: bool,
    /// A new file is cut to its length first (`fallocate=truncate`).
    pub truncate_first: bool,
    /// A new file gets its space first (`fallocate=native`, `posix`, `keep`).
    pub reserve_first: Option<Reserve>,
    /// The file's clean pages are dropped when a job opens it.
    pub invalidate: bool,
    /// Past the cache (`direct`), and untorn (`atomic`)?
    pub direct: Direct,
    /// Files are opened `O_SYNC` (fsync after each write) or `O_DSYNC`.
    pub open_sync: Option<SyncKind>,
    /// Remove files at the end.
    pub unlink: bool,
    /// Number of writes between two `fsync`s; 0: none.
    pub fsync: u64,
    /// Number of writes between two `fdatasync`s; 0: none.
    pub fdatasync: u64,
    /// An `fsync` of every file at the end.
    pub end_fsync: bool,
    /// An `fsync` before each close.
    pub fsync_on_close: bool,
    /// Engine.
    pub engine: Engine,
    /// Nanoseconds between two samples of the bandwidth (`bwavgtime`).
    pub bw_period_ns: u64,
    /// Nanoseconds between two samples of the rate (`iopsavgtime`).
    pub iops_period_ns: u64,
    /// Microseconds before anything counts.
    pub ramp_time: u64,
    /// Files are removed before each further round.
    pub unlink_each_loop: bool,
    /// The range begins at the end of a file that is there.
    pub file_append: bool,
    /// Files are read before the job begins.
    pub pre_read: bool,
    /// Microseconds of I/O between think times; 0: by `thinktime_blocks`.
    pub thinktime_iotime: u64,
    /// The job whose end this one waits for.
    pub wait_for: Option<String>,
    /// Its end is that of others, too.
    pub exitall: bool,
    /// So is its end with an error.
    pub exitall_on_error: bool,
    /// Of which others.
    pub exit_what: ExitWhat,
    /// Weight among the jobs of its `flow_id`; 0: no flow control.
    pub flow: u64,
    /// `flow_id`.
    pub flow_id: u64,
    /// Microseconds that it sleeps when it is ahead.
    pub flow_sleep: u64,
    /// Numbers of errors that count and end nothing: of reads, of writes, of verification.
    pub ignored_errors: [Vec<i32>; 3],
    /// Goes on after an error of a read, of a write, of verification.
    pub continue_on_error: [bool; 3],
    /// Longest latency in microseconds; a longer one ends the job with an error. 0: no limit.
    pub max_latency: u64,
    /// Beginning of the name of a bandwidth log; empty: the job's name.
    pub bw_log: Option<String>,
    /// The same of a log of rates.
    pub iops_log: Option<String>,
    /// The same of logs of latencies.
    pub lat_log: Option<String>,
    /// Name of a log of all operations (`write_iolog`).
    pub iolog: Option<String>,
    /// What it does is read from a log (`read_iolog`).
    pub replay: Option<ReplayOptions>,
    /// That log.
    pub replayed: Option<Rc<Log>>,
    /// A log for each job, with its number.
    pub per_job_logs: bool,
    /// Nanoseconds that a line of a log is of; 0: a line for each operation.
    pub log_period_ns: u64,
    /// Lines have offsets.
    pub log_offset: bool,
    /// Lines of a period have the longest latency, not the mean.
    pub log_max: bool,
    /// Threads instead of processes; both are tasks.
    pub thread: bool,
    /// As given; a synchronous engine does one at a time.
    pub iodepth: u64,
    /// Operations submitted at once; 0: `iodepth`.
    pub batch: u64,
    /// Operations reaped at once at least.
    pub batch_complete_min: u64,
    /// Operations reaped at once at most; less than the least: as many as that.
    pub batch_complete_max: u64,
    /// Depth down to which a full queue is reaped; 0: `iodepth`.
    pub iodepth_low: u64,
    /// Microseconds; 0: no limit.
    pub runtime: u64,
    /// `fadvise_hint`.
    pub hint: Hint,
    /// Goes on until `runtime` is over.
    pub time_based: bool,
    /// Microseconds, from the first to the second.
    pub startdelay: (u64, u64),
    /// Microseconds.
    pub thinktime: u64,
    /// Operations between think times.
    pub thinktime_blocks: u64,
    /// `zonemode=strided`: bytes done in a zone before the next one; 0: no zones.
    pub zone_size: u64,
    /// Bytes of a zone.
    pub zone_range: u64,
    /// Bytes between zones.
    pub zone_skip: u64,
    /// `zonemode=strided` was given.
    pub strided: bool,
    /// `zonemode=zbd`: its operations go where the zones' state lets them.
    pub zbd: bool,
    /// Bytes of an emulated zone that can be written; 0: all.
    pub zone_capacity: u64,
    /// `size`, `io_size`, `offset` and `offset_increment` in zones, where they are given so.
    pub in_zones: [Option<u64>; 4],
    /// Zones that all jobs write at a time; 0: the device's limit.
    pub max_open_zones: u64,
    /// Zones that this one writes at a time; 0: no limit of its own.
    pub job_max_open_zones: u64,
    /// The device's limit does not count.
    pub ignore_zone_limits: bool,
    /// Reads need not stay before the write pointer.
    pub read_beyond_wp: bool,
    /// Millionths of the range with data beyond which zones are reset; `None`: none are.
    pub zone_reset_threshold: Option<u64>,
    /// Writes from one such reset to the next.
    pub zone_reset_every: Option<u64>,
    /// Bytes per second; 0: no limit.
    pub rate: [u64; 3],
    /// Operations per second; 0: no limit.
    pub rate_iops: [u64; 3],
    /// Bytes per second below which the job ends with an error; 0: none.
    pub rate_min: [u64; 3],
    /// Operations per second below which it does; 0: none.
    pub rate_iops_min: [u64; 3],
    /// Milliseconds over which the two are reckoned.
    pub rate_cycle: u64,
    /// Operations begin at random times, on average at the rate.
    pub poisson: bool,
    /// The depth is to be found for this latency; `None`: it is `iodepth`.
    pub latency_target: Option<LatencyTarget>,
    /// The job ends when it is in this state.
    pub steady_state: Option<SteadyState>,
    /// Zeroes are written.
    pub zero_buffers: bool,
    /// Every write has contents of its own.
    pub refill: bool,
    /// Every write has contents of its own, a little.
    pub scramble: bool,
    /// `buffer_pattern`, as a number.
    pub pattern: Option<u64>,
    /// `verify`; `None`: nothing is verified.
    pub verify: Option<Verify>,
    /// The checksum of `verify`, by fio's word.
    pub checksum: String,
    /// What is written is read back and compared. A job that only reads compares what it reads in
    /// any case.
    pub do_verify: bool,
    /// `verify_interval` in bytes; 0: not given.
    pub verify_interval: u64,
    /// Writes between which those before are verified; 0: at the end of each round.
    pub verify_backlog: u64,
    /// How many are verified then; 0: `verify_backlog`.
    pub verify_batch: u64,
    /// One report a group.
    pub group_reporting: bool,
    /// Percentiles of completion latency.
    pub clat_percentiles: bool,
    /// Percentiles of total latency.
    pub lat_percentiles: bool,
    /// Percentiles of submission latency.
    pub slat_percentiles: bool,
    /// Percentiles, as millionths of a percent.
    pub percentiles: Vec<u64>,
    /// 1024 or 1000.
    pub kb_base: u64,
    /// `description`.
    pub description: String,
    /// Options of its own section, in order.
    pub given: Vec<(String, String)>,
    /// Where its section begins.
    pub at: Place,
}

impl Job {
    /// fio's defaults (3.33).
    pub(super) fn new(at: &Place) -> Job {
        Job {
            name: String::new(),
            thread_number: 0,
            subjob: 0,
            group: 0,
            stonewall: false,
            new_group: false,
            reads: true,
            writes: false,
            trims: false,
            random: false,
            sequence: 1,
            skip: 0,
            identical: false,
            bs: [4096; 3],
            min_bs: [0; 3],
            max_bs: [0; 3],
            split: Default::default(),
            align: [0; 3],
            unaligned: false,
            bs_is_seq_rand: false,
            size: Amount::Bytes(0),
            io_size: Amount::Bytes(0),
            file_size: (0, 0),
            offset: Amount::Bytes(0),
            offset_increment: Amount::Bytes(0),
            fill_device: false,
            offset_align: 0,
            number_ios: 0,
            loops: 1,
            numjobs: 1,
            rwmix_read: 50,
            percent_random: [100; 3],
            no_map: false,
            generator: Generator::Taus88,
            distribution: Distribution::Random,
            distribution_center: None,
            generator_given: false,
            seed: 0x89,
            seed_given: false,
            repeat: true,
            all_repeat: false,
            filenames: Vec::new(),
            filename_format: "$jobname.$jobnum.$filenum".to_owned(),
            directory: Vec::new(),
            nrfiles: 1,
            openfiles: 0,
            service: FileService::RoundRobin,
            service_count: 1,
            overwrite: false,
            create_serialize: true,
            create_fsync: true,
            makes_files: true,
            create_on_open: false,
            create_only: false,
            truncate_first: false,
            reserve_first: Some(Reserve::Space { keep_size: false }),
            invalidate: true,
            direct: Direct::Off,
            open_sync: None,
            unlink: false,
            fsync: 0,
            fdatasync: 0,
            end_fsync: false,
            fsync_on_close: false,
            engine: Engine::Psync,
            bw_period_ns: 500_000_000,
            iops_period_ns: 500_000_000,
            ramp_time: 0,
            unlink_each_loop: false,
            file_append: false,
            pre_read: false,
            thinktime_iotime: 0,
            wait_for: None,
            exitall: false,
            exitall_on_error: false,
            exit_what: ExitWhat::Group,
            flow: 0,
            flow_id: 0,
            flow_sleep: 0,
            ignored_errors: Default::default(),
            continue_on_error: [false; 3],
            max_latency: 0,
            bw_log: None,
            iops_log: None,
            lat_log: None,
            iolog: None,
            replay: None,
            replayed: None,
            per_job_logs: true,
            log_period_ns: 0,
            log_offset: false,
            log_max: false,
            thread: false,
            iodepth: 1,
            batch: 1,
            batch_complete_min: 1,
            batch_complete_max: 0,
            iodepth_low: 0,
            runtime: 0,
            time_based: false,
            hint: Hint::Pattern,
            startdelay: (0, 0),
            thinktime: 0,
            thinktime_blocks: 1,
            zone_size: 0,
            zone_range: 0,
            zone_skip: 0,
            strided: false,
            zbd: false,
            zone_capacity: 0,
            in_zones: [None; 4],
            max_open_zones: 0,
            job_max_open_zones: 0,
            ignore_zone_limits: false,
            read_beyond_wp: false,
            zone_reset_threshold: None,
            zone_reset_every: None,
            rate: [0; 3],
            rate_iops: [0; 3],
            rate_min: [0; 3],
            rate_iops_min: [0; 3],
            rate_cycle: 1000,
            poisson: false,
            latency_target: None,
            steady_state: None,
            zero_buffers: false,
            refill: false,
            scramble: true,
            pattern: None,
            verify: None,
            checksum: String::new(),
            do_verify: true,
            verify_interval: 0,
            verify_backlog: 0,
            verify_batch: 0,
            group_reporting: false,
            clat_percentiles: true,
            lat_percentiles: false,
            slat_percentiles: false,
            percentiles: resolve::PERCENTILES.to_vec(),
            kb_base: 1024,
            description: String::new(),
            given: Vec::new(),
            at: at.clone(),
        }
    }

    /// The smallest block of any direction, trims included, as fio reckons.
    pub fn block_min(&self) -> u64 {
        self.min_bs.iter().copied().min().unwrap_or(1)
    }

    /// The largest block of any direction.
    pub fn block_max(&self) -> u64 {
        self.max_bs.iter().copied().max().unwrap_or(1)
    }

    /// With numbers of zones replaced by bytes, of zones of this size.
    #[must_use]
    pub fn with_zones_of(mut self, zone_bytes: u64) -> Job {
        let [size, io_size, offset, increment] =
            self.in_zones.map(|n| n.map(|n| n.saturating_mul(zone_bytes)));
        self.size = size.map_or(self.size, Amount::Bytes);
        self.io_size = io_size.map_or(self.io_size, Amount::Bytes);
        self.offset = offset.map_or(self.offset, Amount::Bytes);
        self.offset_increment = increment.map_or(self.offset_increment, Amount::Bytes);
        self
    }

    /// Microseconds that it waits before it begins.
    pub fn delay(&self) -> u64 {
        let (least, most) = self.startdelay;
        match most - least {
            0 => least,
            span => least + Streams::of_start(self).scaled(span + 1),
        }
    }

    /// Where its range begins in a file of `whole` bytes (fio 3.33: `get_start_offset`).
    pub fn start_offset(&self, whole: u64) -> u64 {
        let increment = self.offset_increment.of(whole).saturating_mul(u64::from(self.subjob));
        let start = self.offset.of(whole).saturating_add(increment);
        let align = match self.offset_align {
            0 => self.block_min(),
            n => n,
        };
        match self.offset.is_share() || self.offset_increment.is_share() {
            true => start.checked_next_multiple_of(align).unwrap_or(start),
            false => start,
        }
    }

    /// Does its range begin elsewhere than at a file's first byte?
    pub fn is_moved(&self) -> bool {
        [self.offset, self.offset_increment].iter().any(|a| *a != Amount::Bytes(0))
    }

    /// Does it read back what it writes?
    pub fn verifies(&self) -> bool {
        self.verify.is_some() && self.do_verify
    }

    /// Has it operations in flight beside the one that it makes, for fio's limits of a round?
    pub fn queues(&self) -> bool {
        self.engine.is_async() || (self.engine == Engine::Null && self.iodepth > 1)
    }

    /// Bytes that each header of `verify` is for, in an operation of this length.
    pub fn header_interval(&self, length: u64) -> u64 {
        let (min, max) = (self.min_bs[1], self.max_bs[1]);
        let mut n = match self.verify_interval {
            0 if min != max => min,
            n => n,
        };
        if n > min {
            n = min;
        } else if self.reads && n > self.min_bs[0] {
            n = self.min_bs[0];
        }
        if n == 0 || min % n > 0 || max % n > 0 {
            n = gcd(min, max);
        }
        if n > 0 && n <= length { n } else { length }
    }

    /// Paths of its files, from the root of the file system and in one spelling each: without a
    /// leading slash, `.`, `..` and empty names.
    pub fn paths(&self) -> Vec<String> {
        self.written_paths().iter().map(|p| paths::plain(p)).collect()
    }

    /// Are its files block devices?
    pub fn is_on_devices(&self) -> bool {
        let paths = self.written_paths();
        !paths.is_empty() && paths.iter().all(|p| p.starts_with("/dev/"))
    }

    /// The directories on the way to its files, in the order in which they are made.
    pub fn directories(&self) -> Vec<String> {
        self.written_paths().iter().flat_map(|p| paths::directories(p)).collect()
    }

    /// The paths as the job writes them, below its `directory`.
    pub(super) fn written_paths(&self) -> Vec<String> {
        let turn = (self.subjob as usize).checked_rem(self.directory.len());
        let join = |name: &str| match turn {
            None => name.to_owned(),
            Some(n) => format!("{}/{name}", self.directory[n]),
        };
        if !self.filenames.is_empty() {
            let n = (self.nrfiles as usize).min(self.filenames.len());
            return self.filenames[..n].iter().map(|f| join(f)).collect();
        }
        (0..self.nrfiles).map(|i| join(&self.made_name(i))).collect()
    }

    fn made_name(&self, file: u64) -> String {
        let mut name = self.filename_format.clone();
        let words = [
            ("$jobname", self.name.clone()),
            ("$jobnum", self.subjob.to_string()),
            ("$filenum", file.to_string()),
            ("$clientuid", String::new()),
        ];
        for (word, text) in words {
            name = replace_any_case(&name, word, &text);
        }
        name
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn replace_any_case(text: &str, word: &str, with: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut out = String::new();
    let mut at = 0;
    while let Some(i) = lower[at..].find(word) {
        out.push_str(&text[at..at + i]);
        out.push_str(with);
        at += i + word.len();
    }
    out + &text[at..]
}

/// An option that a file uses, for the table of `fio check`.
#[derive(Clone, Debug)]
pub struct Used {
    /// Section.
    pub section: String,
    /// The option; `None` for a key that no fio knows.
    pub option: Option<&'static OptionInfo>,
    /// As written.
    pub key: String,
    /// As written.
    pub value: String,
    /// Where.
    pub at: Place,
    /// Is it refused, for itself or for its value?
    pub refused: bool,
}

/// A file of jobs.
#[derive(Clone, Debug)]
pub struct JobFile {
    /// Jobs, clones counted; to be run only if there is no error.
    pub jobs: Vec<Job>,
    /// Options of `[global]` sections.
    pub global: Vec<(String, String)>,
    /// All options that stand there.
    pub used: Vec<Used>,
    /// What is wrong, in order.
    pub diagnostics: Vec<Diagnostic>,
    /// Its sections as they stand there, for `--showcmd`.
    pub sections: Vec<Section>,
}

impl JobFile {
    /// Adds an error for each job whose sizes do not fit its files on an empty file system. Not
    /// part
    /// of `parse`: on an image the files may exist. A file that an earlier job creates counts as
    /// written in full.
    pub fn fit_empty(&mut self) {
        if self.has_errors() {
            return;
        }
        let mut lengths: BTreeMap<String, u64> = BTreeMap::new();
        // How long a device is the machine tells.
        let has_size = |j: &&Job| !j.is_on_devices() && j.replayed.is_none();
        for job in self.jobs.iter().filter(has_size) {
            let existing = &mut |p: &str| Existing::file(lengths.get(p).copied().unwrap_or(0));
            match setup::layout(job, existing) {
                Ok(layout) => {
                    lengths.extend(layout.files.into_iter().map(|f| (f.path, f.length)));
                }
                Err(e) if job.subjob == 0 => {
                    let message = format!("job `{}`: {e}", job.name);
                    self.diagnostics.push(Diagnostic::error(&job.at, message, ""));
                }
                Err(_) => {}
            }
        }
    }

    /// The first block device that its jobs use; `None`: they use files.
    ///
    /// Errors: a job on a device beside one on a file.
    pub fn device(&self) -> Result<Option<String>, String> {
        let mut jobs = self.jobs.iter();
        let Some(job) = jobs.find(|j| j.is_on_devices()) else { return Ok(None) };
        if let Some(other) = self.jobs.iter().find(|j| !j.is_on_devices()) {
            return Err(format!(
                "job `{}` is on a block device and job `{}` on a file, and a machine has either: \
                 write two job files",
                job.name, other.name
            ));
        }
        Ok(job.paths().first().map(|path| format!("/{path}")))
    }

    /// Options that a job leaves to their defaults, and whose defaults do something else here than
    /// in fio: the job's name, the option, and fio's default. Each option once.
    pub fn unwritten(&self) -> Vec<(&str, &'static OptionInfo, &'static str)> {
        const ALL: [&str; 3] = ["scramble_buffers", "fallocate", "disk_util"];
        let matters = |option: &str, j: &Job| match option {
            "scramble_buffers" => j.writes && !j.refill && !j.zero_buffers && j.pattern.is_none(),
            "fallocate" => j.writes && !j.create_on_open,
            _ => true,
        };
        let mut all = Vec::new();
        for name in ALL {
            let (Some(option), Some(form)) = (options::find(name), forms::form(name)) else {
                continue;
            };
            let is_written =
                |j: &Job| self.global.iter().chain(&j.given).any(|(key, _)| key == name);
            let job = self.jobs.iter().find(|j| !is_written(j) && matters(name, j));
            if let Some(job) = job {
                all.push((job.name.as_str(), option, form.default.unwrap_or_default()));
            }
        }
        all
    }

    /// Bytes that the jobs lay out before any of them begins, by the jobs' names. A job that only
    /// writes reserves its space, unless the file system has no `fallocate`.
    pub fn laid_out_bytes(&self, no_fallocate: bool) -> Vec<(String, u64)> {
        let mut lengths: BTreeMap<String, u64> = BTreeMap::new();
        let mut all = Vec::new();
        let lays_out = |j: &&Job| {
            j.create_serialize
                && !j.create_on_open
                && !j.is_on_devices()
                && j.replayed.is_none()
                && !matches!(j.engine, Engine::Null | Engine::Filecreate)
        };
        for job in self.jobs.iter().filter(lays_out) {
            let existing = &mut |p: &str| Existing::file(lengths.get(p).copied().unwrap_or(0));
            let Ok(layout) = setup::layout(job, existing) else { continue };
            let takes =
                job.reads || job.overwrite || (job.reserve_first.is_some() && !no_fallocate);
            let new = layout.files.into_iter().filter(|f| takes && f.length > f.existing);
            let new: Vec<(String, u64)> = new.map(|f| (f.path, f.length)).collect();
            let bytes = new.iter().fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
            all.push((job.name.clone(), bytes));
            lengths.extend(new);
        }
        all.retain(|(_, bytes)| *bytes > 0);
        all
    }

    /// Has it what fio can do and Writepath cannot (yet)?
    pub fn is_unsupported(&self) -> bool {
        self.diagnostics.iter().any(|d| d.is_unsupported)
    }

    /// Are there errors?
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|d| d.severity == Severity::Error)
    }

    /// Everything that was found, as text.
    pub fn rendered(&self) -> String {
        let all: Vec<String> = self.diagnostics.iter().map(ToString::to_string).collect();
        all.join("\n\n")
    }
}
