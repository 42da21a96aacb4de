//! Android's sparse image: a header, then chunks that are data, a pattern, nothing or a checksum.
//!
//! Left out: checksums, which Android's own tools do not verify by default.

use wp_medium::View;

use super::{Error, Store, bytes_at, read_at};

const FILE_HEADER_BYTES: u64 = 28;
const CHUNK_HEADER_BYTES: u64 = 12;
const RAW: u16 = 0xcac1;
const FILL: u16 = 0xcac2;
const DONT_CARE: u16 = 0xcac3;
const CRC32: u16 = 0xcac4;
/// Bytes copied at a time.
const PIECE: u64 = 1 << 20;

fn le16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn le32(bytes: &[u8], at: usize) -> u64 {
    let n = bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    n.into()
}

/// Unpacks a sparse image. Errors: as [`Error`] says.
pub fn unpack(view: &dyn View, out: &mut Store<'_>) -> Result<(), Error> {
    let h: [u8; 28] = bytes_at(view, 0, "the header")?;
    let (major, minor) = (le16(&h, 4), le16(&h, 6));
    if major != 1 {
        return Err(Error::Unsupported(format!("an Android sparse image {major}.{minor}")));
    }
    let sizes = [(8, FILE_HEADER_BYTES, "file_hdr_sz"), (10, CHUNK_HEADER_BYTES, "chunk_hdr_sz")];
    for (at, least, field) in sizes {
        let found = u64::from(le16(&h, at));
        if found < least {
            let what = format!("{field} {found}, expected {least} or more");
            return Err(Error::damaged(at as u64, what));
        }
    }
    let (header_bytes, chunk_header) = (u64::from(le16(&h, 8)), u64::from(le16(&h, 10)));
    let (block, blocks, chunks) = (le32(&h, 12), le32(&h, 16), le32(&h, 20));
    if block == 0 || !block.is_multiple_of(4) {
        return Err(Error::damaged(12, format!("blk_sz {block}, expected a multiple of 4")));
    }
    out.set_len(block * blocks)?;
    let (mut at, mut done) = (header_bytes, 0u64);
    for _ in 0..chunks {
        let head: [u8; 12] = bytes_at(view, at, "a chunk's header")?;
        let (kind, n, total) = (le16(&head, 0), le32(&head, 4), le32(&head, 8));
        let to = done * block;
        let bytes = n * block;
        let data_at = at + chunk_header;
        let expected = chunk_header + expected_bytes(kind, bytes, at)?;
        if total != expected {
            let what = format!("total_sz {total}, expected {expected}");
            return Err(Error::damaged(at + 8, what));
        }
        if kind != CRC32 {
            done += n;
        }
        if done > blocks {
            let what = format!("{done} blocks up to here, expected {blocks} in all");
            return Err(Error::damaged(at + 4, what));
        }
        match kind {
            RAW => copy(view, data_at, to, bytes, out)?,
            FILL => fill(bytes_at(view, data_at, "a pattern")?, to, bytes, out)?,
            _ => {}
        }
        at += total;
    }
    if done != blocks {
        return Err(Error::damaged(16, format!("total_blks {blocks}, and the chunks have {done}")));
    }
    Ok(())
}

/// Bytes behind the header of a chunk.
fn expected_bytes(kind: u16, bytes: u64, at: u64) -> Result<u64, Error> {
    match kind {
        RAW => Ok(bytes),
        FILL | CRC32 => Ok(4),
        DONT_CARE => Ok(0),
        other => {
            Err(Error::damaged(at, format!("chunk type {other:#x}, expected 0xcac1 to 0xcac4")))
        }
    }
}

fn copy(view: &dyn View, from: u64, to: u64, bytes: u64, out: &mut Store<'_>) -> Result<(), Error> {
    let mut piece = vec![0; usize::try_from(bytes.min(PIECE)).unwrap_or(0)];
    let mut done = 0;
    while done < bytes {
        let n = usize::try_from((bytes - done).min(PIECE)).unwrap_or(0);
        let part = piece.get_mut(..n).unwrap_or(&mut []);
        read_at(view, from + done, part, "a chunk")?;
        out.put(to + done, part)?;
        done += n as u64;
    }
    Ok(())
}

fn fill(pattern: [u8; 4], to: u64, bytes: u64, out: &mut Store<'_>) -> Result<(), Error> {
    if pattern == [0; 4] {
        return Ok(());
    }
    let piece = pattern.repeat(usize::try_from(bytes.min(PIECE) / 4).unwrap_or(0));
    let mut done = 0;
    while done < bytes {
        let n = usize::try_from((bytes - done).min(PIECE)).unwrap_or(0);
        out.put(to + done, piece.get(..n).unwrap_or(&[]))?;
        done += n as u64;
    }
    Ok(())
}
