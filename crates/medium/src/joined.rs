//! Several devices as one image.

use wp_base::{FsError, FsResult, SECTOR_BYTES, Sector, Zone};

use crate::View;

/// Devices one behind the other, as the addresses of a file system on all of them count.
pub struct Joined<'a> {
    parts: Vec<(u64, &'a dyn View)>,
    bytes: u64,
}

impl<'a> Joined<'a> {
    /// Joins devices, each as long as its view.
    pub fn new(devices: &[&'a dyn View]) -> Joined<'a> {
        let mut bytes = 0;
        let mut parts = Vec::new();
        for d in devices {
            parts.push((bytes, *d));
            bytes += d.len_bytes();
        }
        Joined { parts, bytes }
    }
}

impl View for Joined<'_> {
    /// Those of all devices, the conventional ones of which have none.
    fn zones(&self) -> Vec<Zone> {
        let of = |(start, part): &(u64, &dyn View)| {
            let by = start / SECTOR_BYTES;
            let moved =
                |z: Zone| Zone { start: Sector(z.start.0 + by), wp: Sector(z.wp.0 + by), ..z };
            part.zones().into_iter().map(moved).collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(of).collect()
    }
    fn len_bytes(&self) -> u64 {
        self.bytes
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        let mut rest = out;
        let mut at = at;
        for (start, part) in &self.parts {
            let end = start + part.len_bytes();
            if rest.is_empty() {
                return Ok(());
            }
            if at >= *start && at < end {
                let n = usize::try_from(end - at).unwrap_or(usize::MAX).min(rest.len());
                let (now, later) = rest.split_at_mut(n);
                part.read_at(at - start, now)?;
                at += n as u64;
                rest = later;
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(FsError::Io) }
    }
    fn is_fixed(&self, at: u64, bytes: u64) -> bool {
        let within = |(start, part): &(u64, &dyn View)| {
            at >= *start && at.saturating_add(bytes) <= start + part.len_bytes()
        };
        self.parts.iter().find(|p| within(p)).is_some_and(|(s, p)| p.is_fixed(at - s, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of one byte.
    struct Page(u8);

    impl View for Page {
        fn len_bytes(&self) -> u64 {
            4096
        }
        fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
            assert!(at + out.len() as u64 <= 4096, "not beyond the device");
            out.fill(self.0);
            Ok(())
        }
    }

    #[test]
    fn reads_go_across_the_border() {
        let (first, second) = (Page(7), Page(9));
        let both = Joined::new(&[&first, &second]);
        let mut out = [0; 1024];
        both.read_at(4096 - 512, &mut out).expect("within");
        assert_eq!((out.first(), out.get(511), out.get(512)), (Some(&7), Some(&7), Some(&9)));
        assert_eq!(both.read_at(8192 - 512, &mut out), Err(FsError::Io));
    }
}
