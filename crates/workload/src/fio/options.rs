//! Every option of fio 3.33, once: what it does here.

/// How near to fio an option is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// As fio does it.
    Exact,
    /// Nearly; the note says where not.
    Approximated,
    /// Accepted and checked; a simulated run has nothing that it changes. The note says why.
    NoEffect,
    /// Not at all: a job that has it does not run, unless its value asks for nothing.
    Refused,
}

impl Class {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Class::Exact => "exact",
            Class::Approximated => "approximated",
            Class::NoEffect => "no effect",
            Class::Refused => "refused",
        }
    }
}

/// An option.
#[derive(Clone, Copy, Debug)]
pub struct OptionInfo {
    /// Its name.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// How near to fio.
    pub class: Class,
    /// What differs, why it is refused, or why it has no effect.
    pub note: &'static str,
}

const fn exact(
    name: &'static str,
    aliases: &'static [&'static str],
    note: &'static str,
) -> OptionInfo {
    OptionInfo { name, aliases, class: Class::Exact, note }
}

const fn near(
    name: &'static str,
    aliases: &'static [&'static str],
    note: &'static str,
) -> OptionInfo {
    OptionInfo { name, aliases, class: Class::Approximated, note }
}

const fn no(
    name: &'static str,
    aliases: &'static [&'static str],
    note: &'static str,
) -> OptionInfo {
    OptionInfo { name, aliases, class: Class::Refused, note }
}

/// Accepted and checked, and without effect on what is simulated.
const fn idle(
    name: &'static str,
    aliases: &'static [&'static str],
    note: &'static str,
) -> OptionInfo {
    OptionInfo { name, aliases, class: Class::NoEffect, note }
}

const TRIM: &str = "trims are not modelled";
const VERIFY: &str = "no state of an earlier run is read";
const WHOLE: &str = "accepted without effect: whole blocks are compared";
const REPLAY: &str = "traces of blktrace are for `writepath replay`";
const HOST: &str = "a property of the host, which the simulation does not have";
const LOGS: &str = "use write_lat_log, or `json+` of `writepath fio`";
const COMPRESS: &str = "accepted without effect: nothing here compresses or deduplicates";
const ENGINE: &str = "an option of an ioengine that is not supported";
const POLLED: &str = "the drive's completions are not polled";
const RWF: &str = "flags of a single call are not supported yet";
const PRIORITY: &str = "accepted without effect: requests have no priority";
const NO_EFFECT: &str = "accepted without effect: it changes nothing that is simulated";

