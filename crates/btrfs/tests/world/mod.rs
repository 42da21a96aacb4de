//! A device in a file: opened by the core, written by its plans.

use std::fs::File;
use std::os::unix::fs::FileExt;

use wp_base::{FsError, FsResult};
use wp_btrfs::core::{Core, Disk};
use wp_btrfs::trans::Plan;

/// The core on an image.
pub fn open(file: &File) -> FsResult<Core<'_>> {
    let bytes = file.metadata().expect("a file").len();
    Core::open(Disk::new(bytes, move |at, out| {
        file.read_exact_at(out, at).map_err(|_| FsError::Io)
    }))
}

/// Writes a plan in its order.
pub fn write(file: &File, plan: &Plan) {
    for block in &plan.blocks {
        for at in &block.places {
            file.write_all_at(&block.bytes, *at).expect("room");
        }
    }
    for (at, bytes) in &plan.supers {
        file.write_all_at(bytes, *at).expect("room");
    }
}

/// Commits, and writes it.
pub fn commit(core: &mut Core<'_>, file: &File) -> FsResult<Plan> {
    let plan = core.commit_plan()?;
    write(file, &plan);
    core.committed()?;
    Ok(plan)
}
