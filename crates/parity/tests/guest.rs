//! A real kernel on our drive, in our time: the same nanoseconds and the same bytes every time.

#![expect(clippy::unwrap_used, reason = "what cannot be read or run fails the test")]

use wp_machine::profile::Profile;
use wp_machine::spec::file_system;
use wp_machine::testing::skipped;
use wp_medium::log_order::LogOrder;
use wp_medium::write_log::{LogFlags, write_log};
use wp_parity::kernel_lab::{
    Keep, Kernel, Plan, ProgramError, ProgramPlan, Ran, Report, run, run_program, setup,
};
use wp_parity::roundtrip;
use wp_parity::vtime::config;
use wp_parity::vtime::guest::Guest;
use wp_rt::CpuOp;
use wp_serve::drive::Log;
use wp_workload::program::Program;

fn ext4() -> Plan {
    let device = ("ssd-128".to_owned(), vec![("capacity_bytes".to_owned(), 64 << 20)]);
    Plan { device, cycles: 3, jobs: 2, ..Plan::new("ext4") }
}

/// F2FS on zones of 16 MiB, whose write pointers a cut may set back.
fn f2fs_on_zones(drive: &str, conventional: u64) -> Plan {
    let zones = [
        ("zone_bytes", 16 << 20),
        ("blocks_per_plane", 96),
        ("conventional_zones", conventional),
        ("pages_per_block", 12),
    ];
    let params = zones.map(|(key, value)| (key.to_owned(), value)).to_vec();
    Plan { device: (drive.to_owned(), params), cycles: 3, ..Plan::new("f2fs") }
}

/// What one run has told, and its trace.
fn once(kernel: &Kernel, plan: &Plan) -> (Report, String) {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let log = Log::new(Box::new(std::fs::File::create(&trace).unwrap()));
    let report =
        run(kernel, plan, dir.path(), Keep { trace: Some(log), ..Keep::default() }, &mut |_| false)
            .unwrap();
    (report, std::fs::read_to_string(trace).unwrap())
}

/// The guest of the usual place, if it makes these file systems. Errors: what is missing.
pub(crate) fn guest(fs: &[&str]) -> Result<Kernel, String> {
    let kernel = Kernel::find(None, None)?;
    fs.iter().try_for_each(|fs| kernel.makes(fs))?;
    match std::process::Command::new("gcc").arg("--version").output() {
        Ok(_) => Ok(kernel),
        Err(_) => Err("gcc is missing".to_owned()),
    }
}

/// The guest, or nothing where there is none, of which `check` is told.
fn kernel(check: &str) -> Option<Kernel> {
    guest(&[]).map_err(|why| skipped(check, &why)).ok()
}

/// N27: logs move to fresh zones at a mount with nothing to recover, and no checkpoint says so.
#[test]
fn linux_loses_what_f2fs_fsynced_on_zones_after_a_mount_with_nothing_to_recover() {
    let Some(kernel) = kernel("real F2FS on zones with power-loss protection") else { return };
    let plan = Plan { cycles: 200, blocks: 4, ops: 1, sync: 1, ..f2fs_on_zones("zn540-4tb", 4) };
    let (report, _) = once(&kernel, &plan);
    if !report.kernel.starts_with("6.12.") {
        return skipped("F2FS on zones of Linux 6.12", &format!("the guest is {}", report.kernel));
    }
    assert!(report.count(|c| c.lost > 0) > 0, "{report:?}");
    assert_eq!(report.otherwise(), Some(0), "recovery brings back what Linux brings back");
}

#[test]
fn two_runs_of_a_guest_have_the_same_nanoseconds_and_the_same_trace() {
    const CHECK: &str = "real kernel in virtual time on our drive";
    let Some(kernel) = kernel(CHECK) else { return };
    let charged = Plan { cpu: Profile::find("i7-4770").unwrap(), ..ext4() };
    for plan in [ext4(), charged, f2fs_on_zones("zn540-4tb-noplp", 16)] {
        let (first, trace) = once(&kernel, &plan);
        assert_eq!(first.cycles.len() as u64, plan.cycles, "{first:?}");
        assert!(first.cycles.iter().all(|c| c.ours.is_some()), "ours recovers beside: {first:?}");
        assert!(first.is_sound(), "a drive that keeps its word loses nothing: {first:?}");
        assert!(first.kernel.starts_with("6."), "{}", first.kernel);
        assert!(trace.lines().count() > 100);
        let zoned = plan.fs == "f2fs";
        assert_eq!(first.oprw_garbage().is_some(), zoned, "order preservation is for zones");
        let (second, again) = once(&kernel, &plan);
        assert_eq!(first, second);
        assert!(trace == again, "the traces differ");
    }
}

