//! Explanations of real calls on every file system: whole, in its own words, and right about what
//! was needed and who waited for whom.

use std::rc::Rc;

use crate::played::{Recorded, play};
use wp_base::FsResult;
use wp_medium::Slice;
use wp_report::draw;
use wp_report::explain::{Explanation, explain};
use wp_report::flow::{Flow, flow};
use wp_report::necessity::Need;
use wp_report::run::{SYNCS, Seen, WHOLE, WRITES};
use wp_report::summary;
use wp_vfs::{OpenFlags, Vfs};

const SSD: &str = "ssd-128";
const ZONED: &str = "zn540-4tb-noplp";

fn data(key: u64, at: u64, bytes: u32) -> [Slice; 1] {
    [Slice::pattern(key, at, bytes)]
}

/// Four fsyncs of `a` (new; overwritten; unchanged; beside a change of `b`), a write through
/// `O_SYNC`, one through `O_DIRECT`, a `sync`.
async fn everything(vfs: Vfs) -> FsResult<()> {
    let a = vfs.open("a", OpenFlags::CREATE, 0o644).await?;
    vfs.pwrite(a, 0, &data(1, 0, 16384)).await?;
    vfs.fsync(a).await?;
    vfs.pwrite(a, 4096, &data(2, 4096, 4096)).await?;
    vfs.fdatasync(a).await?;
    vfs.fsync(a).await?;
    vfs.fsync(a).await?;
    let b = vfs.open("b", OpenFlags::CREATE, 0o644).await?;
    vfs.pwrite(b, 0, &data(3, 0, 8192)).await?;
    vfs.pwrite(a, 16384, &data(4, 16384, 4096)).await?;
    vfs.fsync(a).await?;
    let c = vfs.open("a", OpenFlags { sync: true, ..OpenFlags::WRITE }, 0).await?;
    vfs.pwrite(c, 0, &data(5, 0, 4096)).await?;
    let d = vfs.open("a", OpenFlags { direct: true, ..OpenFlags::WRITE }, 0).await?;
    vfs.pwrite(d, 8192, &data(6, 8192, 4096)).await?;
    vfs.sync().await
}

fn all(run: &Recorded) -> Vec<Explanation> {
    let seen = Seen::new(run.run());
    let names = [SYNCS, WHOLE, WRITES].concat();
    seen.calls(&names).into_iter().map(|call| explain(&seen, call)).collect()
}

/// Stages without what begins their names.
fn kinds(e: &Explanation) -> Vec<&str> {
    let kind = |s: &str| -> Option<usize> { Some(s.find(": ")? + 2) };
    let mut out: Vec<&str> =
        e.stages.iter().map(|s| &s.name[kind(&s.name).unwrap_or(0)..]).collect();
    out.sort_unstable();
    out.dedup();
    out
}

fn check_whole(fs: &str, e: &Explanation) {
    let text = e.text();
    assert_eq!(e.links.iter().map(|l| l.ns).sum::<u64>(), e.total_ns, "{fs}\n{text}");
    let shares: u64 = e.stages.iter().map(|s| s.share).sum();
    assert!(shares == 10_000 || e.total_ns == 0, "{fs}: {shares}\n{text}");
    let idle = ["other wait", "sleep"];
    assert!(!e.stages.iter().any(|s| idle.contains(&&*s.name)), "{fs}\n{text}");
    for edge in &e.edges {
        assert!(edge.ns <= e.total_ns && edge.from_ns <= e.total_ns, "{fs}\n{text}");
    }
    let on_path: u64 = e.requests.iter().map(|r| r.path_ns).sum();
    assert!(on_path <= e.total_ns, "{fs}\n{text}");
    assert!(e.json()["why"].as_str().is_some_and(|why| why.starts_with(&e.call)), "{fs}");
}

