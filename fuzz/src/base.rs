//! The images that patches are laid over: ours, made here; of mke2fs, kept in `fuzz/bases`; of real
//! kernels in `testdata`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::rc::Rc;

use wp_base::{Sector, Zone, zone_report};
use wp_btrfs::disk::CsumKind;
use wp_ext4::fs::DataMode;
use wp_ext4::image::{Image, log_map};
use wp_ext4::mkfs::{Features, JournalSize, MkfsOptions, mkfs};
use wp_f2fs::disk::feature;
use wp_jbd2::disk as log;
use wp_medium::{Medium, MediumView, Overlay, View};
use zerocopy::IntoBytes;

use super::image::Sparse;
use super::patch::{self, Spot};
use super::world::{Setup, World};
use super::{btrfs, patch_btrfs, patch_f2fs, patch_nilfs2};

/// Makes the checksums of what was hit right.
pub type Seal = fn(&BTreeSet<Spot>, &Overlay<'_>);

/// A base image.
pub struct Base {
    /// What is in it.
    pub image: Sparse,
    /// Its structures.
    pub spots: Vec<Spot>,
    /// For its checksums.
    pub seal: Seal,
}

/// Whose images they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Family {
    /// ext4's.
    Ext4,
    /// F2FS's.
    F2fs,
    /// btrfs's.
    Btrfs,
    /// NILFS2's.
    Nilfs2,
}

impl Family {
    fn bases(self) -> &'static [(&'static str, Source)] {
        match self {
            Family::Ext4 => EXT4,
            Family::F2fs => F2FS,
            Family::Btrfs => BTRFS,
            Family::Nilfs2 => NILFS2,
        }
    }

    /// How many bases it has.
    pub fn count(self) -> usize {
        self.bases().len()
    }

    /// Name of number `n`.
    pub fn name(self, n: usize) -> &'static str {
        self.bases()[n % self.count()].0
    }

    /// Is number `n` of the reference data, and so perhaps not here?
    pub fn is_of_reference(self, n: usize) -> bool {
        matches!(self.bases()[n % self.count()].1, Source::Real)
    }

    /// The base of number `n`, made at its first use; `None` if the reference data is not here.
    pub fn base(self, n: usize) -> Option<Rc<Base>> {
        let n = n % self.count();
        let make = || make(self, n).map(Rc::new);
        MADE.with_borrow_mut(|made| made.entry((self, n)).or_insert_with(make).clone())
    }
}

/// Where an image comes from.
#[derive(Clone, Copy)]
enum Source {
    /// Made here.
    Ours(Ours),
    /// Of mke2fs, or mkfs.btrfs and a kernel: a file of `fuzz/bases`.
    Kept,
    /// Of a real kernel: a folder of the reference data.
    Real,
    /// F2FS of ours with nothing in it: features.
    Empty(u32),
    /// btrfs of ours with files in it.
    Btrfs(btrfs::Ours),
    /// NILFS2 of ours with nothing in it: bytes of a block.
    Fresh(u32),
}

/// Recipe of an image of ours.
#[derive(Clone, Copy)]
struct Ours {
    mib: u64,
    block_size: u32,
    is_today: bool,
    /// Feature to add.
    extra: &'static str,
    setup: Setup,
    /// Unmounted, or left as a power cut leaves it.
    is_clean: bool,
    journal_mib: Option<u32>,
}

const TODAY: Ours = Ours {
    mib: 4,
    block_size: 1024,
    is_today: true,
    extra: "",
    setup: Setup::of("6.18"),
    is_clean: true,
    journal_mib: None,
};
const ERA: Ours = Ours { is_today: false, setup: Setup::of("3.4"), ..TODAY };
const ASYNC: Setup = Setup { era: "3.8", data: DataMode::Writeback, async_commit: true };
const JOURNAL: Setup = Setup { era: "4.6", data: DataMode::Journal, async_commit: false };

