//! Image files that the user names: one, or the devices of one file system with its zones.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use wp_base::plain::Shown as _;
use wp_base::{Zone, zone_report};
use wp_lab::files::FileView;
use wp_lab::registry;
use wp_medium::{Joined, View, WithZones};
use wp_vfs::{FsEntry, Options};

use crate::output::{Exit, Out};

/// Opened image files.
pub struct Images {
    paths: Vec<PathBuf>,
    files: Vec<FileView>,
    /// Of the last device.
    zones: Vec<Zone>,
}

impl Images {
    /// Opens the devices of one file system, in order; `report`: of the zones of the last one, as
    /// `blkzone report` prints it. Errors: already reported to the user.
    pub fn open(paths: &[PathBuf], report: Option<&Path>, out: &Out) -> Result<Images, ExitCode> {
        let open = |p: &PathBuf| FileView::open(p).map_err(|e| out.host_error(p, &e));
        let files = paths.iter().map(open).collect::<Result<_, _>>()?;
        let zones = match report {
            None => Vec::new(),
            Some(report) => {
                let bytes =
                    wp_lab::host::text::bytes(report).map_err(|e| out.host_error(report, &e))?;
                zone_report::parse(&String::from_utf8_lossy(&bytes)).map_err(|e| {
                    let message = format!("{}: {e}", report.shown());
                    let help = "a report is what `blkzone report DEVICE` prints after the crash";
                    out.fail(Exit::Usage, "zones", &message, help)
                })?
            }
        };
        Ok(Images { paths: paths.to_vec(), files, zones })
    }

    /// What to call them in messages.
    pub fn name(&self) -> String {
        let names: Vec<String> = self.paths.iter().map(|p| p.display().to_string()).collect();
        names.join(" + ")
    }

    /// Bytes of each.
    pub fn lengths(&self) -> Vec<u64> {
        self.files.iter().map(View::len_bytes).collect()
    }

    /// Shows them as one image, with the file system on it, to `f`. Errors: reported to the user.
    pub fn with<R>(
        &self,
        out: &Out,
        f: impl FnOnce(&dyn View, &'static FsEntry) -> R,
    ) -> Result<R, ExitCode> {
        let (last, before) = self.files.split_last().expect("clap wants one or more");
        let zoned = WithZones::new(last, self.zones.clone());
        let mut views: Vec<&dyn View> = before.iter().map(|v| -> &dyn View { v }).collect();
        views.push(&zoned);
        let joined = Joined::new(&views);
        let Some(fs) = registry::FILE_SYSTEMS.iter().find(|fs| (fs.probe)(&joined)) else {
            let known: Vec<&str> = registry::FILE_SYSTEMS.iter().map(|f| f.name).collect();
            let message =
                format!("{}: no known file system (known: {})", self.name(), known.join(", "));
            let help = "check for a partition table, an encrypted volume or a truncated image";
            return Err(out.fail(Exit::No, "no-file-system", &message, help));
        };
        Ok(f(&joined, fs))
    }
}

/// The options of a recovery by the rules of kernel `era`; without one, of the newest that the file
/// system has. Errors: reported to the user.
pub fn recovery_options(fs: &FsEntry, era: Option<&str>, out: &Out) -> Result<Options, ExitCode> {
    let era = era.unwrap_or(fs.newest());
    if !fs.models(era) {
        let [oldest, newest] = fs.kernels;
        let known = match oldest == newest {
            true => newest.to_owned(),
            false => format!("{oldest} to {newest}"),
        };
        let message = format!("--era {era}: {} is modelled as in Linux {known}", fs.name);
        let help = format!("leave --era out, or give --era {newest}");
        return Err(out.fail(Exit::Unsupported, "era", &message, &help));
    }
    let mut options = Options::default();
    let set = options.set("era", era, fs.options);
    set.map_err(|e| out.fail(Exit::Usage, "era", &e.to_string(), ""))?;
    Ok(options)
}
