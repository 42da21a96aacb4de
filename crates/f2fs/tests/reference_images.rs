//! Images that real kernels left behind at a power cut: we must find in them what the real kernel
//! found, and fsck.f2fs must find nothing wrong in what we make of them.

use crate::reference;
use crate::skip;
use crate::zoned;
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::images::Bytes;
use crate::reference::{IMAGES, reference};
use serde_json::Value;
use wp_base::Sector;
use wp_f2fs::check::{CheckOptions, check};
use wp_f2fs::image::{
    Image, InspectOptions, Moved, RecoverOptions, Recovery, Rules, list, recover,
};
use wp_medium::write_log::{LogEntry, Until, WriteLog};
use wp_medium::{MediumView, Overlay, View};
use wp_vfs::FileInfo;

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

/// Recovers and compares; what recovery did.
fn compare(case: &str, view: &dyn View, options: &RecoverOptions, files: &Value) -> Recovery {
    let overlay = Overlay::new(view);
    let done = recover(&overlay, options).unwrap_or_else(|e| panic!("{case}: {e}"));
    assert_eq!(done.failed, None, "{case}");
    let image = Image::open(&overlay).expect("a recovered image");
    let (ours, findings) = list(&image, &InspectOptions::default());
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
    // Recovered once, there is nothing left to recover. But without a clean unmount logs leave
    // their zones again, since 6.8.
    let again = Overlay::new(&overlay);
    let twice = recover(&again, &RecoverOptions { oprw: false, ..options.clone() });
    let twice = twice.unwrap_or_else(|e| panic!("{case}, twice: {e}"));
    assert_eq!((twice.nodes_seen, twice.orphans, &twice.failed), (0, 0, &None), "{case}");
    let may_move = options.rules.leave_zones() && !view.zones().is_empty();
    assert!(!twice.is_needed() || may_move, "{case}: {twice}");
    let checked = check(&overlay, &CheckOptions { recover: Some(options.clone()) });
    let findings = checked.unwrap_or_else(|e| panic!("{case}: {e}")).findings;
    assert_eq!(findings, [], "{case}");
    fsck(case, &overlay);
    done
}

/// Lets the real program look at an image on one ordinary device.
fn fsck(case: &str, overlay: &Overlay<'_>) {
    let image = Image::open(overlay).expect("an image");
    let is_zoned = image.geometry().is_zoned || image.geometry().devices.len() > 1;
    if is_zoned || Command::new("fsck.f2fs").arg("-V").output().is_err() {
        return;
    }
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    let bytes = image.geometry().blocks * 4096;
    file.as_file().set_len(bytes).expect("room");
    let mut part = vec![0u8; 1 << 20];
    for at in (0..bytes.min(overlay.len_bytes())).step_by(1 << 20) {
        let n = (bytes - at).min(1 << 20) as usize;
        overlay.read_at(at, &mut part[..n]).expect("within");
        if part[..n].iter().any(|b| *b != 0) {
            file.as_file().write_all_at(&part[..n], at).expect("written");
        }
    }
    let run = Command::new("fsck.f2fs").arg("--dry-run").arg("-d1").arg(file.path()).output();
    let run = run.expect("it runs");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success() && !said.contains("Fail"), "{case}: {said}");
}

#[test]
fn every_image_recovers_to_the_files_of_the_real_kernel() {
    let check = "f2fs recovery";
    for name in IMAGES {
        let Some((bytes, manifest)) = reference(check, name) else { return };
        let bytes = Bytes(bytes);
        let view = zoned::with_zones(name, &bytes);
        let files = &manifest["expected_after_recovery"];
        for (major, minor) in [(5, 14), (6, 1), (6, 12)] {
            let rules = Rules::linux(major, minor);
            let options = RecoverOptions { rules, ..Default::default() };
            let case = format!("{name} by {major}.{minor}");
            let done = compare(&case, &view, &options, files);
            println!("{case}: {done}");
            if !view.zones().is_empty() {
                let moved: Vec<String> = done.zones.moved.iter().map(moved_line).collect();
                // Images are of 6.12; older ones let logs go on that agree with their zones.
                let theirs = kernels_moves(&manifest);
                let is_same = moved == theirs;
                assert!(
                    is_same || (major, minor) < (6, 8) && moved.len() < theirs.len(),
                    "{case}: {moved:?}"
                );
                // Nothing was lost from these zones, so nothing is left out.
                let oprw = RecoverOptions { oprw: true, ..options };
                let done = compare(&format!("{case}, oprw"), &view, &oprw, files);
                let rejected = done.oprw.expect("asked for");
                assert_eq!((rejected.unwritten, rejected.later), (0, 0), "{case}");
                assert!(rejected.addresses_seen > 100, "{case}");
            }
        }
    }
}

fn moved_line(m: &Moved) -> String {
    let (n, (a, b), (c, d)) = (m.log.number(), m.from, m.to);
    format!("curseg[{n}]: [{a:#x},{b:#x}] -> [{c:#x},{d:#x}]")
}

/// What the kernel said about logs that go on elsewhere.
fn kernels_moves(manifest: &Value) -> Vec<String> {
    let lines = manifest["kernel_dmesg"].as_array().expect("messages").iter();
    let lines = lines.filter_map(|l| l.as_str()?.split_once("Assign new section to "));
    lines.map(|(_, what)| what.to_owned()).collect()
}

#[test]
fn every_mark_of_a_write_log_recovers_to_the_files_of_the_real_kernel() {
    let folder = reference::folder().join("iolog-f2fs");
    let Ok(text) = std::fs::read_to_string(folder.join("manifest.json")) else {
        skip::skipped("f2fs recovery at marks", "reference data iolog-f2fs is not here");
        return;
    };
    let manifest: Value = serde_json::from_str(&text).expect("JSON");
    let packed = std::fs::read(folder.join("log.img.zst")).expect("a log");
    let bytes = Bytes(zstd::decode_all(packed.as_slice()).expect("a whole archive"));
    let log = WriteLog::open(&bytes).expect("a log");
    let entries: Vec<LogEntry> = log.entries().collect::<Result<_, _>>().expect("whole");
    let options = RecoverOptions { rules: Rules::linux(6, 1), ..Default::default() };
    let mut marks = 0;
    for mark in entries.iter().map(|e| e.mark.as_str()).filter(|m| !m.is_empty()) {
        let files = &manifest["expected_at_mark"][mark];
        if !files.is_array() {
            continue;
        }
        let (medium, _) = log.replay(Until::Mark(mark)).expect("a mark of the log");
        let view = MediumView { medium, start: Sector(0), bytes: 1 << 40 };
        let done = compare(mark, &view, &options, files);
        println!("{mark}: {done}");
        marks += 1;
    }
    assert!(marks >= 5, "{marks}");
}
