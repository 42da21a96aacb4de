//! F2FS's part: images of one or several devices, with the zones that they had at the crash.

use std::path::Path;

use serde_json::Value;
use wp_base::plain::Shown as _;
use wp_base::zone_report;
use wp_f2fs::disk::{Block, Geometry, SuperBlock, ZERO_BLOCK};
use wp_f2fs::image::{Image, InspectOptions, RecoverOptions, Rules, list, recover};
use wp_machine::files::Bytes;
use wp_medium::{Joined, Medium, Overlay, View, WithZones};

use super::{Row, compare, kernels, manifest, unpacked};

/// Bytes of the file system on a medium, if there is one.
pub(super) fn bytes(medium: &Medium) -> Option<u64> {
    let mut block: Block = ZERO_BLOCK;
    medium.read_bytes(0, &mut block);
    let sb = SuperBlock::load(&block);
    sb.verify(0).ok()?;
    Geometry::from_super(&sb).ok().map(|g| g.bytes())
}

/// The rows of one folder of reference data, one a kernel.
pub(super) fn images(name: &str, folder: &Path, rows: &mut Vec<Row>) -> Result<(), String> {
    let manifest = manifest(folder)?;
    let files: Vec<&str> = manifest["images"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(_, device)| device["file"].as_str())
        .collect();
    // The conventional device of two comes first, and so do the names sort.
    let devices: Vec<Bytes> =
        files.iter().map(|f| unpacked(&folder.join(f))).collect::<Result<_, _>>()?;
    let mut views: Vec<&dyn View> = devices.iter().map(|d| -> &dyn View { d }).collect();
    let report = folder.join("zoned.zones.txt");
    let zones = match std::fs::read_to_string(&report) {
        Ok(text) => zone_report::parse(&text).map_err(|e| format!("{}: {e}", report.shown()))?,
        Err(_) => Vec::new(),
    };
    let zoned = views.pop().map(|last| WithZones::new(last, zones));
    views.extend(zoned.iter().map(|z| -> &dyn View { z }));
    let image = Joined::new(&views);
    for (kernel, refused) in kernels(&manifest) {
        let rules = Rules::linux(kernel.0, kernel.1);
        let options = RecoverOptions { rules, ..Default::default() };
        let files = manifest["expected_after_recovery"].as_array();
        let expected = files.filter(|_| !refused).map_or(&[][..], Vec::as_slice);
        let row = Row::empty(name.to_owned(), kernel, refused, expected.len());
        rows.push(fill(row, &image, &options, expected));
    }
    Ok(())
}

/// The row of an image on one device without zones.
pub(super) fn row(
    case: String,
    kernel: (u16, u16),
    refused: bool,
    image: &dyn View,
    expected: &[Value],
) -> Row {
    let rules = Rules::linux(kernel.0, kernel.1);
    let options = RecoverOptions { rules, ..Default::default() };
    fill(Row::empty(case, kernel, refused, expected.len()), image, &options, expected)
}

fn fill(mut row: Row, image: &dyn View, options: &RecoverOptions, expected: &[Value]) -> Row {
    let overlay = Overlay::new(image);
    let recovery = match recover(&overlay, options) {
        Ok(recovery) => recovery,
        Err(e) => {
            row.refused = Some(e.errno().to_owned());
            row.difference = (!row.refused_there).then(|| format!("refused: {e}"));
            return row;
        }
    };
    row.nodes = recovery.nodes_applied;
    row.blocks = recovery.blocks.into();
    row.deleted = recovery.orphans + recovery.deleted;
    if row.refused_there {
        row.difference = Some("mounted; the kernel refuses".to_owned());
        return row;
    }
    let image = match Image::open(&overlay) {
        Ok(image) => image,
        Err(e) => {
            row.difference = Some(e.to_string());
            return row;
        }
    };
    let (files, findings) = list(&image, &InspectOptions::default());
    let failed = recovery.failed.map(|e| format!("roll-forward failed: {e}"));
    row.difference = failed.or(findings.first().map(|f| f.error.to_string()));
    compare(&mut row, files, expected);
    row
}
