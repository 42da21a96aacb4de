//! Zones of reference images.

use wp_base::{Zone, zone_report};

/// Zones of the zoned device of image `name` at the crash, if it has one.
pub fn zones(name: &str) -> Option<Vec<Zone>> {
    let file = crate::reference::folder().join(name).join("zoned.zones.txt");
    let text = std::fs::read_to_string(file).ok()?;
    Some(zone_report::parse(&text).expect("a report"))
}
