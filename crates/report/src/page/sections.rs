//! The page from its head to its foot.

use serde_json::{Value, json};

use super::block::{Block, draw_all};
use super::claim::{self, Claim};
use super::html::Html;
use super::source::Source;
use super::words::{self, Lang, Text};
use super::{Input, Paper, Read, Varied, run, summary};
use crate::claim::Verdict;

const CSS: &str = include_str!("page.css");
const JS: &str = concat!(include_str!("axis.js"), include_str!("page.js"));

/// All of it.
pub fn whole(input: &Input, papers: &[Read<'_>], lang: Lang) -> String {
    let mut h = Html::new();
    h.doctype();
    h.el("html", &[("lang", lang.code())], |h| {
        h.el("head", &[], |h| {
            h.void("meta", &[("charset", "utf-8")]);
            let view = "width=device-width, initial-scale=1";
            h.void("meta", &[("name", "viewport"), ("content", view)]);
            h.void("meta", &[("name", "color-scheme"), ("content", "light dark")]);
            // Whatever a document holds, the page fetches nothing.
            let policy = "default-src 'none'; style-src 'unsafe-inline'; \
                          script-src 'unsafe-inline'; img-src data:";
            h.void("meta", &[("http-equiv", "Content-Security-Policy"), ("content", policy)]);
            h.void("link", &[("rel", "icon"), ("href", "data:,")]);
            h.leaf("title", &[], words::TITLE.of(lang));
            h.style(CSS);
        });
        h.line();
        h.el("body", &[], |h| {
            patterns(h);
            top(input, papers, lang, h);
            let mut all = Vec::new();
            h.el("main", &[], |h| {
                if !papers.is_empty() {
                    summary::draw(papers, lang, h);
                }
                for read in papers {
                    paper(read, &input.reasons, lang, &mut all, h);
                }
                for (n, r) in input.runs.iter().enumerate() {
                    one_run(r, n, &input.reasons, lang, &mut all, h);
                }
            });
            foot(input, lang, h);
            h.el("div", &[("id", "tip"), ("role", "status"), ("hidden", "")], |_| {});
            h.line();
            h.data("data", &data(papers, &all, lang));
            h.script(JS);
        });
    });
    h.line();
    h.finish()
}

/// Hatchings, which tell bars apart without colour.
fn patterns(h: &mut Html) {
    let lines = [
        "",
        "M0 0l6 6M-1 5l2 2M5 -1l2 2",
        "M6 0l-6 6M-1 1l2 -2M5 7l2 -2",
        "M0 3h6",
        "M3 0v6",
        "M0 0l6 6M6 0l-6 6",
        "M3 3h.1",
        "M0 1.5h6M0 4.5h6",
    ];
    let attrs = [("class", "defs"), ("width", "0"), ("height", "0"), ("aria-hidden", "true")];
    h.el("svg", &attrs, |h| {
        h.el("defs", &[], |h| {
            for (n, d) in lines.iter().enumerate() {
                let id = format!("hatch{n}");
                let attrs = [
                    ("id", id.as_str()),
                    ("width", "6"),
                    ("height", "6"),
                    ("patternUnits", "userSpaceOnUse"),
                ];
                h.el("pattern", &attrs, |h| h.shape("path", &[("d", d)]));
            }
        });
    });
    h.line();
}

fn top(input: &Input, papers: &[Read<'_>], lang: Lang, h: &mut Html) {
    h.el("header", &[("class", "top")], |h| {
        h.el("div", &[("class", "tools")], |h| {
            h.leaf("span", &[("class", "mark-name")], "Writepath");
            h.el("span", &[("class", "grow")], |_| {});
            if let Some(other) = &input.other {
                h.leaf("a", &[("class", "tool"), ("href", other)], words::TO_OTHER.of(lang));
            }
            let attrs = [("type", "button"), ("id", "theme"), ("class", "tool js")];
            h.leaf("button", &attrs, words::THEME.of(lang));
        });
        let headline = if papers.is_empty() { words::HEADLINE_RUNS } else { words::HEADLINE };
        h.leaf("h1", &[], headline.of(lang));
        let lede = if papers.is_empty() {
            words::LEDE_RUNS.of(lang).to_owned()
        } else {
            words::LEDE.with(lang, &[&papers.len().to_string()])
        };
        h.leaf("p", &[("class", "lede")], &lede);
        h.el("nav", &[("aria-label", words::CONTENTS.of(lang))], |h| {
            if !papers.is_empty() {
                for (to, text) in [
                    ("#verdicts", words::SUMMARY),
                    ("#reading", words::READING),
                    ("#differences", words::DIFFERENCES),
                ] {
                    h.leaf("a", &[("href", to)], text.of(lang));
                }
            }
            for read in papers {
                let to = format!("#{}", read.paper.slug);
                h.leaf("a", &[("href", &to), ("class", "slug")], &read.paper.slug);
            }
            for (n, r) in input.runs.iter().enumerate() {
                let to = format!("#run-{n}");
                h.leaf("a", &[("href", &to), ("class", "slug")], &r.name);
            }
        });
    });
    h.line();
}

/// How to make it again.
fn provenance(items: &[(Text, &str)], resolved: &str, lang: Lang, h: &mut Html) {
    h.el("dl", &[("class", "made")], |h| {
        for (name, value) in items.iter().filter(|(_, v)| !v.is_empty()) {
            h.el("div", &[], |h| {
                h.leaf("dt", &[], name.of(lang));
                h.el("dd", &[], |h| h.leaf("code", &[], value));
            });
        }
    });
    h.el("details", &[("class", "fold")], |h| {
        h.leaf("summary", &[], words::RESOLVED.of(lang));
        h.leaf("pre", &[], resolved);
    });
}

fn paper(read: &Read<'_>, phrases: &[[String; 2]], lang: Lang, all: &mut Vec<Block>, h: &mut Html) {
    let Paper { slug, results, text, resolved, command, hash, digest, is_quick } = read.paper;
    let about = results.about();
    h.el("section", &[("id", slug), ("class", "paper")], |h| {
        h.el("h2", &[], |h| {
            h.leaf("span", &[("class", "slug")], slug);
            h.text(" ");
            h.text(about.title.of(lang));
        });
        h.leaf("p", &[("class", "says")], about.says.of(lang));
        h.leaf("p", &[("class", "setup")], about.setup.of(lang));
        if *is_quick {
            h.leaf("p", &[("class", "quick")], words::QUICK.of(lang));
        }
        let result = format!("reproduce-{slug}/{hash}");
        let made =
            [(words::COMMAND, command.as_str()), (words::HASH, &result), (words::DIGEST, digest)];
        provenance(&made, resolved, lang, h);
        summary::bar(&read.claims, lang, h);
        let blocks = results.blocks(&Source { claims: &read.claims, phrases, lang });
        h.leaf("h3", &[], words::SHOWN_BELOW.of(lang));
        draw_all(&blocks, &read.claims, lang, h);
        all.extend(blocks);
        claims(read, lang, h);
        varied(results.varied(), lang, h);
        h.el("details", &[("class", "fold printed")], |h| {
            h.leaf("summary", &[], words::PRINTED.of(lang));
            h.leaf("pre", &[("lang", "en")], text);
        });
    });
    h.line();
}

/// Inputs, and apart from them predictions.
fn claims(read: &Read<'_>, lang: Lang, h: &mut Html) {
    let (inputs, predictions): (Vec<&Claim>, Vec<&Claim>) =
        read.claims.iter().partition(|c| c.is_input);
    h.leaf("h3", &[], words::INPUTS_OF.of(lang));
    if inputs.is_empty() {
        h.leaf("p", &[], words::NO_INPUTS.of(lang));
    } else {
        h.leaf("p", &[], words::INPUTS_ARE.of(lang));
        claim::table(&inputs, lang, h);
    }
    h.leaf("h3", &[], words::CLAIMS_OF.of(lang));
    h.el("div", &[("class", "claimbox")], |h| {
        let (shown, sort) = (words::SHOWN.of(lang), words::SORT.of(lang));
        let attrs = [
            ("class", "filter js"),
            ("role", "group"),
            ("aria-label", words::FILTER.of(lang)),
            ("data-shown", shown),
            ("data-sort", sort),
        ];
        h.el("div", &attrs, |h| {
            let button = |key: &str, on: &str, h: &mut Html, inside: &dyn Fn(&mut Html)| {
                let attrs = [("type", "button"), ("data-v", key), ("aria-pressed", on)];
                h.el("button", &attrs, inside);
            };
            button("", "true", h, &|h| h.text(words::ALL.of(lang)));
            for v in Verdict::ALL {
                let n = predictions.iter().filter(|c| c.verdict == v).count();
                if n > 0 {
                    button(v.name(), "false", h, &|h| {
                        v.chip(lang, h);
                        h.text(&format!(" {n}"));
                    });
                }
            }
            let text = words::SEARCH.of(lang);
            let attrs = [("type", "search"), ("placeholder", text), ("aria-label", text)];
            h.void("input", &attrs);
            h.leaf("span", &[("class", "count"), ("aria-live", "polite")], "");
        });
        claim::table(&predictions, lang, h);
    });
}

/// How many variations are behind the intervals.
fn varied(Varied { all, impossible }: Varied, lang: Lang, h: &mut Html) {
    if all > 0 {
        let text = words::VARIED.with(lang, &[&all.to_string(), &impossible.to_string()]);
        h.leaf("p", &[("class", "note")], &text);
    }
}

fn one_run(
    r: &super::Run,
    n: usize,
    phrases: &[[String; 2]],
    lang: Lang,
    all: &mut Vec<Block>,
    h: &mut Html,
) {
    h.el("section", &[("id", &format!("run-{n}")), ("class", "paper")], |h| {
        h.el("h2", &[], |h| {
            h.leaf("span", &[("class", "slug")], words::RUN.of(lang));
            h.text(" ");
            h.text(&r.name);
        });
        provenance(&[(words::HASH, &format!("{}/{}", r.name, r.hash))], &r.resolved, lang, h);
        let blocks = run::blocks(r, n, phrases, lang);
        draw_all(&blocks, &[], lang, h);
        all.extend(blocks);
    });
    h.line();
}

fn foot(input: &Input, lang: Lang, h: &mut Html) {
    h.el("footer", &[], |h| {
        h.leaf("p", &[], &words::FOOTER.with(lang, &[&input.version]));
        let attrs = [("type", "button"), ("id", "json"), ("class", "tool js")];
        h.leaf("button", &attrs, words::JSON.of(lang));
    });
    h.line();
}

/// What the page shows, for programs.
fn data(papers: &[Read<'_>], blocks: &[Block], lang: Lang) -> Value {
    let figures: Vec<Value> = blocks
        .iter()
        .filter_map(|b| match b {
            Block::Figure(f) if !f.is_empty() => Some(f.json()),
            _ => None,
        })
        .collect();
    let papers: Vec<Value> = papers
        .iter()
        .map(|r| {
            json!({
                "slug": r.paper.slug, "command": r.paper.command, "hash": r.paper.hash,
                "sha256": r.paper.digest, "claims": r.paper.results.claims(),
            })
        })
        .collect();
    json!({
        "schema": "writepath.page/1", "lang": lang.code(), "papers": papers, "figures": figures,
    })
}
