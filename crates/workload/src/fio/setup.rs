//! How a job's bytes are shared among its files: manual, `size`, `filesize`, `nrfiles`; that the
//! first files take the blocks left over was observed with `--write_iolog`.

use super::job::{Engine, Job};
use super::replay::Log;
use super::value::Amount;

/// One file of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileSetup {
    /// Path, without a leading slash.
    pub path: String,
    /// Bytes that are there before the job lays anything out.
    pub existing: u64,
    /// Where the job's range begins.
    pub start: u64,
    /// Bytes of the range.
    pub span: u64,
    /// Length of the file when the job runs.
    pub length: u64,
    /// Must it be made or extended first?
    pub extend: bool,
    /// Is it a block device?
    pub is_device: bool,
}

/// What is there of a file before a job begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Existing {
    /// Its length; 0 of none.
    pub length: u64,
    /// Is it a block device?
    pub is_device: bool,
}

impl Existing {
    /// A file of this length.
    pub const fn file(length: u64) -> Existing {
        Existing { length, is_device: false }
    }
}

/// All files of a job, and the bytes of one round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Its files.
    pub files: Vec<FileSetup>,
    /// Bytes of one round, `io_size` apart.
    pub size: u64,
}

/// The files of a log, as they are: nothing is laid out.
pub(super) fn replayed(job: &Job, log: &Log, existing: &mut dyn FnMut(&str) -> Existing) -> Layout {
    let files = job.paths().into_iter().map(|path| {
        let Existing { length, is_device } = existing(&path);
        let (start, extend) = (0, false);
        FileSetup { path, existing: length, start, span: length, length, extend, is_device }
    });
    Layout { files: files.collect(), size: log.operations().map(|(_, n)| n).sum() }
}

/// Shares a job's size among its files. `existing` tells what of a file is there. A range ends with
/// the device that it is on.
///
/// Errors: a job that has nothing to do, or a range outside its file.
pub fn layout(job: &Job, existing: &mut dyn FnMut(&str) -> Existing) -> Result<Layout, String> {
    let paths = job.paths();
    let block = job.block_min();
    let count = paths.len() as u64;
    let (size, share_percent) = match job.size {
        Amount::Bytes(n) => (n, 100),
        Amount::Percent(p) => (0, p),
    };
    // Engine filecreate lays nothing out, and takes each file for one of a block.
    let there = paths.iter().map(|p| match job.engine {
        Engine::Filecreate => Existing::file(block),
        _ => existing(p),
    });
    let there: Vec<Existing> = there.collect();
    if there.iter().all(|l| l.length == 0) && size == 0 && job.file_size == 0 {
        return Err("set `size`: none of its files exists".to_owned());
    }
    let share = size / count.max(1);
    let mut larger = (size - share * count) / block;
    let (mut files, mut total) = (Vec::new(), 0u64);
    for (path, Existing { length: existing, is_device }) in paths.into_iter().zip(there) {
        let start = if job.file_append && !is_device { existing } else { job.start_offset() };
        let outside = || format!("offset {start} is beyond the end of `{path}`");
        let mut span = if job.file_size == 0 {
            let extra = if larger > 0 { block } else { 0 };
            larger = larger.saturating_sub(1);
            match share + extra {
                0 => existing.checked_sub(start).ok_or_else(outside)?,
                n => n,
            }
        } else if existing == job.file_size {
            existing.checked_sub(start).ok_or_else(outside)?
        } else {
            job.file_size.checked_sub(start).ok_or_else(outside)?
        };
        if share_percent != 100 {
            let file = span + start;
            span = (u128::from(file) * u128::from(share_percent) / 100) as u64;
            span = span.min(file - start);
            span -= span % block;
        }
        if is_device {
            span = span.min(existing.checked_sub(start).ok_or_else(outside)?);
        }
        total = total.checked_add(span).ok_or_else(|| {
            format!("size: `{path}` and the files before have more than 2^64 bytes")
        })?;
        let end = span.checked_add(start).ok_or_else(outside)?;
        let (length, extend) = (end.max(existing), end > existing);
        files.push(FileSetup { path, existing, start, span, length, extend, is_device });
    }
    let size = if size == 0 || (total > 0 && size > total) { total } else { size };
    if size < block {
        return Err(format!("bs: a block of {block} bytes is larger than the job's {size} bytes"));
    }
    Ok(Layout { files, size })
}
