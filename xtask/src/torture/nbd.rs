//! Clients of NBD that agree on the export and then ask for what is hostile: what a damaged seed
//! hardly ever gets as far as.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::rng::{NUMBERS, Rng};

/// One request in this number goes wrong.
const RARELY: usize = 20;

/// The bytes of a request ("Request message" of the protocol), of a write with its payload.
fn request(rng: &mut Rng) -> Vec<u8> {
    let number = |rng: &mut Rng| rng.pick(&NUMBERS).parse().unwrap_or(u64::MAX);
    // Read, write, disconnect, flush, trim, cache, write zeroes, block status, resize.
    let kind =
        if rng.once_in(2) { *rng.pick(&[0u16, 1, 3]) } else { *rng.pick(&[4, 5, 6, 7, 8, 99]) };
    let flags = if rng.once_in(RARELY) { rng.next() as u16 } else { *rng.pick(&[0, 0, 1]) };
    let offset = if rng.once_in(RARELY) { number(rng) } else { rng.next() % 65536 * 512 };
    let length = match rng.once_in(RARELY) {
        true => number(rng) as u32,
        false => *rng.pick(&[512, 4096, 65536, 1 << 20]),
    };
    let magic = if rng.once_in(4 * RARELY) { rng.next() as u32 } else { 0x2560_9513 };
    let mut bytes = magic.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(rng.next().to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    if kind == 1 {
        let have = if rng.once_in(RARELY) { length / 2 } else { length };
        bytes.extend(std::iter::repeat_n(7, have.min(1 << 20) as usize));
    }
    bytes
}

/// A client from its greeting to its end. Errors: the host's; the server ends the connection of one
/// that goes wrong.
pub fn talk(rng: &mut Rng, stream: &mut UnixStream) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 18])?;
    // Fixed newstyle without zeroes; NBD_OPT_EXPORT_NAME of the default export.
    stream.write_all(&[0, 0, 0, 3])?;
    stream.write_all(b"IHAVEOPT")?;
    stream.write_all(&[0, 0, 0, 1, 0, 0, 0, 0])?;
    stream.read_exact(&mut [0; 10])?;
    let mut replies = vec![0; 1 << 16];
    for _ in 0..rng.below(40) {
        let bytes = request(rng);
        stream.write_all(&bytes)?;
        // Some are slow to read, and some never do.
        if !rng.once_in(3) {
            let _ = stream.read(&mut replies);
        }
    }
    Ok(())
}
