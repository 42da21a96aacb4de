//! Every sequence of operations is the one that the installed fio prints for the same job.
//!
//! fio's engine `null` does no I/O, and `--write_iolog` writes down what it would have done.

use std::cell::RefCell;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use wp_base::Rng;
use wp_workload::fio::{
    Action, Ask, Chosen, Counts, Direction, Existing, Job, Sequence, SyncWhat, Variables,
    ZonePlace, Zones, heading, layout, normal, parse, terse,
};

use crate::skip::skipped;

fn fio_is_there(check: &str) -> bool {
    let version = Command::new("fio").arg("--version").output();
    match version {
        Ok(v) if v.stdout.starts_with(b"fio-3.33") => true,
        Ok(v) => {
            let v = String::from_utf8_lossy(&v.stdout).trim().to_owned();
            skipped(check, &format!("fio 3.33 is the one described, {v} is there"));
            false
        }
        Err(_) => {
            skipped(check, "fio is not installed");
            false
        }
    }
}

type Line = (String, &'static str, u64, u64);

/// Bytes of a file of a job on zones.
const ZONED_BYTES: u64 = 4 << 20;

/// What is there: files of jobs on zones, which fio makes from no file; and what engine null takes
/// files for.
fn existing(job: &Job) -> Existing {
    match job.zbd {
        true => Existing::file(ZONED_BYTES),
        false => Existing::file(job.size.of(0) / job.nrfiles.max(1)),
    }
}

fn ours(job: &Job, bugs: bool) -> Result<Vec<Line>, String> {
    let mut plan = layout(job, &mut |_| existing(job))?;
    let mut place = None;
    if job.zbd {
        let (size, capacity) = (job.zone_size, job.zone_capacity);
        let zones = Zones::emulated(ZONED_BYTES, size, capacity, job.max_open_zones)?;
        let file = &mut plan.files[0];
        let own = ZonePlace::new(job, &Rc::new(RefCell::new(zones)), (file.start, file.span))?;
        (file.start, file.span) = own.range();
        place = Some(own);
    }
    let mut sequence = Sequence::new(job, &plan, 0, bugs)?;
    let mut out = Vec::new();
    let mut open = vec![false; plan.files.len()];
    let event = |i: usize, word| (plan.files[i].path.clone(), word, 0, 0);
    loop {
        let nothing = place.as_ref().is_some_and(ZonePlace::has_nothing);
        sequence.set_has_nothing(nothing);
        match sequence.next_action() {
            Action::Done => return Ok(out),
            Action::Place { file, direction, offset, length } => {
                let place = place.as_mut().expect("a job on zones");
                let ask = Ask { direction, offset, length, is_idle: true };
                let proposed = offset;
                let mut shorten = |length| sequence.mark(file, direction, (proposed, length));
                match place.choose(ask, &mut shorten) {
                    Chosen::Nowhere => sequence.no_place(file),
                    Chosen::At { offset, length, zone, .. } => {
                        sequence.placed(file, direction, (offset, length));
                        out.push((plan.files[file].path.clone(), word(direction), offset, length));
                        let end = (direction == Direction::Write).then_some(offset + length);
                        zone.into_iter().for_each(|zone| place.ended(zone, end));
                    }
                    Chosen::TooLong => return Err("a write is longer than a zone".to_owned()),
                    other => panic!("{other:?} of a job that waits for each operation"),
                }
            }
            Action::Io { file, direction, offset, length } => {
                out.push((plan.files[file].path.clone(), word(direction), offset, length));
            }
            Action::Sync { file, what } => {
                let word = if what == SyncWhat::All { "sync" } else { "datasync" };
                out.push((plan.files[file].path.clone(), word, 0, 0));
            }
            Action::Rewind { .. } | Action::Verify => {}
            Action::Open(i) => {
                open[i] = true;
                out.push(event(i, "open"));
            }
            Action::Close { file } => {
                open[file] = false;
                out.push(event(file, "close"));
            }
            Action::RoundEnd { sync } => {
                place.iter_mut().for_each(ZonePlace::restart);
                let synced = if sync { &open[..] } else { &[] };
                for (i, open) in synced.iter().enumerate() {
                    let words: &[_] = if *open { &["sync"] } else { &["open", "sync", "close"] };
                    out.extend(words.iter().map(|w| event(i, w)));
                }
            }
        }
        assert!(out.len() < 1_000_000, "an endless job");
    }
}

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
        Direction::Trim => "trim",
    }
}

