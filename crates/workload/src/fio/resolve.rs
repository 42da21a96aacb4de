//! One option's effect on a job, and what follows from all of them together.

use wp_vfs::{Reserve, SyncKind};

use super::diag::Diagnostic;
use super::distribution;
use super::engines;
use super::forms::{self, Kind};
use super::ini::{Entry, Section};
use super::job::{
    Distribution, Engine, ExitWhat, FileService, Generator, Hint, Job, JobFile, LatencyTarget,
    Used, Verify,
};
use super::options::{self, Class};
use super::paths;
use super::replay::ReplayOptions;
use super::result;
use super::steady::{Criterion, SteadyState};
use super::value::{self, Amount, by_direction, flag, micros, numbers_by_direction, whole};

/// Most operations in flight of one job: as many as Linux has for all (`aio-max-nr`).
const DEPTH_MAX: u64 = 65_536;

/// The percentiles that fio reports by default, in millionths of a percent.
pub const PERCENTILES: [u64; 17] = [
    1_000_000, 5_000_000, 10_000_000, 20_000_000, 30_000_000, 40_000_000, 50_000_000, 60_000_000,
    70_000_000, 80_000_000, 90_000_000, 95_000_000, 99_000_000, 99_500_000, 99_900_000, 99_950_000,
    99_990_000,
];
/// Most percentiles in a list.
const PERCENTILES_MAX: usize = 20;
/// Microseconds between the ends of a range of delays at most: fio counts them in 31 bits.
const DELAYS_MAX: u64 = i32::MAX as u64;
/// Longest time over which a state may have to be steady.
const SECONDS_MAX: usize = 1_000_000;
/// Most entries of a `bssplit` for one direction.
const SPLIT_MAX: usize = 64;

/// What a value may be called that is not done here.
enum Wrong {
    /// The value cannot be understood.
    Value(String),
    /// It can, but is not supported.
    Refused(String),
}

impl From<String> for Wrong {
    fn from(why: String) -> Wrong {
        Wrong::Value(why)
    }
}

/// Applies a section's options in fio's order: `filename` counts last, `kb_base` first.
pub fn section(section: &Section, job: &mut Job, file: &mut JobFile) {
    let mut order: Vec<&Entry> = section.entries.iter().collect();
    order.sort_by_key(|e| match e.key.as_str() {
        "kb_base" => 0,
        "filename" => 2,
        _ => 1,
    });
    let first = file.used.len();
    for entry in order {
        one(entry, job, file, section);
    }
    // The table follows the file, whatever the order of effect.
    file.used[first..].sort_by_key(|u| (u.at.line, u.at.column));
    // As fio's report lists them: by their first name, and none that stands without a value.
    for e in &section.entries {
        let (Some(value), Some(option)) = (&e.value, options::find(&e.key)) else { continue };
        job.given.retain(|(k, _)| k != option.name);
        job.given.push((option.name.to_owned(), value.clone()));
    }
}

fn one(entry: &Entry, job: &mut Job, file: &mut JobFile, section: &Section) {
    let option = options::find(&entry.key);
    let mut refused = false;
    let given = entry.value.as_deref();
    let form = option.and_then(|o| forms::form(o.name));
    let is_off = || form.is_some_and(|f| f.is_off(given, job.kb_base));
    // A word that is off may have another spelling: `verify=none` is `verify=0`.
    let is_off_word = form.is_some_and(|f| f.kind == Kind::Word) && is_off();
    let verify = |kb| match form {
        // fio has more engines than its list of values names: any that it can load.
        Some(f) if !is_off_word && f.name != "ioengine" => {
            f.verify(given, kb).map_err(Wrong::Value)
        }
        _ => Ok(()),
    };
    match option {
        // What is wrong with it has been said.
        _ if entry.is_void => {}
        None => {
            let help = options::nearest(&entry.key)
                .map(|n| format!("did you mean `{n}`?"))
                .unwrap_or_else(|| "`writepath fio check --all` lists what is known".to_owned());
            let message = format!("option `{}` is not one of fio 3.33's", entry.key);
            file.diagnostics.push(Diagnostic::error(&entry.at, message, help));
            refused = true;
        }
        Some(o) if o.class == Class::Refused && is_off() => {}
        Some(o) if o.class == Class::Refused && verify(job.kb_base).is_ok() => {
            let message = format!("option `{}` is not supported", o.name);
            file.diagnostics.push(Diagnostic::unsupported(&entry.at, message, o.note));
            refused = true;
        }
        Some(o) => match set(o.name, entry, job).and_then(|()| verify(job.kb_base)) {
            Ok(()) => {
                let is_time = form.is_some_and(|f| f.kind == Kind::Time) || o.name == "thinktime";
                reads_otherwise(o.name, entry, file);
                if is_time && entry.value.as_ref().is_some_and(|v| v.contains(':')) {
                    let what = format!("`{}` is hours:minutes:seconds here", entry.key);
                    let help = "fio 3.33 reads the first number only, as seconds";
                    file.diagnostics.push(Diagnostic::warning(&entry.value_at, what, help));
                }
            }
            Err(Wrong::Value(why)) => {
                let message = format!("option `{}`: {why}", entry.key);
                file.diagnostics.push(Diagnostic::error(&entry.value_at, message, o.note));
            }
            Err(Wrong::Refused(why)) => {
                let message = format!("option `{}`: {why}", entry.key);
                let help = format!("{}: {}", o.class.word(), o.note);
                file.diagnostics.push(Diagnostic::unsupported(&entry.value_at, message, help));
                refused = true;
            }
        },
    }
    file.used.push(Used {
        section: section.name.clone(),
        option,
        key: entry.key.clone(),
        value: entry.value.clone().unwrap_or_default(),
        at: entry.at.clone(),
        refused,
    });
}

