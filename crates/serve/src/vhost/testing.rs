//! Payloads of vhost-user messages, for the tests of this folder.

/// A `u32` and another: a vring's number and what is said of it.
pub(crate) fn pair(a: u32, b: u32) -> Vec<u8> {
    [a.to_le_bytes(), b.to_le_bytes()].concat()
}

/// `u64`s one behind the other.
pub(crate) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}