/// All of ext4. An input names its base by its place here: new ones go to the end.
const EXT4: &[(&str, Source)] = &[
    ("ours, today", Source::Ours(TODAY)),
    ("ours, today, cut", Source::Ours(Ours { is_clean: false, ..TODAY })),
    ("ours, 2012", Source::Ours(ERA)),
    ("ours, 2012, cut", Source::Ours(Ours { is_clean: false, ..ERA })),
    ("ours, checksum v1, cut", Source::Ours(Ours { is_clean: false, setup: ASYNC, ..ERA })),
    ("ours, data=journal, cut", Source::Ours(Ours { is_clean: false, setup: JOURNAL, ..TODAY })),
    (
        "ours, orphan file, cut",
        Source::Ours(Ours { is_clean: false, extra: "orphan_file", ..TODAY }),
    ),
    ("ours, 4096, cut", Source::Ours(Ours { mib: 16, block_size: 4096, is_clean: false, ..TODAY })),
    (FAST_COMMIT, Source::Ours(Ours { mib: 8, is_clean: false, journal_mib: Some(2), ..TODAY })),
    ("indirect", Source::Kept),
    ("htree", Source::Kept),
    ("inline", Source::Kept),
    ("old-inodes", Source::Kept),
    ("attributes", Source::Kept),
    ("quota", Source::Kept),
    ("ext4-async", Source::Real),
    ("ext4-badcsum", Source::Real),
    ("ext4-fc", Source::Real),
    ("ext4-fcnodir", Source::Real),
    ("ext4-j1k", Source::Real),
    ("ext4-jcsum1", Source::Real),
    ("ext4-journal", Source::Real),
    ("ext4-nocsum", Source::Real),
    ("ext4-ordered", Source::Real),
    ("ext4-orphan", Source::Real),
    ("ext4-orphanfile", Source::Real),
    ("ext4-revoke", Source::Real),
    ("ext4-torncommit", Source::Real),
    ("ext4-wrap", Source::Real),
    ("ext4-writeback", Source::Real),
];

/// All of F2FS, in the same way.
const F2FS: &[(&str, Source)] = &[
    ("ours, empty", Source::Empty(0)),
    ("ours, empty, checksums", Source::Empty(feature::EXTRA_ATTR | feature::INODE_CHKSUM)),
    ("f2fs-posix", Source::Real),
    ("f2fs-strict", Source::Real),
    ("f2fs-aged", Source::Real),
    ("f2fs-attrs", Source::Real),
    ("f2fs-noinline", Source::Real),
    ("f2fs-zns", Source::Real),
    ("f2fs-zhmcap", Source::Real),
];

/// btrfs of ours as mkfs.btrfs makes it, cut.
const BTRFS_CUT: btrfs::Ours = btrfs::Ours {
    node_bytes: 16384,
    has_two_copies: true,
    csum: CsumKind::Crc32c,
    is_clean: false,
};
/// The same with smaller tree blocks, and so more of them, in one copy.
const BTRFS_4096: btrfs::Ours =
    btrfs::Ours { node_bytes: 4096, has_two_copies: false, ..BTRFS_CUT };

/// All of btrfs, in the same way.
const BTRFS: &[(&str, Source)] = &[
    ("ours", Source::Btrfs(btrfs::Ours { is_clean: true, ..BTRFS_CUT })),
    ("ours, cut", Source::Btrfs(BTRFS_CUT)),
    ("ours, 4096", Source::Btrfs(btrfs::Ours { is_clean: true, ..BTRFS_4096 })),
    ("ours, 4096, cut", Source::Btrfs(BTRFS_4096)),
    ("ours, xxhash, cut", Source::Btrfs(btrfs::Ours { csum: CsumKind::Xxhash64, ..BTRFS_4096 })),
    ("btrfs-plain", Source::Real),
    ("btrfs-n4k", Source::Real),
    ("btrfs-subvol", Source::Real),
    ("btrfs-treelog", Source::Real),
    ("btrfs-xxhash", Source::Real),
    ("btrfs-compressed", Source::Kept),
];

/// All of NILFS2, in the same way.
const NILFS2: &[(&str, Source)] = &[
    ("ours, fresh", Source::Fresh(4096)),
    ("ours, fresh, 1024", Source::Fresh(1024)),
    ("nilfs2-cps", Source::Real),
    ("nilfs2-dsync", Source::Real),
    ("nilfs2-fsync", Source::Real),
    ("nilfs2-gc", Source::Real),
    ("nilfs2-small", Source::Real),
];

/// Name of the base whose journal has a fast-commit area.
pub const FAST_COMMIT: &str = "ours, fast commits, cut";
/// Blocks of that area, and the one before it that stays unused.
pub const FAST_COMMIT_BLOCKS: u32 = 64;

/// Bases by number; `None` for one that is not here.
type Made = BTreeMap<(Family, usize), Option<Rc<Base>>>;

thread_local! {
    static MADE: RefCell<Made> = const { RefCell::new(BTreeMap::new()) };
}

/// The base of ext4 of this name.
pub fn named(name: &str) -> Option<Rc<Base>> {
    Family::Ext4.base(EXT4.iter().position(|(n, _)| *n == name)?)
}

