//! Job files: what is understood, what is refused with its place, and that any bytes are taken.

use std::collections::BTreeMap;

use wp_base::Rng;
use wp_workload::fio::{
    Class, JobFile, Kind, OPTIONS, Sequence, Severity, Variables, find, form, forms, layout, parse,
};

use crate::skip::skipped;

fn plain(text: &str) -> JobFile {
    parse("t.fio", text.as_bytes(), &|_| None, &Variables::default())
}

fn first_error(text: &str) -> String {
    let file = plain(text);
    let d = file.diagnostics.iter().find(|d| d.severity == Severity::Error).expect("an error");
    d.to_string()
}

#[test]
fn global_sections_apply_to_the_jobs_after_them() {
    let f =
        plain("[global]\nbs=8k\nsize=1m\n[a]\n[global]\nbs=16k\n[b]\nrw=write\n[c]\nbs=4k # c\n");
    assert!(!f.has_errors(), "{}", f.rendered());
    let bs: Vec<u64> = f.jobs.iter().map(|j| j.bs[0]).collect();
    assert_eq!(bs, [8192, 16384, 4096]);
    assert_eq!(f.jobs[1].given, [("rw".to_owned(), "write".to_owned())]);
}

#[test]
fn an_error_shows_line_column_caret_and_help() {
    let text = first_error("[j]\nrw=write\n  fsnyc=1\n");
    assert_eq!(
        text,
        "error: option `fsnyc` is not one of fio 3.33's\n --> t.fio:3:3\n  |\n3 |   fsnyc=1\n  |   ^^^^^\n  = help: did you mean `fsync`?"
    );
    let text = first_error("[j]\nsize=4x\n");
    assert!(text.contains("t.fio:2:6") && text.contains("not a unit of size"), "{text}");
}

#[test]
fn what_is_not_supported_is_an_error_with_a_way_out() {
    for (line, says) in [
        ("atomic=1", "needs ioengine pvsync2, libaio or io_uring"),
        ("ioengine=cpuio", "it does no I/O"),
        ("ioengine=rdma", "it reaches storage over a network"),
        ("filename=/dev/sda:f", "is a block device"),
        ("rw=randtrim", "trims"),
        ("verify_only", "run the job that writes"),
        ("verify_pattern='f'", "a host file"),
        ("fallocate=strange", "posix"),
        ("random_distribution=zipf:1", "other than 1.0"),
    ] {
        let text = first_error(&format!("[j]\nsize=1m\n{line}\n"));
        assert!(text.contains(says), "{line}: {text}");
    }
}

#[test]
fn variables_come_from_what_is_handed_in() {
    let named = BTreeMap::from([("SIZE".to_owned(), "3m".to_owned())]);
    let variables = Variables { named, cpus: 5, ..Variables::default() };
    let text = b"[j]\nsize=${SIZE}\nbs=$pagesize\nnumjobs=$ncpus\n";
    let f = parse("t.fio", text, &|_| None, &variables);
    assert!(!f.has_errors(), "{}", f.rendered());
    assert_eq!(f.jobs.len(), 5);
    assert_eq!(
        layout(&f.jobs[0], &mut |_| wp_workload::fio::Existing::default()).expect("fits").size,
        3 << 20
    );
    assert!(first_error("[j]\nsize=${PATH}\n").contains("no variable `PATH`"));
}

#[test]
fn included_files_add_options_to_the_section() {
    let include = |name: &str| (name == "d/common.fio").then(|| b"bs=2k\nrw=write\n".to_vec());
    let f =
        parse("d/t.fio", b"[j]\ninclude common.fio\nsize=1m\n", &include, &Variables::default());
    assert!(!f.has_errors(), "{}", f.rendered());
    assert_eq!(f.jobs[0].bs[1], 2048);
    let again = |_: &str| Some(b"include x\n".to_vec());
    let f = parse("t.fio", b"[j]\ninclude x\n", &again, &Variables::default());
    assert!(f.rendered().contains("deep"), "{}", f.rendered());
}

#[test]
fn names_of_files_are_made_as_fio_makes_them() {
    let f = plain("[j]\nsize=1m\nnumjobs=3\nnrfiles=2\ndirectory=/d\n");
    let paths: Vec<String> = f.jobs.iter().flat_map(|j| j.paths()).collect();
    assert_eq!(paths, ["d/j.0.0", "d/j.0.1", "d/j.2.0", "d/j.2.1", "d/j.1.0", "d/j.1.1"]);
    let f = plain("[j]\nsize=1m\nfilename=x:y\\:z\n");
    assert_eq!(f.jobs[0].paths(), ["x", "y:z"]);
    let f = plain("[j]\nsize=1m\nnumjobs=3\ndirectory=/d:e\\:f\n");
    let paths: Vec<String> = f.jobs.iter().flat_map(|j| j.paths()).collect();
    assert_eq!(paths, ["d/j.0.0", "d/j.2.0", "e:f/j.1.0"], "clones take turns");
}