/// What fio does for jobs `text` of one file, the options of each in `sections`; one log a job.
fn theirs(dir: &Path, sections: &[String], engine: &str) -> Vec<Vec<Line>> {
    let mut text = String::new();
    for (i, section) in sections.iter().enumerate() {
        if engine != "null" {
            let file = std::fs::File::create(dir.join(format!("z{i}"))).expect("made");
            file.set_len(ZONED_BYTES).expect("sparse");
        }
        text += &format!("[j{i}]\n{section}write_iolog=log{i}\n");
    }
    std::fs::write(dir.join("job.fio"), &text).expect("written");
    let out = Command::new("fio")
        .current_dir(dir)
        .args([&format!("--ioengine={engine}"), "--thread=1", "job.fio"])
        .output()
        .expect("fio runs");
    let said = [out.stdout, out.stderr].concat();
    assert!(out.status.success(), "{text}\n{}", String::from_utf8_lossy(&said));
    (0..sections.len()).map(|i| read_log(&dir.join(format!("log{i}")))).collect()
}

fn read_log(path: &Path) -> Vec<Line> {
    let log = std::fs::read_to_string(path).expect("a log");
    let mut lines = Vec::new();
    for line in log.lines().skip(1) {
        let w: Vec<&str> = line.split(' ').collect();
        let word = match w[2] {
            "read" => "read",
            "write" => "write",
            "trim" => "trim",
            "sync" => "sync",
            "datasync" => "datasync",
            "open" => "open",
            "close" => "close",
            _ => continue,
        };
        // A sync's offset is whatever the operation before it had.
        let place = |i: usize| w[i].parse().expect("a number");
        let (offset, length) =
            if matches!(word, "read" | "write" | "trim") { (place(3), place(4)) } else { (0, 0) };
        lines.push((w[1].trim_start_matches('/').to_owned(), word, offset, length));
    }
    lines
}

fn compare(text: &str, job: &Job, want: &[Line]) -> Result<usize, String> {
    let got = match ours(job, true) {
        // A shift register in the one state that it cannot leave: fio gives such a job up.
        Err(_) if want.is_empty() => return Ok(0),
        got => got?,
    };
    if got == want {
        return Ok(got.len());
    }
    let at = got.iter().zip(want).take_while(|(a, b)| a == b).count();
    Err(format!(
        "{} differs from operation {at} on ({} ours, {} theirs):\n ours   {:?}\n theirs {:?}",
        text.replace('\n', " "),
        got.len(),
        want.len(),
        &got[at..got.len().min(at + 4)],
        &want[at..want.len().min(at + 4)],
    ))
}

/// Runs all jobs, some dozens at a time: fio takes a second for each run, whatever is in it, and a
/// job's number in the file is part of its seeds.
fn check_all(check: &str, jobs: &[String]) {
    check_with(check, jobs, "null");
}