/// Warns of values that look like a range, and that fio reads as something else.
fn reads_otherwise(name: &str, entry: &Entry, file: &mut JobFile) {
    let value = entry.value.as_deref().unwrap_or_default();
    let (what, help) = match name {
        "bs" | "ba" if value.contains(['-', ':']) => {
            (format!("`{value}` is read as a number for each direction"), "a range is bsrange")
        }
        "bssplit" if value.contains('-') => {
            (format!("`{value}`: of `36k-60k` only 36k is read"), "fio 3.33 has no ranges there")
        }
        _ => return,
    };
    file.diagnostics.push(Diagnostic::warning(
        &entry.value_at,
        format!("{what}, as by fio 3.33"),
        help,
    ));
}

/// Only one value is possible: what fio would do by it anyway.
fn only(text: &str, possible: &[&str], why: &str) -> Result<(), Wrong> {
    if possible.contains(&text) {
        return Ok(());
    }
    Err(Wrong::Refused(format!("`{text}` is not supported: {why}")))
}

fn set(name: &str, entry: &Entry, job: &mut Job) -> Result<(), Wrong> {
    let given = entry.value.as_deref();
    let kb = job.kb_base;
    let text = || match given {
        Some(v) if !v.is_empty() => Ok(v),
        _ => Err(Wrong::Value("a value is needed".to_owned())),
    };
    let bytes = |t: &str| value::bytes(t, kb);
    match name {
        "name" => job.name = text()?.to_owned(),
        "description" => job.description = text()?.to_owned(),
        "rw" => direction(text()?, job)?,
        "rw_sequencer" => {
            job.identical = match text()? {
                "sequential" => false,
                "identical" => true,
                other => return Err(format!("`{other}`: sequential or identical").into()),
            }
        }
        "bs" => {
            numbers_by_direction(text()?, &mut job.bs, |t| positive(bytes(t)?))?;
        }
        "bsrange" => range(text()?, job)?,
        "bssplit" => split(text()?, job)?,
        "bs_unaligned" => job.unaligned = flag(given)?,
        "bs_is_seq_rand" => job.bs_is_seq_rand = flag(given)?,
        "ba" => numbers_by_direction(text()?, &mut job.align, bytes)?,
        "size" | "io_size" | "offset" | "offset_increment" if zones_of(text()?).is_some() => {
            let all = ["size", "io_size", "offset", "offset_increment"];
            let place = all.iter().position(|k| *k == name).unwrap_or(0);
            job.in_zones[place] = zones_of(text()?);
        }
        "size" => job.size = value::amount(text()?, kb)?,
        "io_size" => job.io_size = value::amount(text()?, kb)?,
        "filesize" => {
            job.file_size = from_to(text()?, &['-', ':', ','], bytes)?;
            positive(job.file_size.0)?;
        }
        "offset" => job.offset = value::amount(text()?, kb)?,
        "offset_increment" => job.offset_increment = value::amount(text()?, kb)?,
        "offset_align" => job.offset_align = bytes(text()?)?,
        "number_ios" => job.number_ios = bytes(text()?)?,
        "loops" => job.loops = bytes(text()?)?.max(1),
        "numjobs" => job.numjobs = positive(bytes(text()?)?)?,
        "rwmixread" => job.rwmix_read = percent(text()?)?,
        "rwmixwrite" => job.rwmix_read = 100 - percent(text()?)?,
        "percentage_random" => {
            numbers_by_direction(text()?, &mut job.percent_random, percent)?;
        }
        "norandommap" => job.no_map = flag(given)?,
        "random_generator" => {
            job.generator_given = true;
            job.generator = match text()? {
                "tausworthe" => Generator::Taus88,
                "tausworthe64" => Generator::Taus258,
                "lfsr" => Generator::Lfsr,
                t => return Err(format!("`{t}`: tausworthe, tausworthe64 or lfsr").into()),
            };
        }
        "random_distribution" => distribution::set(text()?, job).map_err(Wrong::Value)?,
        "randseed" => (job.seed, job.seed_given) = (bytes(text()?)?, true),
        "randrepeat" => job.repeat = flag(given)?,
        "allrandrepeat" => job.all_repeat = flag(given)?,
        "filename" => {
            let names = names(text()?);
            if let Some(dir) = names.iter().find(|n| !paths::names_a_file(n)) {
                return Err(format!("`{dir}` names a directory, and no file can be made").into());
            }
            job.filenames.extend(names);
            job.nrfiles = job.filenames.len() as u64;
        }
        "filename_format" => job.filename_format = text()?.to_owned(),
        "directory" => job.directory = names(text()?),
        "fill_device" => job.fill_device = flag(given)?,
        "nrfiles" => job.nrfiles = positive(bytes(text()?)?)?,
        "openfiles" => job.openfiles = bytes(text()?)?,
        "file_service_type" => service(text()?, job)?,
        "fallocate" => {
            let known = ["none", "0", "truncate", "native", "posix", "1", "keep"];
            only(text()?, &known, "none, truncate, native, posix or keep")?;
            job.truncate_first = given == Some("truncate");
            // The native call is mode 0 on Linux, as posix_fallocate is.
            job.reserve_first = match given {
                Some("native" | "posix" | "1") => Some(Reserve::Space { keep_size: false }),
                Some("keep") => Some(Reserve::Space { keep_size: true }),
                _ => None,
            };
        }
        "overwrite" => job.overwrite = flag(given)?,
        "create_serialize" => job.create_serialize = flag(given)?,
        "create_fsync" => job.create_fsync = flag(given)?,
        "create_on_open" => job.create_on_open = flag(given)?,
        "create_only" => job.create_only = flag(given)?,
        "unlink" => job.unlink = flag(given)?,
        "fsync" => job.fsync = bytes(text()?)?,
        "fdatasync" => job.fdatasync = bytes(text()?)?,
        "end_fsync" => job.end_fsync = flag(given)?,
        "fsync_on_close" => job.fsync_on_close = flag(given)?,
        "sync" => {
            job.open_sync = match text()? {
                "none" | "0" => None,
                "sync" | "1" => Some(SyncKind::Full),
                "dsync" => Some(SyncKind::DataOnly),
                other => return Err(Wrong::Value(format!("`{other}`: none, sync or dsync"))),
            };
        }
        "ioengine" => job.engine = engines::engine(text()?).map_err(Wrong::Refused)?,
        "iodepth" => job.iodepth = positive(bytes(text()?)?)?,
        "iodepth_batch" => job.batch = bytes(text()?)?,
        "iodepth_batch_complete_min" => job.batch_complete_min = bytes(text()?)?,
        "iodepth_batch_complete_max" => job.batch_complete_max = bytes(text()?)?,
        "iodepth_low" => job.iodepth_low = bytes(text()?)?,
        "io_submit_mode" => only(text()?, &["inline", "offload"], "no such mode")?,
        "direct" | "buffered" => job.direct = job.direct.past(flag(given)? == (name == "direct")),
        "atomic" => job.direct = job.direct.untorn(flag(given)?),
        "runtime" => job.runtime = micros(text()?, true)?,
        "time_based" => job.time_based = flag(given)?,
        "startdelay" => {
            job.startdelay = from_to(text()?, &['-', ','], |t| micros(t, true))?;
            if job.startdelay.1 - job.startdelay.0 > DELAYS_MAX {
                return Err("from the first to the second are 35 minutes at most"
                    .to_owned()
                    .into());
            }
        }
        "thinktime" => job.thinktime = micros(text()?, false)?,
        "thinktime_blocks" => job.thinktime_blocks = positive(bytes(text()?)?)?,
        "thinktime_blocks_type" => only(text()?, &["complete", "issue"], "no such type")?,
        "thinktime_spin" => drop(micros(text()?, false)?),
        "rate" => numbers_by_direction(text()?, &mut job.rate, bytes)?,
        "rate_iops" => numbers_by_direction(text()?, &mut job.rate_iops, bytes)?,
        "rate_min" => numbers_by_direction(text()?, &mut job.rate_min, bytes)?,
        "rate_iops_min" => numbers_by_direction(text()?, &mut job.rate_iops_min, bytes)?,
        "rate_cycle" => job.rate_cycle = bytes(text()?)?,
        "rate_process" => {
            job.poisson = match text()? {
                "linear" => false,
                "poisson" => true,
                other => return Err(format!("`{other}`: linear or poisson").into()),
            }
        }
        "latency_target" => target(job).ns = micros(text()?, false)?.saturating_mul(1000),
        "latency_window" => target(job).window_us = micros(text()?, false)?,
        "latency_percentile" => {
            target(job).percentile = match text()?.parse::<f64>() {
                Ok(n) if (0.0..=100.0).contains(&n) => n,
                _ => return Err(format!("`{}`: from 0 to 100", text()?).into()),
            }
        }
        "latency_run" => target(job).runs_on = flag(given)?,
        "steadystate" => steady(job).criterion = Criterion::parse(text()?, bytes)?,
        "steadystate_duration" => {
            // fio counts whole seconds.
            steady(job).seconds = (micros(text()?, true)? / 1_000_000) as usize;
        }
        "steadystate_ramp_time" => steady(job).ramp_us = micros(text()?, true)?,
        "invalidate" => job.invalidate = flag(given)?,
        // Milliseconds, as fio's manual has it; the form of the option bounds them.
        "bwavgtime" => job.bw_period_ns = bytes(text()?)?.saturating_mul(1_000_000),
        "iopsavgtime" => job.iops_period_ns = bytes(text()?)?.saturating_mul(1_000_000),
        "ramp_time" => job.ramp_time = micros(text()?, true)?,
        "unlink_each_loop" => job.unlink_each_loop = flag(given)?,
        "file_append" => job.file_append = flag(given)?,
        "pre_read" => job.pre_read = flag(given)?,
        "thinktime_iotime" => job.thinktime_iotime = micros(text()?, false)?,
        "wait_for" => job.wait_for = Some(text()?.to_owned()),
        "exitall" => job.exitall = flag(given)?,
        "exitall_on_error" => job.exitall_on_error = flag(given)?,
        "exit_what" => {
            job.exit_what = match text()? {
                "group" => ExitWhat::Group,
                "stonewall" => ExitWhat::Stonewall,
                "all" => ExitWhat::All,
                other => return Err(format!("`{other}`: group, stonewall or all").into()),
            }
        }
        "flow" => job.flow = bytes(text()?)?,
        "flow_id" => job.flow_id = bytes(text()?)?,
        "flow_sleep" => job.flow_sleep = bytes(text()?)?,
        "continue_on_error" => {
            job.continue_on_error = match text()? {
                "none" | "0" => [false; 3],
                "read" => [true, false, false],
                "write" => [false, true, false],
                "verify" => [false, false, true],
                "io" => [true, true, false],
                "all" | "1" => [true; 3],
                other => {
                    let what = format!("`{other}`: none, read, write, verify, io or all");
                    return Err(what.into());
                }
            }
        }
        "ignore_error" => job.ignored_errors = ignored(text()?)?,
        "max_latency" => job.max_latency = micros(text()?, false)?,
        "write_bw_log" => job.bw_log = Some(given.unwrap_or_default().to_owned()),
        "write_iops_log" => job.iops_log = Some(given.unwrap_or_default().to_owned()),
        "write_iolog" => {
            job.iolog = Some(text()?.to_owned()).filter(|name| !name.is_empty());
        }
        "read_iolog" => replay(job).path = text()?.to_owned(),
        "replay_no_stall" => replay(job).no_stall = flag(given)?,
        "replay_redirect" => replay(job).redirect = Some(text()?.to_owned()),
        "replay_scale" => replay(job).scale = bytes(text()?)?,
        "replay_align" => {
            let align = bytes(text()?)?;
            if align > 0 && !align.is_power_of_two() {
                return Err(format!("`{align}` is no power of two").into());
            }
            replay(job).align = align;
        }
        "replay_time_scale" => replay(job).time_scale = positive(bytes(text()?)?)?,
        "write_lat_log" => job.lat_log = Some(given.unwrap_or_default().to_owned()),
        "per_job_logs" => job.per_job_logs = flag(given)?,
        "log_avg_msec" => job.log_period_ns = bytes(text()?)?.saturating_mul(1_000_000),
        "log_offset" => job.log_offset = flag(given)?,
        "log_max_value" => job.log_max = flag(given)?,
        "thread" => job.thread = flag(given)?,
        "fadvise_hint" => {
            job.hint = match text()? {
                "0" => Hint::None,
                "1" => Hint::Pattern,
                "random" => Hint::Random,
                "sequential" => Hint::Sequential,
                other => {
                    return Err(format!("`{other}`: 0, 1, random or sequential").into());
                }
            }
        }
        "softrandommap" | "hipri" | "disk_util" | "gtod_reduce" | "disable_lat"
        | "disable_clat" | "disable_slat" => drop(flag(given)?),
        "stonewall" => job.stonewall = flag(given)?,
        "new_group" => job.new_group = flag(given)?,
        "zero_buffers" => job.zero_buffers = flag(given)?,
        "refill_buffers" => job.refill = flag(given)?,
        "scramble_buffers" => job.scramble = flag(given)?,
        "verify_pattern" => quoted(text()?)?,
        "buffer_pattern" => {
            quoted(text()?)?;
            let hash = |h: u64, b: u8| wp_base::rng::mix64(h ^ u64::from(b));
            job.pattern = Some(text()?.bytes().fold(0x0F10_BA77, hash));
        }
        "verify" => {
            // One checksum with two implementations.
            job.checksum = text()?.replace("crc32c-intel", "crc32c");
            job.verify = match text()? {
                "0" | "none" => None,
                "null" => Some(Verify::Nothing),
                _ => Some(Verify::Contents),
            }
        }
        "do_verify" => job.do_verify = flag(given)?,
        "verify_interval" => job.verify_interval = bytes(text()?)?,
        "verify_backlog" => job.verify_backlog = bytes(text()?)?,
        "verify_backlog_batch" => job.verify_batch = bytes(text()?)?,
        "group_reporting" => job.group_reporting = flag(given)?,
        "clat_percentiles" => job.clat_percentiles = flag(given)?,
        "lat_percentiles" => job.lat_percentiles = flag(given)?,
        "slat_percentiles" => job.slat_percentiles = flag(given)?,
        "percentile_list" => job.percentiles = percentiles(text()?)?,
        "kb_base" => {
            job.kb_base = match text()? {
                "1000" => 1000,
                "1024" => 1024,
                other => return Err(format!("`{other}`: 1024 or 1000").into()),
            }
        }
        "allow_file_create" => job.makes_files = flag(given)?,
        "unified_rw_reporting" => {
            only(text()?, &["none", "0"], "only separate read and write latencies")?
        }
        "zonemode" => {
            let word = text()?;
            if !["none", "strided", "zbd"].contains(&word) {
                return Err(format!("`{word}`: none, strided or zbd").into());
            }
            (job.strided, job.zbd) = (word == "strided", word == "zbd");
        }
        "zonecapacity" => job.zone_capacity = bytes(text()?)?,
        "max_open_zones" => job.max_open_zones = whole(text()?)?,
        "job_max_open_zones" => job.job_max_open_zones = whole(text()?)?,
        "ignore_zone_limits" => job.ignore_zone_limits = flag(given)?,
        "read_beyond_wp" => job.read_beyond_wp = flag(given)?,
        "zone_reset_threshold" => job.zone_reset_threshold = Some(millionths(text()?)?),
        "zone_reset_frequency" => {
            let n = millionths(text()?)?;
            job.zone_reset_every = (n > 0).then(|| 1_000_000 / n);
        }
        "stat_type" => only(text()?, &["stat", "lstat", "statx"], "stat, lstat or statx")?,
        "zonesize" => job.zone_size = positive(bytes(text()?)?)?,
        "zonerange" => job.zone_range = positive(bytes(text()?)?)?,
        "zoneskip" => job.zone_skip = bytes(text()?)?,
        // The rest is of the class `NoEffect` or `Refused`: a test walks the table.
        _ => {}
    }
    Ok(())
}

