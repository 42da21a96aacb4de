//! What a mount after a crash would find: recovery, then every name with where its contents lie.

use std::collections::BTreeSet;

use wp_base::{FsError, FsResult};
use wp_jbd2::RecoverPolicy;
use wp_medium::Overlay;
use wp_vfs::{FileFlags, FileType, Run, Stat, Survey, SurveyedFile, TimeSpec, Xattr};

use super::recovery::mounted;
use super::{Image, InodeRecord, Recovery};
use crate::disk::{Stamp, SuperBlock, ino};

/// Recovers into `overlay` as a mount would and surveys the result; `now` is the time of deletion
/// of orphans.
///
/// Errors: the mount's ([`super::recover_at_mount`]). A file or directory that cannot be read is a
///         fault of the survey.
pub fn survey(overlay: &Overlay<'_>, policy: &RecoverPolicy, now: u32) -> FsResult<Survey> {
    let (recovery, image) = mounted(overlay, policy, now)?;
    let faults = recovery.reported.iter().map(|e| format!("reported at mount: {e}")).collect();
    let mut out = Survey { did: in_words(&recovery), faults, ..Survey::default() };
    out.journaled = recovery.orphans_deleted + recovery.orphans_truncated > 0;
    out.knows_errors = image.super_block().state.get() & SuperBlock::STATE_ERROR != 0;
    let mut seen = BTreeSet::from([ino::ROOT]);
    let mut dirs = vec![(String::new(), ino::ROOT)];
    while let Some((path, number)) = dirs.pop() {
        let listing = image.inode(number).and_then(|record| image.listing(&record));
        let names = match listing {
            Ok(listing) => {
                let reported = listing.reported.iter();
                out.faults.extend(reported.map(|e| format!("reported when listed: /{path}: {e}")));
                listing.names
            }
            Err(e) => {
                out.faults.push(format!("{path}: {e}"));
                continue;
            }
        };
        for name in names {
            if path.is_empty() && name.name == b"lost+found" {
                continue;
            }
            let text = String::from_utf8_lossy(&name.name);
            let full = if path.is_empty() { text.into_owned() } else { format!("{path}/{text}") };
            match image
                .named_inode(name.inode)
                .and_then(|record| file(&image, full.clone(), &record))
            {
                Ok((file, fault)) => {
                    if file.kind == FileType::Dir && seen.insert(name.inode) {
                        dirs.push((full.clone(), name.inode));
                    }
                    out.files.push(file);
                    out.faults
                        .extend(fault.map(|e| format!("reported of attributes: {full}: {e}")));
                }
                Err(e) => out.faults.push(format!("{full}: {e}")),
            }
        }
    }
    let root = image.inode(ino::ROOT).and_then(|record| file(&image, ".".to_owned(), &record));
    out.root = root.ok().map(|(file, _)| file.stat);
    out.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(out)
}

fn in_words(recovery: &Recovery) -> String {
    let journal = recovery.journal.as_ref().map_or_else(
        || "nothing to replay".to_owned(),
        |r| format!("{} transactions, {} blocks replayed", r.transactions(), r.blocks_replayed),
    );
    match (recovery.orphans_deleted, recovery.orphans_truncated) {
        (0, 0) => journal,
        (d, t) => format!("{journal}; orphans: {d} deleted, {t} truncated"),
    }
}

/// A file, and why its extended attributes cannot be read if they cannot.
type Found = (SurveyedFile, Option<FsError>);

fn file(image: &Image<'_>, path: String, record: &InodeRecord) -> FsResult<Found> {
    let inode = &record.inode;
    let m = inode.mode.get();
    let kind = FileType::from_mode(m.into()).ok_or_else(|| {
        let expected = "a known type";
        FsError::corrupt("ext4 inode", "i_mode", record.at, m.into(), expected)
    })?;
    let target = match kind {
        FileType::Symlink => {
            Some(String::from_utf8_lossy(&image.link_target(record)?).into_owned())
        }
        _ => None,
    };
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let named = |all: Vec<Xattr>| all.into_iter().map(|x| (text(&x.name), x.value)).collect();
    let (xattrs, fault) = match image.xattrs(record) {
        Ok(all) => (Some(named(all)), None),
        Err(e) => (None, Some(e)),
    };
    let bs = u64::from(image.block_size().bytes());
    let runs = match kind {
        FileType::File => image.map(record)?.runs,
        _ => Vec::new(),
    };
    let end = runs.iter().map(|r| (u64::from(r.logical) + u64::from(r.blocks)) * bs).max();
    let map = runs
        .iter()
        .filter(|r| !r.is_unwritten)
        .map(|r| Run {
            at: u64::from(r.logical) * bs,
            place: r.start * bs,
            bytes: u64::from(r.blocks) * bs,
        })
        .collect();
    let modified = Stamp::decode(inode.mtime, record.extra.mtime_extra);
    let file = SurveyedFile {
        subvolume: false,
        allocated: (kind == FileType::File).then_some(end.unwrap_or(0)),
        path,
        kind,
        ino: record.number.into(),
        nlink: inode.links_count.get().into(),
        size: inode.size(),
        stat: Stat {
            mode: u32::from(m) & 0o7777,
            owner: (inode.uid(), inode.gid()),
            mtime: TimeSpec { secs: modified.secs, nanos: modified.nanos },
            device: inode.device(),
            flags: FileFlags(inode.flags.get() & FileFlags::SETTABLE.0),
        },
        target,
        xattrs,
        map,
    };
    Ok((file, fault))
}
