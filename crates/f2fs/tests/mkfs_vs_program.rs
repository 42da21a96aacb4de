//! Our mkfs against mkfs.f2fs: the same bytes. What the program draws by chance or from its host
//! (identity, time, version of the first checkpoint, text about the kernel) is read from its image
//! and given to ours as options, so nothing is exempt.

use crate::reference;
use crate::tools;
use crate::zones;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use wp_f2fs::disk::{Block, Checkpoint, Geometry, Inode, SuperBlock, ZERO_BLOCK};
use wp_f2fs::mkfs::{DeviceSpec, MkfsOptions, mkfs};
use zerocopy::IntoBytes;

/// The blocks of an image that are not zero, by number. Images are sparse, and dense copies of them
/// would be most of the test.
struct Image {
    blocks: BTreeMap<u32, Block>,
    total: u32,
}

impl Image {
    /// Reads the blocks that are whole within the first `bytes`.
    fn read(path: &Path, bytes: u64) -> Image {
        const PIECE: u64 = 256 << 10;
        let file = File::open(path).expect("an image");
        let mut image = Image { blocks: BTreeMap::new(), total: (bytes / 4096) as u32 };
        let end = bytes / 4096 * 4096;
        let mut piece = vec![0; PIECE as usize];
        let mut at = 0;
        while at < end {
            let piece = &mut piece[..PIECE.min(end - at) as usize];
            file.read_exact_at(piece, at).expect("readable");
            for (block, n) in piece.as_chunks::<4096>().0.iter().zip((at / 4096) as u32..) {
                if *block != ZERO_BLOCK {
                    image.blocks.insert(n, *block);
                }
            }
            at += PIECE;
        }
        image
    }

    fn block(&self, n: u32) -> Block {
        self.blocks.get(&n).copied().unwrap_or(ZERO_BLOCK)
    }

    /// The blocks of another device behind these.
    fn append(&mut self, other: Image) {
        let start = self.total;
        self.blocks.extend(other.blocks.into_iter().map(|(n, b)| (start + n, b)));
        self.total += other.total;
    }
}

fn block(bytes: &[u8], n: u32) -> Block {
    let at = n as usize * 4096;
    bytes[at..at + 4096].try_into().expect("a block")
}

/// Takes from a real image what chance and host gave it.
fn same_chance(block: impl Fn(u32) -> Block, o: &mut MkfsOptions) {
    let sb = SuperBlock::load(&block(0));
    o.uuid = sb.uuid;
    let text = sb.version.split(|b| *b == 0).next().expect("text");
    o.version = String::from_utf8(text.to_vec()).expect("text");
    let cp = Checkpoint::new(&block(sb.cp_blkaddr.get()), 0);
    o.checkpoint_ver = cp.head().checkpoint_ver.get() as u32;
    let g = Geometry::from_super(&sb).expect("a layout");
    let root = g.block(cp.log(wp_f2fs::disk::Log::HotNode).0, 0);
    o.now = Inode::of(&block(root)).mtime.get();
}

/// Compares block by block.
fn compare(case: &str, theirs: &Image, o: &MkfsOptions) {
    let made = mkfs(o).unwrap_or_else(|e| panic!("{case}: {e}"));
    let numbers: BTreeSet<u32> = made.blocks.keys().chain(theirs.blocks.keys()).copied().collect();
    for n in numbers {
        let ours = made.blocks.get(&n).copied().unwrap_or(ZERO_BLOCK);
        let theirs = theirs.block(n);
        let at = (0..4096).find(|i| ours[*i] != theirs[*i]);
        let show = |i: usize| format!("byte {i}: {:#x} for {:#x}", ours[i], theirs[i]);
        assert_eq!(at.map(show), None, "{case}: block {n}");
    }
    let last = made.blocks.keys().max().copied().expect("blocks");
    assert!(last < theirs.total, "{case}: a block that was not compared");
}

#[test]
fn images_are_those_of_the_program_byte_for_byte() {
    if !tools::has_tool("f2fs mkfs", "mkfs.f2fs") {
        return;
    }
    const MIB: u64 = 1 << 20;
    let checks = "extra_attr,inode_checksum,sb_checksum,inode_crtime";
    let all = "extra_attr,inode_checksum,sb_checksum,inode_crtime,flexible_inline_xattr,\
               lost_found,verity,encrypt,compression";
    let cases: [(u64, &[&str]); 14] = [
        (64 * MIB, &[]),
        (128 * MIB, &[]),
        (256 * MIB + 7 * 4096, &[]),
        (1024 * MIB, &["-l", "label"]),
        (1024 * MIB, &["-s", "2"]),
        (1024 * MIB, &["-s", "2", "-z", "3"]),
        (1024 * MIB, &["-z", "4"]),
        (1024 * MIB, &["-i"]),
        (1024 * MIB, &["-o", "7.5"]),
        (256 * MIB, &["-O", checks]),
        (256 * MIB, &["-O", all]),
        (256 * MIB, &["-O", "extra_attr,inode_crtime,lost_found", "-t", "0"]),
        (40 << 30, &["-O", "sb_checksum"]),
        (300 << 30, &["-i", "-O", "extra_attr"]),
    ];
    let folder = tempfile::tempdir().expect("a scratch directory");
    for (bytes, options) in cases {
        let path = folder.path().join("image");
        std::fs::File::create(&path).expect("a file").set_len(bytes).expect("room");
        let run = Command::new("mkfs.f2fs").args(options).args(["-q", "-f"]).arg(&path).output();
        assert!(run.expect("it runs").status.success(), "mkfs.f2fs {options:?}");
        let mut o = MkfsOptions::new(bytes);
        for pair in options.windows(2) {
            match pair {
                ["-s", n] => o.segments_per_section = n.parse().expect("a number"),
                ["-z", n] => o.sections_per_zone = n.parse().expect("a number"),
                ["-l", text] => o.label = (*text).to_owned(),
                ["-o", n] => o.overprovision = Some(n.parse().expect("a number")),
                ["-t", "0"] => o.trimmed = false,
                ["-O", names] => names.split(',').for_each(|name| {
                    o.set_feature(name, true).expect("a feature");
                }),
                _ => {}
            }
        }
        o.large_nat_bitmap = options.contains(&"-i");
        // Of large images, all that is written by either lies in front.
        let theirs = Image::read(&path, bytes.min(1536 * MIB));
        same_chance(|n| theirs.block(n), &mut o);
        compare(&format!("{bytes} bytes {options:?}"), &theirs, &o);
    }
}

