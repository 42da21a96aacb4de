//! `techniques`: the claims of techniques of the literature, judged.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::json;
use wp_base::plain::Shown as _;
use wp_base::table::Layout;
use wp_machine::results::Results as Folder;
use wp_papers::claims::Pins;
use wp_papers::techniques::judge::{
    Ask, BESIDE_CLAIMS, JUDGES, Judge, JudgeError, Observed, VERDICTS_TOML,
};
use wp_report::claim::{Judged, Verdict};

use super::keep::Keep;
use super::reproduce::claims_table;
use crate::output::{Exit, Out};
use crate::outputs;
use crate::progress::Progress;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath techniques force-copy --quick\n\
    \x20 writepath techniques")]
pub struct Args {
    /// Techniques to judge or measure [default: all that have claims]
    names: Vec<String>,
    /// Run shorter workloads and explore fewer crash states
    #[arg(long)]
    quick: bool,
    /// Seed of every random stream
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Results folder
    #[arg(long, default_value = "results")]
    out: PathBuf,
    /// Rerun everything, also results kept from an earlier run
    #[arg(long)]
    again: bool,
}

/// Runs the verb. Exit 1 if a verdict is not the pinned one.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let known = || JUDGES.iter().map(|j| j.technique);
    if let Some(name) = a.names.iter().find(|n| known().all(|k| k != **n)) {
        let all = known().collect::<Vec<_>>().join(", ");
        let what = format!("no measurement of a technique called `{name}`");
        return out.fail(Exit::Usage, "technique", &what, &format!("those that are: {all}"));
    }
    if let Err(code) = outputs::folder(&a.out, out) {
        return code;
    }
    let kept = match Keep::new(&a.out, "techniques", &format!("{} {}", a.quick, a.seed)) {
        Ok(kept) => kept,
        Err(e) => return out.host_error(std::path::Path::new("this program"), &e),
    };
    let is_wanted = |j: &&Judge| a.names.is_empty() || a.names.iter().any(|n| n == j.technique);
    let wanted: Vec<&Judge> = JUDGES.iter().filter(is_wanted).collect();
    let stop = out.interrupt_in_parts();
    let shown = Progress::new("techniques");
    let mut judged: Vec<Judged> = Vec::new();
    for (n, judge) in wanted.iter().enumerate() {
        shown.at(n as u64, wanted.len() as u64, judge.technique);
        if let Some(found) = kept.find::<Vec<Judged>>(judge.technique).filter(|_| !a.again) {
            judged.extend(found);
            continue;
        }
        if stop.load(Ordering::SeqCst) {
            let what = format!("interrupted: {n} of {} techniques are done and kept", wanted.len());
            let help = "run the same command to continue";
            return out.fail(Exit::Interrupted, "interrupted", &what, help);
        }
        match judge.run(Ask { seed: a.seed, quick: a.quick }) {
            Ok(found) => {
                if let Err(e) = kept.note(judge.technique, &found) {
                    return out.host_error(&a.out, &e);
                }
                judged.extend(found);
            }
            Err(JudgeError::Machine(e)) => {
                out.note(&format!("{}:", judge.technique));
                return out.machine_error(&e);
            }
            Err(JudgeError::Claim(e)) => {
                return out.fail(Exit::Bug, "claim", &format!("{}: {e}", judge.technique), "");
            }
        }
    }
    let mut observed: Vec<Observed> = Vec::new();
    for unclaimed in BESIDE_CLAIMS.iter().filter(|u| a.names.iter().any(|n| n == u.technique)) {
        match (unclaimed.observe)(Ask { seed: a.seed, quick: a.quick }) {
            Ok(found) => observed.extend(found),
            Err(e) => {
                out.note(&format!("{}:", unclaimed.technique));
                return out.machine_error(&e);
            }
        }
    }
    drop(shown);
    answer(a, out, &judged, &observed)
}

/// Numbers without a verdict, a line each.
fn observed_table(t: &mut String, observed: &[Observed]) {
    const LAYOUT: Layout = Layout("<34 >10 <14 <0");
    *t += "beside the claims: numbers without a verdict\n\n";
    *t += &LAYOUT.line(&[&"measured", &"simulated", &"unit", &"of"]);
    for o in observed {
        let value = o.value.map_or("-".to_owned(), |v| {
            format!("{v:.4}").trim_end_matches('0').trim_end_matches('.').to_owned()
        });
        *t += &LAYOUT.line(&[&o.id, &value, &o.unit, &o.why]);
    }
}

/// Claims whose verdict is not the pinned one, a line each.
fn changed(a: &Args, judged: &[Judged]) -> Vec<String> {
    let pins = Pins::parse(VERDICTS_TOML).expect("a test parses the committed file");
    let is_other = |j: &&Judged| pins.of(&j.paper, &j.id, a.quick) != Some(j.verdict);
    let line = |j: &Judged| {
        let pinned = pins.of(&j.paper, &j.id, a.quick).map_or("nothing", Verdict::name);
        format!("{} {}: pinned {pinned}, now {}", j.paper, j.id, j.verdict.name())
    };
    judged.iter().filter(is_other).map(line).collect()
}

fn answer(a: &Args, out: &Out, judged: &[Judged], observed: &[Observed]) -> ExitCode {
    let mut text = String::new();
    let changed = changed(a, judged);
    if !judged.is_empty() {
        claims_table(&mut text, judged);
        let same = judged.len() - changed.len();
        text += &format!("verdicts: {same} as pinned, {} changed\n", changed.len());
        changed.iter().for_each(|line| text += &format!("  changed: {line}\n"));
    }
    let mut document = json!({
        "schema": "writepath.techniques/1", "seed": a.seed, "quick": a.quick, "claims": judged,
        "changed": changed,
    });
    if !observed.is_empty() {
        observed_table(&mut text, observed);
        document["observed"] = json!(observed);
        let measured = observed.iter().filter(|o| o.value.is_some()).count();
        document["numbers"] = json!(judged.len() + measured);
    }
    let mut folder = Folder::default();
    folder.add(
        "resolved.toml",
        format!(
            "schema = \"writepath/1\"\ntechniques = {:?}\nquick = {}\nseed = {}\n",
            a.names, a.quick, a.seed
        ),
    );
    folder.add("techniques.json", serde_json::to_vec_pretty(&document).unwrap_or_default());
    folder.add("claims.txt", text.clone());
    match folder.write(&a.out, "techniques") {
        Ok(dir) => out.note(&format!("results: {}", dir.shown())),
        Err(e) => return out.host_error(&a.out, &e),
    }
    let exit = if changed.is_empty() { Exit::Ok } else { Exit::No };
    out.answer(exit, &document, &text)
}
