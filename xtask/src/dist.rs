//! `cargo xtask dist`: a static program with its manual pages, completions and licences, as one
//! archive that comes out the same every time.
//!
//! Steps: build -> is it static? -> does it run? -> files in place -> SHA256SUMS -> archive, twice,
//! compared. Needs GNU tar, gzip and sha256sum, which every Linux has.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{licences, repo};

const MUSL: &str = "x86_64-unknown-linux-musl";
const GNU: &str = "x86_64-unknown-linux-gnu";

/// Completions: shell, and where a distribution keeps its file.
const SHELLS: &[(&str, &str)] = &[
    ("bash", "share/bash-completion/completions/writepath"),
    ("zsh", "share/zsh/site-functions/_writepath"),
    ("fish", "share/fish/vendor_completions.d/writepath.fish"),
    ("elvish", "share/elvish/lib/writepath.elv"),
    ("powershell", "share/powershell/writepath.ps1"),
];

/// Builds, checks and packs; `binary`: packs that program instead of building one.
pub fn run(binary: Option<&str>) -> Result<bool, String> {
    let root = repo::root()?;
    let program = match binary {
        Some(path) => root.join(path),
        None => build(&root)?,
    };
    let bytes = std::fs::read(&program).map_err(|e| at(&program, &e))?;
    if !is_static(&bytes)? {
        return Err(format!("{}: asks for a loader, so it is not static", program.display()));
    }
    println!("dist: {} asks for no loader", program.display());
    let version = output(Command::new(&program).arg("--version"))?;
    let version = version.trim().rsplit(' ').next().unwrap_or_default().to_owned();
    let name = format!("writepath-{version}-x86_64-linux");
    let dist = repo::target(&root).join("dist");
    let folder = dist.join(&name);
    if dist.exists() {
        std::fs::remove_dir_all(&dist).map_err(|e| at(&dist, &e))?;
    }
    fill(&root, &program, &folder)?;
    let tried = output(
        Command::new(folder.join("bin/writepath"))
            .args(["run", "--workload", "fsync-last,n=1,watch=1", "--out"])
            .arg(dist.join("tried")),
    )?;
    std::fs::remove_dir_all(dist.join("tried")).map_err(|e| at(&dist, &e))?;
    println!("dist: it runs: {}", tried.lines().take(2).collect::<Vec<_>>().join(", "));
    let archive = dist.join(format!("{name}.tar.gz"));
    pack(&folder, &archive)?;
    let again = dist.join("again.tar.gz");
    pack(&folder, &again)?;
    let same = std::fs::read(&archive).ok() == std::fs::read(&again).ok();
    std::fs::remove_file(&again).map_err(|e| at(&again, &e))?;
    if !same {
        return Err("the archive came out different the second time".to_owned());
    }
    let sum = output(
        Command::new("sha256sum").arg(archive.file_name().unwrap_or_default()).current_dir(&dist),
    )?;
    std::fs::write(dist.join("SHA256SUMS"), &sum).map_err(|e| at(&dist, &e))?;
    println!("dist: {}", archive.display());
    print!("{sum}");
    Ok(true)
}

fn at(path: &Path, e: &std::io::Error) -> String {
    format!("{}: {e}", path.display())
}

/// Runs a command for what it prints; its errors go to the terminal.
fn output(command: &mut Command) -> Result<String, String> {
    let done = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("{:?}: {e}", command.get_program()))?;
    if !done.status.success() {
        return Err(format!("{:?} ended with {}", command.get_program(), done.status));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Is the toolchain able to link against musl, C parts (zstd, mimalloc, xz) included?
fn has_musl() -> bool {
    let libs = output(Command::new("rustc").args(["--print", "target-libdir", "--target", MUSL]));
    let has_target = libs.is_ok_and(|dir| Path::new(dir.trim()).exists());
    let has_compiler = Command::new("musl-gcc").arg("--version").output().is_ok();
    has_target && has_compiler
}

/// Builds the program: against musl where that is installed, else against a static glibc.
fn build(root: &Path) -> Result<PathBuf, String> {
    let triple = if has_musl() { MUSL } else { GNU };
    println!("dist: building for {triple}");
    let home =
        std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|h| h + "/.cargo"));
    // No path of this machine in the program.
    let mut flags = vec![
        "-Ctarget-feature=+crt-static".to_owned(),
        "-Cstrip=symbols".to_owned(),
        format!("--remap-path-prefix={}=.", root.display()),
    ];
    flags.extend(home.map(|h| format!("--remap-path-prefix={h}=cargo")));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "--locked", "--package", "writepath", "--target", triple])
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("CC_x86_64_unknown_linux_musl", "musl-gcc")
        .current_dir(root)
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err("the build failed".to_owned());
    }
    Ok(repo::target(root).join(triple).join("release/writepath"))
}

