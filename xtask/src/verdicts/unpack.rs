//! A raw image of a packed one.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Longest raw image that is made; what is zero takes no room.
const BYTES_MAX: u64 = 64 << 30;
/// Bytes that are left out when all of them are zero.
const PIECE: usize = 64 << 10;

/// `meta_cluster_header.magic`, at the start of what `btrfs-image` writes.
const DUMP_MAGIC: [u8; 8] = *b"\x8b\x66\x95\x72\xe2\x25\x5c\xbd";

/// Makes the raw image `to` of `from`. Errors: why there is none.
pub fn raw(from: &Path, to: &Path, scratch: &Path) -> Result<(), String> {
    let name = from.to_string_lossy().into_owned();
    let unpacker = [(".gz", "gzip"), (".xz", "xz"), (".zst", "zstd"), (".bz2", "bzip2")]
        .into_iter()
        .find(|(end, _)| name.ends_with(end));
    match unpacker {
        Some((_, program)) => {
            let mut child = Command::new(program)
                .args(["-dc", &name])
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|e| format!("{program}: {e}"))?;
            let mut pipe = child.stdout.take().ok_or("no pipe")?;
            let copied = sparse(&mut pipe, to);
            drop(pipe);
            let ended = child.wait().map_err(|e| format!("{program}: {e}"))?;
            copied?;
            if !ended.success() {
                return Err(format!("{program} -dc: {ended}"));
            }
        }
        None => sparse(&mut File::open(from).map_err(|e| e.to_string())?, to)?,
    }
    if !is_dump(to) {
        return Ok(());
    }
    let dump = scratch.join("dump");
    std::fs::rename(to, &dump).map_err(|e| e.to_string())?;
    let restored = Command::new("btrfs-image")
        .arg("-r")
        .args([&dump, to])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|e| format!("btrfs-image: {e}"))?;
    match restored.success() {
        true => Ok(()),
        false => Err(format!("btrfs-image -r: {restored}")),
    }
}

/// Is it what `btrfs-image` writes?
fn is_dump(path: &Path) -> bool {
    let mut head = [0; 8];
    let read = File::open(path).and_then(|mut f| f.read_exact(&mut head));
    read.is_ok() && head == DUMP_MAGIC
}

/// Copies what is not zero. Errors: of reading, of writing, and beyond [`BYTES_MAX`].
fn sparse(from: &mut dyn Read, to: &Path) -> Result<(), String> {
    let mut file = File::create(to).map_err(|e| format!("{}: {e}", to.display()))?;
    let (mut piece, mut at) = (Vec::with_capacity(PIECE), 0u64);
    loop {
        piece.clear();
        let read = from.take(PIECE as u64).read_to_end(&mut piece).map_err(|e| e.to_string())?;
        if read == 0 {
            break;
        }
        if piece.iter().any(|b| *b != 0) {
            file.seek(SeekFrom::Start(at)).map_err(|e| e.to_string())?;
            file.write_all(&piece).map_err(|e| e.to_string())?;
        }
        at += read as u64;
        if at > BYTES_MAX {
            return Err(format!("longer than {BYTES_MAX} bytes"));
        }
    }
    file.set_len(at).map_err(|e| e.to_string())
}
