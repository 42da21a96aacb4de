//! What keeps a guest from starting on a host, each in one line with a hint.

use std::path::{Path, PathBuf};

use wp_base::plain::Shown as _;

/// What a guest's console says, and what it means.
///
/// Source: `arch/um/os-Linux/{start_up,mem,skas/process}.c`, `mm/oom_kill.c` and
/// `init/do_mounts.c` of Linux 6.12.
const CONSOLE: [(&str, &str); 6] = [
    (
        "ptrace set fp regs failed",
        "the CPU has AMX, and the kernel too little room for its registers (Linux until 6.12): \
         writepath kernel-lab --setup build makes one with more",
    ),
    (
        "must be not mounted noexec",
        "its memory is a file in a folder that is mounted noexec: TMPDIR=FOLDER names another",
    ),
    (
        "check_ptrace",
        "the host allows no ptrace: in a container --cap-add SYS_PTRACE, or \
         --security-opt seccomp=unconfined; else kernel.yama.ptrace_scope=0",
    ),
    (
        "Failed to initialize default registers",
        "the host allows no ptrace of registers: --security-opt seccomp=unconfined in a container",
    ),
    ("System is deadlocked on memory", "it needs more memory: --memory MIB"),
    (
        "Unable to mount root fs",
        "its root directory cannot be read: --root DIR, or writepath kernel-lab --setup build",
    ),
];
/// Lines of a console that are told where nobody knows the reason.
const LAST: usize = 5;
/// MiB: a kernel writes only part of its memory.
const MIB: u64 = 1 << 20;

/// Why the guest of a shared folder failed: what its script has said, else what kept it from
/// starting.
pub(super) fn of(share: &Path) -> String {
    let read = |file: &str| std::fs::read_to_string(share.join(file)).unwrap_or_default();
    match read("err").trim() {
        "" => told(&read("console.txt")),
        said => said.to_owned(),
    }
}

/// The reason that a console tells, or its last lines.
pub(super) fn told(console: &str) -> String {
    let known = CONSOLE.iter().find(|(said, _)| console.contains(said));
    if let Some((said, reason)) = known {
        return format!("\"{said}\": {reason}");
    }
    let lines: Vec<&str> = console.lines().filter(|l| !l.trim().is_empty()).collect();
    match &lines[lines.len().saturating_sub(LAST)..] {
        [] => "it said nothing: the host ended it, perhaps for want of memory".to_owned(),
        last => last.join("\n"),
    }
}

/// What a kernel's console says of its panic: the `BUG` before it, where there is one.
pub(super) fn panic(console: &str) -> Option<String> {
    const PANIC: &str = "Kernel panic - not syncing: ";
    let (before, behind) = console.split_once(PANIC)?;
    let bug = before.lines().rev().find_map(|line| {
        let said = line.split_once("BUG: failure at ")?.1;
        Some(format!("BUG at {}", said.trim_end_matches('!')))
    });
    Some(bug.unwrap_or_else(|| behind.lines().next().unwrap_or_default().to_owned()))
}

/// The folder for a guest's memory of `mib` MiB: a file, which is in $TMPDIR, or in memory where
/// there is room, else where temporary files are. A guest dies by a signal, without a word, when
/// the folder is full.
///
/// Errors: there is no room, with a hint.
pub(super) fn memory_folder(mib: u32) -> Result<PathBuf, String> {
    let named = std::env::var_os("TMPDIR").map(PathBuf::from);
    let folders = named.into_iter().chain(["/dev/shm", "/tmp"].map(PathBuf::from));
    roomy(folders, mib)
}

/// The first folder with room for `mib` MiB. Errors: none.
fn roomy(folders: impl Iterator<Item = PathBuf>, mib: u32) -> Result<PathBuf, String> {
    let mut full = Vec::new();
    for folder in folders {
        match free(&folder) {
            Some(free) if free / MIB >= u64::from(mib) => return Ok(folder),
            Some(free) => full.push(format!("{} has {} MiB free", folder.shown(), free / MIB)),
            None => {}
        }
    }
    Err(format!(
        "the guest's memory is a file of {mib} MiB, and {}: --memory MIB, or TMPDIR=FOLDER",
        if full.is_empty() { "no folder for it is there".to_owned() } else { full.join(", ") }
    ))
}

/// Free bytes of the file system that a folder is on.
fn free(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_by_the_bug_before_it() {
        let bug = "BTRFS info: x\nBUG: failure at fs/btrfs/ctree.c:4186/btrfs_extend_item()!\n";
        let console = format!("{bug}Kernel panic - not syncing: BUG!\nCPU: 0\n");
        let said = panic(&console);
        assert_eq!(said.as_deref(), Some("BUG at fs/btrfs/ctree.c:4186/btrfs_extend_item()"));
        let said = panic("Kernel panic - not syncing: Segfault with no mm\nCPU: 0\n");
        assert_eq!(said.as_deref(), Some("Segfault with no mm"));
        assert_eq!(panic(bug), None);
    }

    #[test]
    fn a_known_trouble_is_told_in_one_line_with_a_hint() {
        let console = "Core dump limits :\n\tsoft - 0\nptrace set fp regs failed, errno = 14\n";
        let said = told(console);
        assert!(said.contains("AMX") && said.contains("--setup build") && !said.contains('\n'));
        for (said, _) in CONSOLE {
            assert!(!told(&format!("x\n{said}, errno = 1\ny")).contains('\n'), "{said}");
        }
        assert_eq!(told("a\n\nb\nc\nd\ne\nf\n"), "b\nc\nd\ne\nf");
        assert!(told("").contains("said nothing"));
    }

    #[test]
    fn memory_goes_where_there_is_room_and_nowhere_is_an_error() {
        let here = tempfile::tempdir().unwrap();
        let folders = || [PathBuf::from("/no/such/folder"), here.path().to_owned()].into_iter();
        assert_eq!(roomy(folders(), 1).unwrap(), here.path());
        let why = roomy(folders(), u32::MAX).unwrap_err();
        assert!(why.contains("MiB free") && why.contains("--memory"), "{why}");
        assert!(roomy(std::iter::empty(), 1).unwrap_err().contains("no folder"));
    }
}
