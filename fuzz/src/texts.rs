//! Texts that people write: job files, programs, options in one word, lists.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use wp_base::{Time, zone_report};
use wp_campaign::KnownFailures;
use wp_papers::claims::{Claims, Pins};
use wp_parity::reference::{RunSpec, parse_differences, parse_kernel_runs};
use wp_vfs::{Options, Version};
use wp_workload::filebench::wml;
use wp_workload::fio::{
    self, Action, Ask, Chosen, Direction, Existing, Job, Layout, Log, ReplayOptions, RunOptions,
    Sequence, Severity, Step, Variables, ZonePlace, Zones,
};
use wp_workload::program::{Interleavings, Program};

use super::feed::Feed;

/// Operations of a job that are read.
const ACTIONS_MAX: u32 = 500;

/// A WML text: its diagnostics. The first byte says what some variables are instead.
pub fn wml(input: &[u8]) {
    let mut feed = Feed::new(input);
    let how = feed.u8();
    let text = feed.rest();
    let given = [(1, "n", "7"), (2, "size", "cvar(type=cvar-gamma)"), (4, "dir", "\"x\" run")];
    let given = given.iter().filter(|(bit, ..)| how & bit != 0);
    let given = given.map(|(_, k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let file = wml::parse("x.f", text, &given);
    let rendered = file.rendered();
    assert_eq!(file.has_errors(), file.diagnostics.iter().any(|d| d.severity == Severity::Error));
    assert!(!file.has_errors() || !rendered.is_empty());
    let again = wml::parse("x.f", text, &given);
    assert_eq!(again.rendered(), rendered);
    if !file.has_errors() {
        assert!(!file.personality.processes.is_empty() && file.personality.threads() <= 16_384);
    }
}

/// A log of fio that a job replays. The first byte says how.
pub fn fio_log(input: &[u8]) {
    let mut feed = Feed::new(input);
    let how = feed.u8();
    let how = ReplayOptions {
        path: "log".to_owned(),
        no_stall: how & 1 != 0,
        redirect: (how & 2 != 0).then(|| "/dev/nvme0n1".to_owned()),
        scale: u64::from(how >> 2 & 3),
        align: [0, 1, 512, 1 << 63][usize::from(how >> 4 & 3)],
        time_scale: [100, 1, 200, u64::MAX][usize::from(how >> 6)],
    };
    let Ok(log) = Log::parse(feed.rest(), &how) else { return };
    assert!(log.operations().next().is_some(), "a log without an operation");
    let mut open = vec![false; log.files.len()];
    let mut last = Time(0);
    for line in &log.lines {
        let was_open = std::mem::replace(&mut open[line.file], line.step != Step::Close);
        assert_eq!(was_open, line.step != Step::Open, "{line:?}");
        let due = line.due.instant(Time(0), last);
        // Ten years at most, and no overflow on the way.
        assert!(due < Time(u64::MAX), "{line:?}");
        last = due;
    }
}

/// What `calibrate` reads: reports of fio, pg_test_fsync, ioping and iostat, and lists.
pub fn measurements(input: &[u8]) {
    let read = wp_calibrate::parse("x", input);
    assert_eq!(read, wp_calibrate::parse("x", input));
    let Ok(input) = read.map_err(|e| assert!(!e.is_empty())) else { return };
    for m in &input.measured {
        let (l, known) = (m.load, m.figures.all());
        assert!(l.bytes > 0 && l.depth > 0 && l.jobs > 0, "{l:?}");
        assert!(known.iter().flatten().all(|v| v.is_finite() && *v > 0.0), "{m:?}");
        assert!(known.iter().any(Option::is_some) && !m.source.is_empty(), "{m:?}");
    }
    assert!(input.skipped.iter().all(|(whose, why)| !whose.is_empty() && !why.is_empty()));
}

/// A fio job file: its diagnostics, and of each job without an error the layout and the first
/// operations. The first byte says what its variables are.
pub fn fio_job(input: &[u8]) {
    let mut feed = Feed::new(input);
    let how = feed.u8();
    let text = feed.rest();
    let mut variables = Variables::default();
    for (name, value) in [("SIZE", "4k"), ("RW", "randwrite"), ("SELF", "${SELF}")] {
        variables.named.insert(name.to_owned(), value.to_owned());
    }
    // A file that includes itself, a few times.
    let left = Cell::new(how % 4);
    let include = |_: &str| {
        let n = left.get().checked_sub(1)?;
        left.set(n);
        Some(text.to_vec())
    };
    let file = fio::parse("job", text, &include, &variables);
    let rendered = file.rendered();
    assert_eq!(file.has_errors(), file.diagnostics.iter().any(|d| d.severity == Severity::Error));
    if file.has_errors() {
        assert!(!rendered.is_empty());
        return;
    }
    if let Ok(made) = file.program(RunOptions::default()) {
        assert_eq!(Program::parse(&made.to_string()).as_ref(), Ok(&made), "a program of a job");
    }
    for job in file.jobs.iter().take(4) {
        let there = Existing { length: u64::from(how & 4) << 18, is_device: how & 16 != 0 };
        let Ok(mut layout) = fio::layout(job, &mut |_: &str| there) else { continue };
        // Its maps take a bit for each block.
        if layout.size / job.block_min().max(1) > 1 << 24 {
            continue;
        }
        let Ok(mut places) = places(job, &mut layout) else { continue };
        let Ok(mut sequence) = Sequence::new(job, &layout, 7, how & 8 != 0) else { continue };
        for _ in 0..ACTIONS_MAX {
            match sequence.next_action() {
                Action::Done => {
                    assert_eq!(sequence.next_action(), Action::Done, "done, and then not");
                    break;
                }
                Action::Place { file, direction, offset, length } => {
                    let ask = Ask { direction, offset, length, is_idle: true };
                    let mut whole = |length| sequence.mark(file, direction, (offset, length));
                    match places[file].choose(ask, &mut whole) {
                        Chosen::At { offset, length, zone, .. } => {
                            sequence.placed(file, direction, (offset, length));
                            let end = (direction == Direction::Write).then_some(offset + length);
                            zone.into_iter().for_each(|zone| places[file].ended(zone, end));
                        }
                        _ => sequence.no_place(file),
                    }
                }
                _ => {}
            }
        }
    }
}

/// The zones of a job's files, emulated as for a device without them.
fn places(job: &Job, layout: &mut Layout) -> Result<Vec<ZonePlace>, String> {
    let mut all = Vec::new();
    for file in layout.files.iter_mut().filter(|_| job.zbd) {
        if job.zone_size > 0 && file.length / job.zone_size > 1 << 16 {
            return Err("too many zones".to_owned());
        }
        let zones =
            Zones::emulated(file.length, job.zone_size, job.zone_capacity, job.max_open_zones)?;
        let place = ZonePlace::new(job, &Rc::new(RefCell::new(zones)), (file.start, file.span))?;
        (file.start, file.span) = place.range();
        all.push(place);
    }
    Ok(all)
}

/// A program: what is read is written as a text that is the same program. Each interleaving of its
/// threads is a program with the same calls.
pub fn program(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(program) = Program::parse(&text) else { return };
    let written = program.to_string();
    let again = Program::parse(&written).expect("a program that we wrote");
    assert_eq!(again.to_string(), written);
    assert_eq!(again, program, "written as {written}");
    let threads = Interleavings::of(&program, 5, 1);
    for one in threads.iter().flat_map(Interleavings::programs) {
        assert!(one.is_in_order() && one.calls().count() == program.calls().count(), "{one}");
        assert_eq!(Program::parse(&one.to_string()).as_ref(), Ok(one), "an interleaving");
    }
    let _ = wp_machine::workload::fio::variables(&text);
}

/// Words of a command line: `fs`, `device`, `size` or `version`, a space, and the word. What they
/// name is made, if it is not too large.
pub fn words(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (kind, word) = text.split_once(' ').unwrap_or(("", &text));
    match kind {
        "fs" => {
            let Ok((fs, options)) = wp_machine::spec::file_system(word) else { return };
            for (key, value) in options.given() {
                let mut same = Options::default();
                same.set(key, value, fs.options).expect("an option that was taken");
            }
            for mib in [1u64, 8, 33] {
                if let Ok(medium) = (fs.mkfs)(&options, mib << 20) {
                    let view = wp_medium::MediumView {
                        medium,
                        start: wp_base::Sector(0),
                        bytes: mib << 20,
                    };
                    let checked = (fs.check)(&view, &options, false, &Default::default());
                    match checked {
                        Ok(c) => assert!(c.is_clean, "{word} on {mib} MiB: {:?}", c.faults),
                        Err(e) => panic!("{word} on {mib} MiB: made, and then {e}"),
                    }
                }
            }
        }
        "device" => {
            // A word that is a file's name would be whatever this machine has there.
            if wp_machine::device_file::path_of(wp_machine::spec::name_and_rest(word).0).is_some() {
                return;
            }
            let Ok((name, params)) = wp_machine::spec::device(word) else { return };
            let Some(entry) = wp_device::find(&name) else { return };
            let params: Vec<(&str, u64)> = params.iter().map(|(k, v)| (k.as_str(), *v)).collect();
            if let Ok(device) = entry.make(&params) {
                let limits = device.limits();
                assert!(limits.sectors > 0);
                drop(device.medium());
            }
        }
        "size" => drop(wp_machine::spec::size(word)),
        "version" => {
            if let Some(version) = Version::parse(word) {
                let again = Version::parse(&version.to_string());
                assert_eq!(again, Some(version));
                let _ = version.series();
                let _ = wp_ext4::fs::era::Era::of(version);
            }
            let _ = (wp_ext4::ENTRY.eras)(word);
        }
        _ => {}
    }
}

/// An experiment: its diagnostics, or what it resolves to, which is the same experiment. Files that
/// it names are not there.
pub fn experiment(input: &[u8]) {
    let nowhere = std::path::Path::new("/there/is/none");
    let first = wp_experiment::parse("x.toml", input, nowhere, None);
    assert_eq!(first.experiment.is_none(), !first.diagnostics.is_empty());
    for d in &first.diagnostics {
        assert!(d.to_string().contains("x.toml:"));
    }
    let Some(first) = first.experiment else { return };
    let again = wp_experiment::parse("x.toml", first.resolved.as_bytes(), nowhere, None);
    match again.experiment {
        Some(again) => assert_eq!(again.resolved, first.resolved),
        None => panic!("{}\n{}", again.diagnostics[0], first.resolved),
    }
}

/// Lists in TOML and JSON: the first line says which.
pub fn lists(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (kind, list) = text.split_once('\n').unwrap_or((&text, ""));
    match kind {
        "claims" => {
            if let Ok(claims) = Claims::parse(list) {
                for claim in claims.iter() {
                    for ours in [0.0, 1.0, f64::MAX] {
                        let _ = wp_papers::claims::Measured::value(ours).judge(claim);
                    }
                }
            }
        }
        "pins" => {
            if let Ok(pins) = Pins::parse(list) {
                let again = Pins::parse(&pins.to_toml()).expect("pins that we wrote");
                assert_eq!(again.to_toml(), pins.to_toml());
            }
        }
        "known" => {
            if let Ok(known) = KnownFailures::parse(list, "ext4 fixed permitted") {
                let entries: Vec<_> = known.entries().map(|(e, _)| e.clone()).collect();
                let text = KnownFailures::write(&entries).expect("entries are text");
                let again = KnownFailures::parse(&text, "ext4 fixed permitted");
                assert_eq!(again.as_ref(), Ok(&known));
            }
        }
        "differences" => drop(parse_differences(list)),
        "times" => drop(wp_parity::vtime::listed::parse_differences(list)),
        "runs" => {
            if let Ok(runs) = parse_kernel_runs(list) {
                let text = wp_parity::reference::kernel_runs_to_json(&runs);
                assert_eq!(parse_kernel_runs(&text).as_ref(), Ok(&runs));
                for run in &runs {
                    let found =
                        wp_parity::reference::compare("run", &run.summary, &runs[0].summary);
                    for difference in &found {
                        let _ = difference.to_toml();
                    }
                }
            }
        }
        "run" => {
            if let Ok(spec) = RunSpec::parse(list) {
                let _ = spec.window_ns();
            }
        }
        "campaign" => campaign(list),
        "device" => {
            if let Ok(device) = wp_machine::device_file::parse("device", list) {
                let again = wp_machine::device_file::parse("again", &device.text());
                assert_eq!(again.expect("a device that we wrote").numbers, device.numbers);
            }
        }
        "zones" => {
            if let Ok(zones) = zone_report::parse(list) {
                let text = zone_report::text(&zones);
                assert_eq!(zone_report::parse(&text).as_ref(), Ok(&zones));
            }
        }
        _ => {}
    }
}

/// The body of a campaign's file; its digest is made here.
fn campaign(body: &str) {
    let Ok(body) = serde_json::from_str::<Value>(body) else { return };
    let digest = Sha256::digest(body.to_string().as_bytes());
    let digest: String = digest.iter().map(|b| format!("{b:02x}")).collect();
    let schema = "writepath.crash.campaign/1";
    let whole = json!({ "schema": schema, "sha256": digest, "body": body }).to_string();
    if let Ok((found, _)) = wp_campaign::parse_campaign(whole.as_bytes(), "c", "b") {
        assert!(found.totals.broken.len() == wp_crash::Rule::ALL.len());
    }
}
