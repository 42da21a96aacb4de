//! Images that real kernels left behind at a power cut: we must find in them what the real kernel
//! found, and what we write when we recover must be what it wrote.

use crate::images::Bytes;
use crate::reference;
use crate::reference::reference;
use crate::skip;
use serde_json::Value;
use wp_base::Sector;
use wp_medium::write_log::{LogEntry, Until, WriteLog};
use wp_medium::{MediumView, Overlay, View};
use wp_nilfs2::check::{CheckOptions, check};
use wp_nilfs2::disk::{Summary, SummaryHead};
use wp_nilfs2::image::{Image, InspectOptions, RecoverOptions, Recovery, list, recover};
use wp_vfs::FileInfo;

/// Names of the crashed images that real kernels left.
const IMAGES: [&str; 5] =
    ["nilfs2-cps", "nilfs2-dsync", "nilfs2-fsync", "nilfs2-gc", "nilfs2-small"];

/// What a manifest says of a file, and the same of ours: of what it does not say, nothing.
fn lines(f: &FileInfo, expected: &Value) -> (String, String) {
    let text = |b: &[u8]| Value::from(String::from_utf8_lossy(b).into_owned());
    let (mut ours, mut theirs) = (String::new(), String::new());
    for (key, value) in expected.as_object().expect("a file") {
        let own = match key.as_str() {
            "path" => text(&f.path),
            "type" => f.kind.word().into(),
            "ino" => f.ino.into(),
            "nlink" => f.nlink.into(),
            "uid" => f.uid.into(),
            "gid" => f.gid.into(),
            "size" => f.size.into(),
            "blocks512" => f.sectors.into(),
            "sha256" => f.sha256.map(|d| d.to_string()).into(),
            "target" => f.target.as_deref().map_or(Value::Null, text),
            "mode" => {
                let mode = value.as_str().expect("octal").trim_start_matches("0o");
                let mode = u32::from_str_radix(mode, 8).expect("octal");
                if mode & 0o7777 == f.mode { value.clone() } else { f.mode.into() }
            }
            other => panic!("{other} is nothing that we compare"),
        };
        ours += &format!("{key} {own} ");
        theirs += &format!("{key} {value} ");
    }
    (ours, theirs)
}

/// Compares the files of an image, without recovery, with a manifest's.
fn same_files(case: &str, image: &Image<'_>, files: &Value) {
    let (ours, findings) = list(image, &InspectOptions::default());
    assert_eq!(findings, [], "{case}");
    let theirs = files.as_array().expect("files");
    let paths = |f: &Value| f["path"].as_str().expect("a path").as_bytes().to_vec();
    let mut names: Vec<Vec<u8>> = theirs.iter().map(paths).collect();
    names.sort();
    assert_eq!(ours.iter().map(|f| f.path.clone()).collect::<Vec<_>>(), names, "{case}");
    for file in theirs {
        let own = ours.iter().find(|f| f.path == paths(file)).expect("it is among the names");
        let (a, b) = lines(own, file);
        assert_eq!(a, b, "{case}");
    }
}

/// Recovers and compares; what recovery did.
fn compare(case: &str, view: &dyn View, files: &Value) -> Recovery {
    let overlay = Overlay::new(view);
    let options = RecoverOptions::default();
    let done = recover(&overlay, &options).unwrap_or_else(|e| panic!("{case}: {e}"));
    let image = Image::open(&overlay).unwrap_or_else(|e| panic!("{case}, recovered: {e}"));
    same_files(case, &image, files);
    for view in [view, &overlay] {
        let checked = check(view, &CheckOptions::default());
        let report = checked.unwrap_or_else(|e| panic!("{case}: {e}"));
        assert_eq!(report.findings, [], "{case}");
    }
    // Recovered once, there is nothing left to recover, even for a kernel that scans.
    let again = Overlay::new(&overlay);
    let twice = recover(&again, &options).unwrap_or_else(|e| panic!("{case}, twice: {e}"));
    assert!(!twice.is_needed && again.is_empty(), "{case}: {twice}");
    done
}