fn check_with(check: &str, jobs: &[String], engine: &str) {
    if !fio_is_there(check) {
        return;
    }
    let mut operations = 0;
    let mut wrong = Vec::new();
    for batch in jobs.chunks(48) {
        let text: String = batch.iter().enumerate().map(|(i, s)| format!("[j{i}]\n{s}")).collect();
        let file = parse("job.fio", text.as_bytes(), &|_| None, &Variables::default());
        assert!(!file.has_errors(), "{}", file.rendered());
        let dir = tempfile::tempdir().expect("a directory");
        let want = theirs(dir.path(), batch, engine);
        for ((text, job), want) in batch.iter().zip(&file.jobs).zip(&want) {
            match compare(text, job, want) {
                Ok(n) => operations += n,
                Err(e) => wrong.push(e),
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), jobs.len(), wrong.join("\n"));
    assert!(operations > jobs.len(), "the jobs do something: {operations}");
    println!("{check}: {} jobs, {operations} operations", jobs.len());
}

/// A job of options at random, all of them such that sequences are to be the same.
fn any_job(rng: &mut Rng) -> String {
    let mut text = String::new();
    let pick = |rng: &mut Rng, of: &[&str]| of[rng.below(of.len() as u64) as usize].to_owned();
    let rw = pick(rng, DIRECTIONS);
    let (random, mixed) = (rw.contains("rand"), rw.ends_with("rw"));
    let mut lines = Vec::new();
    let stride = !random && !mixed && rng.below(6) == 0;
    let run = rng.below(5) == 0;
    if run && random {
        lines.push(format!("{rw}:{}\nnorandommap", 1 + rng.below(9)));
    } else if run && !stride {
        lines.push(format!("{rw}:{}", pick(rng, &["4k", "1k", "12k", "512", "100"])));
    } else {
        lines.push(rw);
    }
    let block = pick(
        rng,
        &[
            "bs=4k",
            "bs=4k",
            "bs=1k",
            "bs=3000",
            "bs=16k",
            "bs=4k,8k",
            "bs=8k,4k",
            "bsrange=1k-8k",
            "bsrange=512-6k,4k-12k",
            "bsrange=1k-7k;bs_unaligned=1",
            "bsrange=2000-9000",
            "bssplit=4k/10:8k/50:16k/40",
            "bssplit=4k/50:1k/:2k/",
            "bssplit=1k/30:3k/70,2k/50:4k/50",
        ],
    );
    let one_size = block.starts_with("bs=") && !block.contains(',');
    lines.push(block);
    let files = if !stride && rng.below(3) == 0 { 2 + rng.below(5) } else { 1 };
    let size = (32 + rng.below(300)) * files;
    if files > 1 {
        lines.push(format!("nrfiles={files}"));
        let kind = pick(rng, &["roundrobin", "sequential", "random"]);
        let turns =
            if rng.below(2) == 0 { format!(":{}", 1 + rng.below(5)) } else { String::new() };
        lines.push(format!("file_service_type={kind}{turns}"));
        if rng.below(3) == 0 {
            lines.push(format!("openfiles={}", 1 + rng.below(files)));
        }
    }
    match rng.below(8) {
        0 => lines.push(format!("size={}", size * 1000)),
        _ => lines.push(format!("size={size}k")),
    }
    if stride {
        let (zone, skip) = (16 + 4 * rng.below(8), 4 * rng.below(8));
        lines.push(format!("zonemode=strided\nzonesize={zone}k\nzoneskip={skip}k"));
        if rng.below(2) == 0 {
            lines.push(format!("zonerange={}k", zone + 4 * rng.below(8)));
        }
    }
    let mut sometimes = |one_in: u64, make: &dyn Fn(&mut Rng) -> String| {
        if rng.below(one_in) == 0 {
            lines.push(make(rng));
        }
    };
    if !stride {
        sometimes(5, &|r| format!("offset={}k", 4 * r.below(40)));
    }
    sometimes(5, &|r| format!("io_size={}k", 20 + r.below(600)));
    sometimes(6, &|r| format!("number_ios={}", 1 + r.below(200)));
    sometimes(4, &|r| format!("loops={}", 1 + r.below(4)));
    sometimes(4, &|r| format!("fsync={}", 1 + r.below(9)));
    sometimes(6, &|r| format!("fdatasync={}", 1 + r.below(9)));
    sometimes(6, &|_| "end_fsync=1".to_owned());
    sometimes(6, &|_| "fsync_on_close=1".to_owned());
    sometimes(4, &|r| format!("randseed={}", r.next_u64() >> (8 + r.below(50))));
    sometimes(6, &|_| "allrandrepeat=1".to_owned());
    if mixed {
        sometimes(2, &|r| format!("rwmixread={}", r.below(101)));
    }
    if random {
        sometimes(5, &|_| "norandommap".to_owned());
        sometimes(5, &|r| format!("percentage_random={}\nnorandommap", r.below(101)));
        sometimes(6, &|_| "random_generator=tausworthe64".to_owned());
        if one_size {
            sometimes(6, &|_| "random_generator=lfsr".to_owned());
        }
        sometimes(6, &|r| format!("ba={}", 512 << r.below(5)));
        sometimes(4, &|_| "rw_sequencer=identical".to_owned());
    }
    for line in lines.iter().skip(1) {
        text += &format!("{}\n", line.replace(';', "\n"));
    }
    format!("rw={}\n{text}", lines[0].trim_start_matches("rw="))
}

/// A job on zones, on a file that is there.
fn zoned_job(rng: &mut Rng, number: usize) -> String {
    let pick = |rng: &mut Rng, of: &[&str]| of[rng.below(of.len() as u64) as usize].to_owned();
    let zone = 64 << rng.below(3);
    let rw = pick(rng, &["write", "randwrite", "randwrite", "rw", "randrw", "read", "randread"]);
    let mut lines = vec![
        format!("rw={rw}\nzonemode=zbd\nzonesize={zone}k\nfilename=z{number}\nfallocate=none"),
        pick(rng, &["bs=4k", "bs=4k", "bs=16k", "bs=12k", "bsrange=4k-32k", "bs=8k,4k"]),
        pick(rng, &["size=4m", "size=4m", "size=2m", "size=1500k"]),
    ];
    let is_whole = lines[2] == "size=4m";
    let mut sometimes = |one_in: u64, make: &dyn Fn(&mut Rng) -> String| {
        if rng.below(one_in) == 0 {
            lines.push(make(rng));
        }
    };
    sometimes(3, &|r| format!("max_open_zones={}", 1 + r.below(6)));
    sometimes(3, &|r| format!("zonecapacity={}k", zone - 4 * (1 + r.below(9))));
    sometimes(4, &|r| format!("io_size={}k", 100 + r.below(9000)));
    sometimes(6, &|r| format!("number_ios={}", 1 + r.below(300)));
    sometimes(4, &|_| "norandommap".to_owned());
    sometimes(4, &|r| format!("zone_reset_frequency=0.{}", 1 + r.below(9)));
    sometimes(4, &|r| format!("zone_reset_threshold=0.{}", 1 + r.below(9)));
    sometimes(6, &|_| "read_beyond_wp=1".to_owned());
    sometimes(6, &|r| format!("fsync={}", 1 + r.below(9)));
    sometimes(6, &|r| format!("randseed={}", r.below(1 << 40)));
    if !is_whole {
        sometimes(3, &|r| format!("offset={}k", zone * r.below(6)));
    }
    lines.join("\n") + "\n"
}

#[test]
fn jobs_on_zones_have_fios_sequences() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let mut rng = Rng::stream(number("WRITEPATH_FIO_SEED").unwrap_or(1), "fio zones");
    let jobs: Vec<String> = (0..40).map(|n| zoned_job(&mut rng, n)).collect();
    check_with("fio zones", &jobs, "psync");
}

