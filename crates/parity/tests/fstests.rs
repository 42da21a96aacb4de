//! Tests of xfstests in a guest: several in one boot, and on behind one that ends it. The tests are
//! made here, and so is what runs them: nothing but lines as xfstests' `check` prints them.

#![expect(clippy::unwrap_used, reason = "what cannot be read or run fails the test")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use wp_machine::profile::Profile;
use wp_machine::testing::skipped;
use wp_parity::kernel_lab::fstests::{Checkout, Event, Limits, Tested, Verdict};
use wp_parity::kernel_lab::{Kernel, ProgramError, ProgramPlan};

/// What stands in for `check`: it calls `logger` before each test, and prints what a test says.
const CHECK: &str = r#"#!/bin/bash
[ "$1" = --exact-order ] && shift
for test; do
  printf "%-12s" "$test"
  logger "run xfstest $test"
  . "tests/$test"
done
"#;
/// A test that passes on a file system that is new.
const PASSES: &str = "[ -e $TEST_DIR/old ] && echo ' - an old file' || \
                      { echo > $TEST_DIR/old; sync; echo ' 1s'; }\n";
/// What tests do: one that ends the guest's kernel (reboot(2)), and one that never ends.
const TESTS: [(&str, &str); 7] = [
    ("generic/001", PASSES),
    ("generic/002", "echo '[not run] no reflink'\n"),
    ("generic/003", PASSES),
    ("generic/004", "perl -e 'syscall(169, 0xfee1dead, 672274793, 0x4321fedc, 0)'; sleep 9\n"),
    ("generic/005", "echo '- output mismatch'; echo '    +other'\n"),
    ("generic/006", "sleep 100000\n"),
    ("generic/007", PASSES),
];

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn plan() -> ProgramPlan {
    ProgramPlan {
        fs: "ext4".to_owned(),
        mount: String::new(),
        mkfs: String::new(),
        device: ("ssd-128".to_owned(), vec![("capacity_bytes".to_owned(), 64 << 20)]),
        setup: None,
        run: String::new(),
        folders: Vec::new(),
        rest_s: 0,
        cpu: Profile::find("free").unwrap(),
        limit: Duration::from_secs(120),
    }
}

/// Runs them all; a list for each boot.
fn all(tree: &Checkout, kernel: &Kernel, names: &[String]) -> Vec<Vec<Tested>> {
    let limits = Limits { wall: Duration::from_secs(120), virtual_time: Duration::from_secs(1000) };
    let (mut boots, mut at) = (Vec::new(), 0);
    while at < names.len() {
        let (scratch, mut ended) = (tempfile::tempdir().unwrap(), Vec::new());
        let mut tell = |event: Event| {
            if let Event::Ended(tested) = event {
                ended.push(*tested);
            }
            false
        };
        let tests = (&names[at..], limits);
        at += tree.boot(kernel, &plan(), tests, scratch.path(), &mut tell).unwrap();
        boots.push(ended);
    }
    boots
}

#[test]
fn many_tests_run_in_one_boot_and_the_next_goes_on_behind_one_that_ends_it() {
    let dir = tempfile::tempdir_in(".").unwrap();
    for (name, text) in [("check", CHECK), ("common/preamble", ""), ("ltp/fsstress", "")] {
        write(dir.path(), name, text);
    }
    TESTS.iter().for_each(|(name, text)| write(dir.path(), &format!("tests/{name}"), text));
    let what = "tests of a suite in a guest";
    let found = (Kernel::find(None, None), Checkout::find(dir.path()));
    let (kernel, tree) = match found {
        (Ok(kernel), Ok(tree)) => (kernel, tree),
        (Err(why), _) | (_, Err(why)) => return skipped(what, &why),
    };
    let names: Vec<String> = TESTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let boots = all(&tree, &kernel, &names);
    let verdicts: Vec<Vec<&str>> =
        boots.iter().map(|b| b.iter().map(|t| t.verdict.name()).collect()).collect();
    let first = ["passed", "not run", "passed", "panicked"].as_slice();
    assert_eq!(verdicts, [first, &["failed", "too long"], &["passed"]], "{boots:#?}");
    let tests: Vec<&Tested> = boots.iter().flatten().collect();
    assert!(tests.iter().map(|t| &t.test).eq(&names), "each has an outcome, in order");
    assert_eq!(tests[1].verdict, Verdict::NotRun("no reflink".to_owned()));
    let Verdict::Failed(said) = &tests[4].verdict else { panic!("{:?}", tests[4]) };
    assert_eq!(said, "- output mismatch\n    +other");
    // Its own time alone, and what it wrote: the mkfs, and a file.
    assert!(tests[2].virtual_ns < 60_000_000_000 && tests[2].sent.writes > 0, "{:?}", tests[2]);
    assert!(tests[5].virtual_ns >= 1_000_000_000_000, "{:?}", tests[5]);

    let again = all(&tree, &kernel, &names);
    let of = |boots: &[Vec<Tested>]| -> Vec<(u32, u64)> {
        boots.iter().flatten().map(|t| (t.digest, t.virtual_ns)).collect()
    };
    // A guest that never ends is ended at some time.
    let ends = |mut all: Vec<(u32, u64)>| {
        all[5] = (0, 0);
        all
    };
    assert_eq!(ends(of(&boots)), ends(of(&again)), "two runs of the same tests");
}

#[test]
fn tests_of_which_none_begins_are_an_error_and_an_interruption_is_told() {
    let dir = tempfile::tempdir_in(".").unwrap();
    for (name, text) in [("common/preamble", ""), ("ltp/fsstress", "")] {
        write(dir.path(), name, text);
    }
    write(dir.path(), "check", "#!/bin/bash\necho check: no such group\nexit 1\n");
    write(dir.path(), "tests/generic/001", PASSES);
    let what = "a suite in a guest that does not begin";
    let found = (Kernel::find(None, None), Checkout::find(dir.path()));
    let (kernel, tree) = match found {
        (Ok(kernel), Ok(tree)) => (kernel, tree),
        (Err(why), _) | (_, Err(why)) => return skipped(what, &why),
    };
    let names = ["generic/001".to_owned()];
    let limits = Limits { wall: Duration::from_secs(60), virtual_time: Duration::from_secs(60) };
    let boot = |tell: &mut dyn FnMut(Event) -> bool| {
        let scratch = tempfile::tempdir().unwrap();
        tree.boot(&kernel, &plan(), (&names, limits), scratch.path(), tell).unwrap_err()
    };
    match boot(&mut |_| false) {
        ProgramError::Guest(why) => assert!(why.contains("no such group"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(boot(&mut |_| true), ProgramError::Interrupted);
}
