//! Images in containers: every verb says of them what it says of the raw image, and what `recover`
//! writes is a raw image.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use wp_machine::testing::skipped;

/// A crashed ext4 of 64 MiB, whose log has all of its files.
const CRASHED: &[u8] = include_bytes!("testdata/crashed-ext4.img.zst");
const MIB: usize = 1 << 20;

/// Exit code, stdout and stderr of a command in `dir`.
fn run(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_writepath"));
    let output = command.args(args).current_dir(dir).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// Packs the file `raw` in `dir`. `false`, after saying that `check` was skipped: a tool is
/// missing.
fn packed(dir: &Path, check: &str, line: &str) -> bool {
    let done = Command::new("sh").args(["-c", line]).current_dir(dir).status().expect("sh");
    if !done.success() {
        let name = line.split(' ').next().unwrap_or("a tool");
        skipped(check, &format!("{name} is missing"));
    }
    done.success()
}

/// An Android sparse image with a chunk for each MiB.
fn android(raw: &[u8]) -> Vec<u8> {
    let mut out = b"\x3a\xff\x26\xed\x01\0\0\0\x1c\0\x0c\0\0\x10\0\0".to_vec();
    let chunks: Vec<&[u8]> = raw.chunks(MIB).collect();
    out.extend((raw.len() as u32 / 4096).to_le_bytes());
    out.extend((chunks.len() as u32).to_le_bytes());
    out.extend([0; 4]);
    for chunk in chunks {
        let is_hole = chunk.iter().all(|b| *b == 0);
        let (kind, bytes): (u32, &[u8]) = if is_hole { (0xcac3, &[]) } else { (0xcac1, chunk) };
        out.extend(kind.to_le_bytes());
        out.extend((chunk.len() as u32 / 4096).to_le_bytes());
        out.extend((12 + bytes.len() as u32).to_le_bytes());
        out.extend(bytes);
    }
    out
}

/// A qcow2 image of version 3 in clusters of 64 KiB.
fn qcow2(raw: &[u8]) -> Vec<u8> {
    const CLUSTER: usize = 65536;
    let mut out = b"QFI\xfb\0\0\0\x03".to_vec();
    out.resize(112, 0);
    out[20..24].copy_from_slice(&16u32.to_be_bytes());
    out[24..32].copy_from_slice(&(raw.len() as u64).to_be_bytes());
    out[36..40].copy_from_slice(&1u32.to_be_bytes());
    out[40..48].copy_from_slice(&(CLUSTER as u64).to_be_bytes());
    out[100..104].copy_from_slice(&112u32.to_be_bytes());
    out.resize(3 * CLUSTER, 0);
    out[CLUSTER..][..8].copy_from_slice(&((1u64 << 63) | (2 * CLUSTER as u64)).to_be_bytes());
    for (n, cluster) in raw.chunks(CLUSTER).enumerate() {
        if cluster.iter().any(|b| *b != 0) {
            let entry = (1u64 << 63) | out.len() as u64;
            out[2 * CLUSTER + n * 8..][..8].copy_from_slice(&entry.to_be_bytes());
            out.extend(cluster);
        }
    }
    out
}

#[test]
fn every_verb_reads_an_image_in_a_container_as_the_raw_image() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let raw = zstd::decode_all(CRASHED).expect("it is packed");
    fs::write(at.join("raw"), &raw).expect("written");
    let outcome = |image: &str| {
        let verbs: [&[&str]; 4] = [
            &["inspect", "--hash", image],
            &["fsck", image],
            &["fsck", "--recover", image],
            &["recover", image, "--to", "copy"],
        ];
        let said = verbs.map(|verb| {
            let (code, stdout, stderr) = run(at, verb);
            (code, stdout.replace(image, "IMAGE"), stderr.replace(image, "IMAGE"))
        });
        let copy = fs::read(at.join("copy")).expect("a raw image");
        fs::remove_file(at.join("copy")).expect("removed");
        (said, copy)
    };
    let (right, copy) = outcome("raw");
    assert_eq!(right[0].0, 0, "{}", right[0].2);
    assert_eq!(copy.len(), raw.len());
    fs::write(at.join("x.img.zst"), CRASHED).expect("written");
    fs::write(at.join("x.simg"), android(&raw)).expect("written");
    fs::write(at.join("x.qcow2"), qcow2(&raw)).expect("written");
    let mut images = vec!["x.img.zst", "x.simg", "x.qcow2"];
    for (image, line) in [
        ("x.img.gz", "gzip -c raw > x.img.gz"),
        ("x.img.xz", "xz -0c raw > x.img.xz"),
        ("x.simg.gz", "gzip -c x.simg > x.simg.gz"),
        ("y.qcow2", "qemu-img convert -c -O qcow2 raw y.qcow2"),
        ("z.qcow2", "qemu-img convert -o compat=0.10 -O qcow2 raw z.qcow2"),
    ] {
        if packed(at, &format!("containers: {image}"), line) {
            images.push(image);
        }
    }
    for image in images {
        let before = fs::read(at.join(image)).expect("there");
        let (said, recovered) = outcome(image);
        assert_eq!(said, right, "{image}");
        assert!(recovered == copy, "{image}: another recovered image");
        // In place there is no place for it.
        let (code, _, err) = run(at, &["recover", image]);
        assert_eq!((code, err.contains("--to NEW")), (2, true), "{image}: {err}");
        assert!(fs::read(at.join(image)).expect("there") == before, "{image} is as it was");
    }
    assert_eq!(fs::read(at.join("raw")).expect("there").len(), raw.len());
}

