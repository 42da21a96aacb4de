//! What of a write is kept or lost as one, and where an epoch ends.

use wp_base::event::Flags;
use wp_base::{SECTOR_BYTES, Sector};
use wp_block::{LossEffect, is_within};
use wp_medium::Slice;

use crate::tape::{Tape, device_of};

impl Tape {
    /// Does a write end an epoch of the device that the request is of?
    pub(crate) fn ends_epoch(&self, request: u64, flags: Flags) -> bool {
        let device = device_of(request);
        let is_barrier = flags.has(Flags::BARRIER) && self.ordered.contains(&device);
        is_barrier || self.whole.contains(&device)
    }

    /// Does the device keep a write whole that is so long?
    fn is_whole(&self, request: u64, at: Sector, data: &[Slice]) -> bool {
        let device = device_of(request);
        let sectors = data.iter().map(|s| u64::from(s.len())).sum::<u64>() / SECTOR_BYTES;
        let promised = self.untorn.iter().find(|u| u.device == device);
        self.whole.contains(&device)
            || promised.is_some_and(|u| is_within(u.bytes, u.boundary, at, sectors))
    }

    /// Parts of a write: all of it where the device keeps it whole, else units of `atomic` bytes.
    pub(crate) fn parts(
        &self,
        request: u64,
        at: Sector,
        data: &[Slice],
        atomic: u32,
    ) -> Vec<(LossEffect, Sector, Vec<Slice>)> {
        let plain = |(at, data)| (LossEffect::Data, at, data);
        match self.is_whole(request, at, data) {
            true => vec![plain((at, data.to_vec()))],
            false => split(at, data, atomic).into_iter().map(plain).collect(),
        }
    }
}

/// Units of `atomic` bytes from a write.
fn split(at: Sector, data: &[Slice], atomic: u32) -> Vec<(Sector, Vec<Slice>)> {
    let mut out: Vec<(Sector, Vec<Slice>)> = Vec::new();
    let mut sector = at.0;
    let unit = u64::from(atomic) / SECTOR_BYTES;
    for slice in data {
        let mut done = 0u32;
        while done < slice.len() {
            let left_in_unit = (unit - sector % unit) * SECTOR_BYTES;
            let n = left_in_unit.min(u64::from(slice.len() - done)) as u32;
            let part = slice.sub(done, n);
            match out.last_mut() {
                Some((_, parts)) if !sector.is_multiple_of(unit) && sector != at.0 => {
                    parts.push(part)
                }
                _ => out.push((Sector(sector), vec![part])),
            }
            sector += u64::from(n) / SECTOR_BYTES;
            done += n;
        }
    }
    out
}
