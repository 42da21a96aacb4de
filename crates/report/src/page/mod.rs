//! One HTML file that shows what runs found: figures, tables, claims, in English or Korean.
//!
//! ```text
//! claims.json of a paper ─> claim::Claim, Figures::blocks ─┐
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

use std::fmt;
use std::rc::Rc;

use serde_json::Value;

pub use self::block::Block;
pub use self::claim::{Claim, Remark, pair};
pub use self::figure::{Axis, Figure, Mark, Point, Series, Shape};
pub use self::jobs::Rated;
pub use self::lanes::{Lane, Lanes, Span};
pub use self::scale::number;
pub use self::source::{About, Figures, Source};
pub use self::table::{Cell, Table};
pub use self::words::{Lang, Text};

/// Results of a paper.
#[derive(Clone, Debug)]
pub struct Paper {
    /// Its slug.
    pub slug: String,
    /// `claims.json`.
    pub document: Value,
    /// What it brings to the page. `None`: its claims are shown alone.
    pub figures: Option<Rc<dyn Figures>>,
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
    /// `claims.json`, if it has one.
    pub claims: Option<Value>,
    /// `fio.json`, if it has one.
    pub fio: Option<Value>,
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

/// A document that is none of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageError {
    /// Slug of the paper.
    pub paper: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "claims.json of {}: {}", self.paper, self.what)
    }
}

impl std::error::Error for PageError {}

/// A paper with its claims.
struct Read<'a> {
    paper: &'a Paper,
    claims: Vec<Claim>,
}

/// The page. Errors: a document without claims, or with one that is none.
pub fn page(input: &Input, lang: Lang) -> Result<String, PageError> {
    let mut papers = Vec::new();
    for paper in &input.papers {
        let wrong = |what| PageError { paper: paper.slug.clone(), what };
        let list = paper.document["claims"].as_array().filter(|l| !l.is_empty());
        let list = list.ok_or_else(|| wrong("it has no `claims`".to_owned()))?;
        let mut claims = Vec::new();
        for v in list {
            let mut claim = Claim::read(v).map_err(wrong)?;
            let is_it = |r: &&Rule| r.paper == paper.slug && r.id == claim.id;
            if let Some(r) = input.rules.iter().find(is_it) {
                claim.rule = Remark::said(&r.rule, &input.reasons, lang);
                claim.null_is = Remark::said(&r.null, &input.reasons, lang);
            }
            claim.why = Remark::said(&claim.why.text, &input.reasons, lang);
            claims.push(claim);
        }
        papers.push(Read { paper, claims });
    }
    for run in &input.runs {
        let list = run.claims.iter().filter_map(|doc| doc["claims"].as_array()).flatten();
        for v in list {
            let wrong = |what| PageError { paper: run.name.clone(), what };
            Claim::read(v).map_err(wrong)?;
        }
    }
    Ok(sections::whole(input, &papers, lang))
}
