//! Reading the reference images: just enough of ext4 to find the journal. Not the project's ext4
//! code, so that a mistake there cannot hide one here.

use std::path::{Path, PathBuf};

use wp_base::{BlockSize, FsResult};
use wp_jbd2::LogMap;
use wp_medium::View;

/// An image in memory.
pub struct Image(pub Vec<u8>);

impl View for Image {
    fn len_bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        let end = at.checked_add(out.len() as u64).ok_or(wp_base::FsError::Io)?;
        let from = self.0.get(at as usize..end as usize).ok_or(wp_base::FsError::Io)?;
        out.copy_from_slice(from);
        Ok(())
    }
}

/// The folder of reference data: the repository's, or where `WRITEPATH_REFERENCE` says. What is
/// missing there is no reason to skip anything.
pub fn reference() -> PathBuf {
    match std::env::var_os("WRITEPATH_REFERENCE") {
        Some(dir) => PathBuf::from(dir),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/reference"),
    }
}

pub fn unpack(path: &Path) -> Image {
    let packed = std::fs::read(path).expect("image is there");
    Image(zstd::decode_all(&packed[..]).expect("image unpacks"))
}

fn le(b: &[u8], at: usize, n: usize) -> u64 {
    b[at..at + n].iter().rev().fold(0, |v, b| (v << 8) | u64::from(*b))
}

/// Block size and journal extents of an ext4 image.
pub fn journal_of(image: &[u8]) -> (BlockSize, LogMap) {
    let sb = &image[1024..2048];
    let bs = 1024usize << le(sb, 24, 4);
    let wide = le(sb, 0x60, 4) & 0x80 != 0;
    let desc_size = if wide { le(sb, 0xFE, 2) as usize } else { 32 };
    let inode_size = le(sb, 0x58, 2) as usize;
    let ino = le(sb, 0xE0, 4) as usize;
    let per_group = le(sb, 40, 4) as usize;
    let gdt = (le(sb, 20, 4) as usize + 1) * bs;
    let desc = &image[gdt + (ino - 1) / per_group * desc_size..];
    let table = le(desc, 8, 4) + if wide { le(desc, 0x28, 4) << 32 } else { 0 };
    let inode = table as usize * bs + (ino - 1) % per_group * inode_size;
    let mut runs = Vec::new();
    extents(image, bs, &image[inode + 40..inode + 100], &mut runs);
    runs.sort_unstable();
    (BlockSize::new(bs as u32).expect("power of two"), LogMap { blocks: runs })
}

fn extents(image: &[u8], bs: usize, node: &[u8], out: &mut Vec<(u32, u64, u32)>) {
    assert_eq!(le(node, 0, 2), 0xF30A);
    let (entries, depth) = (le(node, 2, 2) as usize, le(node, 6, 2));
    for i in 0..entries {
        let e = &node[12 + 12 * i..];
        if depth == 0 {
            let start = (le(e, 6, 2) << 32) | le(e, 8, 4);
            out.push((le(e, 0, 4) as u32, start, le(e, 4, 2) as u32));
        } else {
            let leaf = (le(e, 8, 2) << 32) | le(e, 4, 4);
            let at = leaf as usize * bs;
            extents(image, bs, &image[at..at + bs], out);
        }
    }
}