#[test]
fn every_image_recovers_to_the_files_of_the_real_kernel() {
    for name in IMAGES {
        let Some((bytes, manifest)) = reference("nilfs2 recovery", name) else { return };
        let done = compare(name, &Bytes(bytes), &manifest["expected_after_recovery"]);
        println!("{name}: {done}");
        // How many blocks the kernel says that it salvaged.
        let said = manifest["kernel_dmesg"].as_array().expect("messages").iter();
        let mut said = said.filter_map(|l| l.as_str()?.split_once("salvaged "));
        let salvaged = said.next().and_then(|(_, n)| n.split(' ').next()?.parse().ok());
        assert_eq!(done.blocks, salvaged.unwrap_or(0), "{name}");
    }
}

#[test]
fn every_mark_of_a_write_log_recovers_to_the_files_of_the_real_kernel() {
    let folder = reference::folder().join("iolog-nilfs2");
    let Ok(text) = std::fs::read_to_string(folder.join("manifest.json")) else {
        skip::skipped("nilfs2 recovery at marks", "reference data iolog-nilfs2 is not here");
        return;
    };
    let manifest: Value = serde_json::from_str(&text).expect("JSON");
    let packed = std::fs::read(folder.join("log.img.zst")).expect("a log");
    let bytes = Bytes(zstd::decode_all(packed.as_slice()).expect("a whole archive"));
    let log = WriteLog::open(&bytes).expect("a log");
    let entries: Vec<LogEntry> = log.entries().collect::<Result<_, _>>().expect("whole");
    let mut marks = 0;
    for mark in entries.iter().map(|e| e.mark.as_str()).filter(|m| !m.is_empty()) {
        let files = &manifest["expected_at_mark"][mark];
        if !files.is_array() {
            continue;
        }
        let (medium, _) = log.replay(Until::Mark(mark)).expect("a mark of the log");
        let view = MediumView { medium, start: Sector(0), bytes: 64 << 20 };
        let done = compare(mark, &view, files);
        println!("{mark}: {done}");
        marks += 1;
    }
    assert!(marks >= 7, "{marks}");
}

/// Lines of `lscp` of the recovered image: number, kind, blocks, inodes.
#[test]
fn checkpoints_are_those_that_lscp_lists() {
    for name in IMAGES {
        let Some((bytes, _)) = reference("nilfs2 checkpoints", name) else { return };
        let bytes = Bytes(bytes);
        let overlay = Overlay::new(&bytes);
        recover(&overlay, &RecoverOptions::default()).expect("recovered");
        let image = Image::open(&overlay).expect("an image");
        let ours: Vec<String> = image
            .checkpoints()
            .expect("checkpoints")
            .iter()
            .map(|c| {
                let kind = if c.is_snapshot() { "ss" } else { "cp" };
                let (blocks, inodes) = (c.blocks_count.get(), c.inodes_count.get());
                format!("{} {kind} {blocks} {inodes}", c.cno.get())
            })
            .collect();
        let text = std::fs::read_to_string(reference::folder().join(name).join("lscp.txt"));
        let text = text.expect("a list");
        let theirs: Vec<String> = text
            .lines()
            .skip(1)
            .map(|l| {
                let words: Vec<&str> = l.split_whitespace().collect();
                format!("{} {} {} {}", words[0], words[3], words[5], words[6])
            })
            .collect();
        assert_eq!(ours, theirs, "{name}");
        for c in &theirs {
            let cno = c.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
            let at = Image::open_checkpoint(&overlay, cno).expect("a checkpoint");
            let (_, findings) = list(&at, &InspectOptions::default());
            assert_eq!(findings, [], "{name} at {cno}");
        }
    }
}

