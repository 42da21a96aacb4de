//! How claims stand on the page.

use wp_base::phrase;

use super::html::Html;
use super::scale::number;
use super::words::{self, Lang, Text};
use crate::claim::{Judged, Kind, Needs, PaperValue, Verdict};

/// How a verdict stands on the page.
impl Verdict {
    /// The word of the page.
    pub(super) fn word(self) -> Text {
        match self {
            Verdict::Match => words::MATCH,
            Verdict::Differs => words::DIFFERS,
            Verdict::FollowsFromInputs => words::FOLLOWS,
            Verdict::PaperInconsistent => words::INCONSISTENT,
            Verdict::NotModelled => words::NOT_MODELLED,
        }
    }

    /// What it means.
    pub(super) fn meaning(self) -> Text {
        match self {
            Verdict::Match => words::MATCH_IS,
            Verdict::Differs => words::DIFFERS_IS,
            Verdict::FollowsFromInputs => words::FOLLOWS_IS,
            Verdict::PaperInconsistent => words::INCONSISTENT_IS,
            Verdict::NotModelled => words::NOT_MODELLED_IS,
        }
    }

    /// A sign that tells it apart without colour.
    pub(super) fn sign(self) -> &'static str {
        match self {
            Verdict::Match => "✓",
            Verdict::Differs => "✕",
            Verdict::FollowsFromInputs => "=",
            Verdict::PaperInconsistent => "≠",
            Verdict::NotModelled => "–",
        }
    }

    /// Sign and word in their colour.
    pub(super) fn chip(self, lang: Lang, h: &mut Html) {
        h.el("span", &[("class", &format!("v v-{}", self.name()))], |h| {
            h.leaf("b", &[("aria-hidden", "true")], self.sign());
            h.text(" ");
            h.text(self.word().of(lang));
        });
    }
}

impl Needs {
    /// What is said of it on the page.
    fn word(self) -> Text {
        match self {
            Needs::Nothing => words::NEEDS_NOTHING,
            Needs::Flush => words::NEEDS_FLUSH,
            Needs::Drive => words::NEEDS_DRIVE,
        }
    }
}

/// What is said of a claim, and the language that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The text; may be empty.
    pub text: String,
    /// Its language.
    pub lang: Lang,
}

impl Remark {
    /// A remark as documents hold it.
    pub fn english(text: &str) -> Remark {
        Remark { text: text.to_owned(), lang: Lang::En }
    }

    /// A remark in a language, or as it is if no phrase says it there.
    pub fn said(english: &str, phrases: &[[String; 2]], lang: Lang) -> Remark {
        let there = (lang == Lang::Ko).then(|| phrase::translate(phrases, english)).flatten();
        there.map_or(Remark::english(english), |text| Remark { text, lang })
    }

    /// Attributes of the element that it stands in, on a page in a language.
    pub fn attrs(&self, page: Lang) -> &'static [(&'static str, &'static str)] {
        match self.lang {
            own if own == page => &[],
            Lang::En => &[("lang", "en")],
            Lang::Ko => &[("lang", "ko")],
        }
    }
}

/// A claim.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Slug of the paper.
    pub paper: String,
    /// Id, unique in the paper.
    pub id: String,
    /// What is claimed, in English.
    pub what: String,
    /// The paper's value as it is written.
    pub said: String,
    /// The same, if it is a number.
    pub value: Option<f64>,
    /// Ours.
    pub ours: Option<f64>,
    /// Unit.
    pub unit: String,
    /// Lowest and highest that matches.
    pub band: [f64; 2],
    /// Does it set a parameter?
    pub is_input: bool,
    /// What the null predictor gives.
    pub null: Option<f64>,
    /// What the intervals of the parameters give.
    pub interval: Option<[f64; 2]>,
    /// The verdict.
    pub verdict: Verdict,
    /// Reason, proof or remark.
    pub why: Remark,
    /// How it is counted; from the claims file.
    pub rule: Remark,
    /// What the null predictor is; from the claims file.
    pub null_is: Remark,
    /// What of the drive's times the verdict needs, if that was found out.
    pub needs: Option<Needs>,
}

