//! What a mount after a crash would find: recovery, then every name with where its contents lie.

use wp_base::{FsError, FsResult};
use wp_medium::Overlay;
use wp_vfs::{FileType, Run, Stat, Survey, SurveyedFile, TimeSpec};

use crate::disk::ino;

use super::{Image, Record, RecoverOptions, recover};

/// Recovers into `overlay` as a mount would and surveys the result.
///
/// Errors: the mount's. A file or directory that cannot be read is a fault of the survey.
pub fn survey(overlay: &Overlay<'_>, options: &RecoverOptions) -> FsResult<Survey> {
    let recovery = recover(overlay, options)?;
    let image = Image::open(overlay)?;
    let mut out = Survey { did: recovery.to_string(), ..Survey::default() };
    out.counts.push(("blocks_salvaged", recovery.blocks));
    out.files = files(&image, &mut out.faults);
    let root = image.inode(ino::ROOT).and_then(|record| file(&image, ".".to_owned(), &record));
    out.root = root.ok().map(|file| file.stat);
    match image.snapshots() {
        Ok(all) => {
            for cno in all {
                let before = out.faults.len();
                match Image::at(overlay, image.tip().clone(), Some(cno)) {
                    Ok(then) => out.snapshots.push((cno, files(&then, &mut out.faults))),
                    Err(e) => out.faults.push(e.to_string()),
                }
                let new = out.faults.iter_mut().skip(before);
                new.for_each(|fault| *fault = format!("snapshot {cno}: {fault}"));
            }
        }
        Err(e) => out.faults.push(format!("snapshots: {e}")),
    }
    Ok(out)
}

/// Every file of a checkpoint but the root, by path; `faults` gets those that cannot be read.
fn files(image: &Image<'_>, faults: &mut Vec<String>) -> Vec<SurveyedFile> {
    let mut out = Vec::new();
    let mut seen = std::collections::BTreeSet::from([ino::ROOT]);
    let mut dirs = vec![(String::new(), ino::ROOT)];
    while let Some((path, number)) = dirs.pop() {
        let names = match image.inode(number).and_then(|record| image.names(&record)) {
            Ok(names) => names,
            Err(e) => {
                faults.push(format!("{path}: {e}"));
                continue;
            }
        };
        // The file that mkfs makes is nobody's.
        for name in names.iter().filter(|n| !(path.is_empty() && n.name == b".nilfs")) {
            let text = String::from_utf8_lossy(&name.name);
            let full = if path.is_empty() { text.into_owned() } else { format!("{path}/{text}") };
            match image.inode(name.ino).and_then(|record| file(image, full.clone(), &record)) {
                Ok(file) => {
                    if file.kind == FileType::Dir && seen.insert(name.ino) {
                        dirs.push((full, name.ino));
                    }
                    out.push(file);
                }
                Err(e) => faults.push(format!("{full}: {e}")),
            }
        }
    }
    out.sort_by(|a, b| a.path.cmp(&b.path));
    out
}

fn file(image: &Image<'_>, path: String, record: &Record) -> FsResult<SurveyedFile> {
    let inode = &record.inode;
    let mode = inode.mode.get();
    let kind = FileType::from_mode(mode.into()).ok_or_else(|| {
        FsError::corrupt("nilfs2 inode", "i_mode", record.at, mode.into(), "a known type")
    })?;
    let target = match kind {
        FileType::Symlink => {
            Some(String::from_utf8_lossy(&image.link_target(record)?).into_owned())
        }
        _ => None,
    };
    let mut map = Vec::new();
    if kind == FileType::File {
        let g = image.geometry();
        map.extend(image.map(record)?.iter().map(|r| Run {
            at: r.logical.saturating_mul(1 << g.block_bits),
            place: g.byte_of(r.start),
            bytes: g.byte_of(r.blocks),
        }));
    }
    Ok(SurveyedFile {
        subvolume: false,
        allocated: None,
        path,
        kind,
        ino: record.ino,
        nlink: inode.links_count.get().into(),
        size: inode.size.get(),
        stat: Stat {
            mode: u32::from(inode.mode.get()) & 0o7777,
            owner: (inode.uid.get(), inode.gid.get()),
            mtime: TimeSpec {
                secs: inode.mtime.get().cast_signed(),
                nanos: inode.mtime_nsec.get(),
            },
            device: inode.device(),
            flags: crate::fs::file_flags::flags_of(inode),
        },
        target,
        xattrs: Some(Vec::new()),
        map,
    })
}
