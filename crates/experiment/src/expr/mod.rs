//! The language of claims: metrics at points, arithmetic, comparisons, and what is made of many.
//!
//! ```text
//! iops[oprw] / iops[posix]                 two points
//! mean(fsync_ns[fs.era=3.4])               all points of an era
//! geomean(iops[oprw] / iops[posix])        point by point, then one number
//! count(iops[f2fs] > max(iops[ext4], iops[btrfs]))
//! ```
//! Picture:    text -> [`parse`] -> [`Expr`] (spans, names still words) -> [`part`] (words are
//!             parts of the sweep) -> [`eval`] over the means of points.
//! Laws:       a metric has a value at each point that is not ruled out in its brackets; operations
//!             go point by point, where both sides have the same swept values; a claim is about one
//!             number, so what is left is put together by a function.

mod eval;
mod parse;

use std::ops::Range;

pub use eval::{Field, SETTING, eval, part};
pub use parse::parse;

/// What is wrong with an expression: where in it, what, and the hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Bytes of the text.
    pub at: Range<usize>,
    /// What.
    pub message: String,
    /// The hint; may be empty.
    pub help: String,
    /// Is it a matter of the numbers, and not of what stands there?
    pub of_numbers: bool,
}

impl Wrong {
    fn new(at: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> Wrong {
        Wrong { at, message: message.into(), help: help.into(), of_numbers: false }
    }

    fn numbers(at: Range<usize>, message: impl Into<String>) -> Wrong {
        Wrong { of_numbers: true, ..Wrong::new(at, message, "") }
    }
}

/// An operation between two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `<`
    Less,
    /// `<=`
    LessEq,
    /// `>`
    More,
    /// `>=`
    MoreEq,
    /// `==`
    Equal,
    /// `!=`
    Differs,
}

impl Op {
    /// Is its answer yes (1) or no (0)?
    pub fn compares(self) -> bool {
        !matches!(self, Op::Add | Op::Sub | Op::Mul | Op::Div)
    }
}

/// What makes one number of many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fold {
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The arithmetic mean.
    Mean,
    /// The geometric mean.
    Geomean,
    /// All together.
    Sum,
    /// How many are not 0.
    Count,
    /// Greatest less least, over the mean.
    Spread,
    /// Is each greater than the one before, along the one key that is left?
    Grows,
}

/// Functions by name.
pub const FUNCTIONS: [(&str, Fold); 8] = [
    ("min", Fold::Min),
    ("max", Fold::Max),
    ("mean", Fold::Mean),
    ("geomean", Fold::Geomean),
    ("sum", Fold::Sum),
    ("count", Fold::Count),
    ("spread", Fold::Spread),
    ("grows", Fold::Grows),
];

/// An expression.
#[derive(Clone, Debug)]
pub struct Expr {
    /// Where it stands in the text.
    pub at: Range<usize>,
    /// What it is.
    pub kind: Kind,
}

/// One term of brackets.
#[derive(Clone, Debug)]
pub struct Term {
    /// Where it stands.
    pub at: Range<usize>,
    /// The key, if it says one.
    pub key: Option<String>,
    /// The value, or a name of `[points]`.
    pub word: String,
}

/// Kinds of expressions.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A number.
    Number(f64),
    /// A metric, where the terms say.
    Metric(String, Vec<Term>),
    /// A minus sign.
    Negative(Box<Expr>),
    /// Between two.
    Binary(Op, Box<Expr>, Box<Expr>),
    /// One number of many.
    Fold(Fold, Box<Expr>),
    /// The least (or greatest) of several, point by point.
    Among(Fold, Vec<Expr>),
}

impl Expr {
    /// Is its value yes (1) or no (0)?
    pub fn is_truth(&self) -> bool {
        match &self.kind {
            Kind::Binary(op, ..) => op.compares(),
            Kind::Fold(Fold::Grows, _) => true,
            _ => false,
        }
    }

    /// Calls `each` with every metric and where it stands.
    pub fn metrics<'a>(&'a self, each: &mut dyn FnMut(&'a str, &'a Range<usize>, &'a [Term])) {
        match &self.kind {
            Kind::Number(_) => {}
            Kind::Metric(name, terms) => each(name, &self.at, terms),
            Kind::Negative(inner) | Kind::Fold(_, inner) => inner.metrics(each),
            Kind::Binary(_, a, b) => {
                a.metrics(each);
                b.metrics(each);
            }
            Kind::Among(_, all) => all.iter().for_each(|e| e.metrics(each)),
        }
    }
}
