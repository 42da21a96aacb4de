//! What building a guest needs of the host, and Debian's package of each.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use wp_machine::host::group;

/// Programs that compile: `lab.c` and its like, and a kernel.
const COMPILER: [(&str, &str); 8] = [
    ("gcc", "gcc libc6-dev"),
    ("make", "make"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("strip", "binutils"),
];
/// Programs of a root. One without a `mkfs` has one file system less.
const ROOT: [(&str, &str); 6] = [
    ("busybox", "busybox-static"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.f2fs", "f2fs-tools"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("mkfs.nilfs2", "nilfs-tools"),
    ("mkfs.xfs", "xfsprogs"),
];

/// What is to be built, of which the needs follow.
#[derive(Clone, Copy, Default)]
pub(super) struct Needs {
    /// A root of the host's programs.
    pub root: bool,
    /// A kernel.
    pub kernel: bool,
    /// Debian's source of it.
    pub source: bool,
}

impl Needs {
    /// Debian's packages of what is missing here, of which folder `sources` has kernel sources.
    fn missing(self, sources: &Path) -> Vec<&'static str> {
        let of = |is: bool, all: &'static [(&str, &str)]| all.iter().filter(move |_| is);
        let programs = of(self.kernel, &COMPILER).chain(of(self.root, &ROOT));
        let lacks = programs.filter(|(program, _)| find(program).is_none());
        let mut packages: Vec<&str> = lacks.flat_map(|(_, packages)| packages.split(' ')).collect();
        if self.source && super::debian_source(sources).is_err() {
            packages.push(super::SOURCE_PACKAGE);
        }
        packages
    }

    /// Has Debian's packages of what is missing installed, as root on such a system; what is
    /// installed is said on stderr.
    ///
    /// Errors: what is missing and cannot be installed here, with the command that does it.
    pub fn provide(self, sources: &Path) -> Result<(), String> {
        let missing = self.missing(sources);
        if missing.is_empty() {
            return Ok(());
        }
        let wanted = missing.join(" ");
        if find("apt-get").is_none() || !rustix::process::geteuid().is_root() {
            return Err(format!("to build a guest needs, as root: apt-get install {wanted}"));
        }
        eprintln!("installing with apt-get: {wanted}");
        // A fresh system knows no packages before an update. One package that cannot be had must
        // not keep the others away.
        let mut said = apt(&["update"])?;
        for package in &missing {
            said.push_str(&apt(&["install", "-y", "--no-install-recommends", package])?);
        }
        // A file system whose mkfs cannot be had is left out of the root, which says so.
        let still = Needs { root: false, ..self }.missing(sources);
        if still.is_empty() && (!self.root || find("busybox").is_some()) {
            return Ok(());
        }
        let last: Vec<&str> = said.lines().filter(|l| l.starts_with("E: ")).collect();
        Err(format!("apt-get could not install {wanted}: {}", last.join("; ")))
    }
}

/// Runs apt-get, and returns what it said. Errors: it cannot be started.
fn apt(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("apt-get");
    command.args(["-q"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command.stdin(Stdio::null());
    let out = group::output(&mut command).map_err(|e| format!("apt-get: {e}"))?;
    Ok(String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
}

/// A program in PATH, or where an ordinary user's PATH does not lead.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|dir| dir.join(program)).find(|p| p.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_source_is_a_package_and_what_is_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let needs = Needs { source: true, ..Needs::default() };
        assert_eq!(needs.missing(dir.path()), [super::super::SOURCE_PACKAGE]);
        std::fs::write(dir.path().join("linux-source-6.12.tar.xz"), "").unwrap();
        assert!(needs.missing(dir.path()).is_empty());
        assert!(Needs::default().missing(dir.path()).is_empty());
        assert!(find("sh").is_some_and(|p| p.ends_with("sh")) && find("no such program").is_none());
    }
}
