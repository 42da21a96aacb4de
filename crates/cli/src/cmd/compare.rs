//! `compare`: a recorded trace beside a simulated one.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{Cursor, Read, Seek as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_block::trace::TraceDevice;
use wp_machine::results::{events_left_out, read_block_events};
use wp_trace::compare::{
    Comparison, Kind, Limits, Measure, SAMPLES_MIN, Side, Spread, compare, op_name,
};
use wp_trace::{
    Action, Devices, File, Format, Request, Requests, Select, Skip, Skipped, Trace, bases, survey,
};

use super::replay::{Reading, action_of, input_files, is_stdin, rereadable};
use crate::output::{Exit, Out, path};
use crate::progress::Progress;

const FITS: &str = "a string takes everything";
/// Kinds of requests that are printed; the document has all.
const KINDS_SHOWN: usize = 16;
/// Shares of a distribution that are told, in permille.
const QUANTILES: [(&str, u64); 4] = [("p50", 500), ("p90", 900), ("p99", 990), ("p99.9", 999)];

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath compare trace.blktrace.0 results/fio\n\
    \x20 writepath compare real.txt sim.txt --max-ks 0.2 --from 8,16")]
pub struct Args {
    /// Recorded trace: a file that `replay` reads, or a result folder of `run`
    real: PathBuf,
    /// Simulated trace: the same kinds of file
    sim: PathBuf,
    /// Largest Kolmogorov-Smirnov distance of latencies, 0 to 1 [default: 0.1]
    ///
    /// Applies to the latencies of each operation.
    #[arg(long, value_name = "D")]
    max_ks: Option<f64>,
    /// Largest share of requests that either trace may lack
    #[arg(long, value_name = "SHARE", default_value_t = 0.01)]
    max_missing: f64,
    /// Sectors to add to addresses of SIM [default: the best match]
    #[arg(long, value_name = "SECTORS", allow_negative_numbers = true)]
    offset: Option<i64>,
    /// Format of the files, as in `replay` [default: detected]
    #[arg(long)]
    format: Option<String>,
    /// Columns of both files, as in `replay`: time:ns,lba:512,size:bytes,op
    #[arg(long, value_name = "LIST", conflicts_with = "format")]
    columns: Option<String>,
    /// Device of REAL, if it has several (repeatable), or all
    #[arg(long, value_name = "DEVICE")]
    from: Vec<String>,
    /// Device of SIM, if it has several (repeatable), or all
    #[arg(long, value_name = "DEVICE")]
    sim_from: Vec<String>,
    /// Compare requests where queued (Q) or issued (D) [default: D, else Q]
    #[arg(long, value_name = "Q|D")]
    action: Option<String>,
    /// Accept a trace that ends within a record
    #[arg(long)]
    torn_ok: bool,
}

/// How both are read.
struct How {
    reading: Reading,
    action: Option<Action>,
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let how = Reading::of_words(a.format.as_deref(), a.columns.as_deref(), a.torn_ok)
        .and_then(|reading| Ok(How { reading, action: action_of(a.action.as_deref())? }));
    let how = match how {
        Ok(how) => how,
        Err((key, what, help)) => return out.fail(Exit::Usage, key, &what, &help),
    };
    let limits = Limits { ks_max: a.max_ks.unwrap_or(0.1), missing_max: a.max_missing };
    for (key, value) in [("max-ks", limits.ks_max), ("max-missing", limits.missing_max)] {
        if !(0.0..=1.0).contains(&value) {
            let what = format!("--{key} {value}: must be from 0 to 1");
            return out.fail(Exit::Usage, key, &what, "");
        }
    }
    if is_stdin(&a.real) && is_stdin(&a.sim) {
        let what = "-: stdin can be one of the traces only";
        return out.fail(Exit::Usage, "stdin", what, "name a file or a pipe for the other");
    }
    // One after the other: an error is the answer, and there is one answer.
    let both = side((&a.real, "--from", &a.from), &how, out)
        .and_then(|real| Ok((real, side((&a.sim, "--sim-from", &a.sim_from), &how, out)?)));
    let ((real, of_real), (sim, of_sim)) = match both {
        Ok(both) => both,
        Err(code) => return code,
    };
    let notes = [incomplete(&of_real), incomplete(&of_sim)];
    let found = compare(&real, &sim, a.offset);
    let mut over = found.over(&limits);
    if a.max_ks.is_some() && !found.has_judged_latency() {
        over.push(format!(
            "--max-ks: no operation has {SAMPLES_MIN} requests with a recorded completion in both traces"
        ));
    }
    let exit = if over.is_empty() { Exit::Ok } else { Exit::No };
    let actions = [&real, &sim].map(|s| s.action.map_or("-", Action::letter));
    let text = print(a, &found, &limits, &over, (actions, &notes));
    let mut document = document(a, &found, &limits, &over, actions);
    for (side, skipped, note) in [("real", &of_real, &notes[0]), ("sim", &of_sim, &notes[1])] {
        let counts: BTreeMap<&str, u64> = skipped.iter().map(|(why, n)| (why.name(), n)).collect();
        document[side]["skipped"] = json!(counts);
        document[side]["note"] = json!(note);
    }
    out.answer(exit, &document, &text)
}

