//! The guest: a real kernel that runs a folder's `run.sh`, and what that needs beside it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The calls of a history, in the guest.
const OP_C: &str = include_str!("op.c");
const GUEST_SH: &str = include_str!("guest.sh");
/// Tools of the host that the guest's own root may lack.
const TOOLS: [&str; 8] =
    ["resize2fs", "mkcp", "chcp", "rmcp", "chattr", "f2fs_io", "nilfs_cleanerd", "btrfs"];
/// Seconds that a boot may take.
const SECONDS: u32 = 200;
const CLEANER: &str = "protection_period 0\nmin_clean_segments 0\nclean_check_interval 1\n\
                       nsegments_per_clean 4\nmc_nsegments_per_clean 4\ncleaning_interval 0.1\n\
                       mc_cleaning_interval 0.1\nretry_interval 1\nmin_reclaimable_blocks 1\n\
                       use_mmap\nlog_priority info\n";

/// A guest that can be started.
pub struct Guest {
    script: PathBuf,
    kernel: String,
    /// The folder that it shares.
    pub share: PathBuf,
}

impl Guest {
    /// A guest of `script` with kernel `kernel` (`6.12` or `debian`). Errors: what is missing.
    pub fn make(script: &Path, kernel: &str, share: &Path) -> Result<Guest, String> {
        if !script.exists() {
            return Err(format!("{} is missing: there is no guest kernel", script.display()));
        }
        let at = |e: std::io::Error| format!("{}: {e}", share.display());
        std::fs::create_dir_all(share.join("tools")).map_err(at)?;
        std::fs::write(share.join("op.c"), OP_C).map_err(at)?;
        std::fs::write(share.join("cleanerd.conf"), CLEANER).map_err(at)?;
        run(Command::new("gcc")
            .args(["-O2", "-w", "-static", "-o"])
            .args([share.join("op"), share.join("op.c")]))?;
        for tool in TOOLS {
            copy_tool(tool, &share.join("tools"))?;
        }
        let (script, share) = (script.to_owned(), share.to_owned());
        Ok(Guest { script, kernel: kernel.to_owned(), share })
    }

    /// Runs lines of shell after those of `guest.sh`. Errors: the guest does not end, or fails.
    pub fn run(&self, lines: &str) -> Result<(), String> {
        let at = |e: std::io::Error| format!("{}: {e}", self.share.display());
        std::fs::write(self.share.join("run.sh"), format!("{GUEST_SH}\n{lines}\nexit 0\n"))
            .map_err(at)?;
        let ended = Command::new("bash")
            .arg(&self.script)
            .arg(&self.share)
            .arg(SECONDS.to_string())
            .env("KERNEL", &self.kernel)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("bash: {e}"))?;
        if ended.status.success() {
            return Ok(());
        }
        let said = std::fs::read_to_string(self.share.join("stdout.txt")).unwrap_or_default();
        Err(format!("the guest failed: {} {said}", String::from_utf8_lossy(&ended.stdout).trim()))
    }
}

/// Copies a tool with its libraries, but those of libc, which the guest has. A tool that the host
/// lacks stays out: its calls fail there, and are counted.
fn copy_tool(tool: &str, to: &Path) -> Result<(), String> {
    let found = Command::new("sh")
        .args(["-c", "command -v \"$1\"", "sh", tool])
        .output()
        .map_err(|e| format!("sh: {e}"))?;
    let path = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    if path.is_empty() {
        return Ok(());
    }
    std::fs::copy(&path, to.join(tool)).map_err(|e| format!("{path}: {e}"))?;
    let listed = Command::new("ldd").arg(&path).output().map_err(|e| format!("ldd: {e}"))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for word in listed.split_whitespace().filter(|w| w.starts_with('/') && w.contains(".so")) {
        let name = Path::new(word).file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with("libc.") && !name.starts_with("ld-") {
            std::fs::copy(word, to.join(name)).map_err(|e| format!("{word}: {e}"))?;
        }
    }
    Ok(())
}

/// Runs a command to its end. Errors: it does not start, or fails: what it said.
pub fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ended = command.stdin(Stdio::null()).output().map_err(|e| format!("{name}: {e}"))?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(format!("{name}: {}", String::from_utf8_lossy(&ended.stderr).trim())),
    }
}
