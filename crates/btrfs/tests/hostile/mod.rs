//! Images made wrong at one place, with right checksums, so that what they say is believed.

use wp_base::{FsResult, Sector};
use wp_btrfs::check::{CheckOptions, check};
use wp_btrfs::core::{Core, Disk};
use wp_btrfs::disk::node::{HEADER_BYTES, ITEM_BYTES};
use wp_btrfs::disk::{DiskKey, Key, NodeRef, SuperBlock, id};
use wp_btrfs::refs::DataRef;
use wp_medium::{Medium, MediumView, Slice};
use wp_vfs::OpenFlags;
use zerocopy::{FromBytes, IntoBytes};

use crate::mounted::{Setup, World};

/// Megabytes of an image.
pub const MIB: u64 = 256;

/// A sound image: some hundred files, trees of two levels.
pub fn sound() -> Hostile {
    let setup = Setup { mib: MIB, node_bytes: 4096, ..Setup::new() };
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        for n in 0..200u64 {
            let name = format!("{n:030}");
            let f = v.open(&name, OpenFlags::CREATE, 0o644).await.expect("opens");
            let bytes = if n % 2 == 0 { 100 } else { 8192 };
            let data: Vec<Slice> =
                vec![n as u8; bytes].chunks(4096).map(Slice::from_bytes).collect();
            v.pwrite(f, 0, &data).await.expect("writes");
            v.close(f).await.expect("closes");
        }
    });
    w.unmount(&vfs);
    let image = Hostile { medium: w.medium(), bytes: MIB << 20 };
    drop(vfs);
    w.end();
    let report = check(&image.view(), &CheckOptions::default()).expect("it reads");
    assert!(report.is_clean(), "{report:#?}");
    image
}

/// Sees everything, changes something, and commits.
pub fn use_it(core: &mut Core<'_>) -> FsResult<()> {
    core.begin()?;
    for tree in [1, 2, 3, 4, id::FS_TREE, id::CSUM_TREE, id::UUID_TREE, id::FREE_SPACE_TREE] {
        core.verify_tree(tree)?;
    }
    core.next_index(id::FS_TREE, 256)?;
    core.reserve(8)?;
    let (place, bytes) = core.alloc_data(8192, 8192, 0)?;
    let (bytenr, root, inode, offset) = (place, id::FS_TREE, 257, 1 << 30);
    core.add_new_data_ref(DataRef { bytenr, bytes, root, inode, offset })?;
    core.commit_plan().map(|_| ())
}

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