/// What a reading of a trace gives.
struct Recorded {
    requests: Vec<Request>,
    action: Option<Action>,
    /// Why there is no request, and what to do.
    none: Option<(String, String)>,
    skipped: Skipped,
}

/// What of a trace is missing in it, in words: a comparison says nothing of that.
fn incomplete(skipped: &Skipped) -> Option<String> {
    let lost = skipped.count(Skip::Lost);
    let lost = (lost > 0).then(|| format!("the tracer lost {lost} events"));
    let torn = skipped.count(Skip::Torn) > 0;
    let torn = torn.then(|| "it ends within a record".to_owned());
    let all: Vec<String> = lost.into_iter().chain(torn).collect();
    (!all.is_empty()).then(|| format!("incomplete: {}", all.join(", ")))
}

/// The block events of a result as a trace.
fn recorded_trace(path: &Path, out: &Out) -> Result<Vec<u8>, ExitCode> {
    let (dir, events) = super::result_paths(path, out)?;
    let left_out = events_left_out(&dir);
    if left_out > 0 {
        let what = format!("{}: {left_out} events are not recorded", dir.shown());
        let help = "run it again with a larger --max-events";
        return Err(out.fail(Exit::Usage, "incomplete", &what, help));
    }
    let records = read_block_events(&events).map_err(|e| out.host_error(&events, &e))?;
    Ok(wp_trace::blktrace::write(&records, TraceDevice::default()))
}

/// Reads one side; on failure says why and with which code to end.
///
/// `from`: the names of the wanted devices, and the option that they are of.
fn side(
    (path, option, from): (&Path, &str, &[String]),
    how: &How,
    out: &Out,
) -> Result<(Side, Skipped), ExitCode> {
    let bytes = path.is_dir().then(|| recorded_trace(path, out)).transpose()?;
    let mut inputs = Vec::new();
    for path in input_files(std::slice::from_ref(&path.to_owned()), out) {
        let file = if bytes.is_some() { None } else { Some(rereadable(&path, out)?) };
        inputs.push((path, file));
    }
    // What an option's name is for REAL is another for SIM.
    let wrong = |e: wp_trace::TraceError| {
        let help = e.help.replace("--from", option);
        out.trace_error(&wp_trace::TraceError { help, ..e })
    };
    let open = || -> Result<Trace<'_>, ExitCode> {
        let mut files = Vec::new();
        for (path, file) in &inputs {
            let from: Box<dyn Read + '_> = match (&bytes, file) {
                (_, Some(file)) => {
                    let mut file = file;
                    file.rewind().map_err(|e| out.host_error(path, &e))?;
                    Box::new(file)
                }
                (bytes, None) => Box::new(Cursor::new(bytes.as_deref().unwrap_or_default())),
            };
            files.push(File { name: path.shown(), from });
        }
        match bytes {
            Some(_) => Trace::open(files, Some(Format::Blktrace), false).map_err(wrong),
            None => how.reading.open(files).map_err(wrong),
        }
    };
    let live = Progress::new("compare");
    let mut select =
        Select { devices: Devices::named(from), action: how.action, ..Select::default() };
    if select.devices.are_several() {
        let mut go_on = |n: u64| {
            live.say(format_args!("{}: devices of {n} requests", path.shown()));
            true
        };
        let found = survey(&mut open()?, &select, &mut go_on).map_err(wrong)?;
        select.bases = bases(&found);
    }
    let read = |action: Option<Action>| -> Result<Recorded, ExitCode> {
        let mut trace = open()?;
        let mut requests = Requests::new(&mut trace, Select { action, ..select.clone() });
        let mut all = Vec::new();
        for request in requests.by_ref() {
            all.push(request.map_err(wrong)?);
            if all.len().is_multiple_of(1 << 16) {
                live.say(format_args!("{}: {} requests", path.shown(), all.len()));
            }
        }
        let none = all.is_empty().then(|| requests.none());
        let action = requests.action();
        Ok(Recorded { requests: all, action, none, skipped: trace.skipped().clone() })
    };
    let Recorded { requests, action, none, skipped } = read(how.action)?;
    if let Some((what, help)) = none {
        let what = format!("{}: {what}", path.shown());
        return Err(out.fail(Exit::Usage, "empty", &what, &help.replace("--from", option)));
    }
    let queued = match action {
        Some(Action::Issue) => read(Some(Action::Queue))?.requests,
        _ => Vec::new(),
    };
    Ok((Side { requests, action, queued }, skipped))
}

