//! Files that a command makes for its user.
//!
//! Picture:    [`Output::create`] before work begins (the directory, permissions and what is there
//!             are known then) -> an exclusive name in the same directory -> written -> synced ->
//!             [`Output::commit`] renames it.
//! Invariants: 1. the final name has the old contents or the whole new ones, or nothing;
//!             2. an output that is not committed leaves nothing;
//!             3. nothing but a regular file is ever replaced. Text goes through a pipe, a terminal
//!                or `/dev/null`; an image needs a regular file.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use wp_base::plain;
use wp_base::plain::Shown as _;

use super::leftover::{Held, Leftover, hold};

/// What is done to a file that has the name already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// It stays: `AlreadyExists`.
    Refuse,
    /// The output takes its place, its mode and, if the host permits it, its owner.
    Replace,
}

/// What is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Bytes in order, which a pipe or terminal takes as well.
    Text,
    /// Places of a file, in any order.
    Image,
}

/// An output under way.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    file: File,
    /// `None`: what is written goes through at once.
    renamed: Option<Renamed>,
}

#[derive(Debug)]
struct Renamed {
    temporary: PathBuf,
    target: PathBuf,
    old: Option<Metadata>,
    existing: Existing,
    held: Held,
}

impl Output {
    /// Begins an output. Of a link that leads to a regular file, that file is the output.
    ///
    /// Errors: the host's; something has the name (see [`Existing`]); what has the name cannot take
    ///         this `shape`; a link that leads nowhere, or one of another user in a directory that
    ///         everybody can write to.
    pub fn create(path: &Path, shape: Shape, existing: Existing) -> io::Result<Output> {
        if let Some(file) = own_stream(path)? {
            return Output::through(path, file, shape);
        }
        let old = what_is_there(path)?;
        match &old {
            Some(old) if old.is_dir() => return Err(other("it is a directory")),
            Some(old) if !old.is_file() => return Output::node(path, old, shape),
            Some(_) if existing == Existing::Refuse => {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists"));
            }
            _ => {}
        }
        let target = match std::fs::symlink_metadata(path) {
            Ok(link) if link.is_symlink() => std::fs::canonicalize(path)?,
            _ => path.to_owned(),
        };
        let ((file, temporary), held) = hold(|| temporary(&target))?;
        let renamed = Some(Renamed { temporary, target, old, existing, held });
        Ok(Output { path: path.to_owned(), file, renamed })
    }

    /// Something that is no regular file and no directory.
    fn node(path: &Path, old: &Metadata, shape: Shape) -> io::Result<Output> {
        let kind = old.file_type();
        if kind.is_block_device() {
            return Err(other("it is a block device: write a file, and copy it there with dd"));
        }
        if kind.is_socket() {
            return Err(other("it is a socket"));
        }
        refuse_image(shape)?;
        Output::through(path, open_node(path)?, shape)
    }

    fn through(path: &Path, file: File, shape: Shape) -> io::Result<Output> {
        refuse_image(shape)?;
        Ok(Output { path: path.to_owned(), file, renamed: None })
    }

    /// The name that it was asked for by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that is written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives it its final name, synced.
    ///
    /// Errors: the host's; then nothing is left. `AlreadyExists`: a file was made under the name
    ///         meanwhile and is not to be replaced; what was written has the first free name of
    ///         `NAME.1`, `NAME.2`, …, which the error tells.
    pub fn commit(self) -> io::Result<()> {
        self.sync()?;
        self.give_name(true, true)
    }

    /// Everything but its name is on stable storage.
    fn sync(&self) -> io::Result<()> {
        let Some(Renamed { old, .. }) = &self.renamed else { return Ok(()) };
        if let Some(old) = old {
            // Only root may give files away; what it cannot keep is the new file's.
            drop(fchown(&self.file, Some(old.uid()), Some(old.gid())));
            self.file.set_permissions(old.permissions())?;
        }
        self.file.sync_all()
    }

