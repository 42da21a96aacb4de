//! Images made wrong at one place, with right checksums, so that what they say is believed.

use wp_base::{FsResult, Sector};
use wp_btrfs::core::{Core, Disk};
use wp_btrfs::disk::node::{HEADER_BYTES, ITEM_BYTES};
use wp_btrfs::disk::{DiskKey, Key, NodeRef, SuperBlock};
use wp_medium::{Medium, MediumView};
use zerocopy::{FromBytes, IntoBytes};

/// An image that is edited.
#[derive(Clone)]
pub struct Hostile {
    pub medium: Medium,
    pub bytes: u64,
}

impl Hostile {
    pub fn view(&self) -> MediumView {
        MediumView { medium: self.medium.clone(), start: Sector(0), bytes: self.bytes }
    }

    /// Opens the core and does something with it.
    pub fn with<T>(&self, f: impl FnOnce(&mut Core<'_>) -> FsResult<T>) -> FsResult<T> {
        let view = self.view();
        f(&mut Core::open(Disk::of_view(&view))?)
    }

    /// Changes the super block, and makes its copies the same.
    pub fn super_block(&mut self, change: impl FnOnce(&mut SuperBlock)) {
        let mut bytes = vec![0; SuperBlock::BYTES];
        self.medium.read_bytes(SuperBlock::AT, &mut bytes);
        let mut sb = SuperBlock::read_from_bytes(&bytes).expect("the size is right");
        change(&mut sb);
        for at in SuperBlock::copies(self.bytes) {
            sb.seal(at);
            self.medium.write_bytes(at, sb.as_bytes());
        }
    }

    /// Changes a tree block, all copies.
    pub fn block(&mut self, logical: u64, change: impl FnOnce(&mut [u8])) {
        let said = |c: &mut Core<'_>| {
            Ok((*c.common(), c.chunks().places(logical, c.node_bytes() as u64)?))
        };
        let (common, places) = self.with(said).expect("it opened before");
        let mut block = vec![0; common.node_bytes];
        self.medium.read_bytes(places[0], &mut block);
        change(&mut block);
        common.csum.seal(&mut block);
        for at in places {
            self.medium.write_bytes(at, &block);
        }
    }

    /// Leaves and slots of a tree's items that are asked for.
    pub fn find(&self, tree: u64, which: impl Fn(Key, &[u8]) -> bool) -> Vec<(u64, usize)> {
        let found = self.with(|c| {
            let mut found = Vec::new();
            let mut path = c.seek(tree, Key::MIN)?;
            while let Some(here) = &mut path {
                if c.item(here)?.is_some_and(|(key, bytes)| which(key, bytes)) {
                    found.push((here.leaf(), here.slot()));
                }
                if !c.next(here)? {
                    break;
                }
            }
            Ok(found)
        });
        found.expect("it was sound")
    }

    /// Changes the last item of a tree that is asked for: key and bytes.
    pub fn item(
        &mut self,
        tree: u64,
        which: impl Fn(Key, &[u8]) -> bool,
        change: impl FnOnce(&mut Key, &mut [u8]),
    ) {
        let (leaf, slot) = *self.find(tree, which).last().expect("there is one");
        self.block(leaf, |block| {
            let node = NodeRef::trusted(block);
            let (mut key, at) = (node.key(slot).expect("a key"), node.data_at(slot));
            let size = node.data(slot).expect("bytes").len();
            change(&mut key, &mut block[at..at + size]);
            let place = HEADER_BYTES + slot * ITEM_BYTES;
            block[place..place + size_of::<DiskKey>()]
                .copy_from_slice(DiskKey::from(key).as_bytes());
        });
    }
}
