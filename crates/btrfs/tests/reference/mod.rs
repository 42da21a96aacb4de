//! Reference images.

use std::path::PathBuf;

/// The folder named by `WRITEPATH_REFERENCE`, or `testdata/reference`.
pub fn folder() -> PathBuf {
    std::env::var_os("WRITEPATH_REFERENCE").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/reference"),
        PathBuf::from,
    )
}

/// Loads image `name` and its manifest. `None`, after saying so, if it is not there.
pub fn reference(test: &str, name: &str) -> Option<(Vec<u8>, serde_json::Value)> {
    let folder = folder().join(name);
    let Ok(manifest) = std::fs::read_to_string(folder.join("manifest.json")) else {
        crate::skip::skipped(test, &format!("reference image {name} is not here"));
        return None;
    };
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
    let packed = std::fs::read(folder.join("image.img.zst")).expect("an image");
    Some((zstd::decode_all(packed.as_slice()).expect("a whole archive"), manifest))
}
