//! Views of real runs: held against blktrace's own tools, and against what must be true of a path.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use prost::Message;
use wp_base::Sector;
use wp_base::event::{Class, Event, Record};
use wp_block::trace::{TraceDevice, blkparse};
use wp_lab::machine::{Machine, MachineSpec};
use wp_lab::testing::skipped;
use wp_lab::{profile, registry};
use wp_report::{blktrace, explain, latency, perfetto};
use wp_vfs::Options;

const ERAS: [&str; 3] = ["3.4", "3.8", "4.6"];

/// Every event of the paper's program with ten files.
fn records(era: &str, case: &str) -> Vec<Record> {
    let fs = registry::FILE_SYSTEMS[0];
    let workload = registry::WORKLOADS[0];
    let profile = profile::PROFILES.iter().find(|p| p.name == "i7-4770").expect("a profile");
    let (major, minor) = era.split_once('.').expect("major.minor");
    let spec = MachineSpec {
        seed: 1,
        cpu: profile.model(),
        device: "ssd-128".to_owned(),
        device_params: Vec::new(),
        elevator: "cfq".to_owned(),
        start: Sector(2048),
        sectors: Some(512 << 11),
        fs,
        fs_options: Options::parse(&format!("era={era}"), fs.options).expect("an era"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (major.parse().expect("a number"), minor.parse().expect("a number")),
    };
    let options = Options::parse(&format!("n=10,case={case}"), workload.options).expect("known");
    let machine = Machine::new(spec, None).expect("builds");
    let vfs = machine.mount().expect("mounts");
    machine.record(Class::ALL);
    let run = async move { (workload.run)(&vfs, &options).await };
    machine.block_on("w2", run).expect("it ends").expect("it works");
    machine.rt.probe().take()
}

fn classes() -> BTreeMap<usize, String> {
    BTreeMap::new()
}

/// Output of a program, or nothing after the check was skipped by name.
fn tool(check: &str, dir: &Path, program: &str, args: &[&str]) -> Option<String> {
    match Command::new(program).args(args).current_dir(dir).output() {
        Ok(out) => {
            let errors = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(out.status.success(), "{program}: {errors}");
            Some(String::from_utf8(out.stdout).expect("text"))
        }
        Err(_) => {
            skipped(check, &format!("{program} is not installed (package blktrace)"));
            None
        }
    }
}

#[test]
fn blkparse_prints_of_our_binary_trace_what_we_print() {
    for era in ERAS {
        let records = records(era, "extend");
        let dir = tempfile::tempdir().expect("a directory");
        let bytes = blktrace::write(&records, TraceDevice::default());
        std::fs::write(dir.path().join("t.blktrace.0"), &bytes).expect("written");
        let ours = blkparse(&records, TraceDevice::default());
        let again = blktrace::records(&bytes).expect("undamaged");
        assert_eq!(blkparse(&again, TraceDevice::default()), ours);
        let check = "blkparse reads our binary traces";
        let Some(text) = tool(check, dir.path(), "blkparse", &["-i", "t"]) else { return };
        // Behind the events stands a summary; before them, our message at time 0.
        let theirs: Vec<&str> = text
            .lines()
            .take_while(|l| !l.starts_with("CPU"))
            .filter(|l| l.starts_with("  8,16") && !l.contains(" m   N writepath"))
            .collect();
        let ours: Vec<&str> = ours.lines().collect();
        for (n, (o, t)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(o, t, "era {era}, line {n}");
        }
        assert_eq!(ours.len(), theirs.len(), "era {era}");
    }
}

#[test]
fn btt_finds_the_averages_that_we_find() {
    for era in ERAS {
        let records = records(era, "alloc");
        let dir = tempfile::tempdir().expect("a directory");
        let bytes = blktrace::write(&records, TraceDevice::default());
        std::fs::write(dir.path().join("t.blktrace.0"), bytes).expect("written");
        let check = "btt agrees with our averages";
        let parse = ["-i", "t", "-d", "t.bin", "-O", "-q"];
        if tool(check, dir.path(), "blkparse", &parse).is_none() {
            return;
        }
        let Some(text) = tool(check, dir.path(), "btt", &["-i", "t.bin"]) else { return };
        let ours = latency::stages(&records);
        let mut compared = Vec::new();
        for line in text.lines().skip_while(|l| !l.contains("All Devices")) {
            if line.contains("Device Overhead") {
                break;
            }
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [name, _, average, _, n] = fields[..] else { continue };
            let Some(sum) = ours.get(name) else { continue };
            let ns: u64 = average.replace('.', "").parse().expect("seconds with nine places");
            assert_eq!((sum.n.to_string().as_str(), name), (n, name), "era {era}\n{text}");
            // Equal to the nanosecond; halfway between two, its floating point goes either way.
            let doubled = u128::from(2 * ns * sum.n);
            let near = doubled.abs_diff(2 * sum.ns) <= u128::from(sum.n);
            assert!(near, "era {era} {name}: {sum:?}, btt {ns}");
            compared.push(name.to_owned());
        }
        for name in ["Q2G", "G2I", "Q2M", "I2D", "M2D", "D2C", "Q2C"] {
            assert!(compared.iter().any(|c| c == name), "era {era}: {compared:?}\n{text}");
        }
    }
}

/// The paths of the three eras: lengths and shares add up, and the stages come in the order of the
/// journal's protocol.
#[test]
fn the_critical_path_of_an_fsync_is_whole_and_in_the_protocols_order() {
    for (era, case) in ERAS.into_iter().flat_map(|e| [(e, "alloc"), (e, "extend")]) {
        let records = records(era, case);
        let e = explain::explain(&records, &classes(), 1).expect("it has an fsync");
        let text = e.text();
        assert_eq!(e.links.iter().map(|l| l.ns).sum::<u64>(), e.total_ns, "{era} {case}\n{text}");
        assert_eq!(e.stages.iter().map(|s| s.share).sum::<u64>(), 10_000, "{era} {case}");
        assert_eq!(e.links.iter().map(|l| l.share).sum::<u64>(), 10_000, "{era} {case}");
        let mut at = 0;
        for l in &e.links {
            assert_eq!(l.from_ns, at, "{era} {case}\n{text}");
            at += l.ns;
        }
        let place = |stage: &str| {
            let found = e.links.iter().position(|l| l.stage == stage);
            found.unwrap_or_else(|| panic!("{era} {case}: no `{stage}`\n{text}"))
        };
        let mut order = vec!["wait: journal blocks", "wait: pre-flush"];
        order.extend(["wait: commit record", "wait: post-flush"]);
        // In era 3.4 the data of other files is on the path, and may hide the journal's blocks.
        if era == "3.4" && case == "extend" {
            order.remove(0);
        }
        let places: Vec<usize> = order.iter().map(|s| place(s)).collect();
        assert!(places.is_sorted(), "{era} {case}\n{text}");
        assert!(!e.stages.iter().any(|s| s.name == "other wait"), "{era} {case}\n{text}");
    }
}

#[test]
fn a_perfetto_trace_nests_and_leads_from_the_fsync_to_its_requests() {
    let records = records("4.6", "alloc");
    let trace = perfetto::Trace::decode(&*perfetto::write(&records)).expect("our own messages");
    assert_eq!(trace, perfetto::trace(&records));
    let mut depth: BTreeMap<u64, u32> = BTreeMap::new();
    let mut names: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut last = 0;
    for p in &trace.packet {
        let Some(e) = &p.track_event else { continue };
        let at = p.timestamp.expect("events have a time");
        assert!(at >= last, "time falls");
        last = at;
        let track = depth.entry(e.track_uuid.expect("events have a track")).or_default();
        match e.r#type {
            Some(perfetto::BEGIN) => *track += 1,
            Some(perfetto::END) => *track = track.checked_sub(1).expect("something is open"),
            _ => {}
        }
        for &flow in &e.flow_ids {
            names.entry(flow).or_default().push(e.name.clone().unwrap_or_default());
        }
    }
    assert!(depth.values().all(|&d| d == 0), "{depth:?}");
    let syncs = records
        .iter()
        .filter(|r| matches!(r.event, Event::SyscallEnter { name: "fsync", .. }))
        .count();
    assert_eq!(names.len(), syncs);
    let first = names.values().next().expect("one flow");
    let commit = first.iter().find(|n| n.starts_with("commit ")).expect("a commit");
    let kinds: Vec<&str> = first.iter().map(String::as_str).collect();
    assert_eq!(kinds, ["fsync", "WS +8", commit, "WS +40", "FWFS +8", "flush", "flush"]);
}