/// Has an ELF file of 64 bits no segment that names a loader (`PT_INTERP`)?
fn is_static(bytes: &[u8]) -> Result<bool, String> {
    const INTERP: u64 = 3;
    let number = |at: usize, len: usize| -> Option<u64> {
        let field = bytes.get(at..at.checked_add(len)?)?;
        Some(field.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
    };
    let parse = || -> Option<bool> {
        if !bytes.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        let mut found = false;
        for n in 0..count {
            found |= number(usize::try_from(table + n * size).ok()?, 4)? == INTERP;
        }
        Some(!found)
    };
    parse().ok_or_else(|| "not a program of 64-bit Linux".to_owned())
}

/// Puts everything in place.
fn fill(root: &Path, program: &Path, folder: &Path) -> Result<(), String> {
    copy(program, &folder.join("bin/writepath"))?;
    for file in [
        "README.md",
        "README.ko.md",
        "CITATION.cff",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "docs/dependencies.md",
    ] {
        copy(&root.join(file), &folder.join("share/doc/writepath").join(file))?;
    }
    for package in licences::linked(root)? {
        let to = format!("share/doc/writepath/licences/{}-{}", package.name, package.version);
        for text in licences::texts(&package) {
            copy(&package.dir.join(&text), &folder.join(&to).join(&text))?;
        }
    }
    output(Command::new(program).args(["man", "--out"]).arg(folder.join("share/man/man1")))?;
    for (shell, path) in SHELLS {
        let text = output(Command::new(program).args(["completions", shell]))?;
        let path = folder.join(path);
        let dir = path.parent().ok_or("a path without a folder")?;
        std::fs::create_dir_all(dir).map_err(|e| at(dir, &e))?;
        std::fs::write(&path, text).map_err(|e| at(&path, &e))?;
    }
    let sums = output(Command::new("sh").current_dir(folder).args([
        "-c",
        "find . -type f ! -name SHA256SUMS | LC_ALL=C sort | xargs -d '\\n' sha256sum",
    ]))?;
    std::fs::write(folder.join("SHA256SUMS"), sums).map_err(|e| at(folder, &e))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let dir = to.parent().ok_or("a path without a folder")?;
    std::fs::create_dir_all(dir).map_err(|e| at(dir, &e))?;
    std::fs::copy(from, to).map(|_| ()).map_err(|e| at(from, &e))
}

/// An archive of a folder whose bytes depend on names and contents only.
fn pack(folder: &Path, archive: &Path) -> Result<(), String> {
    let (parent, name) =
        (folder.parent().ok_or("no parent")?, folder.file_name().ok_or("no name")?);
    let tar = "tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=ustar \
               --mode=u=rwX,go=rX -cf - -- \"$1\" | gzip -n9 > \"$2\"";
    output(Command::new("sh").args(["-ec", tar, "sh"]).arg(name).arg(archive).current_dir(parent))
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_asks_for_a_loader_is_not_static() {
        let own = std::fs::read(std::env::current_exe().expect("a path")).expect("readable");
        let asks = own.windows(8).any(|w| w == b"ld-linux");
        assert_eq!(is_static(&own), Ok(!asks));
        let mut plain = own;
        plain[56..58].copy_from_slice(&[0, 0]);
        assert_eq!(is_static(&plain), Ok(true), "no segments, no loader");
        assert!(is_static(b"#!/bin/sh\n").is_err() && is_static(b"\x7fELF\x02\x01").is_err());
    }

    #[test]
    fn an_archive_depends_on_names_and_contents_only() {
        let scratch = tempfile::tempdir().expect("a folder");
        let made = |n: u32| {
            let folder = scratch.path().join(n.to_string()).join("writepath-0");
            let file = folder.join("bin/writepath");
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            std::fs::write(&file, "program").expect("written");
            let time =
                std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000 * u64::from(n));
            let opened = std::fs::File::options().append(true).open(&file).expect("opened");
            opened.set_modified(time).expect("set");
            let archive = scratch.path().join(format!("{n}.tar.gz"));
            pack(&folder, &archive).expect("packed");
            std::fs::read(archive).expect("there")
        };
        let (one, two) = (made(1), made(2));
        assert!(one.len() > 100 && one == two);
    }
}