/// How a log is replayed, as far as it is given; `finish` drops it without a log.
fn replay(job: &mut Job) -> &mut ReplayOptions {
    job.replay.get_or_insert_default()
}

/// The latency target as far as it is given; `finish` drops one that asks for nothing.
fn target(job: &mut Job) -> &mut LatencyTarget {
    let none = LatencyTarget { ns: 0, window_us: 0, percentile: 100.0, runs_on: false };
    job.latency_target.get_or_insert(none)
}

/// The steady state as far as it is given; `finish` drops one without a duration.
fn steady(job: &mut Job) -> &mut SteadyState {
    let criterion = Criterion { iops: true, slope: true, percent: true, limit: 0.01 };
    job.steady_state.get_or_insert(SteadyState { criterion, seconds: 0, ramp_us: 0 })
}

/// Numbers of errors by direction: reads, writes, verification; `ENOSPC:28,EIO`.
fn ignored(text: &str) -> Result<[Vec<i32>; 3], String> {
    let mut all: [Vec<i32>; 3] = Default::default();
    for (list, of) in text.split(',').zip(&mut all) {
        for word in list.split(':').map(str::trim).filter(|w| !w.is_empty()) {
            let number = match word.parse::<i32>() {
                Ok(n) => Some(n.saturating_abs()).filter(|n| *n > 0),
                Err(_) => result::errno_of(word),
            };
            let unknown = || format!("`{word}` is no error of fio's: EPERM to ERANGE, or a number");
            of.push(number.ok_or_else(unknown)?);
        }
    }
    Ok(all)
}