/// The same that trim: only devices can be, which fio's engine `null` need not have. The path is
/// ours without its slash.
#[test]
fn trims_have_fios_sequences() {
    let mut rng = Rng::stream(6, "fio jobs");
    let mut jobs = Vec::new();
    while jobs.len() < 40 {
        let job = any_job(&mut rng);
        // One name is one device; with the others fio writes elsewhere, which a warning says.
        if ["nrfiles", "ba=", "offset=", "strided"].iter().any(|w| job.contains(w)) {
            continue;
        }
        let (first, rest) = job.split_once('\n').expect("a line");
        let word = first.trim_start_matches("rw=");
        let (word, postfix) =
            word.split_once(':').map_or((word, String::new()), |(w, p)| (w, format!(":{p}")));
        let rand = if word.contains("rand") { "rand" } else { "" };
        let kind = if rng.below(2) == 0 { "trim" } else { "trimwrite" };
        jobs.push(format!(
            "rw={rand}{kind}{postfix}\n{rest}filename=/dev/writepath-{}\n",
            jobs.len()
        ));
    }
    check_all("fio trims", &jobs);
}

/// Thirty jobs; `WRITEPATH_FIO_JOBS=3000` makes it so many, `WRITEPATH_FIO_SEED` others.
#[test]
fn jobs_at_random_have_fios_sequences() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let jobs = number("WRITEPATH_FIO_JOBS").unwrap_or(30);
    let mut rng = Rng::stream(number("WRITEPATH_FIO_SEED").unwrap_or(1), "fio jobs");
    let jobs: Vec<String> = (0..jobs).map(|_| any_job(&mut rng)).collect();
    check_all("fio random jobs", &jobs);
}

