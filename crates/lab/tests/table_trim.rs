//! Blocks of ext4's inode tables that are discarded (`inode_trim`): what they are afterwards, to
//! e2fsck, to a recovery, and to who takes an inode of them again.

use std::collections::BTreeSet;
use std::process::Command;

use wp_base::event::{BlockAction, Class, Event, Op};
use wp_base::{Sector, Span};
use wp_lab::machine::{Machine, MachineSpec};
use wp_lab::paper::ext4_fsync::profile;
use wp_lab::paper::inode_trim::{Deleted, RunPlan, Trim, run};
use wp_lab::testing::skipped;
use wp_lab::{files, registry};
use wp_medium::{Medium, MediumView, Slice};
use wp_vfs::{OpenFlags, Options, Vfs};

const BYTES: u64 = 64 << 20;
const FILES: u32 = 64;

fn machine(options: &str, start: Sector) -> Machine {
    let fs = registry::FILE_SYSTEMS[0];
    let spec = MachineSpec {
        seed: 1,
        cpu: profile("i7-4770").model(),
        device: "ssd-128".to_owned(),
        device_params: Vec::new(),
        more: Vec::new(),
        elevator: String::new(),
        start,
        sectors: Some(BYTES / 512),
        fs,
        fs_options: Options::parse(&format!("inode_trim=safe{options}"), fs.options)
            .expect("known"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (6, 18),
    };
    let m = Machine::new(spec, None).expect("builds");
    m.record(Class::BLOCK);
    m
}

async fn make(v: &Vfs, files: impl Iterator<Item = u32>) {
    for n in files {
        let fd = v.open(&format!("f{n}"), OpenFlags::CREATE, 0o644).await.expect("opens");
        v.pwrite(fd, 0, &[Slice::pattern(u64::from(n), 0, 4096)]).await.expect("writes");
        v.close(fd).await.expect("closes");
    }
    v.sync().await.expect("syncs");
}

async fn delete(v: &Vfs, files: impl Iterator<Item = u32>) {
    for n in files {
        v.unlink(&format!("f{n}")).await.expect("goes");
    }
    v.sync().await.expect("syncs");
}

/// Blocks of the inode table that were discarded so far.
fn trimmed(m: &Machine) -> BTreeSet<u64> {
    let start = m.spec().start.0;
    let mut blocks = BTreeSet::new();
    for r in m.rt.probe().take() {
        if let Event::Block { action: BlockAction::Issue, op: Op::Discard, at, sectors, .. } =
            r.event
        {
            let first = (at.0 - start) / 8;
            blocks.extend(first..first + u64::from(sectors) / 8);
        }
    }
    blocks
}

/// Those of `blocks` that hold anything.
fn held(medium: &Medium, start: Sector, blocks: &BTreeSet<u64>) -> Vec<u64> {
    let is_held = |block: &u64| {
        let mut bytes = [0; 4096];
        medium.read_bytes(start.0 * 512 + block * 4096, &mut bytes);
        bytes.iter().any(|b| *b != 0)
    };
    blocks.iter().copied().filter(is_held).collect()
}

fn e2fsck(medium: &Medium, start: Sector, what: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    files::save(medium, start, BYTES, &path).expect("written");
    let done = match Command::new("e2fsck").args(["-fn"]).arg(&path).output() {
        Ok(done) => done,
        Err(_) => return skipped(what, "e2fsck is missing"),
    };
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{what}: {text}");
}

/// The image after recovery.
fn recovered(m: &Machine) -> Medium {
    let mut medium = m.medium();
    let view = MediumView { medium: medium.clone(), start: m.spec().start, bytes: BYTES };
    let writes =
        (m.spec().fs.recover)(&view, &m.spec().fs_options).expect("what a cut leaves recovers");
    for (at, data) in writes {
        medium.write(Sector(at.0 + m.spec().start.0), &data);
    }
    medium
}

#[test]
fn trimmed_blocks_stay_empty_through_a_recovery() {
    let start = Sector(2048);
    let m = machine("", start);
    let vfs = m.mount().expect("mounts");
    let v = vfs.clone();
    m.block_on("program", async move {
        make(&v, 0..FILES).await;
        delete(&v, 0..FILES).await;
        // The revokes are in a transaction that the timer commits.
        v.rt().sleep(Span::secs(12)).await;
    })
    .expect("runs");
    let blocks = trimmed(&m);
    // Inodes from 12: the first whole block begins with 17, and 75 is the last.
    assert_eq!(blocks.len(), 4, "{blocks:?}");
    assert!(held(&m.medium(), start, &blocks).is_empty());
    let after = recovered(&m);
    assert!(held(&after, start, &blocks).is_empty(), "a recovery wrote a freed table block again");
    e2fsck(&after, start, "an image with trimmed tables, cut and recovered");
}

#[test]
fn inodes_of_a_trimmed_block_are_taken_again() {
    let start = Sector(2048);
    let m = machine("", start);
    let vfs = m.mount().expect("mounts");
    let v = vfs.clone();
    m.block_on("program", async move {
        make(&v, 0..FILES).await;
        delete(&v, 0..FILES).await;
        v.rt().sleep(Span::secs(1)).await;
        make(&v, (0..FILES).step_by(3)).await;
        delete(&v, (0..FILES).step_by(6)).await;
        make(&v, (1..FILES).step_by(6)).await;
    })
    .expect("runs");
    assert!(!trimmed(&m).is_empty());
    e2fsck(&recovered(&m), start, "an image with tables trimmed and used again, cut");
    let v = vfs.clone();
    m.block_on("reader", async move {
        for n in (3..FILES).step_by(6).chain((1..FILES).step_by(6)) {
            let fd = v.open(&format!("f{n}"), OpenFlags::READ, 0).await.expect("is there");
            let data = v.pread(fd, 0, 4096).await.expect("reads");
            let bytes: Vec<u8> = data.iter().flat_map(|s| s.to_vec()).collect();
            assert_eq!(bytes, Slice::pattern(u64::from(n), 0, 4096).to_vec(), "f{n}");
            v.close(fd).await.expect("closes");
        }
    })
    .expect("runs");
    m.unmount(&vfs).expect("unmounts");
    e2fsck(&m.medium(), start, "the same, unmounted");
}

#[test]
fn a_device_gets_only_whole_units() {
    // 16 KiB: four table blocks each, and the partition begins in the middle of one.
    for start in [2048, 2056] {
        let mut plan = RunPlan::paper(Trim::Safe, Deleted::All, 1);
        plan.device_params.push(("trim_granularity_bytes".to_owned(), 16_384));
        plan.start = Sector(start);
        let done = run(&plan).expect("runs");
        let left = done.unmounted.of("inode_table");
        assert!((1..=7).contains(&left), "{left} table pages left at {start}");
        assert!(done.tables_trimmed > 0 && done.tables_trimmed.is_multiple_of(4), "at {start}");
    }
}

#[test]
fn a_device_that_does_not_read_zeroes_is_refused() {
    let mut plan = RunPlan::paper(Trim::Safe, Deleted::All, 1);
    plan.device_params.push(("read_after_trim".to_owned(), 1));
    let refused = run(&plan).expect_err("what was discarded may read as inodes in use");
    assert!(refused.to_string().contains("inode_trim=safe"), "{refused}");
}

#[test]
fn every_era_and_journal_mode_trims() {
    for more in ["", ",data=journal", ",data=writeback", ",nobarrier", ",journal_async_commit"] {
        for era in ["3.4", "3.8", "4.6", "5.15", "6.18"] {
            if more == ",journal_async_commit" && era != "3.4" && era != "3.8" {
                // With ordered data it is refused since 3.19.
                continue;
            }
            let m = machine(&format!(",era={era}{more}"), Sector(2048));
            let vfs = m.mount().expect("mounts");
            let v = vfs.clone();
            m.block_on("program", async move {
                make(&v, 0..FILES).await;
                delete(&v, 0..FILES).await;
            })
            .expect("runs");
            m.unmount(&vfs).expect("unmounts");
            let blocks = trimmed(&m);
            assert_eq!(blocks.len(), 4, "era {era}{more}: {blocks:?}");
            assert!(held(&m.medium(), Sector(2048), &blocks).is_empty(), "era {era}{more}");
            e2fsck(&m.medium(), Sector(2048), &format!("era {era}{more}"));
        }
    }
}
