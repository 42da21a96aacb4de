//! Random histories: how a file system is made, mounted and used, as the text that `op.c` plays.

use crate::torture::rng::Rng;

/// How an image ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// After an unmount.
    Unmounted,
    /// A copy made while it is mounted, as a power failure leaves it.
    Cut,
}

/// All that makes one image.
pub struct History {
    /// Bytes of the device.
    pub bytes: u64,
    /// The program that makes the file system, and its arguments.
    pub mkfs: Vec<String>,
    /// Mount options, joined by commas.
    pub mount: String,
    /// Calls of `op.c`, one a line.
    pub calls: String,
    /// A command of the host after the unmount, with `IMAGE` for the image.
    pub after: Option<String>,
    /// How it ends.
    pub end: End,
}

const MIB: u64 = 1 << 20;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// A path of the pool: few enough names that calls meet.
fn path(rng: &mut Rng) -> String {
    let n = rng.below(24);
    match rng.below(4) {
        0 => format!("f{n}"),
        _ => format!("{}/f{n}", dir(rng)),
    }
}

fn dir(rng: &mut Rng) -> String {
    match rng.once_in(4) {
        true => format!("d{}/e{}", rng.below(4), rng.below(3)),
        false => format!("d{}", rng.below(4)),
    }
}

/// Lengths at which layouts change: inline, a block, a few, many.
fn length(rng: &mut Rng) -> usize {
    match rng.below(8) {
        0 => 0,
        1 => rng.below(160),
        2 => rng.below(4096),
        3 => 4096 * rng.below(9),
        4 | 5 => rng.below(70_000),
        6 => rng.below(400_000),
        _ => rng.below(1_500_000),
    }
}

/// Names of the file systems that have histories.
pub const FILE_SYSTEMS: [&str; 4] = ["btrfs", "ext4", "f2fs", "nilfs2"];

/// A history of `fs`; `modules`: the guest has modules (quota, compression). Errors: a
/// file system without histories.
pub fn random(fs: &str, rng: &mut Rng, modules: bool) -> Result<History, String> {
    let mut h = match fs {
        "btrfs" => btrfs(rng),
        "ext4" => ext4(rng, modules),
        "f2fs" => f2fs(rng, modules),
        "nilfs2" => nilfs2(rng),
        _ => return Err(format!("no histories of {fs} (of: {})", FILE_SYSTEMS.join(", "))),
    };
    let n = 60 + rng.below(340);
    let mut lines: Vec<String> = (0..4).map(|d| format!("mkdir d{d}")).collect();
    lines.extend((0..12).map(|n| format!("mkdir d{}/e{}", n % 4, n % 3)));
    lines.extend(Some(std::mem::take(&mut h.calls)).filter(|calls| !calls.is_empty()));
    lines.extend((0..n).map(|_| match rng.below(10) {
        0 | 1 => own(fs, rng),
        _ => common(rng, fs),
    }));
    if h.end == End::Cut {
        lines.extend(last_calls(fs, rng));
    }
    h.calls = lines.join("\n") + "\n";
    Ok(h)
}

