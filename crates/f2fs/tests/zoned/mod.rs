//! Reference images with their zones.

use wp_base::{Sector, Zone};
use wp_f2fs::image::Image;
use wp_medium::{View, WithZones};

/// The image `name`, whose devices lie one behind the other in `bytes`, with its zones.
pub fn with_zones<'a>(name: &str, bytes: &'a dyn View) -> WithZones<'a> {
    let image = Image::open(bytes).expect("an image");
    let by = u64::from(image.geometry().devices.last().expect("one").start) * 8;
    let moved = |z: Zone| Zone { start: Sector(z.start.0 + by), wp: Sector(z.wp.0 + by), ..z };
    WithZones::new(bytes, crate::zones::zones(name).into_iter().flatten().map(moved).collect())
}