impl Claim {
    /// A claim as results hold it, still without its rule.
    pub fn of(judged: &Judged) -> Claim {
        let value = match judged.paper_value {
            PaperValue::Number(value) => Some(value),
            PaperValue::Word(_) => None,
        };
        Claim {
            paper: judged.paper.clone(),
            id: judged.id.clone(),
            what: judged.what.clone(),
            said: judged.paper_value.to_string(),
            value,
            ours: judged.ours,
            unit: judged.unit.clone().unwrap_or_default(),
            band: judged.band,
            is_input: judged.kind == Kind::Input,
            null: judged.null,
            interval: judged.interval,
            verdict: judged.verdict,
            why: Remark::english(&judged.why),
            rule: Remark::english(""),
            null_is: Remark::english(""),
            needs: None,
        }
    }

    /// Its place on the page.
    pub fn anchor(&self) -> String {
        format!("claim-{}-{}", self.paper, self.id)
    }

    /// What it says, in a language if it has a sentence there.
    pub fn words(&self, lang: Lang) -> Remark {
        let there = words::claim(&self.what, lang);
        there.map_or(Remark::english(&self.what), |text| Remark { text, lang })
    }

    /// Is one number all that matches?
    fn is_exact(&self) -> bool {
        self.band[0] == self.band[1]
    }

    /// The band in short.
    pub fn band_text(&self) -> String {
        let [low, high] = self.band;
        if self.is_exact() {
            format!("= {}", number(low))
        } else {
            format!("{} – {}", number(low), number(high))
        }
    }

    /// In one line: what the paper says and what is ours.
    pub fn tip(&self, lang: Lang) -> String {
        let what = self.words(lang).text;
        let ours = self.ours.map_or("—".to_owned(), number);
        format!(
            "{what}\n{}: {} {}\n{}: {ours}\n{}: {}\n{}",
            words::PAPER.of(lang),
            self.said,
            self.unit,
            words::OURS.of(lang),
            words::BAND.of(lang),
            self.band_text(),
            self.verdict.word().of(lang)
        )
    }
}

const STRIP: [f64; 2] = [150.0, 18.0];

/// Band, paper, ours, interval and null predictor on a line of their own scale.
pub fn strip(c: &Claim, lang: Lang, h: &mut Html) {
    let [low, high] = c.band;
    let half = if c.is_exact() { low.abs().max(1.0) } else { high - low };
    let (from, to) = (low - half * 0.9, high + half * 0.9);
    let [width, height] = STRIP;
    let at = |v: f64| {
        let share = ((v - from) / (to - from)).clamp(0.0, 1.0);
        8.0 + share * (width - 16.0)
    };
    let is_out = |v: f64| !(from..=to).contains(&v);
    let px = |v: f64| format!("{v:.1}");
    let middle = px(height / 2.0);
    let view = format!("0 0 {width} {height}");
    let label = c.tip(lang);
    let attrs =
        [("class", "strip"), ("viewBox", view.as_str()), ("role", "img"), ("aria-label", &label)];
    h.el("svg", &attrs, |h| {
        let (l, r) = ("2".to_owned(), px(width - 2.0));
        h.shape(
            "line",
            &[("class", "grid"), ("x1", &l), ("x2", &r), ("y1", &middle), ("y2", &middle)],
        );
        let (x, w) = (px(at(low) - 1.0), px((at(high) - at(low) + 2.0).max(3.0)));
        h.shape(
            "rect",
            &[("class", "band"), ("x", &x), ("y", "3"), ("width", &w), ("height", "12")],
        );
        if let Some(v) = c.value {
            let x = px(at(v));
            h.shape(
                "line",
                &[("class", "said"), ("x1", &x), ("x2", &x), ("y1", "2"), ("y2", "16")],
            );
        }
        if let Some([a, b]) = c.interval {
            let (x1, x2) = (px(at(a)), px(at(b)));
            h.shape(
                "line",
                &[("class", "range"), ("x1", &x1), ("x2", &x2), ("y1", &middle), ("y2", &middle)],
            );
        }
        if let Some(v) = c.null.filter(|v| !is_out(*v)) {
            let d = format!("M{} 4.6l4.4 4.4l-4.4 4.4l-4.4 -4.4z", px(at(v)));
            h.shape("path", &[("class", "null"), ("d", &d)]);
        }
        if let Some(v) = c.ours {
            let class = format!("ours o-{}", c.verdict.name());
            if is_out(v) {
                let d = if v < from {
                    "M1 9l7 -4.5v9z".to_owned()
                } else {
                    format!("M{} 9l-7 -4.5v9z", px(width - 1.0))
                };
                h.shape("path", &[("class", &class), ("d", &d)]);
            } else {
                let x = px(at(v));
                h.shape("circle", &[("class", &class), ("cx", &x), ("cy", &middle), ("r", "4")]);
            }
        }
    });
}

