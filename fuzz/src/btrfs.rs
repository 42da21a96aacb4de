//! Images of btrfs: readers, check, recovery.

use std::rc::Rc;

use wp_btrfs::check::{CheckOptions, check};
use wp_btrfs::core::{Core, Disk};
use wp_btrfs::disk::CsumKind;
use wp_btrfs::fs::{Btrfs, MountOptions, Mounted};
use wp_btrfs::image::{Image, InspectOptions, inspect, list, survey};
use wp_btrfs::mkfs::{MkfsOptions, mkfs};
use wp_btrfs::replay::{OldReplay, Overgrown, RecoverOptions, recover};
use wp_medium::{Medium, Overlay};
use wp_vfs::Vfs;

use super::base::{Base, Family};
use super::image::{Counted, Sparse};
use super::patch::{Patched, patched};
use super::world::World;

/// Recipe of an image of ours: what [`World::furnish`] puts there.
#[derive(Clone, Copy)]
pub struct Ours {
    /// Bytes of a tree block.
    pub node_bytes: u32,
    /// Metadata in two copies?
    pub has_two_copies: bool,
    /// Checksum.
    pub csum: CsumKind,
    /// Unmounted, or left as a power cut leaves it: with a log tree.
    pub is_clean: bool,
}

/// Bytes of an image of ours: the least at which there is room for two copies.
const OURS_BYTES: u64 = 128 << 20;

/// Makes an image of ours.
pub fn make(ours: &Ours) -> Sparse {
    let mut o = MkfsOptions::new(OURS_BYTES);
    (o.node_bytes, o.dup_metadata, o.csum) = (ours.node_bytes, ours.has_two_copies, ours.csum);
    let mut medium = Medium::new();
    mkfs(&o).expect("possible options").write_to(&mut medium);
    let world = World::new(&medium, OURS_BYTES);
    let (rt, part) = (world.rt(), world.part());
    let options = MountOptions { epoch_secs: o.now.cast_signed(), ..MountOptions::default() };
    let fs = world.run(async move { Btrfs::mount(&rt, part, options).await }).expect("mounts");
    let vfs = Vfs::new(&world.rt(), Rc::new(Mounted(fs)));
    world.furnish(&vfs, false, ours.is_clean);
    let image = Sparse::of_medium(&world.medium(), OURS_BYTES);
    drop(vfs);
    world.end();
    let has_log = Image::open(&image).expect("an image").super_block().log_root.get() != 0;
    assert_eq!(has_log, !ours.is_clean, "a log tree is what a cut leaves");
    image
}

/// Gives `use_it` the patched image, what is allowed to be read of it, and how.
fn with_image(input: &[u8], use_it: impl FnOnce(&Counted<'_>, u64, u8)) {
    patched(Family::Btrfs, input, |base: &Base, over: &Overlay<'_>, patched: &Patched<'_>| {
        // Most of the image is empty: a walk may take a few reads for each KiB that is not.
        let reads = 64 * (base.image.held_bytes() / 1024) + 100_000;
        use_it(&Counted::new(over, patched.bytes, reads), reads, patched.how);
    });
}

/// How an input wants to be recovered: as Linux 6.12, with rules that older ones lacked, or without
/// the panic of 6.12.
fn how_to_recover(how: u8) -> RecoverOptions {
    let is_old = how & 64 != 0;
    RecoverOptions {
        old: OldReplay { dir_size: is_old, refs: is_old, overwrite: is_old },
        overgrown: if how & 32 != 0 { Overgrown::Panic } else { Overgrown::Replace },
        ..RecoverOptions::default()
    }
}

/// Listing with hashes, classes of blocks and survey; with and without recovery.
pub fn read(input: &[u8]) {
    with_image(input, |view, reads, how| {
        let (hash, recover) = (how & 4 != 0, how_to_recover(how));
        let options = InspectOptions { hash, hash_bytes_max: 1 << 22, recover };
        if how & 8 != 0 {
            let _ = inspect(view, &options);
            return;
        }
        if how & 16 != 0 {
            let _ = survey(&Overlay::new(view), &options.recover);
            return;
        }
        if let Ok(image) = Image::open(view) {
            let _ = list(&image, &options);
        }
        view.allow(reads);
        let _ = (wp_btrfs::ENTRY.blocks)(view);
    });
}

/// Our fsck, with and without recovery and contents: it ends, and what it finds has a place.
pub fn fsck(input: &[u8]) {
    with_image(input, |view, _, how| {
        let recover = (how & 4 != 0).then(|| how_to_recover(how));
        if let Ok(report) = check(view, &CheckOptions { recover, contents: how & 8 != 0 }) {
            for f in &report.findings {
                assert!(!f.place.is_empty() && !f.expected.is_empty(), "{f:?}");
            }
        }
    });
}

/// Recovery: ends, having written nothing if it fails, and what is recovered has nothing left to
/// recover; a commit goes on top of it, or is refused.
pub fn recovery(input: &[u8]) {
    with_image(input, |view, reads, how| {
        let options = how_to_recover(how);
        let first = Overlay::new(view);
        let done = match recover(&first, &options) {
            Ok(done) => done,
            Err(e) => {
                assert!(first.is_empty(), "written in spite of: {e}");
                return;
            }
        };
        view.allow(reads);
        let second = recover(&Overlay::new(&first), &options);
        let is_done = second.as_ref().is_ok_and(|s| !s.is_needed);
        assert!(is_done, "recovered {done:?}, and then again {second:?}");
        view.allow(reads);
        if let Ok(mut core) = Core::open(Disk::of_view(&first)) {
            let _ = core.begin().and_then(|()| core.commit_plan().map(drop));
        }
    });
}
