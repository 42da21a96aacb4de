//! Our own check of a file system: every structure against every other that says the same.
//!
//! Picture:    super block -> chunk tree -> root tree -> extent tree (`extents`: who is said to
//!             use what) -> all other trees, block by block (`volume`: who uses what) -> chunks,
//!             device and block groups (`chunks`), free space (`space`), checksums (`sums`), files
//!             and names (`files`), subvolumes (`roots`).
//! Invariants: 1. shares with all that reads and writes only `disk`: a mistake there is seen here.
//!                (With `recover`, what `replay` makes of a crashed image is checked.)
//!             2. no bytes make it panic. In each tree a block is seen once: levels fall, and keys
//!                ascend over the whole tree.
//!             3. what cannot be read is a finding; what is then not counted is not reported.
//! Left out:   what [`Report::not_checked`] says of an image; the tree of uuids, which
//!             Linux makes again; how many bytes a root item says that its tree has.
//! Source:     what each structure says of the others; `btrfs check`, as a judge to compare with.

#![deny(clippy::indexing_slicing)]

mod caches;
mod chunks;
mod extents;
mod files;
mod finding;
mod inodes;
mod quota;
mod roots;
mod space;
mod sums;
mod volume;

use wp_base::{FsError, FsResult};
use wp_medium::{Overlay, View};
use zerocopy::FromBytes;

use crate::disk::feature::incompat;
use crate::disk::node::Common;
use crate::disk::{SuperBlock, at32, id, kind, wide};
use crate::replay::{RecoverOptions, recover};

pub use finding::{Finding, Kind, Report};

use caches::Caches;
use chunks::Device;
use extents::Extents;
use files::Trees;
use inodes::Rules;
use quota::Quota;
use roots::Roots;
use space::FreeSpace;
use sums::Sums;
use volume::{Seen, Start, Volume, Walk};

/// How to check.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// Recover in memory first, so; `None`: check what the last commit has, without its log.
    pub recover: Option<RecoverOptions>,
    /// Hold all data against its checksums, too?
    pub contents: bool,
}

/// Checks an image. Never writes to it.
///
/// Errors: of the view, of recovery, and `Unsupported` with names of features.
pub fn check(view: &dyn View, options: &CheckOptions) -> FsResult<Report> {
    let overlay = Overlay::new(view);
    let mut report = Report::default();
    if let Some(how) = &options.recover {
        report.recovered = recover(&overlay, how)?.is_needed;
    }
    look(&overlay, options, &mut report)?;
    if options.recover.is_none() && has_log(view) {
        match recover(&overlay, &RecoverOptions::default()) {
            Ok(_) => {
                let mut after = Report::default();
                look(&overlay, options, &mut after)?;
                finding::compare_replayed(&mut report, after);
            }
            Err(FsError::Corrupt(c)) => report.corrupt(Kind::Log, "log", &c),
            Err(FsError::Unsupported(what)) => return Err(FsError::Unsupported(what)),
            Err(e) => report.add(Kind::Log, "log", e, "a log to replay"),
        }
    }
    Ok(report)
}

/// Does a sound super block name a log, which a mount replays?
fn has_log(view: &dyn View) -> bool {
    read_super(view, SuperBlock::AT)
        .is_ok_and(|sb| sb.verify(SuperBlock::AT).is_ok() && sb.log_root.get() != 0)
}

/// The super block at byte `at`. Errors: `Corrupt`, `Io`.
fn read_super(view: &dyn View, at: u64) -> FsResult<Box<SuperBlock>> {
    if at.checked_add(wide(SuperBlock::BYTES)).is_none_or(|end| end > view.len_bytes()) {
        let found = view.len_bytes();
        return Err(FsError::corrupt("btrfs image", "length", 0, found, "room for a super block"));
    }
    let mut bytes = vec![0; SuperBlock::BYTES];
    view.read_at(at, &mut bytes)?;
    SuperBlock::read_from_bytes(&bytes).map(Box::new).map_err(|_| FsError::Io)
}

