//! Perfetto traces of real runs: decoded by Perfetto's own messages, and followed from fsyncs to
//! dies.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::common::{busy, records, run};
use prost::Message;
use wp_base::event::{Event, Record, Work};
use wp_machine::testing::skipped;
use wp_report::perfetto;
use wp_report::run::Seen;

/// A slice of our trace.
#[derive(Clone, Debug)]
struct Slice {
    track: String,
    name: String,
    from: u64,
    to: u64,
    flows: Vec<u64>,
}

/// Slices in order of their begins, as our own messages tell them.
fn slices(trace: &perfetto::Trace) -> Vec<Slice> {
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut out: Vec<Slice> = Vec::new();
    for p in &trace.packet {
        if let Some(d) = &p.track_descriptor {
            let thread = d.thread.as_ref().and_then(|t| t.thread_name.clone());
            let process = d.process.as_ref().and_then(|p| p.process_name.clone());
            let name = d.name.clone().or(thread).or(process).expect("tracks have names");
            names.insert(d.uuid.expect("tracks have numbers"), name);
        }
        let Some(e) = &p.track_event else { continue };
        let (at, track) = (p.timestamp.expect("a time"), e.track_uuid.expect("a track"));
        let stack = open.entry(track).or_default();
        let slice = match e.r#type {
            Some(perfetto::BEGIN) => {
                stack.push(out.len());
                let name = e.name.clone().expect("slices have names");
                let track = names[&track].clone();
                out.push(Slice { track, name, from: at, to: at, flows: Vec::new() });
                out.len() - 1
            }
            Some(perfetto::END) => stack.pop().expect("something is open"),
            _ => continue,
        };
        out[slice].to = at;
        out[slice].flows.extend(&e.flow_ids);
    }
    assert!(open.values().all(Vec::is_empty), "{open:?}");
    out
}

/// The names of what each flow leads through, in order.
fn flows(trace: &perfetto::Trace) -> Vec<Vec<String>> {
    let mut out: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for s in slices(trace) {
        for flow in &s.flows {
            let kind = s.track.split(' ').next().unwrap_or_default();
            out.entry(*flow).or_default().push(format!("{kind}: {}", s.name));
        }
    }
    out.into_values().collect()
}

fn syncs(records: &[Record]) -> usize {
    let sync =
        |r: &&Record| matches!(r.event, Event::SyscallEnter { name: "fsync" | "fdatasync", .. });
    records.iter().filter(sync).count()
}

#[test]
fn the_flow_of_an_fsync_leads_over_bio_request_and_command_to_the_die() {
    let records = records("4.6", "alloc");
    let trace = perfetto::Trace::decode(&*perfetto::write(&Seen::new(run(&records))))
        .expect("our own messages");
    assert_eq!(trace, perfetto::trace(&Seen::new(run(&records))));
    let flows = flows(&trace);
    assert_eq!(flows.len(), syncs(&records));
    let mut first = flows[0].clone();
    first.retain(|n| !n.starts_with("bio: WS +8"));
    let expected = [
        "w2: fsync",
        "request: WS +8",
        "command: WS +8",
        "journal: commit 3",
        "request: WS +40",
        "command: WS +40",
        // Of the unit that the journal's blocks filled: it had begun before the flush came.
        "channel: program",
        "bio: FWFS +8",
        "request: FWFS +8",
        "request: flush",
        "command: flush",
        "channel: program",
        "command: WS +8",
        "request: flush",
        "command: flush",
        "channel: program",
    ];
    assert_eq!(first, expected);
}

#[test]
fn flows_begin_with_the_call_and_take_in_only_what_it_waited_for() {
    for (era, device) in [("3.4", "ssd-128"), ("4.6", "ssd-128"), ("4.6", "sata-disk-nofua")] {
        let records = busy(era, "cfq", device);
        let trace = perfetto::trace(&Seen::new(run(&records)));
        let all = slices(&trace);
        let calls: Vec<&Slice> = all.iter().filter(|s| s.name.ends_with("sync")).collect();
        assert_eq!(calls.len(), syncs(&records), "{era} {device}");
        let on_die = |s: &&Slice| s.track.starts_with("channel");
        for call in &calls {
            let [flow] = call.flows[..] else { panic!("a call has one flow: {call:?}") };
            let through: Vec<&Slice> = all.iter().filter(|s| s.flows.contains(&flow)).collect();
            for s in through.iter().filter(|s| on_die(s)) {
                assert!(s.to > call.from && s.to <= call.to, "{s:?} is not awaited by {call:?}");
            }
            // On an SSD with a volatile buffer a call that flushes waits for some program.
            let flushes =
                through.iter().any(|s| s.track.starts_with("command") && s.name == "flush");
            if flushes && device == "ssd-128" {
                assert!(through.iter().any(on_die), "{era} {call:?} {through:#?}");
            }
        }
        let dies: Vec<&Slice> = all.iter().filter(on_die).collect();
        if device == "ssd-128" {
            let background = dies.iter().filter(|s| s.name == "program" && s.flows.is_empty());
            assert!(background.count() > 0, "{era}: all programs are somebody's");
        }
        let told = |r: &&Record| match &r.event {
            Event::Device(w) => w.die.is_some() && w.what == Work::Program,
            _ => false,
        };
        let programs = dies.iter().filter(|s| s.name == "program").count();
        assert_eq!(programs, records.iter().filter(told).count(), "{era} {device}");
    }
}

#[test]
fn perfettos_own_messages_take_our_traces() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/perfetto_check.py");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("t.pftrace");
    let runs = [
        records("4.6", "alloc"),
        records("3.4", "extend"),
        busy("3.8", "deadline", "ssd-128"),
        busy("4.6", "noop", "sata-disk-nofua"),
    ];
    for records in runs {
        let trace = perfetto::trace(&Seen::new(run(&records)));
        std::fs::write(&file, perfetto::write(&Seen::new(run(&records)))).expect("written");
        let python = Command::new("python3").arg(&script).arg(&file).output();
        let check = "Perfetto's own messages take our traces";
        let Ok(out) = python else { return skipped(check, "python3 is not installed") };
        let errors = String::from_utf8_lossy(&out.stderr);
        if out.status.code() == Some(3) {
            return skipped(check, &format!("python3: {}", errors.trim()));
        }
        assert!(out.status.success(), "{errors}");
        let theirs: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        assert_eq!(theirs["packets"], trace.packet.len());
        // What they read is what we meant.
        let ours = slices(&trace);
        let their_slices = theirs["slices"].as_array().expect("a list");
        assert_eq!(their_slices.len(), ours.len());
        for (a, b) in their_slices.iter().zip(&ours) {
            assert_eq!(
                (&a["name"], &a["track"]),
                (&b.name.as_str().into(), &b.track.as_str().into())
            );
            assert_eq!((a["from"].as_u64(), a["to"].as_u64()), (Some(b.from), Some(b.to)));
            let flows = a["flows"].as_array().expect("a list").iter().map(|f| f.as_u64());
            assert!(flows.eq(b.flows.iter().map(|f| Some(*f))), "{a} {b:?}");
        }
        assert_eq!(theirs["flows"].as_object().expect("an object").len(), syncs(&records));
    }
}
