//! A real kernel on our drive, in our time: the same nanoseconds and the same bytes every time.

#![expect(clippy::unwrap_used, reason = "what cannot be read or run fails the test")]

use wp_lab::testing::skipped;
use wp_serve::drive::Log;
use wp_serve::drive::freeze::Loss;
use wp_serve::kernel_lab::{CutBy, Keep, Kernel, Plan, Report, run};

fn plan() -> Plan {
    Plan {
        fs: "ext4".to_owned(),
        mount: String::new(),
        mkfs: String::new(),
        device: ("ssd-128".to_owned(), vec![("capacity_bytes".to_owned(), 64 << 20)]),
        loss: Loss::Model,
        cycles: 4,
        seed: 1,
        cut: CutBy::Event,
        jobs: 2,
        blocks: 8,
        ops: 4,
        direct: false,
        sync: 0,
    }
}

/// What one run has told, and its trace.
fn once(kernel: &Kernel) -> (Report, String) {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let log = Log::new(Box::new(std::fs::File::create(&trace).unwrap()));
    let report =
        run(kernel, &plan(), dir.path(), Keep { trace: Some(log), ..Keep::default() }, &mut |_| {
            false
        })
        .unwrap();
    (report, std::fs::read_to_string(trace).unwrap())
}

#[test]
fn two_runs_of_a_guest_have_the_same_nanoseconds_and_the_same_trace() {
    const CHECK: &str = "real kernel in virtual time on our drive";
    let kernel = match Kernel::find(None, None) {
        Ok(kernel) => kernel,
        Err(why) => return skipped(CHECK, &why),
    };
    if std::process::Command::new("gcc").arg("--version").output().is_err() {
        return skipped(CHECK, "gcc is missing");
    }
    let (first, trace) = once(&kernel);
    assert_eq!(first.cycles.len(), 4, "{first:?}");
    assert!(first.cycles.iter().all(|c| c.ours.is_some()), "ours recovers beside it: {first:?}");
    assert!(first.is_sound(), "ext4 on a drive that keeps its word loses nothing: {first:?}");
    assert!(first.kernel.starts_with("6."), "{}", first.kernel);
    assert!(trace.lines().count() > 100);
    let (second, again) = once(&kernel);
    assert_eq!(first, second);
    assert!(trace == again, "the traces differ");
}
