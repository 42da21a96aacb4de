//! How a job's bytes are shared among its files: manual, `size`, `filesize`, `nrfiles`; that the
//! first files take the blocks left over was observed with `--write_iolog`.

use super::job::{Engine, Job};
use super::random::Taus;
use super::replay::Log;
use super::sequence::Streams;
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

/// Bytes of a job that writes until there is no space left: more than any file system has.
const ALL_SPACE: u64 = 1 << 62;

/// Length of a file that has one of its own, in whole blocks (fio 3.33: `get_rand_file_size`).
fn random_size(job: &Job, sizes: &mut Taus) -> u64 {
    let (least, most) = job.file_size;
    if least == most {
        return least;
    }
    let size = least + sizes.scaled(most - least);
    size - size % job.block_min()
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
        Amount::Bytes(0) if job.fill_device => (ALL_SPACE, 100),
        Amount::Bytes(n) => (n, 100),
        Amount::Percent(p) => (0, p),
    };
    let share = size / count.max(1);
    // Engine filecreate lays nothing out, and takes each file for one of a block; null needs no
    // files, and takes them for what they would be.
    let there = paths.iter().map(|p| match job.engine {
        Engine::Filecreate => Existing::file(block),
        Engine::Null => Existing::file(share),
        _ => existing(p),
    });
    let there: Vec<Existing> = there.collect();
    if there.iter().all(|l| l.length == 0) && size == 0 && job.file_size.1 == 0 {
        return Err("set `size`: none of its files exists".to_owned());
    }
    let mut larger = (size - share * count) / block;
    let mut sizes = Streams::of_file_sizes(job);
    let (mut files, mut total) = (Vec::new(), 0u64);
    for (path, Existing { length: existing, is_device }) in paths.into_iter().zip(there) {
        let start = match job.file_append && !is_device {
            true => existing,
            false => job.start_offset(existing),
        };
        let outside = || format!("offset {start} is beyond the end of `{path}`");
        let mut span = if job.file_size.1 == 0 {
            let extra = if larger > 0 { block } else { 0 };
            larger = larger.saturating_sub(1);
            match share + extra {
                0 => existing.checked_sub(start).ok_or_else(outside)?,
                n => n,
            }
        } else if (job.file_size.0..=job.file_size.1).contains(&existing) {
            existing.checked_sub(start).ok_or_else(outside)?
        } else {
            random_size(job, &mut sizes).checked_sub(start).ok_or_else(outside)?
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
        let io = match job.io_size {
            Amount::Percent(_) => job.io_size.of(span),
            Amount::Bytes(_) => span,
        };
        total = total.checked_add(io).ok_or_else(|| {
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
