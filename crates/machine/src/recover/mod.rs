//! Writing what a recovery makes of image files: into them ([`InPlace`]), or into copies
//! ([`copy`], [`Output`](crate::host::Output)).
//!
//! Picture:    [`RecoveryPlan`] -> stage by stage: its writes to all devices, then a sync of all
//!             of them.
//! Invariants: 1. nothing of a stage is written before all devices have all of the stages before it
//!                on stable storage.
//!             2. an error or an interrupt ends it between two writes: what is there by then
//!                recovers to the same files.

mod copy;
mod in_place;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

pub use copy::copy;
pub use in_place::InPlace;
use wp_medium::Writes;
use wp_vfs::RecoveryPlan;

/// A device of the image, as it is written.
pub trait Target {
    /// Writes `bytes` at byte `at` of the device. Errors: the host's; any part of it may be there.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// What was written is on stable storage. Errors: the host's; any of it may be.
    fn sync(&mut self) -> io::Result<()>;
}

/// Where in its file a device's part of the image is: all of it, or a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// First byte in the file.
    pub at: u64,
    /// Bytes.
    pub bytes: u64,
}

/// How writing a recovery ended early.
#[derive(Debug)]
pub enum Stopped {
    /// The host failed.
    Failed {
        /// Number of the device.
        device: usize,
        /// Why.
        error: io::Error,
    },
    /// It was asked to stop.
    Interrupted,
}

/// Writes `plan` to devices one behind the other, at `places` in their files. `stop` ends it
/// between two writes.
pub fn write<T: Target>(
    devices: &mut [T],
    places: &[Place],
    plan: &RecoveryPlan,
    stop: &AtomicBool,
) -> Result<(), Stopped> {
    for stage in &plan.stages {
        for (device, at, bytes) in on_devices(stage, places) {
            if stop.load(Ordering::SeqCst) {
                return Err(Stopped::Interrupted);
            }
            let Some(target) = devices.get_mut(device) else { continue };
            target.write_at(at, &bytes).map_err(|error| Stopped::Failed { device, error })?;
        }
        for (device, target) in devices.iter_mut().enumerate() {
            target.sync().map_err(|error| Stopped::Failed { device, error })?;
        }
    }
    Ok(())
}

/// The pieces of a stage by device: its number, byte address in its file, contents.
fn on_devices<'a>(
    stage: &'a Writes,
    places: &'a [Place],
) -> impl Iterator<Item = (usize, u64, Vec<u8>)> + 'a {
    stage.iter().flat_map(move |(at, slice)| {
        let bytes = slice.to_vec();
        let (from, to) = (at.bytes(), at.bytes() + bytes.len() as u64);
        let mut start = 0;
        let mut pieces = Vec::new();
        for (device, place) in places.iter().enumerate() {
            let (first, end) = (from.max(start), to.min(start + place.bytes));
            if first < end {
                let piece = bytes[(first - from) as usize..(end - from) as usize].to_vec();
                pieces.push((device, place.at + first - start, piece));
            }
            start += place.bytes;
        }
        pieces
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use wp_base::Sector;
    use wp_medium::Slice;

    use super::*;

    /// What was done, device by device: `w` a write with its place and length, `s` a sync.
    #[derive(Clone, Default)]
    struct Noted(Rc<RefCell<Vec<String>>>, usize);

    impl Target for Noted {
        fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
            self.0.borrow_mut().push(format!("{}w{at}+{}", self.1, bytes.len()));
            Ok(())
        }
        fn sync(&mut self) -> io::Result<()> {
            self.0.borrow_mut().push(format!("{}s", self.1));
            Ok(())
        }
    }

    fn plan() -> RecoveryPlan {
        let page = |at: u64| (Sector(at), Slice::from_bytes(&[7; 4096]));
        RecoveryPlan { stages: vec![vec![page(0), page(8)], vec![page(0)]], zones: Vec::new() }
    }

    #[test]
    fn every_device_is_synced_behind_every_stage_and_a_page_over_two_is_split() {
        let one = Noted::default();
        let mut devices = [one.clone(), Noted(one.0.clone(), 1)];
        let places = [Place { at: 0, bytes: 6144 }, Place { at: 512, bytes: 8192 }];
        write(&mut devices, &places, &plan(), &AtomicBool::new(false)).expect("written");
        let want = ["0w0+4096", "0w4096+2048", "1w512+2048", "0s", "1s", "0w0+4096", "0s", "1s"];
        assert_eq!(*one.0.borrow(), want);
    }

    #[test]
    fn an_interrupt_ends_it_before_the_next_write() {
        let one = Noted::default();
        let done = write(
            &mut [one.clone()],
            &[Place { at: 0, bytes: 8192 }],
            &plan(),
            &AtomicBool::new(true),
        );
        assert!(matches!(done, Err(Stopped::Interrupted)));
        assert_eq!(one.0.borrow().len(), 0);
    }
}
