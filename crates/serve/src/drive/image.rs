//! An image file of the host as a drive: in place, with no model and no time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use wp_base::{SECTOR_BYTES, Sector};
use wp_block::{Limits, Status};
use wp_medium::Slice;

use super::parts::slices_of;
use super::{Extent, Request, What};

/// The file.
pub(super) struct ImageFile {
    file: File,
    sectors: u64,
    read_only: bool,
}

impl ImageFile {
    /// Opens it. Errors: the host's; a length that is not whole sectors.
    pub fn open(path: &Path, read_only: bool) -> io::Result<ImageFile> {
        let file = File::options().read(true).write(!read_only).open(path)?;
        let bytes = file.metadata()?.len();
        if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES) {
            let why = format!("{bytes} bytes are not a whole number of 512-byte sectors");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(ImageFile { file, sectors: bytes / SECTOR_BYTES, read_only })
    }

    /// What it says of itself.
    pub fn limits(&self) -> Limits {
        Limits {
            queue_depth: 1 << 16,
            max_sectors: 1 << 16,
            max_segments: 1 << 13,
            volatile_cache: true,
            fua: true,
            discard: true,
            discard_granularity_sectors: 8,
            discard_zeroes: true,
            ..Limits::plain(self.sectors)
        }
    }

    /// Does a request, now.
    pub fn serve(&self, rq: &Request) -> (Result<(), Status>, Vec<Slice>) {
        match self.try_serve(rq) {
            Ok(data) => (Ok(()), data),
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                (Err(Status::NotSupported), Vec::new())
            }
            Err(_) => (Err(Status::Io), Vec::new()),
        }
    }

    fn try_serve(&self, rq: &Request) -> io::Result<Vec<Slice>> {
        let at = rq.at.bytes();
        let bytes = rq.sectors * SECTOR_BYTES;
        if rq.what.changes() && self.read_only {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        match rq.what {
            What::Read => {
                let mut data = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
                self.file.read_exact_at(&mut data, at)?;
                return Ok(slices_of(rq.at, &data));
            }
            What::Write => {
                let mut whole = Vec::with_capacity(bytes as usize);
                rq.data.iter().for_each(|s| whole.extend_from_slice(&s.to_vec()));
                self.file.write_all_at(&whole, at)?;
            }
            What::Flush => self.file.sync_data()?,
            What::Discard | What::WriteZeroes { unmap: true } => {
                self.zero(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, bytes)?;
            }
            What::WriteZeroes { unmap: false } => {
                self.zero(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, at, bytes)?;
            }
            What::Zone(_) => return Err(io::ErrorKind::Unsupported.into()),
        }
        if rq.fua && rq.what.changes() {
            self.file.sync_data()?;
        }
        Ok(Vec::new())
    }

    /// Makes a range zero, by the host's short way if it has one.
    fn zero(&self, how: FallocateFlags, at: u64, bytes: u64) -> io::Result<()> {
        match fallocate(&self.file, how, at, bytes) {
            Err(rustix::io::Errno::OPNOTSUPP) => {}
            other => return Ok(other?),
        }
        let zeroes = vec![0; (1 << 20).min(bytes) as usize];
        let mut done = 0;
        while done < bytes {
            let n = (bytes - done).min(zeroes.len() as u64);
            self.file.write_all_at(&zeroes[..n as usize], at + done)?;
            done += n;
        }
        Ok(())
    }

    /// Which part of a range the host has stored; data where it does not say.
    pub fn extents(&self, at: Sector, sectors: u64) -> Vec<Extent> {
        let (mut from, end) = (at.bytes(), at.bytes() + sectors * SECTOR_BYTES);
        let mut out = Vec::new();
        while from < end {
            let data = match seek(&self.file, SeekFrom::Data(from)) {
                Ok(data) => data,
                Err(rustix::io::Errno::NXIO) => end,
                Err(_) => from,
            };
            let (is_hole, to) = match data > from {
                true => (true, data),
                false => (false, seek(&self.file, SeekFrom::Hole(from)).unwrap_or(end)),
            };
            // Holes begin and end where the host's blocks do, so with sectors.
            let to = (to.min(end) / SECTOR_BYTES * SECTOR_BYTES).max(from + SECTOR_BYTES);
            out.push(Extent { sectors: (to - from) / SECTOR_BYTES, is_hole });
            from = to;
        }
        out
    }
}
