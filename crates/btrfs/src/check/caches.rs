//! Files of the first space cache (`space_cache=v1`): their extents are of the root tree.

use super::Report;
use super::extents::Extents;
use super::finding::At;
use super::inodes::Inode;
use super::sums::PieceSeen;
use super::volume::{Found, Seen};
use crate::disk::kind;

/// An item of the root tree.
struct Kept {
    at: At,
    bytes: Vec<u8>,
    leaf: u64,
    owner: u64,
}

/// Extents of such files, kept until the extent tree was read.
#[derive(Default)]
pub(super) struct Caches(Vec<Kept>);

impl Caches {
    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// An item of the root tree.
    pub fn item(&mut self, item: &Found<'_>) {
        if item.at.key.kind == kind::EXTENT_DATA {
            let (at, bytes) = (item.at, item.bytes.to_vec());
            self.0.push(Kept { at, bytes, leaf: item.leaf, owner: item.owner });
        }
    }

    /// Notes who uses their extents. Their contents have a checksum of their own.
    pub fn use_extents(
        &self,
        extents: &Extents,
        seen: &mut Seen,
        report: &mut Report,
    ) -> Vec<PieceSeen> {
        let mut pieces = Vec::new();
        for of_file in self.0.chunk_by(|a, b| a.at.key.objectid == b.at.key.objectid) {
            let Some(first) = of_file.first() else { continue };
            let mut inode = Inode::new(first.at);
            for Kept { at, bytes, leaf, owner } in of_file {
                let (at, leaf, owner) = (*at, *leaf, *owner);
                let found = Found { at, bytes, leaf, owner, is_first: true };
                pieces.extend(inode.extent(&found, extents, seen, report));
            }
        }
        pieces.iter_mut().for_each(|p| p.has_sums = false);
        pieces
    }
}
