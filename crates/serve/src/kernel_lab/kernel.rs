//! A kernel for User-Mode Linux, and a root for it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where a guest is, if nothing else is said: `$GUEST`, or this folder of the home directory.
const USUAL: &str = ".cache/kernel-guest";
/// Its kernel there.
const BINARY: &str = "uml-6.12";

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
        let usual = std::env::var_os("GUEST")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|h| Path::new(&h).join(USUAL)));
        let place = |given: Option<&Path>, name: &str| {
            let usual = usual.as_ref().map(|u| u.join(name));
            given.map(Path::to_owned).or(usual).ok_or("no home directory; name it")
        };
        let (binary, root) = (place(binary, BINARY)?, place(root, "root")?);
        if !binary.is_file() {
            return Err(format!(
                "{} is missing: a kernel for User-Mode Linux with time travel (docs/serve.md)",
                binary.display()
            ));
        }
        let init = root.join("init_uml");
        if !init.is_file() {
            return Err(format!("{} is missing: a guest's root (docs/serve.md)", init.display()));
        }
        Ok(Kernel { binary, root, memory_mib: 512 })
    }

    /// Starts it in time travel, with disks behind these sockets. Its console is `console.txt` in
    /// `share`, whose `run.sh` it runs. Errors: the host's.
    pub(super) fn boot(
        &self,
        share: &Path,
        calendar: &Path,
        disks: &[&Path],
    ) -> Result<Running, String> {
        let at = |e: std::io::Error| format!("{}: {e}", self.binary.display());
        let console = std::fs::File::create(share.join("console.txt")).map_err(at)?;
        let errors = console.try_clone().map_err(at)?;
        let mut command = Command::new(&self.binary);
        command
            .arg(format!("mem={}M", self.memory_mib))
            .args(["root=/dev/root", "rootfstype=hostfs", "rw", "init=/init_uml"])
            .arg(format!("rootflags={}", self.root.display()))
            .arg(format!("share={}", share.display()))
            .args(["con=null", "con0=fd:0,fd:1", "quiet", "log_buf_len=4M"])
            .arg(format!("time-travel=ext:{}", calendar.display()));
        for disk in disks {
            // 2: a block device.
            command.arg(format!("virtio_uml.device={}:2", disk.display()));
        }
        // Its memory is a file, which had better not be on a disk.
        if Path::new("/dev/shm").is_dir() {
            command.env("TMPDIR", "/dev/shm");
        }
        let child = command
            .current_dir(share)
            .stdin(Stdio::null())
            .stdout(console)
            .stderr(errors)
            .spawn()
            .map_err(at)?;
        Ok(Running { child })
    }
}

/// A guest that runs; it ends with this.
pub(super) struct Running {
    child: Child,
}

impl Running {
    /// Has it ended by itself?
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it.
    pub fn end(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        // It may have gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}
