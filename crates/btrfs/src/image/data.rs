//! Contents of files, verified against their checksums.

use wp_base::{FsError, FsResult};
use wp_vfs::{Digest, Part, TakePart};

use crate::disk::file_extent::{FileExtentHead, compression, extent_type};
use crate::disk::inode::flag;
use crate::disk::misc::{check_csum_item, csum_key};
use crate::disk::{FileExtent, Key, id, index, kind, wide};

use super::{Image, Record};

const SECTOR: u64 = 4096;
/// Bytes that are read at a time.
const STEP: u64 = 128 << 10;
/// Longest target of a symbolic link: what an inline extent holds.
const TARGET_MAX: u64 = 4095;

/// A part of a file that has bytes. What is between pieces reads as zeroes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    /// The bytes themselves, with where they stand on the device.
    Inline(Vec<u8>, u64),
    /// Bytes of an extent.
    Extent {
        /// First byte in the file.
        at: u64,
        /// Its logical address.
        logical: u64,
        /// Bytes.
        bytes: u64,
    },
}

fn refuse_encoded(head: &FileExtentHead) -> FsResult<()> {
    let name = match head.compression {
        compression::NONE => return Ok(()),
        compression::ZLIB => "zlib",
        compression::LZO => "lzo",
        _ => "zstd",
    };
    Err(FsError::Unsupported(format!("btrfs compression: {name}")))
}

