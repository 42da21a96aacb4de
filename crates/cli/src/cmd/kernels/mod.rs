//! `kernels`: ours beside real kernels, call by call.

mod random;
mod waits;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use wp_machine::host::Scratch;
use wp_parity::kernel_lab::Kernel;
use wp_parity::recovered;
use wp_parity::roundtrip::{Plan, trips};

use crate::output::{Exit, Out};
use crate::progress::Progress;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath kernels waits\n\
    \x20 writepath kernels recovery\n\
    \x20 writepath kernels crash examples/xfstests --guest\n\
    \x20 writepath kernels random --programs 50 --fs f2fs")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Compare device waits of recorded programs with Linux 6.12.
    ///
    /// For each system call: how often it waits for the device, and which requests follow it. Exit
    /// code 1 if a difference is not listed, or a listed one is gone.
    Waits(waits::WaitsArgs),
    /// Compare device waits of random programs with a Linux 6.12 guest.
    ///
    /// Boots the guest, runs each program in it and here, and prints the smallest
    /// program of some that differ. Exit code 1 if a difference is not listed, or a listed one is
    /// gone.
    Random(random::RandomArgs),
    /// Compare the blocks that an fsync writes with recorded Linux 6.18 runs.
    ///
    /// Blocks of new files, of the fsync of the last and of the 70 s after it: class, flags, order
    /// and second. Exit code 1 if a difference is not listed, or a listed one is gone.
    Blocks(super::today::Args),
    /// Recover images of crashed real kernels, and compare the files.
    ///
    /// Images that real kernels left at a power failure, and a dm-log-writes log replayed to each
    /// mark. Compares every file with what the kernel recovered. Only reads the images. Exit code 1
    /// if a file differs.
    Recovery(RecoveryArgs),
    /// Recover crash states here and with a real kernel, and compare the files.
    ///
    /// Explores power failures of generated programs in several kernel versions and mount modes,
    /// recovers each state here and with the host's kernel (on loop devices; needs root), and
    /// compares every file. With PROGRAMS the programs are given, and the kernel may be a guest's.
    /// Exit code 1 if a file differs.
    Crash(super::kernel_crash::Args),
    /// Exchange images with a Linux 6.12 guest, and compare their files.
    ///
    /// The guest mounts, lists and changes images that Writepath wrote, cleanly
    /// unmounted or crashed; Writepath then checks, lists and mounts them again. Exit code 1 if a
    /// file differs.
    Mounts(MountsArgs),
}

#[derive(clap::Args)]
struct MountsArgs {
    /// File system and options (`,zoned`: as --zoned)
    #[arg(long, default_value = "ext4,era=6.12.117")]
    fs: String,
    /// Seed of the first program; each image uses two
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of images
    #[arg(long, default_value_t = 40)]
    images: u64,
    /// Mount options of the guest
    #[arg(long, default_value = "")]
    #[arg(hide_default_value = true)]
    mount: String,
    /// Use a zoned device: 256 MiB, zones of 4 MiB, the first 16 conventional
    #[arg(long)]
    zoned: bool,
    /// Round trips of each image; every second one crashes the guest
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Make the first image with this host's mkfs and these arguments
    #[arg(long)]
    mkfs: Option<String>,
    /// Folder of the guest [default: $GUEST or ~/.cache/kernel-guest]
    ///
    /// It has the kernel `linux` and the root directory `root`. `writepath kernel-lab --setup
    /// build` makes it.
    #[arg(long, value_name = "DIR")]
    guest: Option<PathBuf>,
}

#[derive(clap::Args)]
struct RecoveryArgs {
    /// Folder of the reference images [default: testdata/reference]
    #[arg(long)]
    reference: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    match &a.what {
        What::Waits(w) => waits::run(w, out),
        What::Random(r) => random::run(r, out),
        What::Blocks(b) => super::today::run(b, out),
        What::Recovery(r) => recovery(r, out),
        What::Crash(c) => super::kernel_crash::run(c, out),
        What::Mounts(m) => mounts(m, out),
    }
}

/// The guest in a folder (`None`: in the usual one). Errors: the exit code, after saying what is
/// missing.
pub(super) fn guest(folder: Option<&Path>, out: &Out) -> Result<Kernel, ExitCode> {
    let help = "`writepath kernel-lab --setup build` makes a guest; --guest DIR names its folder";
    Kernel::in_folder(folder).map_err(|e| out.fail(Exit::Unsupported, "guest", &e, help))
}

/// Images of one boot: each is 64 MiB.
const IMAGES_A_BOOT: u64 = 20;

