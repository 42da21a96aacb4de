//! New files: whole under their names, or not there at all.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{SeekFrom, ioctl_ficlone, seek};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use super::Target;

/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;
/// Bytes of zeroes that become a hole.
const HOLE: usize = 4096;

/// A file to be, under a private name beside the one that it gets when it is whole. Dropped, it is
/// gone.
pub struct Output {
    file: NamedTempFile,
    to: PathBuf,
}

impl Output {
    /// An empty one for an image, which nobody else can read yet. Errors: the host's;
    /// `AlreadyExists` if anything has that name.
    pub fn new(to: &Path) -> io::Result<Output> {
        Output::with_mode(to, 0o600)
    }

    /// One that holds `text`. Errors: as [`Output::new`].
    pub fn text(to: &Path, text: &str) -> io::Result<Output> {
        let mut output = Output::with_mode(to, 0o666)?;
        output.file.write_all(text.as_bytes())?;
        Ok(output)
    }

    fn with_mode(to: &Path, mode: u32) -> io::Result<Output> {
        if std::fs::symlink_metadata(to).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let parent = match to.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        let file = tempfile::Builder::new()
            .prefix(".writepath-")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(parent)?;
        Ok(Output { file, to: to.to_owned() })
    }

    /// The name that it is to get.
    pub fn path(&self) -> &Path {
        &self.to
    }

    /// Copies an image of `bytes` bytes and its mode into it; holes and zeroes take no space.
    ///
    /// Errors: the host's; `Interrupted` when `stop` is set.
    pub fn copy_from(&mut self, from: &Path, bytes: u64, stop: &AtomicBool) -> io::Result<()> {
        let source = File::open(from)?;
        let to = self.file.as_file();
        let metadata = source.metadata()?;
        if metadata.is_file() {
            to.set_permissions(metadata.permissions())?;
            if ioctl_ficlone(to, &source).is_ok() {
                return Ok(());
            }
        }
        to.set_len(bytes)?;
        let mut at = 0;
        while let Some((first, end)) = data(&source, at, bytes)? {
            copy_range(&source, to, first..end, stop)?;
            at = end;
        }
        Ok(())
    }
}

impl Target for Output {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.as_file().write_all_at(bytes, at)
    }

    /// Nobody sees it before it is whole: [`publish`] syncs.
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Gives all of them their names, or none. Errors: of which file, and the host's.
pub fn publish(outputs: Vec<Output>) -> Result<(), (PathBuf, io::Error)> {
    for o in &outputs {
        o.file.as_file().sync_all().map_err(|e| (o.to.clone(), e))?;
    }
    let mut published: Vec<PathBuf> = Vec::new();
    for Output { file, to } in outputs {
        match file.persist_noclobber(&to) {
            Ok(_) => published.push(to),
            Err(e) => {
                // They were made here, a moment ago: nobody else's.
                published.iter().for_each(|path| drop(std::fs::remove_file(path)));
                return Err((to, e.error));
            }
        }
    }
    for path in &published {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        let dir = File::open(parent.unwrap_or(Path::new(".")));
        // A host file system that cannot sync a directory has nothing to say.
        drop(dir.and_then(|d| d.sync_all()));
    }
    Ok(())
}

/// The next run of data at or behind `at`; all of it where the host does not tell holes.
fn data(file: &File, at: u64, bytes: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= bytes {
        return Ok(None);
    }
    let first = match seek(file, SeekFrom::Data(at)) {
        Ok(first) => first,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((at, bytes))),
        Err(e) => return Err(e.into()),
    };
    let end = seek(file, SeekFrom::Hole(first)).unwrap_or(bytes).min(bytes);
    Ok((first < end).then_some((first, end)))
}

fn copy_range(
    from: &File,
    to: &File,
    range: std::ops::Range<u64>,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut buf = vec![0; CHUNK];
    let mut at = range.start;
    while at < range.end {
        if stop.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let n = (range.end - at).min(CHUNK as u64) as usize;
        from.read_exact_at(&mut buf[..n], at)?;
        for (i, piece) in buf[..n].chunks(HOLE).enumerate() {
            if piece.iter().any(|b| *b != 0) {
                to.write_all_at(piece, at + (i * HOLE) as u64)?;
            }
        }
        at += n as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn go() -> AtomicBool {
        AtomicBool::new(false)
    }

    #[test]
    fn a_copy_keeps_holes_length_and_mode() {
        let dir = tempfile::tempdir().expect("a directory");
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let file = File::create(&a).expect("made");
        file.set_len(2 << 30).expect("sparse");
        file.write_all_at(b"start", 0).expect("written");
        file.write_all_at(b"middle", (1 << 30) + 77).expect("written");
        file.set_permissions(Permissions::from_mode(0o640)).expect("set");
        let mut out = Output::new(&b).expect("free");
        out.copy_from(&a, 2 << 30, &go()).expect("copied");
        publish(vec![out]).expect("named");
        let m = std::fs::metadata(&b).expect("there");
        assert_eq!((m.len(), m.mode() & 0o777), (2 << 30, 0o640));
        assert!(m.blocks() * 512 <= 64 << 10, "{} KiB", m.blocks() / 2);
        let mut got = [0; 6];
        File::open(&b).expect("there").read_exact_at(&mut got, (1 << 30) + 77).expect("read");
        assert_eq!(&got, b"middle");
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 2);
    }

    #[test]
    fn an_interrupted_copy_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let a = dir.path().join("a");
        std::fs::write(&a, [1; 8192]).expect("written");
        let mut out = Output::new(&dir.path().join("b")).expect("free");
        // Where the host clones there is nothing to interrupt.
        if let Err(e) = out.copy_from(&a, 8192, &AtomicBool::new(true)) {
            assert_eq!(e.kind(), io::ErrorKind::Interrupted);
        }
        drop(out);
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1);
    }

    #[test]
    fn names_are_given_to_all_or_none_and_nothing_is_written_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = ["a", "b"].map(|n| dir.path().join(n));
        let all = paths.iter().map(|p| Output::new(p).expect("free")).collect();
        std::fs::write(&paths[1], "mine").expect("written meanwhile");
        let (which, e) = publish(all).expect_err("b is taken");
        assert_eq!((&which, e.kind()), (&paths[1], io::ErrorKind::AlreadyExists));
        assert_eq!(std::fs::read(&paths[1]).expect("there"), b"mine");
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1);
        let dangling = dir.path().join("link");
        std::os::unix::fs::symlink("nowhere", &dangling).expect("linked");
        let refused = Output::new(&dangling).err().expect("a link is something");
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
    }
}
