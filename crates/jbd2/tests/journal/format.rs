//! The log as other programs read it: debugfs lists it, e2fsck replays it.

use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

use wp_base::{BlockSize, FsError, Sector};
use wp_jbd2::{Credits, JournalOptions, LogMap, RecoverPolicy, disk, recover};
use wp_medium::{Medium, MediumView, Overlay, Slice, View};

use crate::world::{Config, DEVICE_BYTES, World, world_on};

/// Is the program there? Says so if not.
fn has(program: &str) -> bool {
    let found = ["/sbin", "/usr/sbin", "/bin", "/usr/bin"]
        .iter()
        .any(|d| PathBuf::from(d).join(program).exists());
    if !found {
        crate::skip::skipped("jbd2's log beside e2fsprogs", &format!("{program} is not installed"));
    }
    found
}

fn command(program: &str) -> Command {
    let mut c = Command::new(program);
    c.env("PATH", "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin");
    c
}

/// A new ext4 image with the given features, and where its journal is.
fn mkfs(name: &str, bs: u32, features: &str) -> (PathBuf, Medium, LogMap) {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("jbd2-format");
    std::fs::create_dir_all(&dir).expect("a folder");
    let path = dir.join(format!("{name}.img"));
    let _ = std::fs::remove_file(&path);
    let file = std::fs::File::create(&path).expect("an image");
    file.set_len(DEVICE_BYTES).expect("a length");
    let status = command("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", &bs.to_string(), "-O", features, "-J", "size=4"])
        .args(["-E", "lazy_itable_init=0,lazy_journal_init=0"])
        .arg(&path)
        .status()
        .expect("mke2fs runs");
    assert!(status.success());
    let bytes = std::fs::read(&path).expect("reads");
    let out =
        command("debugfs").args(["-R", "blocks <8>"]).arg(&path).output().expect("debugfs runs");
    let text = String::from_utf8(out.stdout).expect("text");
    let blocks: Vec<u64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    let mut runs: Vec<(u32, u64, u32)> = Vec::new();
    for (i, b) in blocks.iter().enumerate() {
        match runs.last_mut() {
            Some((_, at, n)) if *at + u64::from(*n) == *b => *n += 1,
            _ => runs.push((i as u32, *b, 1)),
        }
    }
    let mut medium = Medium::new();
    medium.write_bytes(0, &bytes);
    (path, medium, LogMap { blocks: runs })
}

fn save(w: &World, path: &PathBuf) {
    let mut bytes = vec![0; DEVICE_BYTES as usize];
    w.all().read_bytes(0, &mut bytes);
    std::fs::write(path, bytes).expect("writes");
}

/// The image after e2fsck has replayed its log, and what it said.
fn replayed_by_e2fsck(path: &PathBuf) -> (Vec<u8>, String) {
    // A set NEEDS_RECOVERY bit is what makes e2fsck look at the log; ext4 sets it at mount.
    let status = command("debugfs").args(["-w", "-R", "feature needs_recovery"]).arg(path).status();
    assert!(status.expect("debugfs runs").success());
    let out = command("e2fsck")
        .args(["-y", "-E", "journal_only"])
        .arg(path)
        .output()
        .expect("e2fsck runs");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(matches!(out.status.code(), Some(0 | 1)), "{said}");
    (std::fs::read(path).expect("reads"), said)
}

