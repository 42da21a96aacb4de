//! Extended attributes beside the kernel of this host: the same calls on the same image give the
//! same answers, and each reads what the other wrote.

use std::io::{Seek, Write};
use std::path::Path;
use std::process::Command;

use super::{LoopMount, can_mount, kernel_tree, load, mkfs, our_tree};
use crate::support::{Setup, World, assert_e2fsck_clean, save, skip};
use wp_base::{FsResult, Rng};
use wp_medium::{Medium, Slice};
use wp_vfs::{OpenFlags, Vfs, XattrSet};

const MIB: u64 = 64;
const FILES: [&str; 6] = ["f0", "f1", "f2", "f3", "d0", "d1"];

/// Runs calls, one a line, below a directory; prints an answer a line.
const HOST: &str = r#"
import errno, os, sys
os.chdir(sys.argv[1])
for line in sys.stdin:
    w = line.rstrip("\n").split(" ")
    try:
        if w[0] == "set":
            how = {"Any": 0, "Create": 1, "Replace": 2}[w[3]]
            os.setxattr(w[1], w[2], bytes.fromhex(w[4]), how)
            out = "ok"
        elif w[0] == "get":
            out = os.getxattr(w[1], w[2]).hex()
        elif w[0] == "rm":
            os.removexattr(w[1], w[2]); out = "ok"
        else:
            out = " ".join(sorted(os.listxattr(w[1])))
    except OSError as e:
        out = "EOPNOTSUPP" if e.errno == 95 else errno.errorcode[e.errno]
    print(out)
"#;