#[test]
fn an_image_on_two_devices_is_that_of_the_program() {
    if !tools::has_tool("f2fs mkfs on two devices", "mkfs.f2fs") {
        return;
    }
    let folder = tempfile::tempdir().expect("a scratch directory");
    let paths = ["first", "second"].map(|n| folder.path().join(n));
    let sizes = [128u64 << 20, 256 << 20];
    for (path, bytes) in paths.iter().zip(sizes) {
        std::fs::File::create(path).expect("a file").set_len(bytes).expect("room");
    }
    let [first, second] = &paths;
    let run = Command::new("mkfs.f2fs").args(["-q", "-f", "-c"]).arg(second).arg(first).output();
    assert!(run.expect("it runs").status.success());
    let mut o = MkfsOptions::new(sizes[0]);
    let spec = |(path, bytes): (&std::path::PathBuf, u64)| DeviceSpec {
        path: path.display().to_string(),
        bytes,
    };
    o.devices = paths.iter().zip(sizes).map(spec).collect();
    let mut theirs = Image::read(first, sizes[0]);
    theirs.append(Image::read(second, sizes[1]));
    // Behind the end of a path the program leaves what was in its memory.
    for copy in 0..2 {
        let mut first = theirs.block(copy);
        let mut sb = SuperBlock::load(&first);
        for d in &mut sb.devs {
            let end = d.path.iter().position(|b| *b == 0).unwrap_or(d.path.len());
            d.path[end..].fill(0);
        }
        sb.store(&mut first);
        theirs.blocks.insert(copy, first);
    }
    same_chance(|n| theirs.block(n), &mut o);
    compare("two devices", &theirs, &o);
}

#[test]
fn options_that_cannot_be_are_refused() {
    let small = MkfsOptions::new(8 << 20);
    assert_eq!(mkfs(&small).err(), Some(wp_base::FsError::NoSpace));
    let mut o = MkfsOptions::new(256 << 20);
    assert!(o.set_feature("nonsense", true).is_err());
    o.set_feature("inode_checksum", true).expect("a feature");
    let e = mkfs(&o).err().expect("without extra_attr");
    assert!(e.to_string().contains("extra_attr"), "{e}");
    let mut o = MkfsOptions::new(256 << 20);
    o.segments_per_section = 0;
    assert!(mkfs(&o).is_err());
}

/// There is no zoned device here for the program: what it made for the reference images, as far as
/// it does not change while they are mounted.
#[test]
fn zoned_layouts_are_those_of_the_reference_images() {
    for name in reference::IMAGES.iter().filter(|n| n.starts_with("f2fs-z")) {
        let Some((bytes, manifest)) = reference::reference("f2fs mkfs on zones", name) else {
            return;
        };
        let sb = SuperBlock::load(&block(&bytes, 0));
        let sizes = manifest["images"].as_object().expect("devices").values();
        let sizes: Vec<u64> = sizes.map(|d| d["size"].as_u64().expect("a size")).collect();
        let mut o = MkfsOptions::new(0);
        let path = |n: usize| {
            let text = sb.devs[n].path.split(|b| *b == 0).next().expect("text");
            String::from_utf8(text.to_vec()).expect("text")
        };
        o.devices =
            sizes.iter().zip(0..).map(|(b, n)| DeviceSpec { path: path(n), bytes: *b }).collect();
        o.zones = zones::zones(name);
        o.sector_bytes = 1 << sb.log_sectorsize.get();
        o.features = sb.feature.get();
        same_chance(|n| block(&bytes, n), &mut o);
        let made = mkfs(&o).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut ours = made.plan.super_block;
        // Kernels write their own text at each mount, and why they stopped; the devices have paths.
        (ours.version, ours.init_version, ours.crc) = (sb.version, sb.init_version, sb.crc);
        ours.stop_reason = sb.stop_reason;
        for (own, theirs) in ours.devs.iter_mut().zip(&sb.devs) {
            assert_eq!(own.total_segments, theirs.total_segments, "{name}");
            own.path = theirs.path;
        }
        let differs = ours.as_bytes().iter().zip(sb.as_bytes()).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{name}: first byte that differs");
        let theirs = Checkpoint::new(&block(&bytes, sb.cp_blkaddr.get()), 0);
        let ours = Checkpoint::new(&made.blocks[&sb.cp_blkaddr.get()], 0);
        let kept = |cp: &Checkpoint| {
            let h = *cp.head();
            (h.user_block_count, h.rsvd_segment_count, h.overprov_segment_count)
        };
        assert_eq!(kept(&ours), kept(&theirs), "{name}");
    }
}