/// A number of zones: `4z`.
fn zones_of(text: &str) -> Option<u64> {
    text.strip_suffix(['z', 'Z']).and_then(|n| n.trim().parse().ok())
}

/// A share from 0 to 1, in millionths.
fn millionths(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(n) if (0.0..=1.0).contains(&n) => Ok((n * 1e6).round() as u64),
        _ => Err(format!("`{text}`: from 0 to 1")),
    }
}

fn positive(n: u64) -> Result<u64, String> {
    if n == 0 { Err("at least 1".to_owned()) } else { Ok(n) }
}

/// fio reads a pattern in quotes from a file of the host.
fn quoted(pattern: &str) -> Result<(), Wrong> {
    match pattern.starts_with('\'') {
        true => Err(Wrong::Refused(format!("{pattern}: a pattern of a host file"))),
        false => Ok(()),
    }
}

fn percent(text: &str) -> Result<u64, String> {
    match whole(text.trim_end_matches('%'))? {
        n if n > 100 => Err(format!("`{text}`: at most 100")),
        n => Ok(n),
    }
}

fn direction(text: &str, job: &mut Job) -> Result<(), Wrong> {
    let (word, postfix) = match text.split_once(':') {
        Some((w, p)) => (w.trim(), Some(p.trim())),
        None => (text, None),
    };
    job.random = word.starts_with("rand");
    (job.reads, job.writes, job.trims) = match word.strip_prefix("rand").unwrap_or(word) {
        "read" => (true, false, false),
        "write" => (false, true, false),
        "trim" => (false, false, true),
        "trimwrite" => (false, true, true),
        "rw" => (true, true, false),
        "readwrite" if !job.random => (true, true, false),
        _ => {
            let other = word;
            let all = "read, write, trim, randread, randwrite, randtrim, rw, readwrite, randrw, \
                       trimwrite, randtrimwrite";
            return Err(format!("`{other}` is not a direction (directions: {all})").into());
        }
    };
    (job.sequence, job.skip) = (1, 0);
    if let Some(p) = postfix {
        if job.random {
            job.sequence = whole(p)?;
        } else {
            job.skip = value::signed_bytes(p, job.kb_base)?.0;
        }
    }
    Ok(())
}