/// Options, device, and the words that some call's stages must have.
const RUNS: &[(&str, &str, &[&str])] = &[
    ("ext4,era=3.4", SSD, &["data", "journal blocks", "commit record", "pre-flush"]),
    ("ext4,era=3.8,data=journal", SSD, &["journal blocks", "commit record"]),
    ("ext4,era=4.6,data=writeback", SSD, &["data", "journal blocks", "commit record"]),
    ("ext4,era=6.18,nobarrier", SSD, &["data", "journal blocks", "commit record"]),
    ("ext4,era=3.8,journaling=barrier", SSD, &["data", "commit record", "flush"]),
    ("f2fs,era=6.1", SSD, &["node", "flush", "checkpoint pack"]),
    ("f2fs,era=6.1,fsync_mode=strict", SSD, &["node"]),
    ("f2fs,era=6.1,nobarrier", SSD, &["node"]),
    ("f2fs,era=6.1", ZONED, &["node", "flush"]),
    ("f2fs,era=6.1,direct=log", ZONED, &["node", "flush"]),
    ("nilfs2,era=6.1", SSD, &["log with its super root", "flush"]),
    ("nilfs2,era=6.1,order=strict", SSD, &["log with its super root", "flush"]),
    (
        "btrfs,era=6.12.117",
        SSD,
        &["data", "log tree", "super block", "flush", "trees of the commit"],
    ),
    ("btrfs,era=6.12.117,notreelog", SSD, &["data", "trees of the commit", "super block"]),
];

#[test]
fn every_nanosecond_of_a_sync_is_told_in_the_words_of_its_file_system() {
    for &(fs, device, words) in RUNS {
        let run = play(fs, device, everything);
        let all = all(&run);
        assert!(all.len() >= 6, "{fs}: {} calls", all.len());
        let mut seen: Vec<String> = Vec::new();
        for e in &all {
            check_whole(fs, e);
            seen.extend(kinds(e).into_iter().map(str::to_owned));
        }
        for word in words {
            assert!(seen.iter().any(|s| s == word), "{fs}: no `{word}` in {seen:?}");
        }
        // Whatever was written has a name of its own, none is a guess.
        let unknown = all
            .iter()
            .flat_map(|e| &e.requests)
            .filter(|r| r.sectors > 0 && run.fs.stages.kind(&r.class).is_none());
        let unknown: Vec<_> = unknown.collect();
        assert!(unknown.is_empty(), "{fs}: {unknown:?}");
    }
}

/// The program of paper ext4-fsync: ten files of 1 KiB, 2 KiB behind that in each, fsync of the
/// last.
async fn ten_files(vfs: Vfs) -> FsResult<()> {
    for i in 0..10 {
        let fd = vfs.open(&format!("f_{i}"), OpenFlags::CREATE, 0o644).await?;
        vfs.pwrite(fd, 0, &data(i, 0, 1024)).await?;
        vfs.close(fd).await?;
    }
    vfs.sync().await?;
    vfs.sync().await?;
    vfs.rt().sleep(wp_base::Span::secs(40)).await;
    let mut last = None;
    for i in 0..10 {
        let fd = vfs.open(&format!("f_{i}"), OpenFlags::WRITE, 0).await?;
        vfs.pwrite(fd, 1024, &data(i + 100, 1024, 2048)).await?;
        last = Some(fd);
    }
    vfs.fsync(last.expect("ten files")).await
}

/// Sectors of data that were sent for a call, by need.
fn data_sectors(e: &Explanation, need: Need) -> u32 {
    let is_data = |class: &str| class.starts_with("data");
    let those = e.requests.iter().filter(|r| r.need == need && is_data(&r.class));
    those.map(|r| r.sectors).sum()
}