/// What the host answers to these calls. `None`: there is no python3 to ask with.
fn theirs(at: &Path, calls: &[String]) -> Option<Vec<String>> {
    // From a file, so that neither side waits for the other's pipe.
    let mut input = tempfile::tempfile().expect("made");
    input.write_all((calls.join("\n") + "\n").as_bytes()).expect("written");
    input.rewind().expect("rewound");
    let python = Command::new("python3").args(["-c", HOST]).arg(at).stdin(input).output();
    let out = python.ok()?;
    assert!(out.status.success());
    Some(String::from_utf8(out.stdout).expect("text").lines().map(str::to_owned).collect())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

async fn ours(v: &Vfs, call: &str) -> FsResult<String> {
    let w: Vec<&str> = call.split(' ').collect();
    match w[0] {
        "set" => {
            let how = match w[3] {
                "Create" => XattrSet::Create,
                "Replace" => XattrSet::Replace,
                _ => XattrSet::Any,
            };
            let value: Vec<u8> = (0..w[4].len() / 2)
                .map(|i| u8::from_str_radix(&w[4][2 * i..2 * i + 2], 16).expect("hex"))
                .collect();
            v.set_xattr(w[1], w[2], &value, how).await.map(|()| "ok".to_owned())
        }
        "get" => v.get_xattr(w[1], w[2]).await.map(|b| hex(&b)),
        "rm" => v.remove_xattr(w[1], w[2]).await.map(|()| "ok".to_owned()),
        _ => {
            let mut all: Vec<String> = v
                .list_xattrs(w[1])
                .await?
                .iter()
                .map(|n| String::from_utf8_lossy(n).into_owned())
                .collect();
            all.sort();
            Ok(all.join(" "))
        }
    }
}

fn call(rng: &mut Rng) -> String {
    let file = FILES[rng.below(6) as usize];
    let prefix = ["user.", "trusted.", "security.", "user."][rng.below(4) as usize];
    let name = match rng.below(12) {
        0 => format!("{prefix}{}", "n".repeat(200 + rng.below(60) as usize)),
        1 => "nonsense".to_owned(),
        2 => prefix.to_owned(),
        n => format!("{prefix}k{}", n % 4),
    };
    match rng.below(10) {
        0..=5 => {
            let len = match rng.below(6) {
                0 => 0,
                1..=2 => rng.below(40),
                3 => rng.below(400),
                4 => rng.below(3_000),
                _ => rng.below(6_000),
            };
            // Few different values, so that the kernel shares blocks.
            let seed = rng.below(3);
            let value = hex(&Slice::pattern(seed, 0, len as u32).to_vec());
            let how = ["Any", "Any", "Any", "Create", "Replace"][rng.below(5) as usize];
            format!("set {file} {name} {how} {value}")
        }
        6 => format!("get {file} {name}"),
        7..=8 => format!("rm {file} {name}"),
        _ => format!("list {file}"),
    }
}

/// Every attribute of every file, as calls.
fn all_reads(names: &[String]) -> Vec<String> {
    let mut out = Vec::new();
    for f in FILES {
        out.push(format!("list {f}"));
        out.extend(names.iter().map(|n| format!("get {f} {n}")));
    }
    out
}

/// An image where the host made the files, and ran these calls.
fn prepared(args: &str, calls: &[String]) -> Option<(Medium, Vec<String>)> {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    mkfs(&image, MIB, args);
    let mounted = LoopMount::new(&image, dir.path().join("mnt"), "").expect("mounts");
    for f in FILES {
        if f.starts_with('d') {
            std::fs::create_dir(mounted.at.join(f)).expect("made");
        } else {
            std::fs::write(mounted.at.join(f), f).expect("written");
        }
    }
    let answers = theirs(&mounted.at, calls)?;
    drop(mounted);
    Some((load(&image), answers))
}

#[test]
fn attributes_behave_as_on_the_host_kernel_and_each_reads_the_others() {
    if !can_mount("extended attributes beside the host kernel") {
        return;
    }
    for (seed, args) in [
        "-b 4096",
        "-b 1024",
        "-I 128 -b 4096",
        "-I 512 -b 2048",
        "-O ^metadata_csum,uninit_bg,^extents,^64bit -b 1024",
    ]
    .into_iter()
    .enumerate()
    {
        let mut rng = Rng::stream(seed as u64, "attributes");
        let first: Vec<String> = (0..300).map(|_| call(&mut rng)).collect();
        let second: Vec<String> = (0..500).map(|_| call(&mut rng)).collect();
        let mut names: Vec<String> = first
            .iter()
            .chain(&second)
            .filter_map(|c| c.split(' ').nth(2).map(str::to_owned))
            .collect();
        names.sort();
        names.dedup();
        let reads = all_reads(&names);
        let whole: Vec<String> = [&first[..], &second[..], &reads[..]].concat();
        let Some((_, expected)) = prepared(args, &whole) else {
            return skip("extended attributes beside the host kernel", "python3 is not installed");
        };
        // The first calls are the host's, on the image that we go on with.
        let (image, _) = prepared(args, &first).expect("as before");
        let s = Setup { mib: MIB, ..Setup::new("6.1") };
        let w = World::with_image(&s, &image);
        let vfs = w.mount(&s).expect("mounts");
        let v = vfs.clone();
        let (todo, want) = (whole[first.len()..].to_vec(), expected[first.len()..].to_vec());
        w.run(async move {
            for (i, (c, want)) in todo.iter().zip(&want).enumerate() {
                let got = ours(&v, c).await.unwrap_or_else(|e| e.errno().to_owned());
                let short: String = c.chars().take(80).collect();
                assert_eq!(got, *want, "{args}, call {i}: {short}");
            }
        });
        w.unmount(&vfs);
        assert_e2fsck_clean(&w.medium(), MIB, args);
        // The host reads them, and finds all in order afterwards.
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("image");
        save(&w.medium(), MIB, &path);
        let mounted = LoopMount::new(&path, dir.path().join("mnt"), "").expect("mounts");
        let read = theirs(&mounted.at, &reads).expect("python3 was there");
        drop(mounted);
        assert_eq!(read, expected[first.len() + second.len()..], "{args}");
        drop(vfs);
        // Files go with their attributes, shared blocks with their last user; cut anywhere.
        let image = w.medium();
        w.end();
        let w = World::with_image(&s, &image);
        let vfs = w.mount(&s).expect("mounts");
        let v = vfs.clone();
        w.run(async move {
            for f in FILES {
                if f.starts_with('d') {
                    v.rmdir(f).await.expect("removes");
                } else {
                    v.unlink(f).await.expect("removes");
                    let fd = v.open(f, OpenFlags::CREATE, 0o600).await.expect("makes");
                    v.pwrite(fd, 0, &[Slice::pattern(7, 0, 100)]).await.expect("writes");
                    v.fsync(fd).await.expect("syncs");
                    v.close(fd).await.expect("closes");
                    v.set_xattr(f, "user.new", b"of another", XattrSet::Create)
                        .await
                        .expect("sets");
                }
            }
        });
        let now = w.rt.now();
        let crashed = w.queue.with_device(|d| d.crash_view(now)).medium;
        kernel_tree(&crashed, MIB).expect("the kernel recovers it");
        let v = vfs.clone();
        let tree = w.run(async move { our_tree(&v).await });
        w.unmount(&vfs);
        assert_e2fsck_clean(&w.medium(), MIB, args);
        assert_eq!(kernel_tree(&w.medium(), MIB), Ok(tree), "{args}");
        drop(vfs);
        w.end();
    }
}
