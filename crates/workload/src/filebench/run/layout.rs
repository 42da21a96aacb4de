//! Files and directories that are there at the start.
//!
//! Source: `fileset_createsets` of filebench 1.5, by what it does, and strace: the last fileset of
//! the text is the first to be made; its directories before its files, from the last one placed to
//! the first; then each file is picked from a uniform index on, and made by chance or not.

use std::cell::RefCell;
use std::collections::VecDeque;

use wp_base::rng::mix64;
use wp_base::{FsError, FsResult};
use wp_medium::Slice;
use wp_vfs::{Fd, FileType, OpenFlags, Vfs};

use super::super::chance::{Chance, RAND_MAX};
use super::super::fileset::{Files, Group, Picked, Want};
use super::super::model::Personality;
use super::super::numbers::Numbers;
use super::super::tree::Tree;

/// Bytes written at a time when files are made at the start.
const PREALLOC_CHUNK: u64 = 1 << 20;
/// Files that `paralloc` makes side by side.
const SIDE_BY_SIDE: usize = 32;
/// How deep a tree that is removed may be.
const REMOVE_DEPTH: u32 = 400;

/// Makes all filesets. Errors: the file system's, and `Invalid` for a tree that cannot be.
pub(super) async fn create(
    vfs: &Vfs,
    personality: &Personality,
    numbers: &mut Numbers,
    chance: &mut Chance,
    seed: u64,
) -> FsResult<Vec<RefCell<Files>>> {
    let mut all = Vec::new();
    for (number, spec) in personality.filesets.iter().enumerate().rev() {
        let tree = Tree::draw(spec, numbers, chance).map_err(FsError::Invalid)?;
        let mut files = Files::new(vfs.rt(), spec, tree);
        let reuse = is_reused(vfs, &files).await?;
        if !reuse {
            remove(vfs, &files.dirs[0], 0).await?;
            make_all(vfs, &files.dirs[0]).await?;
            for dir in files.dirs.iter().skip(1).rev() {
                make_all(vfs, dir).await?;
            }
        }
        let percent = u64::from(spec.prealloc_percent.min(100));
        let miss = RAND_MAX * (100 - percent) / 100;
        make_files(vfs, &mut files, Rolls { chance: &mut *chance, miss }, reuse, number, seed)
            .await?;
        while let Some(i) = free(&mut files.leafdirs, chance) {
            // Its test is `less`, that of files is `not more`.
            if chance.rand() < miss {
                files.leafdirs.release(i, Some(Want::Missing), 0);
                continue;
            }
            let path = files.leafdirs.path(i).to_owned();
            if !(reuse && vfs.stat(&path).await.is_ok()) {
                vfs.mkdir(&path, 0o755).await?;
            }
            files.leafdirs.release(i, Some(Want::Existing), 0);
        }
        all.push(RefCell::new(files));
    }
    all.reverse();
    Ok(all)
}

struct Rolls<'a> {
    chance: &'a mut Chance,
    /// A file is not made if C's `rand` is not above this; 0: all are made.
    miss: u64,
}

fn free(group: &mut Group, chance: &mut Chance) -> Option<usize> {
    match group.pick(Want::Free, 0, None, chance) {
        Picked::Entry(i) => Some(i),
        // Nobody else is there who could have them.
        Picked::Nothing | Picked::Wait => None,
    }
}

async fn make_files(
    vfs: &Vfs,
    files: &mut Files,
    rolls: Rolls<'_>,
    reuse: bool,
    number: usize,
    seed: u64,
) -> FsResult<()> {
    let mut running = VecDeque::new();
    while let Some(i) = free(&mut files.files, rolls.chance) {
        let rolled = rolls.chance.rand();
        if rolls.miss > 0 && rolled <= rolls.miss {
            files.files.release(i, Some(Want::Missing), 0);
            continue;
        }
        let file = One {
            vfs: vfs.clone(),
            path: files.files.path(i).to_owned(),
            bytes: files.files.size(i),
            tag: mix64(seed ^ (number as u64) << 56 ^ (i as u64) << 24),
            reuse,
            trust: files.spec.trusttree,
            is_cold: files.spec.is_cold,
            readonly: files.spec.readonly,
        };
        if files.spec.paralloc {
            if running.len() >= SIDE_BY_SIDE {
                // The oldest: filebench waits for any.
                let oldest: Option<wp_rt::Join<FsResult<()>>> = running.pop_front();
                if let Some(task) = oldest {
                    task.await?;
                }
            }
            running.push_back(vfs.rt().spawn(format!("paralloc/{i}"), file.make()));
        } else {
            file.make().await?;
        }
        files.files.release(i, Some(Want::Existing), 0);
    }
    for task in running {
        task.await?;
    }
    Ok(())
}