#[test]
fn a_run_mounts_an_image_in_a_container() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    assert_eq!(run(at, &["mkfs", "ext4", "raw", "--size", "64M"]).0, 0);
    let raw = fs::read(at.join("raw")).expect("there");
    fs::write(at.join("x.qcow2"), qcow2(&raw)).expect("written");
    let hash = |image: &str, out: &str| {
        let device = ["--fs", "ext4", "--device", "fixed", "--partition-size", "64M"];
        let run_it = ["run", "--image", image, "--workload", "create-delete,n=5", "--out", out];
        let (code, _, err) = run(at, &[&run_it[..], &device, &["--save-image", "after"]].concat());
        assert_eq!(code, 0, "{err}");
        let after = fs::read(at.join("after")).expect("saved");
        fs::remove_file(at.join("after")).expect("removed");
        after
    };
    assert!(hash("raw", "a") == hash("x.qcow2", "b"));
}

#[test]
fn a_damaged_container_is_one_error_with_the_file_and_the_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let cut = &CRASHED[..CRASHED.len() / 2];
    fs::write(at.join("x.zst"), cut).expect("written");
    let mut bad = qcow2(&[7; 65536]);
    bad[2 * 65536 + 6] = 0x12;
    fs::write(at.join("x.qcow2"), bad).expect("written");
    let mut backed = qcow2(&[7; 65536]);
    backed[15] = 200;
    fs::write(at.join("b.qcow2"), backed).expect("written");
    for (image, exit, says) in [
        ("x.zst", 1, format!("x.zst: a zstd file, damaged at byte {}: ", cut.len())),
        ("x.qcow2", 1, "x.qcow2: a qcow2 image, damaged at byte 131072: ".to_owned()),
        ("b.qcow2", 3, "b.qcow2: a qcow2 image with a backing file is not supp".to_owned()),
    ] {
        for verb in [&["inspect", image][..], &["fsck", image], &["recover", image, "--to", "y"]] {
            let (code, stdout, err) = run(at, verb);
            assert_eq!((code, stdout.as_str()), (exit, ""), "{verb:?}: {err}");
            assert!(err.contains(&says), "{verb:?}: {err}");
            assert!(!at.join("y").exists(), "{verb:?}");
        }
    }
    // A file that grows without end is no image of any use.
    let zeroes = File::create(at.join("zeroes")).expect("made");
    zeroes.set_len(2 << 30).expect("sparse");
    zeroes.write_all_at(&[1], 0).expect("written");
    if packed(at, "containers: zeroes", "gzip -1 -c zeroes > zeroes.gz") {
        let (code, _, err) = run(at, &["inspect", "zeroes.gz"]);
        assert_eq!((code, err.contains("no known file system")), (1, true), "{err}");
    }
}
