//! What a mount and a commit cost without a device: `cargo bench -p wp-btrfs --bench core`.
//!
//! Each case opens an image of 256 MiB with 200 files from its medium (cloned in O(1)), as the
//! exploration of crash states does, and throws it away.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::hint::black_box;
use std::time::Instant;

use wp_base::Sector;
use wp_btrfs::core::{Core, Disk};
use wp_btrfs::disk::file_extent::{FileExtentItem, extent_type};
use wp_btrfs::disk::inode::mode;
use wp_btrfs::disk::{InodeItem, Key, id, kind};
use wp_btrfs::mkfs::{MkfsOptions, mkfs};
use wp_btrfs::trans::Plan;
use wp_medium::{Medium, MediumView};
use wp_vfs::FileType;

/// How often each case is repeated; the best run counts, the others met a busy machine.
const RUNS: u32 = 7;
/// Calls in a run.
const CALLS: u32 = 1000;
const BYTES: u64 = 256 << 20;
const TREE: u64 = id::FS_TREE;
const ROOT: u64 = 256;

fn create(core: &mut Core<'_>) {
    let ino = core.next_ino(TREE).expect("it reads");
    let mut inode = InodeItem::zeroed();
    inode.mode = (mode::FILE | 0o644).into();
    core.insert_inode(TREE, ino, &inode).expect("new");
    let name = format!("name {ino}");
    let to = Key::new(ino, kind::INODE_ITEM, 0);
    core.add_name(TREE, ROOT, ino, name.as_bytes(), to, FileType::File.entry()).expect("new");
    core.add_ref(TREE, ino, ROOT, ino, name.as_bytes()).expect("new");
    let (place, bytes) = core.alloc_data(4096, 4096, 0).expect("room");
    let item = FileExtentItem::new(extent_type::REGULAR, 9, (place, bytes), 0, bytes);
    core.insert_extent_item(TREE, ino, 0, &item, true).expect("new");
    core.insert_csums(id::CSUM_TREE, place, &[1; 4]).expect("room");
}

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

fn list(core: &mut Core<'_>) -> usize {
    let (mut from, mut n) = (0, 0);
    while let Some((index, _)) = core.read_dir(TREE, ROOT, from).expect("it reads") {
        (from, n) = (index + 1, n + 1);
    }
    n
}

type Case = (&'static str, fn(&mut Core<'_>) -> usize);

fn main() {
    let mut medium = Medium::new();
    mkfs(&MkfsOptions::new(BYTES)).expect("it fits").write_to(&mut medium);
    let view = MediumView { medium: medium.clone(), start: Sector(0), bytes: BYTES };
    let mut core = Core::open(Disk::of_view(&view)).expect("it opens");
    for _ in 0..200 {
        create(&mut core);
    }
    let plan = core.commit_plan().expect("a commit");
    apply(&mut medium, &plan);

    let cases: [Case; 5] = [
        ("open", |_| 0),
        ("open, one inode", |c| usize::from(c.inode(TREE, 300).expect("it reads").is_some())),
        ("open, list 200 names", list),
        ("open, commit nothing", |c| c.commit_plan().expect("a commit").blocks.len()),
        ("open, a new file, commit", |c| {
            create(c);
            c.commit_plan().expect("a commit").blocks.len()
        }),
    ];
    println!("{:<28} {:>10} {:>10} {:>8}", "case", "us a call", "calls/s", "reads");
    for (name, case) in cases {
        let mut reads = 0;
        let mut best = f64::MAX;
        for _ in 0..RUNS {
            let start = Instant::now();
            for _ in 0..CALLS {
                let view = MediumView { medium: medium.clone(), start: Sector(0), bytes: BYTES };
                let mut core = Core::open(Disk::of_view(&view)).expect("it opens");
                black_box(case(&mut core));
                reads = core.take_missed().len();
            }
            best = best.min(start.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS));
        }
        println!("{name:<28} {best:>10.1} {:>10.0} {reads:>8}", 1e6 / best);
    }
}
