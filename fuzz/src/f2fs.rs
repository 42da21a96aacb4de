//! Images of F2FS: readers, check, recovery with and without order preservation.

use wp_f2fs::check::{CheckOptions, check};
use wp_f2fs::image::{
    Image, InspectOptions, RecoverOptions, Rules, inspect, list, recover, survey,
};
use wp_medium::{Overlay, View};

use super::base::{Base, Family};
use super::image::Counted;
use super::patch::{Patched, patched, reads};

fn with_image(input: &[u8], use_it: impl FnOnce(&Base, &Overlay<'_>, &Patched<'_>)) {
    patched(Family::F2fs, input, use_it);
}

/// How an input wants to be recovered: kernels whose rules differ, and order preservation where
/// there are zones.
fn how(patched: &Patched<'_>, view: &dyn View) -> RecoverOptions {
    let (major, minor) = [(5, 14), (6, 1), (6, 12), (6, 18)][usize::from(patched.how & 3)];
    let oprw = patched.how & 32 != 0 && !view.zones().is_empty();
    RecoverOptions { rules: Rules::linux(major, minor), oprw, ..RecoverOptions::default() }
}

/// Listing with hashes, evidence and survey; with and without recovery.
pub fn read(input: &[u8]) {
    with_image(input, |_, over, patched| {
        let view = Counted::new(over, patched.bytes, reads(over));
        let recover = how(patched, over);
        let hash = patched.how & 4 != 0;
        let options = InspectOptions { hash, hash_bytes_max: 1 << 22, recover: recover.clone() };
        if patched.how & 8 != 0 {
            let _ = inspect(&view, &options);
            return;
        }
        if patched.how & 16 != 0 {
            let recovered = Overlay::new(&view);
            let _ = survey(&recovered, &recover);
            return;
        }
        if let Ok(image) = Image::open(&view) {
            let _ = list(&image, &options);
        }
        view.allow(reads(over));
        let _ = (wp_f2fs::ENTRY.blocks)(&view);
    });
}

/// Our fsck, with and without recovery: it ends, and what it finds has a place.
pub fn fsck(input: &[u8]) {
    with_image(input, |_, over, patched| {
        let view = Counted::new(over, patched.bytes, reads(over));
        let recover = (patched.how & 4 != 0).then(|| how(patched, over));
        if let Ok(report) = check(&view, &CheckOptions { recover }) {
            for f in &report.findings {
                assert!(!f.place.is_empty() && !f.expected.is_empty(), "{f:?}");
            }
        }
    });
}

/// Recovery: ends, and what is recovered has nothing left to roll forward.
pub fn recovery(input: &[u8]) {
    with_image(input, |_, over, patched| {
        let view = Counted::new(over, patched.bytes, reads(over));
        let first = Overlay::new(&view);
        let options = how(patched, over);
        let Ok(done) = recover(&first, &options) else { return };
        if done.failed.is_some() {
            return;
        }
        view.allow(reads(over));
        let again = Overlay::new(&first);
        let Ok(second) = recover(&again, &options) else { return };
        assert_eq!(second.nodes_applied, 0, "recovered {done:?}, and then again {second:?}");
    });
}
