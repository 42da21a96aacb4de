//! Plans written to a device in a file.

use std::fs::File;
use std::os::unix::fs::FileExt;

use wp_base::FsResult;
use wp_btrfs::core::Core;
use wp_btrfs::trans::Plan;

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
