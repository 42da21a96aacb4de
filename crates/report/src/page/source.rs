//! What a paper brings to the page, and what the page lends it.

use std::fmt;

use super::block::Block;
use super::claim::{Claim, Remark};
use super::figure::Mark;
use super::words::{self, Lang, Text};
use crate::claim::Judged;

/// What a paper is about.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its title.
    pub title: Text,
    /// What it says, in two sentences.
    pub says: Text,
    /// On what it is run here.
    pub setup: Text,
}

/// Results of a paper, which know their figures and tables; the page knows how to draw them.
pub trait Reproduced: fmt::Debug {
    /// What the paper is about.
    fn about(&self) -> About;

    /// Its claims, judged; each stands on the page.
    fn claims(&self) -> &[Judged];

    /// Variations of assumed parameters behind the intervals of the claims.
    fn varied(&self) -> Varied;

    /// Its figures and tables, in the language of `source`.
    fn blocks(&self, source: &Source<'_>) -> Vec<Block>;
}

/// Variations of assumed parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Varied {
    /// How many.
    pub all: usize,
    /// Those of them that no machine can have.
    pub impossible: usize,
}

/// The claims of a paper, and the language to speak.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its claims.
    pub claims: &'a [Claim],
    /// Reasons in English and in Korean.
    pub phrases: &'a [[String; 2]],
    /// The language.
    pub lang: Lang,
}

impl Source<'_> {
    /// A text.
    pub fn t(&self, text: Text) -> String {
        text.of(self.lang).to_owned()
    }

    /// A text with parts.
    pub fn tw(&self, text: Text, parts: &[&str]) -> String {
        text.with(self.lang, parts)
    }

    /// A reason that documents hold.
    pub fn remark(&self, english: &str) -> Remark {
        Remark::said(english, self.phrases, self.lang)
    }

    /// A name that documents use.
    pub fn name(&self, raw: &str) -> String {
        words::name(raw, self.lang)
    }

    /// A claim.
    pub fn claim(&self, id: &str) -> Option<&Claim> {
        self.claims.iter().find(|c| c.id == id)
    }

    /// What the paper states by a claim, as a mark of a figure. `change` makes the claim's numbers
    /// those of the axis.
    pub fn mark(
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