fn ns(value: u64) -> String {
    super::replay::seconds(value)
}

fn print(
    a: &Args,
    c: &Comparison,
    limits: &Limits,
    over: &[String],
    (actions, notes): ([&str; 2], &[Option<String>; 2]),
) -> String {
    let mut t = String::new();
    for (i, (name, path)) in [("REAL", &a.real), ("SIM", &a.sim)].into_iter().enumerate() {
        let (n, at) = (c.requests[i], actions[i]);
        writeln!(t, "{name:<6}{}: {n} requests at {at}", path.shown()).expect(FITS);
        if let Some(note) = &notes[i] {
            writeln!(t, "note  {}: {note}", path.shown()).expect(FITS);
        }
    }
    kinds(&mut t, c);
    order(&mut t, c);
    write!(t, "\n{:<17}{:>6}{:>9}{:>11}", "", "", "n", "mean").expect(FITS);
    QUANTILES.iter().for_each(|(q, _)| write!(t, "{q:>11}").expect(FITS));
    writeln!(t, "{:>10}", "distance").expect(FITS);
    c.measures.iter().for_each(|m| measure(&mut t, m));
    let within = format!("distance {}, missing {}", limits.ks_max, limits.missing_max);
    if over.is_empty() {
        let without = if c.has_judged_latency() { "" } else { "; no latencies were compared" };
        writeln!(t, "\nwithin limits ({within}){without}").expect(FITS);
    } else {
        writeln!(t, "\nover limits ({within}):").expect(FITS);
        over.iter().for_each(|o| writeln!(t, "  {o}").expect(FITS));
    }
    t
}

fn kinds(t: &mut String, c: &Comparison) {
    let mut sorted: Vec<_> = c.kinds.iter().collect();
    sorted.sort_by_key(|(kind, n)| (std::cmp::Reverse(n[0].max(n[1])), **kind));
    writeln!(
        t,
        "\n{:<9}{:<6}{:>9}{:>12}{:>12}{:>12}",
        "kind", "flags", "bytes", "REAL", "SIM", "SIM-REAL"
    )
    .expect(FITS);
    for (k, n) in sorted.iter().take(KINDS_SHOWN) {
        let bytes = u64::from(k.sectors) * wp_base::SECTOR_BYTES;
        let more = n[1] as i64 - n[0] as i64;
        let flags = flags(k);
        writeln!(t, "{:<9}{flags:<6}{bytes:>9}{:>12}{:>12}{more:>+12}", op_name(k.op), n[0], n[1])
            .expect(FITS);
    }
    if sorted.len() > KINDS_SHOWN {
        writeln!(t, "and {} other kinds (--json has all)", sorted.len() - KINDS_SHOWN).expect(FITS);
    }
}