/// A file that is to be there.
struct One {
    vfs: Vfs,
    path: String,
    bytes: u64,
    tag: u64,
    reuse: bool,
    trust: bool,
    is_cold: bool,
    readonly: bool,
}

impl One {
    async fn make(self) -> FsResult<()> {
        let found = if !self.reuse {
            None
        } else if self.trust {
            Some(self.bytes)
        } else {
            self.vfs.stat(&self.path).await.ok().map(|a| a.size)
        };
        let flags = match (found, self.readonly) {
            (None, _) => OpenFlags::CREATE,
            (Some(_), true) => OpenFlags::READ,
            (Some(_), false) => OpenFlags::WRITE,
        };
        let fd = self.vfs.open(&self.path, flags, 0o644).await?;
        match found {
            Some(size) if size == self.bytes => return self.close(fd).await,
            Some(size) if size > self.bytes => {
                self.vfs.ftruncate(fd, self.bytes).await?;
                return self.close(fd).await;
            }
            // A shorter one is written from its start.
            _ => {}
        }
        let mut at = 0;
        while at < self.bytes {
            let n = (self.bytes - at).min(PREALLOC_CHUNK);
            let data = Slice::pattern(self.tag ^ at >> 20, 0, n as u32);
            at += self.vfs.pwrite(fd, at, &[data]).await?;
        }
        self.close(fd).await
    }

    /// Closes a file that is there now; of a cold one no page stays in memory.
    async fn close(&self, fd: Fd) -> FsResult<()> {
        if self.is_cold {
            // Only clean pages can be dropped.
            self.vfs.fsync(fd).await?;
            self.vfs.fadvise_dontneed(fd).await?;
        }
        self.vfs.close(fd).await
    }
}

async fn is_reused(vfs: &Vfs, files: &Files) -> FsResult<bool> {
    if files.spec.trusttree {
        return Ok(true);
    }
    match vfs.stat(&files.dirs[0]).await {
        Ok(_) => Ok(files.spec.reuse),
        Err(FsError::NotFound) => Ok(false),
        Err(e) => Err(e),
    }
}

async fn make(vfs: &Vfs, dir: &str) -> FsResult<()> {
    match vfs.mkdir(dir, 0o755).await {
        Ok(()) | Err(FsError::Exists) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Makes a directory and those above it, as far as they are not there.
async fn make_all(vfs: &Vfs, path: &str) -> FsResult<()> {
    let mut missing = Vec::new();
    let mut at = Some(path);
    while let Some(dir) = at.filter(|d| !d.is_empty()) {
        match vfs.stat(dir).await {
            Ok(_) => break,
            Err(FsError::NotFound) => missing.push(dir),
            Err(e) => return Err(e),
        }
        at = dir.rsplit_once('/').map(|(above, _)| above);
    }
    for dir in missing.into_iter().rev() {
        make(vfs, dir).await?;
    }
    Ok(())
}

/// Removes a tree, if it is there.
async fn remove(vfs: &Vfs, path: &str, depth: u32) -> FsResult<()> {
    let kind = match vfs.stat(path).await {
        Ok(attr) => attr.kind,
        Err(FsError::NotFound) => return Ok(()),
        Err(e) => return Err(e),
    };
    if kind != FileType::Dir || depth > REMOVE_DEPTH {
        return vfs.unlink(path).await;
    }
    for entry in vfs.read_dir(path).await? {
        let below = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
        if entry.kind == FileType::Dir {
            Box::pin(remove(vfs, &below, depth + 1)).await?;
        } else {
            vfs.unlink(&below).await?;
        }
    }
    vfs.rmdir(path).await
}
