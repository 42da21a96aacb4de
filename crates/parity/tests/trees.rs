//! The programs of `examples/xfstests`: what their calls answer, and a sample of their crash states
//! recovered here and by Linux: what `writepath kernels crash examples/xfstests --guest` does.

use std::path::Path;

use wp_campaign::calls::Calls;
use wp_campaign::folder::{ProgramFile, read};
use wp_campaign::{Bench, play};
use wp_machine::testing::{repository, skipped};
use wp_parity::host_kernel::cannot;
use wp_parity::trees::{Ask, Kernel, agree};
use wp_parity::vtime::Config;
use wp_parity::vtime::config::find;

use crate::guest::guest;
use wp_workload::program::{Program, Step};

fn examples() -> Vec<ProgramFile> {
    read(&repository("examples/xfstests")).expect("programs")
}

/// The first life of a program.
fn first_life(program: &Program) -> Program {
    Program(program.0.iter().take_while(|s| **s != Step::PowerFailure).cloned().collect())
}

#[test]
fn calls_of_the_examples_fail_only_where_the_programs_expect_it() {
    let all = examples();
    assert!(all.len() > 150, "{}", all.len());
    for (fs, options) in [("ext4", "era=6.12.117"), ("btrfs", "")] {
        let entry = wp_machine::registry::find_fs(fs).expect("known");
        let mut bench = Bench::new(entry, options).expect("a machine");
        bench.device_params = vec![("capacity_bytes".to_owned(), 128 << 20)];
        bench.stale = false;
        let mut expected = 0;
        for file in all.iter().filter(|f| f.is_for(fs)) {
            let program = first_life(&file.program);
            let played = play(&bench, &program).expect("played");
            let calls = Calls::of(0, &program, &played.dids);
            // A device that stays bad fails later calls as well, and collapse is not in btrfs.
            let fails = program.0.iter().any(|s| matches!(s, Step::Fail(_)));
            let failed = if fails { calls.unmet } else { calls.failed };
            assert_eq!(failed, 0, "{} on {fs}: {:?}", file.name, calls.first);
            expected += calls.expected;
        }
        assert!(expected > 3, "{fs}: {expected}");
    }
}

/// A folder for images.
fn in_memory() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let place = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    tempfile::tempdir_in(place).expect("a directory")
}

/// Every `n`th program, in these configurations.
fn sample(n: usize, configs: &[&str]) -> (Vec<ProgramFile>, Vec<&'static Config>) {
    let files = examples().into_iter().step_by(n).collect();
    (files, configs.iter().map(|c| find(c).expect("known")).collect())
}

#[test]
fn linux_in_a_guest_recovers_and_runs_the_examples_as_we_do() {
    let check = "linux_in_a_guest_recovers_and_runs_the_examples_as_we_do";
    let guest = match guest(&["ext4", "f2fs", "nilfs2", "btrfs"]) {
        Ok(guest) => guest,
        Err(why) => return skipped(check, &why),
    };
    let names = ["ext4-default", "f2fs-posix", "f2fs-strict", "nilfs2", "btrfs"];
    let (programs, configs) = sample(24, &names);
    let dir = in_memory();
    let ask = Ask { programs: &programs, configs: &configs, each: 1, seed: 1, dir: dir.path() };
    let found = agree(&ask, &Kernel::Guest(guest), &|_, _| true).expect("the guest can");
    assert_eq!(format!("{:?}", found.different), "[]");
    let (trees, own) = found.rows.iter().fold((0, 0), |n, r| (n.0 + r.equal, n.1 + r.own_equal));
    assert!(trees > 40 && own > 15, "{trees} and {own} trees: {:?}", found.rows);
    assert!(found.rows.iter().all(|r| r.files > 5), "{:?}", found.rows);
}

#[test]
fn the_host_kernel_recovers_the_examples_as_we_do() {
    let check = "the_host_kernel_recovers_the_examples_as_we_do";
    let dir = in_memory();
    if let Some(why) = cannot(&dir.path().join("tried")) {
        return skipped(check, &format!("this host cannot mount crash states: {why}"));
    }
    let (programs, configs) = sample(7, &["ext4-default"]);
    let ask = Ask { programs: &programs, configs: &configs, each: 2, seed: 1, dir: dir.path() };
    let found = agree(&ask, &Kernel::Host, &|_, _| true).expect("the host can");
    assert_eq!(format!("{:?}", found.different), "[]");
    assert!(found.rows[0].equal > 40, "{:?}", found.rows);
}
