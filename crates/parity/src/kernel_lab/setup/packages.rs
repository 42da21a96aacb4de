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
/// The programs of a root.
const ROOT: [(&str, &str); 1] = [("busybox", "busybox-static")];
/// Those that it may do without: a file system less each.
const FILE_SYSTEMS: [(&str, &str); 5] = [
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
    /// Debian's packages of what is missing here and nothing works without, of which folder
    /// `sources` has kernel sources.
    fn missing(self, sources: &Path) -> Vec<&'static str> {
        let of =
            |is: bool, all: &'static [(&str, &str)]| if is { lacking(all) } else { Vec::new() };
        let mut packages = of(self.kernel, &COMPILER);
        packages.extend(of(self.root, &ROOT));
        if self.source && super::debian_source(sources).is_err() {
            packages.push(super::SOURCE_PACKAGE);
        }
        packages
    }

    /// Has Debian's packages of what is missing installed, as root on such a system; what is
    /// installed is said on stderr. A mkfs that cannot be had is left out of the root, which says
    /// so.
    ///
    /// Errors: what nothing works without is missing and cannot be installed here, with the command
    /// that does it.
    pub fn provide(self, sources: &Path) -> Result<(), String> {
        let needed = self.missing(sources);
        let can_install = find("apt-get").is_some() && rustix::process::geteuid().is_root();
        if !can_install {
            return match &needed[..] {
                [] => Ok(()),
                all => Err(format!("needs, as root: apt-get install {}", all.join(" "))),
            };
        }
        let more = if self.root { lacking(&FILE_SYSTEMS) } else { Vec::new() };
        let wanted = [needed, more].concat();
        if wanted.is_empty() {
            return Ok(());
        }
        eprintln!("installing with apt-get: {}", wanted.join(" "));
        // A fresh system knows no packages before an update. One package that cannot be had must
        // not keep the others away.
        let mut said = apt(&["update"])?;
        for package in &wanted {
            said.push_str(&apt(&["install", "-y", "--no-install-recommends", package])?);
        }
        let still = self.missing(sources);
        if still.is_empty() {
            return Ok(());
        }
        let last: Vec<&str> = said.lines().filter(|l| l.starts_with("E: ")).collect();
        Err(format!("apt-get could not install {}: {}", still.join(" "), last.join("; ")))
    }
}

/// Packages of the programs that are not here.
fn lacking(all: &'static [(&str, &str)]) -> Vec<&'static str> {
    let lacks = all.iter().filter(|(program, _)| find(program).is_none());
    lacks.flat_map(|(_, packages)| packages.split(' ')).collect()
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
