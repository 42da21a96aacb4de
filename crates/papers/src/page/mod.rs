//! Figures and tables of each paper on the page, from its document.
//!
//! Invariants: a number comes from the document; one of the paper comes from its claims. What a
//!             document lacks is left out, whatever else it holds.

mod conflict;
mod direct;
mod ext4;
mod ext4_traces;
mod f2fs;
mod f2fs_flows;
mod trim;

use std::ops::Deref;
use std::rc::Rc;

use serde::Deserialize;
use serde_json::Value;
use wp_report::claim::Judged;
use wp_report::document::{self, DocumentError};
use wp_report::page::{self, About, Block, Figures, Varied, words};

/// What a paper's document brings to the page.
pub struct Reproduced {
    /// Its claims, judged.
    pub claims: Vec<Judged>,
    /// Variations behind their intervals.
    pub varied: Option<Varied>,
    /// Its figures and tables.
    pub figures: Rc<dyn Figures>,
}

/// Reads the document of a paper, by the paper's slug.
///
/// Errors: no such paper; a key of a claim that is missing or of another type.
pub fn read(slug: &str, text: &str) -> Result<Reproduced, DocumentError> {
    #[derive(Deserialize)]
    struct Claims {
        claims: Vec<Judged>,
    }
    let Claims { claims } = document::read(text)?;
    let document: Value = document::read(text)?;
    let varied = varied(&document);
    let figures = figures(slug, document).ok_or_else(|| DocumentError {
        key: "papers".to_owned(),
        what: format!("no paper called `{slug}`"),
    })?;
    Ok(Reproduced { claims, varied, figures })
}

fn figures(slug: &str, document: Value) -> Option<Rc<dyn Figures>> {
    let (title, says, setup, blocks): (_, _, _, fn(&Source<'_>) -> Vec<Block>) = match slug {
        "ext4-fsync" => (words::EXT4_TITLE, words::EXT4_SAYS, words::EXT4_SETUP, ext4::blocks),
        "f2fs-oprw" => (words::F2FS_TITLE, words::F2FS_SAYS, words::F2FS_SETUP, f2fs::blocks),
        "direct-io" => {
            (words::DIRECT_TITLE, words::DIRECT_SAYS, words::DIRECT_SETUP, direct::blocks)
        }
        "inode-trim" => (words::TRIM_TITLE, words::TRIM_SAYS, words::TRIM_SETUP, trim::blocks),
        "journal-conflict" => {
            (words::CONFLICT_TITLE, words::CONFLICT_SAYS, words::CONFLICT_SETUP, conflict::blocks)
        }
        _ => return None,
    };
    let about = About { title, says, setup };
    Some(Rc::new(Document { about, document, blocks }))
}

/// How many variations are behind the intervals of a document.
fn varied(document: &Value) -> Option<Varied> {
    let count = |v: &Value| v.as_u64().map(|n| n as usize).or_else(|| v.as_array().map(Vec::len));
    let all = count(&document["variations"]).or_else(|| count(&document["varied"]))?;
    let impossible = count(&document["impossible_variations"])
        .or_else(|| count(&document["impossible"]))
        .unwrap_or(0);
    Some(Varied { all, impossible })
}

/// A paper's document and what draws it.
#[derive(Debug)]
struct Document {
    about: About,
    document: Value,
    blocks: fn(&Source<'_>) -> Vec<Block>,
}

impl Figures for Document {
    fn about(&self) -> About {
        self.about
    }

    fn blocks(&self, source: &page::Source<'_>) -> Vec<Block> {
        (self.blocks)(&Source { doc: &self.document, page: source })
    }
}

/// A document, and the page that shows it.
struct Source<'a> {
    doc: &'a Value,
    page: &'a page::Source<'a>,
}

impl<'a> Deref for Source<'a> {
    type Target = page::Source<'a>;

    fn deref(&self) -> &page::Source<'a> {
        self.page
    }
}

/// The elements of a list; none if it is not there.
fn list(v: &Value) -> &[Value] {
    v.as_array().map_or(&[], Vec::as_slice)
}

/// A number; NaN, which nothing draws, if it is not there.
fn num(v: &Value) -> f64 {
    v.as_f64().unwrap_or(f64::NAN)
}

/// A text; empty if it is not there.
fn word(v: &Value) -> &str {
    v.as_str().unwrap_or_default()
}

/// Values of a key among rows, each once, in the order in which they come.
fn each<'a>(rows: &'a [Value], key: &str) -> Vec<&'a str> {
    let mut out: Vec<&str> = Vec::new();
    for v in rows.iter().filter_map(|r| r[key].as_str()) {
        if !out.contains(&v) {
            out.push(v);
        }
    }
    out
}

/// Two numbers.
fn pair(v: &Value) -> Option<[f64; 2]> {
    Some([v[0].as_f64()?, v[1].as_f64()?])
}

/// A count of bytes with its unit.
fn bytes(n: f64) -> String {
    if n >= f64::from(1 << 20) {
        format!("{} MiB", n / f64::from(1 << 20))
    } else {
        format!("{} KiB", n / 1024.0)
    }
}
