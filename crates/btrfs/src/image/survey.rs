//! What a mount after a crash would find: recovery, then every name with where its contents lie.
//! Contents that are not what their checksums say are faults: a read of them ends in `EIO`.

use std::collections::BTreeSet;

use wp_base::{FsError, FsResult};
use wp_medium::Overlay;
use wp_vfs::{FileType, Run, Stat, Survey, SurveyedFile, TimeSpec};

use crate::disk::root::inode_number;
use crate::disk::wide;
use crate::replay::{RecoverOptions, recover};

use super::{Image, Piece, Record};

/// Recovers into `overlay` as a mount would and surveys the result.
///
/// Errors: the mount's. A file or directory that cannot be read is a fault of the survey.
pub fn survey(overlay: &Overlay<'_>, options: &RecoverOptions) -> FsResult<Survey> {
    let recovery = recover(overlay, options)?;
    let mut out = survey_as_is(&Image::open(overlay)?)?;
    out.did = recovery.to_string();
    out.counts.push(("inodes_replayed", recovery.inodes));
    out.counts.push(("names_replayed", recovery.names));
    out.counts.push(("extents_replayed", recovery.extents));
    Ok(out)
}

/// Surveys an image as it is, without recovery.
///
/// Errors: no default subvolume. A file or directory that cannot be read is a fault of the survey.
pub fn survey_as_is(image: &Image<'_>) -> FsResult<Survey> {
    let mut out = Survey::default();
    let root = image.root()?;
    let mut seen = BTreeSet::from([(root.tree.id, root.ino)]);
    let mut faults = Vec::new();
    let own = file(image, ".".to_owned(), &root, &mut faults);
    out.root = own.ok().map(|file| file.stat);
    let mut dirs = vec![(String::new(), root)];
    while let Some((path, dir)) = dirs.pop() {
        let names = match image.names(&dir) {
            Ok(names) => names,
            Err(e) => {
                out.faults.push(format!("{path}: {e}"));
                continue;
            }
        };
        for name in names {
            let text = String::from_utf8_lossy(&name.name);
            let full = if path.is_empty() { text.into_owned() } else { format!("{path}/{text}") };
            let found = image
                .follow(&dir, &name)
                .and_then(|r| Ok((file(image, full.clone(), &r, &mut out.faults)?, r)));
            match found {
                Ok((file, record)) => {
                    let place = (record.tree.id, record.ino);
                    if file.kind == FileType::Dir && !record.is_stub && seen.insert(place) {
                        dirs.push((full, record));
                    }
                    out.files.push(file);
                }
                Err(e) => out.faults.push(format!("{full}: {e}")),
            }
        }
    }
    out.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(out)
}

fn file(
    image: &Image<'_>,
    path: String,
    record: &Record,
    faults: &mut Vec<String>,
) -> FsResult<SurveyedFile> {
    let mounted = image.default_subvolume()?;
    let inode = &record.inode;
    let mode = inode.mode.get();
    let kind = FileType::from_mode(mode).ok_or_else(|| {
        FsError::corrupt("btrfs inode", "mode", record.at, mode.into(), "a known type")
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let target = match kind {
        FileType::Symlink => Some(text(&image.link_target(record)?)),
        _ => None,
    };
    let xattrs = match image.xattrs(record) {
        Ok(all) => Some(all.into_iter().map(|x| (text(&x.name), x.value)).collect()),
        Err(e) => {
            faults.push(format!("{path}: {e}"));
            None
        }
    };
    let mut map: Vec<Run> = Vec::new();
    let mut allocated = None;
    if kind == FileType::File {
        let (pieces, end) = image.layout(record)?;
        allocated = Some(end);
        if let Err(e) = image.check_sums(record, &pieces) {
            faults.push(format!("{path}: {e}"));
        }
        for piece in pieces {
            let (at, place, bytes) = match piece {
                Piece::Inline(data, place) => (0, place, wide(data.len())),
                Piece::Extent { at, logical, bytes } => {
                    let places = image.chunks().places(logical, bytes)?;
                    (at, places.first().copied().unwrap_or(0), bytes)
                }
            };
            match map.last_mut() {
                Some(run) if run.at + run.bytes == at && run.place + run.bytes == place => {
                    run.bytes += bytes;
                }
                _ => map.push(Run { at, place, bytes }),
            }
        }
    }
    Ok(SurveyedFile {
        path,
        kind,
        // One that has no place among the others is a stranger to a program.
        ino: inode_number(record.tree.id, record.ino, mounted).unwrap_or(u64::MAX),
        subvolume: !record.is_stub && record.ino == record.tree.item.root_dirid.get(),
        nlink: inode.nlink.get(),
        size: inode.size.get(),
        stat: Stat {
            mode: mode & 0o7777,
            owner: (inode.uid.get(), inode.gid.get()),
            mtime: TimeSpec {
                secs: inode.mtime.sec.get().cast_signed(),
                nanos: inode.mtime.nsec.get(),
            },
            device: inode.device(),
            flags: crate::fs::file_flags::flags_of(inode.flags.get()),
        },
        target,
        xattrs,
        map,
        allocated,
    })
}
