//! Damage with right checksums: a field of a structure gets another value, in all its copies.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::torture::rng::Rng;

/// Damages an image in place; answers what was done. Errors: of the machine, no such file system.
pub fn damage(fs: &str, image: &Path, rng: &mut Rng) -> Result<String, String> {
    let at = |e: std::io::Error| format!("{}: {e}", image.display());
    let file = OpenOptions::new().read(true).write(true).open(image).map_err(at)?;
    let done = match fs {
        "btrfs" => btrfs(&file, rng),
        "ext4" => ext4(&file, rng),
        "f2fs" => f2fs(&file, rng),
        "nilfs2" => nilfs2(&file, rng),
        _ => return Err(format!("no damage of {fs}")),
    };
    done.map_err(at)
}

/// How an answer begins if there was nothing to damage.
pub const NOTHING: &str = "nothing: ";

type Done = std::io::Result<String>;

/// CRC-32C, bit by bit, as Linux' `crc32c(seed, ...)`.
fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    crc(seed, bytes, 0x82F6_3B78)
}

/// CRC-32, as Linux' `crc32_le`.
fn crc32(seed: u32, bytes: &[u8]) -> u32 {
    crc(seed, bytes, 0xEDB8_8320)
}

fn crc(seed: u32, bytes: &[u8], polynomial: u32) -> u32 {
    bytes.iter().fold(seed, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |s, _| s >> 1 ^ if s & 1 == 1 { polynomial } else { 0 })
    })
}

fn read(file: &File, at: u64, n: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; n];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

fn le(bytes: &[u8], at: usize, n: usize) -> u64 {
    bytes[at..at + n].iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b))
}

/// Puts a value of chance into a field; answers what.
fn poke(rng: &mut Rng, bytes: &mut [u8], at: usize, n: usize) -> String {
    let old = le(bytes, at, n);
    let new = match rng.below(8) {
        0 => 0,
        1 => u64::MAX,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old ^ 1 << rng.below(8 * n),
        5 => old << 1,
        6 => old.wrapping_add(4096),
        _ => rng.next(),
    };
    bytes[at..at + n].copy_from_slice(&new.to_le_bytes()[..n]);
    format!("byte {at}+{n}: {old:#x} -> {:#x}", le(bytes, at, n))
}

/// Fields of `struct btrfs_super_block` that a mount may look at: offset and bytes.
const BTRFS_SUPER: [(usize, usize); 24] = [
    (48, 8),
    (56, 8),
    (72, 8),
    (80, 8),
    (88, 8),
    (96, 8),
    (112, 8),
    (120, 8),
    (128, 8),
    (136, 8),
    (144, 4),
    (148, 4),
    (152, 4),
    (156, 4),
    (160, 4),
    (164, 8),
    (172, 8),
    (180, 8),
    (188, 8),
    (198, 1),
    (199, 1),
    (200, 1),
    // `dev_item`: bytes of the device, and its uuid.
    (209, 8),
    (811, 8),
];