/// Every combination of one line from each group, `;` within a line standing for a line break.
fn matrix(groups: &[&[&str]]) -> Vec<String> {
    let mut all = vec![String::new()];
    for group in groups {
        all = all
            .iter()
            .flat_map(|head| group.iter().map(move |line| format!("{head}{line}\n")))
            .map(|t| t.replace(';', "\n"))
            .collect();
    }
    all
}

const DIRECTIONS: &[&str] =
    &["rw=read", "rw=write", "rw=randread", "rw=randwrite", "rw=rw", "rw=randrw"];
const RANDOM: &[&str] = &["rw=randread", "rw=randwrite", "rw=randrw"];

#[test]
fn directions_blocks_and_generators_give_fios_offsets() {
    let jobs = matrix(&[
        DIRECTIONS,
        &["bs=4k;size=512k", "bs=512;size=100k", "bs=4k,8k;size=512k", "bs=3000;size=100000"],
        &[
            "",
            "randseed=7",
            "norandommap",
            "random_generator=tausworthe64",
            "random_generator=lfsr",
        ],
    ]);
    check_all("fio offsets", &jobs);
}

#[test]
fn block_ranges_and_splits_give_fios_lengths() {
    let jobs = matrix(&[
        DIRECTIONS,
        &[
            "bsrange=1k-8k",
            "bsrange=512-16k,4k-4k",
            "bssplit=4k/10:8k/50:16k/40",
            "bssplit=4k/50:1k/:2k/",
            "bsrange=1k-7k;bs_unaligned=1",
            "bsrange=3000-9000",
            "bssplit=2k/50:4k/50,8k;bs_is_seq_rand=1",
        ],
        &["size=300k", "size=256k;norandommap", "size=256k;random_generator=tausworthe64"],
    ]);
    check_all("fio lengths", &jobs);
}

#[test]
fn mixes_and_shares_give_fios_choices() {
    let mut jobs = matrix(&[
        &["rw=rw", "rw=randrw"],
        &["rwmixread=0", "rwmixread=30", "rwmixread=75", "rwmixwrite=10", "rwmixread=100"],
        &["bs=4k;size=1m", "bs=4k;size=1m;randseed=99", "bs=4k;size=512k;fsync=4"],
    ]);
    jobs.extend(matrix(&[
        RANDOM,
        &["percentage_random=0", "percentage_random=40", "percentage_random=50,90"],
        &["bs=4k;size=256k", "bs=4k;size=256k;norandommap", "bsrange=4k-16k;size=256k"],
    ]));
    jobs.extend(matrix(&[
        &["rw=randwrite:4", "rw=randread:8", "rw=randrw:3", "rw=write:4k", "rw=read:12k"],
        &["", "rw_sequencer=identical"],
        &["bs=4k;size=256k", "bs=4k;size=250k;offset=64k"],
    ]));
    check_all("fio choices", &jobs);
}