fn flags(k: &Kind) -> &'static str {
    match (k.preflush, k.fua) {
        (true, true) => "F+FUA",
        (true, false) => "F",
        (false, true) => "FUA",
        (false, false) => "",
    }
}

fn order(t: &mut String, c: &Comparison) {
    let al = &c.aligned;
    writeln!(
        t,
        "\nsame {}, at another address {}, missing in SIM {}, missing in REAL {}, other flags {}; SIM \
         offset {} sectors",
        al.same, al.elsewhere, al.missing, al.extra, al.other_flags, al.offset
    )
    .expect(FITS);
    writeln!(
        t,
        "in order {:.2} %, swapped pairs {:.4} %",
        al.in_order * 100.0,
        al.inverted * 100.0
    )
    .expect(FITS);
    for (op, [real, sim]) in &c.sequential {
        let (op, real, sim) = (op_name(*op), real * 100.0, sim * 100.0);
        writeln!(t, "sequential {op:<9}{real:>7.2} % {sim:>7.2} %").expect(FITS);
    }
}

fn measure(t: &mut String, m: &Measure) {
    let name = match m.op {
        Some(op) => format!("{} {}", m.name, op_name(op)),
        None => m.name.to_owned(),
    };
    let show = |v: u64| if m.name == "depth" { v.to_string() } else { ns(v) };
    for (i, (side, s)) in ["REAL", "SIM"].into_iter().zip(&m.spreads).enumerate() {
        let label = if i == 0 { name.as_str() } else { "" };
        write!(t, "{label:<17}{side:>6}{:>9}{:>11}", s.count(), show(s.mean().round() as u64))
            .expect(FITS);
        for (_, q) in QUANTILES {
            write!(t, "{:>11}", show(s.quantile(q))).expect(FITS);
        }
        match (i, m.distance()) {
            (0, Some(d)) => writeln!(t, "{d:>10.3}").expect(FITS),
            (0, None) => writeln!(t, "{:>10}", "-").expect(FITS),
            _ => writeln!(t).expect(FITS),
        }
    }
}

fn document(
    a: &Args,
    c: &Comparison,
    limits: &Limits,
    over: &[String],
    actions: [&str; 2],
) -> Value {
    let al = &c.aligned;
    let spread = |s: &Spread| {
        let mut doc = json!({ "count": s.count(), "mean": s.mean() });
        for (name, q) in QUANTILES {
            doc[name] = json!(s.quantile(q));
        }
        doc
    };
    let kinds: Vec<Value> = c
        .kinds
        .iter()
        .map(|(k, n)| {
            json!({
                "op": op_name(k.op), "preflush": k.preflush, "fua": k.fua,
                "sectors": k.sectors, "real": n[0], "sim": n[1],
            })
        })
        .collect();
    let sequential: Vec<Value> = c
        .sequential
        .iter()
        .map(|(op, n)| json!({ "op": op_name(*op), "real": n[0], "sim": n[1] }))
        .collect();
    let measures: Vec<Value> = c
        .measures
        .iter()
        .map(|m| {
            json!({
                "name": m.name, "op": m.op.map(op_name),
                "unit": if m.name == "depth" { "requests" } else { "ns" },
                "real": spread(&m.spreads[0]), "sim": spread(&m.spreads[1]),
                "distance": m.distance(), "judged": m.is_judged(),
            })
        })
        .collect();
    json!({
        "schema": "writepath.compare/1",
        "real": { "path": path(&a.real), "requests": c.requests[0], "action": actions[0] },
        "sim": { "path": path(&a.sim), "requests": c.requests[1], "action": actions[1] },
        "limits": { "max_ks": limits.ks_max, "max_missing": limits.missing_max },
        "over": over,
        "kinds": kinds,
        "aligned": {
            "offset": al.offset, "same": al.same, "elsewhere": al.elsewhere,
            "missing": al.missing, "extra": al.extra, "other_flags": al.other_flags,
            "in_order": al.in_order, "inverted": al.inverted, "missing_share": c.missing(),
        },
        "sequential": sequential,
        "measures": measures,
    })
}
