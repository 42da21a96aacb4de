//! Images in containers: packed files, and images of virtual machines and of phones.
//!
//! Picture:    [`open`]: a file -> its kind ([`Kind::of`]) -> unpacked into a temporary file
//!             without a name ([`Store`]), holes and all -> what is in that, at most `DEPTH` deep
//!             -> a [`FileView`] of the raw image.
//! Invariants: 1. no bytes make it panic; memory is bounded by [`packed::MEMORY_BYTES`], and what
//!                comes out by [`Limits`].
//!             2. damage is an error with the byte of the container that it was found at.
//!             3. nothing writes to the container.
//! Left out:   what [`Error::Unsupported`] names: backing files, encryption, external data.
//! Source:     RFC 1952, RFC 8878, the xz file format; QEMU docs/interop/qcow2.rst; AOSP
//!             system/core/libsparse/sparse_format.h.

#![deny(clippy::indexing_slicing)]

pub mod android;
pub mod packed;
pub mod qcow2;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use wp_medium::View;

use crate::files::FileView;

/// Containers within each other: `image.simg.gz` is two.
const DEPTH: usize = 3;
/// Zeroes of this size are left out.
const PAGE: u64 = 4096;

/// A container that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// gzip.
    Gzip,
    /// xz.
    Xz,
    /// zstd.
    Zstd,
    /// QEMU's qcow2, version 2 or 3.
    Qcow2,
    /// Android's sparse image.
    AndroidSparse,
}

impl Kind {
    /// The container in `view`, by its magic.
    pub fn of(view: &dyn View) -> Option<Kind> {
        let mut magic = [0; 6];
        if view.len_bytes() < 6 || view.read_at(0, &mut magic).is_err() {
            return None;
        }
        Some(match magic {
            [0x1f, 0x8b, 8, ..] => Kind::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0] => Kind::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Kind::Zstd,
            [b'Q', b'F', b'I', 0xfb, ..] => Kind::Qcow2,
            [0x3a, 0xff, 0x26, 0xed, ..] => Kind::AndroidSparse,
            _ => return None,
        })
    }

    /// Its name, with an article.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Gzip => "a gzip file",
            Kind::Xz => "an xz file",
            Kind::Zstd => "a zstd file",
            Kind::Qcow2 => "a qcow2 image",
            Kind::AndroidSparse => "an Android sparse image",
        }
    }
}

/// How much may come out of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes that the container holds, zeroes too; holes are free.
    pub data_bytes: u64,
    /// Bytes of the raw image, with holes.
    pub length_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { data_bytes: 64 << 30, length_bytes: 16 << 40 }
    }
}

/// Why a container was not unpacked.
#[derive(Debug)]
pub enum Error {
    /// It is damaged.
    Damaged {
        /// The byte of the container.
        at: u64,
        /// What is wrong there.
        what: String,
    },
    /// It has something that is not read, by name.
    Unsupported(String),
    /// More comes out than the limits allow.
    TooMuch(String),
    /// It cannot be read, or the temporary file cannot be written.
    Host(io::Error),
}

impl Error {
    /// Damage at byte `at`.
    fn damaged(at: u64, what: impl Into<String>) -> Error {
        Error::Damaged { at, what: what.into() }
    }
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        Error::Host(e)
    }
}

/// Where the raw image goes.
pub trait Sink {
    /// Puts bytes at byte `at`; they never overlap. Errors: of the host.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Sets the length. Errors: of the host.
    fn set_len(&mut self, bytes: u64) -> io::Result<()>;
}

/// A sink with limits.
pub struct Store<'s> {
    sink: &'s mut dyn Sink,
    limits: Limits,
    data_bytes: u64,
}

