#![expect(clippy::indexing_slicing, reason = "images are made here")]

use std::collections::BTreeMap;
use std::io::Write;

use super::*;
use crate::files::Bytes;

/// What was unpacked.
#[derive(Default)]
struct Memory {
    bytes: u64,
    pieces: BTreeMap<u64, Vec<u8>>,
}

impl Sink for Memory {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(self.pieces.insert(at, bytes.to_vec()).is_none(), "{at} is written once");
        Ok(())
    }
    fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        self.bytes = bytes;
        Ok(())
    }
}

impl Memory {
    fn flat(&self) -> Vec<u8> {
        let mut out = vec![0; self.bytes as usize];
        for (at, piece) in &self.pieces {
            out[*at as usize..][..piece.len()].copy_from_slice(piece);
        }
        out
    }
}

fn unpacked(kind: Kind, packed: &[u8], limits: Limits) -> Result<Memory, Error> {
    let view = Bytes(packed.to_vec());
    assert_eq!(Kind::of(&view), Some(kind));
    let mut memory = Memory::default();
    unpack(kind, &view, &mut Store::new(&mut memory, limits))?;
    Ok(memory)
}

/// 64 KiB of text, a hole of a MiB, and an odd end.
fn image() -> Vec<u8> {
    let mut out: Vec<u8> = (0..65536u32).map(|n| ((n * n) >> 7) as u8).collect();
    out.resize((1 << 20) + 65536, 0);
    out.extend(b"the end");
    out
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    e.write_all(bytes).expect("packed");
    e.finish().expect("packed")
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut e = liblzma::write::XzEncoder::new(Vec::new(), 1);
    e.write_all(bytes).expect("packed");
    e.finish().expect("packed")
}

#[test]
fn packed_files_of_one_member_or_two_come_out_whole_with_their_holes() {
    let image = image();
    let (head, tail) = image.split_at(70_000);
    let zstd = |b: &[u8]| zstd::encode_all(b, 1).expect("packed");
    for (kind, one, two) in [
        (Kind::Gzip, gzip(&image), [gzip(head), gzip(tail)].concat()),
        (Kind::Xz, xz(&image), [xz(head), xz(tail)].concat()),
        (Kind::Zstd, zstd(&image), [zstd(head), zstd(tail)].concat()),
    ] {
        for packed in [&one, &two] {
            let out = unpacked(kind, packed, Limits::default()).expect("it is sound");
            assert!(out.flat() == image, "{kind:?}");
            let stored: usize = out.pieces.values().map(Vec::len).sum();
            assert!(stored < 80_000, "{kind:?}: zeroes are left out, {stored} bytes are stored");
        }
        // Cut short, and with a wrong byte in the middle.
        let cut = unpacked(kind, &one[..one.len() / 2], Limits::default());
        assert!(matches!(cut, Err(Error::Damaged { at, .. }) if at > 0), "{kind:?}");
        let mut flipped = one.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 0x5a;
        let found = unpacked(kind, &flipped, Limits::default());
        let is_named = matches!(&found, Err(Error::Damaged { at, .. }) if *at <= one.len() as u64);
        // zstd has no checksum by default.
        assert!(is_named || kind == Kind::Zstd, "{kind:?}");
    }
}

#[test]
fn a_bomb_ends_at_the_limit() {
    let limits = Limits { data_bytes: 100_000, length_bytes: 1 << 40 };
    let zeroes = vec![0; 1 << 20];
    for (kind, packed) in [(Kind::Gzip, gzip(&zeroes)), (Kind::Xz, xz(&zeroes))] {
        assert!(packed.len() < 16384);
        let found = unpacked(kind, &packed, limits);
        assert!(matches!(found, Err(Error::TooMuch(_))), "{kind:?}");
    }
    let fill = android(&[(0xcac2, 1 << 20, b"boom".to_vec())]);
    assert!(matches!(unpacked(Kind::AndroidSparse, &fill, limits), Err(Error::TooMuch(_))));
    let long = android(&[(0xcac3, 1 << 31, Vec::new())]);
    let limits = Limits::default();
    assert!(matches!(unpacked(Kind::AndroidSparse, &long, limits), Ok(m) if m.bytes == 8 << 40));
    let mut long = qcow2(3, &[]);
    long[24..32].copy_from_slice(&(1u64 << 60).to_be_bytes());
    assert!(unpacked(Kind::Qcow2, &long, limits).is_err());
}

