//! qcow2, versions 2 and 3: a header, a table of tables (L1), tables (L2), clusters.
//!
//! Invariants: the entries that are read are at most `ENTRIES_MAX`, however many tables are the
//!             same; what is unpacked is bounded by the limits of the store.
//! Left out:   by name: backing files, encryption, external data files, extended L2 entries,
//!             clusters packed with zstd. Snapshots, bitmaps and reference counts are not read.

use wp_medium::View;

use super::packed::deflate;
use super::{Error, Store, bytes_at, read_at};

/// Entries of L2 tables that are read, at most: 16 TiB in clusters of 64 KiB.
const ENTRIES_MAX: u64 = 1 << 28;
/// Clusters are 512 bytes to 2 MiB. `MIN_CLUSTER_BITS`, `MAX_CLUSTER_BITS`.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// Bits of an entry that are an address.
const ADDRESS: u64 = 0x00ff_ffff_ffff_fe00;
/// A cluster that is packed. `QCOW_OFLAG_COMPRESSED`.
const COMPRESSED: u64 = 1 << 62;
/// A cluster that reads as zeroes (version 3). `QCOW_OFLAG_ZERO`.
const ZERO: u64 = 1;

/// Bits of `incompatible_features`: an image that its last writer did not close is read as it is.
const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;

/// What of the header is needed.
struct Header {
    version: u32,
    cluster_bits: u32,
    bytes: u64,
    l1_entries: u64,
    l1_at: u64,
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes)
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_be_bytes)
}

impl Header {
    fn read(view: &dyn View) -> Result<Header, Error> {
        let h: [u8; 72] = bytes_at(view, 0, "the header")?;
        let refused = |what: &str| Err(Error::Unsupported(what.to_owned()));
        let version = be32(&h, 4);
        if !(2..=3).contains(&version) {
            return Err(Error::Unsupported(format!("qcow2 version {version}")));
        }
        if be64(&h, 8) != 0 || be32(&h, 16) != 0 {
            return refused("a qcow2 image with a backing file");
        }
        if be32(&h, 32) != 0 {
            return refused("a qcow2 image with encryption");
        }
        if version == 3 {
            let more: [u8; 32] = bytes_at(view, 72, "the header")?;
            Header::features(be64(&more, 0))?;
        }
        let cluster_bits = be32(&h, 20);
        if !CLUSTER_BITS.contains(&cluster_bits) {
            return Err(Error::damaged(
                20,
                format!("cluster_bits {cluster_bits}, expected 9 to 21"),
            ));
        }
        let header = Header {
            version,
            cluster_bits,
            bytes: be64(&h, 24),
            l1_entries: be32(&h, 36).into(),
            l1_at: be64(&h, 40),
        };
        let needed = header.bytes.div_ceil(1 << (2 * cluster_bits - 3));
        if header.l1_entries < needed {
            let what = format!("l1_size {}, expected {needed} or more", header.l1_entries);
            return Err(Error::damaged(36, what));
        }
        Ok(header)
    }

    fn features(bits: u64) -> Result<(), Error> {
        let refused = |what: &str| Err(Error::Unsupported(what.to_owned()));
        if bits & EXTERNAL_DATA != 0 {
            return refused("a qcow2 image with an external data file");
        }
        if bits & EXTENDED_L2 != 0 {
            return refused("a qcow2 image with extended L2 entries");
        }
        if bits & COMPRESSION_TYPE != 0 {
            return refused("a qcow2 image whose clusters are not packed with zlib");
        }
        let unknown = bits & !(DIRTY | CORRUPT);
        if unknown != 0 {
            return Err(Error::Unsupported(format!("qcow2 incompatible features {unknown:#x}")));
        }
        match bits & CORRUPT {
            0 => Ok(()),
            _ => Err(Error::damaged(72, "marked as corrupt (`qemu-img check -r all` repairs it)")),
        }
    }

    fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }
}

