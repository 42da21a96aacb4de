//! Every field of every structure, damaged on its own: what fsck.f2fs finds, we find.
//!
//! Picture:    an image of mkfs.f2fs and sload.f2fs, or of ours -> [`Places`]: each field of each
//!             structure -> one of [`VALUES`] in a third of them (`WRITEPATH_FIELDS=all`: each in
//!             all), its checksum made right -> both checks. What fsck.f2fs finds alone is wrong.

mod places;

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use wp_f2fs::check::{CheckOptions, Kind, check};
use wp_f2fs::disk::{Checkpoint, Checksums, Geometry, SuperBlock, ZERO_BLOCK};
use wp_f2fs::image::Image;
use wp_medium::{Slice, View};
use wp_vfs::{OpenFlags, Vfs, XattrSet};

use crate::images::Bytes;
use crate::tools;
use crate::world::{Setup, World, save};
use places::{Place, Places, Seal};

/// What a field is set to: from what it was, and its bytes.
type Value = (&'static str, fn(u64, usize) -> u64);

/// All of them.
const VALUES: [Value; 8] = [
    ("one more", |v, _| v.wrapping_add(1)),
    ("all ones", |_, _| u64::MAX),
    ("one less", |v, _| v.wrapping_sub(1)),
    ("0", |_, _| 0),
    ("bit 2 flipped", |v, _| v ^ 4),
    ("highest bit flipped", |v, bytes| v ^ 1 << (8 * bytes - 1)),
    ("1000 more", |v, _| v.wrapping_add(1000)),
    ("`/`", |_, _| 0x2F),
];

struct Bench {
    bytes: Bytes,
    file: tempfile::NamedTempFile,
}

impl Bench {
    fn of(file: tempfile::NamedTempFile) -> Bench {
        Bench { bytes: Bytes(std::fs::read(file.path()).expect("read")), file }
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.bytes.0[at as usize..][..bytes.len()].copy_from_slice(bytes);
        self.file.as_file().write_all_at(bytes, at).expect("written");
    }

    fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        self.bytes.0[at as usize..][..len].to_vec()
    }

    fn ours(&self) -> Vec<Kind> {
        let report = check(&self.bytes, &CheckOptions::default()).expect("it is read");
        report.findings.iter().map(|f| f.kind).collect()
    }

    /// What fsck.f2fs complains of.
    fn theirs(&self) -> Vec<String> {
        let mut run = Command::new("timeout");
        run.args(["20", "fsck.f2fs", "--dry-run"]).arg(self.file.path());
        let out = run.output().expect("it runs");
        let said = [out.stdout, out.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        let is_complaint = |l: &&str| ["[Fail]", "[ASSERT]", "[FIX]"].iter().any(|w| l.contains(w));
        let mut found: Vec<String> = said.lines().filter(is_complaint).map(str::to_owned).collect();
        if !out.status.success() {
            found.push(format!("{}", out.status));
        }
        found
    }

    /// Puts a value in a place, and makes the checksum right. What was there before.
    fn damage(&mut self, place: &Place, value: &[u8], pack: (u64, u64)) -> Vec<(u64, Vec<u8>)> {
        let block_at = place.at / 4096 * 4096;
        let mut before = vec![(block_at, self.bytes(block_at, 4096)), (0, self.bytes(0, 8192))];
        self.put(place.at, value);
        let mut block = ZERO_BLOCK;
        self.bytes.read_at(block_at, &mut block).expect("within");
        match place.seal {
            Seal::Nothing => {}
            Seal::Super => {
                let mut sb = SuperBlock::load(&block);
                // Where the checksum stands is not made right.
                if place.field != "super.checksum_offset" {
                    sb.seal();
                }
                sb.store(&mut block);
                self.put(0, &block);
                self.put(4096, &block);
            }
            Seal::Pack => {
                let (start, last) = pack;
                before.push((last, self.bytes(last, 4096)));
                let mut cp = Checkpoint::new(&block, 0);
                if (192..=4092).contains(&cp.head().checksum_offset.get()) {
                    cp.seal();
                }
                self.put(start, &cp.block(0));
                self.put(last, &cp.block(0));
            }
            Seal::Inode => {
                let mut first = ZERO_BLOCK;
                self.bytes.read_at(0, &mut first).expect("within");
                Checksums::of(&SuperBlock::load(&first)).seal_inode(&mut block);
                self.put(block_at, &block);
            }
        }
        before
    }
}

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(dir.join(name), bytes).expect("written");
}

