//! Images in memory.

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