/// Unpacks a qcow2 image. Errors: as [`Error`] says.
pub fn unpack(view: &dyn View, out: &mut Store<'_>) -> Result<(), Error> {
    let header = Header::read(view)?;
    out.set_len(header.bytes)?;
    let cluster = header.cluster_bytes();
    let per_table = cluster / 8;
    let clusters = header.bytes.div_ceil(cluster);
    if clusters.div_ceil(per_table) > ENTRIES_MAX {
        return Err(Error::TooMuch(format!("{clusters} clusters of {cluster} bytes")));
    }
    let mut table = vec![0; usize::try_from(cluster).unwrap_or(0)];
    let mut buffer = table.clone();
    let mut entries = 0u64;
    for n in 0..clusters.div_ceil(per_table) {
        let at = header.l1_at.saturating_add(n * 8);
        let entry = u64::from_be_bytes(bytes_at(view, at, "the L1 table")?);
        let l2_at = entry & ADDRESS;
        if l2_at == 0 {
            continue;
        }
        if !l2_at.is_multiple_of(cluster) {
            return Err(Error::damaged(at, format!("L1 entry {entry:#x} is not at a cluster")));
        }
        read_at(view, l2_at, &mut table, "an L2 table")?;
        entries += per_table;
        if entries > ENTRIES_MAX {
            return Err(Error::TooMuch(format!("more than {ENTRIES_MAX} clusters are named")));
        }
        let first = n * per_table;
        for (entry, i) in table.chunks_exact(8).zip(0..per_table.min(clusters - first)) {
            let entry = be64(entry, 0);
            if entry & !(1 << 63) == 0 {
                continue;
            }
            let to = (first + i) * cluster;
            let here = l2_at + i * 8;
            if !header.cluster(view, entry, here, &mut buffer)? {
                continue;
            }
            let wanted = usize::try_from((header.bytes - to).min(cluster)).unwrap_or(0);
            out.put(to, buffer.get(..wanted).unwrap_or(&[]))?;
        }
    }
    Ok(())
}

impl Header {
    /// Reads the cluster of an L2 entry that stands at byte `at`. `false`: it is all zero.
    fn cluster(&self, view: &dyn View, entry: u64, at: u64, out: &mut [u8]) -> Result<bool, Error> {
        if entry & COMPRESSED == 0 {
            let from = entry & ADDRESS;
            if (self.version >= 3 && entry & ZERO != 0) || from == 0 {
                return Ok(false);
            }
            if !from.is_multiple_of(self.cluster_bytes()) {
                return Err(Error::damaged(at, format!("L2 entry {entry:#x} is not at a cluster")));
            }
            // The last cluster of a file may be short: what is behind its end is zero.
            let there = view.len_bytes().saturating_sub(from).min(out.len() as u64);
            if there == 0 {
                return Err(Error::damaged(at, format!("L2 entry {entry:#x} is behind the end")));
            }
            let (head, tail) = out.split_at_mut(usize::try_from(there).unwrap_or(0));
            read_at(view, from, head, "a cluster")?;
            tail.fill(0);
            return Ok(true);
        }
        // The address, then the number of sectors behind the first.
        let bits = 62 - (self.cluster_bits - 8);
        let from = entry & ((1 << bits) - 1);
        let sectors = (entry >> bits) & ((1 << (self.cluster_bits - 8)) - 1);
        let most = (sectors + 1) * 512 - from % 512;
        let there = view.len_bytes().saturating_sub(from).min(most);
        let mut packed = vec![0; usize::try_from(there).unwrap_or(0)];
        read_at(view, from, &mut packed, "a packed cluster")?;
        let done = deflate(&packed, out);
        match done {
            Ok(n) if n == out.len() => Ok(true),
            Ok(n) => Err(Error::damaged(from, format!("a packed cluster of only {n} bytes"))),
            Err(why) => Err(Error::damaged(from, format!("a packed cluster: {why}"))),
        }
    }
}