/// Rows of claims, each with its place on the page.
pub fn table(claims: &[&Claim], lang: Lang, h: &mut Html) {
    h.el("div", &[("class", "scroll claims"), ("tabindex", "0")], |h| {
        h.el("table", &[("class", "claims cards")], |h| {
            h.el("thead", &[], |h| {
                h.el("tr", &[], |h| {
                    let heads = [
                        (words::VERDICT, ""),
                        (words::CLAIM, ""),
                        (words::PAPER, "num"),
                        (words::OURS, "num"),
                        (words::BAND, "num"),
                        (words::INTERVAL, "num"),
                        (words::NULL, "num"),
                        (words::PLACE, ""),
                    ];
                    for (text, class) in heads {
                        h.leaf("th", &[("class", class), ("scope", "col")], text.of(lang));
                    }
                });
            });
            h.el("tbody", &[], |h| {
                for c in claims {
                    row(c, lang, h);
                    h.line();
                }
            });
        });
    });
}

fn row(c: &Claim, lang: Lang, h: &mut Html) {
    let anchor = c.anchor();
    let rank = Verdict::ALL.iter().position(|v| *v == c.verdict).unwrap_or(0).to_string();
    h.el("tr", &[("id", &anchor), ("data-v", c.verdict.name())], |h| {
        h.el("td", &[("class", "verdict"), ("data-k", &rank)], |h| c.verdict.chip(lang, h));
        h.el("td", &[("class", "what")], |h| {
            let what = c.words(lang);
            h.leaf("span", what.attrs(lang), &what.text);
            h.text(" ");
            h.leaf("code", &[], &c.id);
            for (head, text) in
                [(words::WHY, &c.why), (words::RULE, &c.rule), (words::NULL_IS, &c.null_is)]
            {
                if !text.text.is_empty() {
                    h.el("small", &[], |h| {
                        h.leaf("i", &[], head.of(lang));
                        h.text(" ");
                        h.leaf("span", text.attrs(lang), &text.text);
                    });
                }
            }
            if let Some(needs) = c.needs {
                h.el("small", &[], |h| {
                    h.leaf("i", &[], words::NEEDS.of(lang));
                    h.text(" ");
                    h.text(needs.word().of(lang));
                });
            }
        });
        let unit = if c.unit.is_empty() { String::new() } else { format!(" {}", c.unit) };
        let optional = |v: Option<f64>| v.map_or("—".to_owned(), number);
        let key = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
        let range =
            c.interval.map_or("—".to_owned(), |[a, b]| format!("{} – {}", number(a), number(b)));
        let cells = [
            (words::PAPER, format!("{}{unit}", c.said), key(c.value)),
            (words::OURS, optional(c.ours), key(c.ours)),
            (words::BAND, c.band_text(), key(Some(c.band[0]))),
            (words::INTERVAL, range, key(c.interval.map(|i| i[0]))),
            (words::NULL, optional(c.null), key(c.null)),
        ];
        for (head, text, key) in cells {
            let attrs = [("class", "num"), ("data-l", head.of(lang)), ("data-k", key.as_str())];
            h.leaf("td", &attrs, &text);
        }
        let off = c.ours.map(|v| {
            let [low, high] = c.band;
            let half = ((high - low) / 2.0).max(1e-9);
            ((v - (low + high) / 2.0) / half).abs()
        });
        h.el("td", &[("class", "where"), ("data-k", &key(off))], |h| strip(c, lang, h));
    });
}
