//! `perturb --claims`: the papers' claims where only a FLUSH takes time, and where nothing of the
//! drive does.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use wp_base::plain::Shown as _;
use wp_base::table::Layout;
use wp_machine::results::Results as Folder;
use wp_machine::scale::{self, Scale};
use wp_papers::perturb::needs::{Claims, Needs, PAPERS, Pins, Row, drives, judged, rows};
use wp_report::claim::Verdict;

use super::{Args, LINE, Task, in_processes};
use crate::output::{Exit, Out};
use crate::progress::Progress;

impl Args {
    fn of_claims(&self) -> Vec<&'static str> {
        let is_wanted =
            |slug: &&str| self.papers.is_empty() || self.papers.iter().any(|p| p == slug);
        PAPERS.into_iter().filter(is_wanted).collect()
    }
}

/// The claims of one paper in this process.
pub(super) fn on_one_drive(a: &Args, scale: Scale, out: &Out) -> ExitCode {
    let [paper] = a.of_claims()[..] else {
        let what = "--claims with --device-scale takes one paper";
        return out.fail(Exit::Usage, "paper", what, "writepath list papers");
    };
    scale::set(scale);
    let stop = out.interrupt();
    let shown = Progress::new(paper);
    let mut step = |done: usize, all: usize, name: &str| {
        shown.at(done as u64, all as u64, name);
        !stop.load(std::sync::atomic::Ordering::SeqCst)
    };
    let claims = match judged(paper, a.seed, &mut step) {
        Ok(Some(claims)) => claims,
        Ok(None) => {
            let help = "run the same command again";
            return out.fail(Exit::Interrupted, "interrupted", "interrupted before the end", help);
        }
        Err(e) => return out.machine_error(&e),
    };
    drop(shown);
    let mut text = String::new();
    crate::cmd::reproduce::claims_table(&mut text, &claims);
    let (device_scale, paper) = (scale.to_string(), paper.to_owned());
    out.result(&json!(Claims { device_scale, paper, seed: a.seed, claims }), &text)
}

/// Every claim on the three drives. Exit 1 if one needs other times than pinned.
pub(super) fn table(a: &Args, out: &Out) -> ExitCode {
    let papers = a.of_claims();
    let of_paper = |paper: &'static str| {
        drives(paper).iter().map(move |change| Task { papers: vec![paper], change })
    };
    let tasks: Vec<Task<'_>> = papers.iter().copied().flat_map(of_paper).collect();
    let measured = match in_processes::<Claims>(a, out, &tasks) {
        Ok(measured) => measured,
        Err(code) => return code,
    };
    let mut pins = Pins::committed();
    let mut all: Vec<Row> = Vec::new();
    for on in measured.chunk_by(|a, b| a.paper == b.paper) {
        match rows(on, &pins) {
            Ok(of_paper) => all.extend(of_paper),
            Err(e) => return out.fail(Exit::Bug, "claim", &e, "--again reruns everything"),
        }
    }
    if std::env::var_os("WRITEPATH_BLESS").is_some() {
        for paper in &papers {
            let of_paper = all.iter().filter(|r| r.paper == *paper);
            pins.set(paper, of_paper.filter_map(|r| Some((r.id.clone(), r.needs?))));
        }
        let place = Path::new("papers/needs.toml");
        if let Err(e) = std::fs::write(place, pins.to_toml()) {
            return out.host_error(place, &e);
        }
        all.iter_mut().for_each(|r| r.pinned = pins.of(&r.paper, &r.id));
    }
    answer(a, out, &papers, &all, &pins)
}

/// Pinned claims of the papers that the run did not judge.
fn missing(papers: &[&str], all: &[Row], pins: &Pins) -> Vec<String> {
    let is_there = |paper: &str, id: &str| all.iter().any(|r| r.paper == paper && r.id == id);
    let of_paper = |paper: &'_ &str| {
        let paper = *paper;
        let ids = pins.of_paper(paper).filter(|(id, _)| !is_there(paper, id));
        ids.map(|(id, _)| format!("{paper} {id}")).collect::<Vec<_>>()
    };
    papers.iter().flat_map(of_paper).collect()
}

fn answer(a: &Args, out: &Out, papers: &[&str], all: &[Row], pins: &Pins) -> ExitCode {
    const LAYOUT: Layout = Layout("<17 <30 >12 <9 >12 <9 >12 <9 <8");
    let mut text =
        "Each claim on the paper's drive, on one whose FLUSH and FUA alone take time, and \
         on one that\nanswers at once. Needs: the least with which a claim holds \
         that holds on the whole\ndrive.\n\n"
            .to_owned();
    text += &LAYOUT
        .line(&[&"paper", &"claim", &"whole", &"", &"FLUSH", &"", &"no time", &"", &"needs"]);
    let changed: Vec<&Row> = all.iter().filter(|r| r.pinned != r.needs).collect();
    for r in all {
        let value =
            |at: usize| r.ours.get(at).copied().flatten().map_or("-".to_owned(), super::number);
        let [whole, flush, none] = [0, 1, 2].map(value);
        let [v, w, x] = [0, 1, 2].map(|at| r.verdicts.get(at).map_or("", |v| short(*v)));
        let needs = r.needs.map_or("-", Needs::name);
        text += &LAYOUT.line(&[&r.paper, &r.id, &whole, &v, &flush, &w, &none, &x, &needs]);
    }
    let count = |needs: Needs| all.iter().filter(|r| r.needs == Some(needs)).count();
    let [nothing, flush, drive] = Needs::ALL.map(count);
    writeln!(
        text,
        "\n{} claims hold: {nothing} need no time of the drive, {flush} follow from the FLUSH \
         alone, {drive} need the whole drive; {} do not hold",
        nothing + flush + drive,
        all.len() - nothing - flush - drive
    )
    .expect(LINE);
    let gone = missing(papers, all, pins);
    writeln!(text, "pins: {} changed, {} not judged by this run", changed.len(), gone.len())
        .expect(LINE);
    for r in &changed {
        let [pinned, now] = [r.pinned, r.needs].map(|n| n.map_or("-", Needs::name));
        writeln!(text, "{} {}: pinned {pinned}, now {now}", r.paper, r.id).expect(LINE);
    }
    for id in &gone {
        writeln!(text, "{id}: pinned, not judged").expect(LINE);
    }
    let document = json!({
        "schema": "writepath.perturb.needs/1", "seed": a.seed, "claims": all,
        "nothing": nothing, "flush": flush, "drive": drive, "changed": changed.len(),
        "not_judged": gone,
    });
    let mut folder = Folder::default();
    let asked = format!(
        "schema = \"writepath/1\"\nperturb = {:?}\nclaims = true\nseed = {}\n",
        a.papers, a.seed
    );
    folder.add("resolved.toml", asked);
    folder.add("needs.json", serde_json::to_vec_pretty(&document).unwrap_or_default());
    folder.add("needs.txt", text.clone());
    match folder.write(&a.out, "perturb-claims") {
        Ok(dir) => out.note(&format!("results: {}", dir.shown())),
        Err(e) => return out.host_error(&a.out, &e),
    }
    let is_as_pinned = changed.is_empty() && gone.is_empty();
    out.answer(if is_as_pinned { Exit::Ok } else { Exit::No }, &document, &text)
}

/// A verdict in a narrow column.
fn short(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Match => "match",
        Verdict::Differs => "differs",
        Verdict::FollowsFromInputs => "inputs",
        Verdict::PaperInconsistent => "paper",
        Verdict::NotModelled => "none",
    }
}
