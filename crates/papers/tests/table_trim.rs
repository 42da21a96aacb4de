//! Blocks of ext4's inode tables that are discarded (`inode_trim`): what they are afterwards, to
//! e2fsck, to a recovery, and to who takes an inode of them again.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::process::Command;
use std::rc::Rc;

use wp_base::event::{BlockAction, Class, Event, Op};
use wp_base::{Sector, Span};
use wp_machine::files;
use wp_machine::profile::Profile;
use wp_machine::registry;
use wp_machine::testing::skipped;
use wp_machine::{Machine, MachineSpec};
use wp_medium::{Medium, MediumView, Slice};
use wp_papers::inode_trim::{Deleted, RunPlan, Trim, run};
use wp_vfs::{OpenFlags, Options, Vfs};

const BYTES: u64 = 64 << 20;
const FILES: u32 = 64;

fn machine(options: &str, start: Sector) -> Machine {
    let fs = registry::FILE_SYSTEMS[0];
    let spec = MachineSpec {
        seed: 1,
        cpu: Profile::known("i7-4770").model(),
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
    let plan =
        (m.spec().fs.recover)(&view, &m.spec().fs_options).expect("what a cut leaves recovers");
    for (at, data) in plan.writes() {
        medium.write(Sector(at.0 + m.spec().start.0), data);
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
            let bytes: Vec<u8> = Slice::concat(&data);
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
fn what_would_lose_inodes_is_refused() {
    let mut plan = RunPlan::paper(Trim::Safe, Deleted::All, 1);
    plan.device_params.push(("read_after_trim".to_owned(), 1));
    let refused = run(&plan).expect_err("what was discarded may read as inodes in use");
    assert!(refused.to_string().contains("inode_trim=safe"), "{refused}");
    // Nothing is flushed there between a discard and the revokes.
    let mut plan = RunPlan::paper(Trim::Safe, Deleted::All, 1);
    plan.more.push_str(",data=writeback,journal_async_commit");
    let refused = run(&plan).expect_err("a cut may lose the discard and keep the revokes");
    assert!(refused.to_string().contains("journal_async_commit"), "{refused}");
}

#[test]
fn every_era_and_journal_mode_trims() {
    for more in ["", ",data=journal", ",data=writeback", ",nobarrier", ",nodelalloc"] {
        for era in ["3.4", "3.8", "4.6", "5.15", "6.18"] {
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

/// On a device that takes 5 ms for everything, so that tasks meet in the middle of calls.
fn slow_machine(era: &str) -> Machine {
    let fs = registry::FILE_SYSTEMS[0];
    let options = format!("era={era},inode_size=2048,inode_trim=safe");
    let spec = MachineSpec {
        seed: 1,
        cpu: Profile::known("i7-4770").model(),
        device: "fixed".to_owned(),
        device_params: vec![("latency_ns".to_owned(), 5_000_000)],
        more: Vec::new(),
        elevator: String::new(),
        start: Sector(2048),
        sectors: Some(BYTES / 512),
        fs,
        fs_options: Options::parse(&options, fs.options).expect("known"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (6, 18),
    };
    Machine::new(spec, None).expect("builds")
}

async fn touch(v: &Vfs, name: &str) -> u64 {
    let fd = v.open(name, OpenFlags::CREATE, 0o644).await.expect("opens");
    let ino = v.fstat(fd).await.expect("is there").ino.0;
    v.close(fd).await.expect("closes");
    ino
}

/// Appends and syncs until it is told to stop: there is always a transaction being logged.
async fn busy(v: Vfs, stop: Rc<Cell<bool>>) {
    let fd = v.open("busy", OpenFlags::CREATE, 0o644).await.expect("opens");
    let mut n = 0;
    while !stop.get() {
        v.pwrite(fd, n * 4096, &[Slice::pattern(n, 0, 4096)]).await.expect("writes");
        v.fsync(fd).await.expect("syncs");
        n += 1;
    }
    v.close(fd).await.expect("closes");
}

/// The last close of an unlinked file frees its inode outside of any directory's lock: another task
/// may take the same number in the middle of it. Two inodes share a block.
#[test]
fn an_inode_that_is_taken_while_it_is_freed_stays() {
    for (era, seed) in [("6.18", 1), ("3.8", 2), ("6.18", 3)] {
        let m = slow_machine(era);
        let vfs = m.mount().expect("mounts");
        let v = vfs.clone();
        let met = m
            .block_on("program", async move {
                let rt = v.rt().clone();
                let stop = Rc::new(Cell::new(false));
                let syncer = rt.spawn("syncer", busy(v.clone(), stop.clone()));
                let (mut fill, mut top) = (0, 0);
                while top < 20 || top % 2 == 1 {
                    fill += 1;
                    top = touch(&v, &format!("z{fill}")).await;
                }
                for n in 0..120 {
                    top = touch(&v, &format!("p{n}")).await;
                }
                v.sync().await.expect("syncs");
                let mut met = 0;
                for n in 0..60u64 {
                    let chance = (seed * 7919 + n * 104_729 * 31_337) % 1_000_003;
                    let (own, other) = (format!("p{}", 2 * n), format!("p{}", 2 * n + 1));
                    let fd = v.open(&own, OpenFlags::READ, 0).await.expect("opens");
                    let ino = v.fstat(fd).await.expect("is there").ino.0;
                    v.unlink(&own).await.expect("goes");
                    v.unlink(&other).await.expect("goes");
                    rt.sleep(Span(90_000_000 + chance * 15)).await;
                    let closer = v.clone();
                    let closed = rt.spawn("closer", async move { closer.close(fd).await });
                    rt.sleep(Span(chance * 17 % 5_000_000)).await;
                    met += u32::from(touch(&v, &format!("g{n}")).await == ino);
                    closed.await.expect("closes");
                    rt.sleep(Span::millis(150)).await;
                    // The lowest free number is not one of theirs the next time.
                    loop {
                        fill += 1;
                        let ino = touch(&v, &format!("z{fill}")).await;
                        if ino > top {
                            top = ino;
                            break;
                        }
                    }
                }
                stop.set(true);
                syncer.await;
                v.sync().await.expect("syncs");
                rt.sleep(Span::secs(8)).await;
                met
            })
            .expect("runs");
        assert!(met > 0, "era {era}, seed {seed}: nobody took a number that was being freed");
        m.unmount(&vfs).expect("unmounts");
        e2fsck(&m.medium(), Sector(2048), &format!("era {era}, seed {seed}"));
    }
}

/// A file of an earlier mount, so that the log has no copy of its inode: its unlink is not durable
/// when an `fstrim` comes by.
#[test]
fn an_fstrim_waits_for_an_unlink_to_be_durable() {
    for seed in 6..16u64 {
        let m = slow_machine("6.18");
        let vfs = m.mount().expect("mounts");
        let v = vfs.clone();
        m.block_on("before", async move {
            let (mut n, mut top) = (0, 0);
            while top < 20 || top % 2 == 1 {
                n += 1;
                top = touch(&v, &format!("z{n}")).await;
            }
            for name in ["busy", "y", "p0", "p1"] {
                touch(&v, name).await;
            }
            v.unlink("p1").await.expect("goes");
            v.unlink("z2").await.expect("goes");
            v.sync().await.expect("syncs");
        })
        .expect("runs");
        m.unmount(&vfs).expect("unmounts");
        let vfs = m.mount().expect("mounts");
        let v = vfs.clone();
        m.block_on("program", async move {
            let rt = v.rt().clone();
            drop(rt.spawn("syncer", busy(v.clone(), Rc::default())));
            v.stat("p0").await.expect("is there");
            touch(&v, "w").await;
            rt.sleep(Span(200_000_000 + seed * 1_234_567 % 20_000_000)).await;
            let other = v.clone();
            drop(rt.spawn("remover", async move { other.unlink("p0").await }));
            rt.sleep(Span::micros(200)).await;
            v.fstrim(0, 1 << 30, 1 << 24).await.expect("discards");
        })
        .expect("runs");
        // The power goes.
        e2fsck(&recovered(&m), Sector(2048), &format!("seed {seed}"));
    }
}

#[test]
fn space_that_an_fstrim_holds_is_waited_for() {
    for us in [3, 20, 42] {
        let m = machine(",era=6.18", Sector(2048));
        let vfs = m.mount().expect("mounts");
        let v = vfs.clone();
        m.block_on("program", async move {
            let fd = v.open("a", OpenFlags::CREATE, 0o644).await.expect("opens");
            v.pwrite(fd, 0, &[Slice::pattern(1, 0, 65_536)]).await.expect("writes");
            let other = v.clone();
            let trim = v.rt().spawn("fstrim", async move { other.fstrim(0, u64::MAX, 0).await });
            v.rt().sleep(Span::micros(us)).await;
            v.fsync(fd).await.expect("there is room");
            trim.await.expect("discards");
        })
        .expect("runs");
    }
}