fn make(family: Family, n: usize) -> Option<Base> {
    let (name, source) = family.bases()[n];
    let unpack = |packed: &[u8]| zstd::decode_all(packed).expect("a whole archive");
    let image = match source {
        Source::Ours(ours) => make_ours(&ours, name == FAST_COMMIT),
        Source::Kept => {
            let packed = root().join("bases").join(format!("{name}.img.zst"));
            let packed =
                std::fs::read(&packed).unwrap_or_else(|e| panic!("{}: {e}", packed.display()));
            Sparse::new(&unpack(&packed))
        }
        Source::Real => {
            let folder = reference().join(name);
            let files = ["image", "conv", "zoned"].map(|f| folder.join(format!("{f}.img.zst")));
            let (mut image, mut before) = (Sparse::zeroes(0), 0);
            for packed in files.iter().filter_map(|f| File::open(f).ok()) {
                before = image.len_bytes() / 512;
                let mut device = zstd::Decoder::new(packed).expect("an archive");
                image.append(&mut device).expect("a whole archive");
            }
            if image.len_bytes() == 0 {
                return None;
            }
            let report = std::fs::read_to_string(folder.join("zoned.zones.txt"));
            let moved = |z: Zone| Zone {
                start: Sector(z.start.0 + before),
                wp: Sector(z.wp.0 + before),
                ..z
            };
            let zones = report.map(|text| zone_report::parse(&text).expect("a report"));
            image.with_zones(zones.into_iter().flatten().map(moved).collect())
        }
        Source::Empty(features) => {
            let bytes = 64 << 20;
            let mut o = wp_f2fs::mkfs::MkfsOptions::new(bytes);
            o.features |= features;
            let mut medium = Medium::new();
            wp_f2fs::mkfs::mkfs(&o).expect("possible options").write_to(&mut medium);
            Sparse::with(&MediumView { medium, start: Sector(0), bytes })
        }
        Source::Btrfs(ours) => btrfs::make(&ours),
        Source::Fresh(block_bytes) => {
            let bytes = 4 << 20;
            let mut o = wp_nilfs2::mkfs::MkfsOptions::new(bytes);
            (o.block_bytes, o.segment_blocks) = (block_bytes, 32);
            let mut medium = Medium::new();
            wp_nilfs2::mkfs::mkfs(&o).expect("possible options").write_to(&mut medium);
            Sparse::with(&MediumView { medium, start: Sector(0), bytes })
        }
    };
    let (spots, seal): (_, Seal) = match family {
        Family::Ext4 => (patch::spots(&image), patch::seal),
        Family::F2fs => (patch_f2fs::spots(&image), patch_f2fs::seal),
        Family::Btrfs => (patch_btrfs::spots(&image), patch_btrfs::seal),
        Family::Nilfs2 => (patch_nilfs2::spots(&image), patch_nilfs2::seal),
    };
    Some(Base { image, spots, seal })
}

/// The folder `fuzz`.
pub fn root() -> PathBuf {
    // Compiled as the crate `wp-fuzz` or into a test of another crate of the repository.
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    if here.ends_with("fuzz") { here } else { here.join("../../fuzz") }
}

/// The folder of reference data, which may not be there.
pub fn reference() -> PathBuf {
    match std::env::var_os("WRITEPATH_REFERENCE") {
        Some(path) => PathBuf::from(path),
        None => root().join("../testdata/reference"),
    }
}

fn make_ours(ours: &Ours, has_fast_commits: bool) -> Sparse {
    let mut features = if ours.is_today { Features::today() } else { Features::era_2012() };
    if !ours.extra.is_empty() {
        features = features.set(ours.extra, true).expect("a feature");
    }
    let bytes = ours.mib << 20;
    let mut o = MkfsOptions::new(bytes, features);
    (o.block_size, o.uuid, o.hash_seed) = (Some(ours.block_size), [7; 16], [9; 16]);
    o.now = 1_388_534_400;
    o.journal = ours.journal_mib.map_or(JournalSize::Default, JournalSize::Mebibytes);
    let mut medium = Medium::new();
    mkfs(&o).expect("possible options").write_to(&mut medium, Sector(0));
    let world = World::new(&medium, bytes);
    let vfs = world.mount(&ours.setup).expect("mounts");
    world.furnish(&vfs, ours_is_small(bytes), ours.is_clean);
    let view = MediumView { medium: world.medium(), start: Sector(0), bytes };
    let image = if has_fast_commits { with_area(&view) } else { Sparse::with(&view) };
    drop((vfs, view));
    world.end();
    image
}

fn ours_is_small(bytes: u64) -> bool {
    bytes <= 4 << 20
}

/// Gives the last blocks of a crashed image's log to fast commits, none of which is there.
fn with_area(view: &dyn View) -> Sparse {
    let over = Overlay::new(view);
    let image = Image::open(view).expect("an image");
    let (map, bs) = (log_map(&image).expect("a journal"), image.geometry().block_size);
    let mut sb = wp_jbd2::recover::read_super(view, &map, bs).expect("a log");
    sb.feature_incompat = (sb.feature_incompat.get() | log::INCOMPAT_FAST_COMMIT).into();
    sb.num_fc_blks = FAST_COMMIT_BLOCKS.into();
    sb.checksum = sb.checksum_now().into();
    let at = map.block(0).expect("mapped") * u64::from(bs.bytes());
    over.write_at(at, sb.as_bytes()).expect("within the image");
    Sparse::with(&over)
}