/// One number, or a first and a last: `1k-2m`.
fn from_to(
    text: &str,
    separators: &[char],
    number: impl Fn(&str) -> Result<u64, String>,
) -> Result<(u64, u64), String> {
    let (a, b) = text.split_once(separators).unwrap_or((text, text));
    let (a, b) = (number(a.trim())?, number(b.trim())?);
    if a > b {
        return Err(format!("`{text}`: the first is greater than the second"));
    }
    Ok((a, b))
}

fn range(text: &str, job: &mut Job) -> Result<(), Wrong> {
    let kb = job.kb_base;
    let mut both: [(u64, u64); 3] = std::array::from_fn(|d| (job.min_bs[d], job.max_bs[d]));
    by_direction(text, &mut both, |t| {
        let (a, b) =
            t.split_once(['-', ':']).ok_or_else(|| format!("`{t}`: write a range, `1k-4k`"))?;
        let (a, b) = (positive(value::bytes(a, kb)?)?, positive(value::bytes(b, kb)?)?);
        Ok((a.min(b), a.max(b)))
    })?;
    for (d, (min, max)) in both.into_iter().enumerate() {
        (job.min_bs[d], job.max_bs[d]) = (min, max);
    }
    Ok(())
}

fn split(text: &str, job: &mut Job) -> Result<(), Wrong> {
    let kb = job.kb_base;
    let none: Vec<(u64, u64)> = Vec::new();
    let mut parsed = [none.clone(), none.clone(), none];
    by_direction(text, &mut parsed, |t| one_split(t, kb))?;
    for (d, list) in parsed.into_iter().enumerate() {
        if list.is_empty() {
            continue;
        }
        job.min_bs[d] = list.iter().map(|s| s.0).min().unwrap_or(0);
        job.max_bs[d] = list.iter().map(|s| s.0).max().unwrap_or(0);
        job.split[d] = list;
    }
    Ok(())
}

