//! Images below a folder, by their names.

use std::path::{Path, PathBuf};

/// An image, packed or not.
pub struct Image {
    /// Its folder's name and its own, as the list of reasons has it.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
}

/// Endings of packed files.
const PACKED: [&str; 4] = [".gz", ".xz", ".zst", ".bz2"];

/// Finds all, in the order of their paths. Errors: a folder that cannot be read.
pub fn find(dir: &Path) -> Result<Vec<Image>, String> {
    let mut out = Vec::new();
    walk(dir, &mut out)?;
    out.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(out)
}

fn walk(dir: &Path, out: &mut Vec<Image>) -> Result<(), String> {
    let io = |e: std::io::Error| format!("{}: {e}", dir.display());
    for entry in std::fs::read_dir(dir).map_err(io)? {
        let entry = entry.map_err(io)?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(io)?);
        if kind.is_dir() {
            walk(&path, out)?;
        } else if kind.is_file() && is_image(&entry.file_name().to_string_lossy()) {
            let parent = dir.file_name().unwrap_or_default().to_string_lossy();
            let name = format!("{parent}/{}", entry.file_name().to_string_lossy());
            out.push(Image { name, path });
        }
    }
    Ok(())
}

/// `image`, `x.img`, `x.raw` and `image-2`, packed or not.
fn is_image(name: &str) -> bool {
    let plain = PACKED.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let is_packed = plain != name;
    [".img", ".raw"].iter().any(|end| plain.ends_with(end))
        || plain == "image"
        || (is_packed && plain.starts_with("image"))
}

#[cfg(test)]
mod tests {
    use super::is_image;

    #[test]
    fn names_of_images() {
        for name in ["image", "image.gz", "image2.gz", "a.img", "a.raw.xz", "a.img.zst"] {
            assert!(is_image(name), "{name}");
        }
        for name in ["image.c", "a.raw.txt", "expect.1", "a.tar.xz", "a.stream.xz"] {
            assert!(!is_image(name), "{name}");
        }
    }
}
