//! Damaged images: bytes of tree blocks and of the super block are changed at random, and checksums
//! made right so that what lies behind them is met. Whatever the core is asked then, it answers
//! with an error or does it; it never panics, and it ends.

use wp_base::{FsResult, Rng, Sector};
use wp_btrfs::core::{Core, Disk};
use wp_btrfs::disk::file_extent::{FileExtentItem, extent_type};
use wp_btrfs::disk::inode::mode;
use wp_btrfs::disk::{CsumKind, InodeItem, Key, SuperBlock, id, kind};
use wp_btrfs::items::Set;
use wp_btrfs::mkfs::{MkfsOptions, mkfs};
use wp_btrfs::trans::Plan;
use wp_medium::{Medium, MediumView};
use wp_vfs::FileType;

const TREE: u64 = id::FS_TREE;
const ROOT: u64 = 256;
const BYTES: u64 = 128 << 20;

fn apply(medium: &mut Medium, plan: &Plan) {
    for block in &plan.blocks {
        for at in &block.places {
            medium.write_bytes(*at, &block.bytes);
        }
    }
    for (at, bytes) in &plan.supers {
        medium.write_bytes(*at, bytes);
    }
}

fn create(core: &mut Core<'_>, rng: &mut Rng) -> FsResult<u64> {
    core.reserve(8)?;
    let ino = core.next_ino(TREE)?;
    let mut inode = InodeItem::zeroed();
    inode.mode = (mode::FILE | 0o644).into();
    core.insert_inode(TREE, ino, &inode)?;
    let name = format!("name {ino}");
    let index = core.next_index(TREE, ROOT)?;
    let to = Key::new(ino, kind::INODE_ITEM, 0);
    core.add_name(TREE, ROOT, index, name.as_bytes(), to, FileType::File.entry())?;
    core.add_ref(TREE, ino, ROOT, index, name.as_bytes())?;
    core.set_xattr(TREE, ino, b"user.some", &[7; 50], Set::Any)?;
    for n in 0..rng.below(4) {
        let (place, bytes) = core.alloc_data(4096 * (1 + rng.below(4)), 4096, 0)?;
        let item = FileExtentItem::new(extent_type::REGULAR, 9, (place, bytes), 0, bytes);
        core.insert_extent_item(TREE, ino, n * 65536, &item, true)?;
        core.insert_csums(id::CSUM_TREE, place, &vec![3; bytes as usize / 1024])?;
    }
    core.unreserve(8);
    Ok(ino)
}

/// Many things, each of which may fail.
fn exercise(core: &mut Core<'_>, rng: &mut Rng) -> FsResult<Plan> {
    for tree in 1..=10 {
        if let Err(e) = core.verify_tree(tree) {
            assert!(!e.to_string().is_empty());
        }
    }
    let _ = core.orphans(TREE);
    let mut from = 0;
    while let Ok(Some((index, e))) = core.read_dir(TREE, ROOT, from) {
        let ino = e.location.objectid;
        let _ = (core.inode(TREE, ino), core.refs_of(TREE, ino), core.xattrs(TREE, ino));
        match rng.below(6) {
            0 => drop(core.remove_name(TREE, ROOT, index, &e.name)),
            1 => drop(core.remove_ref(TREE, ino, ROOT, &e.name)),
            2 => drop(core.drop_extents(TREE, ino, 4096, 100_000)),
            3 => drop(core.truncate_extents(TREE, ino, 5000)),
            4 => drop(core.remove_inode_items(TREE, Key::new(ino, 0, 0), 10)),
            _ => drop(core.mark_written(TREE, ino, 0, 65536)),
        }
        let Some(next) = index.checked_add(1) else { break };
        from = next;
    }
    for _ in 0..10 {
        let _ = create(core, rng);
    }
    let _ = core.run_some_refs(5);
    core.commit_plan()
}

#[test]
fn nothing_panics_on_damaged_images() {
    let mut errors = 0;
    for node_bytes in [4096u32, 16384] {
        let o = MkfsOptions { node_bytes, dup_metadata: false, ..MkfsOptions::new(BYTES) };
        let mut medium = Medium::new();
        mkfs(&o).expect("it fits").write_to(&mut medium);
        let mut rng = Rng::stream(node_bytes.into(), "damaged");
        let mut metadata = Vec::new();
        for _ in 0..3 {
            let view = MediumView { medium: medium.clone(), start: Sector(0), bytes: BYTES };
            let mut core = Core::open(Disk::of_view(&view)).expect("it opens");
            for _ in 0..40 {
                create(&mut core, &mut rng).expect("room");
            }
            let plan = core.commit_plan().expect("a commit");
            metadata.extend(plan.blocks.iter().flat_map(|b| b.places.clone()));
            apply(&mut medium, &plan);
        }
        for round in 0..1500 {
            let mut medium = medium.clone();
            for _ in 0..1 + rng.below(3) {
                let is_super = rng.below(8) == 0;
                let n = rng.below(metadata.len() as u64) as usize;
                let (at, size) = if is_super {
                    (SuperBlock::AT, 4096)
                } else {
                    (metadata[n], node_bytes as usize)
                };
                let mut block = vec![0; size];
                medium.read_bytes(at, &mut block);
                for _ in 0..1 + rng.below(4) {
                    // Mostly heads of items and items, which are at the two ends.
                    let place = match rng.below(3) {
                        0 => rng.below(101),
                        1 => rng.below(size as u64 / 4),
                        _ => rng.below(size as u64),
                    };
                    let byte = match rng.below(4) {
                        0 => 0,
                        1 => 0xFF,
                        2 => block[place as usize] ^ (1 << rng.below(8)),
                        _ => rng.below(256) as u8,
                    };
                    block[place as usize] = byte;
                }
                CsumKind::Crc32c.seal(&mut block);
                medium.write_bytes(at, &block);
            }
            let view = MediumView { medium: medium.clone(), start: Sector(0), bytes: BYTES };
            let Ok(mut core) = Core::open(Disk::of_view(&view)) else {
                errors += 1;
                continue;
            };
            match exercise(&mut core, &mut rng) {
                Ok(plan) => {
                    // What was written is opened and read again.
                    apply(&mut medium, &plan);
                    let _ = core.committed();
                    let view = MediumView { medium, start: Sector(0), bytes: BYTES };
                    if let Ok(mut core) = Core::open(Disk::of_view(&view)) {
                        for tree in 1..=10 {
                            let _ = core.verify_tree(tree);
                        }
                    }
                }
                Err(e) => {
                    errors += 1;
                    assert!(!e.to_string().is_empty(), "round {round}");
                }
            }
        }
    }
    assert!(errors > 200, "{errors} of 3000 images were refused");
}
