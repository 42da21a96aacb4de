//! Programs of the host, and the end of a mount.

use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

/// Runs a program of the host: did it go well, and what it said. `None`: it is not there.
pub fn tool(name: &str, args: &[&str]) -> Option<(bool, String)> {
    let out = Command::new(name).args(args).output().ok()?;
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    Some((out.status.success(), text))
}

/// Unmounts, and waits until nobody has the device: only then is all of it in the image. Another
/// test's child that has not become its program yet may hold a file of ours open for a moment, and
/// a mount namespace that was made meanwhile has a copy of the mount.
pub fn unmount(at: &str) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let of_it = |line: &&str| line.split(' ').nth(1) == Some(at);
    let device = mounts.lines().rfind(of_it).and_then(|line| line.split(' ').next());
    within_a_minute(|| tool("umount", &[at]).expect("umount exists").0, at);
    if let Some(device) = device.filter(|device| device.starts_with("/dev/")) {
        within_a_minute(|| !is_kept(device), device);
    }
}

/// The same when a value ends: a test that has failed already goes on to its own message.
pub fn end_mount(at: &str) {
    match std::thread::panicking() {
        true => drop(tool("umount", &["--lazy", at])),
        false => unmount(at),
    }
}

/// Does a mounted file system, or somebody else who wants it alone, have the device?
fn is_kept(device: &str) -> bool {
    /// `O_EXCL`, which std has no name for.
    const EXCLUSIVE: i32 = 0o200;
    let opened = std::fs::File::options().read(true).custom_flags(EXCLUSIVE).open(device);
    opened.is_err_and(|e| e.kind() == std::io::ErrorKind::ResourceBusy)
}

fn within_a_minute(mut is_done: impl FnMut() -> bool, what: &str) {
    for _ in 0..6000 {
        if is_done() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{what} is still mounted");
}