/// A call that every file system has.
fn common(rng: &mut Rng, fs: &str) -> String {
    let (a, seed, kind) = (path(rng), rng.below(1000), rng.below(3));
    let len = length(rng);
    match rng.below(26) {
        0..=4 => format!("write {a} {} {len} {seed} {kind}", length(rng)),
        5 | 6 => format!("append {a} {} {seed} {kind}", len.min(20_000)),
        7 => format!("truncate {a} {len}"),
        8 => {
            // Keep the size; punch a hole; zero a range; collapse; insert; allocate.
            let mode = rng.pick(&[1, 3, 16, 8, 32, 0]);
            format!("fallocate {a} {mode} {} {}", 4096 * rng.below(40), 4096 * (1 + rng.below(40)))
        }
        9 => format!("mkdir {}/s{}", dir(rng), rng.below(6)),
        10 => format!("rmdir {}/s{}", dir(rng), rng.below(6)),
        11 | 12 => format!("unlink {a}"),
        13 | 14 => format!("rename {a} {}", path(rng)),
        15 => format!("link {a} {}/l{}", dir(rng), rng.below(9)),
        16 => format!("symlink {} {}/y{}", "t".repeat(1 + rng.below(200)), dir(rng), rng.below(9)),
        17 => format!(
            "node {}/n{} {} {}",
            dir(rng),
            rng.below(9),
            rng.pick(&["c", "b", "p", "s"]),
            rng.below(1 << 18)
        ),
        18 if fs != "nilfs2" => {
            let most = if fs == "f2fs" { 3000 } else { 3500 };
            format!("setxattr {a} user.n{} {} {seed}", rng.below(5), rng.below(most))
        }
        19 if fs != "nilfs2" => format!("removexattr {a} user.n{}", rng.below(5)),
        20 => format!("fsync {a}"),
        21 => match rng.once_in(3) {
            true => "sync".to_owned(),
            false => format!("fdatasync {a}"),
        },
        22 => format!("chmod {a} 0{:o}", rng.below(0o10000)),
        23 => format!("chown {a} {} {}", rng.below(70_000), rng.below(2000)),
        24 => format!("mapped {a} {} {seed}", 1 + len.min(200_000)),
        _ => match rng.below(6) {
            0 => format!(
                "many {}/m{} {} {} {seed}",
                dir(rng),
                rng.below(4),
                1 + rng.below(150),
                rng.below(3000)
            ),
            1 => format!("!rm -rf {}/m{}", dir(rng), rng.below(4)),
            _ => format!("write {a} 0 {} {seed} {kind}", rng.below(3000)),
        },
    }
}

/// A call that only this file system has.
fn own(fs: &str, rng: &mut Rng) -> String {
    match fs {
        "btrfs" => btrfs_call(rng),
        "ext4" => match rng.below(8) {
            0 => format!("flags {} {} 0", path(rng), rng.pick(&["0x10", "0x20", "0x8", "0x80"])),
            1 => format!("flags {} 0 0xb8", path(rng)),
            2 => format!("project {} {}", dir(rng), rng.below(5)),
            3 => format!("flags {} 0x40000000 0", dir(rng)),
            // Extents or block maps: the other one.
            4 => format!("flags {} 0x80000 0", path(rng)),
            5 => format!("setxattr {} user.big {} 7", path(rng), 4000 + rng.below(40_000)),
            6 => format!("flags {} 0x4000 0", path(rng)),
            _ => format!("tmpfile {} {} 5", dir(rng), rng.below(50_000)),
        },
        "f2fs" => match rng.below(6) {
            0 => format!("flags {} 0x4 0", dir(rng)),
            1 => format!("flags {} 0x400 0", dir(rng)),
            2 => format!("project {} {}", dir(rng), rng.below(5)),
            3 => format!("tmpfile {} {} 5", dir(rng), rng.below(50_000)),
            4 => "!f2fs_io gc_range 0 0 0 . >/dev/null 2>&1".to_owned(),
            _ => format!("write {} {} 5000 3 0", path(rng), 4096 * rng.below(20_000)),
        },
        _ => match rng.below(6) {
            0 => "!mkcp $D".to_owned(),
            1 => "!mkcp -s $D".to_owned(),
            2 => format!("!chcp cp $D {}", 1 + rng.below(12)),
            3 => format!("!chcp ss $D {}", 1 + rng.below(12)),
            4 => format!("tmpfile {} {} 5", dir(rng), rng.below(50_000)),
            _ => "sync".to_owned(),
        },
    }
}

