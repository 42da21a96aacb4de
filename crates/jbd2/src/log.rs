//! Where the log's blocks are on the device.

/// The journal inode's extents.
///
/// Shape: runs `(first log block, device block, length)`, all in file-system blocks, sorted by log
///        block and not overlapping. A gap is a hole, which makes an image unusable.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogMap {
    /// The runs.
    pub blocks: Vec<(u32, u64, u32)>,
}

impl LogMap {
    /// A log in one piece: `len` blocks from device block `at`.
    pub fn contiguous(at: u64, len: u32) -> LogMap {
        LogMap { blocks: vec![(0, at, len)] }
    }

    /// Blocks from log block 0 to the end of the last run.
    pub fn len(&self) -> u32 {
        self.blocks.last().map_or(0, |(first, _, n)| first.saturating_add(*n))
    }

    /// Is there no block at all?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device block of log block `log`. `None` in a hole or behind the end.
    pub fn block(&self, log: u32) -> Option<u64> {
        let after = self.blocks.partition_point(|(first, _, _)| *first <= log);
        let (first, at, n) = *self.blocks.get(after.checked_sub(1)?)?;
        let off = log - first;
        if off < n { at.checked_add(u64::from(off)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_map_and_holes_do_not() {
        let m = LogMap { blocks: vec![(0, 100, 4), (4, 300, 2), (10, 50, 1)] };
        assert_eq!(m.block(0), Some(100));
        assert_eq!(m.block(3), Some(103));
        assert_eq!(m.block(5), Some(301));
        assert_eq!(m.block(6), None);
        assert_eq!(m.block(10), Some(50));
        assert_eq!(m.block(11), None);
        assert_eq!(m.len(), 11);
        assert_eq!(LogMap::default().block(0), None);
    }
}
