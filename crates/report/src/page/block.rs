//! What a section is made of, and how each of it stands on the page.

use super::claim::Claim;
use super::draw::{draw, marker};
use super::figure::{Figure, Shape};
use super::html::{Html, data_address};
use super::lanes::Lanes;
use super::scale::{Scale, number};
use super::table::{Cell, Table};
use super::words::{self, Lang};

/// A part of a section.
#[expect(clippy::large_enum_variant, reason = "a page has some dozens")]
#[derive(Clone, Debug)]
pub enum Block {
    /// A figure; two of them stand beside each other where there is room.
    Figure(Figure),
    /// A picture of who does what when.
    Lanes(Lanes),
    /// A table.
    Table(Table),
    /// A table that is long, folded.
    Folded(Table),
    /// A remark.
    Note(String),
}

/// Figures and tables, in order; those that have nothing to show are left out.
pub fn draw_all(blocks: &[Block], claims: &[Claim], lang: Lang, h: &mut Html) {
    h.el("div", &[("class", "grid")], |h| {
        for block in blocks {
            match block {
                Block::Figure(f) if f.is_empty() => {}
                Block::Figure(f) => figure(f, claims, lang, h),
                Block::Lanes(l) => lanes(l, h),
                Block::Table(t) | Block::Folded(t) if t.rows.is_empty() => {}
                Block::Table(t) => table(t, claims, lang, h),
                Block::Folded(t) => folded(t, lang, h),
                Block::Note(text) => h.leaf("p", &[("class", "wide note")], text),
            }
            h.line();
        }
    });
}

fn head(number: &str, title: &str, h: &mut Html) {
    h.el("h4", &[], |h| {
        if !number.is_empty() {
            h.leaf("span", &[("class", "no")], number);
            h.text(" ");
        }
        h.text(title);
    });
}

/// Claims whose ids begin so, each as a sign that leads to it.
fn about(prefixes: &[String], claims: &[Claim], lang: Lang, h: &mut Html) {
    // A beginning ends with a point or a stroke; anything else is a whole id.
    let fits =
        |id: &str, p: &String| id == p || (p.ends_with(['.', '_']) && id.starts_with(p.as_str()));
    let is_about = |c: &&Claim| prefixes.iter().any(|p| fits(&c.id, p));
    let found: Vec<&Claim> = claims.iter().filter(is_about).collect();
    if found.is_empty() {
        return;
    }
    h.el("p", &[("class", "about")], |h| {
        h.leaf("span", &[("class", "head")], words::CLAIMS_ABOUT.of(lang));
        for c in found {
            let (to, class) = (format!("#{}", c.anchor()), format!("v v-{}", c.verdict.name()));
            h.text(" ");
            let attrs = [("class", class.as_str()), ("href", &to), ("title", &c.tip(lang))];
            h.el("a", &attrs, |h| {
                h.leaf("b", &[], c.verdict.sign());
                h.text(&format!(" {}", c.id));
            });
        }
    });
}

fn figure(f: &Figure, claims: &[Claim], lang: Lang, h: &mut Html) {
    let can_be_log = f.shape == Shape::Lines
        && f.y.has_switch
        && f.heights().iter().all(|v| *v > 0.0 || f.marks.iter().any(|m| m.value == Some(*v)));
    let first = if can_be_log { f.y.scale } else { Scale::Linear };
    h.el("figure", &[("id", &f.id), ("class", "fig")], |h| {
        h.el("figcaption", &[], |h| head(&f.number, &f.title, h));
        h.el("div", &[("class", "bar-top")], |h| {
            legend(f, lang, h);
            if can_be_log {
                switch(first, lang, h);
            }
        });
        for scale in [Scale::Linear, Scale::Log] {
            if scale == Scale::Log && !can_be_log {
                continue;
            }
            let key = if scale == Scale::Log { "log" } else { "lin" };
            let mut attrs = vec![("class", "plot"), ("data-scale", key)];
            if scale != first {
                attrs.push(("hidden", ""));
            }
            h.el("div", &attrs, |h| draw(f, scale, h));
        }
        h.leaf("p", &[("class", "caption")], &f.caption);
        about(&f.claims, claims, lang, h);
        numbers(f, lang, h);
    });
}

