//! `mkfs`.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use wp_base::plain::Shown as _;
use wp_base::{FsError, Sector};
use wp_machine::host::Shape;
use wp_vfs::{FsEntry, Options};

use crate::output::{Exit, Out, path};
use crate::outputs;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath mkfs ext4 disk.img --size 64M\n\
    \x20 writepath mkfs f2fs,era=5.14 disk.img --size 1GiB --force")]
pub struct Args {
    /// File system and options, such as ext4,era=3.4,block_size=1024
    ///
    /// The option `era` is the kernel version; without it that is the default of `writepath list
    /// fs` (ext4: 4.6), which lists all options.
    fs: String,
    /// Image file to write
    image: PathBuf,
    /// Size of the image: 64M, 29GiB
    #[arg(long)]
    size: String,
    /// Replace an existing file
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
    let how = (Shape::Image, a.force);
    let image = match outputs::forced(&a.image, how, "--force replaces it", out) {
        Ok(image) => image,
        Err(code) => return code,
    };
    let medium = match (fs.mkfs)(&options, bytes) {
        Ok(m) => m,
        Err(FsError::NoSpace) => return too_small((fs, &options), bytes, out),
        Err(e) => return out.fs_error("mkfs", &e),
    };
    if let Err(e) = wp_machine::files::save_as(&medium, Sector(0), bytes, image) {
        return out.host_error(&a.image, &e);
    }
    let doc = json!({
        "schema": "writepath.mkfs/1", "fs": fs.name, "image": path(&a.image), "size_bytes": bytes,
    });
    out.result(&doc, &format!("{}: {} of {bytes} bytes\n", a.image.shown(), fs.name))
}

/// Sizes are looked for in steps of so much, up to so much.
const STEP: u64 = 1 << 20;
const MOST: u64 = 1 << 40;

/// Says how large the file system has to be at least.
fn too_small((fs, options): (&FsEntry, &Options), bytes: u64, out: &Out) -> ExitCode {
    let what = format!("mkfs: {bytes} bytes are too small for {} with these options", fs.name);
    match least(fs, options, bytes) {
        Some(mib) => {
            let least = format!("use at least --size {mib}M; other options change the minimum");
            out.fail(Exit::Usage, "too-small", &what, &least)
        }
        None => out.fail(Exit::Usage, "too-small", &what, "use a larger --size or other options"),
    }
}

/// The least size in MiB that will do, if one up to [`MOST`] does: by doubling, then by halves.
fn least(fs: &FsEntry, options: &Options, bytes: u64) -> Option<u64> {
    let does = |steps: u64| (fs.mkfs)(options, steps * STEP).is_ok();
    let mut low = bytes / STEP;
    let mut high = low.max(1);
    while !does(high) {
        low = high;
        high = high.checked_mul(2).filter(|h| *h <= MOST / STEP)?;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if does(middle) { high = middle } else { low = middle }
    }
    Some(high)
}