#[test]
fn what_the_cpu_of_a_guest_costs_is_in_its_fsyncs() {
    let Some(kernel) = kernel("a guest whose CPU is charged") else { return };
    let plan = Plan { jobs: 1, ..ext4() };
    let cpu = Profile::find("i7-4770").unwrap();
    let (free, _) = once(&kernel, &plan);
    let (charged, _) = once(&kernel, &Plan { cpu, ..plan });
    assert_eq!(free.charged, None);
    let border = charged.charged.unwrap();
    assert!(border.requests > 0 && border.answers == border.requests, "{border:?}");
    // The entry, and at least data, log and commit: each to the drive and back, and awaited.
    let costs = cpu.model().profile;
    let [entry, submit, dispatch, answer, wake] = [
        CpuOp::Syscall,
        CpuOp::BioSubmit,
        CpuOp::RequestDispatch,
        CpuOp::Completion,
        CpuOp::ContextSwitch,
    ]
    .map(|op| costs.get(op));
    let longest = |r: &Report| r.cycles.iter().map(|c| c.fsync_longest_ns).max().unwrap();
    let more = longest(&charged).checked_sub(longest(&free)).unwrap();
    let least = entry + 3 * (submit + dispatch + answer + wake);
    assert!((least..4 * least).contains(&more), "{more} ns, at least {least}");
}

/// What `--setup build` makes of the host's programs is all that the other comparisons need.
#[test]
fn a_root_of_this_hosts_programs_runs_programs_mounts_images_and_loses_nothing() {
    let check = "a guest's root of this host's programs";
    let all = ["ext4", "f2fs", "btrfs", "nilfs2", "xfs"];
    let kernel = match guest(&all) {
        Ok(kernel) => kernel,
        Err(why) => return skipped(check, &why),
    };
    let lacks = |p: &str| std::process::Command::new(p).arg("--help").output().is_err();
    // `build` would install what is missing.
    let mkfs = all.map(|fs| format!("mkfs.{fs}"));
    let mut needed = std::iter::once("busybox").chain(mkfs.iter().map(String::as_str));
    let missing = needed.find(|p| lacks(p));
    if let Some(missing) = missing {
        return skipped(check, &format!("{missing} is missing"));
    }
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("guest");
    setup::build(Some(&kernel.binary), None, None, &place).unwrap();
    let ours = Kernel::in_folder(Some(&place)).unwrap();
    let mut looked = setup::look(&ours.binary, &ours.root);
    assert_eq!(looked.missing, []);
    looked.try_out(dir.path(), &mut |_| ());
    assert!(looked.is_usable(), "{}", looked.table());
    assert!(looked.file_systems.iter().filter(|h| h.tried.is_some()).count() >= 2, "{looked:?}");
    // Programs on null_blk devices, and images on loop devices.
    let config = config::find("ext4-default").unwrap();
    let program =
        Program::parse("open 0 a rw,creat\npwrite 0 0 4096 1\n@call:0 fsync 0\n").unwrap();
    let guest = Guest::new(&ours, dir.path()).unwrap();
    let ran = guest.run(100_000, &[(config, &program)]).unwrap();
    assert_eq!(ran[0].as_ref().unwrap().timed.len(), 1, "{ran:?}");
    let (fs, options) = file_system("ext4,era=6.12.117").unwrap();
    let plan = roundtrip::Plan {
        fs,
        options: &options,
        kernel_mount: "",
        seeds: (1, 2),
        zoned: false,
        real_mkfs: None,
        rounds: 1,
    };
    let trips = roundtrip::trips(&ours, &dir.path().join("trips"), &plan).unwrap();
    assert!(trips.iter().all(|t| t.differences.is_empty() && t.files > 0), "{trips:#?}");
}

/// Appends to a file three times, each time with an fsync, and acknowledges that.
const APPENDS: &str = "for n in 1 2 3; do dd if=/dev/zero of=f$n bs=4k count=2 conv=fsync; \
                       echo stored $n >> $WRITEPATH_ACK; done; pwd";

fn program(fs: &str, run: &str) -> ProgramPlan {
    ProgramPlan {
        fs: fs.to_owned(),
        mount: String::new(),
        mkfs: String::new(),
        device: ("ssd-128".to_owned(), vec![("capacity_bytes".to_owned(), 512 << 20)]),
        setup: None,
        run: run.to_owned(),
        folders: vec![std::env::current_dir().unwrap()],
        rest_s: 60,
        cpu: Profile::find("free").unwrap(),
        limit: std::time::Duration::from_secs(120),
    }
}