fn legend(f: &Figure, lang: Lang, h: &mut Html) {
    let attrs = [("class", "legend"), ("role", "group"), ("aria-label", words::LEGEND.of(lang))];
    h.el("div", &attrs, |h| {
        for (n, s) in f.series.iter().enumerate() {
            let (place, class) = (n.to_string(), format!("key s{}", s.style % super::draw::STYLES));
            let attrs = [
                ("type", "button"),
                ("class", class.as_str()),
                ("data-s", &place),
                ("aria-pressed", "true"),
            ];
            h.el("button", &attrs, |h| {
                swatch(f, s.style, h);
                h.text(&s.name);
            });
        }
        if f.marks.iter().any(|m| m.value.is_some() || m.band.is_some()) {
            h.el("span", &[("class", "key paper")], |h| {
                h.el("svg", &[("viewBox", "0 0 22 12"), ("aria-hidden", "true")], |h| {
                    let band = [
                        ("class", "band"),
                        ("x", "1"),
                        ("y", "1"),
                        ("width", "20"),
                        ("height", "10"),
                    ];
                    h.shape("rect", &band);
                    h.shape(
                        "line",
                        &[("class", "said"), ("x1", "1"), ("x2", "21"), ("y1", "6"), ("y2", "6")],
                    );
                });
                h.text(f.said_by.of(lang));
            });
        }
    });
}

fn swatch(f: &Figure, style: usize, h: &mut Html) {
    let style = style % super::draw::STYLES;
    h.el(
        "svg",
        &[("viewBox", "0 0 22 12"), ("class", &format!("ser s{style}")), ("aria-hidden", "true")],
        |h| {
            if f.shape == Shape::Lines {
                let dash = super::draw::DASHES[style];
                h.shape("polyline", &[("points", "0,6 22,6"), ("stroke-dasharray", dash)]);
                marker(style, 11.0, 6.0, h);
            } else {
                let place = [("x", "3"), ("y", "0"), ("width", "16"), ("height", "12")];
                h.shape("rect", &[&[("class", "bar")][..], &place[..]].concat());
                let class = format!("hatch h{style}");
                h.shape("rect", &[&[("class", class.as_str())][..], &place[..]].concat());
            }
        },
    );
}

fn switch(first: Scale, lang: Lang, h: &mut Html) {
    h.el("div", &[("class", "switch"), ("role", "group")], |h| {
        for (scale, key, text) in
            [(Scale::Linear, "lin", words::SCALE_LINEAR), (Scale::Log, "log", words::SCALE_LOG)]
        {
            let is_on = if scale == first { "true" } else { "false" };
            let attrs = [("type", "button"), ("data-scale", key), ("aria-pressed", is_on)];
            h.leaf("button", &attrs, text.of(lang));
        }
    });
}

/// The points as a table: places down, series across.
fn numbers(f: &Figure, lang: Lang, h: &mut Html) {
    let mut t = Table::new(&f.id, String::new(), String::new(), &[&f.x.title()]);
    t.heads.extend(f.series.iter().map(|s| s.name.clone()));
    for x in f.places() {
        let mut row = vec![Cell::text(f.x.value(x))];
        for s in &f.series {
            let point = s.points.iter().find(|p| p.x == x);
            let text = point.map_or(String::new(), |p| match p.range {
                Some([a, b]) => format!("{} [{}, {}]", number(p.y), number(a), number(b)),
                None => number(p.y),
            });
            row.push(Cell::number(text));
        }
        t.rows.push(row);
    }
    h.el("details", &[("class", "numbers")], |h| {
        h.el("summary", &[], |h| {
            h.text(words::NUMBERS.of(lang));
            h.text(" ");
            let (address, name) = (data_address("text/csv", &f.csv()), format!("{}.csv", f.id));
            let attrs = [("class", "save"), ("href", address.as_str()), ("download", &name)];
            h.leaf("a", &attrs, words::CSV.of(lang));
        });
        t.draw(h);
    });
}

fn lanes(l: &Lanes, h: &mut Html) {
    h.el("figure", &[("id", &l.id), ("class", "fig wide")], |h| {
        h.el("figcaption", &[], |h| head(&l.number, &l.title, h));
        h.el("div", &[("class", "scroll plot lanes"), ("tabindex", "0")], |h| l.draw(h));
        h.leaf("p", &[("class", "caption")], &l.caption);
    });
}

fn table(t: &Table, claims: &[Claim], lang: Lang, h: &mut Html) {
    let class = if t.is_narrow() { "tab" } else { "wide tab" };
    h.el("section", &[("id", &t.id), ("class", class)], |h| {
        head(&t.number, &t.title, h);
        t.draw(h);
        h.el("p", &[("class", "caption")], |h| {
            h.text(&t.caption);
            h.text(" ");
            t.link(lang, h);
        });
        about(&t.claims, claims, lang, h);
    });
}

fn folded(t: &Table, lang: Lang, h: &mut Html) {
    h.el("details", &[("id", &t.id), ("class", "wide fold")], |h| {
        h.el("summary", &[], |h| {
            h.leaf("span", &[("class", "no")], &t.number);
            h.text(&format!(" {} ({})", t.title, t.rows.len()));
        });
        t.draw(h);
        h.el("p", &[("class", "caption")], |h| {
            h.text(&t.caption);
            h.text(" ");
            t.link(lang, h);
        });
    });
}
