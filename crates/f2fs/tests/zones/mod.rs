//! Zones of reference images.

/// Zones of the zoned device of image `name` at the crash, if it has one.
pub fn zones(name: &str) -> Option<Vec<wp_f2fs::image::Zone>> {
    let text =
        std::fs::read_to_string(crate::reference::folder().join(name).join("zoned.zones.txt"))
            .ok()?;
    Some(wp_f2fs::image::parse_zones(&text).expect("a report"))
}