fn mounts(a: &MountsArgs, out: &Out) -> ExitCode {
    let named = a.fs.strip_suffix(",zoned");
    let zoned = a.zoned || named.is_some();
    let (fs, options) = match wp_machine::spec::file_system(named.unwrap_or(&a.fs)) {
        Ok(found) => found,
        Err(e) => {
            return out.fail(Exit::Usage, "fs", &e, "`writepath list fs` lists names and options");
        }
    };
    let kernel = match guest(a.guest.as_deref(), out) {
        Ok(kernel) => kernel,
        Err(code) => return code,
    };
    let scratch = match scratch("writepath-mounts", out) {
        Ok(scratch) => scratch,
        Err(code) => return code,
    };
    let mut all = Vec::new();
    let shown = Progress::new("kernels mounts");
    for first in (0..a.images).step_by(IMAGES_A_BOOT as usize) {
        shown.at(first, a.images, "images");
        let count = IMAGES_A_BOOT.min(a.images - first);
        let seeds = (a.seed + 2 * first, count);
        let plan = Plan {
            fs,
            options: &options,
            kernel_mount: &a.mount,
            seeds,
            zoned,
            real_mkfs: a.mkfs.as_deref(),
            rounds: a.rounds,
        };
        match trips(&kernel, scratch.path(), &plan) {
            Ok(some) => all.extend(some),
            Err(e) => {
                return out.fail(
                    Exit::HostIo,
                    "guest",
                    &e,
                    "--guest FILE names the script that boots it",
                );
            }
        }
    }
    drop((shown, scratch));
    let differ = all.iter().filter(|t| !t.differences.is_empty()).count();
    let mut text = format!(
        "{}: {} images, {} of them crashed; {} files listed by the kernel, {} after its changes; \
         {differ} images differ\n",
        a.fs,
        all.len(),
        all.iter().filter(|t| t.crashed).count(),
        all.iter().map(|t| t.files).sum::<usize>(),
        all.iter().map(|t| t.after).sum::<usize>(),
    );
    for t in all.iter().filter(|t| !t.differences.is_empty()) {
        let kind = if t.crashed { "crashed" } else { "clean" };
        writeln!(text, "seed {} ({kind}):", t.seed).expect("a string takes it");
        for d in &t.differences {
            writeln!(text, "  {d}").expect("a string takes it");
        }
    }
    let doc = json!({ "schema": "writepath.kernels.mounts/1", "fs": a.fs, "images": all });
    out.answer(if differ == 0 { Exit::Ok } else { Exit::No }, &doc, &text)
}

fn recovery(a: &RecoveryArgs, out: &Out) -> ExitCode {
    let folder = a
        .reference
        .clone()
        .unwrap_or_else(|| wp_machine::testing::repository("testdata/reference"));
    let shown = Progress::new("kernels recovery");
    let at = |done, all, name: &str| shown.at(done, all, format_args!("cases, {name}"));
    let (rows, skipped) = match recovered::rows(&folder, &at) {
        Ok(rows) => rows,
        Err(e) => {
            return out.fail(Exit::HostIo, "reference", &e, "--reference DIR names the folder");
        }
    };
    drop(shown);
    let equal = rows.iter().filter(|r| r.is_equal()).count();
    let doc =
        json!({ "schema": "writepath.kernels.recovery/1", "rows": rows, "not_compared": skipped });
    let exit = if equal == rows.len() { Exit::Ok } else { Exit::No };
    let mut text = recovery_text(&rows, equal);
    if !skipped.is_empty() {
        let names = skipped.join(", ");
        writeln!(text, "not compared by this verb: {names}").expect("a string takes it");
    }
    out.answer(exit, &doc, &text)
}

fn recovery_text(rows: &[recovered::Row], equal: usize) -> String {
    let mut t = String::new();
    let line = "a string takes it";
    writeln!(
        t,
        "{:<28} {:>6} {:>5} {:>6} {:>13} {:>5} {:>6} {:>7} {:>12} {:>15}  mount",
        "image",
        "kernel",
        "files",
        "equal",
        "transactions",
        "nodes",
        "blocks",
        "revoked",
        "fast commits",
        "orphans del/cut"
    )
    .expect(line);
    for r in rows {
        let orphans = format!("{}/{}", r.deleted, r.truncated);
        let mount = match (&r.refused, r.refused_there) {
            (None, _) => "ok".to_owned(),
            (Some(errno), true) => format!("{errno}, as in Linux"),
            (Some(errno), false) => errno.clone(),
        };
        writeln!(
            t,
            "{:<28} {:>6} {:>5} {:>6} {:>13} {:>5} {:>6} {:>7} {:>12} {orphans:>15}  {mount}",
            r.case,
            r.kernel,
            r.expected,
            r.equal,
            r.transactions,
            r.nodes,
            r.blocks,
            r.revoked,
            r.fast_commits
        )
        .expect(line);
        if let Some(d) = &r.difference {
            writeln!(t, "  DIFFERS: {d}").expect(line);
        }
    }
    writeln!(t, "{equal} of {} images are recovered as Linux recovers them", rows.len())
        .expect(line);
    t
}

/// A private directory; on failure says why and with which code to end.
fn scratch(name: &str, out: &Out) -> Result<Scratch, ExitCode> {
    let help = "set TMPDIR to a writable folder";
    Scratch::new(name).map_err(|e| out.fail(Exit::HostIo, "host-io", &e.to_string(), help))
}
