//! Image files of the host: read in place, read into memory, written sparsely.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use wp_base::plain::Shown as _;
use wp_base::{FsError, FsResult, SECTOR_BYTES, Sector};
use wp_medium::{Medium, Slice, View};

use crate::host::{Existing, Output, Shape, contents};

/// Bytes read at a time when a whole image is taken into memory.
const CHUNK: usize = 1 << 20;

/// Bytes that are kept or left out together when an image is taken into memory.
const PAGE: u64 = 4096;

/// An image file, read in place. Never written.
pub struct FileView {
    file: File,
    bytes: u64,
}

impl FileView {
    /// Opens an image: a file, or a block device. Errors: the host's; others have no length.
    pub fn open(path: &Path) -> io::Result<FileView> {
        // A FIFO would wait for its writer.
        let kind = std::fs::metadata(path)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "neither a file nor a block device",
            ));
        }
        FileView::of_file(File::open(path)?)
    }

    /// An image that is open already. Errors: the host's.
    pub fn of_file(mut file: File) -> io::Result<FileView> {
        // The metadata of a block device have no length.
        let bytes = file.seek(SeekFrom::End(0))?;
        Ok(FileView { file, bytes })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl View for FileView {
    fn len_bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        self.file.read_exact_at(out, at).map_err(|_| FsError::Io)
    }
}

/// The next run of data of a host file at or behind byte `at`: its first byte and its end. All of
/// the file where the host does not report holes (`SEEK_DATA`). `None`: only a hole is left.
pub fn next_data(file: &File, at: u64, bytes: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= bytes {
        return Ok(None);
    }
    let first = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        Ok(first) => first,
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => {
            return Ok(Some((at, bytes)));
        }
        Err(e) => return Err(e.into()),
    };
    let end = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(first)).unwrap_or(bytes).min(bytes);
    Ok((first < end).then_some((first, end)))
}

/// Takes a whole image into memory; holes and runs of zeroes take none, and holes take no time. A
/// torn last sector is an error.
pub fn load(path: &Path) -> io::Result<(Medium, u64)> {
    load_view(&FileView::open(path)?, path)
}

/// The same of an image that is open; `path`: what to call it. Errors: [`load`]'s.
pub fn load_view(view: &FileView, path: &Path) -> io::Result<(Medium, u64)> {
    if !view.bytes.is_multiple_of(SECTOR_BYTES) {
        let what = format!(
            "{}: {} bytes are not a whole number of 512-byte sectors",
            path.shown(),
            view.bytes
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let mut medium = Medium::new();
    let mut buf = vec![0u8; CHUNK];
    let mut at = 0;
    while let Some((first, end)) = next_data(&view.file, at, view.bytes)? {
        // Pages are whole, wherever the data begins and ends.
        at = first / PAGE * PAGE;
        let end = end.next_multiple_of(PAGE).min(view.bytes);
        while at < end {
            let n = (end - at).min(CHUNK as u64) as usize;
            view.file.read_exact_at(&mut buf[..n], at)?;
            for (i, page) in buf[..n].chunks(PAGE as usize).enumerate() {
                if page.iter().any(|b| *b != 0) {
                    let sector = Sector((at + i as u64 * PAGE) / SECTOR_BYTES);
                    medium.write(sector, &Slice::from_bytes(page));
                }
            }
            at += n as u64;
        }
    }
    Ok((medium, view.bytes))
}

/// Writes `bytes` bytes of a medium from `start` on as a sparse file, in place of what has the
/// name. Errors: as [`Output`].
pub fn save(medium: &Medium, start: Sector, bytes: u64, path: &Path) -> io::Result<()> {
    let output = Output::create(path, Shape::Image, Existing::Replace)?;
    save_as(medium, start, bytes, output)
}

/// As [`save`], into an output that was begun. Errors: as [`Output`]; contents that cannot be read
/// back from where they were kept ([`contents`]), and then there is no image.
pub fn save_as(medium: &Medium, start: Sector, bytes: u64, output: Output) -> io::Result<()> {
    let file = output.file();
    file.set_len(bytes)?;
    let end = start.advance(bytes / SECTOR_BYTES);
    for (at, sectors) in medium.runs() {
        let (from, to) = (at.0.max(start.0), (at.0 + sectors).min(end.0));
        let mut done = from;
        while done < to {
            let n = (to - done).min(CHUNK as u64 / SECTOR_BYTES);
            let mut data = Vec::with_capacity(CHUNK);
            for s in medium.read(Sector(done), n as u32) {
                data.extend_from_slice(&s.to_vec());
            }
            if data.iter().any(|b| *b != 0) {
                file.write_all_at(&data, (done - start.0) * SECTOR_BYTES)?;
            }
            done += n;
        }
    }
    if let Some((_, e)) = contents::failure() {
        return Err(e);
    }
    output.commit()
}

/// Bytes in memory.
pub struct Bytes(pub Vec<u8>);

impl View for Bytes {
    fn len_bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        let from = usize::try_from(at).map_err(|_| FsError::Io)?;
        let bytes = from.checked_add(out.len()).and_then(|to| self.0.get(from..to));
        out.copy_from_slice(bytes.ok_or(FsError::Io)?);
        Ok(())
    }
}
