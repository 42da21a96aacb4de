//! Image files that the user names: one, or the devices of one file system with its zones.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use wp_base::plain::Shown as _;
use wp_base::{SECTOR_BYTES, Zone, zone_report};
use wp_machine::container::{self, Kind, Limits, Opened};
use wp_machine::files::FileView;
use wp_machine::identify::{self, Identity, Known, Table, Unknown, identify};
use wp_machine::recover::Place;
use wp_machine::registry;
use wp_medium::{Joined, Medium, View, Window, WithZones};
use wp_vfs::{FsEntry, Options};

use crate::output::{Exit, Out};

/// Where in an image file the file system is.
#[derive(clap::Args, Clone, Default)]
pub struct Part {
    /// Read the file system at this byte: 1048576 or 1M [default: 0]
    #[arg(long, value_name = "BYTES", conflicts_with = "partition")]
    offset: Option<String>,
    /// Read this partition of an MBR or GPT, numbered as Linux does
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
}

impl Part {
    /// Is all of the file meant?
    pub fn is_whole(&self) -> bool {
        self.offset.is_none() && self.partition.is_none()
    }

    /// Where it is in a file. Errors: reported to the user.
    fn place(&self, view: &FileView, name: &str, out: &Out) -> Result<Place, ExitCode> {
        let len = view.len_bytes();
        if let Some(text) = &self.offset {
            let wrong = |why: &str| {
                let message = format!("--offset {text}: {why}");
                let help =
                    format!("{name} has {len} bytes; `fdisk -l {name}` shows its partitions");
                out.fail(Exit::Usage, "offset", &message, &help)
            };
            let at = crate::cmd::size(text).map_err(|e| wrong(&e))?;
            if !at.is_multiple_of(SECTOR_BYTES) {
                return Err(wrong("not a whole number of 512-byte sectors"));
            }
            if at >= len {
                return Err(wrong("behind the end of the file"));
            }
            return Ok(Place { at, bytes: len - at });
        }
        let Some(number) = self.partition else { return Ok(Place { at: 0, bytes: len }) };
        let fail = |exit, message: &str, help: &str| {
            Err(out.fail(exit, "partition", &format!("{name}: {message}"), help))
        };
        if let Some(known) = identify::container(view) {
            return Err(not_read(name, known.name, &known.help(&quoted(name)), out));
        }
        let Some(table) = wp_machine::identify::partitions(view) else {
            let message = format!("--partition {number}: no partition table");
            return fail(Exit::Usage, &message, "leave --partition out, or use --offset BYTES");
        };
        let Some(p) = table.partitions.iter().find(|p| p.number == number) else {
            let message = format!("--partition {number}: not in the {} table", table.scheme);
            return fail(Exit::Usage, &message, &listed(view, &table));
        };
        if p.at.checked_add(p.bytes).is_none_or(|end| end > len) {
            let message = format!(
                "partition {number} is bytes {} to {} of a file of {len} bytes",
                p.at,
                p.at.saturating_add(p.bytes)
            );
            return fail(Exit::No, &message, "the image is truncated: copy all of the device");
        }
        Ok(Place { at: p.at, bytes: p.bytes })
    }
}

/// Opened image files.
pub struct Images {
    paths: Vec<PathBuf>,
    files: Vec<FileView>,
    /// Is one of them unpacked from a container?
    is_unpacked: bool,
    places: Vec<Place>,
    /// Of the last device.
    zones: Vec<Zone>,
}

impl Images {
    /// Opens the devices of one file system, in order; `report`: of the zones of the last one, as
    /// `blkzone report` prints it. Errors: already reported to the user.
    pub fn open(
        paths: &[PathBuf],
        part: &Part,
        report: Option<&Path>,
        out: &Out,
    ) -> Result<Images, ExitCode> {
        if report.is_some() && !part.is_whole() {
            let message = "--zones reads whole devices, not --offset or --partition";
            return Err(out.fail(Exit::Usage, "offset", message, "leave one of them out"));
        }
        let opened: Vec<Opened> = paths.iter().map(|p| open(p, out)).collect::<Result<_, _>>()?;
        let is_unpacked = opened.iter().any(|o| !o.containers.is_empty());
        let files: Vec<FileView> = opened.into_iter().map(|o| o.view).collect();
        let place = |(f, p): (&FileView, &PathBuf)| part.place(f, &p.shown(), out);
        let places = files.iter().zip(paths).map(place).collect::<Result<_, _>>()?;
        let zones = match report {
            None => Vec::new(),
            Some(report) => {
                let bytes = wp_machine::host::text::bytes(report)
                    .map_err(|e| out.host_error(report, &e))?;
                zone_report::parse(&String::from_utf8_lossy(&bytes)).map_err(|e| {
                    let message = format!("{}: {e}", report.shown());
                    let help = "a report is what `blkzone report DEVICE` prints after the crash";
                    out.fail(Exit::Usage, "zones", &message, help)
                })?
            }
        };
        Ok(Images { paths: paths.to_vec(), files, is_unpacked, places, zones })
    }

