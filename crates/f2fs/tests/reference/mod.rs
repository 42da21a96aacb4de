//! Reference images: the devices of one file system joined, as addresses count them.

use std::path::PathBuf;

/// Names of the crashed images that real kernels left.
pub const IMAGES: [&str; 13] = [
    "f2fs-aged",
    "f2fs-attrs",
    "f2fs-chain",
    "f2fs-lfs",
    "f2fs-nobarrier",
    "f2fs-nofsync",
    "f2fs-noinline",
    "f2fs-posix",
    "f2fs-strict",
    "f2fs-trunc",
    "f2fs-zhm",
    "f2fs-zhmcap",
    "f2fs-zns",
];

/// The folder named by `WRITEPATH_REFERENCE`, or `testdata/reference`.
pub fn folder() -> PathBuf {
    std::env::var_os("WRITEPATH_REFERENCE").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/reference"),
        PathBuf::from,
    )
}

/// Loads image `name`, its devices one behind the other, and its manifest. `None`, after saying so,
/// if it is not there.
pub fn reference(test: &str, name: &str) -> Option<(Vec<u8>, serde_json::Value)> {
    let folder = folder().join(name);
    let Ok(manifest) = std::fs::read_to_string(folder.join("manifest.json")) else {
        crate::skip::skipped(test, &format!("reference image {name} is not here"));
        return None;
    };
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
    let mut bytes = Vec::new();
    // The conventional device of two comes first, and so do the names sort.
    for device in manifest["images"].as_object().expect("devices").values() {
        let file = device["file"].as_str().expect("a file name");
        let packed = std::fs::read(folder.join(file)).expect("a device beside the manifest");
        bytes.extend(zstd::decode_all(packed.as_slice()).expect("a whole archive"));
    }
    Some((bytes, manifest))
}
