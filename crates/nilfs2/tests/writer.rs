//! What the maker of logs writes, against a model: random files, grown, holed, cut and deleted,
//! with checkpoints and fdatasyncs between; then the image is read, recovered and checked by code
//! that knows nothing of the maker.
//!
//! `WRITER_ROUNDS` sets the number of programs of each kind.

use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::{FsError, Rng, Sector};
use wp_medium::{Medium, MediumView, Overlay, View};
use wp_nilfs2::check::{CheckOptions, check};
use wp_nilfs2::disk::inode::mode;
use wp_nilfs2::disk::{Inode, SuperBlock, dir, ino};
use wp_nilfs2::image::{Image, RecoverOptions, recover};
use wp_nilfs2::log::{DirtyBlocks, Disk, Kind, Origin, Place, Store};
use wp_nilfs2::mkfs::{MkfsOptions, mkfs};
use wp_vfs::FileType;
use zerocopy::IntoBytes;

/// A file of the model: number, and what its blocks are filled with.
#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    ino: u64,
    blocks: BTreeMap<u64, u8>,
}

/// A new file system as a mount leaves it: not clean.
fn fresh(o: &MkfsOptions) -> MediumView {
    let made = mkfs(o).expect("possible options");
    let mut medium = Medium::new();
    made.write_to(&mut medium);
    let view = MediumView { medium, start: Sector(0), bytes: o.bytes };
    let overlay = Overlay::new(&view);
    for at in [SuperBlock::AT, SuperBlock::second_at(o.bytes)] {
        let mut sb = made.super_block;
        sb.state = 0.into();
        sb.seal();
        overlay.write_at(at, sb.as_bytes()).expect("within");
    }
    let mut medium = view.medium.clone();
    overlay.writes().iter().for_each(|(at, what)| medium.write(*at, what));
    MediumView { medium, ..view }
}

/// What a file system has in memory.
struct Memory<'a> {
    store: Store<'a>,
    data: Rc<DirtyBlocks>,
}

impl Memory<'_> {
    fn write(&mut self, ino: u64, key: u64, what: Vec<u8>) -> Result<(), FsError> {
        self.store.dirty_block(ino, key)?;
        self.data.put(ino, key, what);
        Ok(())
    }

    fn truncate(&mut self, ino: u64, key: u64) -> Result<(), FsError> {
        self.data.cut(ino, key);
        self.store.truncate(ino, key)
    }
}

fn open<'a>(overlay: &'a Overlay<'_>) -> Memory<'a> {
    let image = Image::open(overlay).expect("an image");
    let (g, root) = (image.geometry().clone(), image.tip().root);
    let origin = Origin {
        root: image.super_root().clone(),
        at: 0,
        checkpoint: *image.checkpoint(),
        cno: image.tip().cno + 1,
        place: Place {
            segment: root.segment,
            offset: root.start + root.blocks - g.segment(root.segment).0,
            next_segment: root.next_segment,
            seq: root.seq,
        },
    };
    let bits = g.block_bits;
    let disk = Disk::new(g, move |block| {
        let mut bytes = vec![0; 1 << bits];
        overlay.read_at(block << bits, &mut bytes)?;
        Ok(bytes)
    });
    let data = Rc::new(DirtyBlocks::default());
    let store = Store::open(disk, &origin, data.clone()).expect("metadata files");
    Memory { store, data }
}

struct World<'a> {
    overlay: &'a Overlay<'a>,
    memory: Memory<'a>,
    bits: u32,
    files: BTreeMap<u64, Model>,
    now: u64,
}

