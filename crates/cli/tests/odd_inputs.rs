//! Inputs that are not what they are named for: too large, no text, a device; names that are more
//! than a line.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};

/// A file name that clears the terminal, and has a line of its own.
const NAME: &str = "a\nb\x1b[2J";

fn run(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_writepath"));
    command.args(args).current_dir(dir).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn has(tool: &str) -> bool {
    let there = Command::new(tool).arg("-V").output().is_ok();
    if !there {
        wp_machine::testing::skipped("an image with odd names", tool);
    }
    there
}

#[test]
fn a_file_of_a_terabyte_is_refused_by_name_before_it_is_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    File::create(at.join("huge")).and_then(|f| f.set_len(1 << 40)).expect("sparse");
    fs::create_dir(at.join("result")).expect("made");
    for args in [
        "diff huge result",
        "trace huge",
        "explain huge",
        "run huge",
        "check huge",
        "fio check huge",
        "filebench check huge",
        "run --workload fio,job=huge",
        "run --device file:huge",
        "crash huge",
        "crash seq-1 --known huge",
        "inspect huge --zones huge",
        "device zn540-4tb --points huge",
        "calibrate --class ssd huge",
        "compare huge huge",
        "replay huge",
    ] {
        // Whoever reads all of it needs more memory than this.
        let limited = format!("ulimit -v 4000000; exec \"$0\" {args}");
        let mut command = Command::new("timeout");
        command.args(["20", "sh", "-c", &limited, env!("CARGO_BIN_EXE_writepath")]);
        let output = command.current_dir(at).output().expect("it starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {said}");
        assert!(said.contains("huge") && !said.contains("memory"), "{args}: {said}");
    }
}

#[test]
fn a_trace_that_quotes_an_escape_shows_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let line = "fio version 2 iolog\n/dev/sda add\n/dev/sda write 0 \x1b[2J\n";
    fs::write(dir.path().join("t"), line).expect("written");
    let output = run(dir.path(), &["replay", "t"]);
    let said = text(&output.stderr);
    assert!(said.contains("\\x1b[2J") && !said.contains('\x1b'), "{said:?}");
}

#[test]
fn names_stay_within_their_line() {
    if !has("mkfs.ext4") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    fs::create_dir(at.join("from")).expect("made");
    fs::write(at.join("from").join(NAME), "x").expect("written");
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.args(["-q", "-F", "-d", "from", "image", "8M"]).current_dir(at);
    assert!(mkfs.status().expect("it starts").success());
    let output = run(at, &["inspect", "image"]);
    let said = text(&output.stdout);
    assert!(said.contains(" a\\nb\\x1b[2J") && !said.contains('\x1b'), "{said:?}");
    fs::rename(at.join("image"), at.join("a\nforged: all is well")).expect("renamed");
    for verb in ["inspect", "fsck", "recover"] {
        let output = run(at, &[verb, "a\nforged: all is well"]);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(said.contains("a\\nforged"), "{verb}: {said:?}");
        assert!(!said.contains("\nforged"), "{verb}: {said:?}");
    }
}

/// A loop device of a file; it goes with this.
struct Loop(String);

impl Loop {
    fn of(file: &Path) -> Result<Loop, String> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show"]).arg(file);
        let output = command.output().map_err(|e| e.to_string())?;
        match output.status.success() {
            true => Ok(Loop(text(&output.stdout).trim().to_owned())),
            false => Err(text(&output.stderr).trim().to_owned()),
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        drop(Command::new("losetup").args(["--detach", &self.0]).status());
    }
}

#[test]
fn an_image_may_be_a_block_device() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let made = run(at, &["mkfs", "ext4", "image", "--size", "16M"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let device = match Loop::of(&at.join("image")) {
        Ok(device) => device,
        Err(why) => return wp_machine::testing::skipped("images on block devices", &why),
    };
    for verb in ["inspect", "fsck", "recover"] {
        let output = run(at, &[verb, &device.0]);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{verb} {}: {said}", device.0);
    }
    let copied = run(at, &["recover", &device.0, "--to", "copy"]);
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    assert_eq!(fs::metadata(at.join("copy")).expect("there").len(), 16 << 20);
}
