//! What a mount after a crash would find: recovery, then every name with where its contents lie.

use wp_base::{FsError, FsResult, SECTOR_BYTES, Sector};
use wp_medium::Overlay;
use wp_vfs::{FileFlags, FileType, Run, Stat, Survey, SurveyedFile, TimeSpec};

use crate::disk::inode::inline;
use crate::disk::xattr::Attribute;
use crate::disk::{Geometry, nid};

use super::{Image, InodeRecord, RecoverOptions, recover};

/// Recovers into `overlay` as a mount would and surveys the result.
///
/// Errors: the mount's. A file or directory that cannot be read is a fault of the survey.
pub fn survey(overlay: &Overlay<'_>, options: &RecoverOptions) -> FsResult<Survey> {
    let recovery = recover(overlay, options)?;
    let image = Image::open(overlay)?;
    let mut out = Survey { did: recovery.to_string(), ..Survey::default() };
    if let Some(left_out) = &recovery.oprw {
        out.counts.push(("nodes_unwritten", left_out.unwritten.into()));
        out.counts.push(("nodes_later", left_out.later.into()));
    }
    out.faults.extend(recovery.failed.iter().map(|e| format!("reported at mount: {e}")));
    let sectors = |blocks: &[u32]| {
        blocks.iter().map(|b| Sector(Geometry::byte_of(*b) / SECTOR_BYTES)).collect()
    };
    let (reset, finished) = &recovery.zones.later;
    out.managed = (sectors(&recovery.zones.reset), sectors(&recovery.zones.finished));
    out.managed_last = (sectors(reset), sectors(finished));
    let mut seen = std::collections::BTreeSet::from([nid::ROOT]);
    let mut dirs = vec![(String::new(), nid::ROOT)];
    while let Some((path, number)) = dirs.pop() {
        let names = match image.inode(number).and_then(|record| image.names(&record)) {
            Ok(names) => names,
            Err(e) => {
                out.faults.push(format!("{path}: {e}"));
                continue;
            }
        };
        for name in names.iter().filter(|n| !(path.is_empty() && n.name == b"lost+found")) {
            let text = String::from_utf8_lossy(&name.name);
            let full = if path.is_empty() { text.into_owned() } else { format!("{path}/{text}") };
            match image.inode(name.ino).and_then(|record| file(&image, full.clone(), &record)) {
                Ok((file, fault)) => {
                    if file.kind == FileType::Dir && seen.insert(name.ino) {
                        dirs.push((full.clone(), name.ino));
                    }
                    out.files.push(file);
                    out.faults
                        .extend(fault.map(|e| format!("reported of attributes: {full}: {e}")));
                }
                Err(e) => out.faults.push(format!("{full}: {e}")),
            }
        }
    }
    let root = image.inode(nid::ROOT).and_then(|record| file(&image, ".".to_owned(), &record));
    out.root = root.ok().map(|(file, _)| file.stat);
    out.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(out)
}

/// A file, and why its extended attributes cannot be read if they cannot.
type Found = (SurveyedFile, Option<FsError>);

fn file(image: &Image<'_>, path: String, record: &InodeRecord) -> FsResult<Found> {
    let inode = record.inode();
    let m = inode.mode.get();
    let kind = FileType::from_mode(m.into()).ok_or_else(|| {
        let found = m.into();
        FsError::corrupt("f2fs inode", "i_mode", record.at, found, "a known type")
    })?;
    let target = match kind {
        FileType::Symlink => {
            Some(String::from_utf8_lossy(&image.link_target(record)?).into_owned())
        }
        _ => None,
    };
    let named = |all: Vec<Attribute>| all.into_iter().map(|a| (a.full_name(), a.value)).collect();
    let (xattrs, fault) = match image.attributes(record) {
        Ok(all) => (Some(named(all)), None),
        Err(e) => (None, Some(e)),
    };
    let mut map = Vec::new();
    if kind == FileType::File && inode.has_inline(inline::DATA) {
        let place = record.at + record.shape.inline_at();
        map.push(Run { at: 0, place, bytes: inode.size.get() });
    } else if kind == FileType::File {
        map.extend(image.map(record)?.iter().map(|r| Run {
            at: r.logical * 4096,
            place: Geometry::byte_of(r.start),
            bytes: u64::from(r.blocks) * 4096,
        }));
    }
    let modified = inode.modified();
    let file = SurveyedFile {
        subvolume: false,
        allocated: None,
        path,
        kind,
        ino: record.ino.into(),
        nlink: inode.links.get(),
        size: inode.size.get(),
        stat: Stat {
            mode: u32::from(m) & 0o7777,
            owner: (inode.uid.get(), inode.gid.get()),
            mtime: TimeSpec { secs: modified.secs, nanos: modified.nanos },
            device: inode.device(&record.shape),
            flags: FileFlags(inode.flags.get() & FileFlags::SETTABLE.0),
        },
        target,
        xattrs,
        map,
    };
    Ok((file, fault))
}
