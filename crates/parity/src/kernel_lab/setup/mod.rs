//! A guest's kernel and root: what they have of what is needed, and how to come by them.
//!
//! Picture:    kernel (`linux --showconfig`), root (its files) -> [`look`] -> [`Looked`]; then a
//!             power cut on each file system ([`Looked::try_out`]), since only that proves it.
//! Sources:    of a kernel: one that is named ([`take`]), or Debian's `linux-source-6.12` with our
//!             configuration (`uml.config`, what differs from the defaults); of a root: one that
//!             is named, or programs of the host ([`build`]).

mod packages;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;
use wp_base::plain::Shown as _;
use wp_machine::host::group;

use self::packages::Needs;
use super::kernel::{BINARY, Kernel};
use super::{FILE_SYSTEMS, Keep, Plan};

/// What a kernel is built with, beside the defaults.
const CONFIG: &str = include_str!("uml.config");
/// Builds a kernel.
const KERNEL_SH: &str = include_str!("kernel.sh");
/// Makes a root.
const ROOT_SH: &str = include_str!("root.sh");
/// The first program of a guest.
const INIT: &str = include_str!("init_uml");
/// Where Debian puts its source of a kernel.
const SOURCES: &str = "/usr/src";
/// Debian's packages of sources and what their files are called.
const SOURCE: (&str, &str) = ("linux-source-", ".tar.xz");
/// The package that is installed where none is.
const SOURCE_PACKAGE: &str = "linux-source-6.12";

/// Options of a kernel without which nothing works, and what each is for.
const NEEDED: [(&str, &str); 9] = [
    ("UML_TIME_TRAVEL_SUPPORT", "Writepath sets its clock"),
    ("VIRTIO_UML", "disks over vhost-user sockets"),
    ("VIRTIO_BLK", "disks over vhost-user sockets"),
    ("HOSTFS", "its root, and files shared with Writepath"),
    ("TMPFS", "its root is read-only"),
    ("PROC_FS", "it reads its command line"),
    ("SYSFS", "it detaches and attaches disks"),
    ("BINFMT_ELF", "it runs programs"),
    ("BINFMT_SCRIPT", "its init is a script"),
];

/// A file system, and who has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Has {
    /// Its name.
    pub fs: &'static str,
    /// Is it built into the kernel?
    pub kernel: bool,
    /// Has the root its mkfs?
    pub mkfs: bool,
    /// What a power cut on it came to; `None`: it was not tried.
    pub tried: Option<Result<String, String>>,
}

/// Something without which nothing works.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Missing {
    /// What.
    pub what: String,
    /// How to come by it.
    pub way_out: String,
}

/// What a kernel and a root have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Looked {
    /// The kernel.
    pub kernel: PathBuf,
    /// The root.
    pub root: PathBuf,
    /// The kernel's version; `None`: it is none, or does not start.
    pub version: Option<String>,
    /// The file systems that [`Plan`] knows.
    pub file_systems: Vec<Has>,
    /// Does the kernel know zones?
    pub zones: bool,
    /// What is missing without which nothing works.
    pub missing: Vec<Missing>,
}

/// Looks at a kernel and a root. The kernel is started for what it says of itself, and does not
/// boot.
pub fn look(kernel: &Path, root: &Path) -> Looked {
    let mut missing = Vec::new();
    let config = said(kernel, "--showconfig").unwrap_or_else(|why| {
        let way_out = "--setup build, or --kernel FILE".to_owned();
        missing.push(Missing { what: why, way_out });
        String::new()
    });
    let mut version = None;
    if is_built_in(&config, "UML") {
        version = said(kernel, "--version").ok().map(|v| v.trim().to_owned());
        let way_out = "build it with this option (--setup build does)";
        for (option, why) in NEEDED.iter().filter(|(option, _)| !is_built_in(&config, option)) {
            let what = format!("{} has no CONFIG_{option}=y: {why}", kernel.shown());
            missing.push(Missing { what, way_out: way_out.to_owned() });
        }
    } else if missing.is_empty() {
        let what = format!("{} is not a User-Mode Linux kernel", kernel.shown());
        missing.push(Missing { what, way_out: "make ARCH=um, or --setup build".to_owned() });
    }
    missing.extend(root_lacks(root));
    let file_systems: Vec<Has> = FILE_SYSTEMS
        .into_iter()
        .map(|fs| {
            let kernel = is_built_in(&config, &format!("{}_FS", fs.to_uppercase()));
            Has { fs, kernel, mkfs: has_program(root, &format!("mkfs.{fs}")), tried: None }
        })
        .collect();
    if !file_systems.iter().any(|has| has.kernel && has.mkfs) {
        let what = "no file system has a driver in the kernel and a mkfs in the root";
        let way_out =
            format!("--setup build, which looks for mkfs.{}", FILE_SYSTEMS.join(", mkfs."));
        missing.push(Missing { what: what.to_owned(), way_out });
    }
    Looked {
        kernel: kernel.to_owned(),
        root: root.to_owned(),
        version,
        file_systems,
        zones: is_built_in(&config, "BLK_DEV_ZONED"),
        missing,
    }
}

