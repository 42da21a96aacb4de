//! What is done before a job begins: its directories, and files that must be there.

use std::collections::BTreeMap;

use wp_base::rng::mix64;
use wp_base::{FsError, FsResult};
use wp_medium::Slice;
use wp_vfs::{FileType, OpenFlags, Vfs};

use super::job::{Engine, Job};
use super::run::RunError;
use super::setup::{self, Existing, Layout};

/// Makes the directories on the way to a job's files.
async fn directories(vfs: &Vfs, job: &Job) -> FsResult<()> {
    for dir in job.directories() {
        match vfs.mkdir(&dir, 0o755).await {
            Ok(()) | Err(FsError::Exists) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Shares a job's bytes among its files and makes those that must be there first.
pub(super) async fn lay_out(vfs: &Vfs, job: &Job) -> Result<Layout, RunError> {
    let mut existing = BTreeMap::new();
    let wrong = |e: String| RunError::Job(format!("job `{}`: {e}", job.name));
    if job.engine == Engine::Null {
        // It needs no files.
        return setup::layout(job, &mut |_| Existing::default()).map_err(wrong);
    }
    if !job.is_on_devices() {
        directories(vfs, job).await?;
    }
    for path in job.paths() {
        match vfs.stat(&path).await {
            Ok(attr) => {
                let is_device = attr.kind == FileType::Block;
                existing.insert(path, Existing { length: attr.size, is_device });
            }
            Err(FsError::NotFound) if job.is_on_devices() => {
                return Err(wrong(format!("the machine has no further device for /{path}")));
            }
            Err(FsError::NotFound) if !job.makes_files => {
                return Err(wrong(format!("/{path} does not exist, and allow_file_create=0")));
            }
            Err(FsError::NotFound) => {}
            Err(e) => return Err(e.into()),
        }
    }
    let there = &mut |p: &str| existing.get(p).copied().unwrap_or_default();
    if let Some(log) = &job.replayed {
        return Ok(setup::replayed(job, log, there));
    }
    let layout = setup::layout(job, there).map_err(wrong)?;
    // Jobs that read need bytes there; jobs that only write begin with an empty file.
    let filled = job.reads || job.overwrite;
    if job.engine == Engine::Filecreate {
        return Ok(layout);
    }
    for (n, file) in layout.files.iter().enumerate() {
        if !file.extend || job.create_on_open {
            continue;
        }
        if !job.file_append || filled {
            match vfs.unlink(&file.path).await {
                Ok(()) | Err(FsError::NotFound) => {}
                Err(e) => return Err(e.into()),
            }
        }
        let fd = vfs.open(&file.path, OpenFlags::CREATE, 0o644).await?;
        if let Some(how) = job.reserve_first {
            match vfs.fallocate(fd, how, 0, file.length).await {
                // As fio, which goes on without.
                Ok(()) | Err(FsError::Unsupported(_) | FsError::NotInKernel) => {}
                Err(e) => return Err(e.into()),
            }
        }
        // A mapping ends where its file does.
        if filled || job.truncate_first || job.engine == Engine::Mmap {
            vfs.ftruncate(fd, file.length).await?;
        }
        if filled {
            let tag = mix64(u64::from(job.thread_number) << 32 | n as u64);
            let mut at = 0;
            while at < file.length {
                let len = job.max_bs[1].min(file.length - at);
                at += vfs.write(fd, &[Slice::pattern(tag, at, len as u32)]).await?;
            }
            if job.create_fsync {
                vfs.fsync(fd).await?;
            }
        }
        vfs.close(fd).await?;
    }
    Ok(layout)
}
