//! The replay of the journal at a mount, from the image to the device.

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_block::{Bio, Partition};
use wp_jbd2::RecoverPolicy;
use wp_medium::{MediumView, Overlay};
use wp_rt::Rt;

use super::features;
use super::mount::MountOptions;
use crate::site;

/// Replays the journal: recovery is a pure function of the image; what it changed is then written,
/// flushed, and only then is the journal marked empty, in the kernel's order.
pub(super) async fn replay(rt: &Rt, part: &Partition, opts: &MountOptions) -> FsResult<()> {
    let view = view_of(part);
    let overlay = Overlay::new(&view);
    let now = opts.epoch_secs.saturating_add((rt.now().0 / 1_000_000_000) as i64);
    let now = u32::try_from(now).unwrap_or(u32::MAX);
    let mut policy = RecoverPolicy::of(&wp_jbd2::Era::of(opts.era.version()));
    if opts.fast.ijournal {
        policy = policy.with_ijournal();
    }
    crate::image::replay_journal(&overlay, &policy, now)?;
    // What came out of the log must be what we can mount, before a byte of it is written.
    features::check(crate::image::Image::open(&overlay)?.super_block())?;
    let stages = match site::RECOVER_HOME_FIRST.on() {
        true => overlay.staged_writes(),
        false => vec![overlay.writes()],
    };
    for stage in stages {
        let plug = part.plug();
        let mut waits = Vec::new();
        for (at, data) in stage {
            let p = part.clone();
            waits.push(rt.spawn("mount", async move {
                p.submit_wait(Bio::write(at, vec![data], Flags::SYNC)).await
            }));
        }
        drop(plug);
        for w in waits {
            w.await.map_err(|_| FsError::Io)?;
        }
        if site::RECOVER_FLUSH.on() {
            part.flush().await.map_err(|_| FsError::Io)?;
        }
    }
    Ok(())
}

/// The partition as it would be read now, in no time: recovery is a pure function of the image.
pub(super) fn view_of(part: &Partition) -> MediumView {
    MediumView {
        medium: part.queue().with_device(|d| d.medium()),
        start: part.start(),
        bytes: part.sectors() * wp_base::SECTOR_BYTES,
    }
}
