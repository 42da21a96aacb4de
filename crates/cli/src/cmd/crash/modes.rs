//! `crash --every-mode`.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::json;
use wp_crash::{Rule, Totals};
use wp_lab::crash::{Findings, Watch, resume};

use super::hunt::{does_less, unexplored};
use super::{Args, campaign, report};
use crate::output::{Exit, Out};
use crate::progress::Progress;

/// The file systems as `--fs` has them: what was given, but each era and mode.
fn modes(fs: &str) -> Result<Vec<String>, String> {
    let (entry, given) = crate::cmd::file_system(fs)?;
    if entry.held.is_empty() || entry.modes.is_empty() {
        return Err(format!("--every-mode: no kernel version of {} was validated", entry.name));
    }
    let replaced: Vec<&str> =
        entry.modes.iter().flat_map(|m| m.split(',')).filter_map(|o| o.split('=').next()).collect();
    let kept = given.given().filter(|(k, _)| *k != "era" && !replaced.contains(k));
    let kept: String = kept.map(|(k, v)| format!(",{k}={v}")).collect();
    let of = |era: &str, mode: &str| {
        let comma = if mode.is_empty() { "" } else { "," };
        format!("{},era={era}{kept}{comma}{mode}", entry.name)
    };
    Ok(entry.held.iter().flat_map(|era| entry.modes.iter().map(|m| of(era, m))).collect())
}

/// Runs the campaign in each. Exit 1 if a rule is broken in any.
pub(super) fn run(a: &Args, out: &Out) -> ExitCode {
    let campaigns: Result<Vec<_>, String> = modes(&a.fs).and_then(|modes| {
        let of = |fs: String| {
            let a = Args { fs, ..a.clone() };
            campaign(&a).map(|c| (a, c))
        };
        modes.into_iter().map(of).collect()
    });
    let campaigns = match campaigns {
        Ok(c) => c,
        Err(e) => return out.fail(Exit::Usage, "crash", &e, super::hint(a)),
    };
    if campaigns.is_empty() {
        let why = format!("--every-mode: no mode of {} is validated against a kernel", a.fs);
        return out.fail(Exit::Usage, "crash", &why, "see `writepath list fs`");
    }
    let stop = out.interrupt();
    let mut left: Vec<&str> = campaigns.iter().map(|(a, _)| a.fs.as_str()).collect();
    let line = "a string takes it";
    #[expect(clippy::disallowed_methods, reason = "what it took is of the host")]
    let start = Instant::now();
    let mut less = false;
    let (mut t, mut documents, mut all) = (String::new(), Vec::new(), Totals::default());
    writeln!(
        t,
        "{:<40} {:>8} {:>10} {:>9} {:>9}",
        "mode", "programs", "states", "distinct", "broken"
    )
    .expect(line);
    for (a, c) in &campaigns {
        let live = Progress::new("crash");
        live.say(format_args!("{}", a.fs));
        let go_on = || !stop.load(Ordering::Relaxed);
        let watch = Watch { step: &|_, _| go_on(), abandon: &|| !go_on(), at: &|_| {} };
        let explore = || resume(c, a.workers, Findings::before(c), &watch);
        let f = match &c.command {
            Some(command) => command.end_when(&|| !go_on(), explore),
            None => explore(),
        };
        drop(live);
        if stop.load(Ordering::SeqCst) {
            break;
        }
        // A version without a call leaves out the sequences that have it.
        if let Some((n, why)) = f.unplayed() {
            let why = format!("{}: program {n} could not run: {why}", a.fs);
            return out.fail(Exit::Usage, "crash", &why, "see --fs and --size");
        }
        if let Some(e) = c.command.as_ref().and_then(|c| c.error()) {
            return out.fail(Exit::HostIo, "check", &e, "the command could not be run");
        }
        if let Some(why) = unexplored(c, &f) {
            let message = format!("{}: {}", a.fs, why.message);
            return out.fail(why.exit, "not-explored", &message, why.help);
        }
        less |= does_less(a, &f);
        let broken: u64 = f.totals.broken.iter().sum();
        let (n, raw, distinct) = (f.totals.programs, f.totals.raw, f.totals.distinct);
        writeln!(t, "{:<40} {n:>8} {raw:>10} {distinct:>9} {broken:>9}", a.fs).expect(line);
        for rule in Rule::ALL.into_iter().filter(|r| f.totals.broken[*r as usize] > 0) {
            let first = f.found.iter().find(|x| x.violation.rule == rule);
            let what = first
                .map(|x| format!("program {}: {}", x.program, report::violation(&x.violation)));
            let states = f.totals.broken[rule as usize];
            let what = what.unwrap_or_default();
            writeln!(t, "  {} in {states} states: {what}", rule.name()).expect(line);
        }
        let mut document = report::document(a, c, &f);
        document["fs"] = json!(a.fs);
        out.line(&document);
        documents.push(document);
        all.add(&f.totals);
        left.remove(0);
    }
    writeln!(
        t,
        "{:<40} {:>8} {:>10} {:>9} {:>9}   {:.1} s, {} threads",
        format!("{} modes", documents.len()),
        all.programs,
        all.raw,
        all.distinct,
        all.broken.iter().sum::<u64>(),
        start.elapsed().as_secs_f64(),
        a.workers
    )
    .expect(line);
    let exit = match all.broken.iter().all(|n| *n == 0) {
        _ if !left.is_empty() => Exit::Interrupted,
        true if less => Exit::Simulated,
        true => Exit::Ok,
        false => Exit::No,
    };
    if let Some(next) = left.first() {
        let which = left.join(" ");
        writeln!(t, "interrupted; not tried: {which}; go on with --fs {next}").expect(line);
    }
    let broken: u64 = all.broken.iter().sum();
    let summary = json!({
        "schema": "writepath.crash.modes/1", "kind": "summary", "programs": all.programs,
        "raw_states": all.raw, "distinct_states": all.distinct, "broken": broken,
        "modes": documents, "not_tried": left,
    });
    out.last_line(exit, &summary, &t)
}
