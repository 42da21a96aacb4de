//! `cargo xtask pgo`: the bench `fs`, built with a profile of itself.
//!
//! Steps: instrumented build -> all its rows on ext4 and on F2FS, which write down what was called
//! and which way branches went -> build with that -> run. A profile of varmail alone gives nothing:
//! what it seldom calls, or never, is laid out as cold.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::repo;

/// Builds, and runs the bench with `arguments`.
///
/// Errors: no `llvm-profdata` of this compiler; what does not build or run.
pub fn run(arguments: &[&str]) -> Result<bool, String> {
    let root = repo::root()?;
    let dir = repo::target(&root).join("pgo");
    let tool = profdata()?;
    let raw = dir.join("raw");
    if raw.exists() {
        std::fs::remove_dir_all(&raw).map_err(|e| format!("{}: {e}", raw.display()))?;
    }
    println!("pgo: building with counters");
    let first = format!("-Cprofile-generate={}", raw.display());
    bench(&root, &dir.join("first"), &first, &["--no-run"])?;
    for fs in ["ext4", "f2fs"] {
        let arguments = ["--", "--fs", fs];
        bench(&root, &dir.join("first"), &first, &arguments)?;
    }
    let profile = dir.join("profile");
    let merged = Command::new(&tool).arg("merge").arg("-o").arg(&profile).arg(&raw).status();
    if !merged.map_err(|e| format!("{}: {e}", tool.display()))?.success() {
        return Err(format!("{}: the profile cannot be read", tool.display()));
    }
    println!("pgo: building with the profile");
    let second = format!("-Cprofile-use={}", profile.display());
    let rest: Vec<&str> = ["--"].into_iter().chain(arguments.iter().copied()).collect();
    bench(&root, &dir.join("second"), &second, &rest)?;
    Ok(true)
}

/// The bench with flags of the compiler, in a folder of its own.
fn bench(root: &Path, target: &Path, flags: &str, arguments: &[&str]) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["bench", "--quiet", "--package", "wp-machine", "--bench", "fs"])
        .args(arguments)
        // Lines are of no use to it, and take most of the linker's time.
        .envs([("CARGO_PROFILE_BENCH_DEBUG", "0"), ("RUSTFLAGS", flags)])
        .env("CARGO_TARGET_DIR", target)
        .current_dir(root)
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo bench {}", arguments.join(" "))) }
}

/// `llvm-profdata` as the compiler has it: another version cannot read its profiles.
fn profdata() -> Result<PathBuf, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let out = Command::new(rustc)
        .args(["--print", "target-libdir"])
        .output()
        .map_err(|e| format!("rustc: {e}"))?;
    let lib = PathBuf::from(String::from_utf8_lossy(&out.stdout).trim());
    let tool = lib.parent().unwrap_or(Path::new("")).join("bin/llvm-profdata");
    if tool.exists() {
        return Ok(tool);
    }
    Err(format!("{}: not there; `rustup component add llvm-tools` brings it", tool.display()))
}
