//! What a user types after `kernel-lab`.

use std::path::PathBuf;

use crate::cmd::crash::log::ExploreArgs;

/// File system of the guest where none is named.
pub(super) const FS: &str = "ext4";
/// Drive where none is named.
pub(super) const DEVICE: &str = "ssd-128,capacity_bytes=536870912";

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath kernel-lab --setup check\n\
    \x20 writepath kernel-lab --fs f2fs --cycles 1000\n\
    \x20 writepath kernel-lab --suite ext4\n\
    \x20 writepath kernel-lab --suite fstests-quick --tests xfstests-dev\n\
    \x20 writepath kernel-lab --run ./app.sh --check ./check.sh --explore")]
pub struct Args {
    /// Run a shell command in the guest, on the mounted file system
    ///
    /// The guest sees the files of this host, read-only, with memory over /tmp, /run and /var/tmp;
    /// the current folder and that of the command are there all the same.
    /// The working directory is the mounted file system, and WRITEPATH_MOUNT names it. Each line
    /// that the command writes to the file $WRITEPATH_ACK is what it has told the world by then (an
    /// acknowledgement). A file whose name begins with ./ or ../ is looked for where writepath
    /// runs.
    #[arg(long, value_name = "CMD", conflicts_with_all = ["suite", "cycles", "cut", "loss"])]
    #[arg(conflicts_with_all = ["jobs", "blocks", "ops", "direct", "sync", "beside"])]
    #[arg(conflicts_with_all = ["all", "source", "to", "messages"])]
    #[arg(help_heading = "Program")]
    pub(super) run: Option<String>,
    /// Command that prepares the files; without --run: check, take, build
    ///
    /// With --run: a shell command on the new file system; sync(2) follows it.
    ///
    /// Without --run it is about the guest itself. check: lists what the guest has, and crashes
    /// each file system once. take: copies --kernel and --root to the folder where they are looked
    /// for. build: makes what of them is not named: a root directory of this host's programs, a
    /// kernel of Debian's source.
    #[arg(long, value_name = "CMD", conflicts_with = "suite")]
    #[arg(help_heading = "Program")]
    pub(super) setup: Option<String>,
    /// Wall-clock limit of a guest with a program or test: 90s, 5m
    ///
    /// A program that waits for time to pass without a system call never ends: in virtual time the
    /// CPU takes none.
    #[arg(long, value_name = "TIME", default_value = "5m")]
    #[arg(help_heading = "Program", hide_short_help = true)]
    pub(super) guest_limit: String,
    /// With --run: write what the drive was sent as a new log for `crash log`
    ///
    /// The format is that of dm-log-writes; marks say when each request was submitted.
    #[arg(long, value_name = "FILE", requires = "run")]
    #[arg(help_heading = "Program")]
    pub(super) save_log: Option<PathBuf>,
    /// With --setup build: kernel source, an archive or a tree
    ///
    /// Default: the newest /usr/src/linux-source-*.tar.xz.
    #[arg(long, value_name = "FILE|DIR", requires = "setup")]
    #[arg(help_heading = "Guest", hide_short_help = true)]
    pub(super) source: Option<PathBuf>,
    /// With --setup: target folder [default: $GUEST or ~/.cache/kernel-guest]
    #[arg(long, value_name = "DIR", requires = "setup")]
    #[arg(help_heading = "Guest", hide_short_help = true)]
    pub(super) to: Option<PathBuf>,
    /// Run a suite, one table: f2fs-oprw, ext4, others or fstests-GROUP
    ///
    /// f2fs-oprw is table 6.2 of that paper. fstests-GROUP, fstests-quick for example, runs the
    /// generic tests of a group of xfstests in a guest, on a test device and a scratch device of
    /// --device: each on a test device that was made anew, as many in one boot as go. It needs
    /// --tests; a test that takes longer than --guest-limit or --virtual-limit ends its guest, and
    /// the next boot goes on behind it.
    #[arg(long, value_name = "NAME")]
    #[arg(conflicts_with_all = ["trace", "all"])]
    pub(super) suite: Option<String>,
    /// With --suite fstests-GROUP: built checkout of xfstests
    #[arg(long, value_name = "DIR", requires = "suite")]
    pub(super) tests: Option<PathBuf>,
    /// With --suite fstests-GROUP: only these tests, joined by commas
    #[arg(long, value_name = "TESTS", requires = "tests", value_delimiter = ',')]
    #[arg(hide_short_help = true)]
    pub(super) only: Vec<String>,
    /// With --suite fstests-GROUP: limit of a test in the guest's time
    #[arg(long, value_name = "TIME", default_value = "10m", requires = "tests")]
    #[arg(hide_short_help = true)]
    pub(super) virtual_limit: String,
    /// Run --run on a second kernel as well; compare the requests
    ///
    /// Exit status 1 if the drive was not sent the same requests, in the order of submission, with
    /// the same contents. --mkfs, --mount and the root directory are the same. With --explore both
    /// kernels also mount --sample states of the first one's log and every prefix of it, and the
    /// files and the verdicts of --check must be the same.
    #[arg(long, value_name = "KERNEL2", requires = "run")]
    #[arg(conflicts_with_all = ["recover_as", "save_log"])]
    #[arg(help_heading = "Program")]
    pub(super) compare: Option<PathBuf>,
    /// With --run: run it with these mount options as well; compare
    #[arg(long, value_name = "OPTIONS", requires = "run")]
    #[arg(conflicts_with_all = ["recover_as", "save_log"])]
    #[arg(help_heading = "Program", hide_short_help = true)]
    pub(super) compare_mount: Option<String>,
    /// With --run: explore every crash state of what the drive was sent
    ///
    /// Crash points before the end of --setup are left out. Writepath's own file system recovers
    /// each state, and --check judges each distinct tree. Of a file system that Writepath does not
    /// have (xfs) the guest's kernel recovers --sample states, and the check runs in the guest.
    #[arg(long, requires = "run")]
    #[arg(help_heading = "Program")]
    pub(super) explore: bool,
    /// With --explore: file system that recovers, as of `crash log`, or kernel
    ///
    /// Default: --fs with the guest's kernel version as `era`. kernel: the guest's kernel recovers
    /// --sample states and every prefix of the log, and the check runs in the guest; Writepath's
    /// own file system has no part in it.
    #[arg(long, value_name = "FS", requires = "explore")]
    #[arg(help_heading = "Program", hide_short_help = true)]
    pub(super) recover_as: Option<String>,
    /// With --explore: mount N states with the guest's kernel, compare files
    ///
    /// N of the explored states, chosen by --seed, and those of the failures that are printed. xfs
    /// and --recover-as kernel: all states that are explored [default: 200].
    #[arg(long, value_name = "N", requires = "explore")]
    #[arg(help_heading = "Program")]
    pub(super) sample: Option<usize>,
    #[command(flatten)]
    pub(super) states: ExploreArgs,
    /// File system of the guest: ext4, f2fs, btrfs, nilfs2 or xfs
    #[arg(long, default_value = FS)]
    pub(super) fs: String,
    /// Mount options, joined by commas
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    #[arg(hide_default_value = true)]
    pub(super) mount: String,
    /// Further arguments of mkfs
    #[arg(long, value_name = "ARGUMENTS", default_value = "", allow_hyphen_values = true)]
    #[arg(hide_default_value = true)]
    pub(super) mkfs: String,
    /// Drive preset and parameters
    #[arg(long, value_name = "PRESET", default_value = DEVICE)]
    pub(super) device: String,
    /// Writes a power failure may lose: model or contract
    ///
    /// model: writes that the drive model has not made durable. contract: every write that neither
    /// a flush nor FUA covers.
    #[arg(long, value_name = "model|contract", default_value = "model")]
    #[arg(help_heading = "Power failures")]
    pub(super) loss: String,
    /// Number of power failures
    #[arg(long, default_value_t = 100)]
    #[arg(help_heading = "Power failures")]
    pub(super) cycles: u64,
    /// Seed of program, crash points and lost writes
    #[arg(long, default_value_t = 1)]
    #[arg(help_heading = "Power failures")]
    pub(super) seed: u64,
    /// Crash points are drawn by: event, time or change
    ///
    /// event: submissions and completions of the drive. time: virtual time. change: requests that
    /// change data.
    #[arg(long, value_name = "event|time|change", default_value = "event")]
    #[arg(help_heading = "Power failures")]
    pub(super) cut: String,
    /// Threads, each with its own file
    #[arg(long, default_value_t = 1)]
    #[arg(help_heading = "Workload")]
    pub(super) jobs: u64,
    /// File size in blocks of 4 KiB
    #[arg(long, default_value_t = 64)]
    #[arg(help_heading = "Workload")]
    pub(super) blocks: u64,
    /// Overwrites with fsync per thread and power failure
    #[arg(long, default_value_t = 16)]
    #[arg(help_heading = "Workload")]
    pub(super) ops: u64,
    /// Write with O_DIRECT
    #[arg(long)]
    #[arg(help_heading = "Workload")]
    pub(super) direct: bool,
    /// Call sync(2) after every N overwrites of a thread; 0: never
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(help_heading = "Workload")]
    pub(super) sync: u64,
    /// CPU cost profile of the guest (`list cpus`)
    ///
    /// The program is charged the cost of its system calls; requests and completions of the drive
    /// are delayed by the other costs.
    #[arg(long, value_name = "PROFILE", default_value = "free")]
    #[arg(help_heading = "Workload")]
    pub(super) cpu: String,
    /// Also run the program on Writepath's own file system; compare fsync times
    ///
    /// The same drive and program, without power failures.
    #[arg(long)]
    #[arg(help_heading = "Results")]
    pub(super) beside: bool,
    /// User-Mode Linux kernel with time travel [default: in $GUEST]
    ///
    /// Without --kernel and $GUEST: the one in ~/.cache/kernel-guest.
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = "Guest")]
    pub(super) kernel: Option<PathBuf>,
    /// Root directory of the guest [default: in $GUEST]
    ///
    /// Without --root and $GUEST: the one in ~/.cache/kernel-guest.
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = "Guest")]
    pub(super) root: Option<PathBuf>,
    /// Memory of the guest, in MiB
    #[arg(long, default_value_t = 512)]
    #[arg(help_heading = "Guest", value_name = "MIB")]
    pub(super) memory: u32,
    /// Write every request and completion of the drive, in blkparse format
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = "Results")]
    pub(super) trace: Option<PathBuf>,
    /// Write images of the first four failed crash states to a folder
    ///
    /// States that lost data, or that Writepath recovers to other files than the kernel. With --run
    /// it needs --explore and --sample.
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = "Results")]
    pub(super) keep: Option<PathBuf>,
    /// Write the guest's kernel log (dmesg) at its end
    #[arg(long, value_name = "FILE", conflicts_with = "suite")]
    #[arg(help_heading = "Results")]
    pub(super) messages: Option<PathBuf>,
    /// Print every power failure
    #[arg(long)]
    #[arg(help_heading = "Results")]
    pub(super) all: bool,
}
