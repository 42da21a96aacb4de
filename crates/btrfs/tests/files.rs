//! Files by the helpers of `items`, against a model of their bytes, names and attributes; and the
//! images for `btrfs check`.

use crate::commit;
use crate::program;
use crate::tools;
use crate::world;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use wp_base::Rng;
use wp_btrfs::core::Core;
use wp_btrfs::disk::file_extent::{FileExtentItem, extent_type};
use wp_btrfs::disk::inode::mode;
use wp_btrfs::disk::{InodeItem, Key, id, kind};
use wp_btrfs::items::Extent;
use wp_vfs::FileType;

const MIB: u64 = 1 << 20;
const TREE: u64 = id::FS_TREE;
const ROOT: u64 = 256;
const SECTOR: u64 = 4096;

/// What a sector of a file has: zeroes, or bytes that follow from a number.
type Sectors = BTreeMap<u64, u64>;

#[derive(Default)]
struct Model {
    files: BTreeMap<u64, Sectors>,
    /// Bytes of inline files.
    inline: BTreeMap<u64, Vec<u8>>,
    /// Directory entries: name to index and inode.
    names: BTreeMap<Vec<u8>, (u64, u64)>,
    attributes: BTreeMap<(u64, Vec<u8>), Vec<u8>>,
    next_tag: u64,
}

fn sector_bytes(tag: u64) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR as usize];
    Rng::stream(tag, "sector").fill(&mut bytes);
    bytes
}

struct World<'a> {
    core: Core<'a>,
    file: &'a File,
    rng: Rng,
    model: Model,
    size_of_root: u64,
}

