//! Images in memory, and their zones.

/// An image in memory.
pub struct Bytes(pub Vec<u8>);

impl wp_medium::View for Bytes {
    fn len_bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> wp_base::FsResult<()> {
        let at = usize::try_from(at).map_err(|_| wp_base::FsError::Io)?;
        let end = at.checked_add(out.len()).ok_or(wp_base::FsError::Io)?;
        out.copy_from_slice(self.0.get(at..end).ok_or(wp_base::FsError::Io)?);
        Ok(())
    }
}

/// Zones of the zoned device of image `name` at the crash, if it has one.
pub fn zones(name: &str) -> Option<Vec<wp_f2fs::image::Zone>> {
    let text =
        std::fs::read_to_string(crate::reference::folder().join(name).join("zoned.zones.txt"))
            .ok()?;
    Some(wp_f2fs::image::parse_zones(&text).expect("a report"))
}
