//! This program itself, as it runs: another one may have been built in its place since it started,
//! and neither what was kept by that one nor a process of that one is of this one.

use std::io;
use std::sync::OnceLock;

use crate::results::sha256;

/// A path that leads to the program that runs, for itself and for what it starts. The name under
/// which it was started may be gone, or be another program's.
pub const PATH: &str = "/proc/self/exe";

/// SHA-256 of its bytes. Errors: the host's.
pub fn hash() -> io::Result<&'static str> {
    static HASH: OnceLock<String> = OnceLock::new();
    if let Some(hash) = HASH.get() {
        return Ok(hash);
    }
    let hash = sha256(&std::fs::read(PATH)?);
    Ok(HASH.get_or_init(|| hash))
}
