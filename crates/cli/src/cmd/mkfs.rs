//! `mkfs`.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use wp_base::Sector;

use crate::output::{Exit, Out};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// File system and its options: `ext4,era=3.4,block_size=1024`.
    fs: String,
    /// Image file to make.
    image: PathBuf,
    /// Size: 64M, 29GiB.
    #[arg(long)]
    size: String,
    /// Replace the file if it is there.
    #[arg(long)]
    force: bool,
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let (fs, options) = match super::file_system(&a.fs) {
        Ok(x) => x,
        Err(e) => {
            return out.fail(Exit::Usage, "fs", &e, "`writepath list fs` shows names and options");
        }
    };
    let bytes = match super::size(&a.size) {
        Ok(b) => b,
        Err(e) => return out.fail(Exit::Usage, "size", &e, ""),
    };
    if a.image.exists() && !a.force {
        return out.fail(
            Exit::Usage,
            "exists",
            &format!("{} exists", a.image.display()),
            "--force replaces it",
        );
    }
    let medium = match (fs.mkfs)(&options, bytes) {
        Ok(m) => m,
        Err(e) => return out.fs_error("mkfs", &e),
    };
    if let Err(e) = wp_lab::files::save(&medium, Sector(0), bytes, &a.image) {
        return out.host_error(&a.image, &e);
    }
    let doc = json!({
        "schema": "writepath.mkfs/1", "fs": fs.name, "image": a.image, "size_bytes": bytes,
    });
    out.result(&doc, &format!("{}: {} of {bytes} bytes\n", a.image.display(), fs.name))
}