/// What a root lacks.
fn root_lacks(root: &Path) -> Vec<Missing> {
    let missing =
        |what: String| Missing { what, way_out: "--setup build, or --root DIR".to_owned() };
    if !root.join("init_uml").is_file() {
        return vec![missing(format!("{} is missing", root.join("init_uml").shown()))];
    }
    let programs = ["sh", "mount", "cp", "chmod", "uname", "cat"];
    let lacks = programs.into_iter().filter(|p| !has_program(root, p));
    lacks.map(|p| missing(format!("{} has no program {p}", root.shown()))).collect()
}

/// Has a root a program? A link in it may lead somewhere that is there for the guest only.
fn has_program(root: &Path, name: &str) -> bool {
    ["bin", "sbin"].iter().any(|dir| root.join(dir).join(name).symlink_metadata().is_ok())
}

/// Is an option of a configuration `y`? A module is none: nobody would load it.
fn is_built_in(config: &str, option: &str) -> bool {
    let is = |line: &str| {
        line.trim().strip_prefix("CONFIG_").and_then(|l| l.split_once('=')) == Some((option, "y"))
    };
    config.lines().any(is)
}

/// What a program says when it is started with an argument. Errors: it is not there or cannot be
/// started.
fn said(program: &Path, argument: &str) -> Result<String, String> {
    if !program.is_file() {
        return Err(format!("{} is missing", program.shown()));
    }
    let out = Command::new(program).arg(argument).stdin(Stdio::null()).output();
    let out = out.map_err(|e| format!("{}: {e}", program.shown()))?;
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

impl Looked {
    /// Is nothing missing without which nothing works?
    pub fn is_usable(&self) -> bool {
        self.missing.is_empty()
            && !self.file_systems.iter().any(|h| matches!(h.tried, Some(Err(_))))
    }

    /// Cuts the power once of each file system that is there, with `scratch` for what is shared;
    /// `note` is told which.
    pub fn try_out(&mut self, scratch: &Path, note: &mut dyn FnMut(&str)) {
        let kernel =
            Kernel { binary: self.kernel.clone(), root: self.root.clone(), memory_mib: 512 };
        for has in self.file_systems.iter_mut().filter(|has| has.kernel && has.mkfs) {
            note(&format!("power failure on {}", has.fs));
            let plan = Plan::new(has.fs);
            let done = super::run(&kernel, &plan, scratch, Keep::default(), &mut |_| false);
            has.tried = Some(done.map(|report| {
                let sound = report.cycles.iter().all(|c| c.is_sound());
                if sound { "mounted again, nothing lost" } else { "mounted again, data lost" }
                    .to_owned()
            }));
        }
    }

    /// As text.
    pub fn table(&self) -> String {
        let version = self.version.as_deref().unwrap_or("unknown");
        let mut out = format!("kernel {}: {version}\n", self.kernel.shown());
        out.push_str(&format!("root   {}\n", self.root.shown()));
        let yes = |is: bool| if is { "yes" } else { "no" };
        out.push_str(&format!("{:8} {:7} {:5} {}\n", "", "kernel", "mkfs", "power failure"));
        for has in &self.file_systems {
            let tried = match &has.tried {
                None => "-",
                Some(Ok(said) | Err(said)) => said.trim(),
            };
            let (kernel, mkfs) = (yes(has.kernel), yes(has.mkfs));
            out.push_str(&format!("{:8} {kernel:7} {mkfs:5} {tried}\n", has.fs));
        }
        out.push_str(&format!("{:8} {}\n", "zones", yes(self.zones)));
        for missing in &self.missing {
            out.push_str(&format!("missing: {}\n  hint: {}\n", missing.what, missing.way_out));
        }
        out
    }
}

/// Where a kernel and a root are put: (kernel, root).
pub fn places(to: &Path) -> (PathBuf, PathBuf) {
    (to.join(BINARY), to.join("root"))
}

/// Copies a kernel and a root to where they are looked for, if they are usable. Errors: what they
/// lack; the host's.
pub fn take(kernel: &Path, root: &Path, to: &Path) -> Result<(), String> {
    let looked = look(kernel, root);
    if let Some(missing) = looked.missing.first() {
        return Err(format!("{}; {}", missing.what, missing.way_out));
    }
    make_folder(to)?;
    let (binary, directory) = places(to);
    copy(kernel, &binary)?;
    copy(root, &directory)
}

/// Builds what was not given: a root of the host's programs, a kernel of its source (`None`: that
/// of Debian's package). What that needs is installed first, by root on Debian. What is done is
/// said on stderr. Errors: what is missing; a build that failed.
pub fn build(
    kernel: Option<&Path>,
    root: Option<&Path>,
    source: Option<&Path>,
    to: &Path,
) -> Result<(), String> {
    if let Some(source) = source.filter(|source| !source.exists()) {
        return Err(format!("{}: no kernel source there", source.shown()));
    }
    let needs = Needs {
        root: root.is_none(),
        kernel: kernel.is_none(),
        source: source.is_none() && kernel.is_none(),
    };
    needs.provide(Path::new(SOURCES))?;
    make_folder(to)?;
    let (binary, directory) = places(to);
    match root {
        Some(root) => copy(root, &directory)?,
        None => make_root(to, &directory)?,
    }
    match kernel {
        Some(kernel) => copy(kernel, &binary),
        None => {
            let source = match source {
                Some(source) => source.to_owned(),
                None => debian_source(Path::new(SOURCES))?,
            };
            make_kernel(&source, to, &binary)
        }
    }
}

/// A root of programs of the host.
fn make_root(to: &Path, directory: &Path) -> Result<(), String> {
    let (fresh, init) = (to.join("root.new"), to.join("init_uml.new"));
    write(&init, INIT)?;
    script(ROOT_SH, &[&fresh, &init])?;
    drop(std::fs::remove_file(&init));
    if directory.exists() {
        std::fs::remove_dir_all(directory).map_err(|e| format!("{}: {e}", directory.shown()))?;
    }
    std::fs::rename(&fresh, directory).map_err(|e| format!("{}: {e}", directory.shown()))
}

/// A kernel of its source. What was built is kept until it is whole, so that a build that was
/// interrupted goes on.
fn make_kernel(source: &Path, to: &Path, binary: &Path) -> Result<(), String> {
    let (work, config) = (to.join("build"), to.join("uml.config"));
    write(&config, CONFIG)?;
    script(KERNEL_SH, &[source, &config, &work])?;
    copy(&work.join("build/linux"), binary)?;
    std::fs::remove_dir_all(&work).map_err(|e| format!("{}: {e}", work.shown()))
}

/// The newest source of a kernel among Debian's packages. Errors: there is none.
fn debian_source(folder: &Path) -> Result<PathBuf, String> {
    let version = |path: &Path| -> Option<Vec<u32>> {
        let name = path.file_name()?.to_str()?;
        let version = name.strip_prefix(SOURCE.0)?.strip_suffix(SOURCE.1)?;
        version.split('.').map(|n| n.parse().ok()).collect()
    };
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.shown()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(|p| version(p).is_some()).max_by_key(|p| version(p)).ok_or_else(|| {
        format!("{}: no kernel source there: apt-get install {SOURCE_PACKAGE}", folder.shown())
    })
}

/// Runs a script of the shell, which says on stderr what it does.
fn script(text: &str, arguments: &[&Path]) -> Result<(), String> {
    let mut command = Command::new("sh");
    let status = group::status(command.args(["-c", text, "setup"]).args(arguments))
        .map_err(|e| format!("sh: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("the setup failed ({status})")) }
}

fn make_folder(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.shown()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.shown()))
}

/// Copies a file or a folder with all that is in it, in place of what is there; itself: nothing.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let real = |path: &Path| path.canonicalize().ok();
    if real(to).is_some() && real(from) == real(to) {
        return Ok(());
    }
    let at = |e: std::io::Error| format!("{}: {e}", to.shown());
    if to.is_dir() {
        std::fs::remove_dir_all(to).map_err(at)?;
    } else if to.exists() {
        std::fs::remove_file(to).map_err(at)?;
    }
    let done = Command::new("cp").args(["-a", "--"]).args([from, to]).output().map_err(at)?;
    if done.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&done.stderr).trim().to_owned())
}

#[cfg(test)]
mod tests;