impl<'s> Store<'s> {
    /// An empty one.
    pub fn new(sink: &'s mut dyn Sink, limits: Limits) -> Store<'s> {
        Store { sink, limits, data_bytes: 0 }
    }

    /// Takes data; pages of zeroes stay holes. Errors: `TooMuch`, `Host`.
    fn put(&mut self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let n = bytes.len() as u64;
        self.data_bytes = self.data_bytes.saturating_add(n);
        if self.data_bytes > self.limits.data_bytes {
            let limit = self.limits.data_bytes;
            return Err(Error::TooMuch(format!("more than {limit} bytes of data are in it")));
        }
        if at.checked_add(n).is_none_or(|end| end > self.limits.length_bytes) {
            return Err(self.too_long());
        }
        let mut at = at;
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = usize::try_from(PAGE - at % PAGE).unwrap_or(rest.len());
            let (page, behind) = rest.split_at(room.min(rest.len()));
            if page.iter().any(|b| *b != 0) {
                self.sink.write_at(at, page)?;
            }
            (at, rest) = (at + page.len() as u64, behind);
        }
        Ok(())
    }

    /// Says how long the image is. Errors: `TooMuch`, `Host`.
    fn set_len(&mut self, bytes: u64) -> Result<(), Error> {
        if bytes > self.limits.length_bytes {
            return Err(self.too_long());
        }
        Ok(self.sink.set_len(bytes)?)
    }

    fn too_long(&self) -> Error {
        let limit = self.limits.length_bytes;
        Error::TooMuch(format!("the image in it is longer than {limit} bytes"))
    }
}

impl Sink for File {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }
    fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        File::set_len(self, bytes)
    }
}

/// An opened image.
pub struct Opened {
    /// The raw image.
    pub view: FileView,
    /// The containers that it was in, the outermost first.
    pub containers: Vec<Kind>,
}

/// Opens an image file; one in a container is unpacked into a temporary file that has no name.
///
/// Errors: as [`Error`] says; that of an inner container tells a byte of that one.
pub fn open(path: &Path, limits: Limits) -> Result<Opened, (Error, Option<Kind>)> {
    let mut view = FileView::open(path).map_err(|e| (Error::Host(e), None))?;
    let mut containers = Vec::new();
    while let Some(kind) = Kind::of(&view) {
        let failed = |e: Error| (e, Some(kind));
        if containers.len() >= DEPTH {
            let what = format!("a container more than {DEPTH} deep");
            return Err(failed(Error::Unsupported(what)));
        }
        let mut file = tempfile::tempfile().map_err(|e| failed(Error::Host(e)))?;
        unpack(kind, &view, &mut Store::new(&mut file, limits)).map_err(failed)?;
        view = FileView::of_file(file).map_err(|e| failed(Error::Host(e)))?;
        containers.push(kind);
    }
    Ok(Opened { view, containers })
}

/// Unpacks the container of this kind in `view`. Errors: as [`Error`] says.
pub fn unpack(kind: Kind, view: &dyn View, out: &mut Store<'_>) -> Result<(), Error> {
    match kind {
        Kind::Gzip => packed::gzip(view, out),
        Kind::Xz => packed::xz(view, out),
        Kind::Zstd => packed::zstd(view, out),
        Kind::Qcow2 => qcow2::unpack(view, out),
        Kind::AndroidSparse => android::unpack(view, out),
    }
}

/// `N` bytes at byte `at`. Errors: `Damaged` where the container ends before.
fn bytes_at<const N: usize>(view: &dyn View, at: u64, what: &str) -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    read_at(view, at, &mut bytes, what)?;
    Ok(bytes)
}

/// Fills `out` from byte `at`. Errors: `Damaged` where the container ends before.
fn read_at(view: &dyn View, at: u64, out: &mut [u8], what: &str) -> Result<(), Error> {
    let end = at.checked_add(out.len() as u64);
    if end.is_none_or(|end| end > view.len_bytes()) {
        return Err(Error::damaged(at, format!("the file ends within {what}")));
    }
    view.read_at(at, out).map_err(|e| Error::Host(io::Error::other(e.to_string())))
}

#[cfg(test)]
mod tests;
