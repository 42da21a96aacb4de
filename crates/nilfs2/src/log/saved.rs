//! A construction that finds no segment leaves everything as it was.

use std::collections::BTreeMap;

use wp_base::{FsError, FsResult};

use super::dat::Dat;
use super::file::File;
use super::meta_file::MetaFile;
use super::{Place, Store};

/// Segments that a construction takes at most for one of data: each block may have nodes of a map,
/// a place in the DAT and one in its bitmap of its own.
const SEGMENTS_PER_SEGMENT: u64 = 8;

/// What a construction changes, as it was before.
pub(super) struct Saved {
    dat: Dat,
    cpfile: MetaFile,
    sufile: MetaFile,
    ifile: MetaFile,
    files: BTreeMap<u64, File>,
    blocks_count: u64,
    place: Place,
    nongc_ctime: u64,
}

impl Store<'_> {
    /// A copy of what the construction changes, if there may be too few segments for it. `more`:
    /// blocks that it writes besides those that were changed.
    pub(super) fn save(&mut self, more: u64) -> Option<Saved> {
        let blocks = self.blocks_to_write.saturating_add(more);
        let segments = blocks / self.disk.g.segment_blocks + 1;
        let needed = (segments + 1).saturating_mul(SEGMENTS_PER_SEGMENT);
        if self.segments_free().is_ok_and(|free| free > needed) {
            return None;
        }
        let file = |number: &u64| Some((*number, self.files.get(number)?.clone()));
        Some(Saved {
            dat: self.dat.clone(),
            cpfile: self.cpfile.clone(),
            sufile: self.sufile.clone(),
            ifile: self.ifile.clone(),
            files: self.dirty.values().filter_map(file).collect(),
            blocks_count: self.blocks_count,
            place: self.place,
            nongc_ctime: self.nongc_ctime,
        })
    }

    /// The outcome of a construction; without a segment for it, everything is as it was.
    pub(super) fn kept<T>(&mut self, made: FsResult<T>, saved: Option<Saved>) -> FsResult<T> {
        match (&made, saved) {
            (Err(FsError::NoSpace), Some(saved)) => self.restore(saved),
            (Err(FsError::NoSpace), None) => return Err(FsError::Io),
            _ => {}
        }
        made
    }

    /// As it was. `nilfs_segctor_abort_construction`.
    fn restore(&mut self, saved: Saved) {
        (self.dat, self.cpfile, self.sufile) = (saved.dat, saved.cpfile, saved.sufile);
        self.ifile = saved.ifile;
        self.files.extend(saved.files);
        (self.blocks_count, self.place) = (saved.blocks_count, saved.place);
        self.nongc_ctime = saved.nongc_ctime;
    }
}