#[test]
fn the_data_of_nine_other_files_was_not_needed_in_era_3_4_and_is_not_sent_since_3_8() {
    for (era, others) in [("3.4", 72), ("3.8", 0), ("4.6", 0)] {
        let run = play(&format!("ext4,era={era}"), SSD, ten_files);
        let seen = Seen::new(run.run());
        let e = explain(&seen, seen.call(SYNCS, 1).expect("one fsync"));
        let text = e.text();
        assert_eq!(data_sectors(&e, Need::NotNeeded), others, "{era}\n{text}");
        assert_eq!(data_sectors(&e, Need::Needed), 8, "{era}\n{text}");
        assert_eq!(data_sectors(&e, Need::Unknown), 0, "{era}\n{text}");
        assert_eq!(e.why.contains("not needed"), others > 0, "{era}\n{text}");
        // The journal's blocks have the other files' sizes, too.
        let journal = e.requests.iter().find(|r| r.kind == "journal blocks").expect("logged");
        assert!(journal.need == Need::Needed, "{era}\n{text}");
        assert!(journal.rule.contains("other changes"), "{era}\n{text}");
        // The transaction was asked for by the call itself.
        let [group] = &e.groups[..] else { panic!("{era}: one transaction\n{text}") };
        assert!(group.is_own("w") && group.by == ["jbd2/sdb1-8"], "{era}\n{text}");
    }
}

/// An fsync, and one after which nothing changed.
async fn twice(vfs: Vfs) -> FsResult<()> {
    let fd = vfs.open("a", OpenFlags::CREATE, 0o644).await?;
    vfs.pwrite(fd, 0, &data(1, 0, 16384)).await?;
    vfs.fsync(fd).await?;
    vfs.fsync(fd).await
}

#[test]
fn an_fsync_after_which_nothing_changed_needs_nothing_that_it_sends() {
    for fs in ["ext4,era=6.18", "f2fs,era=6.1", "nilfs2,era=6.1", "btrfs,era=6.12.117"] {
        let run = play(fs, SSD, twice);
        let seen = Seen::new(run.run());
        let of = |n| explain(&seen, seen.call(SYNCS, n).expect("two fsyncs"));
        let (first, second) = (of(1), of(2));
        let needed = |e: &Explanation| e.requests.iter().filter(|r| r.need == Need::Needed).count();
        assert!(needed(&first) >= 2, "{fs}\n{}", first.text());
        let bad = second.requests.iter().filter(|r| r.need != Need::NotNeeded);
        let bad: Vec<_> = bad.collect();
        assert!(bad.is_empty(), "{fs}: {bad:?}\n{}", second.text());
    }
}

/// Fsyncs of two directories, each after a name was made or removed in it.
async fn names(vfs: Vfs) -> FsResult<()> {
    vfs.mkdir("d", 0o755).await?;
    let root = vfs.open("/", OpenFlags::READ, 0).await?;
    let d = vfs.open("d", OpenFlags::READ, 0).await?;
    vfs.fsync(root).await?;
    vfs.fsync(d).await?;
    let f = vfs.open("d/f", OpenFlags::CREATE, 0o644).await?;
    vfs.fsync(d).await?;
    vfs.close(f).await?;
    vfs.mkdir("d/e", 0o755).await?;
    vfs.fsync(d).await?;
    vfs.symlink("f", "d/s").await?;
    vfs.fsync(d).await?;
    vfs.rmdir("d/e").await?;
    vfs.fsync(d).await?;
    vfs.mkdir("g", 0o755).await?;
    vfs.fsync(root).await
}

#[test]
fn a_name_that_is_made_in_a_directory_is_a_change_of_it() {
    for fs in ["ext4,era=4.6", "btrfs,era=6.12.117"] {
        let all = all(&play(fs, SSD, names));
        assert_eq!(all.len(), 7, "{fs}");
        for e in &all[2..] {
            let writes = || e.requests.iter().filter(|r| r.sectors > 0);
            assert!(writes().any(|r| r.need == Need::Needed), "{fs}\n{}", e.text());
            let same = writes().any(|r| r.rule.starts_with("the file has no change"));
            assert!(!same, "{fs}\n{}", e.text());
        }
    }
}

