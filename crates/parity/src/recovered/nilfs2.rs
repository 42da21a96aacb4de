//! NILFS2's part.

use std::path::Path;

use serde_json::Value;
use wp_medium::{Overlay, View};
use wp_nilfs2::image::{Image, InspectOptions, RecoverOptions, list, recover};

use super::{Row, compare, kernels, manifest, unpacked};

/// The rows of one folder of reference data, one a kernel.
pub(super) fn images(name: &str, folder: &Path, rows: &mut Vec<Row>) -> Result<(), String> {
    let manifest = manifest(folder)?;
    let image = unpacked(&folder.join("image.img.zst"))?;
    for (kernel, refused) in kernels(&manifest) {
        let files = manifest["expected_after_recovery"].as_array();
        let expected = files.filter(|_| !refused).map_or(&[][..], Vec::as_slice);
        rows.push(row(name.to_owned(), kernel, refused, &image, expected));
    }
    Ok(())
}

/// The row of one image.
pub(super) fn row(
    case: String,
    kernel: (u16, u16),
    refused: bool,
    image: &dyn View,
    expected: &[Value],
) -> Row {
    let mut row = Row::empty(case, kernel, refused, expected.len());
    let overlay = Overlay::new(image);
    let found = recover(&overlay, &RecoverOptions::default())
        .and_then(|recovery| Ok((recovery, Image::open(&overlay)?)));
    let (recovery, image) = match found {
        Ok(found) => found,
        Err(e) => {
            row.refused = Some(e.errno().to_owned());
            row.difference = (!refused).then(|| format!("refused: {e}"));
            return row;
        }
    };
    row.blocks = recovery.blocks;
    if refused {
        row.difference = Some("mounted; the kernel refuses".to_owned());
        return row;
    }
    let (files, findings) = list(&image, &InspectOptions::default());
    row.difference = findings.first().map(|f| f.error.to_string());
    compare(&mut row, files, expected);
    row
}
