//! The kernel of this host as a witness: what file systems on its loop devices ask of them.
//!
//! Needs root, loop devices and tracefs. (`blktrace` itself is refused in many containers.)

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A bio as blktrace prints it: its letters, first sector, sectors.
pub type Asked = (String, u64, u32);

/// A trace of bios of the kernel's own, which goes with it.
pub struct Bios(PathBuf);

impl Bios {
    /// One with room for `kib` KiB of events on each CPU, not begun.
    ///
    /// Errors: no tracefs here, or no right to it.
    pub fn new(kib: u32) -> std::io::Result<Bios> {
        let root = Path::new("/sys/kernel/tracing");
        if !root.join("trace").exists() {
            let _mounted = Command::new("mount").args(["-t", "tracefs", "none"]).arg(root).output();
        }
        // Tests run side by side, in several processes and in one.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let own = root.join(format!("instances/writepath-{}-{number}", std::process::id()));
        std::fs::create_dir(&own)?;
        let bios = Bios(own);
        std::fs::write(bios.0.join("buffer_size_kb"), kib.to_string())?;
        Ok(bios)
    }

    /// Begins, or ends.
    ///
    /// Errors: as of the file.
    pub fn enable(&self, on: bool) -> std::io::Result<()> {
        let event = self.0.join("events/block/block_bio_queue/enable");
        std::fs::write(event, if on { "1" } else { "0" })
    }

    /// What was asked of `device` (`major:minor`), in order.
    ///
    /// Errors: as of the file; `InvalidData` if events were lost or are not understood.
    pub fn asked(&self, device: &str) -> std::io::Result<Vec<Asked>> {
        let text = std::fs::read_to_string(self.0.join("trace"))?;
        let wrong = |what: String| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
        if let Some(line) = text.lines().find(|l| l.contains("LOST")) {
            return Err(wrong(format!("the trace has no room: {line}")));
        }
        let device = device.replace(':', ",");
        let mut all = Vec::new();
        // …: block_bio_queue: 7,0 WFSM 120 + 8 [umount]
        for line in text.lines() {
            let Some((_, event)) = line.split_once("block_bio_queue: ") else { continue };
            let words: Vec<&str> = event.split(' ').collect();
            let [on, flags, at, _, sectors, ..] = words[..] else {
                return Err(wrong(format!("not an event of a bio: {line}")));
            };
            if on == device {
                let number = |text: &str| text.parse().map_err(|_| wrong(line.to_owned()));
                let sectors =
                    u32::try_from(number(sectors)?).map_err(|_| wrong(line.to_owned()))?;
                all.push((flags.to_owned(), number(at)?, sectors));
            }
        }
        Ok(all)
    }
}

impl Drop for Bios {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir(&self.0);
    }
}

/// What a command prints, if it is there and succeeds.
pub fn run(name: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(name).args(args).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// Is this host's kernel a `version` (`6.18`)? Errors: what it is, in words.
pub fn is_linux(version: &str) -> Result<(), String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if host.starts_with(&format!("{version}.")) {
        return Ok(());
    }
    Err(format!("this host has Linux {}, not the {version} that ours is here", host.trim()))
}
