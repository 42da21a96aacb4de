//! `recover`.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use wp_base::SECTOR_BYTES;
use wp_lab::files::FileView;
use wp_lab::registry;
use wp_vfs::Options;

use crate::output::{Exit, Out};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Image file.
    image: PathBuf,
    /// Write the recovered image to this new file and leave the original alone.
    #[arg(long)]
    to: Option<PathBuf>,
    /// Kernel whose recovery rules apply.
    #[arg(long, default_value = "6.18")]
    era: String,
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let view = match FileView::open(&a.image) {
        Ok(v) => v,
        Err(e) => return out.host_error(&a.image, &e),
    };
    let Some(fs) = registry::FILE_SYSTEMS.iter().find(|f| (f.probe)(&view)) else {
        return out.fail(
            Exit::No,
            "no-file-system",
            &format!("{}: no file system that this build knows", a.image.display()),
            "",
        );
    };
    let mut options = Options::default();
    if let Err(e) = options.set("era", &a.era, fs.options) {
        return out.fail(Exit::Usage, "era", &e.to_string(), "");
    }
    let writes = match (fs.recover)(&view, &options) {
        Ok(w) => w,
        Err(e) => return out.fs_error(&a.image.display().to_string(), &e),
    };
    let target = a.to.as_ref().unwrap_or(&a.image);
    if let Some(to) = &a.to {
        if to.exists() {
            return out.fail(
                Exit::Usage,
                "exists",
                &format!("{} exists", to.display()),
                "name a new file",
            );
        }
        if let Err(e) = std::fs::copy(&a.image, to) {
            return out.host_error(to, &e);
        }
    }
    let write = || -> std::io::Result<()> {
        let file = std::fs::OpenOptions::new().write(true).open(target)?;
        for (at, data) in &writes {
            file.write_all_at(&data.to_vec(), at.0 * SECTOR_BYTES)?;
        }
        file.sync_all()
    };
    if let Err(e) = write() {
        return out.host_error(target, &e);
    }
    let doc = json!({
        "schema": "writepath.recover/1", "image": target, "fs": fs.name,
        "pages_written": writes.len(),
    });
    out.result(&doc, &format!("{}: {} pages written\n", target.display(), writes.len()))
}