/// A sparse image of blocks of 4096 bytes: chunk type, blocks, and what is behind the header.
fn android(chunks: &[(u16, u32, Vec<u8>)]) -> Vec<u8> {
    let blocks: u32 = chunks.iter().filter(|c| c.0 != 0xcac4).map(|c| c.1).sum();
    let mut out = b"\x3a\xff\x26\xed\x01\0\0\0\x1c\0\x0c\0\0\x10\0\0".to_vec();
    out.extend(blocks.to_le_bytes());
    out.extend((chunks.len() as u32).to_le_bytes());
    out.extend([0; 4]);
    for (kind, n, bytes) in chunks {
        out.extend(kind.to_le_bytes());
        out.extend([0; 2]);
        out.extend(n.to_le_bytes());
        out.extend((12 + bytes.len() as u32).to_le_bytes());
        out.extend(bytes);
    }
    out
}

#[test]
fn an_android_sparse_image_has_data_patterns_and_holes() {
    let data: Vec<u8> = (0..8192u32).map(|n| n as u8 | 1).collect();
    let packed = android(&[
        (0xcac1, 2, data.clone()),
        (0xcac3, 3, Vec::new()),
        (0xcac4, 0, vec![1, 2, 3, 4]),
        (0xcac2, 1, b"abcd".to_vec()),
        (0xcac2, 4, vec![0; 4]),
    ]);
    let out = unpacked(Kind::AndroidSparse, &packed, Limits::default()).expect("it is sound");
    let right = [data, vec![0; 3 * 4096], b"abcd".repeat(1024), vec![0; 4 * 4096]].concat();
    assert!(out.flat() == right);
    for (at, value, what) in [
        (8, 3u8, "file_hdr_sz"),
        (12, 1, "blk_sz"),
        (16, 99, "total_blks"),
        (28, 9, "chunk type"),
        (36, 9, "total_sz"),
        (20, 200, "ends"),
    ] {
        let mut bad = packed.clone();
        bad[at] = value;
        match unpacked(Kind::AndroidSparse, &bad, Limits::default()) {
            Err(Error::Damaged { what: said, .. }) => assert!(said.contains(what), "{said}"),
            other => panic!("{what}: {:?}", other.err()),
        }
    }
    let mut new = packed.clone();
    new[4] = 2;
    let found = unpacked(Kind::AndroidSparse, &new, Limits::default());
    assert!(matches!(found, Err(Error::Unsupported(_))));
}

/// A cluster of a qcow2 image.
enum Cluster {
    Hole,
    Zero,
    Plain(Vec<u8>),
    Packed(Vec<u8>),
}

/// An image with clusters of 4096 bytes: the header, L1, L2, then clusters.
fn qcow2(version: u32, clusters: &[Cluster]) -> Vec<u8> {
    const BYTES: u64 = 4096;
    let mut out = b"QFI\xfb".to_vec();
    out.extend(version.to_be_bytes());
    out.extend([0; 12]);
    out.extend(12u32.to_be_bytes());
    out.extend((clusters.len() as u64 * BYTES).to_be_bytes());
    out.extend([0; 4]);
    out.extend(1u32.to_be_bytes());
    out.extend(BYTES.to_be_bytes());
    out.resize(104, 0);
    out[100..104].copy_from_slice(&104u32.to_be_bytes());
    out.resize(4096, 0);
    out.extend(((1u64 << 63) | (2 * BYTES)).to_be_bytes());
    out.resize(2 * 4096, 0);
    let mut table = Vec::new();
    let mut data = Vec::new();
    for cluster in clusters {
        let at = 3 * BYTES + data.len() as u64;
        let entry = match cluster {
            Cluster::Hole => 0,
            Cluster::Zero => 1,
            Cluster::Plain(bytes) => {
                data.extend(bytes);
                (1 << 63) | at
            }
            Cluster::Packed(bytes) => {
                let level = flate2::Compression::best();
                let mut e = flate2::write::DeflateEncoder::new(Vec::new(), level);
                e.write_all(bytes).expect("packed");
                let packed = e.finish().expect("packed");
                let sectors = (packed.len() as u64 - 1) / 512;
                data.extend(packed);
                data.resize(data.len().next_multiple_of(4096), 0);
                (1 << 62) | (sectors << 58) | at
            }
        };
        table.extend(entry.to_be_bytes());
    }
    table.resize(4096, 0);
    out.extend(table);
    out.extend(data);
    out
}