/// All of them, by subject.
pub static OPTIONS: &[OptionInfo] = &[
    // What and how much.
    exact("name", &[], "name of the job, for names of files"),
    exact("description", &[], "text"),
    near(
        "rw",
        &["readwrite"],
        "exact, except random `:N` with a random map (an offset may differ); trims: of devices",
    ),
    exact("rw_sequencer", &[], "sequential, identical"),
    exact("bs", &["blocksize"], "by direction"),
    exact("bsrange", &["blocksize_range"], "by direction"),
    exact("bssplit", &[], "by direction"),
    exact("bs_unaligned", &["blocksize_unaligned"], ""),
    exact("bs_is_seq_rand", &[], ""),
    exact("ba", &["blockalign"], "turns the random map off, as in fio"),
    exact("size", &[], "bytes, zones (`4z`), or a percentage of existing files"),
    exact("io_size", &["io_limit"], "as size"),
    near(
        "filesize",
        &[],
        "a size, or two (`4k-1m`): each file has one of its own; fio may go beyond one that is no \
         multiple of the block",
    ),
    near(
        "offset",
        &["fileoffset"],
        "as size; exact but for a percentage of a file that grows, with blocks of several lengths",
    ),
    near("offset_increment", &[], "as offset"),
    exact("offset_align", &[], "of offsets given as a percentage"),
    exact("number_ios", &[], "reads of verify count; no limit with time_based"),
    exact("loops", &[], ""),
    exact("numjobs", &[], "each is a separate task"),
    exact("rwmixread", &[], ""),
    exact("rwmixwrite", &[], ""),
    near("percentage_random", &[], "exact with norandommap; with the map an offset may differ"),
    exact("norandommap", &[], ""),
    exact("softrandommap", &[], "the map is always created"),
    near("random_generator", &[], "exact: tausworthe, tausworthe64; lfsr with one block size"),
    near(
        "random_distribution",
        &[],
        "exact: random, zoned, zoned_abs; zipf, pareto, normal: as popular, at other places",
    ),
    exact("randseed", &[], "as in fio, random offsets follow it only with randrepeat=0"),
    near("randrepeat", &[], "0: seeded from the machine's seed, so that runs still repeat"),
    exact("allrandrepeat", &[], ""),
    exact(
        "fill_device",
        &["fill_fs"],
        "of a job that only writes: until ENOSPC, which is no error",
    ),
    exact("file_append", &[], "from the end of a file that is there"),
    no("experimental_verify", &[], "leave it out: verify alone does the same"),
    // Files.
    exact("filename", &[], "a list separated by `:`; paths of the simulated file system"),
    exact("filename_format", &[], "$jobname, $jobnum, $filenum; $clientuid is empty"),
    exact("directory", &[], "created if missing; clones take turns with a list separated by `:`"),
    exact("nrfiles", &["nr_files"], ""),
    exact("openfiles", &[], ""),
    near(
        "file_service_type",
        &[],
        "roundrobin, sequential, random, with `:N`; not zipf and others",
    ),
    near(
        "fallocate",
        &[],
        "native (default), posix, keep, truncate, none; nilfs2 has no fallocate",
    ),
    exact("overwrite", &[], "lays the file out first"),
    exact("create_serialize", &[], "0: each job creates its files itself, in parallel"),
    exact("create_fsync", &[], ""),
    exact("create_on_open", &[], ""),
    exact("create_only", &[], ""),
    exact("allow_file_create", &[], ""),
    idle("allow_mounted_write", &[], NO_EFFECT),
    exact("unlink", &[], "at the end of the job"),
    exact("unlink_each_loop", &[], "before each further round"),
    near("invalidate", &[], "1 (default): drops the file's clean pages at open; not of nilfs2"),
    exact("pre_read", &[], "through the page cache; turns invalidate off, as in fio"),
    no("opendir", &[], "list the files"),
    idle("unique_filename", &[], NO_EFFECT),
    no("lockfile", &[], "no file locks"),
    near(
        "fadvise_hint",
        &[],
        "1 (default): random or sequential, as the job reads; nilfs2 reads nothing ahead",
    ),
    idle("write_hint", &[], "accepted without effect: devices support no hints"),
    // Durability.
    near(
        "fsync",
        &[],
        "syncs the file last written, where fio syncs the next one (axboe/fio #1904) unless compat=bugs",
    ),
    near("fdatasync", &[], "as fsync"),
    exact("end_fsync", &[], ""),
    exact("fsync_on_close", &[], "at the end of a round, as in fio's log"),
    exact("sync", &[], "none, sync, dsync"),
    no("sync_file_range", &[], "not modelled"),
    no("write_barrier", &[], "no engine here has barrier writes"),
    // Engine.
    near(
        "ioengine",
        &[],
        "exact: sync, psync, pvsync, pvsync2, libaio, io_uring, posixaio, falloc, ftruncate; mmap \
         and splice as psync; null: 1 us each; filecreate, filestat and filedelete: the call on \
         each name",
    ),
    exact("iodepth", &[], "more with a synchronous engine is 1 and a warning"),
    exact("iodepth_batch", &["iodepth_batch_submit"], "operations submitted at once"),
    exact("iodepth_batch_complete_min", &["iodepth_batch_complete"], "operations reaped at least"),
    exact("iodepth_batch_complete_max", &[], "operations reaped at most"),
    exact("iodepth_low", &[], "depth down to which a full queue is reaped"),
    no("serialize_overlap", &[], "overlapping operations in flight are not kept apart"),
    near("io_submit_mode", &[], "offload as inline: the job submits its operations itself"),
    exact("direct", &[], "O_DIRECT"),
    exact("buffered", &[], "the opposite of direct"),
    near(
        "atomic",
        &[],
        "RWF_ATOMIC and direct, as fio 3.38 has it (3.33: O_ATOMIC, which no kernel has); pvsync2, \
         libaio, io_uring",
    ),
    exact("thread", &["threads"], "threads and processes are both tasks"),
    // Time.
    near("runtime", &["timeout"], "in virtual time; ends between two operations"),
    near("time_based", &[], "in virtual time"),
    exact("ramp_time", &[], "virtual time before anything counts"),
    exact("startdelay", &["start_delay"], "a time, or two (`1-5`): each job waits its own"),
    near("thinktime", &[], "virtual time, to the microsecond"),
    near("thinktime_spin", &[], "slept, not spun: takes no CPU"),
    exact("thinktime_blocks", &[], ""),
    exact("thinktime_blocks_type", &[], "complete and issue are one with one operation in flight"),
    near("thinktime_iotime", &[], "of virtual time"),
    near("rate", &[], "waits as fio's linear process; a mixed job keeps the drawn direction"),
    near("rate_iops", &[], "as rate"),
    near("rate_min", &["ratemin"], "in virtual time, from two seconds after a round's beginning"),
    near("rate_iops_min", &[], "as rate_min"),
    near("rate_process", &[], "poisson: the times of fio, to the microsecond"),
    exact("rate_cycle", &["ratecycle"], "milliseconds of virtual time"),
    no("rate_ignore_thinktime", &[], "not modelled"),
    exact("stonewall", &["wait_for_previous"], ""),
    exact("wait_for", &[], "a job that stands before, with all its clones"),
    exact("new_group", &[], ""),
    near("exitall", &[], "other jobs end before their next operation"),
    exact("exit_what", &[], ""),
    near("exitall_on_error", &[], "of an error that the job ends with"),
    // Contents.
    near("zero_buffers", &[], "zeroes by reference"),
    near("refill_buffers", &[], "every write has unique contents, by reference; 0 repeats one"),
    near("scramble_buffers", &[], "1 (default): every write has unique contents"),
    near("buffer_pattern", &[], "a pattern computed from this value, not its bytes"),
    idle("buffer_compress_percentage", &[], COMPRESS),
    idle("buffer_compress_chunk", &[], COMPRESS),
    idle("dedupe_percentage", &[], COMPRESS),
    idle("dedupe_mode", &[], COMPRESS),
    idle("dedupe_working_set_percentage", &[], COMPRESS),
    idle("dedupe_global", &[], COMPRESS),
    // Report.
    exact("group_reporting", &[], "one entry per group in the report"),
    exact("clat_percentiles", &[], ""),
    exact("lat_percentiles", &[], ""),
    exact("slat_percentiles", &[], "a synchronous engine has no submission latency"),
    exact("percentile_list", &[], "up to 20, to six decimals"),
    near("unified_rw_reporting", &[], "none only"),
    idle("significant_figures", &[], NO_EFFECT),
    near("disk_util", &[], "the report lists no host disks"),
    idle("stats", &[], "accepted without effect: the job is still reported"),
    idle("gtod_reduce", &[], "accepted without effect: latencies are still reported"),
    idle("disable_lat", &[], "accepted without effect: latencies are still reported"),
    idle("disable_clat", &[], "accepted without effect: latencies are still reported"),
    idle("disable_slat", &[], "accepted without effect: latencies are still reported"),
    idle("disable_bw_measurement", &["disable_bw"], NO_EFFECT),
    exact("kb_base", &[], "1024, 1000"),
    idle("unit_base", &[], NO_EFFECT),
    exact("per_job_logs", &[], ""),
    near(
        "write_bw_log",
        &[],
        "of `writepath fio`, beside the report; `run` keeps it in the result",
    ),
    near("write_lat_log", &[], "as write_bw_log; total and completion latency are one"),
    near("write_iops_log", &[], "as write_bw_log"),
    no("write_hist_log", &[], LOGS),
    exact("bwavgtime", &[], "milliseconds of virtual time"),
    exact("iopsavgtime", &[], "milliseconds of virtual time"),
    idle("log_entries", &[], NO_EFFECT),
    near("log_avg_msec", &[], "periods of virtual time from the beginning of the job"),
    idle("log_hist_msec", &[], NO_EFFECT),
    idle("log_hist_coarseness", &[], NO_EFFECT),
    exact("log_max_value", &[], ""),
    exact("log_offset", &[], ""),
    idle("log_prio", &[], NO_EFFECT),
    idle("log_compression", &[], NO_EFFECT),
    idle("log_compression_cpus", &[], NO_EFFECT),
    idle("log_store_compressed", &[], NO_EFFECT),
    idle("log_unix_epoch", &[], NO_EFFECT),
    idle("log_alternate_epoch", &[], NO_EFFECT),
    idle("log_alternate_epoch_clock_id", &[], NO_EFFECT),
    no("block_error_percentiles", &[], TRIM),
    exact("steadystate", &["ss"], "iops, iops_slope, bw or bw_slope and a limit: `iops:0.3%`"),
    exact("steadystate_duration", &["ss_dur"], "in virtual time"),
    exact("steadystate_ramp_time", &["ss_ramp"], "in virtual time"),
    // Verification, trims, replay, zones.
    near(
        "verify",
        &[],
        "all bytes are compared; a job that only reads compares with what jobs of this run wrote, \
         and needs their checksum",
    ),
    exact("do_verify", &[], ""),
    no("verify_only", &[], "run the job that writes, too"),
    near("verify_interval", &["header_interval"], "a job that only reads needs headers of its own"),
    idle("verify_offset", &["header_offset"], WHOLE),
    near("verify_pattern", &[], "written data has an identity instead; all bytes are compared"),
    exact("verify_fatal", &[], "the first difference ends the job, as in fio 3.33 without it"),
    idle("verify_dump", &[], NO_EFFECT),
    near("verify_async", &[], "compared by the job itself; comparing takes no virtual time"),
    idle("verify_async_cpus", &[], NO_EFFECT),
    near("verify_backlog", &[], "exact with one operation in flight; else waits for the writes"),
    exact("verify_backlog_batch", &[], ""),
    no("verify_state_load", &[], VERIFY),
    idle("verify_state_save", &[], "accepted without effect: no file is written"),
    no("trim_percentage", &[], TRIM),
    idle(
        "trim_verify_zero",
        &[],
        "accepted without effect: needs `trim_percentage`, which is refused",
    ),
    idle("trim_backlog", &[], "accepted without effect: needs `trim_percentage`, which is refused"),
    idle(
        "trim_backlog_batch",
        &[],
        "accepted without effect: needs `trim_percentage`, which is refused",
    ),
    exact("write_iolog", &[], "version 3; times are virtual"),
    near("read_iolog", &[], "logs of fio, versions 2 and 3; `writepath replay` reads others"),
    idle("read_iolog_chunked", &[], "accepted without effect: a log is read as a whole"),
    exact("replay_no_stall", &[], ""),
    exact("replay_redirect", &[], ""),
    exact("replay_scale", &[], ""),
    exact("replay_align", &[], "a power of two"),
    exact("replay_time_scale", &[], ""),
    idle("replay_skip", &[], "accepted without effect: fio skips in logs of blktrace only"),
    no("merge_blktrace_file", &[], REPLAY),
    idle(
        "merge_blktrace_scalars",
        &[],
        "accepted without effect: needs `merge_blktrace_file`, which is refused",
    ),
    idle(
        "merge_blktrace_iters",
        &[],
        "accepted without effect: needs `merge_blktrace_file`, which is refused",
    ),
    near(
        "zonemode",
        &[],
        "exact: none, zbd with one job a zone, of a file that is there; strided: see zonesize",
    ),
    near("zonesize", &[], "of zonemode=strided exact with one file read or written in order"),
    exact("zonecapacity", &[], "of zonemode=zbd on what has no zones"),
    near("zonerange", &[], "as zonesize"),
    near("zoneskip", &[], "as zonesize; refused with zonemode=zbd"),
    exact("read_beyond_wp", &[], ""),
    exact("max_open_zones", &[], ""),
    exact("job_max_open_zones", &[], ""),
    exact("ignore_zone_limits", &[], ""),
    exact("zone_reset_threshold", &[], "needs zone_reset_frequency"),
    exact("zone_reset_frequency", &[], "needs zone_reset_threshold"),
    // Latency targets and errors.
    near("max_latency", &[], "a longer operation ends the job with ETIMEDOUT"),
    exact("latency_target", &[], "in microseconds, or with a unit: us, ms, s"),
    exact("latency_window", &[], "in virtual time"),
    exact("latency_percentile", &[], ""),
    exact("latency_run", &[], ""),
    exact("ignore_error", &[], ""),
    near(
        "continue_on_error",
        &[],
        "of EIO and EILSEQ, as in fio; of others with ignore_error; without it an error ends its \
         job",
    ),
    idle("error_dump", &[], NO_EFFECT),
    // The host.
    idle("mem", &["iomem"], NO_EFFECT),
    idle("iomem_align", &["mem_align"], NO_EFFECT),
    near("clocksource", &[], "virtual time, always"),
    idle("gtod_cpu", &[], NO_EFFECT),
    idle("nice", &[], NO_EFFECT),
    idle("cpumask", &[], "accepted without effect: tasks share the modelled CPUs"),
    idle("cpus_allowed", &[], "accepted without effect: tasks share the modelled CPUs"),
    idle("cpus_allowed_policy", &[], NO_EFFECT),
    idle("numa_cpu_nodes", &[], NO_EFFECT),
    idle("numa_mem_policy", &[], NO_EFFECT),
    idle("hugepage-size", &[], NO_EFFECT),
    idle("lockmem", &[], NO_EFFECT),
    idle("prio", &[], PRIORITY),
    idle("prioclass", &[], PRIORITY),
    idle("ioscheduler", &[], "accepted without effect: `--elevator` chooses the I/O scheduler"),
    no("exec_prerun", &[], HOST),
    no("exec_postrun", &[], HOST),
    no("profile", &[], "profiles are not supported"),
    idle("cgroup", &[], NO_EFFECT),
    idle("cgroup_weight", &[], NO_EFFECT),
    idle("cgroup_nodelete", &[], NO_EFFECT),
    idle("uid", &[], NO_EFFECT),
    idle("gid", &[], NO_EFFECT),
    near("flow", &[], "of the operations begun; a job that is ahead sleeps, at least 10 us"),
    exact("flow_id", &[], ""),
    exact("flow_sleep", &[], "in virtual time"),
    // Options of engines.
    near("hipri", &["pri"], "completions are not polled: an interrupt's time is in each latency"),
    no("hipri_percentage", &[], POLLED),
    near("stat_type", &[], "of engine filestat; all three are one"),
    no("uncached", &[], RWF),
    no("nowait", &[], RWF),
    idle("userspace_reap", &[], NO_EFFECT),
    idle("cmdprio_percentage", &[], PRIORITY),
    idle("cmdprio_class", &[], PRIORITY),
    idle("cmdprio", &[], PRIORITY),
    idle("cmdprio_bssplit", &[], PRIORITY),
    idle("fixedbufs", &[], NO_EFFECT),
    idle("registerfiles", &[], NO_EFFECT),
    idle("sqthread_poll", &[], NO_EFFECT),
    idle("sqthread_poll_cpu", &[], NO_EFFECT),
    idle("nonvectored", &[], NO_EFFECT),
    no("force_async", &[], RWF),
    no("cpuload", &[], "engine cpuio is not modelled"),
    no("cpuchunks", &[], "engine cpuio is not modelled"),
    no("arguments", &[], ENGINE),
    no("bindname", &[], ENGINE),
    no("brick", &[], ENGINE),
    no("busy_poll", &[], ENGINE),
    no("clientname", &[], ENGINE),
    no("clustername", &[], ENGINE),
    no("cmd_type", &[], ENGINE),
    no("conf", &[], ENGINE),
    no("cpumode", &[], ENGINE),
    no("donorname", &[], ENGINE),
    no("exit_on_io_done", &[], ENGINE),
    no("grace_time", &[], ENGINE),
    no("hostname", &[], ENGINE),
    no("inplace", &[], ENGINE),
    no("interface", &[], ENGINE),
    no("listen", &[], ENGINE),
    no("mss", &[], ENGINE),
    no("nodelay", &[], ENGINE),
    no("pingpong", &[], ENGINE),
    no("pool", &[], ENGINE),
    no("port", &[], ENGINE),
    no("program", &[], ENGINE),
    no("protocol", &[], ENGINE),
    no("rbdname", &[], ENGINE),
    no("readfua", &[], ENGINE),
    no("sg_write_mode", &[], ENGINE),
    no("single-instance", &[], ENGINE),
    no("skip_bad", &[], ENGINE),
    no("std_redirect", &[], ENGINE),
    no("stream_id", &[], ENGINE),
    no("thp", &[], ENGINE),
    no("touch_objects", &[], ENGINE),
    no("ttl", &[], ENGINE),
    no("uri", &[], ENGINE),
    no("verb", &[], ENGINE),
    no("volume", &[], ENGINE),
    no("window_size", &[], ENGINE),
    no("writefua", &[], ENGINE),
];

