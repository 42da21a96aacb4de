//! Figures and tables of each paper, from its document.
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

use serde_json::Value;

use super::block::Block;
use super::claim::{Claim, Remark};
use super::figure::Mark;
use super::words::{self, Lang, Text};

/// What is known of a paper besides its document.
pub struct Known {
    /// Its title.
    pub title: Text,
    /// What it says, in two sentences.
    pub says: Text,
    /// On what it is run here.
    pub setup: Text,
    blocks: fn(&Source<'_>) -> Vec<Block>,
}

/// The papers by slug. `None`: one that this page does not know, whose claims are shown alone.
pub fn known(slug: &str) -> Option<Known> {
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
    Some(Known { title, says, setup, blocks })
}

impl Known {
    /// Its figures and tables.
    pub fn blocks(&self, source: &Source<'_>) -> Vec<Block> {
        (self.blocks)(source)
    }
}

/// A document, its claims, and the language to speak.
pub struct Source<'a> {
    /// The document.
    pub doc: &'a Value,
    /// Its claims.
    pub claims: &'a [Claim],
    /// Reasons in English and in Korean.
    pub phrases: &'a [[String; 2]],
    /// The language.
    pub lang: Lang,
}

impl Source<'_> {
    /// A text.
    fn t(&self, text: Text) -> String {
        text.of(self.lang).to_owned()
    }

    /// A text with parts.
    fn tw(&self, text: Text, parts: &[&str]) -> String {
        text.with(self.lang, parts)
    }

    /// A reason that documents hold.
    fn remark(&self, english: &str) -> Remark {
        Remark::said(english, self.phrases, self.lang)
    }

    /// A name that documents use.
    fn name(&self, raw: &str) -> String {
        words::name(raw, self.lang)
    }

    /// A claim.
    fn claim(&self, id: &str) -> Option<&Claim> {
        self.claims.iter().find(|c| c.id == id)
    }

    /// What the paper states by a claim, as a mark of a figure. `change` makes the claim's numbers
    /// those of the axis.
    fn mark(
        &self,
        id: &str,
        x: Option<f64>,
        series: Option<usize>,
        change: impl Fn(f64) -> f64,
    ) -> Option<Mark> {
        let c = self.claim(id)?;
        let is_exact = c.band[0] == c.band[1];
        Some(Mark {
            x,
            value: c.value.map(&change),
            band: (!is_exact).then(|| c.band.map(&change)),
            label: c.tip(self.lang),
            series,
        })
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

/// A count of bytes with its unit.
fn bytes(n: f64) -> String {
    if n >= f64::from(1 << 20) {
        format!("{} MiB", n / f64::from(1 << 20))
    } else {
        format!("{} KiB", n / 1024.0)
    }
}