impl Image<'_> {
    /// The pieces of a file's contents, in order, with those beyond its size.
    ///
    /// Errors: `Corrupt` for extents that overlap or contradict themselves; `Unsupported` for
    /// compressed ones.
    pub fn pieces(&self, file: &Record) -> FsResult<Vec<Piece>> {
        Ok(self.layout(file)?.0)
    }

    /// The same, and the byte behind the last that has a place, written or not.
    pub fn layout(&self, file: &Record) -> FsResult<(Vec<Piece>, u64)> {
        let mut out = Vec::new();
        let mut last = 0;
        let mut done = 0u64;
        let key = |offset| Key::new(file.ino, kind::EXTENT_DATA, offset);
        self.each(&file.tree, key(0), key(u64::MAX), &mut |item| {
            let at = item.key.offset;
            let extent = FileExtent::load(item.key, item.bytes, item.at)?;
            let fail = |field, found, expected: &str| {
                Err(FsError::corrupt("btrfs file extent", field, item.at, found, expected))
            };
            if at < done {
                return fail("key.offset", at, "behind the extent before it");
            }
            let Some(end) = at.checked_add(extent.len()) else {
                return fail("num_bytes", extent.len(), "an end below 2^64");
            };
            // What is compressed may say any length; it is refused below.
            done = end.checked_next_multiple_of(SECTOR).unwrap_or(u64::MAX);
            match extent {
                FileExtent::Inline(head, data) => {
                    refuse_encoded(&head)?;
                    let place = item.at + wide(FileExtent::INLINE_HEAD);
                    last = end;
                    out.push(Piece::Inline(data.to_vec(), place));
                }
                FileExtent::Regular(e) => {
                    refuse_encoded(&e.head)?;
                    if e.has_place() {
                        last = end;
                    }
                    if e.has_place() && e.head.kind == extent_type::REGULAR {
                        let logical = e.disk_bytenr.get().checked_add(e.offset.get());
                        let Some(logical) = logical else {
                            return fail("disk_bytenr", e.disk_bytenr.get(), "an end below 2^64");
                        };
                        out.push(Piece::Extent { at, logical, bytes: e.num_bytes.get() });
                    }
                }
            }
            Ok(true)
        })?;
        Ok((out, last))
    }

    /// Calls `take` with the contents of a file up to its size, part by part: bytes, or a number of
    /// zeroes.
    fn contents(&self, file: &Record, take: &mut TakePart<'_>) -> FsResult<()> {
        let size = file.inode.size.get();
        let has_sums = file.inode.flags.get() & flag::NODATASUM == 0;
        let mut done = 0u64;
        for piece in self.pieces(file)? {
            match piece {
                Piece::Inline(data, _) => {
                    let n = size.min(wide(data.len()));
                    take(Part::Bytes(data.get(..index(n)).unwrap_or(&[])))?;
                    done = n;
                }
                Piece::Extent { at, logical, bytes } => {
                    if at >= size {
                        break;
                    }
                    take(Part::Zeroes(at - done))?;
                    let mut from = 0;
                    while from < bytes && at + from < size {
                        let n = STEP.min(bytes - from);
                        let data = self.read_data(logical + from, n, has_sums)?;
                        let n = n.min(size - at - from);
                        take(Part::Bytes(data.get(..index(n)).unwrap_or(&[])))?;
                        from += n;
                    }
                    done = at + from;
                }
            }
        }
        take(Part::Zeroes(size - done))
    }

    /// Is all of a file below its size, where it has a place, as its checksums say? Errors: the
    /// first that a read would end in.
    pub(super) fn check_sums(&self, file: &Record, pieces: &[Piece]) -> FsResult<()> {
        if file.inode.flags.get() & flag::NODATASUM != 0 {
            return Ok(());
        }
        let size = file.inode.size.get();
        for piece in pieces {
            let Piece::Extent { at, logical, bytes } = *piece else { continue };
            let below = size.saturating_sub(at).checked_next_multiple_of(SECTOR);
            let (mut from, end) = (0, bytes.min(below.unwrap_or(bytes)));
            while from < end {
                let n = STEP.min(end - from);
                self.read_data(logical + from, n, true)?;
                from += n;
            }
        }
        Ok(())
    }

    /// Reads `bytes` bytes of data, whole sectors, from the first copy whose checksums match.
    pub fn read_data(&self, logical: u64, bytes: u64, has_sums: bool) -> FsResult<Vec<u8>> {
        let sums = if has_sums { self.sums(logical, bytes)? } else { Vec::new() };
        let csum = self.common.csum;
        let mut first_error = None;
        for at in self.chunks.places(logical, bytes)? {
            let mut out = vec![0; index(bytes)];
            if let Err(e) = self.view.read_at(at, &mut out) {
                first_error = first_error.or(Some(e));
                continue;
            }
            let sectors = out.chunks(index(SECTOR)).zip(sums.chunks(csum.bytes()));
            let wrong = sectors.enumerate().find(|(_, (s, sum))| csum.sum(s) != csum.stored(sum));
            let Some((n, (sector, sum))) = wrong else { return Ok(out) };
            let (at, found) = (at + wide(n) * SECTOR, csum.sum(sector));
            let expected = format!("{:#x}", csum.stored(sum));
            let e = FsError::corrupt("btrfs data", "checksum", at, found, expected);
            first_error = first_error.or(Some(e));
        }
        Err(first_error.unwrap_or(FsError::Io))
    }

    /// The checksums of `bytes` bytes of data. Errors: `Corrupt` where one is missing.
    fn sums(&self, logical: u64, bytes: u64) -> FsResult<Vec<u8>> {
        let tree = self.tree_needed(id::CSUM_TREE)?;
        let each = self.common.csum.bytes();
        // An item that begins before may reach up to here: it is no larger than a tree block.
        let reach = wide(self.common.node_bytes / each) * SECTOR;
        let from = csum_key(logical.saturating_sub(reach));
        let end = logical.saturating_add(bytes);
        let mut out: Vec<u8> = Vec::new();
        self.each(&tree, from, csum_key(end.saturating_sub(1)), &mut |item| {
            check_csum_item(item.key, item.bytes.len(), each, item.at)?;
            let next = logical + wide(out.len() / each) * SECTOR;
            let Some(skip) = next.checked_sub(item.key.offset) else { return Ok(false) };
            let rest = item.bytes.get(index(skip / SECTOR).saturating_mul(each)..);
            let most = index((end - next) / SECTOR).saturating_mul(each);
            let rest = rest.unwrap_or(&[]);
            out.extend(rest.iter().take(most));
            Ok(true)
        })?;
        let have = logical + wide(out.len() / each) * SECTOR;
        if have < end {
            let at = self.place(have);
            let expected = format!("a checksum for address {have}");
            return Err(FsError::corrupt("btrfs data", "checksum", at, 0, expected));
        }
        Ok(out)
    }

    /// Where a symbolic link leads. Errors: `Corrupt` for one that is empty or too long.
    pub fn link_target(&self, file: &Record) -> FsResult<Vec<u8>> {
        if !file.inode.is_symlink() {
            return Err(FsError::Invalid("readlink: no symbolic link"));
        }
        let size = file.inode.size.get();
        if size == 0 || size > TARGET_MAX {
            let expected = format!("1 to {TARGET_MAX}");
            return Err(FsError::corrupt("btrfs symlink", "size", file.at, size, expected));
        }
        let mut out = Vec::new();
        self.contents(file, &mut |part| part.append_to(&mut out, index(TARGET_MAX)))?;
        let end = out.iter().position(|b| *b == 0).unwrap_or(out.len());
        out.truncate(end);
        Ok(out)
    }

    /// Digest of a file's contents. `bytes_left`: data that may still be read.
    pub fn sha256(&self, file: &Record, bytes_left: &mut u64) -> FsResult<Digest> {
        Digest::of(bytes_left, |each| self.contents(file, each))
    }
}
