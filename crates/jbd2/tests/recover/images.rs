//! Recovery of logs that real kernels left behind, compared with what e2fsck's replay and the
//! kernel made of them.

use std::collections::BTreeMap;

use crate::image::{Image, journal_of, reference, unpack};
use sha2::{Digest, Sha256};
use wp_jbd2::{BadCommit, RecoverPolicy, RecoveryReport, ScanEnd, disk, recover};
use wp_medium::{Overlay, View};

struct Case {
    name: &'static str,
    image: Image,
    manifest: serde_json::Value,
    dir: std::path::PathBuf,
}

fn load(name: &'static str) -> Case {
    let dir = reference().join(name);
    let text = std::fs::read_to_string(dir.join("manifest.json")).expect("manifest");
    let manifest = serde_json::from_str(&text).expect("json");
    Case { name, image: unpack(&dir.join("image.img.zst")), manifest, dir }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// 1 KiB units that differ from the image, with their hashes.
fn changed(image: &Image, overlay: &Overlay<'_>) -> BTreeMap<u64, String> {
    let mut out = BTreeMap::new();
    for (index, page) in overlay.pages() {
        for unit in 0..4u64 {
            let at = index * 4096 + unit * 1024;
            let now = &page.bytes()[unit as usize * 1024..][..1024];
            if image.0[at as usize..at as usize + 1024] != *now {
                out.insert(at / 1024, hex(&Sha256::digest(now)));
            }
        }
    }
    out
}

fn run(case: &Case, policy: &RecoverPolicy) -> (RecoveryReport, BTreeMap<u64, String>) {
    let (bs, log) = journal_of(&case.image.0);
    let overlay = Overlay::new(&case.image);
    let report = recover(&overlay, &log, bs, policy).expect("the log can be recovered");
    let units = changed(&case.image, &overlay);
    (report, units)
}

/// Everything but the ext4 superblock (which e2fsck also stamps) and what it did beyond the replay.
fn compare(name: &'static str, beyond_replay: &[u64]) {
    let case = load(name);
    let (report, ours) = run(&case, &RecoverPolicy::e2fsck());
    let theirs: BTreeMap<u64, String> = case.manifest["journal_only_replay"]["changed_1k_units"]
        .as_object()
        .expect("an object")
        .iter()
        .map(|(k, v)| (k.parse().expect("number"), v.as_str().expect("hash").to_owned()))
        .collect();
    let ignored = |u: &u64| *u == 1 || beyond_replay.contains(u);
    let ours: Vec<_> = ours.into_iter().filter(|(u, _)| !ignored(u)).collect();
    let theirs: Vec<_> = theirs.into_iter().filter(|(u, _)| !ignored(u)).collect();
    let differ: Vec<u64> = ours
        .iter()
        .filter(|x| !theirs.contains(x))
        .chain(theirs.iter().filter(|x| !ours.contains(x)))
        .map(|(u, _)| *u)
        .collect();
    assert!(differ.is_empty(), "{name}: units {differ:?} differ: {report:?}");
    assert!(report.blocks_replayed > 0);
    compare_with_logdump(&case, &report);
}

/// debugfs's listing of the log names the same transactions.
fn compare_with_logdump(case: &Case, report: &RecoveryReport) {
    let text = std::fs::read_to_string(case.dir.join("logdump.txt")).expect("logdump");
    let commits = text.lines().filter(|l| l.contains("type 2 (commit block)")).count();
    let logged = text.lines().filter(|l| l.contains("logged at journal block")).count() as u64;
    let extra = u32::from(report.failed_commit.is_some());
    assert_eq!(report.transactions() + extra, commits as u32, "{}: {report:?}", case.name);
    let complete = report.blocks_replayed + report.blocks_revoked;
    assert!(complete <= logged, "{}: {complete} of {logged}", case.name);
}

macro_rules! replays_as_e2fsck_does {
    ($($test:ident $name:literal [$($beyond:literal),*];)*) => {
        $(#[test] fn $test() { compare($name, &[$($beyond),*]); })*
    };
}

replays_as_e2fsck_does! {
    ordered_log_replays_as_e2fsck_does "ext4-ordered" [];
    writeback_log_replays_as_e2fsck_does "ext4-writeback" [];
    data_journal_replays_as_e2fsck_does "ext4-journal" [];
    log_of_1k_blocks_replays_as_e2fsck_does "ext4-j1k" [];
    log_without_checksums_replays_as_e2fsck_does "ext4-nocsum" [];
    log_with_checksum_v1_replays_as_e2fsck_does "ext4-jcsum1" [];
    asynchronous_log_replays_as_e2fsck_does "ext4-async" [];
    revoked_blocks_stay_as_e2fsck_leaves_them "ext4-revoke" [];
    torn_last_commit_is_dropped_as_by_e2fsck "ext4-torncommit" [];
    wrapped_log_replays_as_e2fsck_does "ext4-wrap" [];
    bad_last_checksum_ends_the_log_as_for_e2fsck "ext4-badcsum" [];
    fast_commit_log_without_dirs_replays_as_e2fsck_does "ext4-fcnodir"
        [4, 36, 100, 167, 180, 181, 12420, 12423, 12424, 12427];
    orphans_log_replays_as_e2fsck_does "ext4-orphan" [4, 36, 100, 172, 173];
    orphan_file_log_replays_as_e2fsck_does "ext4-orphanfile" [4, 36, 100, 180, 181];
}

#[test]
fn second_recovery_finds_an_empty_log() {
    let case = load("ext4-ordered");
    let (bs, log) = journal_of(&case.image.0);
    let first = Overlay::new(&case.image);
    let report = recover(&first, &log, bs, &RecoverPolicy::linux(6, 1)).expect("recovers");
    let again = Overlay::new(&first);
    let second = recover(&again, &log, bs, &RecoverPolicy::linux(6, 1)).expect("recovers");
    assert_eq!(second.scan_end, ScanEnd::Clean);
    assert_eq!(second.blocks_replayed, 0);
    assert!(again.pages().is_empty());
    assert_eq!(second.first_tid, report.next_sequence);
    assert!(disk::tid_after(report.next_sequence, report.end_tid));
}

#[test]
fn partial_commit_record_counts_in_new_kernels_and_is_refused_in_old_ones() {
    // The image's last commit record was damaged behind its used 60 bytes. 6.18 and 6.12 say "Find
    // incomplete commit block" and take the transaction; 6.1 refuses to mount; e2fsck 1.47 stops
    // before it.
    let case = load("ext4-badcsum");
    let (new, units) = run(&case, &RecoverPolicy::linux(6, 18));
    assert_eq!((new.end_tid, new.failed_commit), (16, None));
    let (tool, older) = run(&case, &RecoverPolicy::e2fsck());
    assert_eq!(
        (tool.end_tid, tool.failed_commit, tool.scan_end),
        (15, Some(15), ScanEnd::BadChecksum)
    );
    assert_ne!(units, older);
    let (bs, log) = journal_of(&case.image.0);
    // The last transaction logs the inode-table block with inode 53: 6.18 has its size of 2220
    // afterwards.
    let size_of_53 = |policy: &RecoverPolicy| {
        let overlay = Overlay::new(&case.image);
        recover(&overlay, &log, bs, policy).expect("recovers");
        let mut size = [0u8; 4];
        overlay.read_at(44 * 4096 + 4 * 256 + 4, &mut size).expect("reads");
        u32::from_le_bytes(size)
    };
    assert_eq!(size_of_53(&RecoverPolicy::linux(6, 18)), 2220);
    assert_eq!(size_of_53(&RecoverPolicy::e2fsck()), 1823);
    let overlay = Overlay::new(&case.image);
    let refused =
        recover(&overlay, &log, bs, &RecoverPolicy::linux(6, 1)).expect_err("6.1 refuses");
    assert_eq!(refused.errno(), "EUCLEAN");
    assert!(!overlay.pages().is_empty(), "what came before has been replayed");
}

#[test]
fn wrong_commit_record_is_refused_by_new_kernels_too() {
    let mut case = load("ext4-badcsum");
    let (bs, log) = journal_of(&case.image.0);
    let at = log.block(117).expect("mapped") as usize * bs.bytes() as usize;
    // The seconds of the commit time: inside the used part, and not older than the transaction
    // before.
    case.image.0[at + 0x33] ^= 1;
    let overlay = Overlay::new(&case.image);
    assert!(recover(&overlay, &log, bs, &RecoverPolicy::linux(6, 18)).is_err());
    let lenient =
        RecoverPolicy { bad_commit: BadCommit::StopBefore, ..RecoverPolicy::linux(6, 18) };
    let report = recover(&Overlay::new(&case.image), &log, bs, &lenient).expect("stops before");
    assert_eq!(report.failed_commit, Some(15));
}

#[test]
fn stale_transaction_with_a_bad_checksum_just_ends_the_log() {
    let mut case = load("ext4-badcsum");
    let (bs, log) = journal_of(&case.image.0);
    let at = log.block(117).expect("mapped") as usize * bs.bytes() as usize;
    // An earlier commit time than that of the transaction before.
    case.image.0[at + 0x37] = 0;
    case.image.0[at + 0x36] = 0;
    case.image.0[at + 0x35] = 0;
    case.image.0[at + 0x34] = 0;
    let report =
        recover(&Overlay::new(&case.image), &log, bs, &RecoverPolicy::linux(6, 1)).expect("mounts");
    assert_eq!((report.scan_end, report.end_tid, report.failed_commit), (ScanEnd::Stale, 15, None));
}

#[test]
fn damaged_logged_block_fails_the_recovery() {
    let mut case = load("ext4-ordered");
    let (bs, log) = journal_of(&case.image.0);
    let at = log.block(3).expect("mapped") as usize * bs.bytes() as usize;
    case.image.0[at + 500] ^= 0x10;
    let overlay = Overlay::new(&case.image);
    assert!(recover(&overlay, &log, bs, &RecoverPolicy::linux(6, 18)).is_err());
    assert!(!overlay.pages().is_empty(), "the other blocks are recovered");
}

#[test]
fn superblock_is_left_alone_for_a_kernel_that_mounts() {
    let case = load("ext4-ordered");
    let (bs, log) = journal_of(&case.image.0);
    let overlay = Overlay::new(&case.image);
    let policy = RecoverPolicy { mark_empty: false, ..RecoverPolicy::linux(6, 1) };
    recover(&overlay, &log, bs, &policy).expect("recovers");
    let at = log.block(0).expect("mapped") * u64::from(bs.bytes());
    let mut now = [0u8; 1024];
    overlay.read_at(at, &mut now).expect("reads");
    assert_eq!(now[..], case.image.0[at as usize..at as usize + 1024]);
}