impl World<'_> {
    fn write_logs(&mut self, kind: Kind) -> Result<usize, FsError> {
        self.now += 1;
        let logs = self.memory.store.construct(kind, self.now)?;
        for log in &logs {
            let at = log.start << self.bits;
            self.overlay.write_at(at, &log.bytes()).expect("within the image");
        }
        Ok(logs.len())
    }

    fn checkpoint(&mut self) -> Result<usize, FsError> {
        // Names of all files, in the one block of the root.
        let size = 1 << self.bits;
        let mut block = vec![0; size];
        let dots: [(&[u8], u64); 2] = [(b".", ino::ROOT), (b"..", ino::ROOT)];
        dots.iter().zip([0, 16]).for_each(|((name, number), at)| {
            dir::put(&mut block, at, 16, *number, FileType::Dir.entry(), name);
        });
        let mut at = 32;
        for (name, file) in &self.files {
            let name = format!("f{name}");
            let reach = dir::DirEntry::bytes_for(name.len());
            dir::put(&mut block, at, reach, file.ino, FileType::File.entry(), name.as_bytes());
            at += reach;
        }
        dir::put(&mut block, at, size - at, ino::USER, FileType::File.entry(), b".nilfs");
        self.memory.write(ino::ROOT, 0, block)?;
        self.write_logs(Kind::Checkpoint)
    }

    /// What an image has of the files, read by the readers.
    fn compare(&self, case: &str, view: &dyn View, files: &BTreeMap<u64, Model>) {
        let image = Image::open(view).unwrap_or_else(|e| panic!("{case}: {e}"));
        let root = image.inode(ino::ROOT).expect("the root");
        let names = image.names(&root).unwrap_or_else(|e| panic!("{case}: {e}"));
        assert_eq!(names.len(), files.len() + 1, "{case}");
        for (name, file) in files {
            let found = names.iter().find(|n| n.name == format!("f{name}").as_bytes());
            assert_eq!(found.map(|n| n.ino), Some(file.ino), "{case}: f{name}");
            let record = image.inode(file.ino).expect("an inode");
            let runs = image.map(&record).unwrap_or_else(|e| panic!("{case}: {e}"));
            let blocks =
                runs.iter().flat_map(|r| (0..r.blocks).map(|i| (r.logical + i, r.start + i)));
            let found: BTreeMap<u64, u8> = blocks
                .map(|(key, place)| {
                    let bytes = image.read_block(place, "data").expect("a block");
                    assert!(bytes.iter().all(|b| *b == bytes[0]), "{case}: f{name}, block {key}");
                    (key, bytes[0])
                })
                .collect();
            assert_eq!(found, file.blocks, "{case}: f{name}");
        }
        let report = check(view, &CheckOptions::default()).expect("a report");
        assert_eq!(report.findings, [], "{case}");
    }

    /// A random change of a random file.
    fn change(&mut self, rng: &mut Rng) -> Result<(), FsError> {
        let name = rng.below(6);
        let size = 1usize << self.bits;
        if !self.files.contains_key(&name) {
            let mut inode = Inode::zeroed();
            (inode.mode, inode.links_count) = ((mode::FILE | 0o644).into(), 1.into());
            let number = self.memory.store.make_file(inode)?;
            self.files.insert(name, Model { ino: number, ..Model::default() });
        }
        let file = self.files.get_mut(&name).expect("just made");
        let last = file.blocks.keys().next_back().map_or(0, |k| k + 1);
        let mut write = |memory: &mut Memory<'_>, key: u64, fill: u8| {
            file.blocks.insert(key, fill);
            memory.write(file.ino, key, vec![fill; size])
        };
        let fill = rng.next_u64() as u8 | 1;
        match rng.below(12) {
            0..=3 => {
                for key in last..last + 1 + rng.below(90) {
                    write(&mut self.memory, key, fill)?;
                }
            }
            4 | 5 => {
                let from = rng.below(last + 9);
                for key in from..from + 1 + rng.below(7) {
                    write(&mut self.memory, key, fill)?;
                }
            }
            6 => {
                for _ in 0..1 + rng.below(30) {
                    write(&mut self.memory, rng.below(30_000), fill)?;
                }
            }
            7 | 8 => {
                let key = rng.below(last + 1);
                self.memory.truncate(file.ino, key)?;
                file.blocks.retain(|k, _| *k < key);
            }
            9 => {
                self.memory.truncate(file.ino, 0)?;
                file.blocks.clear();
            }
            10 => {
                self.memory.data.cut(file.ino, 0);
                self.memory.store.drop_file(file.ino)?;
                self.files.remove(&name);
                return Ok(());
            }
            _ => self.memory.store.change_inode(file.ino, |i| i.mtime = self.now.into())?,
        }
        let end = file.blocks.keys().next_back().map_or(0, |k| k + 1);
        self.memory.store.change_inode(file.ino, |i| i.size = (end << self.bits).into())
    }

    /// Overwrites blocks of a file that the last checkpoint has, and syncs their data alone.
    fn sync_data(&mut self, rng: &mut Rng) -> Result<(), FsError> {
        let names: Vec<u64> = self.files.keys().copied().collect();
        let Some(name) = names.get(rng.below(names.len().max(1) as u64) as usize) else {
            return Ok(());
        };
        let file = self.files.get_mut(name).expect("one of them");
        let keys: Vec<u64> = file.blocks.keys().copied().collect();
        let (number, fill) = (file.ino, rng.next_u64() as u8 | 1);
        for key in keys.iter().filter(|_| rng.below(4) == 0) {
            file.blocks.insert(*key, fill);
            self.memory.write(number, *key, vec![fill; 1 << self.bits])?;
        }
        self.write_logs(Kind::DataSync { ino: number, from: 0, to: u64::MAX }).map(|_| ())
    }
}