fn ran(kernel: &Kernel, plan: &ProgramPlan) -> Result<Ran, ProgramError> {
    let dir = tempfile::tempdir().unwrap();
    run_program(kernel, plan, dir.path(), None, &mut || false)
}

#[test]
fn two_runs_of_a_program_in_a_guest_send_the_drive_the_same_bytes() {
    let Some(kernel) = kernel("a program of the host in a guest, twice") else { return };
    for fs in ["ext4", "xfs", "btrfs", "f2fs", "nilfs2"] {
        let plan = program(fs, APPENDS);
        let log = || {
            let ran = ran(&kernel, &plan).unwrap();
            assert_eq!((ran.code, ran.acks.len()), (0, 3), "{fs}: {}", ran.output);
            assert!(ran.output.contains(plan.place().unwrap()), "{fs}: {}", ran.output);
            let mut log = Vec::new();
            write_log(&mut log, ran.sector_bytes, &ran.writes).unwrap();
            (ran.kernel, ran.ended_ns, log)
        };
        assert!(log() == log(), "{fs}: two runs differ");
    }
}

/// Memory lies over /tmp in the guest; whoever works in that very folder has its files all the
/// same.
#[test]
fn files_of_a_folder_under_memory_are_in_the_guest() {
    let Some(kernel) = kernel("a program of a guest in /tmp") else { return };
    let file = tempfile::NamedTempFile::new_in("/tmp").unwrap();
    std::fs::write(file.path(), "here").unwrap();
    let run = format!("cd /tmp; cat {}; echo more > own; cat own", file.path().display());
    let plan = ProgramPlan { folders: vec!["/tmp".into()], ..program("ext4", &run) };
    let ran = ran(&kernel, &plan).unwrap();
    assert_eq!((ran.code, ran.output.as_str()), (0, "heremore\n"));
}

/// The line of an acknowledgement stands behind all that the fsync before it has waited for, and
/// before all that comes later.
#[test]
fn an_acknowledgement_has_its_place_among_the_requests_of_the_drive() {
    let Some(kernel) = kernel("acknowledgements of a guest's program") else { return };
    let ran = ran(&kernel, &program("ext4", APPENDS)).unwrap();
    let log = ran.recorded();
    let place = |text: &str| log.iter().position(|e| e.mark == text).unwrap();
    for (n, next) in [("stored 1", "stored 2"), ("stored 2", "stored 3")] {
        let (here, next) = (place(n), place(next));
        let sent = |from: usize, to: usize| {
            let orders: Vec<LogOrder> = log[from..to].iter().filter_map(LogOrder::of).collect();
            let submits = orders.iter().filter(|o| matches!(o, LogOrder::Submit(_))).count();
            (submits, orders.len() - submits)
        };
        let (submitted, completed) = sent(here, next);
        assert!(submitted > 0, "an fsync between {here} and {next}");
        assert_eq!(submitted, completed, "nothing is in flight when it is acknowledged");
        let last = log[..here].last().unwrap();
        assert!(last.flags.has(LogFlags::FLUSH), "{last:?}: the fsync's FLUSH is the last");
    }
}

#[test]
fn what_keeps_a_program_from_its_end_is_told_with_its_output() {
    let Some(kernel) = kernel("programs of a guest that do not end well") else { return };
    let setup = Some("echo no room; exit 7".to_owned());
    let failed = ran(&kernel, &ProgramPlan { setup, ..program("ext4", "true") });
    assert_eq!(failed.unwrap_err(), ProgramError::Setup(7, "no room\n".to_owned()));
    let limit = std::time::Duration::from_secs(4);
    let spins = ProgramPlan { limit, ..program("ext4", "while :; do :; done") };
    assert_eq!(ran(&kernel, &spins).unwrap_err(), ProgramError::TooLong(limit, String::new()));
    let own = ran(&kernel, &program("ext4", "echo oops >&2; exit 3")).unwrap();
    assert_eq!((own.code, own.output.as_str()), (3, "oops\n"));
    let mount = ProgramPlan { mount: "no_such_option".to_owned(), ..program("ext4", "true") };
    match ran(&kernel, &mount).unwrap_err() {
        ProgramError::Guest(why) => assert!(why.contains("no_such_option"), "{why}"),
        other => panic!("{other:?}"),
    }
}