#[test]
fn behind_a_cache_that_survives_power_cuts_no_flush_is_needed_and_nobarrier_sends_none() {
    let flushes = |fs: &str, device: &str| {
        let run = play(fs, device, twice);
        let seen = Seen::new(run.run());
        let e = explain(&seen, seen.call(SYNCS, 1).expect("an fsync"));
        let flushes = e.requests.iter().filter(|r| r.kind == "flush");
        flushes.map(|r| (r.need, r.rule)).collect::<Vec<_>>()
    };
    assert_eq!(flushes("ext4,era=4.6,nobarrier", SSD), []);
    assert_eq!(flushes("f2fs,era=6.1,nobarrier", SSD), []);
    let needed = flushes("f2fs,era=6.1", SSD);
    assert!(needed.iter().all(|(v, _)| *v == Need::Needed) && !needed.is_empty(), "{needed:?}");
    // The block layer itself drops flushes for a device that has no volatile cache.
    assert_eq!(flushes("f2fs,era=6.1", "ssd-128-plp"), []);
}

/// Two tasks that append to files of their own and fsync them at once.
async fn two_tasks(vfs: Vfs) -> FsResult<()> {
    let rt = vfs.rt().clone();
    let one = |name: &'static str, key: u64| {
        let vfs = vfs.clone();
        async move {
            let fd = vfs.open(name, OpenFlags::CREATE, 0o644).await?;
            for round in 0..8 {
                vfs.pwrite(fd, round * 8192, &data(key + round, 0, 8192)).await?;
                vfs.fsync(fd).await?;
            }
            FsResult::Ok(())
        }
    };
    let other = rt.spawn("other", one("b", 100));
    let mine = one("a", 200).await;
    other.await.and(mine)
}

#[test]
fn who_waits_for_work_that_another_task_asked_for_is_told_so() {
    for fs in ["ext4,era=4.6", "f2fs,era=6.1", "nilfs2,era=6.1", "btrfs,era=6.12.117"] {
        let run = play(fs, SSD, two_tasks);
        let seen = Seen::new(run.run());
        let calls = seen.calls(SYNCS);
        assert_eq!(calls.len(), 16, "{fs}");
        let sum = summary::summary(&seen, &calls);
        assert_eq!(sum.calls, 16, "{fs}\n{}", sum.text());
        assert_eq!(sum.stages.iter().map(|s| s.share).sum::<u64>(), 10_000, "{fs}");
        assert_eq!(sum.stages.iter().map(|s| s.ns).sum::<u64>(), sum.total_ns, "{fs}");
        assert!(sum.p50_ns <= sum.p99_ns && sum.p99_ns <= sum.max_ns, "{fs}");
        let all: Vec<Explanation> = calls.iter().map(|c| explain(&seen, *c)).collect();
        for e in &all {
            check_whole(fs, e);
            for g in &e.groups {
                assert!(g.end_ns >= 0 && g.end_ns <= e.total_ns as i64, "{fs}\n{}", e.text());
            }
        }
        let joined = all.iter().filter(|e| e.groups.iter().any(|g| !g.is_own(&e.task)));
        let joined: Vec<&Explanation> = joined.collect();
        assert_eq!(joined.len() as u32, sum.joined, "{fs}\n{}", sum.text());
        if fs.starts_with("f2fs") {
            // Nodes and flushes are each call's own.
            continue;
        }
        assert!(!joined.is_empty(), "{fs}: nobody shared anything\n{}", sum.text());
        assert!(joined[0].why.contains("waited for shared work"), "{fs}\n{}", joined[0].text());
    }
}

