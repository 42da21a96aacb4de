//! What an image file is: formats by their magics, and partition tables.

use wp_base::crc::crc32_le;
use wp_machine::identify::{Identity, container, identify, partitions};
use wp_medium::{View, Window};

use super::feed::Feed;
use super::image::Sparse;

/// Sectors of an image, at most: behind the places of all magics but those of copies.
const SECTORS_MAX: u16 = 1024;

/// An image: its sectors, then pieces (sector, byte in it, length, bytes). Odd numbers of sectors
/// make the checksums of a GPT header right, so that what is behind them is reached.
pub fn image(input: &[u8]) {
    let mut feed = Feed::new(input);
    let sectors = feed.u16();
    let mut bytes = vec![0; usize::from(sectors % (SECTORS_MAX + 1)) * 512];
    while !feed.is_empty() {
        let at = usize::from(feed.u16() % SECTORS_MAX) * 512 + usize::from(feed.u16() % 512);
        let n = feed.u8().into();
        let piece = feed.bytes(n);
        if let Some(to) = bytes.get_mut(at..at + piece.len()) {
            to.copy_from_slice(piece);
        }
    }
    if sectors % 2 == 1 {
        seal(&mut bytes);
    }
    let view = Sparse::new(&bytes);
    let whole = identify(&view);
    if container(&view).is_some() {
        assert!(matches!(whole, Identity::Known(_)), "a container is nothing else");
    }
    let Some(table) = partitions(&view) else { return };
    for p in &table.partitions {
        assert!(p.number > 0 && p.bytes > 0);
        if let Some(part) = Window::new(&view, p.at, p.bytes) {
            assert_eq!(part.len_bytes(), p.bytes);
            identify(&part);
        }
    }
    if let Identity::Table(found) = whole {
        assert_eq!(found, table);
    }
}

/// Makes the checksums of the header in the second sector right.
fn seal(bytes: &mut [u8]) {
    if bytes.len() < 1024 {
        return;
    }
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes(b.try_into().expect("four bytes")))
    };
    let (from, len) = (word(bytes, 512 + 72) as usize, word(bytes, 512 + 80) as usize);
    let end = from.saturating_mul(512).saturating_add(len.saturating_mul(128));
    let Some(entries) = bytes.get(from.saturating_mul(512)..end) else { return };
    let sum = !crc32_le(!0, entries);
    bytes[512 + 88..512 + 92].copy_from_slice(&sum.to_le_bytes());
    bytes[512 + 16..512 + 20].fill(0);
    let header = word(bytes, 512 + 12) as usize;
    let Some(head) = bytes.get(512..512usize.saturating_add(header)) else { return };
    let sum = !crc32_le(!0, head);
    bytes[512 + 16..512 + 20].copy_from_slice(&sum.to_le_bytes());
}
