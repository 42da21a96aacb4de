//! Files of text that a user names: programs, jobs, experiments, lists.
//!
//! Law: of a file that is none of these (an image, a sparse file of a terabyte, a device that never
//!      ends) no more than a limit is read.

use std::fs::File;
use std::io::{self, BufRead, ErrorKind, Read};
use std::path::Path;

/// The largest file of text that anybody writes or makes.
const BYTES_MAX: u64 = 64 << 20;

/// The largest list that a program makes and that is taken into memory whole.
pub const LIST_BYTES_MAX: u64 = 1 << 30;

/// The longest line of a list that a program makes.
pub const LINE_BYTES_MAX: u64 = 1 << 20;

/// The bytes of a file. Errors: the host's; `InvalidData`: it is too large.
pub fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    at_most(path, BYTES_MAX)
}

/// The text of a file. Errors: the host's; `InvalidData`: it is too large, or no text.
pub fn read(path: &Path) -> io::Result<String> {
    read_at_most(path, BYTES_MAX)
}

/// The text of a file of at most `max` bytes. Errors: as [`read`].
pub fn read_at_most(path: &Path, max: u64) -> io::Result<String> {
    let wrong = |at: usize| invalid(format!("not a text file: byte {at}"));
    let text = String::from_utf8(at_most(path, max)?);
    let text = text.map_err(|e| wrong(e.utf8_error().valid_up_to()))?;
    match text.bytes().position(|b| b == 0) {
        Some(at) => Err(wrong(at)),
        None => Ok(text),
    }
}

/// The bytes of a file of at most `max` bytes. Errors: as [`bytes()`].
pub fn at_most(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let what = || invalid(format!("not a text file of this kind: more than {max} bytes"));
    if metadata.is_file() && metadata.len() > max {
        return Err(what());
    }
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max { Err(what()) } else { Ok(bytes) }
}

/// The next line, with its line feed, in place of what `line` holds; answers whether there is one.
///
/// Errors: the reader's; `InvalidData`: a line of more than [`LINE_BYTES_MAX`] bytes, or no text.
pub fn next_line(from: &mut dyn BufRead, line: &mut String) -> io::Result<bool> {
    line.clear();
    let read = from.take(LINE_BYTES_MAX + 1).read_line(line)?;
    if read as u64 > LINE_BYTES_MAX {
        return Err(invalid(format!("a line of more than {LINE_BYTES_MAX} bytes")));
    }
    Ok(read > 0)
}

fn invalid(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_or_no_text_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f");
        std::fs::write(&path, "a\n").expect("written");
        assert_eq!(read(&path).expect("text"), "a\n");
        std::fs::write(&path, "ab\0").expect("written");
        assert_eq!(read(&path).expect_err("none").to_string(), "not a text file: byte 2");
        std::fs::write(&path, b"abc\xff").expect("written");
        assert_eq!(read(&path).expect_err("none").to_string(), "not a text file: byte 3");
        // It cannot be held in memory.
        File::create(&path).and_then(|f| f.set_len(1 << 40)).expect("sparse");
        for path in [path.as_path(), Path::new("/dev/zero")] {
            let e = read(path).expect_err("too large");
            assert_eq!(e.kind(), ErrorKind::InvalidData, "{e}");
        }
    }

    #[test]
    fn lines_have_an_end() {
        let mut line = String::new();
        let mut lines = io::Cursor::new("a\n\nb");
        for expected in ["a\n", "\n", "b"] {
            assert!(next_line(&mut lines, &mut line).expect("read") && line == expected);
        }
        assert!(!next_line(&mut lines, &mut line).expect("the end"));
        let mut endless = io::BufReader::new(io::repeat(b' '));
        assert!(next_line(&mut endless, &mut line).is_err());
    }
}