fn btrfs(file: &File, rng: &mut Rng) -> Done {
    let mut sb = read(file, 65536, 4096)?;
    let node = le(&sb, 148, 4) as usize;
    if le(&sb, 196, 2) != 0 {
        return Ok("nothing: no crc32c".to_owned());
    }
    let seal = |bytes: &mut [u8]| {
        let sum = !crc32c(!0, &bytes[32..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
    };
    if rng.once_in(3) {
        let (at, n) = *rng.pick(&BTRFS_SUPER);
        let done = poke(rng, &mut sb, at, n);
        seal(&mut sb);
        file.write_all_at(&sb, 65536)?;
        return Ok(format!("super block, {done}"));
    }
    // All tree blocks of the newest state: those that are sealed, by address.
    let fsid = sb[32..48].to_vec();
    let len = file.metadata()?.len();
    let mut blocks: Vec<(u64, u64, u64)> = Vec::new();
    let mut at = 1 << 20;
    while at + node as u64 <= len {
        let head = read(file, at, 101)?;
        if head[32..48] == fsid[..] && le(&head, 80, 8) <= le(&sb, 72, 8) {
            blocks.push((at, le(&head, 48, 8), le(&head, 80, 8)));
        }
        at += if node < 16384 { 4096 } else { 16384.min(node as u64) };
    }
    if blocks.is_empty() {
        return Ok("nothing: no tree block".to_owned());
    }
    // Roots of important trees are what a mount reads first: newest blocks are taken more often.
    blocks.sort_by_key(|(.., generation)| std::cmp::Reverse(*generation));
    let near = blocks.len().min(60);
    let (_, logical, generation) = blocks[rng.below(near)];
    let first = blocks.iter().find(|b| b.1 == logical && b.2 == generation).map_or(0, |b| b.0);
    let mut bytes = read(file, first, node)?;
    let (level, owner) = (bytes[100], le(&bytes, 88, 8).cast_signed());
    let items = le(&bytes, 96, 4) as usize;
    let done = match rng.below(6) {
        0 => {
            let (at, n) = *rng.pick(&[(48, 8), (56, 8), (80, 8), (88, 8), (96, 4), (100, 1)]);
            poke(rng, &mut bytes, at, n)
        }
        _ if items == 0 => poke(rng, &mut bytes, 96, 4),
        1 => {
            let step = if level == 0 { 25 } else { 33 };
            let slot = 101 + rng.below(items) * step;
            let (at, n) = *rng.pick(&[(0, 8), (8, 1), (9, 8), (17, 4), (21, 4)]);
            poke(rng, &mut bytes, slot + at, n)
        }
        _ if level > 0 => {
            let slot = 101 + rng.below(items) * 33;
            let (at, n) = *rng.pick(&[(17, 8), (25, 8)]);
            poke(rng, &mut bytes, slot + at, n)
        }
        _ => {
            let slot = 101 + rng.below(items) * 25;
            let kind = bytes[slot + 8];
            let (offset, size) =
                (le(&bytes, slot + 17, 4) as usize, le(&bytes, slot + 21, 4) as usize);
            if size == 0 || 101 + offset + size > node {
                poke(rng, &mut bytes, slot + 9, 8)
            } else {
                let n = *rng.pick(&[1, 2, 4, 8]);
                let n = n.min(size);
                let inside = rng.below(size - n + 1) & !(n - 1);
                let done = poke(rng, &mut bytes, 101 + offset + inside, n);
                format!("item of type {kind}, byte {inside} of it, {done}")
            }
        }
    };
    seal(&mut bytes);
    for (at, l, g) in &blocks {
        if (*l, *g) == (logical, generation) {
            file.write_all_at(&bytes, *at)?;
        }
    }
    Ok(format!("tree {owner}, level {level}, block {logical}, {done}"))
}

/// Fields of `struct ext4_super_block`.
const EXT4_SUPER: [(usize, usize); 44] = [
    (0x0, 4),
    (0x4, 4),
    (0x8, 4),
    (0xC, 4),
    (0x10, 4),
    (0x14, 4),
    (0x18, 4),
    (0x1C, 4),
    (0x20, 4),
    (0x24, 4),
    (0x28, 4),
    (0x38, 2),
    (0x3A, 2),
    (0x3C, 2),
    (0x48, 4),
    (0x4C, 4),
    (0x54, 4),
    (0x58, 2),
    (0x5A, 2),
    (0x5C, 4),
    (0x60, 4),
    (0x64, 4),
    (0x68, 8),
    (0xCE, 2),
    (0xE0, 4),
    (0xE4, 4),
    (0xE8, 4),
    (0xFC, 1),
    (0xFD, 1),
    (0xFE, 2),
    (0x100, 4),
    (0x104, 4),
    (0x150, 4),
    (0x154, 4),
    (0x15C, 2),
    (0x15E, 2),
    (0x160, 4),
    (0x166, 2),
    (0x168, 8),
    (0x174, 1),
    (0x175, 1),
    (0x240, 4),
    (0x270, 4),
    (0x280, 4),
];

fn ext4(file: &File, rng: &mut Rng) -> Done {
    let mut sb = read(file, 1024, 1024)?;
    let has_sums = le(&sb, 0x64, 4) & 0x400 != 0;
    if has_sums || rng.once_in(2) {
        let (at, n) = *rng.pick(&EXT4_SUPER);
        let done = poke(rng, &mut sb, at, n);
        if le(&sb, 0x64, 4) & 0x400 != 0 {
            let sum = crc32c(!0, &sb[..0x3FC]);
            sb[0x3FC..0x400].copy_from_slice(&sum.to_le_bytes());
        }
        file.write_all_at(&sb, 1024)?;
        return Ok(format!("super block, {done}"));
    }
    // Without checksums all is open: descriptors, the first inodes, the journal.
    let block = 1024u64 << le(&sb, 0x18, 4);
    let descriptors = (le(&sb, 0x14, 4) + 1) * block;
    let table = le(&read(file, descriptors, 32)?, 8, 4) * block;
    let bytes = if le(&sb, 0x4C, 4) == 0 { 128 } else { le(&sb, 0x58, 2) };
    if rng.once_in(3) {
        let mut desc = read(file, descriptors, 32)?;
        let (at, n) =
            *rng.pick(&[(0, 4), (4, 4), (8, 4), (12, 2), (14, 2), (18, 2), (28, 2), (30, 2)]);
        let done = poke(rng, &mut desc, at, n);
        file.write_all_at(&desc, descriptors)?;
        return Ok(format!("descriptor of group 0, {done}"));
    }
    let number = *rng.pick(&[2, 2, 8, 8, 7]);
    let at = table + (number - 1) * bytes;
    if at + 128 > file.metadata()?.len() {
        return Ok("nothing: no inode table".to_owned());
    }
    let mut inode = read(file, at, 128)?;
    let (field, n) = *rng.pick(&[
        (0, 2),
        (4, 4),
        (0x1A, 2),
        (0x1C, 4),
        (0x20, 4),
        (0x28, 2),
        (0x2A, 2),
        (0x2C, 2),
        (0x2E, 2),
        (0x34, 4),
        (0x38, 4),
        (0x3C, 4),
        (0x6C, 4),
    ]);
    let done = poke(rng, &mut inode, field, n);
    file.write_all_at(&inode, at)?;
    Ok(format!("inode {number}, {done}"))
}

/// Fields of `struct f2fs_super_block`.
const F2FS_SUPER: [(usize, usize); 27] = [
    (0, 4),
    (4, 2),
    (8, 4),
    (12, 4),
    (16, 4),
    (20, 4),
    (24, 4),
    (28, 4),
    (32, 4),
    (36, 8),
    (44, 4),
    (48, 4),
    (52, 4),
    (56, 4),
    (60, 4),
    (64, 4),
    (68, 4),
    (72, 4),
    (76, 4),
    (80, 4),
    (84, 4),
    (88, 4),
    (92, 4),
    (96, 4),
    (100, 4),
    (104, 4),
    // `extension_count`
    (1148, 4),
];
/// `feature`, `cp_payload` and what is behind them.
const F2FS_FAR: [(usize, usize); 3] = [(1664, 4), (2180, 4), (2184, 1)];

fn f2fs(file: &File, rng: &mut Rng) -> Done {
    let sb = read(file, 1024, 3072)?;
    if rng.once_in(2) {
        let mut new = sb;
        let (at, n) = match rng.once_in(5) {
            true => *rng.pick(&F2FS_FAR),
            false => *rng.pick(&F2FS_SUPER),
        };
        let done = poke(rng, &mut new, at, n);
        // `sb_checksum`: over all before it.
        if le(&new, 2180, 4) & 0x800 != 0 {
            let sum = crc32(0xF2F5_2010, &new[..3068]);
            new[3068..3072].copy_from_slice(&sum.to_le_bytes());
        }
        let both = !rng.once_in(4);
        file.write_all_at(&new, 1024)?;
        if both {
            file.write_all_at(&new, 4096 + 1024)?;
        }
        return Ok(format!("super block{}, {done}", if both { "s" } else { " 1" }));
    }
    let per_segment = 1u64 << le(&sb, 20, 4);
    let first = le(&sb, 76, 4);
    let packs = [first * 4096, (first + per_segment) * 4096];
    if rng.once_in(3) {
        // The root directory's inode, where it was made: without checksums of inodes.
        let mut node = Vec::new();
        let main = le(&sb, 92, 4) * 4096;
        let len = file.metadata()?.len();
        let mut at = main;
        let mut found = 0;
        while at + 4096 <= len && at < main + (64 << 20) {
            let block = read(file, at, 4096)?;
            if le(&block, 4072, 4) == 3 && le(&block, 4076, 4) == 3 {
                (node, found) = (block, at);
                let (field, n) =
                    *rng.pick(&[(0, 2), (2, 1), (3, 1), (12, 4), (16, 8), (24, 8), (76, 4)]);
                let done = poke(rng, &mut node, field, n);
                file.write_all_at(&node, at)?;
                if rng.once_in(2) {
                    return Ok(format!("root inode at {found:#x}, {done}"));
                }
            }
            at += 4096;
        }
        return Ok(format!("all root inodes to {found:#x} of {} bytes", node.len()));
    }
    // Both packs of the checkpoint, in all their copies.
    let (field, n) = *rng.pick(&[
        (0, 8),
        (8, 8),
        (16, 8),
        (24, 4),
        (28, 4),
        (32, 4),
        (36, 4),
        (68, 2),
        (84, 4),
        (116, 2),
        (132, 4),
        (136, 4),
        (140, 4),
        (144, 4),
        (148, 4),
        (152, 4),
        (156, 4),
        (160, 4),
        (164, 4),
        (168, 4),
        (176, 1),
    ]);
    let mut done = String::new();
    for pack in packs {
        let mut cp = read(file, pack, 4096)?;
        let blocks = le(&cp, 136, 4);
        if blocks == 0 || blocks > per_segment {
            continue;
        }
        let last = pack + (blocks - 1) * 4096;
        done = poke(rng, &mut cp, field, n);
        let place = le(&cp, 164, 4) as usize;
        let place =
            if place.is_multiple_of(4) && (192..=4092).contains(&place) { place } else { 4092 };
        let sum = crc32(0xF2F5_2010, &cp[..place]);
        cp[place..place + 4].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&cp, pack)?;
        file.write_all_at(&cp, last)?;
    }
    Ok(format!("checkpoint, {done}"))
}

/// Fields of `struct nilfs_super_block`.
const NILFS_SUPER: [(usize, usize); 26] = [
    (0, 4),
    (4, 2),
    (6, 2),
    (8, 2),
    (10, 2),
    (12, 4),
    (20, 4),
    (24, 8),
    (32, 8),
    (40, 8),
    (48, 4),
    (52, 4),
    (56, 8),
    (64, 8),
    (72, 8),
    (80, 8),
    (104, 2),
    (106, 2),
    (108, 2),
    (116, 4),
    (120, 4),
    (124, 2),
    (126, 2),
    (128, 2),
    (312, 8),
    (328, 8),
];

fn nilfs2(file: &File, rng: &mut Rng) -> Done {
    let len = file.metadata()?.len();
    let first = read(file, 1024, 1024)?;
    let second = (len / 4096 - 1) * 4096;
    if !rng.once_in(4) {
        let (at, n) = *rng.pick(&NILFS_SUPER);
        let both = !rng.once_in(4);
        let mut done = String::new();
        let seed_of_value = rng.next();
        for place in [1024, second].into_iter().take(if both { 2 } else { 1 }) {
            let mut sb = read(file, place, 1024)?;
            let said = poke(&mut Rng::of(seed_of_value, 7), &mut sb, at, n);
            if place == 1024 {
                done = said;
            }
            let bytes = (le(&sb, 8, 2) as usize).clamp(24, 1024);
            let seed = le(&sb, 12, 4) as u32;
            sb[16..20].fill(0);
            let sum = crc32(seed, &sb[..bytes]);
            sb[16..20].copy_from_slice(&sum.to_le_bytes());
            file.write_all_at(&sb, place)?;
        }
        return Ok(format!("super block{}, {done}", if both { "s" } else { " 1" }));
    }
    // A block of a log, at the last position that the super block knows.
    let block = 1024u64 << le(&first, 20, 4);
    let last = le(&first, 64, 8);
    let at = (last + rng.below(40) as u64) * block;
    if at + block > len {
        return Ok("nothing: no log there".to_owned());
    }
    let mut bytes = read(file, at, block as usize)?;
    let place = rng.below(64) * 4;
    let done = poke(rng, &mut bytes, place, 4);
    file.write_all_at(&bytes, at)?;
    Ok(format!("log block {}, {done}", at / block))
}

#[cfg(test)]
mod tests {
    use super::{crc32, crc32c};

    #[test]
    fn checksums_are_those_of_linux() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(!crc32(!0, b"123456789"), 0xCBF4_3926);
    }
}
