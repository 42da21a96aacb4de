//! Packed files: gzip, xz and zstd, each of one or more members.

use std::io::{self, BufReader, Read};

use wp_medium::View;

use super::{Error, Store};

/// Memory that a decoder may ask for: `xz -9` and `zstd --ultra -22` do with less.
pub const MEMORY_BYTES: u64 = 192 << 20;
/// The same for zstd: a window of 128 MiB, which `zstd -d` takes without `--long`.
const ZSTD_WINDOW_LOG: u32 = 27;
/// Bytes read or made at a time.
const CHUNK: usize = 128 << 10;

/// A view as a stream.
struct Stream<'v> {
    view: &'v dyn View,
    at: u64,
}

impl Read for Stream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = self.view.len_bytes().saturating_sub(self.at);
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(out.len());
        let out = out.get_mut(..n).unwrap_or(&mut []);
        self.view.read_at(self.at, out).map_err(|e| io::Error::other(e.to_string()))?;
        self.at += n as u64;
        Ok(n)
    }
}

type Source<'v> = BufReader<Stream<'v>>;

fn source(view: &dyn View) -> Source<'_> {
    BufReader::with_capacity(CHUNK, Stream { view, at: 0 })
}

/// The byte of the container that is read next.
fn place(source: &Source<'_>) -> u64 {
    source.get_ref().at.saturating_sub(source.buffer().len() as u64)
}

/// Unpacks a gzip file. Errors: as [`Error`] says.
pub fn gzip(view: &dyn View, out: &mut Store<'_>) -> Result<(), Error> {
    let decoder = flate2::bufread::MultiGzDecoder::new(source(view));
    copy(decoder, |d| place(d.get_ref()), out)
}

/// Unpacks an xz file. Errors: as [`Error`] says.
pub fn xz(view: &dyn View, out: &mut Store<'_>) -> Result<(), Error> {
    let stream =
        liblzma::stream::Stream::new_stream_decoder(MEMORY_BYTES, liblzma::stream::CONCATENATED);
    let stream = stream.map_err(|e| Error::Host(io::Error::other(e)))?;
    let decoder = liblzma::bufread::XzDecoder::new_stream(source(view), stream);
    copy(decoder, |d| place(d.get_ref()), out)
}

/// Unpacks a zstd file. Errors: as [`Error`] says.
pub fn zstd(view: &dyn View, out: &mut Store<'_>) -> Result<(), Error> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(source(view))?;
    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
    copy(decoder, |d| place(d.get_ref()), out)
}

/// Takes all that a decoder gives; `place` is where it is in the container.
fn copy<D: Read>(
    mut decoder: D,
    place: impl Fn(&D) -> u64,
    out: &mut Store<'_>,
) -> Result<(), Error> {
    let mut piece = vec![0; CHUNK];
    let mut at = 0u64;
    loop {
        let n = match decoder.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(Error::damaged(place(&decoder), words(&e))),
        };
        out.put(at, piece.get(..n).unwrap_or(&[]))?;
        at += n as u64;
    }
    out.set_len(at)
}

/// What a decoder says, where its own words say little.
fn words(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => "the file ends within the packed data".to_owned(),
        _ => format!("not packed data: {e}"),
    }
}

/// Unpacks a deflate stream without a header into `out`; answers how many bytes it gave.
pub(super) fn deflate(packed: &[u8], out: &mut [u8]) -> Result<usize, String> {
    let mut decoder = flate2::bufread::DeflateDecoder::new(packed);
    let mut done = 0;
    while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match decoder.read(rest) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) => return Err(words(&e)),
        }
    }
    Ok(done)
}