fn one_split(text: &str, kb: u64) -> Result<Vec<(u64, u64)>, String> {
    let mut list: Vec<(u64, Option<u64>)> = Vec::new();
    for part in text.split(':') {
        let (size, share) = part.split_once('/').unwrap_or((part, ""));
        let share = match share.trim() {
            "" => None,
            // fio reads as far as the digits go.
            s => Some(percent(s.split_once('.').map_or(s, |(n, _)| n))?).filter(|p| *p > 0),
        };
        let size = size.split_once('-').map_or(size, |(first, _)| first);
        list.push((positive(value::bytes(size, kb)?)?, share));
    }
    if list.len() > SPLIT_MAX {
        return Err(format!("at most {SPLIT_MAX} lengths"));
    }
    let given: u64 = list.iter().filter_map(|s| s.1).sum();
    let missing = list.iter().filter(|s| s.1.is_none()).count() as u64;
    if given > 100 && missing > 1 {
        return Err(format!("the percentages add up to {given}, more than 100"));
    }
    let rest = 100u64.saturating_sub(given).checked_div(missing).unwrap_or(0);
    let mut list: Vec<(u64, u64)> =
        list.into_iter().map(|(size, share)| (size, share.unwrap_or(rest))).collect();
    list.sort_by_key(|s| s.1);
    Ok(list)
}

fn names(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut name = String::new();
    let mut escaped = false;
    for c in text.chars() {
        match c {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            ':' if !escaped => out.push(std::mem::take(&mut name)),
            c => name.push(c),
        }
        escaped = false;
    }
    out.push(name);
    out.retain(|n| !n.is_empty());
    out
}

fn service(text: &str, job: &mut Job) -> Result<(), Wrong> {
    let (word, postfix) = match text.split_once(':') {
        Some((w, p)) => (w.trim(), Some(p.trim())),
        None => (text, None),
    };
    job.service = match word {
        "random" => FileService::Random,
        "roundrobin" => FileService::RoundRobin,
        "sequential" => FileService::Sequential,
        "zipf" | "pareto" | "normal" | "gauss" => {
            return Err(Wrong::Refused(format!("`{word}`: uniform choice only")));
        }
        other => return Err(format!("`{other}`: random, roundrobin or sequential").into()),
    };
    job.service_count = match postfix {
        Some(p) => positive(whole(p)?)?,
        None => 1,
    };
    Ok(())
}

fn percentiles(text: &str) -> Result<Vec<u64>, Wrong> {
    let mut out = Vec::new();
    for part in text.split(':') {
        // fio reads a number with decimals, and reports six of them.
        let n: f64 = part.trim().parse().map_err(|_| format!("`{part}` is not a number"))?;
        if !(n > 0.0 && n <= 100.0) {
            return Err(format!("`{part}`: above 0 and at most 100").into());
        }
        out.push((n * 1e6).round() as u64);
    }
    if out.len() > PERCENTILES_MAX {
        return Err(format!("at most {PERCENTILES_MAX} percentiles").into());
    }
    out.sort_unstable();
    Ok(out)
}