    /// Errors: as [`Output::commit`]; without `keeps`, what was written goes in any case.
    /// `syncs`: the name is on stable storage, too.
    fn give_name(self, keeps: bool, syncs: bool) -> io::Result<()> {
        let Some(Renamed { temporary, target, existing, held, .. }) = self.renamed else {
            return Ok(());
        };
        let mut kept = None;
        held.release(|| match existing {
            Existing::Replace => std::fs::rename(&temporary, &target),
            Existing::Refuse => match rename_new(&temporary, &target) {
                Err(e) if keeps && e.kind() == io::ErrorKind::AlreadyExists => {
                    kept = Some(rename_beside(&temporary, &target)?);
                    Ok(())
                }
                done => done,
            },
        })?;
        // Not every file system can sync a directory.
        if syncs {
            drop(File::open(folder_of(&target)).and_then(|d| d.sync_all()));
        }
        let Some(kept) = kept else { return Ok(()) };
        let why = format!(
            "another process created this file; the output is in {}",
            plain::name(&kept.to_string_lossy())
        );
        Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Gives new files their names: all of them or none. Errors: of which file, and as
/// [`Output::commit`]; those that replace a file stay.
pub fn commit_all(outputs: Vec<Output>) -> Result<(), (PathBuf, io::Error)> {
    for output in &outputs {
        output.sync().map_err(|e| (output.path.clone(), e))?;
    }
    let mut new: Vec<PathBuf> = Vec::new();
    for output in outputs {
        let path = output.path.clone();
        let made = output.renamed.as_ref().filter(|r| r.old.is_none()).map(|r| r.target.clone());
        if let Err(e) = output.give_name(false, true) {
            // They were made here, a moment ago: nobody else's.
            new.iter().for_each(|path| drop(std::fs::remove_file(path)));
            return Err((path, e));
        }
        new.extend(made);
    }
    Ok(())
}

/// Writes a whole file. Errors: as [`Output::create`] and [`Output::commit`].
pub fn write(path: &Path, bytes: &[u8], existing: Existing) -> io::Result<()> {
    let mut output = Output::create(path, Shape::Text, existing)?;
    output.write_all(bytes)?;
    output.commit()
}

/// Writes a whole file in place of any other, and waits for no disk: after a power failure of the
/// host it may be empty or gone. For what can be made again and is checked when it is read.
///
/// Errors: as [`write()`].
pub fn write_unsynced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut output = Output::create(path, Shape::Text, Existing::Replace)?;
    output.write_all(bytes)?;
    output.give_name(true, false)
}

/// Can files be made below `folder`, which need not exist? Nothing is made. Errors: why not.
pub fn try_folder(folder: &Path) -> io::Result<()> {
    use rustix::fs::{Access, access};
    let absolute = std::path::absolute(folder)?;
    let there = absolute.ancestors().find(|p| p.symlink_metadata().is_ok());
    let there = there.unwrap_or(Path::new("/"));
    let wrong = |why: &str| {
        let what = if there == absolute { String::new() } else { format!("{}: ", there.shown()) };
        other(&format!("{what}{why}"))
    };
    match std::fs::metadata(there) {
        Ok(m) if !m.is_dir() => return Err(wrong("not a directory")),
        Ok(_) => {}
        Err(e) => return Err(wrong(&e.to_string())),
    }
    access(there, Access::WRITE_OK | Access::EXEC_OK).map_err(|e| {
        let e = io::Error::from(e);
        io::Error::new(e.kind(), wrong(&e.to_string()).to_string())
    })
}

fn other(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Our own standard streams, which must not be opened anew: a file behind them would be written
/// from its beginning.
fn own_stream(path: &Path) -> io::Result<Option<File>> {
    let Some(path) = path.to_str() else { return Ok(None) };
    let fd = match path {
        "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" => {
            io::stdout().as_fd().try_clone_to_owned()?
        }
        "/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2" => {
            io::stderr().as_fd().try_clone_to_owned()?
        }
        _ => return Ok(None),
    };
    Ok(Some(File::from(fd)))
}

fn refuse_image(shape: Shape) -> io::Result<()> {
    match shape {
        Shape::Text => Ok(()),
        Shape::Image => Err(other("it is not a regular file: an image needs one")),
    }
}

pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What has a name, behind its links. Errors: the host's; a link that is not to be followed.
fn what_is_there(path: &Path) -> io::Result<Option<Metadata>> {
    let missing = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
    match std::fs::symlink_metadata(path) {
        Ok(m) if m.is_symlink() => check_owner(path, &m)?,
        Ok(m) => return Ok(Some(m)),
        Err(e) if missing(&e) => return Ok(None),
        Err(e) => return Err(e),
    }
    match std::fs::metadata(path) {
        Ok(m) => Ok(Some(m)),
        Err(e) if missing(&e) => Err(other("it is a dangling symbolic link")),
        Err(e) => Err(e),
    }
}

/// The kernel's rule of `fs.protected_symlinks`: in a directory that everybody can write to, only
/// links of this user or of the directory's owner are followed.
fn check_owner(path: &Path, link: &Metadata) -> io::Result<()> {
    const STICKY_FOR_ALL: u32 = 0o1002;
    let folder = std::fs::metadata(folder_of(path))?;
    let is_open = folder.mode() & STICKY_FOR_ALL == STICKY_FOR_ALL;
    let own = rustix::process::geteuid().as_raw();
    if is_open && link.uid() != own && link.uid() != folder.uid() {
        let why = "it is a symbolic link of another user";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

/// A new file beside `target`, with the mode that the umask leaves.
fn temporary(target: &Path) -> io::Result<((File, PathBuf), Leftover)> {
    let name = target.file_name().ok_or_else(|| other("it names no file"))?;
    // A name may be as long as the directory permits; ours is in front of its beginning only.
    let start: String = name.to_string_lossy().chars().take(32).collect();
    let made = tempfile::Builder::new()
        .prefix(&format!(".{start}."))
        .suffix(".unfinished")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder_of(target));
    // The library's error names its temporary file; the caller names the output.
    let made = made.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => io::Error::new(e.kind(), "no such directory"),
        kind => e.get_ref().and_then(|e| e.downcast_ref::<io::Error>()).map_or_else(
            || io::Error::new(kind, kind.to_string()),
            |e| e.raw_os_error().map_or(kind.into(), io::Error::from_raw_os_error),
        ),
    })?;
    let (file, path) = made.keep().map_err(|e| e.error)?;
    // A signal's handler may remove it when the working directory is another one.
    let path = std::path::absolute(path)?;
    Ok(((file, path.clone()), Leftover::File(path)))
}

/// Opens a pipe or a device for writing. Errors: the host's; a pipe that nobody reads, for whose
/// reader open(2) would wait.
fn open_node(path: &Path) -> io::Result<File> {
    use rustix::fs::{OFlags, fcntl_setfl, open};
    use rustix::io::Errno;
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match open(path, flags, rustix::fs::Mode::empty()) {
        Err(Errno::NXIO) => {
            return Err(other("no process reads this pipe: start its reader first"));
        }
        opened => File::from(opened?),
    };
    fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

/// Renames, and replaces nothing but an empty directory. Errors: the host's; `AlreadyExists`: there
/// is something of that name.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // NFS and 9p do not have the flag.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => rename_without_flag(from, to),
        done => Ok(done?),
    }
}

/// As [`rename_new`]: rename(2) of a directory replaces an empty directory at most, and a second
/// link replaces nothing.
fn rename_without_flag(from: &Path, to: &Path) -> io::Result<()> {
    if !std::fs::symlink_metadata(from)?.is_dir() {
        std::fs::hard_link(from, to)?;
        return std::fs::remove_file(from);
    }
    std::fs::rename(from, to).map_err(|e| match e.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory => {
            io::ErrorKind::AlreadyExists.into()
        }
        _ => e,
    })
}

/// Renames to the first free name of `NAME.1`, `NAME.2`, …, and returns it. Errors: as
/// [`rename_new`].
fn rename_beside(from: &Path, to: &Path) -> io::Result<PathBuf> {
    const TRIES: u32 = 1000;
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for n in 1..=TRIES {
        let mut name = to.as_os_str().to_owned();
        name.push(format!(".{n}"));
        match rename_new(from, Path::new(&name)) {
            Ok(()) => return Ok(name.into()),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => last = e,
            Err(e) => return Err(e),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests;