#[test]
fn a_sync_needs_what_the_flusher_writes_for_it() {
    for fs in ["ext4,era=4.6", "f2fs,era=6.1", "btrfs,era=6.12.117"] {
        let run = play(fs, SSD, |vfs: Vfs| async move {
            for name in ["a", "b"] {
                let fd = vfs.open(name, OpenFlags::CREATE, 0o644).await?;
                vfs.pwrite(fd, 0, &data(1, 0, 16384)).await?;
            }
            vfs.sync().await
        });
        let seen = Seen::new(run.run());
        let e = explain(&seen, seen.call(WHOLE, 1).expect("a sync"));
        let is_data = |class: &str| class.starts_with("data") || class.starts_with("directory");
        let those = e.requests.iter().filter(|r| is_data(&r.class));
        let needed: u32 = those.filter(|r| r.need == Need::Needed).map(|r| r.sectors).sum();
        assert!(needed >= 64, "{fs}\n{}", e.text());
        assert!(!e.why.contains("waited for shared work"), "{fs}\n{}", e.text());
    }
}

#[test]
fn an_fsync_that_is_a_checkpoint_says_why() {
    let run = play("f2fs,era=6.1", SSD, |vfs: Vfs| async move {
        vfs.mkdir("d", 0o755).await?;
        let fd = vfs.open("d/a", OpenFlags::CREATE, 0o644).await?;
        vfs.pwrite(fd, 0, &data(1, 0, 16384)).await?;
        vfs.fsync(fd).await
    });
    let seen = Seen::new(run.run());
    let e = explain(&seen, seen.call(SYNCS, 1).expect("an fsync"));
    let text = e.text();
    let asked = e.groups.iter().flat_map(|g| &g.asked).find(|a| a.who == "w").expect("it asks");
    assert_eq!(asked.why, "its directory is not in a checkpoint yet", "{text}");
    assert!(e.requests.iter().any(|r| r.kind == "checkpoint pack"), "{text}");
}

#[test]
fn a_lock_that_another_task_holds_is_named_with_who_lets_it_go() {
    let run = play("ext4,era=4.6", SSD, |vfs: Vfs| async move {
        let fd = vfs.open("a", OpenFlags::CREATE, 0o644).await?;
        let rt = vfs.rt().clone();
        let (v, done) = (vfs.clone(), Rc::new(std::cell::Cell::new(false)));
        let writes = done.clone();
        let other = rt.spawn("other", async move {
            let fd = v.open("a", OpenFlags { sync: true, ..OpenFlags::WRITE }, 0).await?;
            while !writes.get() {
                v.pwrite(fd, 0, &data(7, 0, 65536)).await?;
            }
            FsResult::Ok(())
        });
        for round in 0..6 {
            vfs.pwrite(fd, round * 4096, &data(round, 0, 4096)).await?;
            vfs.fsync(fd).await?;
        }
        done.set(true);
        other.await
    });
    let all = all(&run);
    let edges = || all.iter().flat_map(|e| &e.edges);
    assert!(edges().any(|e| e.whom == "other" || e.waiter == "other"), "tasks meet");
    assert!(edges().any(|e| e.on.starts_with("transaction")), "commits are named");
    assert!(edges().any(|e| e.on.starts_with("request: ")), "requests are named");
}

/// First sent, and last complete, of what a flow sends under a name.
fn when(f: &Flow, name: &str) -> Option<(u64, u64)> {
    let those = || f.sent.iter().filter(|s| s.name == name);
    Some((those().map(|s| s.sent_ns).min()?, those().map(|s| s.done_ns).max()?))
}