/// The logs of the first segments in the words of `dumpseg`, without times.
fn dump(image: &Image<'_>, segment: u64) -> String {
    let g = image.geometry();
    let (mut start, end) = g.segment(segment);
    let mut out = format!("segment: segnum = {segment}\n");
    let mut seq = None;
    while start < end {
        let first = image.read_block(start, "log").expect("a block");
        let head = SummaryHead::load(&first);
        let is_next = seq.is_none_or(|s| s == head.seq.get());
        if head.magic.get() != SummaryHead::MAGIC || !is_next {
            break;
        }
        if seq.is_none() {
            let next = g.segment_of(head.next.get());
            let number = head.seq.get();
            out += &format!("  sequence number = {number}, next segnum = {next}\n");
        }
        seq = Some(head.seq.get());
        let used = head.summary_blocks(g);
        let blocks = (start..start + used).map(|b| image.read_block(b, "log").expect("a block"));
        let summary = Summary::load(&blocks.collect::<Vec<_>>().concat(), g, 0).expect("a summary");
        let n = head.nblocks.get();
        out += &format!("  partial segment: blocknr = {start}, nblocks = {n}\n");
        out += &format!("    nfinfo = {}\n", summary.files.len());
        let mut place = start + used;
        for f in &summary.files {
            let (ino, cno) = (f.ino, f.cno);
            let (all, data) = (f.data.len() + f.nodes.len(), f.data.len());
            out += "    finfo\n";
            out += &format!("      ino = {ino}, cno = {cno}, nblocks = {all}, ndatblk = {data}\n");
            for (i, b) in f.data.iter().chain(&f.nodes).enumerate() {
                let (v, at) = (b.virtual_block, b.offset);
                out += &match (ino, b.level) {
                    (3, 0) => format!("        blkoff = {at}, blocknr = {place}\n"),
                    (3, l) => format!("        blkoff = {at}, level = {l}, blocknr = {place}\n"),
                    _ if i >= data => format!("        vblocknr = {v}, blocknr = {place}\n"),
                    _ => format!("        vblocknr = {v}, blkoff = {at}, blocknr = {place}\n"),
                };
                place += 1;
            }
        }
        start += u64::from(n);
    }
    out
}

#[test]
fn logs_are_those_that_dumpseg_lists() {
    for name in IMAGES {
        let Some((bytes, _)) = reference("nilfs2 logs", name) else { return };
        let bytes = Bytes(bytes);
        let overlay = Overlay::new(&bytes);
        recover(&overlay, &RecoverOptions::default()).expect("recovered");
        let image = Image::open(&overlay).expect("an image");
        let text = std::fs::read_to_string(reference::folder().join(name).join("dumpseg.txt"));
        let text = text.expect("a list");
        let times = |l: &&str| !l.trim_start().starts_with("creation time");
        let theirs: Vec<&str> = text.lines().filter(times).collect();
        let ours: String = (0..4).map(|n| dump(&image, n)).collect();
        for (n, (a, b)) in ours.lines().zip(&theirs).enumerate() {
            assert_eq!(a, *b, "{name}, line {n}");
        }
        assert_eq!(ours.lines().count(), theirs.len(), "{name}");
    }
}

/// Lines of `lssu` of the recovered image: segments in use, and how far.
#[test]
fn segments_are_used_as_lssu_lists() {
    for name in IMAGES {
        let Some((bytes, _)) = reference("nilfs2 segments", name) else { return };
        let bytes = Bytes(bytes);
        let overlay = Overlay::new(&bytes);
        recover(&overlay, &RecoverOptions::default()).expect("recovered");
        let image = Image::open(&overlay).expect("an image");
        let tip = image.tip().root;
        let ours: Vec<String> = (0..image.geometry().segments)
            .filter_map(|n| {
                let usage = image.usage(n).expect("a usage");
                let is_active = n == tip.segment || n == tip.next_segment;
                let active = if is_active { 'a' } else { '-' };
                let blocks = usage.nblocks.get();
                (!usage.is_clean()).then(|| format!("{n} {active}d- {blocks}"))
            })
            .collect();
        let text = std::fs::read_to_string(reference::folder().join(name).join("lssu.txt"));
        let text = text.expect("a list");
        let theirs: Vec<String> = text
            .lines()
            .filter(|l| l.starts_with(' ') && !l.contains("SEGNUM"))
            .map(|l| {
                let words: Vec<&str> = l.split_whitespace().collect();
                format!("{} {} {}", words[0], words[3], words[4])
            })
            .collect();
        assert_eq!(ours, theirs, "{name}");
        let head = image.usage_header().expect("a head");
        assert_eq!(head.ndirtysegs.get(), theirs.len() as u64, "{name}");
    }
}