fn look(view: &dyn View, options: &CheckOptions, report: &mut Report) -> FsResult<()> {
    let Some(sb) = volume::super_block(view, report)? else { return Ok(()) };
    chunks::check_copies(view, &sb, report);
    let common = Common {
        csum: sb.csum_kind(SuperBlock::AT)?,
        fsid: sb.tree_uuid(),
        node_bytes: at32(sb.nodesize.get()),
    };
    if sb.dev_item.total_bytes.get() > view.len_bytes() {
        let found = sb.dev_item.total_bytes.get();
        report.add(Kind::SuperBlock, "super block: device", found, view.len_bytes());
        return Ok(());
    }
    let (root, chunk) = (
        (sb.root.get(), sb.root_level, sb.generation.get()),
        (sb.chunk_root.get(), sb.chunk_root_level, sb.chunk_root_generation.get()),
    );
    let start = |tree, (bytenr, level, generation)| Start {
        tree,
        bytenr,
        level,
        generation,
        dropped: None,
    };
    let (root, chunk) = (start(id::ROOT_TREE, root), start(id::CHUNK_TREE, chunk));
    let chunks = std::collections::BTreeMap::new();
    let mut volume = Volume { view, sb, common, chunks, profile: None };
    match volume.sb.system_chunks(SuperBlock::AT) {
        Ok(all) => {
            for (key, chunk) in all {
                volume.add_chunk(key, &chunk, SuperBlock::AT, report);
            }
        }
        Err(e) => report.error(Kind::SuperBlock, "super block: system chunks", e),
    }
    let mut seen = Seen::default();
    let mut device = Device::default();
    device.read_chunks(&mut volume, &chunk, &mut seen, report);

    if let Some(name) = volume.profile {
        return Err(FsError::Unsupported(format!("btrfs block group profile: {name}")));
    }
    volume.check_log_root(report);
    let mut roots = Roots::default();
    let mut walk = Walk { volume: &volume, extents: None, seen: &mut seen, report, dropped: None };
    let mut caches = Caches::default();
    walk.tree(&root, &mut |item, _, report| {
        roots.item(item, report);
        caches.item(item);
    });
    let mut extents = Extents::new(walk.volume.sb.generation.get());
    if let Some(start) = roots.start(id::EXTENT_TREE) {
        walk.tree(&start, &mut |item, _, report| extents.item(item, &mut device, report));
        extents.fill_sizes(common.node_bytes);
    } else {
        walk.report.add(Kind::Root, "root tree", "no extent tree", "one");
        return Ok(());
    }
    let mut walk = Walk { extents: Some(&extents), ..walk };
    let mut sums = Sums::new(walk.volume.common.csum.bytes());
    let mut free = FreeSpace::default();
    let rules = Rules {
        generation: walk.volume.sb.generation.get(),
        no_holes: walk.volume.sb.incompat_flags.get() & incompat::NO_HOLES != 0,
    };
    let mut trees = Trees::new(&extents, rules);
    let mut quota = Quota::default();
    let numbers = roots.numbers();
    let has_quota = numbers.contains(&id::QUOTA_TREE);
    walk.seen.subvolumes = has_quota.then(Default::default);
    for number in numbers.iter().copied() {
        let Some(start) = roots.start(number) else { continue };
        match number {
            id::EXTENT_TREE => {}
            id::DEV_TREE => walk.tree(&start, &mut |item, _, report| device.item(item, report)),
            id::CSUM_TREE => walk.tree(&start, &mut |item, _, report| sums.item(item, report)),
            id::QUOTA_TREE => walk.tree(&start, &mut |item, _, report| quota.item(item, report)),
            id::FREE_SPACE_TREE => {
                walk.tree(&start, &mut |item, _, report| free.item(item, report));
            }
            n if id::is_file_tree(n) || n == id::DATA_RELOC_TREE => {
                let mut tree = trees.begin(number, roots.root_dir(number));
                walk.tree(&start, &mut |item, seen, report| tree.item(item, seen, report));
                let is_whole = !walk.seen.is_torn && start.dropped.is_none();
                trees.end(tree, is_whole, &mut roots, walk.report);
            }
            id::TREE_RELOC => {
                return Err(FsError::Unsupported("btrfs with an interrupted balance".into()));
            }
            _ => walk.tree(&start, &mut |_, _, _| {}),
        }
    }
    if !options.contents {
        walk.report.not_checked.push("contents of files against their checksums");
    }
    if !numbers.contains(&id::FREE_SPACE_TREE) && !caches.is_empty() {
        walk.report.not_checked.push("contents of the first space cache");
    }
    let mut pieces = trees.into_pieces();
    let Walk { seen, report, .. } = walk;
    pieces.extend(caches.use_extents(&extents, seen, report));
    device.finish(&volume, &extents, seen, report);
    if seen.is_torn {
        return Ok(());
    }
    extents.compare(&volume, seen, report);
    if volume.sb.compat_ro_flags.get() & crate::disk::feature::compat_ro::FREE_SPACE_TREE_VALID != 0
    {
        free.compare(&volume, &extents, report);
    }
    sums.compare(&volume, &extents, &pieces, report);
    if has_quota {
        quota.compare(rules.generation, &roots, &extents, seen, report);
    }
    if options.contents {
        sums.check_contents(&volume, report);
    }
    roots.finish(report);
    Ok(())
}

/// Kinds of items that a tree of files has, beside those of inodes.
const fn is_of_inode(kind: u8) -> bool {
    matches!(
        kind,
        kind::INODE_ITEM
            | kind::INODE_REF
            | kind::INODE_EXTREF
            | kind::XATTR_ITEM
            | kind::VERITY_DESC_ITEM
            | kind::VERITY_MERKLE_ITEM
            | kind::DIR_ITEM
            | kind::DIR_INDEX
            | kind::EXTENT_DATA
    )
}