/// A tree, loaded by the real programs.
fn loaded(features: &[&str]) -> Option<Bench> {
    for tool in ["fsck.f2fs", "mkfs.f2fs", "sload.f2fs"] {
        if !tools::has_tool("fields of F2FS against fsck.f2fs", tool) {
            return None;
        }
    }
    let tree = tempfile::tempdir().expect("a directory");
    let dir = tree.path();
    std::fs::create_dir_all(dir.join("dir/below")).expect("made");
    write(dir, "small", b"inline");
    write(dir, "blocks", &[7; 3 * 4096]);
    write(dir, "nodes", &vec![9; 1100 * 4096]);
    (0..300).for_each(|n| write(dir, &format!("dir/a-name-of-some-length-{n}"), b""));
    write(dir, "dir/below/last", b"x");
    std::os::unix::fs::symlink("small", dir.join("link")).expect("made");
    std::fs::hard_link(dir.join("blocks"), dir.join("dir/hard")).expect("made");
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    file.as_file().set_len(100 << 20).expect("sized");
    let mut mkfs = Command::new("mkfs.f2fs");
    mkfs.arg("-f");
    if !features.is_empty() {
        mkfs.args(["-O", &features.join(",")]);
    }
    assert!(mkfs.arg(file.path()).output().expect("runs").status.success());
    // With some features it is not content with what it made, which is sound afterwards.
    Command::new("sload.f2fs").arg("-f").arg(dir).arg(file.path()).output().expect("runs");
    Some(Bench::of(file))
}

async fn file(v: &Vfs, name: &str, bytes: u64) {
    let fd = v.open(name, OpenFlags::CREATE, 0o644).await.expect("opens");
    v.pwrite(fd, 0, &[Slice::pattern(1, 0, bytes as u32)]).await.expect("writes");
    v.close(fd).await.expect("closes");
}

/// A tree of our own, unmounted.
fn ours(features: &'static [&'static str]) -> Option<Bench> {
    if !tools::has_tool("fields of F2FS against fsck.f2fs", "fsck.f2fs") {
        return None;
    }
    let setup = Setup { features, mib: 64, ..Setup::new("6.18") };
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        v.mkdir("inline", 0o755).await.expect("makes");
        v.mkdir("dir", 0o755).await.expect("makes");
        v.mkdir("dir/below", 0o755).await.expect("makes");
        file(&v, "small", 100).await;
        file(&v, "blocks", 3 * 4096).await;
        file(&v, "nodes", 1100 * 4096).await;
        for n in 0..300 {
            file(&v, &format!("dir/a-name-of-some-length-{n}"), 0).await;
        }
        file(&v, "inline/one", 10).await;
        v.link("blocks", "inline/hard").await.expect("links");
        v.symlink("small", "link").await.expect("links");
        for n in 0..4 {
            let name = format!("user.attribute-{n}");
            let value = vec![7; 40];
            v.set_xattr("blocks", &name, &value, XattrSet::Any).await.expect("sets");
        }
    });
    w.unmount(&vfs);
    let scratch = tempfile::NamedTempFile::new().expect("a scratch file");
    save(&w.medium(), setup.mib, scratch.path());
    drop(vfs);
    w.end();
    Some(Bench::of(scratch))
}

/// Verdicts on the damages of a field.
#[derive(Default)]
struct Row {
    both: u32,
    neither: u32,
    alone: Vec<String>,
}