fn btrfs_call(rng: &mut Rng) -> String {
    let (a, b) = (rng.below(5), rng.below(5));
    match rng.below(24) {
        0 | 1 => format!("!btrfs subvolume create v{a}"),
        2 | 3 => format!("!btrfs subvolume snapshot . d{}/w{a}", rng.below(4)),
        4 => format!("!btrfs subvolume snapshot -r v{a} r{b}"),
        5 => format!("!btrfs subvolume snapshot v{a} v{b}/x"),
        6 => format!("!btrfs subvolume delete v{a}/x d{b}/w{a}"),
        7 => format!("!btrfs subvolume delete v{a} r{b}"),
        8 => format!("many v{a}/m{b} {} {} {a}", 20 + rng.below(200), rng.below(5000)),
        9..=12 => {
            let (from, len) = (4096 * rng.below(20), 4096 * rng.below(30));
            format!("clone {} {} {from} {len} {}", path(rng), path(rng), 4096 * rng.below(20))
        }
        13 => format!("!btrfs balance start -dusage={} .", 20 + rng.below(80)),
        14 => {
            format!("!btrfs balance start {} .", rng.pick(&["-m", "-d", "--full-balance", "-s -f"]))
        }
        15 => format!("!btrfs quota {} .", rng.pick(&["enable", "enable", "disable", "rescan -w"])),
        16 => format!("!btrfs qgroup {} 1/{a} .", rng.pick(&["create", "create", "destroy"])),
        17 => format!("!btrfs qgroup limit {}M v{a}", 1 + rng.below(40)),
        18 => format!("!btrfs filesystem resize {} .", rng.pick(&["-24M", "+16M", "max", "-8M"])),
        19 => format!(
            "!btrfs filesystem defragment {} -f {}",
            rng.pick(&["", "-czlib", "-czstd", "-clzo", "-r"]),
            path(rng)
        ),
        20 => format!(
            "!btrfs property set {} compression {}",
            path(rng),
            rng.pick(&["zlib", "lzo", "zstd", "none", "\"\""])
        ),
        21 => format!("flags {} {} 0", path(rng), rng.pick(&["0x800000", "0x4", "0x400", "0x10"])),
        22 => format!("tmpfile {} {} 5", dir(rng), rng.below(90_000)),
        _ => "!btrfs filesystem sync .".to_owned(),
    }
}

/// What is done just before a copy of the mounted image is made: orphans, logs, half-done work.
fn last_calls(fs: &str, rng: &mut Rng) -> Vec<String> {
    let mut out = Vec::new();
    let rounds = 1 + rng.below(3);
    for n in 0..rounds {
        match rng.below(4) {
            0 | 1 => {
                out.push(format!("write orphan{n} 0 {} 7 0", length(rng)));
                out.push(format!("hold orphan{n}"));
                out.push(format!("tmpfile . {} 9", rng.below(60_000)));
                out.push(format!("holddir {}/gone{n}", dir(rng)));
                out.push(format!("node device{n} c 259"));
                out.push(format!("hold device{n}"));
                out.push("sync".to_owned());
            }
            2 if fs == "btrfs" => {
                out.push("!btrfs subvolume snapshot . dropped".to_owned());
                out.push("many dropped/z 300 1500 3".to_owned());
                out.push("!btrfs filesystem sync .".to_owned());
                out.push("!btrfs subvolume delete dropped".to_owned());
                out.push("!btrfs filesystem sync .".to_owned());
                out.push(format!("sleep {}", rng.below(30)));
                if rng.once_in(2) {
                    out.push("!mount -i -o remount,ro $D /mnt/a".to_owned());
                }
            }
            _ => {
                out.push("sync".to_owned());
                for _ in 0..1 + rng.below(12) {
                    out.push(common(rng, fs));
                    out.push(format!("fsync {}", path(rng)));
                }
            }
        }
    }
    out
}

fn end(rng: &mut Rng) -> End {
    if rng.once_in(2) { End::Cut } else { End::Unmounted }
}