impl World<'_> {
    fn transid(&mut self) -> u64 {
        self.core.begin().expect("it can be written");
        self.core.transid()
    }

    fn change_inode(&mut self, ino: u64, change: impl FnOnce(&mut InodeItem)) {
        let mut inode = self.core.inode(TREE, ino).expect("it reads").expect("an inode");
        change(&mut inode);
        inode.transid = self.transid().into();
        self.core.update_inode(TREE, ino, &inode).expect("an inode");
    }

    fn count(&mut self, ino: u64, gone: u64, new: u64, size: Option<u64>) {
        self.change_inode(ino, |i| {
            i.nbytes = (i.nbytes.get() - gone + new).into();
            if let Some(size) = size {
                i.size = size.into();
            }
        });
    }

    fn some_file(&mut self) -> Option<u64> {
        let n = self.model.files.len() as u64;
        (n > 0).then(|| *self.model.files.keys().nth(self.rng.below(n) as usize).expect("it is"))
    }

    fn add_name(&mut self, ino: u64, name: &[u8]) {
        let index = self.core.next_index(TREE, ROOT).expect("it reads");
        let location = Key::new(ino, kind::INODE_ITEM, 0);
        self.core.add_name(TREE, ROOT, index, name, location, FileType::File.entry()).expect("new");
        self.core.add_ref(TREE, ino, ROOT, index, name).expect("room for a name");
        self.model.names.insert(name.to_vec(), (index, ino));
        self.size_of_root += 2 * name.len() as u64;
        let size = self.size_of_root;
        self.change_inode(ROOT, |i| i.size = size.into());
        self.change_inode(ino, |i| i.nlink = (i.nlink.get() + 1).into());
    }

    fn remove_name(&mut self, name: &[u8]) {
        let (index, ino) = self.model.names.remove(name).expect("it is there");
        assert_eq!(self.core.remove_ref(TREE, ino, ROOT, name), Ok(index));
        self.core.remove_name(TREE, ROOT, index, name).expect("it is there");
        self.size_of_root -= 2 * name.len() as u64;
        let size = self.size_of_root;
        self.change_inode(ROOT, |i| i.size = size.into());
        self.change_inode(ino, |i| i.nlink = (i.nlink.get() - 1).into());
        if self.model.names.values().any(|(_, i)| *i == ino) {
            return;
        }
        self.core.add_orphan(TREE, ino).expect("room");
        if self.rng.below(2) == 0 {
            assert_eq!(self.core.orphans(TREE), Ok(vec![ino]));
        }
        while self.core.remove_inode_items(TREE, Key::new(ino, 0, 0), 3).expect("it is sound") {}
        self.core.remove_orphan(TREE, ino).expect("it is there");
        self.model.files.remove(&ino);
        self.model.inline.remove(&ino);
        self.model.attributes.retain(|(i, _), _| *i != ino);
    }

    fn create(&mut self, is_inline: bool) {
        let ino = self.core.next_ino(TREE).expect("it reads");
        let mut inode = InodeItem::zeroed();
        let transid = self.transid();
        (inode.generation, inode.transid) = (transid.into(), transid.into());
        inode.mode = (mode::FILE | 0o600).into();
        self.core.insert_inode(TREE, ino, &inode).expect("new");
        self.model.files.insert(ino, Sectors::new());
        let name = format!("{ino}");
        self.add_name(ino, name.as_bytes());
        if is_inline {
            let mut data = vec![0; 1 + self.rng.below(1500) as usize];
            self.rng.fill(&mut data);
            self.core.insert_inline(TREE, ino, &data).expect("new");
            self.count(ino, 0, data.len() as u64, Some(data.len() as u64));
            self.model.inline.insert(ino, data);
        }
    }

    /// Allocates data and writes it: new numbers for its sectors.
    fn write_data(&mut self, sectors: u64) -> (u64, u64, Vec<u64>) {
        let hint = if self.rng.below(2) == 0 { 0 } else { 14 * MIB };
        let bytes = sectors * SECTOR;
        let (place, got) = self.core.alloc_data(bytes, SECTOR, hint).expect("room");
        let mut sums = Vec::new();
        let mut tags = Vec::new();
        for n in 0..got / SECTOR {
            self.model.next_tag += 1;
            let data = sector_bytes(self.model.next_tag);
            tags.push(self.model.next_tag);
            self.core.common().csum.push(&data, &mut sums);
            for at in self.core.chunks().places(place + n * SECTOR, SECTOR).expect("a place") {
                self.file.write_all_at(&data, at).expect("room");
            }
        }
        self.core.insert_csums(id::CSUM_TREE, place, &sums).expect("room");
        (place, got, tags)
    }

    fn write(&mut self, ino: u64) {
        let at = self.rng.below(60) * SECTOR;
        let sectors = 1 + self.rng.below(20);
        let (place, bytes, tags) = self.write_data(sectors);
        let gone = self.core.drop_extents(TREE, ino, at, at + bytes).expect("it is sound");
        let transid = self.transid();
        let item = FileExtentItem::new(extent_type::REGULAR, transid, (place, bytes), 0, bytes);
        self.core.insert_extent_item(TREE, ino, at, &item, true).expect("dropped");
        let sectors = self.model.files.get_mut(&ino).expect("it is there");
        sectors.extend((at / SECTOR..).zip(tags));
        self.grow(ino, gone, bytes, at + bytes);
    }

    fn grow(&mut self, ino: u64, gone: u64, new: u64, end: u64) {
        let inode = self.core.inode(TREE, ino).expect("it reads").expect("an inode");
        let size = inode.size.get().max(end);
        self.count(ino, gone, new, Some(size));
    }

    fn preallocate(&mut self, ino: u64) {
        let at = self.rng.below(60) * SECTOR;
        let bytes = (2 + self.rng.below(10)) * SECTOR;
        let (place, got) = self.core.alloc_data(bytes, bytes, 0).expect("room");
        assert_eq!(got, bytes);
        let gone = self.core.drop_extents(TREE, ino, at, at + bytes).expect("it is sound");
        let transid = self.transid();
        let item = FileExtentItem::new(extent_type::PREALLOC, transid, (place, bytes), 0, bytes);
        self.core.insert_extent_item(TREE, ino, at, &item, true).expect("dropped");
        self.change_inode(ino, |i| {
            i.flags = (i.flags.get() | wp_btrfs::disk::inode::flag::PREALLOC).into();
        });
        self.grow(ino, gone, bytes, at + bytes);
        let sectors = self.model.files.get_mut(&ino).expect("it is there");
        sectors.retain(|n, _| !(at / SECTOR..(at + bytes) / SECTOR).contains(n));
        // A part of it is written in place.
        let from = self.rng.below(bytes / SECTOR);
        let n = 1 + self.rng.below(bytes / SECTOR - from);
        let mut sums = Vec::new();
        for i in from..from + n {
            self.model.next_tag += 1;
            let data = sector_bytes(self.model.next_tag);
            self.core.common().csum.push(&data, &mut sums);
            for to in self.core.chunks().places(place + i * SECTOR, SECTOR).expect("a place") {
                self.file.write_all_at(&data, to).expect("room");
            }
            let sectors = self.model.files.get_mut(&ino).expect("it is there");
            sectors.insert(at / SECTOR + i, self.model.next_tag);
        }
        let start = at + from * SECTOR;
        self.core.mark_written(TREE, ino, start, start + n * SECTOR).expect("it is there");
        self.core.insert_csums(id::CSUM_TREE, place + from * SECTOR, &sums).expect("room");
    }

    fn punch(&mut self, ino: u64) {
        let at = self.rng.below(60) * SECTOR;
        let end = at + (1 + self.rng.below(15)) * SECTOR;
        let gone = self.core.drop_extents(TREE, ino, at, end).expect("it is sound");
        self.count(ino, gone, 0, None);
        let sectors = self.model.files.get_mut(&ino).expect("it is there");
        sectors.retain(|n, _| !(at / SECTOR..end / SECTOR).contains(n));
    }

    fn truncate(&mut self, ino: u64) {
        let size = self.rng.below(60) * SECTOR;
        let gone = self.core.truncate_extents(TREE, ino, size).expect("it is sound");
        self.count(ino, gone, 0, Some(size));
        let sectors = self.model.files.get_mut(&ino).expect("it is there");
        sectors.retain(|n, _| *n < size / SECTOR);
    }

    /// A part of one file's extent becomes a part of another file.
    fn clone_part(&mut self, from: u64, to: u64) {
        let at = self.rng.below(60) * SECTOR;
        let found = self.core.extent_from(TREE, from, at).expect("it reads");
        let Some((start, Extent::Regular(e))) = found else { return };
        if !e.has_place() || e.head.kind != extent_type::REGULAR || from == to {
            return;
        }
        let skip = self.rng.below(e.num_bytes.get() / SECTOR) * SECTOR;
        let bytes = (1 + self.rng.below((e.num_bytes.get() - skip) / SECTOR)) * SECTOR;
        let gone = self.core.drop_extents(TREE, to, at, at + bytes).expect("it is sound");
        let mut item = e;
        item.offset = (e.offset.get() + skip).into();
        item.num_bytes = bytes.into();
        item.head.generation = self.transid().into();
        self.core.insert_extent_item(TREE, to, at, &item, false).expect("dropped");
        let first = (start + skip) / SECTOR;
        let source = self.model.files.get(&from).expect("it is there");
        let new: Vec<(u64, u64)> = (0..bytes / SECTOR)
            .filter_map(|n| Some((at / SECTOR + n, *source.get(&(first + n))?)))
            .collect();
        let sectors = self.model.files.get_mut(&to).expect("it is there");
        sectors.extend(new);
        self.grow(to, gone, bytes, at + bytes);
    }

    fn attribute(&mut self, ino: u64) {
        // Few names with few hashes: some share one.
        let name = format!("user.{}", self.rng.below(8)).into_bytes();
        if self.rng.below(3) == 0 {
            let there = self.model.attributes.remove(&(ino, name.clone())).is_some();
            assert_eq!(self.core.remove_xattr(TREE, ino, &name).is_ok(), there);
        } else {
            let mut value = vec![0; self.rng.below(300) as usize];
            self.rng.fill(&mut value);
            self.core.set_xattr(TREE, ino, &name, &value, Default::default()).expect("room");
            self.model.attributes.insert((ino, name), value);
        }
    }

    fn step(&mut self) {
        let Some(ino) = self.some_file() else { return self.create(false) };
        let is_inline = self.model.inline.contains_key(&ino);
        match self.rng.below(14) {
            0 | 1 => self.create(false),
            2 => self.create(true),
            3 if self.model.names.len() > 30 => {
                let n = self.rng.below(self.model.names.len() as u64) as usize;
                let name = self.model.names.keys().nth(n).expect("it is").clone();
                self.remove_name(&name);
            }
            4 => {
                let n = self.rng.next_u64();
                let name = format!("link {n} {}", "x".repeat((n % 150) as usize));
                self.add_name(ino, name.as_bytes());
            }
            5 => self.attribute(ino),
            6..=8 if !is_inline => self.write(ino),
            9 if !is_inline => self.punch(ino),
            10 if !is_inline => self.truncate(ino),
            11 if !is_inline => self.preallocate(ino),
            _ if !is_inline => {
                let other = self.some_file().expect("one");
                if !self.model.inline.contains_key(&other) {
                    self.clone_part(other, ino);
                }
            }
            _ => {
                let data = self.model.inline.get_mut(&ino).expect("inline");
                if data.len() > 4 {
                    data.truncate(data.len() / 2);
                    let size = data.len() as u64;
                    let gone = self.core.truncate_extents(TREE, ino, size).expect("it is sound");
                    self.count(ino, gone, 0, Some(size));
                }
            }
        }
    }

    /// Reads all back.
    fn compare(&mut self) {
        let mut names = BTreeMap::new();
        let mut from = 0;
        while let Some((index, e)) = self.core.read_dir(TREE, ROOT, from).expect("it reads") {
            let found = self.core.find_name(TREE, ROOT, &e.name).expect("it reads");
            assert_eq!(found.as_ref(), Some(&e));
            names.insert(e.name, (index, e.location.objectid));
            from = index + 1;
        }
        assert_eq!(names, self.model.names);
        for ino in self.model.files.keys().copied().collect::<Vec<_>>() {
            let mut refs = self.core.refs_of(TREE, ino).expect("it reads");
            refs.sort();
            let own = names.iter().filter(|(_, (_, i))| *i == ino);
            let mut own: Vec<_> = own.map(|(n, (index, _))| (ROOT, *index, n.clone())).collect();
            own.sort();
            assert_eq!(refs, own);
            let all = self.core.xattrs(TREE, ino).expect("it reads");
            let all: BTreeMap<_, _> = all.into_iter().collect();
            let expected = self.model.attributes.iter().filter(|((i, _), _)| *i == ino);
            let expected = expected.map(|((_, n), v)| (n.clone(), v.clone()));
            assert_eq!(all, expected.collect());
            self.compare_data(ino);
        }
    }

    fn compare_data(&mut self, ino: u64) {
        let mut sectors = Sectors::new();
        let expected = self.model.files.get(&ino).expect("it is there").clone();
        let mut from = 0;
        while let Some((at, e)) = self.core.extent_from(TREE, ino, from).expect("it reads") {
            let e = match e {
                Extent::Inline(data, _) => {
                    assert_eq!(Some(&data), self.model.inline.get(&ino));
                    return;
                }
                Extent::Regular(e) => e,
            };
            from = at + e.num_bytes.get();
            if e.head.kind == extent_type::PREALLOC {
                continue;
            }
            let n = e.num_bytes.get() / SECTOR;
            let place = e.disk_bytenr.get() + e.offset.get();
            let sums = self.core.csums(id::CSUM_TREE, place, n).expect("it reads");
            for (i, sum) in (0..n).zip(sums) {
                let at = at / SECTOR + i;
                let tag = expected.get(&at).expect("a sector with data");
                let mut data = vec![0; SECTOR as usize];
                let places = self.core.chunks().places(place + i * SECTOR, SECTOR);
                let physical = places.expect("a place")[0];
                self.file.read_exact_at(&mut data, physical).expect("within the image");
                assert_eq!(data, sector_bytes(*tag), "file {ino}, sector {at}");
                let mut right = Vec::new();
                self.core.common().csum.push(&data, &mut right);
                assert_eq!(sum, Some(right), "file {ino}, sector {at}");
                sectors.insert(at, *tag);
            }
        }
        assert_eq!(sectors, expected, "file {ino}");
    }
}

#[test]
fn files_are_as_the_model_says_and_images_are_clean() {
    if !tools::has_tool("btrfs files", "btrfs") {
        return;
    }
    let cases: [(u64, &[&str]); 3] = [
        (256 * MIB, &["-m", "dup"]),
        (300 * MIB, &["-m", "single", "-n", "4096"]),
        (256 * MIB, &["--csum", "xxhash", "-n", "8192"]),
    ];
    for (n, (bytes, options)) in cases.into_iter().enumerate() {
        let image = program::mkfs(bytes, options);
        let mut world = World {
            core: world::open(image.as_file()).expect("it opens"),
            file: image.as_file(),
            rng: Rng::stream(n as u64, "files"),
            model: Model::default(),
            size_of_root: 0,
        };
        for round in 0..12 {
            for _ in 0..250 {
                world.step();
            }
            commit::commit(&mut world.core, image.as_file()).expect("a commit");
            if round % 2 == 1 {
                world.core = world::open(image.as_file()).expect("it opens");
            }
            world.compare();
            if round % 4 == 3 {
                assert_eq!(tools::check(image.path()), "", "{options:?}, round {round}");
            }
        }
    }
}
