//! Images of NILFS2: readers, check, recovery.

use wp_medium::Overlay;
use wp_nilfs2::check::{CheckOptions, check};
use wp_nilfs2::image::{Image, InspectOptions, RecoverOptions, inspect, list, recover, survey};

use super::base::{Base, Family};
use super::image::Counted;
use super::patch::{Patched, patched, reads};

fn with_image(input: &[u8], use_it: impl FnOnce(&Base, &Overlay<'_>, &Patched<'_>)) {
    patched(Family::Nilfs2, input, use_it);
}

/// Listing with hashes, evidence and survey; with and without recovery.
pub fn read(input: &[u8]) {
    with_image(input, |_, over, patched| {
        let view = Counted::new(over, patched.bytes, reads(over));
        let hash = patched.how & 4 != 0;
        let options = InspectOptions { hash, hash_bytes_max: 1 << 22, ..InspectOptions::default() };
        if patched.how & 8 != 0 {
            let _ = inspect(&view, &options);
            return;
        }
        if patched.how & 16 != 0 {
            let recovered = Overlay::new(&view);
            let _ = survey(&recovered, &RecoverOptions::default());
            return;
        }
        if let Ok(image) = Image::open(&view) {
            let _ = list(&image, &options);
            for cp in image.checkpoints().unwrap_or_default().iter().take(3) {
                let _ = Image::open_checkpoint(&view, cp.cno.get()).map(|i| list(&i, &options));
            }
        }
        view.allow(reads(over));
        let _ = (wp_nilfs2::ENTRY.blocks)(&view);
    });
}

/// Our fsck, with and without recovery: it ends, and what it finds has a place.
pub fn fsck(input: &[u8]) {
    with_image(input, |_, over, patched| {
        let view = Counted::new(over, patched.bytes, reads(over));
        let recover = (patched.how & 4 != 0).then(RecoverOptions::default);
        if let Ok(report) = check(&view, &CheckOptions { recover }) {
            for f in &report.findings {
                assert!(!f.place.is_empty() && !f.expected.is_empty(), "{f:?}");
            }
        }
    });
}

/// Recovery: ends, and what is recovered has nothing left to recover.
pub fn recovery(input: &[u8]) {
    with_image(input, |_, over, patched| {
        let view = Counted::new(over, patched.bytes, reads(over));
        let first = Overlay::new(&view);
        let Ok(done) = recover(&first, &RecoverOptions::default()) else { return };
        view.allow(reads(over));
        let again = Overlay::new(&first);
        let Ok(second) = recover(&again, &RecoverOptions::default()) else { return };
        // A copy that leads nowhere stays where it is, as in Linux: the other one has it all.
        let cno = done.cno + u64::from(done.blocks > 0);
        let is_whole = second.fell_back && second.cno == cno && second.blocks == 0;
        let is_over = !second.is_needed || done.fell_back && is_whole;
        assert!(is_over, "recovered {done:?}, and then again {second:?}");
    });
}