fn btrfs(rng: &mut Rng) -> History {
    let mixed = rng.once_in(6);
    let mut args = vec!["mkfs.btrfs", "-q", "-f"];
    let node = *rng.pick(&["4096", "16384", "16384", "16384", "65536"]);
    match mixed {
        true => args.extend(["--mixed", "-n", "4096"]),
        false => args.extend(["-n", node, "-m", *rng.pick(&["dup", "dup", "single"])]),
    }
    args.extend(["--csum", *rng.pick(&["crc32c", "crc32c", "crc32c", "xxhash"])]);
    let mut off = Vec::new();
    for feature in ["^no-holes", "^skinny-metadata", "^extref"] {
        if rng.once_in(4) {
            off.push(feature);
        }
    }
    let features = off.join(",");
    if !off.is_empty() {
        args.extend(["-O", &features]);
    }
    let v1 = rng.once_in(3);
    match v1 {
        true => args.extend(["-R", "^free-space-tree"]),
        false if rng.once_in(4) => args.extend(["-R", "quota"]),
        false => {}
    }
    // The first space cache is for block groups of 100 MiB and more.
    let bytes = match (mixed, v1) {
        (true, _) => 64 * MIB,
        (_, true) => *rng.pick(&[160 * MIB, 1600 * MIB]),
        _ => *rng.pick(&[128 * MIB, 200 * MIB]),
    };
    let mut mount = vec![];
    mount.extend(match v1 {
        true => Some(*rng.pick(&[
            "space_cache=v1",
            "space_cache=v1",
            "space_cache=v2",
            "nospace_cache",
        ])),
        false => None,
    });
    if rng.once_in(3) {
        mount.push(*rng.pick(&[
            "compress=zlib",
            "compress=lzo",
            "compress-force=zstd",
            "compress-force=lzo",
        ]));
    }
    if rng.once_in(6) {
        mount.push(*rng.pick(&[
            "nodatacow",
            "nodatasum",
            "autodefrag",
            "max_inline=0",
            "flushoncommit",
        ]));
    }
    History {
        bytes,
        mkfs: args.into_iter().map(str::to_owned).collect(),
        mount: mount.join(","),
        calls: String::new(),
        after: None,
        end: end(rng),
    }
}

/// Features of ext4 by what distributions and time have made of `mke2fs.conf`.
const EXT4: [&str; 18] = [
    "",
    "-O ^metadata_csum,^64bit",
    "-O ^64bit,^orphan_file",
    "-O orphan_file",
    "-O fast_commit",
    "-O ^has_journal",
    "-O ^extents,^64bit,^flex_bg,^metadata_csum",
    "-t ext3",
    "-t ext2 -b 1024",
    "-t ext2 -r 0 -b 1024 -O none",
    "-O uninit_bg,^metadata_csum,^64bit -I 128",
    "-O ^resize_inode,meta_bg",
    "-O bigalloc -C 16384",
    "-O inline_data",
    "-O ea_inode",
    "-O mmp -E mmp_update_interval=1",
    "-O metadata_csum_seed,large_dir,^dir_index",
    "-O encrypt,verity,sparse_super2",
];
const EXT4_MODULES: [&str; 3] = [
    "-O quota",
    "-O quota,project -E quotatype=usrquota:grpquota:prjquota",
    "-O quota,orphan_file,fast_commit",
];

fn ext4(rng: &mut Rng, modules: bool) -> History {
    let what = match modules && rng.once_in(2) {
        true => *rng.pick(&EXT4_MODULES),
        false => *rng.pick(&EXT4),
    };
    let mut args = words("mke2fs -q -F");
    if !what.contains("-t ") {
        args.extend(words("-t ext4"));
    }
    args.extend(words(what));
    if !what.contains("-b ") && rng.once_in(3) {
        args.extend(words(rng.pick::<&str>(&["-b 1024", "-b 2048", "-b 4096"])));
    }
    if rng.once_in(4) {
        args.extend(words("-E lazy_itable_init=1"));
    }
    if rng.once_in(4) && !what.contains("-t ext2") && !what.contains("^has_journal") {
        args.extend(words("-J size=4"));
    }
    let bytes = 32 * MIB + rng.below(64) as u64 * MIB;
    args.push("IMAGE".to_owned());
    // Smaller than its device, to grow.
    let grows = rng.once_in(4);
    if grows {
        args.push("24M".to_owned());
    }
    let mut mount = vec![];
    if rng.once_in(3) {
        mount.push(*rng.pick(&[
            "nodelalloc",
            "commit=1",
            "noload",
            "dioread_lock",
            "block_validity",
        ]));
        let has_journal = !what.contains("ext2") && !what.contains("^has_journal");
        mount.retain(|m| *m != "noload" && (has_journal || *m != "commit=1"));
    }
    if rng.once_in(5) && !what.contains("ext2") && !what.contains("^has_journal") {
        mount.push(*rng.pick(&["data=journal", "data=writeback"]));
    }
    let calls = match grows {
        true => "!resize2fs $D >/dev/null 2>&1".to_owned(),
        false => String::new(),
    };
    let end = end(rng);
    let after = (end == End::Unmounted && rng.once_in(4)).then(|| {
        let size = *rng.pick(&["-M", "", ""]);
        format!("e2fsck -fp IMAGE >/dev/null 2>&1; resize2fs -f {size} IMAGE >/dev/null 2>&1")
    });
    History { bytes, mkfs: args, mount: mount.join(","), calls, after, end }
}

