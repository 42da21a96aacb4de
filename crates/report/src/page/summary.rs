//! What comes of all papers: counts of verdicts, how to read them, what differs and why.

use super::Read;
use super::claim::{self, Claim, Remark};
use super::html::Html;
use super::scale::number;
use super::words::{self, Lang, Text};
use crate::claim::Verdict;

/// The head of the page.
pub fn draw(papers: &[Read<'_>], lang: Lang, h: &mut Html) {
    h.el("section", &[("id", "verdicts")], |h| {
        h.leaf("h2", &[], words::SUMMARY.of(lang));
        counts(papers, lang, h);
    });
    h.el("section", &[("id", "reading")], |h| {
        h.leaf("h2", &[], words::READING.of(lang));
        reading(lang, h);
    });
    h.el("section", &[("id", "differences")], |h| {
        h.leaf("h2", &[], words::DIFFERENCES.of(lang));
        differences(papers, lang, h);
        not_run(papers, lang, h);
    });
    h.line();
}

/// How many predictions have a verdict.
fn count(claims: &[Claim], v: Verdict) -> usize {
    claims.iter().filter(|c| !c.is_input && c.verdict == v).count()
}

fn counts(papers: &[Read<'_>], lang: Lang, h: &mut Html) {
    h.el("div", &[("class", "scroll"), ("tabindex", "0")], |h| {
        h.el("table", &[("class", "data counts")], |h| {
            h.el("thead", &[], |h| {
                h.el("tr", &[], |h| {
                    h.leaf("th", &[("scope", "col")], words::PAPER.of(lang));
                    h.leaf(
                        "th",
                        &[("scope", "col"), ("class", "num")],
                        words::PREDICTIONS.of(lang),
                    );
                    for v in Verdict::ALL {
                        h.el("th", &[("scope", "col"), ("class", "num")], |h| v.chip(lang, h));
                    }
                    h.leaf("th", &[("scope", "col"), ("class", "num")], words::INPUTS.of(lang));
                    h.el("th", &[("scope", "col"), ("class", "wide")], |_| {});
                });
            });
            h.el("tbody", &[], |h| {
                for read in papers {
                    line(Some(&read.paper.slug), &read.claims, lang, h);
                }
                let all: Vec<Claim> = papers.iter().flat_map(|r| r.claims.clone()).collect();
                if papers.len() > 1 {
                    line(None, &all, lang, h);
                }
            });
        });
    });
}

fn line(slug: Option<&str>, claims: &[Claim], lang: Lang, h: &mut Html) {
    let inputs = claims.iter().filter(|c| c.is_input).count();
    let class = if slug.is_some() { "" } else { "sum" };
    h.el("tr", &[("class", class)], |h| {
        h.el("td", &[], |h| match slug {
            Some(slug) => h.leaf("a", &[("href", &format!("#{slug}")), ("class", "slug")], slug),
            None => h.text(words::ALL.of(lang)),
        });
        let number = |n: usize, h: &mut Html| h.leaf("td", &[("class", "num")], &n.to_string());
        number(claims.len() - inputs, h);
        for v in Verdict::ALL {
            number(count(claims, v), h);
        }
        number(inputs, h);
        h.el("td", &[("class", "wide")], |h| bar(claims, lang, h));
    });
    h.line();
}

/// Shares of verdicts among predictions.
pub fn bar(claims: &[Claim], lang: Lang, h: &mut Html) {
    let all = claims.iter().filter(|c| !c.is_input).count().max(1);
    let label: Vec<String> = Verdict::ALL
        .into_iter()
        .filter(|v| count(claims, *v) > 0)
        .map(|v| format!("{} {}", count(claims, v), v.word().of(lang)))
        .collect();
    let attrs = [("class", "verdicts"), ("role", "img"), ("aria-label", &*label.join(", "))];
    h.el("div", &attrs, |h| {
        for v in Verdict::ALL {
            let n = count(claims, v);
            if n > 0 {
                let (class, style) = (format!("b-{}", v.name()), format!("flex-grow:{n}"));
                let title = format!("{n} {}", v.word().of(lang));
                let text =
                    if n * 100 >= all * 4 { format!("{} {n}", v.sign()) } else { String::new() };
                h.leaf("span", &[("class", &class), ("style", &style), ("title", &title)], &text);
            }
        }
    });
}

fn reading(lang: Lang, h: &mut Html) {
    h.el("dl", &[("class", "meanings")], |h| {
        for v in Verdict::ALL {
            h.el("div", &[], |h| {
                h.el("dt", &[], |h| v.chip(lang, h));
                h.leaf("dd", &[], v.meaning().of(lang));
            });
        }
    });
    for text in [
        words::READ_KINDS,
        words::READ_STRIP,
        words::READ_FIGURES,
        words::READ_SAME,
        words::READ_ENGLISH,
    ] {
        h.leaf("p", &[], text.of(lang));
    }
}

fn said(c: &Claim, h: &mut Html) {
    let unit = if c.unit.is_empty() { String::new() } else { format!(" {}", c.unit) };
    h.text(&format!("{}{unit}", c.said));
}

fn differences(papers: &[Read<'_>], lang: Lang, h: &mut Html) {
    let is_it = |c: &&Claim| matches!(c.verdict, Verdict::Differs | Verdict::PaperInconsistent);
    let found: Vec<&Claim> = papers.iter().flat_map(|r| r.claims.iter().filter(is_it)).collect();
    if found.is_empty() {
        h.leaf("p", &[], words::NO_DIFFERENCE.of(lang));
        return;
    }
    h.el("div", &[("class", "scroll"), ("tabindex", "0")], |h| {
        h.el("table", &[("class", "data diffs cards")], |h| {
            h.el("thead", &[], |h| {
                h.el("tr", &[], |h| {
                    let heads = [
                        (words::CLAIM, ""),
                        (words::PAPER, "num"),
                        (words::OURS, "num"),
                        (words::PLACE, ""),
                        (words::WHY, ""),
                    ];
                    for (text, class) in heads {
                        h.leaf("th", &[("scope", "col"), ("class", class)], text.of(lang));
                    }
                });
            });
            h.el("tbody", &[], |h| {
                for c in found {
                    difference(c, lang, h);
                    h.line();
                }
            });
        });
    });
}

fn difference(c: &Claim, lang: Lang, h: &mut Html) {
    h.el("tr", &[], |h| {
        h.el("td", &[("class", "what")], |h| {
            let what = c.words(lang);
            h.leaf("b", &[("class", &format!("sign v-{}", c.verdict.name()))], c.verdict.sign());
            h.text(" ");
            h.leaf("span", what.attrs(lang), &what.text);
            h.text(" ");
            let to = format!("#{}", c.anchor());
            h.el("a", &[("href", &to)], |h| {
                h.leaf("code", &[], &format!("{} {}", c.paper, c.id));
            });
        });
        let cell = |text: Text| [("class", "num"), ("data-l", text.of(lang))];
        h.el("td", &cell(words::PAPER), |h| said(c, h));
        h.el("td", &cell(words::OURS), |h| {
            h.text(&c.ours.map_or("—".to_owned(), number));
            if let Some([a, b]) = c.interval.filter(|[a, b]| a != b) {
                h.leaf("small", &[], &format!("{} – {}", number(a), number(b)));
            }
        });
        h.el("td", &[("class", "where")], |h| claim::strip(c, lang, h));
        h.leaf("td", &[&[("class", "long")], c.why.attrs(lang)].concat(), &c.why.text);
    });
}

/// Claims without a number, by reason.
fn not_run(papers: &[Read<'_>], lang: Lang, h: &mut Html) {
    let mut reasons: Vec<(&str, &Remark, Vec<&Claim>)> = Vec::new();
    for read in papers {
        for c in read.claims.iter().filter(|c| c.verdict == Verdict::NotModelled) {
            let found = reasons.iter_mut().find(|r| r.0 == c.paper && *r.1 == c.why);
            match found {
                Some(r) => r.2.push(c),
                None => reasons.push((&c.paper, &c.why, vec![c])),
            }
        }
    }
    if reasons.is_empty() {
        return;
    }
    h.leaf("h3", &[], words::NOT_RUN.of(lang));
    h.el("ul", &[("class", "reasons")], |h| {
        for (paper, why, claims) in reasons {
            h.el("li", &[], |h| {
                h.leaf("span", &[("class", "slug")], paper);
                h.text(&format!(" {} × ", claims.len()));
                h.leaf("span", why.attrs(lang), &why.text);
                h.text(" ");
                for c in claims {
                    let to = format!("#{}", c.anchor());
                    h.el("a", &[("href", &to)], |h| h.leaf("code", &[], &c.id));
                    h.text(" ");
                }
            });
        }
    });
}