    /// What to call them in messages.
    pub fn name(&self) -> String {
        let names: Vec<String> = self.paths.iter().map(|p| p.display().to_string()).collect();
        names.join(" + ")
    }

    /// The raw images.
    pub fn files(&self) -> &[FileView] {
        &self.files
    }

    /// Is one of them in a container, where it cannot be written?
    pub fn is_unpacked(&self) -> bool {
        self.is_unpacked
    }

    /// Bytes of each raw image.
    pub fn lengths(&self) -> Vec<u64> {
        self.files.iter().map(View::len_bytes).collect()
    }

    /// Where in each file the file system is.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Shows them as one image, with the file system on it, to `f`. Errors: reported to the user.
    pub fn with<R>(
        &self,
        out: &Out,
        f: impl FnOnce(&dyn View, &'static FsEntry) -> R,
    ) -> Result<R, ExitCode> {
        let part =
            |(f, p): (_, &Place)| Window::new(f, p.at, p.bytes).expect("places are in files");
        let parts: Vec<Window<'_>> =
            self.files.iter().map(|f| -> &dyn View { f }).zip(&self.places).map(part).collect();
        let (last, before) = parts.split_last().expect("clap wants one or more");
        let zoned = WithZones::new(last, self.zones.clone());
        let mut views: Vec<&dyn View> = before.iter().map(|v| -> &dyn View { v }).collect();
        views.push(&zoned);
        let joined = Joined::new(&views);
        let fs = file_system(&joined, &self.name(), out)?;
        Ok(f(&joined, fs))
    }
}

/// The file system of an image. Errors: reported to the user, by what the image is instead.
pub fn file_system(view: &dyn View, name: &str, out: &Out) -> Result<&'static FsEntry, ExitCode> {
    match identify(view) {
        Identity::FileSystem(fs) => Ok(fs),
        Identity::Known(known) => Err(not_read(name, known.name, &known.help(&quoted(name)), out)),
        Identity::Table(table) => Err(is_table(view, name, &table, out)),
        Identity::Unknown(why) => {
            let known: Vec<&str> = registry::FILE_SYSTEMS.iter().map(|f| f.name).collect();
            let known = known.join(", ");
            let (what, help) = match why {
                Unknown::Empty => ("the file is empty".to_owned(), "name another image".to_owned()),
                Unknown::Short => (
                    "no known file system: the file ends before byte 2048".to_owned(),
                    "it is truncated: copy all of the device".to_owned(),
                ),
                Unknown::Zeroes => (
                    "no known file system: its first 128 KiB are zero".to_owned(),
                    "`writepath mkfs FS FILE --size BYTES` makes one; --offset BYTES reads one \
                     further behind"
                        .to_owned(),
                ),
                Unknown::Copy { fs, at, fix } => (
                    format!("the first super block of {fs} is gone; a copy is at byte {at}"),
                    fix.replace("{}", &quoted(name)),
                ),
                Unknown::Other => (
                    format!("no known file system (known: {known})"),
                    "`file -s` and `blkid -p` know more formats; the image may be encrypted or \
                     truncated"
                        .to_owned(),
                ),
            };
            Err(out.fail(Exit::No, "no-file-system", &format!("{name}: {what}"), &help))
        }
    }
}

/// Opens an image file, in a container or not. Errors: reported to the user.
pub fn open(path: &Path, out: &Out) -> Result<Opened, ExitCode> {
    container::open(path, Limits::default()).map_err(|(e, kind)| {
        let name = path.shown();
        let what = kind.map_or("a container", Kind::name);
        let help = known_container(path).map_or_else(String::new, |k| k.help(&quoted(&name)));
        match e {
            container::Error::Damaged { at, what: wrong } => {
                let message = format!("{name}: {what}, damaged at byte {at}: {wrong}");
                out.fail(Exit::No, "container", &message, "copy or download the file again")
            }
            container::Error::Unsupported(feature) => {
                let message = format!("{name}: {feature} is not supported");
                out.fail(Exit::Unsupported, "unsupported", &message, &help)
            }
            container::Error::TooMuch(why) => {
                let message = format!("{name}: {what}: {why}");
                out.fail(Exit::Unsupported, "container-limit", &message, &help)
            }
            container::Error::Host(e) => out.host_error(path, &e),
        }
    })
}