/// Features of F2FS: those of phones, of distributions, none.
const F2FS: [&str; 9] = [
    "",
    "-O extra_attr",
    "-O extra_attr,inode_checksum",
    "-O extra_attr,inode_checksum,sb_checksum",
    "-O extra_attr,project_quota,inode_crtime",
    "-O extra_attr,flexible_inline_xattr",
    "-O lost_found",
    "-O encrypt,verity",
    "-g android",
];
const F2FS_MODULES: [&str; 3] = [
    "-O extra_attr,compression",
    "-O extra_attr,compression,inode_checksum,sb_checksum",
    "-O quota,extra_attr,project_quota",
];

fn f2fs(rng: &mut Rng, modules: bool) -> History {
    let what = match modules && rng.once_in(2) {
        true => *rng.pick(&F2FS_MODULES),
        false => *rng.pick(&F2FS),
    };
    let mut args = words("mkfs.f2fs -q -f");
    args.extend(words(what));
    let mut bytes = *rng.pick(&[64 * MIB, 100 * MIB, 160 * MIB]);
    if rng.once_in(4) {
        args.extend(words(rng.pick::<&str>(&["-s 2", "-s 4", "-a 0", "-o 10", "-e cold -E hot"])));
        bytes = 400 * MIB;
    }
    let mut mount = vec![];
    if rng.once_in(2) {
        mount.push(*rng.pick(&[
            "noinline_data",
            "noinline_dentry",
            "inline_xattr_size=20",
            "mode=lfs",
            "fsync_mode=strict",
            "checkpoint=disable:80%",
            "noextent_cache",
            "active_logs=2",
            "active_logs=4",
        ]));
    }
    if what.contains("compression") {
        let compress =
            ["compress_algorithm=lz4", "compress_algorithm=zstd", "compress_algorithm=lzo"];
        mount.push(*rng.pick(&compress));
    }
    if mount.iter().any(|m| m.starts_with("inline_xattr_size")) && !what.contains("flexible") {
        mount.retain(|m| !m.starts_with("inline_xattr_size"));
    }
    History {
        bytes,
        mkfs: args,
        mount: mount.join(","),
        calls: String::new(),
        after: None,
        end: end(rng),
    }
}

fn nilfs2(rng: &mut Rng) -> History {
    let mut args = words("mkfs.nilfs2 -q -f");
    args.extend(words(rng.pick::<&str>(&["", "-b 1024", "-b 2048", "-b 4096"])));
    args.extend(words(rng.pick::<&str>(&["-B 32", "-B 128", "-B 256", "-B 512", "-B 64 -m 10"])));
    let mut mount = vec![];
    if rng.once_in(3) {
        mount.push(*rng.pick(&["order=strict", "nobarrier", "errors=continue"]));
    }
    let calls = match rng.once_in(2) {
        true => "!nilfs_cleanerd -n -c /share/cleanerd.conf $D /mnt/a & sleep 0.1".to_owned(),
        false => String::new(),
    };
    History {
        bytes: *rng.pick(&[64 * MIB, 128 * MIB]),
        mkfs: args,
        mount: mount.join(","),
        calls,
        after: None,
        end: end(rng),
    }
}
