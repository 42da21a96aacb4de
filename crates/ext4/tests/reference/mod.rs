//! What several tests need: images in memory, and where the reference images are.

use std::path::PathBuf;

use wp_base::{FsError, FsResult};
use wp_medium::View;

/// An image in memory.
pub struct Bytes(pub Vec<u8>);

impl View for Bytes {
    fn len_bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        let at = usize::try_from(at).map_err(|_| FsError::Io)?;
        let end = at.checked_add(out.len()).ok_or(FsError::Io)?;
        out.copy_from_slice(self.0.get(at..end).ok_or(FsError::Io)?);
        Ok(())
    }
}

/// Loads the crashed image `name` of a real kernel and the manifest that says how it was made, from
/// the folder named by `WRITEPATH_REFERENCE`, or from `testdata/reference`.
/// `None`, after saying so, if it is not there.
pub fn reference(test: &str, name: &str) -> Option<(Bytes, serde_json::Value)> {
    let root = std::env::var_os("WRITEPATH_REFERENCE").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/reference"),
        PathBuf::from,
    );
    let folder = root.join(name);
    let Ok(packed) = std::fs::read(folder.join("image.img.zst")) else {
        crate::skip::skipped(test, &format!("reference image {name} is not here"));
        return None;
    };
    let image = Bytes(zstd::decode_all(packed.as_slice()).expect("a whole archive"));
    let manifest =
        std::fs::read_to_string(folder.join("manifest.json")).expect("a manifest beside the image");
    Some((image, serde_json::from_str(&manifest).expect("JSON")))
}
