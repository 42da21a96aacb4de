//! One HTML file that shows what runs found: figures, tables, claims, in English or Korean.
//!
//! ```text
//! results of a paper ─> claim::Claim, Reproduced::blocks ───┐
//! summary.json, points.csv, claims of a run ─> run::blocks ┴─> block ─> draw, lanes, table ─> html
//! ```
//! Invariants: 1. the page is a function of its input: the same results give the same bytes.
//!             2. it asks for nothing: no network, no fonts; pictures are drawn without a program.
//!             3. a number of a paper is one of its claims'. None stands in this code.
//!             4. every claim of a document stands on the page.
//!             5. every text is in `words`, in both languages.

mod block;
mod claim;
mod draw;
mod figure;
mod html;
mod jobs;
mod lanes;
mod run;
mod scale;
mod sections;
mod source;
mod summary;
mod table;
pub mod words;

use std::rc::Rc;

use serde::Deserialize;
use serde_json::Value;

pub use self::block::Block;
pub use self::claim::{Claim, Remark};
pub use self::draw::STYLES;
pub use self::figure::{Axis, Figure, Mark, Point, Series, Shape};
pub use self::jobs::{Completion, Direction, Fio, Job, Latency, Percentiles, Rated};
pub use self::lanes::{Lane, Lanes, Span};
pub use self::scale::number;
pub use self::source::{About, Reproduced, Source, Varied};
pub use self::table::{Cell, Table};
pub use self::words::{Lang, Text};
use crate::claim::{Judged, Needs};
use crate::document::{self, DocumentError};

/// Results of a paper.
#[derive(Clone, Debug)]
pub struct Paper {
    /// Its slug.
    pub slug: String,
    /// Its results.
    pub results: Rc<dyn Reproduced>,
    /// `tables.txt`: what the command printed.
    pub text: String,
    /// `resolved.toml`: what was asked for, in full.
    pub resolved: String,
    /// The command that makes these results.
    pub command: String,
    /// Name of the folder that they are in: a hash of what was asked for.
    pub hash: String,
    /// SHA-256 of `claims.json`.
    pub digest: String,
    /// Was it a quick run?
    pub is_quick: bool,
}

/// A claim of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct RunClaim {
    /// As claims of papers are.
    pub judged: Judged,
    /// What was compared.
    pub expr: String,
}

impl RunClaim {
    /// Reads the claims of an experiment's `claims.json`. Errors: a key that is missing or wrong.
    pub fn read(text: &str) -> Result<Vec<RunClaim>, DocumentError> {
        #[derive(Deserialize)]
        struct Claims<T> {
            claims: Vec<T>,
        }
        #[derive(Deserialize)]
        struct Compared {
            expr: String,
        }
        // Each part by itself: of flattened structs serde does not say which key is wrong.
        let judged: Claims<Judged> = document::read(text)?;
        let compared: Claims<Compared> = document::read(text)?;
        let both = judged.claims.into_iter().zip(compared.claims);
        Ok(both.map(|(judged, Compared { expr })| RunClaim { judged, expr }).collect())
    }
}

/// Results of a run or an experiment.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its name.
    pub name: String,
    /// Name of the folder that it is in.
    pub hash: String,
    /// `resolved.toml`.
    pub resolved: String,
    /// `summary.json`.
    pub summary: Value,
    /// `points.csv`, if it has one: heads, and rows as long as they.
    pub points: Option<(Vec<String>, Vec<Vec<String>>)>,
    /// Its claims, in the order of the file; none of a run.
    pub claims: Vec<RunClaim>,
    /// Its `fio.json`, if it has one.
    pub fio: Option<Fio>,
    /// What its drive is rated at.
    pub rated: Vec<Rated>,
}

/// Words of the claims file that documents do not repeat.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Slug of the paper.
    pub paper: String,
    /// Id of the claim.
    pub id: String,
    /// How it is counted; may be empty.
    pub rule: String,
    /// What the null predictor is; may be empty.
    pub null: String,
    /// What of the drive's times its verdict needs, if that was found out.
    pub needs: Option<Needs>,
}

/// What a page is made of.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// Papers, in order.
    pub papers: Vec<Paper>,
    /// Runs, in order.
    pub runs: Vec<Run>,
    /// Rules of claims.
    pub rules: Vec<Rule>,
    /// Reasons and remarks: phrases in English and in Korean, for [`wp_base::phrase::translate`].
    pub reasons: Vec<[String; 2]>,
    /// Address of the page in the other language, if there is one.
    pub other: Option<String>,
    /// Version of the program.
    pub version: String,
}

/// A paper with its claims.
struct Read<'a> {
    paper: &'a Paper,
    claims: Vec<Claim>,
}

/// The page.
pub fn page(input: &Input, lang: Lang) -> String {
    let read = |paper| Read { paper, claims: claims(paper, input, lang) };
    let papers: Vec<Read<'_>> = input.papers.iter().map(read).collect();
    sections::whole(input, &papers, lang)
}

/// The claims of a paper with their rules, and what is said of each in the language if it is known
/// there.
fn claims(paper: &Paper, input: &Input, lang: Lang) -> Vec<Claim> {
    let said = |text: &str| Remark::said(text, &input.reasons, lang);
    let of = |judged: &Judged| {
        let mut claim = Claim::of(judged);
        let is_it = |r: &&Rule| r.paper == paper.slug && r.id == claim.id;
        if let Some(r) = input.rules.iter().find(is_it) {
            claim.rule = said(&r.rule);
            claim.null_is = said(&r.null);
            claim.needs = r.needs;
        }
        claim.why = said(&claim.why.text);
        claim
    };
    paper.results.claims().iter().map(of).collect()
}