#[test]
fn ranges_limits_and_rounds_end_where_fios_do() {
    let jobs = matrix(&[
        &["rw=write", "rw=randwrite", "rw=randrw", "rw=read"],
        &["bs=4k;size=128k", "bs=4k;size=130k", "bsrange=2k-8k;size=128k"],
        &[
            "offset=8k",
            "io_size=64k",
            "io_size=300k",
            "number_ios=7",
            "loops=3",
            "loops=2;randrepeat=1;allrandrepeat=1",
            "loops=2;randseed=5",
            "loops=2;number_ios=20",
            "fsync=3",
            "fdatasync=5",
            "fsync=4;fdatasync=3",
            "io_size=200k;random_generator=lfsr",
        ],
    ]);
    check_all("fio limits", &jobs);
}

#[test]
fn several_files_are_served_as_fio_serves_them() {
    let jobs = matrix(&[
        &["rw=write", "rw=randwrite", "rw=randrw"],
        &[
            "nrfiles=4;size=200k",
            "nrfiles=3;size=100k",
            "nrfiles=5;filesize=20k",
            "filename=a:b:c;size=90k",
        ],
        &[
            "file_service_type=roundrobin",
            "file_service_type=roundrobin:3",
            "file_service_type=sequential",
            "file_service_type=random",
            "file_service_type=random:2",
            "openfiles=2",
            "openfiles=2;file_service_type=random",
            "openfiles=1;file_service_type=roundrobin:2",
        ],
        &["", "fsync=3", "randseed=3;loops=2", "bsrange=1k-8k"],
    ]);
    check_all("fio files", &jobs);
}

#[test]
fn lengths_that_look_like_ranges_are_fios() {
    let jobs = matrix(&[
        &["rw=read;size=512k", "rw=randrw;size=1m", "rw=write;size=300k;randseed=4"],
        &[
            "bs=4k-64k",
            "bs=4k:16k",
            "bs=2k-4k-8k",
            "bs=4k-8k,16k",
            "bs=4k:8k-16k",
            "bssplit=4k/50:8k/48",
            "bssplit=4k/5.:8k/95",
            "bssplit=36k-60k/29:4k/71",
            "bssplit=4k/60:8k/60",
            "bssplit=4k/10:8k/20:16k/30",
            "bssplit=4k/50:8k",
        ],
    ]);
    check_all("fio lengths", &jobs);
}

#[test]
fn shares_and_lengths_of_files_are_fios() {
    const DIRECTIONS: &[&str] = &["rw=write", "rw=randwrite", "rw=randrw", "rw=read"];
    // With blocks of several lengths fio ends a round early if the file had to grow.
    let mut jobs = matrix(&[
        DIRECTIONS,
        &["bs=4k", "bs=8k;randseed=7"],
        &[
            "size=256k;offset=25%",
            "size=250k;offset=33%;nrfiles=2",
            "size=256k;offset=10%;offset_align=16k",
            "size=256k;offset=8k;offset_align=16k",
        ],
    ]);
    jobs.extend(matrix(&[
        DIRECTIONS,
        &["bs=4k", "bsrange=2k-8k", "bs=4k;randseed=7"],
        &[
            "size=256k;io_size=50%",
            "size=250k;io_size=33%;loops=2",
            "size=256k;io_size=100%",
            "size=256k;io_size=0%",
            "size=300k;io_size=10%;nrfiles=3",
            "filesize=8k-64k;nrfiles=5",
            "filesize=8k-64k;nrfiles=5;size=100k",
            "filesize=9k-90k;nrfiles=4;allrandrepeat=1",
            "filesize=9k-90k;nrfiles=4;random_generator=tausworthe64",
            "filesize=16k-16k;nrfiles=3",
            "filesize=16k:64k;nrfiles=3;offset=8k",
        ],
    ]));
    check_all("fio shares", &jobs);
}

