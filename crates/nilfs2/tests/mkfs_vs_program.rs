//! Our mkfs against mkfs.nilfs2: the same bytes. What the program draws by chance or from the clock
//! (identity, seed of checksums, time) is read from its image and given to ours as options, so
//! nothing is exempt.

use crate::tools;
use std::os::unix::fs::FileExt;
use std::process::Command;

use wp_nilfs2::disk::SuperBlock;
use wp_nilfs2::mkfs::{MkfsOptions, mkfs};
use zerocopy::FromBytes;

/// Runs mkfs.nilfs2 on a new file; the file, and whether it was content.
fn real(bytes: u64, options: &[&str]) -> (tempfile::NamedTempFile, bool) {
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    file.as_file().set_len(bytes).expect("room");
    let run = Command::new("mkfs.nilfs2").arg("-q").args(options).arg(file.path()).output();
    let is_made = run.expect("it runs").status.success();
    (file, is_made)
}

fn ours(bytes: u64, options: &[&str]) -> MkfsOptions {
    let mut o = MkfsOptions::new(bytes);
    for pair in options.windows(2) {
        let number = || pair[1].parse().expect("a number");
        match pair[0] {
            "-b" => o.block_bytes = number(),
            "-B" => o.segment_blocks = number(),
            "-m" => o.reserved_percent = number(),
            "-L" => o.label = pair[1].to_owned(),
            "-O" => o.block_count = true,
            _ => {}
        }
    }
    o
}

#[test]
fn images_are_those_of_the_program_byte_for_byte() {
    if !tools::has_tool("nilfs2 mkfs", "mkfs.nilfs2") {
        return;
    }
    const MIB: u64 = 1 << 20;
    let cases: [(u64, &[&str]); 10] = [
        (256 * MIB, &[]),
        (134_221_824, &[]),
        (256 * MIB, &["-b", "1024"]),
        (256 * MIB + 3 * 1024, &["-b", "1024", "-B", "128"]),
        (100 * MIB, &["-b", "2048", "-B", "512"]),
        (128 * MIB, &["-B", "256", "-m", "12", "-O", "block_count", "-L", "label"]),
        (MIB + 4096, &["-B", "16"]),
        (64 * MIB, &["-B", "128", "-m", "50"]),
        (8 << 30, &["-B", "16"]),
        (300 << 30, &[]),
    ];
    for (bytes, options) in cases {
        let (file, is_made) = real(bytes, options);
        assert!(is_made, "mkfs.nilfs2 {options:?}");
        let mut o = ours(bytes, options);
        let mut sb = [0; SuperBlock::SPACE];
        file.as_file().read_exact_at(&mut sb, SuperBlock::AT).expect("a super block");
        let sb = SuperBlock::read_from_bytes(&sb).expect("the size is right");
        (o.uuid, o.crc_seed, o.now) = (sb.uuid, sb.crc_seed.get(), sb.ctime.get());
        let made = mkfs(&o).unwrap_or_else(|e| panic!("{bytes} bytes {options:?}: {e}"));
        // All that either writes lies at the two ends.
        let ends = [0..bytes.min(4 * MIB), bytes - bytes.min(4 * MIB)..bytes];
        for range in ends {
            let mut theirs = vec![0; (range.end - range.start) as usize];
            file.as_file().read_exact_at(&mut theirs, range.start).expect("an end");
            let mut own = vec![0; theirs.len()];
            for (at, piece) in &made.pieces {
                if range.contains(at) {
                    let at = (at - range.start) as usize;
                    own[at..at + piece.len()].copy_from_slice(piece);
                }
            }
            let differs = (0..own.len()).find(|i| own[*i] != theirs[*i]);
            let show = |i: usize| format!("byte {:#x}", range.start + i as u64);
            assert_eq!(differs.map(show), None, "{bytes} bytes {options:?}");
        }
    }
}

#[test]
fn what_the_program_refuses_is_refused() {
    if !tools::has_tool("nilfs2 mkfs refuses", "mkfs.nilfs2") {
        return;
    }
    const MIB: u64 = 1 << 20;
    let cases: [(u64, &[&str]); 10] = [
        (64 * MIB, &[]),
        (1_100_000, &["-B", "16", "-m", "90"]),
        (1_511_423, &["-B", "16", "-m", "90"]),
        (1_511_424, &["-B", "16", "-m", "90"]),
        (64 * MIB, &["-B", "8"]),
        (64 * MIB, &["-B", "24"]),
        (64 * MIB, &["-b", "512"]),
        (64 * MIB, &["-b", "8192"]),
        (64 * MIB, &["-B", "16", "-m", "0"]),
        (64 * MIB, &["-B", "16", "-m", "100"]),
    ];
    for (bytes, options) in cases {
        let (_, is_made) = real(bytes, options);
        assert_eq!(mkfs(&ours(bytes, options)).is_ok(), is_made, "{bytes} bytes {options:?}");
    }
}