/// What the file itself is, if it is a container.
fn known_container(path: &Path) -> Option<Known> {
    FileView::open(path).ok().and_then(|view| identify::container(&view))
}

/// Refuses an image that is loaded as the contents of a device, and is none: a container. Errors:
/// reported to the user.
pub fn refuse_container(path: &Path, out: &Out) -> Result<(), ExitCode> {
    let view = FileView::open(path).map_err(|e| out.host_error(path, &e))?;
    let name = path.shown();
    match identify::container(&view) {
        Some(known) => Err(not_read(&name, known.name, &known.help(&quoted(&name)), out)),
        None => Ok(()),
    }
}

/// Loads an image to mount, in a container or not. One that holds no file system to mount is
/// refused: another format, a partition table. What nothing is known of is left to the mount.
/// Errors: reported to the user.
pub fn load(path: &Path, out: &Out) -> Result<(Medium, u64), ExitCode> {
    let view = open(path, out)?.view;
    match identify(&view) {
        Identity::Known(_) | Identity::Table(_) => {
            file_system(&view, &path.shown(), out)?;
        }
        Identity::FileSystem(_) | Identity::Unknown(_) => {}
    }
    wp_machine::files::load_view(&view, path).map_err(|e| out.host_error(path, &e))
}

/// A file name as a shell takes it in a hint.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/+-".contains(c);
    match name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', "'\\''")),
    }
}

fn not_read(name: &str, what: &str, help: &str, out: &Out) -> ExitCode {
    out.fail(
        Exit::Unsupported,
        "unsupported",
        &format!("{name}: {what}, not an image that can be read"),
        help,
    )
}

fn is_table(view: &dyn View, name: &str, table: &Table, out: &Out) -> ExitCode {
    let n = table.partitions.len();
    let s = if n == 1 { "" } else { "s" };
    let mut message = format!("{name}: {} partition table with {n} partition{s}", table.scheme);
    if let Some(fault) = table.fault {
        message += &format!(" ({fault})");
    }
    if n == 0 && table.fault.is_some() {
        let help = "`gdisk -l` shows what is left of it; --offset BYTES reads a file system";
        return out.fail(Exit::No, "partition-table", &message, help);
    }
    out.fail(Exit::Usage, "partition-table", &message, &listed(view, table))
}

/// The partitions of a table, as a hint: most have a few.
fn listed(view: &dyn View, table: &Table) -> String {
    const MOST: usize = 8;
    let each = table.partitions.iter().take(MOST).map(|p| {
        let what = match Window::new(view, p.at, p.bytes).map(|w| identify(&w)) {
            None => "behind the end of the file",
            Some(Identity::FileSystem(fs)) => fs.name,
            Some(Identity::Known(known)) => known.name,
            Some(Identity::Table(_)) => "a partition table",
            Some(Identity::Unknown(_)) => "no known file system",
        };
        format!("{} at byte {} ({what})", p.number, p.at)
    });
    let all = each.collect::<Vec<_>>().join(", ");
    let more = match table.partitions.len().saturating_sub(MOST) {
        0 => String::new(),
        n => format!(", and {n} more"),
    };
    match table.partitions.is_empty() {
        true => "--offset BYTES reads a file system that no partition has".to_owned(),
        false => format!("inspect, fsck and recover read --partition N: {all}{more}"),
    }
}

/// The options of a recovery by the rules of kernel `era`; without one, of the newest that the file
/// system has. Errors: reported to the user.
pub fn recovery_options(fs: &FsEntry, era: Option<&str>, out: &Out) -> Result<Options, ExitCode> {
    let era = era.unwrap_or(fs.newest());
    if let Err(message) = fs.check_era(era) {
        let help = format!("leave --era out, or give --era {}", fs.newest());
        return Err(out.fail(Exit::Unsupported, "era", &message, &help));
    }
    let mut options = Options::default();
    let set = options.set("era", era, fs.options);
    set.map_err(|e| out.fail(Exit::Usage, "era", &e.to_string(), ""))?;
    Ok(options)
}