#[test]
fn zoned_offsets_are_fios() {
    let jobs = matrix(&[
        &["rw=randread", "rw=randwrite", "rw=randrw"],
        &["bs=4k;size=256k", "bs=1k,2k;size=300k", "bs=4k;size=256k;offset=32k;randseed=5"],
        &[
            "random_distribution=zoned:60/10:30/20:8/30:2/40",
            "random_distribution=zoned:10/50:90/50",
            "random_distribution=zoned:60/10:20/:20/",
            "random_distribution=zoned:50/:50/",
            "random_distribution=zoned:30/10:30/:40/70",
            "random_distribution=zoned:40/20:30/:30/:0/",
            "random_distribution=zoned:50/40:50/40",
            "random_distribution=zoned_abs:60/32k:40/64k",
        ],
    ]);
    check_all("fio zoned offsets", &jobs);
}

#[test]
fn later_jobs_of_a_file_have_seeds_of_their_own() {
    let check = "fio later jobs";
    if !fio_is_there(check) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let text = "[global]\nbs=4k\nsize=256k\n[a]\nrw=randwrite\nnumjobs=3\noffset_increment=16k\n[b]\nrw=randrw\n";
    let file = parse("job.fio", text.as_bytes(), &|_| None, &Variables::default());
    assert!(!file.has_errors(), "{}", file.rendered());
    std::fs::write(dir.path().join("job.fio"), text).expect("written");
    let out = Command::new("fio")
        .current_dir(dir.path())
        .args(["--ioengine=null", "--write_lat_log=l", "--log_offset=1", "job.fio"])
        .output()
        .expect("fio runs");
    assert!(out.status.success());
    assert_eq!(file.jobs.len(), 4);
    for job in &file.jobs {
        let log = dir.path().join(format!("l_lat.{}.log", job.thread_number));
        let log = std::fs::read_to_string(log).expect("a log");
        let want: Vec<(u64, u64)> = log
            .lines()
            .map(|l| {
                let w: Vec<u64> = l.split(", ").map_while(|w| w.parse().ok()).collect();
                (w[3], w[4])
            })
            .collect();
        let mut got = ours(job, true).expect("fine");
        got.retain(|l| matches!(l.1, "read" | "write"));
        let got: Vec<(u64, u64)> = got.into_iter().map(|l| (l.3, l.2)).collect();
        assert_eq!(got, want, "{} {}", job.name, job.subjob);
    }
}

/// The same fields of a terse line; the JSON that ours is made of has six decimals, and of the
/// share of a group's bandwidth fewer.
fn assert_same_fields(ours: &str, theirs: &str) {
    let (a, b): (Vec<&str>, Vec<&str>) = (ours.split(';').collect(), theirs.split(';').collect());
    assert_eq!(a.len(), b.len(), "{ours}\n{theirs}");
    for (n, (a, b)) in a.iter().zip(&b).enumerate() {
        let number = |t: &str| t.trim_end_matches('%').parse::<f64>();
        let near = match (number(a), number(b)) {
            (Ok(x), Ok(y)) => (x - y).abs() <= 0.01 + y.abs() * 2e-3 && a.contains('.'),
            _ => false,
        };
        assert!(a == b || near, "field {n}: {a} {b}\n{ours}\n{theirs}");
    }
}