/// Damages an image field by field, and compares. Rows of the table, by field.
fn compare(mut bench: Bench, what: &str, rows: &mut BTreeMap<String, Row>) {
    assert_eq!(bench.ours(), [], "{what}, ours");
    assert_eq!(bench.theirs(), [""; 0], "{what}, theirs");
    let copy = Bytes(bench.bytes.0.clone());
    let image = Image::open(&copy).expect("opens");
    let start = image.geometry().pack(image.is_second_pack());
    let last = start + image.checkpoint().head().cp_pack_total_block_count.get() - 1;
    let pack = (Geometry::byte_of(start), Geometry::byte_of(last));
    let all = std::env::var_os("WRITEPATH_FIELDS").is_some();
    for (n, place) in Places::of(&image).iter().enumerate() {
        // Another third of them in each image.
        if !all && n % 3 != what.len() % 3 {
            continue;
        }
        let mut word = [0; 8];
        word[..place.bytes].copy_from_slice(&bench.bytes(place.at, place.bytes));
        let old = u64::from_le_bytes(word);
        let values = VALUES.iter().filter(|v| v.0 != "`/`" || place.field.contains("byte"));
        let values: Vec<&Value> = values.collect();
        let chosen = if all { 0..values.len() } else { n % values.len()..n % values.len() + 1 };
        for (how, value) in &values[chosen] {
            let new = &value(old, place.bytes).to_le_bytes()[..place.bytes];
            if *new == word[..place.bytes] {
                continue;
            }
            let before = bench.damage(place, new, pack);
            let (ours, theirs) = (bench.ours(), bench.theirs());
            before.iter().rev().for_each(|(at, bytes)| bench.put(*at, bytes));
            let row = rows.entry(place.field.clone()).or_default();
            match (ours.first(), theirs.first()) {
                (Some(_), Some(_)) => row.both += 1,
                (None, None) => row.neither += 1,
                (Some(kind), None) => row.alone.push(format!("ours {how}: {}", kind.name())),
                (None, Some(line)) => {
                    let whose = &place.whose;
                    row.alone.push(format!("theirs {what} {whose} {how} (was {old:#x}): {line}"));
                }
            }
        }
    }
    assert_eq!(bench.ours(), [], "{what}: all is undone");
}

/// Compares all of an image, and prints the table.
fn judge(bench: Option<Bench>, what: &str) {
    let Some(bench) = bench else { return };
    let mut rows = BTreeMap::new();
    compare(bench, what, &mut rows);
    let mut wrong = Vec::new();
    println!("{:40} {:>5} {:>8} {:>5}", "field", "both", "neither", "alone");
    for (field, row) in &rows {
        println!("{field:40} {:5} {:8} {:5}", row.both, row.neither, row.alone.len());
        let alone = row.alone.iter().filter(|a| a.starts_with("theirs"));
        wrong.extend(alone.map(|a| format!("{field}: {a}")));
    }
    assert!(wrong.is_empty(), "{} that only fsck.f2fs finds:\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows.values().map(|r| r.both).sum::<u32>() > 50, "it damages something");
}

#[test]
fn what_fsck_f2fs_finds_in_an_image_of_its_own_we_find() {
    judge(loaded(&[]), "mkfs.f2fs");
}

#[test]
fn what_fsck_f2fs_finds_in_an_image_of_its_own_with_features_we_find() {
    let features =
        ["extra_attr", "inode_checksum", "sb_checksum", "flexible_inline_xattr", "lost_found"];
    judge(loaded(&features), "mkfs.f2fs with features");
}

#[test]
fn what_fsck_f2fs_finds_in_an_image_of_ours_we_find() {
    judge(ours(&[]), "ours");
}

#[test]
fn what_fsck_f2fs_finds_in_an_image_of_ours_with_features_we_find() {
    judge(ours(&["extra_attr", "inode_checksum"]), "ours with features");
}