#[test]
fn shares_are_of_each_file_and_offsets_in_whole_blocks() {
    let text = "[j]\nfilename=/dev/nvme0n1\nbs=4k\nsize=25%\noffset_increment=25%\nnumjobs=4\n";
    let mut device = |_: &str| wp_workload::fio::Existing { length: 1_000_448, is_device: true };
    let f = plain(text);
    let all = f.jobs.iter().map(|j| (j.subjob, layout(j, &mut device).expect("fits")));
    let mut all: Vec<_> = all.map(|(n, l)| (n, l.files[0].start, l.files[0].span)).collect();
    all.sort_unstable();
    // As the logs of fio 3.33 have them: rounded up, and sizes down.
    let (one, two, three) = (253_952, 503_808, 753_664);
    let size = 249_856;
    assert_eq!(all, [(0, 0, size), (1, one, size), (2, two, size), (3, three, 245_760)]);
    for wrong in ["offset=101%", "size=-1%", "io_size=200%", "filesize=8k-4k", "startdelay=3-1"] {
        let text = first_error(&format!("[j]\nsize=1m\n{wrong}\n"));
        assert!(text.contains(wrong.split_once('=').expect("one").0), "{wrong}: {text}");
    }
}

/// The children of fio 3.33 began a third of a second after these.
#[test]
fn a_job_waits_as_long_as_fios() {
    let f = plain(
        "[global]\nioengine=null\nsize=4k\nstartdelay=1-4\n[a]\n[b]\n[c]\nstartdelay=2500ms-4500ms\n",
    );
    let all: Vec<u64> = f.jobs.iter().map(wp_workload::fio::Job::delay).collect();
    assert_eq!(all, [3_008_657, 1_263_330, 3_619_000]);
}

#[test]
fn depth_with_a_synchronous_engine_and_wrong_file_syncs_are_warned_of() {
    let f = plain("[j]\nsize=1m\nrw=write\niodepth=8\nnrfiles=2\nfsync=1\n");
    assert!(!f.has_errors());
    assert_eq!(f.diagnostics.len(), 2, "{}", f.rendered());
}

/// Seeds of fio's headers, and what is off in a job that trims and writes.
#[test]
fn what_fio_itself_does_otherwise_is_warned_of_and_nothing_else() {
    let mixed = "[j]\nsize=1m\nrw=randrw\nverify=md5\nloops=2\ndirect=1\n";
    let warned = |text: &str| plain(text).rendered();
    assert!(!warned(mixed).contains("EILSEQ"), "{}", warned(mixed));
    assert!(warned(&format!("{mixed}randseed=7\n")).contains("EILSEQ"));
    let trims = "[j]\nsize=1m\nrw=randtrimwrite\nfilename=/dev/nvme0n1\n";
    assert!(plain(trims).diagnostics.is_empty(), "{}", warned(trims));
    assert!(!plain(&format!("{trims}ba=4k\n")).has_errors());
    assert!(plain(&format!("{trims}ba=4k\n")).diagnostics.is_empty(), "the smallest block");
    assert!(warned(&format!("{trims}ba=8k\n")).contains("writes elsewhere"));
    let null = plain("[j]\nsize=1m\nrw=trim\nioengine=null\n");
    assert!(!null.has_errors(), "{}", null.rendered());
    let file = plain("[j]\nsize=1m\nrw=trim\n");
    assert!(file.rendered().contains("that is for block devices"), "{}", file.rendered());
}

/// What the installed fio says of an option: alias, default, least, most, words.
fn said_by_fio(name: &str) -> [String; 5] {
    let help = format!("--cmdhelp={name}");
    let out = std::process::Command::new("fio").arg(help).output().expect("fio runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut said: [String; 5] = Default::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(": ") else { continue };
        match (key.trim(), value.trim()) {
            ("alias", v) => v.clone_into(&mut said[0]),
            ("default", v) if v != "no default" => v.clone_into(&mut said[1]),
            ("range", v) => {
                let bound = |part: Option<&str>| {
                    let n = part.and_then(|p| p.split_once('=')).map_or("", |p| p.1);
                    n.replace(".000000", "").replace("-1", "")
                };
                let mut parts = v.split(", ");
                let least = parts.next().and_then(|p| p.split_once('=')).map_or("", |p| p.1);
                (said[2], said[3]) = (least.replace(".000000", ""), bound(parts.next()));
            }
            ("valid values" | "", v) => {
                let word = v.split_whitespace().next().unwrap_or_default();
                said[4] += &format!("{}{word}", if said[4].is_empty() { "" } else { "," });
            }
            _ => {}
        }
    }
    said
}