/// The same line, but for what the digits of the JSON lose: numbers are within a thousandth, and
/// shares within one in their last digit, where a half is rounded.
fn is_same_line(ours: &str, theirs: &str) -> bool {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let words = |line: &str| -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        for c in line.chars() {
            match out.last_mut() {
                Some(word) if word.ends_with(is_number) == is_number(c) => word.push(c),
                _ => out.push(c.to_string()),
            }
        }
        out
    };
    let (a, b) = (words(ours), words(theirs));
    let least =
        if ours.trim_start().starts_with("lat (") && ours.contains('%') { 0.0101 } else { 0.0 };
    a.len() == b.len()
        && a.iter().zip(&b).all(|(a, b)| match (a.parse::<f64>(), b.parse::<f64>()) {
            (Ok(a), Ok(b)) => (a - b).abs() <= (a.abs().max(b.abs()) / 1000.0).max(least),
            _ => a == b,
        })
}

/// fio prints one run as text, as JSON and as a terse line: the text and the line are those that
/// are made of the JSON here, but for its process ids.
#[test]
fn a_report_as_text_is_laid_out_as_fios() {
    let check = "fio report as text";
    if !fio_is_there(check) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let text = "[global]\nsize=1m\n\
        [seq]\nrw=write\nbs=64k\nfsync=4\ndescription=some writes\nthread=1\n\
        [mix]\nstonewall\nrw=randrw\nbs=4k,8k\nrate_iops=200\nruntime=2\ntime_based\n\
        bwavgtime=300\nthread=1\n\
        [grp]\nstonewall\nrw=randread\nbsrange=1k-16k\nnumjobs=2\ngroup_reporting\n";
    std::fs::write(dir.path().join("job.fio"), text).expect("written");
    let out = Command::new("fio")
        .current_dir(dir.path())
        .args(["--output-format=normal,json,terse", "--eta=never", "job.fio"])
        .output()
        .expect("fio runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let all = String::from_utf8_lossy(&out.stdout).into_owned();
    let begins = all.find("\n{\n").expect("a document") + 1;
    let mut documents =
        serde_json::Deserializer::from_str(&all[begins..]).into_iter::<serde_json::Value>();
    let doc = documents.next().expect("a document").expect("JSON");
    let (before, behind) = (&all[..begins], &all[begins + documents.byte_offset()..]);

    let file = parse("job.fio", text.as_bytes(), &|_| None, &Variables::default());
    assert!(!file.has_errors(), "{}", file.rendered());
    // What fio lays out is said between.
    let is_terse = |l: &&str| l.starts_with("3;");
    let lines: Vec<&str> = before.lines().filter(is_terse).collect();
    for (ours, theirs) in terse(&doc).lines().zip(&lines) {
        assert_same_fields(ours, theirs);
    }
    assert_eq!(terse(&doc).lines().count(), lines.len());
    let before: Vec<&str> =
        before.lines().filter(|l| !is_terse(l) && !l.contains("Laying out")).collect();
    let heading = heading(&file);
    assert_eq!(heading.lines().collect::<Vec<_>>(), before);

    let jobs = [(1, 1), (1, 2), (2, 3)];
    let jobs = jobs.map(|(jobs, first)| Counts { jobs, first, zone_resets: 0 });
    let no_pid = |l: &str| match l.split_once(": pid=") {
        Some((head, tail)) => format!("{head}: {}", tail.split_once(": ").map_or("", |t| t.1)),
        None => l.to_owned(),
    };
    let made = normal(&doc, &jobs);
    let made: Vec<String> = made.lines().map(no_pid).collect();
    let want: Vec<String> = behind.lines().skip(1).map(no_pid).collect();
    let empty = |l: &&String| !l.is_empty();
    for (ours, theirs) in made.iter().filter(empty).zip(want.iter().filter(empty)) {
        assert!(is_same_line(ours, theirs), "{ours}\n{theirs}\n\n{}\n{behind}", made.join("\n"));
    }
    let (made, want) = (made.iter().filter(empty).count(), want.iter().filter(empty).count());
    assert!(want > 60 && made == want, "{made} lines, {want} of fio's:\n{behind}");
}