/// The option of a name or alias.
pub fn find(key: &str) -> Option<&'static OptionInfo> {
    OPTIONS.iter().find(|o| o.name == key || o.aliases.contains(&key))
}

/// Characters of a key beyond which no name can be near.
const NEAR_MAX: usize = 64;

/// The name that is nearest to an unknown key, if any is near.
pub fn nearest(key: &str) -> Option<&'static str> {
    // Nobody means an option of an engine that is not here.
    let options = OPTIONS.iter().filter(|o| o.note != ENGINE);
    nearest_of(options.flat_map(|o| o.aliases.iter().copied().chain([o.name])), key)
}

/// Of these names, the one that is nearest to an unknown one, if any is near.
pub fn nearest_of<'a>(names: impl Iterator<Item = &'a str>, key: &str) -> Option<&'a str> {
    if key.chars().nth(NEAR_MAX).is_some() {
        return None;
    }
    let best = names.map(|n| (distance(n, key), n)).min()?;
    (best.0 <= 1 + key.chars().count() / 3).then_some(best.1)
}

/// Edit distance with exchange of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut next = vec![i];
        for j in 1..=b.len() {
            let change = row[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut cost = change.min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cost = cost.min(before[j - 2] + 1);
            }
            next.push(cost);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_twice_and_what_is_not_exact_says_why() {
        let mut seen = std::collections::BTreeSet::new();
        for o in OPTIONS {
            for n in o.aliases.iter().chain([&o.name]) {
                assert!(seen.insert(*n), "{n} twice");
            }
            assert!(o.class == Class::Exact || !o.note.is_empty(), "{}", o.name);
        }
    }

    /// The list is what the installed program says (`fio --cmdhelp=all`); `tests/fio_oracle.rs`
    /// compares the two.
    #[test]
    fn every_option_that_fio_lists_is_here_once_and_no_other() {
        for form in super::super::forms::forms() {
            let o = find(form.name).unwrap_or_else(|| panic!("{} is not here", form.name));
            assert_eq!(o.name, form.name);
            let of_engines = form.engine.contains(',') || form.alias == "proto";
            assert!(
                form.alias.is_empty() || of_engines || o.aliases.contains(&form.alias),
                "{}: {}",
                o.name,
                form.alias
            );
        }
        let own: Vec<&str> = OPTIONS
            .iter()
            .map(|o| o.name)
            .filter(|n| super::super::forms::form(n).is_none())
            .collect();
        assert!(own.is_empty(), "{own:?}");
    }

    #[test]
    fn a_mistyped_key_finds_its_option() {
        assert_eq!(nearest("fdatasnyc"), Some("fdatasync"));
        assert_eq!(nearest("io_deph"), Some("iodepth"));
        assert_eq!(nearest("zzzzqqqq"), None);
        assert_eq!(nearest("fdp"), None, "of later versions of fio");
        assert_eq!(nearest(&"z".repeat(300)), None, "however much may be wrong of a long key");
    }
}
