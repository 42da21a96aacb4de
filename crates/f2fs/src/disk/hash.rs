//! Hashes of names and the levels of a directory's hash table.
//!
//! Picture:    level n has `2^(n + dir_level)` buckets (up to 2^30) of 2 blocks (from level 31 on
//!             4); the levels follow one another in the file. A name is looked for in one bucket of
//!             each level.
//! Source:     Linux Documentation/filesystems/f2fs.rst ("Directory structure"); TEA: Wheeler and
//!             Needham, 1994; `TEA_hash_name`, `dir_buckets`, `bucket_blocks`, `dir_block_index`.

/// Levels that a directory can have. `MAX_DIR_HASH_DEPTH`.
pub const LEVELS_MAX: u32 = 63;

/// Hash of a name in a directory that heeds case; `.` and `..` have 0. `f2fs_hash_filename`.
pub fn name_hash(name: &[u8]) -> u32 {
    if matches!(name, b"." | b"..") {
        return 0;
    }
    let (mut b0, mut b1) = (0x6745_2301_u32, 0xEFCD_AB89_u32);
    let mut left = super::count(name.len());
    let mut parts = name.chunks(16);
    // An empty name is hashed as one part of padding.
    let mut part = parts.next().unwrap_or(&[]);
    loop {
        (b0, b1) = tea(b0, b1, words(part, left));
        left = left.saturating_sub(16);
        match parts.next() {
            Some(next) => part = next,
            None => return b0,
        }
    }
}

/// Four words of up to 16 bytes. A word holds four bytes, the first one highest; what the name does
/// not fill holds `left`, the bytes of the name from here on, in every byte.
fn words(part: &[u8], left: u32) -> [u32; 4] {
    let pad = left | left << 8;
    let pad = pad | pad << 16;
    let mut out = [pad; 4];
    for (word, four) in out.iter_mut().zip(part.chunks(4)) {
        *word = four.iter().fold(pad, |w, b| (w << 8).wrapping_add(u32::from(*b)));
    }
    out
}

/// Sixteen rounds of the Tiny Encryption Algorithm, the words being the key.
fn tea(b0: u32, b1: u32, key: [u32; 4]) -> (u32, u32) {
    let [k0, k1, k2, k3] = key;
    let half = |v: u32, sum: u32, ka: u32, kb: u32| {
        (v << 4).wrapping_add(ka) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(kb)
    };
    let (mut y, mut z, mut sum) = (b0, b1, 0u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        y = y.wrapping_add(half(z, sum, k0, k1));
        z = z.wrapping_add(half(y, sum, k2, k3));
    }
    (b0.wrapping_add(y), b1.wrapping_add(z))
}

/// Buckets of a level. `dir_buckets`.
pub fn buckets(level: u32, dir_level: u8) -> u64 {
    let log = level.saturating_add(dir_level.into());
    1 << if log < LEVELS_MAX / 2 { log } else { LEVELS_MAX / 2 - 1 }
}

/// Blocks of a bucket of a level. `bucket_blocks`.
pub fn bucket_blocks(level: u32) -> u64 {
    if level < LEVELS_MAX / 2 { 2 } else { 4 }
}

/// First block (in the directory) of bucket `bucket` of a level. `dir_block_index`.
pub fn bucket_start(level: u32, dir_level: u8, bucket: u64) -> u64 {
    let before: u64 = (0..level).map(|l| buckets(l, dir_level) * bucket_blocks(l)).sum();
    before + bucket * bucket_blocks(level)
}

/// Blocks of a level in which a name with this hash may stand.
pub fn bucket_of(level: u32, dir_level: u8, hash: u32) -> std::ops::Range<u64> {
    let bucket = u64::from(hash) % buckets(level, dir_level);
    let start = bucket_start(level, dir_level, bucket);
    start..start + bucket_blocks(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_follow_one_another() {
        assert_eq!(bucket_of(0, 0, 0xFFFF_FFFF), 0..2);
        assert_eq!(bucket_of(1, 0, 3), 4..6);
        assert_eq!(bucket_of(2, 0, 3), 12..14);
        assert_eq!(bucket_of(0, 2, 3), 6..8);
        for level in 0..40 {
            let end = bucket_start(level, 0, buckets(level, 0) - 1) + bucket_blocks(level);
            assert_eq!(end, bucket_start(level + 1, 0, 0));
        }
        assert_eq!(bucket_blocks(31), 4);
        assert_eq!(buckets(62, 255), 1 << 30);
    }

    #[test]
    fn dots_have_no_hash_and_names_differ() {
        assert_eq!((name_hash(b"."), name_hash(b"..")), (0, 0));
        assert_ne!(name_hash(b"a"), name_hash(b"b"));
        assert_ne!(name_hash(&[b'x'; 16]), name_hash(&[b'x'; 17]));
    }
}
