//! `cargo xtask wheel [--quick]`: the Python package as a wheel, and its sources (sdist).
//!
//! maturin does both; it is a Python program (`pip install maturin`).

use std::process::Command;

use crate::repo;

/// Builds the wheel and the sdist in `target/wheels`; `quick`: only the wheel, from the dev
/// profile.
pub fn run(quick: bool) -> Result<bool, String> {
    let root = repo::root()?;
    let out = repo::target(&root).join("wheels");
    let maturin = |words: &[&str]| {
        let mut command = Command::new("maturin");
        // pyproject.toml, which says where the crate is, is taken from here.
        command.current_dir(&root).args(words).arg("--out").arg(&out);
        let status = command.status();
        let status = status.map_err(|e| format!("maturin: {e} (pip install maturin)"))?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("maturin {}: {status}", words.join(" "))),
        }
    };
    if quick {
        maturin(&["build", "--profile", "dev"])?;
    } else {
        maturin(&["build", "--release"])?;
        maturin(&["sdist"])?;
    }
    println!("wheel: in {}", out.display());
    Ok(true)
}