#[test]
fn a_qcow2_image_has_plain_packed_and_missing_clusters() {
    let plain: Vec<u8> = (0..4096u32).map(|n| n as u8 ^ 0x55).collect();
    let packed = b"words that repeat ".repeat(228)[..4096].to_vec();
    for version in [2, 3] {
        let zero = if version == 3 { Cluster::Zero } else { Cluster::Hole };
        let image = qcow2(
            version,
            &[
                Cluster::Plain(plain.clone()),
                Cluster::Hole,
                Cluster::Packed(packed.clone()),
                zero,
                Cluster::Plain(packed.clone()),
            ],
        );
        let out = unpacked(Kind::Qcow2, &image, Limits::default()).expect("it is sound");
        let hole = vec![0; 4096];
        let right = [&plain, &hole, &packed, &hole, &packed].map(|v| v.clone()).concat();
        assert!(out.flat() == right, "version {version}");
        // What is cut off at the end is named by the entry that leads there.
        let cut = unpacked(Kind::Qcow2, &image[..4 * 4096], Limits::default());
        assert!(matches!(cut, Err(Error::Damaged { .. })));
    }
    for (at, value, what) in [
        (7, 4u8, "version 4"),
        (15, 1, "backing file"),
        (35, 1, "encryption"),
        (79, 4, "external data"),
        (79, 8, "zlib"),
        (79, 16, "extended L2"),
        (79, 64, "features 0x40"),
    ] {
        let mut image = qcow2(3, &[Cluster::Plain(plain.clone())]);
        image[at] = value;
        match unpacked(Kind::Qcow2, &image, Limits::default()) {
            Err(Error::Unsupported(said)) => assert!(said.contains(what), "{said}"),
            other => panic!("{what}: {:?}", other.err()),
        }
    }
    for (at, value) in [(23, 30u8), (39, 0), (79, 2), (4103, 1), (8199, 1)] {
        let mut image = qcow2(3, &[Cluster::Plain(plain.clone())]);
        image[at] = value;
        if at > 4096 {
            image[at - 1] = 0x22;
        }
        let found = unpacked(Kind::Qcow2, &image, Limits::default());
        assert!(matches!(found, Err(Error::Damaged { .. })) || at == 8199, "byte {at}");
    }
}

#[test]
fn a_container_in_a_container_is_opened_but_not_without_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("x");
    let inner = android(&[(0xcac1, 1, vec![7; 4096])]);
    std::fs::write(&path, gzip(&inner)).expect("written");
    let opened = open(&path, Limits::default()).expect("it is sound");
    assert_eq!(opened.containers, [Kind::Gzip, Kind::AndroidSparse]);
    let mut found = [0; 4096];
    opened.view.read_at(0, &mut found).expect("read");
    assert_eq!((opened.view.len_bytes(), found), (4096, [7; 4096]));
    let deep = (0..4).fold(vec![1; 600], |inner, _| gzip(&inner));
    std::fs::write(&path, deep).expect("written");
    let found = open(&path, Limits::default());
    assert!(matches!(found, Err((Error::Unsupported(_), Some(Kind::Gzip)))));
}
