//! A kernel for User-Mode Linux, and a root for it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::trouble;
use wp_base::plain::Shown as _;
use wp_machine::host::Group;

use crate::vtime::guest::compile;

/// What starts a kernel without the host's random numbers.
const LAUNCH_C: &str = include_str!("launch.c");

/// Where a guest is, if nothing else is said: `$GUEST`, or this folder of the home directory.
const USUAL: &str = ".cache/kernel-guest";
/// Its kernel there, as we put it there; and as it was called before.
pub(super) const BINARY: &str = "linux";
const BEFORE: &str = "uml-6.12";

/// A kernel that can be started.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The kernel, an executable of the host built with `CONFIG_UML_TIME_TRAVEL_SUPPORT` and
    /// `CONFIG_VIRTIO_UML`.
    pub binary: PathBuf,
    /// Its root directory, with `init_uml` in it.
    pub root: PathBuf,
    /// Its memory in MiB.
    pub memory_mib: u32,
}

impl Kernel {
    /// The kernel and root that are named, or those of the usual place. Errors: what is missing,
    /// and where it comes from.
    pub fn find(binary: Option<&Path>, root: Option<&Path>) -> Result<Kernel, String> {
        let (binary, root) = Kernel::named(binary, root)?;
        if !binary.is_file() {
            return Err(format!(
                "{}: not a User-Mode Linux kernel with time travel",
                binary.shown()
            ));
        }
        let init = root.join("init_uml");
        if !init.is_file() {
            return Err(format!("{} is missing: a guest's root", init.shown()));
        }
        Ok(Kernel { binary, root, memory_mib: 512 })
    }

    /// Where a guest is, if nothing else is said: `$GUEST`, or a folder of the home directory.
    /// Errors: there is neither.
    pub fn usual() -> Result<PathBuf, String> {
        std::env::var_os("GUEST")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|h| Path::new(&h).join(USUAL)))
            .ok_or_else(|| "no home directory and no $GUEST".to_owned())
    }

    /// The kernel and root that are named, or those of the usual place, whether they are there or
    /// not. Errors: there is no such place.
    pub fn named(binary: Option<&Path>, root: Option<&Path>) -> Result<(PathBuf, PathBuf), String> {
        let place = |given: Option<&Path>, name: &str| match given {
            // The guest is started elsewhere.
            Some(given) => absolute(given),
            None => absolute(&Kernel::usual()?.join(name)),
        };
        let before = place(binary, BEFORE)?;
        let ours = place(binary, BINARY)?;
        let binary = if before.is_file() && !ours.is_file() { before } else { ours };
        Ok((binary, place(root, "root")?))
    }

    /// As [`Kernel::find`], in a folder with a `linux` and a `root` in it (`None`: the usual
    /// place).
    /// Errors: as there.
    pub fn in_folder(folder: Option<&Path>) -> Result<Kernel, String> {
        let Some(folder) = folder else { return Kernel::find(None, None) };
        if !folder.is_dir() {
            return Err(format!(
                "{}: not a folder with `{BINARY}` and `root` in it",
                folder.shown()
            ));
        }
        Kernel::find(Some(&folder.join(BINARY)), Some(&folder.join("root")))
    }

    /// The same with so much memory, in MiB.
    pub fn with_memory(&self, memory_mib: u32) -> Kernel {
        Kernel { memory_mib, ..self.clone() }
    }

    /// Can it make file systems called `fs`? Errors: why not: a root has what the host had when it
    /// was made.
    pub fn makes(&self, fs: &str) -> Result<(), String> {
        let has = ["bin", "sbin"]
            .iter()
            .any(|dir| self.root.join(dir).join(format!("mkfs.{fs}")).exists());
        if has {
            return Ok(());
        }
        Err(format!("the guest has no mkfs.{fs}; install it here and make the guest again"))
    }

    /// Runs `run.sh` of `share` in a guest without a drive of ours, in virtual time (its CPU is
    /// infinitely fast), and waits for its end, for `seconds` of wall time at most.
    ///
    /// Errors: a guest that does not start or end; a script that fails, with what it said.
    pub fn run_script(&self, share: &Path, seconds: u64) -> Result<(), String> {
        let mut running = self.start(share, "inf-cpu", &[])?;
        #[expect(clippy::disallowed_methods, reason = "a guest that hangs is ended")]
        let begun = Instant::now();
        while !running.has_ended() {
            if begun.elapsed() > Duration::from_secs(seconds) {
                return Err(format!("the guest did not end within {seconds} s"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let read = |file: &str| std::fs::read_to_string(share.join(file)).unwrap_or_default();
        match read("rc").trim() {
            "0" => Ok(()),
            "" => Err(format!("the guest failed: {}", trouble::told(&read("console.txt")))),
            code => {
                Err(format!("the guest's script ended with {code}: {}", read("stdout.txt").trim()))
            }
        }
    }

    /// Starts it in time travel, with its calendar and disks behind these sockets of the folder in
    /// which `share` is. Its console is `console.txt` in `share`, whose `run.sh` it runs. Errors:
    /// no C compiler; the host's.
    ///
    /// The kernel's command line, which seeds its random numbers, has no path that differs from run
    /// to run.
    pub(super) fn boot(
        &self,
        share: &Path,
        calendar: &str,
        disks: &[&str],
    ) -> Result<Running, String> {
        self.start(share, &format!("ext:../{calendar}"), disks)
    }

    fn start(&self, share: &Path, time: &str, disks: &[&str]) -> Result<Running, String> {
        let at = |e: std::io::Error| format!("{}: {e}", self.binary.shown());
        let memory = trouble::memory_folder(self.memory_mib)?;
        // What an earlier run has left there would be taken for this one's.
        for file in ["rc", "stdout.txt", "dmesg.txt"] {
            drop(std::fs::remove_file(share.join(file)));
        }
        let console = std::fs::File::create(share.join("console.txt")).map_err(at)?;
        let errors = console.try_clone().map_err(at)?;
        let launch = share.join("launch");
        compile(LAUNCH_C, &launch)?;
        let mut command = Command::new(&launch);
        command
            .arg(&self.binary)
            // No random numbers of the host by another way: drivers/char/hw_random.
            .arg("initcall_blacklist=rng_init")
            .arg(format!("mem={}M", self.memory_mib))
            .args(["root=/dev/root", "rootfstype=hostfs", "rw", "init=/init_uml"])
            .arg(format!("rootflags={}", self.root.display()))
            .arg("share=/proc/self/cwd")
            .args(["con=null", "con0=fd:0,fd:1", "quiet", "log_buf_len=4M"])
            .arg(format!("time-travel={time}"));
        for disk in disks {
            // 2: a block device.
            command.arg(format!("virtio_uml.device=../{disk}:2"));
        }
        command.env("TMPDIR", memory);
        command.current_dir(share).stdin(Stdio::null()).stdout(console).stderr(errors);
        Ok(Running { group: Group::spawn(&mut command).map_err(at)? })
    }
}

/// A path from the root on. Errors: an empty one.
fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|e| format!("`{}`: {e}", path.shown()))
}

/// A guest that runs; it ends with this.
pub(super) struct Running {
    group: Group,
}

impl Running {
    /// Has it ended by itself?
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.group.try_wait(), Ok(None))
    }

    /// Ends it.
    pub fn end(self) {
        drop(self.group);
    }
}