/// Figures 3 to 7: which inodes the transaction's list has, and the order of an fsync.
#[test]
fn flows_come_in_the_order_that_paper_ext4_fsync_draws_for_each_era() {
    for (era, filed, others) in [("3.4", 10, 72), ("3.8", 0, 0)] {
        let run = play(&format!("ext4,era={era}"), SSD, ten_files);
        let seen = Seen::new(run.run());
        let f = flow(&seen, seen.call(SYNCS, 1).expect("one fsync"));
        let text = f.text();
        let before = f.notes.iter().filter(|n| n.at_ns <= 0);
        let listed = before.filter(|n| n.what.starts_with("adds inode")).count();
        assert_eq!(listed, filed, "{era}\n{text}");
        let sectors = |name: &str| -> u32 {
            f.sent.iter().filter(|s| s.name == name).map(|s| s.sectors).sum()
        };
        assert_eq!(sectors("ordered data of other files"), others, "{era}\n{text}");
        // 1. The call writes its data; 2. it wakes the journal's thread, which 3. writes what is on
        // the list and the journal's blocks, and 4. the record, behind a flush.
        let (own, record) = (when(&f, "data").expect("sent"), when(&f, "commit record"));
        let (journal, record) = (when(&f, "journal blocks").expect("sent"), record.expect("sent"));
        let asked = f.notes.iter().find(|n| n.what.starts_with("requests transaction"));
        let asked = asked.expect("it asks").at_ns;
        assert!((own.0 as i64) < asked && asked < journal.0 as i64, "{era}\n{text}");
        assert!(own.1 <= record.0 && journal.1 <= record.0, "{era}\n{text}");
        let ordered = when(&f, "ordered data of other files");
        assert!(ordered.is_none_or(|o| asked < o.0 as i64 && o.1 <= record.0), "{era}\n{text}");
        let flushes: Vec<_> = f.sent.iter().filter(|s| s.sectors == 0).collect();
        assert!(flushes.iter().any(|s| s.done_ns <= record.0), "{era}\n{text}");
        assert!(flushes.iter().any(|s| s.sent_ns >= record.1), "{era}\n{text}");
        let over = f.notes.iter().find(|n| n.what.ends_with("ends")).expect("it ends");
        assert!(over.at_ns <= f.total_ns as i64 && over.to.as_deref() == Some("w"), "{text}");
        // The same for a paper.
        let (mermaid, svg) = (draw::mermaid(&f), draw::svg(&f));
        assert!(mermaid.starts_with("sequenceDiagram\n    participant p0 as w\n"), "{mermaid}");
        let messages = mermaid.lines().filter(|l| l.contains("->>")).count();
        assert!(messages >= 2 * f.sent.len(), "{mermaid}");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.matches("<rect ").count() >= f.sent.len() + f.steps.len(), "{svg}");
    }
}

#[test]
fn a_commit_of_barrier_fs_is_begun_by_one_thread_and_ended_by_the_other() {
    let run = play("ext4,era=3.8,journaling=barrier", SSD, twice);
    let seen = Seen::new(run.run());
    let call = seen.call(SYNCS, 1).expect("an fsync");
    let f = flow(&seen, call);
    let who = |what: &str| {
        let note =
            f.notes.iter().find(|n| n.what.starts_with("transaction") && n.what.ends_with(what));
        note.map_or_else(|| panic!("no `{what}`\n{}", f.text()), |n| n.who.as_str())
    };
    assert_eq!((who("commit logging"), who("ends")), ("jbd2/sdb1-8", "jbd2cp/sdb1-8"));
}

#[test]
fn a_direct_overwrite_sends_its_data_and_nothing_else() {
    for fs in ["ext4,era=3.8", "ext4,era=6.18", "f2fs,era=5.14", "btrfs,era=6.12.117"] {
        let run = play(fs, SSD, |vfs: Vfs| async move {
            let fd = vfs.open("a", OpenFlags::CREATE, 0o644).await?;
            vfs.pwrite(fd, 0, &data(1, 0, 65536)).await?;
            vfs.fsync(fd).await?;
            vfs.sync().await?;
            let d = vfs.open("a", OpenFlags { direct: true, ..OpenFlags::WRITE }, 0).await?;
            vfs.pwrite(d, 8192, &data(6, 8192, 4096)).await.map(|_| ())
        });
        let seen = Seen::new(run.run());
        let e = explain(&seen, seen.call(WRITES, 1).expect("it waits"));
        let [sent] = &e.requests[..] else { panic!("{fs}: one request\n{}", e.text()) };
        // Of small files F2FS has data in the log of hot data.
        assert!(sent.kind.starts_with("data") && sent.sectors == 8, "{fs}\n{}", e.text());
        assert_eq!(sent.need, Need::Needed, "{fs}\n{}", e.text());
    }
}