#[test]
fn the_list_of_options_is_what_the_installed_fio_says() {
    let check = "fio option table";
    match std::process::Command::new("fio").arg("--version").output() {
        Ok(v) if v.stdout.starts_with(b"fio-3.33") => {}
        Ok(_) => return skipped(check, "another version than fio 3.33 is installed"),
        Err(_) => return skipped(check, "fio is not installed"),
    }
    let out = std::process::Command::new("fio").arg("--cmdhelp=all").output().expect("fio runs");
    let text = String::from_utf8_lossy(&out.stdout);
    let names: Vec<&str> =
        text.lines().filter_map(|l| l.split_once(':')).map(|(k, _)| k.trim()).collect();
    let missing: Vec<_> = names.iter().filter(|k| find(k).is_none()).collect();
    assert!(names.len() > 200 && missing.is_empty(), "{missing:?}");
    for form in forms().filter(|f| f.engine.is_empty()) {
        let words = form.words().collect::<Vec<_>>().join(",");
        let (least, most) = form.range();
        let own = [form.alias, form.default.unwrap_or_default(), least, most, &words];
        assert_eq!(own, said_by_fio(form.name), "{}", form.name);
    }
}

#[test]
fn an_option_is_refused_or_has_an_effect_or_says_that_it_has_none() {
    // Texts, of which none is wrong, and switches without effect for a reason that the table gives.
    const ANY_VALUE: [&str; 14] = [
        "replay_redirect",
        "write_iolog",
        "write_bw_log",
        "write_iops_log",
        "write_lat_log",
        "name",
        "description",
        "filename",
        "filename_format",
        "directory",
        "buffer_pattern",
        "verify_pattern",
        "clocksource",
        "significant_figures",
    ];
    for o in OPTIONS {
        let wrong = plain(&format!("[j]\nsize=1m\n{}=?!\n", o.name)).has_errors();
        let idle = o.class == Class::NoEffect || ANY_VALUE.contains(&o.name);
        assert!(wrong || idle, "{} takes any value in silence", o.name);
        let form = form(o.name).expect("listed");
        let mut asking = ["1", "0", "7"].into_iter().chain(form.words());
        let asking =
            asking.find(|v| !form.is_off(Some(v), 1024) && form.verify(Some(v), 1024).is_ok());
        let refused = |value: &str| {
            let file = plain(&format!("[j]\nsize=1m\n{}={value}\n", o.name));
            file.is_unsupported()
        };
        if o.class == Class::Refused {
            // Of an engine that has a single mode nothing can be asked.
            assert!(asking.is_none_or(refused), "{}={asking:?}", o.name);
            let default = form.default.unwrap_or("0");
            assert!(form.kind == Kind::Text || !refused(default), "{}={default}", o.name);
        }
    }
}

#[test]
fn any_bytes_are_parsed_without_a_panic_and_any_job_ends() {
    let seed = b"[global]\nbs=4k\nsize=64k\nrw=randrw:3\nbsrange=1k-9k\nbssplit=1k/20:2k/:4k/\n\
        [a]\nnrfiles=3\nfile_service_type=random:2\nfsync=2\nloops=2\npercentage_random=40,60\n\
        [b]\nnumjobs=2\noffset=4k\noffset_increment=1k\nio_size=100k\nrandseed=3\ninclude x\n\
        random_generator=lfsr\nfilename_format=$jobname.$filenum\n${A}=${B}\n";
    let mut rng = Rng::stream(1, "mutations");
    for _ in 0..1500 {
        let mut bytes = seed.to_vec();
        for _ in 0..=rng.below(8) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(4) {
                0 => bytes[at] = rng.next_u64() as u8,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, b"[]=:,/-%$;#\n 019kmgt"[rng.below(20) as usize]),
                _ => {
                    let to = (at + rng.below(40) as usize).min(bytes.len());
                    let part = bytes[at..to].to_vec();
                    let into = rng.below(bytes.len() as u64) as usize;
                    bytes.splice(into..into, part);
                }
            }
        }
        let f = parse("m.fio", &bytes, &|_| Some(b"bs=1k\n\xff=3".to_vec()), &Variables::default());
        for d in &f.diagnostics {
            assert!(!d.to_string().is_empty() && d.at.line > 0);
        }
        if f.has_errors() {
            continue;
        }
        for job in f.jobs.iter().take(4) {
            let Ok(plan) = layout(job, &mut |_| wp_workload::fio::Existing::default()) else {
                continue;
            };
            let blocks = plan.files.iter().map(|f| f.span / job.block_min()).sum::<u64>();
            if blocks > 1 << 20 {
                continue;
            }
            let Ok(mut sequence) = Sequence::new(job, &plan, 1, false) else { continue };
            for _ in 0..2000 {
                if sequence.next_action() == wp_workload::fio::Action::Done {
                    break;
                }
            }
        }
    }
}