/// Journals some free blocks of the image; two transactions, one with a revoke. Then looks at it
/// from outside.
fn listed_and_replayed(name: &str, bs: u32, features: &str) {
    if !has("mke2fs") || !has("debugfs") || !has("e2fsck") {
        return;
    }
    let (path, medium, log) = mkfs(name, bs, features);
    let options = JournalOptions::default();
    let block_size = BlockSize::new(bs).expect("a block size");
    let w = world_on(&Config { options, block: bs, ..Config::default() }, medium, log, block_size);
    let (j, bdev) = (w.journal.clone(), w.bdev.clone());
    // Far behind everything that mke2fs used.
    let base = DEVICE_BYTES / u64::from(bs) - 900;
    let n = u64::from(bs / 16 + 40).min(250);
    w.run(async move {
        let h = j.start(n as u32).await.expect("starts");
        for i in 0..n {
            let b = bdev.get(base + i);
            h.get_create_access(&b).await.expect("access");
            crate::world::fill(&b, 3 * (1 + i % 2));
            h.dirty_metadata(&b).expect("dirty");
        }
        h.stop().await.expect("stops");
        j.force_commit().await.expect("commits");
        let h = j.start_with(Credits { blocks: 2, revokes: 2, reserve: 0 }).await.expect("starts");
        let b = bdev.get(base);
        h.revoke(base, Some(&b)).await.expect("revokes");
        h.revoke(base + 500, None).await.expect("revokes");
        let b = bdev.get(base + 1);
        h.get_write_access(&b).await.expect("access");
        b.set_contents(Slice::pattern(9, 0, bs));
        h.dirty_metadata(&b).expect("dirty");
        h.stop().await.expect("stops");
        j.force_commit().await.expect("commits");
    });
    save(&w, &path);
    let first = w.journal.commit_sequence() - 1;
    let out =
        command("debugfs").args(["-R", "logdump -a"]).arg(&path).output().expect("debugfs runs");
    let text = String::from_utf8(out.stdout).expect("text");
    let count = |what: &str| text.lines().filter(|l| l.contains(what)).count();
    assert_eq!(count("logged at journal block") as u64, n + 1, "{text}");
    assert_eq!(count("type 2 (commit block)"), 2, "{text}");
    assert_eq!(count("type 5 (revoke table)"), 1, "{text}");
    assert_eq!(count("Revoke FS block"), 2, "{text}");
    assert!(text.contains(&format!("FS block {} logged at", base + 1)), "{text}");
    assert!(text.contains(&format!("Found expected sequence {first}, type 1")), "{text}");

    // e2fsck's replay and ours agree on every block.
    let view = w.view(w.all());
    let overlay = Overlay::new(&view);
    let report = recover(&overlay, &w.log, w.bs, &RecoverPolicy::e2fsck()).expect("recovers");
    assert_eq!((report.transactions(), report.revoke_records, report.blocks_revoked), (2, 2, 1));
    let (after, said) = replayed_by_e2fsck(&path);
    let n = bs as usize;
    let mut ours = vec![0; n];
    for block in base..base + 600 {
        wp_medium::View::read_at(&overlay, block * u64::from(bs), &mut ours).expect("reads");
        let at = block as usize * n;
        assert!(after[at..at + n] == ours, "block {block} differs from e2fsck's: {said}");
    }
    let super_at = w.log.block(0).expect("mapped") as usize * n;
    wp_medium::View::read_at(&overlay, super_at as u64, &mut ours[..1024]).expect("reads");
    let theirs = &after[super_at..super_at + 1024];
    assert_eq!(theirs[..0x58], ours[..0x58], "the superblock too, up to s_head");
    w.cut();
}

/// Adds a transaction of several descriptors, which goes round the end of the log, as a recovery
/// does. Before its record is there it is nothing for e2fsck, from then on all of it.
fn added_and_replayed(name: &str, bs: u32, features: &str, csum: Option<(u32, u32)>) {
    if !has("mke2fs") || !has("debugfs") || !has("e2fsck") {
        return;
    }
    let (path, mut medium, log) = mkfs(name, bs, features);
    let (block_size, n) = (BlockSize::new(bs).expect("a block size"), u64::from(bs));
    let super_at = log.block(0).expect("mapped") * n;
    if let Some((compat, incompat)) = csum {
        // `s_feature_compat`, `s_feature_incompat`, `s_checksum_type`: mke2fs has no option for it.
        medium.write_bytes(super_at + 0x24, &compat.to_be_bytes());
        medium.write_bytes(super_at + 0x28, &incompat.to_be_bytes());
    }
    let view = MediumView { medium, start: Sector(0), bytes: DEVICE_BYTES };
    let below = Overlay::new(&view);
    if csum.is_some_and(|(_, incompat)| incompat != 0) {
        let mut sb = recover::read_super(&below, &log, block_size).expect("a superblock");
        sb.checksum_type = disk::CHECKSUM_TYPE_CRC32C;
        sb.checksum = sb.checksum_now().into();
        below.write_at(super_at, zerocopy::IntoBytes::as_bytes(&sb)).expect("inside");
    }
    let base = DEVICE_BYTES / n - 900;
    let block = |i: u64| {
        let mut bytes = vec![(i % 250) as u8 + 1; bs as usize];
        if i.is_multiple_of(3) {
            bytes[..4].copy_from_slice(&disk::MAGIC.to_be_bytes());
        }
        (base + i, bytes)
    };
    let blocks: Vec<(u64, Vec<u8>)> = (0..n / 8 + 40).map(block).collect();
    let added =
        recover::Addition { at: log.len() - 3, tid: 77, secs: 1_400_000_000, blocks: &blocks };
    let over = Overlay::new(&below);
    let head = added.commit(&over, &log, block_size).expect("there is room");
    let stages = over.stages();
    assert_eq!(stages.len(), 4, "superblock, blocks, record, home");
    let length = (head + log.len() - 1 - added.at) as usize;
    assert!(length > blocks.len() + 2, "{length} log blocks: no second descriptor");
    for done in [2, 3] {
        let cut = Overlay::new(&below);
        for (page, bytes) in stages[..done].iter().flatten() {
            cut.write_at(page * 4096, bytes.bytes()).expect("inside");
        }
        let mut image = vec![0; DEVICE_BYTES as usize];
        cut.read_at(0, &mut image).expect("reads");
        std::fs::write(&path, image).expect("writes");
        let (after, said) = replayed_by_e2fsck(&path);
        let report =
            wp_jbd2::recover(&cut, &log, block_size, &RecoverPolicy::e2fsck()).expect("recovers");
        assert_eq!(report.transactions(), u32::from(done == 3), "{name}: {said}");
        let mut ours = vec![0; bs as usize];
        for (home, bytes) in &blocks {
            let at = (home * n) as usize;
            let theirs = &after[at..at + bs as usize];
            let is_there = theirs == bytes;
            assert_eq!(is_there, done == 3, "{name}: block {home} after stage {done}: {said}");
            cut.read_at(home * n, &mut ours).expect("reads");
            assert!(ours == theirs, "{name}: block {home} after stage {done}");
        }
    }
    // One more than the log takes is refused before the first write.
    let many: Vec<(u64, Vec<u8>)> =
        (0..u64::from(log.len())).map(|i| (base + i % 800, vec![1; bs as usize])).collect();
    let full = Overlay::new(&below);
    let refused = recover::Addition { blocks: &many, ..added }.commit(&full, &log, block_size);
    assert!(matches!(refused, Err(FsError::NoSpace)) && full.is_empty(), "{refused:?}");
}

