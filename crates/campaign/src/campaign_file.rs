//! A campaign that was stopped, as a file: what it was, what is done, and its results so far.
//!
//! Invariants: 1. a file is taken whole or not at all: a digest covers it;
//!             2. what is loaded is what was saved.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use wp_crash::{Rule, Totals, Violation};
use wp_machine::host::{Existing, output, text};

use super::calls::Calls;
use super::findings::{Findings, Found};

const SCHEMA: &str = "writepath.crash.campaign/2";

#[derive(Serialize, Deserialize)]
struct Body {
    /// What was asked for: all that the result depends on.
    campaign: String,
    /// The program that made it.
    build: String,
    done: u64,
    /// Numbers by name.
    totals: BTreeMap<String, u64>,
    /// States by rule.
    broken: BTreeMap<String, u64>,
    found: Vec<Failure>,
    /// Rule, path, states.
    places: Vec<(String, String, u64)>,
    /// Number of the entry, states.
    known: Vec<(usize, u64)>,
    not_played: Vec<(u64, String)>,
    lacking: Vec<u64>,
    calls: Calls,
}

#[derive(Serialize, Deserialize)]
struct Failure {
    program: u64,
    rule: String,
    path: String,
    offset: Option<u64>,
    expected: String,
    seen: String,
    frame: usize,
    lost: Vec<usize>,
    operations: (u32, u32),
    after: u64,
    mount: bool,
}

fn digest(body: &Value) -> String {
    let hash = Sha256::digest(body.to_string().as_bytes());
    hash.iter().map(|b| format!("{b:02x}")).collect()
}

fn totals(t: &Totals) -> BTreeMap<String, u64> {
    let all = [
        ("programs", t.programs),
        ("cuts", t.cuts),
        ("cuts_sampled", t.cuts_sampled),
        ("cuts_thinned", t.cuts_thinned),
        ("most_in_doubt", u64::from(t.most_in_doubt)),
        ("raw", t.raw),
        ("distinct", t.distinct),
        ("judged", t.judged),
        ("second", t.second),
        ("mounts", t.mounts),
    ];
    all.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
}

/// Saves a campaign: `campaign` is all that its result depends on, `build` names the program.
/// Written beside and renamed, so that an old file stays until the new one is whole.
///
/// Errors: the host's.
pub fn save(path: &Path, campaign: &str, build: &str, f: &Findings) -> std::io::Result<()> {
    let broken = Rule::ALL.iter().map(|r| (r.name().to_owned(), f.totals.broken[*r as usize]));
    let found = f.found.iter().map(|x| Failure {
        program: x.program,
        rule: x.violation.rule.name().to_owned(),
        path: x.violation.path.clone(),
        offset: x.violation.offset,
        expected: x.violation.expected.clone(),
        seen: x.violation.seen.clone(),
        frame: x.frame,
        lost: x.lost.clone(),
        operations: x.operations,
        after: x.after,
        mount: x.mount,
    });
    let places = f.places.iter().map(|((r, p), n)| (r.name().to_owned(), p.clone(), *n));
    let body = Body {
        campaign: campaign.to_owned(),
        build: build.to_owned(),
        done: f.done,
        totals: totals(&f.totals),
        broken: broken.collect(),
        found: found.collect(),
        places: places.collect(),
        known: f.known.iter().map(|(k, n)| (*k, *n)).collect(),
        not_played: f.not_played.clone(),
        lacking: f.lacking.clone(),
        calls: f.calls.clone(),
    };
    let body = serde_json::to_value(body)?;
    let document = json!({ "schema": SCHEMA, "sha256": digest(&body), "body": body });
    output::write(path, &serde_json::to_vec_pretty(&document)?, Existing::Replace)
}

/// Loads a campaign; says as well whether another build made it. `None`: there is no file.
///
/// Errors: a file that is damaged, no campaign, or another campaign's, in words.
pub fn load(path: &Path, campaign: &str, build: &str) -> Result<Option<(Findings, bool)>, String> {
    let bytes = match text::at_most(path, text::LIST_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.to_string()),
    };
    parse(&bytes, campaign, build).map(Some)
}

/// As [`load`], of a file's bytes.
///
/// Errors: those of [`load`], but the host's.
pub fn parse(bytes: &[u8], campaign: &str, build: &str) -> Result<(Findings, bool), String> {
    let value: Value =
        serde_json::from_slice(bytes).map_err(|e| format!("not a campaign file: {e}"))?;
    match value["schema"].as_str() {
        Some(SCHEMA) => {}
        Some(other) => return Err(format!("schema `{other}` instead of `{SCHEMA}`")),
        None => return Err("not a campaign file: it has no schema".to_owned()),
    }
    if value["sha256"].as_str() != Some(&digest(&value["body"])) {
        return Err("damaged: its contents do not match its digest".to_owned());
    }
    let body: Body = serde_json::from_value(value["body"].clone())
        .map_err(|e| format!("not a campaign of this build: {e}"))?;
    if body.campaign != campaign {
        return Err(format!(
            "saved by another campaign:\n  saved     {}\n  requested {campaign}",
            body.campaign
        ));
    }
    let is_other = body.build != build;
    Ok((body.findings()?, is_other))
}

fn rule(name: &str) -> Result<Rule, String> {
    Rule::of(name).ok_or_else(|| format!("not a campaign of this build: rule `{name}`"))
}

impl Body {
    fn findings(self) -> Result<Findings, String> {
        let n = |name: &str| self.totals.get(name).copied().unwrap_or(0);
        let mut totals = Totals {
            programs: n("programs"),
            cuts: n("cuts"),
            cuts_sampled: n("cuts_sampled"),
            cuts_thinned: n("cuts_thinned"),
            most_in_doubt: n("most_in_doubt") as u32,
            raw: n("raw"),
            distinct: n("distinct"),
            judged: n("judged"),
            second: n("second"),
            mounts: n("mounts"),
            ..Totals::default()
        };
        for (name, states) in &self.broken {
            totals.broken[rule(name)? as usize] = *states;
        }
        let found = self.found.into_iter().map(|x| {
            Ok(Found {
                program: x.program,
                violation: Violation {
                    rule: rule(&x.rule)?,
                    path: x.path,
                    offset: x.offset,
                    expected: x.expected,
                    seen: x.seen,
                },
                frame: x.frame,
                lost: x.lost,
                operations: x.operations,
                after: x.after,
                mount: x.mount,
            })
        });
        let found: Result<Vec<Found>, String> = found.collect();
        let places = self.places.into_iter().map(|(r, p, n)| Ok(((rule(&r)?, p), n)));
        let places: Result<BTreeMap<(Rule, String), u64>, String> = places.collect();
        Ok(Findings {
            totals,
            found: found?,
            places: places?,
            known: self.known.into_iter().collect(),
            not_played: self.not_played,
            lacking: self.lacking,
            calls: self.calls,
            done: self.done,
            unfinished: None,
        })
    }
}
