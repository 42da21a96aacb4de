//! Copies of image files: holes and zeroes take no space.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::ioctl_ficlone;
use wp_medium::View;

use super::Target;
use crate::files::{FileView, next_data};
use crate::host::Output;

/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;
/// Bytes of zeroes that become a hole.
const HOLE: usize = 4096;

/// Copies an image, which may have been unpacked from the file `from`, and the mode of that file
/// into an empty output.
///
/// Errors: the host's; `Interrupted` when `stop` is set.
pub fn copy(image: &FileView, from: &Path, to: &Output, stop: &AtomicBool) -> io::Result<()> {
    let (source, bytes, to) = (image.file(), image.len_bytes(), to.file());
    let metadata = std::fs::metadata(from)?;
    if metadata.is_file() {
        to.set_permissions(metadata.permissions())?;
        if ioctl_ficlone(to, source).is_ok() {
            return Ok(());
        }
    }
    to.set_len(bytes)?;
    let mut at = 0;
    while let Some((first, end)) = next_data(source, at, bytes)? {
        copy_range(source, to, first..end, stop)?;
        at = end;
    }
    Ok(())
}

impl Target for Output {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file().write_all_at(bytes, at)
    }

    /// Nobody sees it before it is whole, and it is synced before it gets its name.
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
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
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::host::{Existing, Shape};

    fn view(path: &Path) -> FileView {
        FileView::open(path).expect("there")
    }

    fn output(path: &Path) -> Output {
        Output::create(path, Shape::Image, Existing::Refuse).expect("the name is free")
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
        let out = output(&b);
        copy(&view(&a), &a, &out, &AtomicBool::new(false)).expect("copied");
        out.commit().expect("named");
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
        let out = output(&dir.path().join("b"));
        // Where the host clones there is nothing to interrupt.
        if let Err(e) = copy(&view(&a), &a, &out, &AtomicBool::new(true)) {
            assert_eq!(e.kind(), io::ErrorKind::Interrupted);
        }
        drop(out);
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1);
    }
}