#[test]
fn a_transaction_that_a_recovery_adds_is_replayed_by_e2fsck() {
    added_and_replayed("add-v3-64", 4096, "64bit,metadata_csum", None);
    added_and_replayed("add-v3-1k", 1024, "64bit,metadata_csum", None);
    added_and_replayed("add-plain", 1024, "^64bit,^metadata_csum", None);
    added_and_replayed("add-64", 1024, "64bit,^metadata_csum", Some((0, disk::INCOMPAT_64BIT)));
    added_and_replayed("add-v1", 1024, "^64bit,^metadata_csum", Some((disk::COMPAT_CHECKSUM, 0)));
    let v2 = disk::INCOMPAT_CSUM_V2;
    added_and_replayed("add-v2", 1024, "^64bit,metadata_csum", Some((0, v2)));
}

#[test]
fn log_with_checksum_v3_and_64bit_is_read_by_debugfs_and_e2fsck() {
    listed_and_replayed("v3-64", 4096, "64bit,metadata_csum");
}

#[test]
fn log_of_1k_blocks_is_read_by_debugfs_and_e2fsck() {
    listed_and_replayed("v3-1k", 1024, "64bit,metadata_csum");
}

#[test]
fn log_without_checksums_is_read_by_debugfs_and_e2fsck() {
    listed_and_replayed("plain", 1024, "^64bit,^metadata_csum");
    listed_and_replayed("plain-4k", 4096, "^64bit,^metadata_csum");
}

#[test]
fn flipped_bytes_in_our_own_log_never_panic() {
    // As tests/recover does with real images, but without needing them.
    let c = Config { incompat: disk::INCOMPAT_CSUM_V3, ..Config::default() };
    for incompat in [0, c.incompat] {
        let w = crate::world::world(&Config { incompat, ..Config::default() });
        let (j, bdev) = (w.journal.clone(), w.bdev.clone());
        w.run(async move {
            for id in 1..9u64 {
                let blocks: Vec<u64> = (10..10 + 3 * id).collect();
                let history = crate::world::History::default();
                crate::world::set_blocks(&j, &bdev, &history, id, &blocks).await.expect("a handle");
                let h = j
                    .start_with(Credits { blocks: 0, revokes: 1, reserve: 0 })
                    .await
                    .expect("starts");
                h.revoke(3000 + id, None).await.expect("revokes");
                h.stop().await.expect("stops");
                j.force_commit().await.expect("commits");
            }
        });
        let base = Rc::new(w.durable());
        let mut rng = wp_base::Rng::stream(3, "flips");
        let mut refused = 0;
        for _ in 0..3000 {
            let mut medium = (*base).clone();
            for _ in 0..1 + rng.below(3) {
                let block = crate::world::LOG_AT + rng.below(130);
                let off = if rng.below(2) == 0 { rng.below(64) } else { rng.below(1024) };
                let mut byte = [0u8];
                medium.read_bytes(block * 1024 + off, &mut byte);
                byte[0] ^= 1 << rng.below(8);
                medium.write_bytes(block * 1024 + off, &byte);
            }
            for policy in
                [RecoverPolicy::linux(3, 4), RecoverPolicy::linux(6, 18), RecoverPolicy::e2fsck()]
            {
                let view = w.view(medium.clone());
                refused += u32::from(recover(&Overlay::new(&view), &w.log, w.bs, &policy).is_err());
            }
        }
        assert!(refused > 0);
        w.cut();
    }
}
