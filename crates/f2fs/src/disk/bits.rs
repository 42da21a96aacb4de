//! Bits of bitmaps, in the two orders that the format has.
//!
//! Validity of blocks (SIT) and versions of NAT and SIT blocks have the *highest* bit of a byte
//! first (`f2fs_test_bit`); directories and nat_bits have the *lowest* first (`test_bit_le`).

use super::index;

/// Is bit `n` set, highest bit first? No beyond the end. `f2fs_test_bit`.
pub fn test(bits: &[u8], n: u32) -> bool {
    bits.get(index(n / 8)).is_some_and(|b| b & (0x80 >> (n % 8)) != 0)
}

/// Sets or clears bit `n`, highest bit first. Was it set? Panics beyond the end.
pub fn set(bits: &mut [u8], n: u32, to: bool) -> bool {
    put(bits, n, 0x80 >> (n % 8), to)
}

/// Is bit `n` set, lowest bit first? No beyond the end. `test_bit_le`.
pub fn test_le(bits: &[u8], n: u32) -> bool {
    bits.get(index(n / 8)).is_some_and(|b| b & (1 << (n % 8)) != 0)
}

/// Sets or clears bit `n`, lowest bit first. Was it set? Panics beyond the end.
pub fn set_le(bits: &mut [u8], n: u32, to: bool) -> bool {
    put(bits, n, 1 << (n % 8), to)
}

fn put(bits: &mut [u8], n: u32, mask: u8, to: bool) -> bool {
    let byte = bits.get_mut(index(n / 8)).expect("the caller knows how long its bitmap is");
    let was = *byte & mask != 0;
    *byte = if to { *byte | mask } else { *byte & !mask };
    was
}

/// How many bits are set.
pub fn ones(bits: &[u8]) -> u32 {
    let (eights, rest) = bits.as_chunks::<8>();
    let words: u32 = eights.iter().map(|b| u64::from_le_bytes(*b).count_ones()).sum();
    words + rest.iter().map(|b| b.count_ones()).sum::<u32>()
}

/// Is no bit set?
pub fn is_zero(bits: &[u8]) -> bool {
    let (eights, rest) = bits.as_chunks::<8>();
    eights.iter().all(|b| u64::from_le_bytes(*b) == 0) && rest.iter().all(|b| *b == 0)
}

/// The last bit that is set, highest bit first in a byte.
pub fn last(bits: &[u8]) -> Option<u32> {
    let (byte, bits) = (0..).zip(bits).filter(|(_, b)| **b != 0).last()?;
    Some(byte * 8 + 7 - bits.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_orders_are_mirror_images_within_a_byte() {
        for n in 0..16 {
            let mut high = [0u8; 2];
            let mut low = [0u8; 2];
            assert!(!set(&mut high, n, true) && !set_le(&mut low, n, true));
            assert_eq!(high.map(u8::reverse_bits), low);
            assert!(test(&high, n) && test_le(&low, n));
            assert_eq!((ones(&high), ones(&low)), (1, 1));
            assert_eq!((last(&high), is_zero(&high)), (Some(n), false));
            assert!(set(&mut high, n, false) && set_le(&mut low, n, false));
            assert_eq!((high, low), ([0; 2], [0; 2]));
        }
        let some: Vec<u8> = (0..=20u8).map(|n| n.wrapping_mul(13)).collect();
        let slow: u32 = (0..168).map(|n| u32::from(test(&some, n))).sum();
        assert_eq!(ones(&some), slow);
        assert_eq!(last(&some), (0..168).rev().find(|n| test(&some, *n)));
        assert!(is_zero(&[0; 21]) && last(&[0; 21]).is_none() && is_zero(&[]));
        assert!(!is_zero(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]));
        assert!(!test(&[0xFF], 8) && !test_le(&[0xFF], 8), "beyond the end nothing is set");
    }
}
