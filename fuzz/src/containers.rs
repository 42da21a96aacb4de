//! Containers of images that parsers of our own read.

use std::collections::BTreeSet;
use std::io;

use wp_machine::container::{Kind, Limits, Sink, Store, unpack};

use super::image::Sparse;

/// Limits of an execution.
const LIMITS: Limits = Limits { data_bytes: 8 << 20, length_bytes: 1 << 40 };

/// Takes what comes out, and holds the parser to what a sink is promised.
#[derive(Default)]
struct Counted {
    bytes: Option<u64>,
    starts: BTreeSet<u64>,
}

impl Sink for Counted {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let end = at + bytes.len() as u64;
        assert!(self.bytes.is_some_and(|all| end <= all), "{at} is within the image");
        assert!(self.starts.insert(at), "{at} is written once");
        Ok(())
    }
    fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        assert!(bytes <= LIMITS.length_bytes);
        self.bytes = Some(bytes);
        Ok(())
    }
}

fn run(kind: Kind, magic: &[u8], input: &[u8]) {
    let mut bytes = magic.to_vec();
    bytes.extend(input);
    let view = Sparse::new(&bytes);
    let mut out = Counted::default();
    // Damage is an error.
    let _ = unpack(kind, &view, &mut Store::new(&mut out, LIMITS));
}

/// A qcow2 image behind its magic.
pub fn qcow2(input: &[u8]) {
    run(Kind::Qcow2, b"QFI\xfb", input);
}

/// An Android sparse image behind its magic.
pub fn android_sparse(input: &[u8]) {
    run(Kind::AndroidSparse, b"\x3a\xff\x26\xed", input);
}