/// What follows from all options together.
pub fn finish(job: &mut Job, found: &mut Vec<Diagnostic>) {
    let at = job.at.clone();
    let settled = job.settle_direct();
    let mut error = |message: String, help: &str| {
        found.push(Diagnostic::error(&at, format!("job `{}`: {message}", job.name), help));
    };
    for d in 0..3 {
        if job.min_bs[d] == 0 {
            job.min_bs[d] = job.bs[d];
        }
        if job.max_bs[d] == 0 {
            job.max_bs[d] = job.bs[d];
        }
        if job.align[d] == 0 || !job.random {
            job.align[d] = job.min_bs[d];
        }
    }
    job.no_map |= job.align != job.min_bs || job.distribution != Distribution::Random;
    job.overwrite |= job.reads;
    settled.unwrap_or_else(|(what, help)| error(what, help));
    // As fio does: what was read before is not to be dropped again.
    job.invalidate &= !job.pre_read;
    if job.thinktime_iotime > 0 && !job.given.iter().any(|(k, _)| k == "thinktime_blocks") {
        job.thinktime_blocks = u64::MAX / 2;
    }
    if job.openfiles == 0 || job.openfiles > job.nrfiles {
        job.openfiles = job.nrfiles;
    }
    if job.rate.iter().any(|r| *r > 0) && job.rate_iops.iter().any(|r| *r > 0) {
        error("rate and rate_iops exclude each other".to_owned(), "keep one of them");
    }
    if job.rate_min.iter().any(|r| *r > 0) && job.rate_iops_min.iter().any(|r| *r > 0) {
        error("rate_min and rate_iops_min exclude each other".to_owned(), "keep one of them");
    }
    let exceeds = |rate: &[u64; 3], least: &[u64; 3]| {
        rate.iter().zip(least).any(|(rate, least)| *rate > 0 && rate < least)
    };
    if exceeds(&job.rate, &job.rate_min) || exceeds(&job.rate_iops, &job.rate_iops_min) {
        error("the least rate is above the rate".to_owned(), "fio refuses it too");
    }
    let is_held = job.rate.iter().chain(&job.rate_iops).any(|r| *r > 0);
    let has_least = job.rate_min.iter().chain(&job.rate_iops_min).any(|r| *r > 0);
    let no_rate = job.rate.iter().chain(&job.rate_iops).all(|r| *r == 0);
    if job.poisson && no_rate {
        error("rate_process=poisson without a rate".to_owned(), "give `rate_iops=`");
    }
    job.latency_target = job.latency_target.filter(|t| t.ns > 0);
    job.steady_state = job.steady_state.filter(|s| s.seconds > 0);
    if job.steady_state.is_some_and(|s| s.seconds > SECONDS_MAX) {
        error(format!("a steady state of more than {SECONDS_MAX} seconds"), "make it shorter");
    }
    if job.steady_state.is_some_and(|s| s.seconds == 1 && s.criterion.slope) {
        error("a slope over one second".to_owned(), "steadystate_duration is at least 2 s");
    }
    if let Amount::Bytes(size @ 1..) = job.size
        && size < job.block_min()
    {
        let block = job.block_min();
        error(format!("size {size} is less than the smallest block, {block}"), "");
    }
    if job.reads && job.writes && is_held && has_least {
        let what = "rate_min of a mixed job with a rate is not supported";
        let help = "fio does the other direction while one waits: use two jobs";
        found.push(Diagnostic::unsupported(&at, what, help));
    }
    job.replay = job.replay.take().filter(|r| !r.path.is_empty());
    if job.replay.is_some() && (job.verify.is_some() || job.zbd) {
        let what = "read_iolog with verify or zonemode=zbd is not supported";
        found.push(Diagnostic::unsupported(&at, what, "leave that out"));
    }
    if job.time_based && job.runtime == 0 {
        job.time_based = false;
        let what = "time_based does nothing without runtime";
        found.push(Diagnostic::warning(&at, what, "give `runtime=`"));
    }
    if !job.strided && !job.zbd && (job.zone_size > 0 || job.zone_range > 0) {
        let what = "zonesize and zonerange need zonemode=strided or zbd";
        found.push(Diagnostic::error(&at, what, "fio refuses them too"));
    }
    if job.in_zones.iter().any(Option::is_some) && !job.zbd && job.zone_size == 0 {
        let what = "a size in zones (`4z`) needs zonemode=zbd, or zonesize";
        found.push(Diagnostic::error(&at, what, ""));
    }
    if job.zone_size > 0 {
        *job = job.clone().with_zones_of(job.zone_size);
    }
    if job.zbd && job.zone_skip > 0 {
        let what = "zoneskip with zonemode=zbd is not supported";
        found.push(Diagnostic::unsupported(&at, what, "leave it out"));
    }
    if job.zbd && job.verify.is_some() {
        let what = "verify with zonemode=zbd is not supported";
        found.push(Diagnostic::unsupported(&at, what, "leave out one of them"));
    }
    if job.zbd && !job.create_serialize {
        let what = "zonemode=zbd and create_serialize=0 exclude each other";
        found.push(Diagnostic::error(&at, what, "fio refuses them too"));
    }
    if job.zbd && job.trims && job.writes {
        let what = "a job that trims and writes with zonemode=zbd is not supported";
        found.push(Diagnostic::unsupported(&at, what, "use two jobs"));
    }
    if job.strided && job.zone_size == 0 {
        found.push(Diagnostic::error(&at, "zonemode=strided needs zonesize", ""));
    }
    if job.zone_range == 0 && job.strided {
        job.zone_range = job.zone_size;
    }
    if job.strided && job.is_moved() {
        let what = "zonemode=strided with an offset is not supported";
        found.push(Diagnostic::error(&at, what, "the offset at which fio wraps is not known"));
    }
    if job.generator == Generator::Lfsr && job.min_bs[..2] != job.max_bs[..2] {
        let what = "random_generator=lfsr with several block sizes: the order differs from fio's";
        found.push(Diagnostic::warning(&at, what, "fio's manual advises against it too"));
    }
    if job.random && (job.sequence > 1 || job.percent_random[..2] != [100; 2]) && !job.no_map {
        let what = "runs of sequential I/O with a random map: an offset may differ from fio's";
        found.push(Diagnostic::warning(&at, what, "with `norandommap` all offsets are the same"));
    }
    let compares = job.verify == Some(Verify::Contents) && job.do_verify;
    if job.reads && job.writes && compares && job.seed_given && job.loops > 1 {
        let what = "a mixed job with verify, randseed and loops: fio 3.33 may end a later round with \
                    EILSEQ, and Writepath does not";
        found.push(Diagnostic::warning(&at, what, "without `randseed` both verify each round"));
    }
    if job.strided && (job.random || job.nrfiles > 1 || (job.reads && job.writes)) {
        let what = "zonemode=strided: offsets may differ from fio's";
        let help = "one file, read or written sequentially, gives the same offsets";
        found.push(Diagnostic::warning(&at, what, help));
    }
    if job.strided && job.skip != 0 {
        let what = "steps (`rw=write:N`) inside zones are not supported";
        found.push(Diagnostic::error(&at, what, "leave out one of them"));
    }
    if job.skip < 0 && job.is_moved() {
        let what = "a negative step from an offset is not supported";
        found.push(Diagnostic::error(
            &at,
            what,
            "fio's first offset is not known; leave out `offset`",
        ));
    }
    if job.iodepth > DEPTH_MAX {
        let what = format!("iodepth is {}; {DEPTH_MAX} at most", job.iodepth);
        found.push(Diagnostic::error(&at, what, ""));
    } else if job.iodepth > 1 && !job.engine.is_async() {
        let (what, help) = match job.engine {
            Engine::Null => ("engine null", "each operation ends before the next one begins"),
            _ => ("a synchronous engine", "one operation is in flight at a time"),
        };
        let what = format!("iodepth={} with {what} is a depth of 1 here", job.iodepth);
        found.push(Diagnostic::warning(&at, what, help));
    }
    if job.engine.is_of_names() {
        let name = job.engine.name();
        if job.is_on_devices() {
            let what = format!("engine {name} is for files");
            found.push(Diagnostic::error(&at, what, "fio refuses a block device, too"));
        }
        if job.verify.is_some() {
            let what = format!("verify with engine {name} is not supported: it does no I/O");
            found.push(Diagnostic::unsupported(&at, what, "leave out `verify`"));
        }
    }
    if job.fill_device {
        let on_files = !job.is_on_devices() && !job.engine.does_nothing();
        if on_files && (job.reads || job.overwrite || job.engine == Engine::Mmap) {
            let what = "fill_device of a job that lays its files out first is not supported";
            let help =
                "fill the file system with a job that only writes, and wait for it (stonewall)";
            found.push(Diagnostic::unsupported(&at, what, help));
        }
        if job.size == Amount::Bytes(0) && job.random && !job.no_map {
            let what = "fill_device without a size: a random map of everything is too large";
            found.push(Diagnostic::error(&at, what, "give `size`, or write sequentially"));
        }
        // Nothing is known to reserve.
        job.reserve_first = None;
    }
    let is_device = |f: &&String| f.starts_with("/dev/");
    if let Some(device) = job.filenames.iter().find(is_device)
        && !job.is_on_devices()
    {
        let what = format!("`{device}` is a block device, and the job has a file beside it");
        let help = "a machine has block devices (--fs none) or a file system: use two jobs files";
        found.push(Diagnostic::unsupported(&at, what, help));
    }
    let needs_device = job.engine != Engine::Falloc && !job.engine.does_nothing();
    if job.trims && !job.is_on_devices() && needs_device {
        let what = format!("job `{}` trims: that is for block devices", job.name);
        let help = "name one: filename=/dev/nvme0n1; fio refuses to trim a file, too";
        found.push(Diagnostic::error(&at, what, help));
    }
    if job.trims && job.writes {
        let is_moved = job.random && job.is_moved();
        if is_moved || job.strided || job.align != job.min_bs {
            let what = "a job that trims and writes: with this offset, blockalign or zonemode fio \
                        3.33 writes elsewhere";
            found.push(Diagnostic::warning(&at, what, "here each trim is followed by its write"));
        }
    }
    if job.nrfiles > 1 && (job.fsync > 0 || job.fdatasync > 0) {
        found.push(Diagnostic::warning(
            &at,
            "fio syncs the next file, not the written one (axboe/fio #1904); Writepath syncs the written file",
            "compat=bugs behaves like fio",
        ));
    }
}