fn run(o: &MkfsOptions, seed: u64) -> (usize, usize) {
    let view = fresh(o);
    let overlay = Overlay::new(&view);
    let case = format!("{} bytes a block, seed {seed}", o.block_bytes);
    let mut world = World {
        overlay: &overlay,
        memory: open(&overlay),
        bits: o.block_bytes.trailing_zeros(),
        files: BTreeMap::new(),
        now: o.now,
    };
    let mut rng = Rng::stream(seed, "nilfs2-writer");
    let (mut logs, mut salvaged) = (0, 0);
    for step in 0..14 {
        let result = (0..1 + rng.below(8)).try_for_each(|_| world.change(&mut rng));
        match result.and_then(|()| world.checkpoint()) {
            Ok(n) => logs += n,
            // The device is full: what was there stays.
            Err(FsError::NoSpace) => return (logs, salvaged),
            Err(e) => panic!("{case}, step {step}: {e}"),
        }
        world.compare(&format!("{case}, step {step}"), &overlay, &world.files);
        if rng.below(3) == 0 {
            match world.sync_data(&mut rng) {
                Ok(()) => {}
                Err(FsError::NoSpace) => return (logs, salvaged),
                Err(e) => panic!("{case}, step {step}: {e}"),
            }
            let after = Overlay::new(&overlay);
            let done = recover(&after, &RecoverOptions::default());
            let done = done.unwrap_or_else(|e| panic!("{case}, step {step}: {e}"));
            salvaged += done.blocks as usize;
            world.compare(&format!("{case}, step {step}, recovered"), &after, &world.files);
        }
        // Now and then all of it is read anew.
        if rng.below(4) == 0 && !world.memory.store.is_dirty() {
            world.memory = open(&overlay);
        }
    }
    (logs, salvaged)
}

#[test]
fn what_is_written_is_what_was_meant() {
    let rounds: u64 =
        std::env::var("WRITER_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    let kinds = [(1024, 32, 24 << 20), (1024, 512, 32 << 20), (4096, 64, 96 << 20)];
    for (block_bytes, segment_blocks, bytes) in kinds {
        let (mut logs, mut salvaged) = (0, 0);
        for seed in 0..rounds {
            let mut o = MkfsOptions::new(bytes);
            (o.block_bytes, o.segment_blocks) = (block_bytes, segment_blocks);
            let (l, s) = run(&o, seed);
            (logs, salvaged) = (logs + l, salvaged + s);
        }
        println!("{block_bytes}, {segment_blocks}: {logs} logs, {salvaged} blocks salvaged");
        assert!(logs > rounds as usize * 10 && salvaged > 0, "{logs} logs, {salvaged} salvaged");
    }
}
