//! `[[claim]]`: what ought to come out, judged by its own band or by that of a paper.

use std::ops;

use serde::Serialize;
use wp_papers::claims::{Claim, Claims, Measured};
use wp_papers::vary::Range;
use wp_report::claim::{Judged, Kind, PaperValue};
use wp_workload::fio::{Diagnostic, Place};

use super::expected_metrics::is_count;
use super::expr::{self, Expr, Wrong};
use super::read::{Fields, real, suggest, wrong};
use super::source::{Item, Value};
use super::sweep::{Part, Sweep};
use super::table::{Row, metric_of, of_point};
use super::{Experiment, metric};

/// Most claims of a file, those that stand for many points counted each.
const CLAIMS_MAX: usize = 10_000;

/// A claim of the file.
#[derive(Clone, Debug)]
pub struct Said {
    /// What is claimed: band, unit, words.
    pub claim: Claim,
    /// Is it one of a paper?
    pub of_paper: bool,
    /// What is compared.
    pub expr: Expr,
    /// The text of that.
    pub text: String,
    /// Where it stands.
    pub at: Place,
    /// Is it judged by its interval, too?
    pub interval: bool,
    /// What somebody would say who has no model.
    pub null: Option<Compared>,
    /// The points that it is about, where it is said for many.
    fixed: Part,
}

/// An expression with its text and place.
#[derive(Clone, Debug)]
pub struct Compared {
    /// What is reckoned.
    pub expr: Expr,
    /// The text of that.
    pub text: String,
    /// Where it stands.
    pub at: Place,
}

impl Said {
    /// The points that it is about, where it is said for many.
    pub fn fixed(&self) -> &Part {
        &self.fixed
    }
}

/// Reads all claims. `name`: of the experiment.
pub fn read(
    root: &Fields<'_>,
    name: &str,
    sweep: &Sweep,
    found: &mut Vec<Diagnostic>,
) -> Vec<Said> {
    let papers = Claims::fixed();
    let mut all: Vec<Said> = Vec::new();
    for item in root.list("claim", found).unwrap_or_default() {
        let Value::Table(table) = &item.value else {
            let what = format!("a claim is a table, not {}", item.value.kind());
            wrong(found, &item.at, what, "write `[[claim]]`");
            continue;
        };
        let fields = Fields::new("claim", (table, &item.at), &[], found);
        for said in one(&fields, name, sweep, &papers, found) {
            let is_same =
                |s: &&Said| s.claim.id == said.claim.id && s.claim.paper == said.claim.paper;
            if all.iter().any(|s| is_same(&s)) {
                let what = format!("claim `{}` is given twice", said.claim.id);
                wrong(found, &fields.place(if said.of_paper { "claim" } else { "id" }), what, "");
                break;
            }
            if all.len() >= CLAIMS_MAX {
                wrong(found, &item.at, format!("more than {CLAIMS_MAX} claims"), "");
                return all;
            }
            all.push(said);
        }
    }
    all
}

/// The expression of a claim. `None`: errors were found.
fn compared(fields: &Fields<'_>, found: &mut Vec<Diagnostic>) -> Option<Compared> {
    if fields.item("expr").is_none() {
        let help = "as in `expr = \"fsync_ns[3.4] / fsync_ns[3.8]\"`";
        wrong(found, &fields.at, "a claim without `expr`", help);
    }
    let text = fields.text("expr", found)?;
    parsed(text, fields.place("expr"), found)
}

fn parsed(text: &str, at: Place, found: &mut Vec<Diagnostic>) -> Option<Compared> {
    match expr::parse(text) {
        Ok(expr) => Some(Compared { expr, text: text.to_owned(), at }),
        Err(e) => {
            tell(&e, text, &at, found);
            None
        }
    }
}

/// The null predictor of a claim: a number, or an expression. `None`: there is none.
fn null(fields: &Fields<'_>, found: &mut Vec<Diagnostic>) -> Option<Compared> {
    let item = fields.item("null")?;
    match (&item.value, real(item)) {
        (Value::Text(text), _) => parsed(text, item.at.clone(), found),
        (value, Some(_)) => parsed(&value.to_toml(), item.at.clone(), found),
        (other, None) => {
            let what = format!("`claim.null` takes a number or a string, not {}", other.kind());
            let help = "as in `null = \"set.workload.n / 10\"`";
            wrong(found, &item.at, what, help);
            None
        }
    }
}

fn one(
    fields: &Fields<'_>,
    name: &str,
    sweep: &Sweep,
    papers: &Claims,
    found: &mut Vec<Diagnostic>,
) -> Vec<Said> {
    let before = found.len();
    let Some(what_is) = compared(fields, found) else { return Vec::new() };
    let null = null(fields, found);
    let interval = fields.truth("interval", found).unwrap_or(false);
    let (of_paper, own) = (fields.text("claim", found), fields.text("id", found));
    let about = fields.text("about", found).unwrap_or_default();
    fields.text("source", found);
    let band = band(fields, &what_is.expr, of_paper.is_some(), found);
    let (template, key) = match (of_paper, own) {
        (Some(claim), None) => (claim, "claim"),
        (None, Some(id)) => (id, "id"),
        _ => {
            let help =
                "use `id` for a claim of your own, `claim = \"PAPER/ID\"` for a claim of a paper";
            wrong(found, &fields.at, "a claim has either an `id` or a `claim`", help);
            return Vec::new();
        }
    };
    let what = if about.is_empty() { &what_is.text } else { about };
    let claim_of = |id: String| match of_paper {
        Some(_) => of_papers(papers, &id),
        None => Ok(Claim {
            paper: name.to_owned(),
            id,
            what: what.to_owned(),
            paper_value: PaperValue::Word(String::new()),
            band: band.unwrap_or([1.0, 1.0]),
            unit: None,
            kind: Kind::Prediction,
            null: None,
            rule: None,
        }),
    };
    let said = expand(template, sweep).and_then(|many| {
        let one = |(id, fixed): (String, Part)| {
            let Compared { expr, text, at } = what_is.clone();
            let (claim, of_paper, null) = (claim_of(id)?, of_paper.is_some(), null.clone());
            Ok(Said { claim, of_paper, expr, text, at, interval, null, fixed })
        };
        many.into_iter().map(one).collect::<Result<Vec<Said>, (String, String)>>()
    });
    match said {
        Ok(said) if found.len() == before => said,
        Ok(_) => Vec::new(),
        Err((what, help)) => {
            wrong(found, &fields.place(key), what, help);
            Vec::new()
        }
    }
}

/// Lowest and highest value of a claim of the file's own.
fn band(
    fields: &Fields<'_>,
    expr: &Expr,
    of_paper: bool,
    found: &mut Vec<Diagnostic>,
) -> Option<[f64; 2]> {
    let keys = ["between", "equals", "at_least", "at_most"];
    let given: Vec<&str> = keys.into_iter().filter(|k| fields.item(k).is_some()).collect();
    if of_paper {
        if let Some(key) = given.first() {
            let help = "leave it out: the band is that of papers/claims.toml";
            wrong(found, &fields.place(key), format!("a paper's claim with `{key}`"), help);
        }
        return None;
    }
    let edges = match given[..] {
        ["between"] => pair(fields.item("between")?, found)?,
        ["equals"] => [fields.real("equals", found)?; 2],
        ["at_least"] => [fields.real("at_least", found)?, f64::MAX],
        ["at_least", "at_most"] => {
            [fields.real("at_least", found)?, fields.real("at_most", found)?]
        }
        [] if expr.is_truth() => [1.0, 1.0],
        [] => {
            let help = "write `between = [LOW, HIGH]`, `equals`, `at_least` or `at_most`; or \
                compare: `a > b`";
            wrong(found, &fields.at, "a claim without an accepted value", help);
            return None;
        }
        [one] => [f64::MIN, fields.real(one, found)?],
        [first, .., second] => {
            let what = format!("both `{first}` and `{second}`");
            wrong(found, &fields.place(second), what, "use one of them");
            return None;
        }
    };
    if edges[0] > edges[1] {
        let at = fields.place(given[0]);
        wrong(found, &at, "the lowest value is above the highest", "");
        return None;
    }
    Some(edges)
}

fn pair(item: &Item, found: &mut Vec<Diagnostic>) -> Option<[f64; 2]> {
    let numbers = match &item.value {
        Value::List(items) => items.iter().map(real).collect::<Option<Vec<f64>>>(),
        _ => None,
    };
    let Some([low, high]) = numbers.as_deref().and_then(|n| <[f64; 2]>::try_from(n).ok()) else {
        wrong(found, &item.at, "`between` takes two numbers", "as in `between = [1.18, 1.42]`");
        return None;
    };
    Some([low, high])
}

/// The claims that an id with `{key}` in it stands for, each with its points.
fn expand(template: &str, sweep: &Sweep) -> Result<Vec<(String, Part)>, (String, String)> {
    let mut all = vec![(String::new(), Part::new())];
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((key, behind)) = after.split_once('}') else {
            return Err(("a `{` that does not close".to_owned(), "write {KEY}".to_owned()));
        };
        let Some((axis, column)) = sweep.axis_of(key) else {
            let what = format!("`{key}` is not swept");
            return Err((what, suggest("swept are", &sweep.columns(), key)));
        };
        let mut labels: Vec<&str> = Vec::new();
        for choice in &sweep.axes[axis].choices {
            if !labels.contains(&choice.labels[column].as_str()) {
                labels.push(&choice.labels[column]);
            }
        }
        let mut next = Vec::new();
        for (id, part) in all {
            for label in &labels {
                let mut part = part.clone();
                part.push(sweep.pair(key, label)?);
                next.push((format!("{id}{before}{label}"), part));
                if next.len() > CLAIMS_MAX {
                    return Err((format!("more than {CLAIMS_MAX} claims"), String::new()));
                }
            }
        }
        all = next;
        rest = behind;
    }
    all.iter_mut().for_each(|(id, _)| id.push_str(rest));
    Ok(all)
}

/// The claim of `PAPER/ID`, or of an id that one paper has.
fn of_papers(papers: &Claims, name: &str) -> Result<Claim, (String, String)> {
    let hits: Vec<&Claim> = match name.split_once('/') {
        Some((paper, id)) => papers.iter().filter(|c| c.paper == paper && c.id == id).collect(),
        None => papers.iter().filter(|c| c.id == name).collect(),
    };
    match hits[..] {
        [one] => Ok(one.clone()),
        [] => {
            let names: Vec<String> =
                papers.iter().map(|c| format!("{}/{}", c.paper, c.id)).collect();
            let of = |n: &&String| name.split_once('/').is_none_or(|(p, _)| n.starts_with(p));
            let near: Vec<&str> = names.iter().filter(of).map(String::as_str).collect();
            let best = wp_workload::fio::nearest_of(near.iter().copied(), name);
            let best = best.map_or(String::new(), |n| format!("did you mean `{n}`? "));
            let help = format!("{best}ids are in papers/claims.toml, written PAPER/ID");
            Err((format!("no paper has a claim `{name}`"), help))
        }
        _ => {
            let all: Vec<String> = hits.iter().map(|c| format!("{}/{}", c.paper, c.id)).collect();
            Err((
                format!("several papers have a claim `{name}`"),
                format!("write {}", all.join(" or ")),
            ))
        }
    }
}

/// Says what is wrong with an expression, at its place within the string if that can be told.
pub fn tell(e: &Wrong, text: &str, at: &Place, found: &mut Vec<Diagnostic>) {
    found.push(Diagnostic::error(&within(text, at, &e.at), e.message.clone(), e.help.clone()));
}

/// A range of a string, as a place in its line: exact unless the string has escapes or lines.
fn within(text: &str, at: &Place, range: &ops::Range<usize>) -> Place {
    let line: Vec<char> = at.text.chars().collect();
    let start = at.column as usize;
    let chars = text.chars().count();
    let stands: Option<String> = line.get(start..start + chars).map(|c| c.iter().collect());
    if stands.as_deref() != Some(text) {
        return at.clone();
    }
    let before = text.get(..range.start).map_or(0, |t| t.chars().count()) as u32;
    let width = text.get(range.clone()).map_or(1, |t| t.chars().count()) as u32;
    Place { column: at.column + 1 + before, width: width.max(1), ..at.clone() }
}

/// What is known of a name at a point before it is run: a setting's number, nothing of a metric.
/// Errors: there is none of this name.
pub type ExpectedMetrics<'a> = dyn Fn(usize, &str) -> Result<Option<f64>, String> + 'a;

/// Checks a claim's points, and its metrics against those that a point is known to have.
pub fn check(said: &Said, sweep: &Sweep, known: &ExpectedMetrics<'_>, found: &mut Vec<Diagnostic>) {
    // Numbers of no meaning, and not all the same, so that differences are divided by.
    let number = |point: usize, name: &str| {
        let sum: usize = name.bytes().map(usize::from).sum();
        1.0 + ((sum + point) * 7919 % 9973) as f64
    };
    let metrics =
        |point: usize, name: &str| Ok(known(point, name)?.unwrap_or_else(|| number(point, name)));
    let null = said.null.as_ref().map(|n| (&n.expr, &n.text, &n.at));
    for (expr, text, at) in [(&said.expr, &said.text, &said.at)].into_iter().chain(null) {
        match expr::eval(expr, sweep, &said.fixed, &metrics) {
            Ok(field) if field.number().is_none() => {
                let n = field.0.len();
                let what = format!("the claim is about {n} numbers");
                let help = "name points in brackets, or reduce them with min, max, mean, geomean, \
                    sum, count, spread or grows";
                found.push(Diagnostic::error(at, what, help));
            }
            Ok(_) => {}
            Err(e) if e.of_numbers => {}
            Err(e) => tell(&e, text, at, found),
        }
    }
}

/// A claim, judged.
#[derive(Clone, Debug, Serialize)]
pub struct Answered {
    /// As claims of papers are.
    #[serde(flatten)]
    pub judged: Judged,
    /// What was compared.
    pub expr: String,
    /// Lowest and highest value of single seeds; the same number where all agree.
    pub seeds: Option<[f64; 2]>,
}

/// The value of an expression of a claim. Errors: why there is none.
fn reckon(
    said: &Said,
    expr: &Expr,
    e: &Experiment,
    of_run: &dyn Fn(usize, &str) -> Result<f64, String>,
) -> Result<f64, String> {
    let number = |point: usize, name: &str| match name.strip_prefix(expr::SETTING) {
        Some(key) => e.setup(point)?.number(key),
        None => of_run(point, name),
    };
    let field = expr::eval(expr, &e.sweep, &said.fixed, &number).map_err(|wrong| wrong.message)?;
    field.number().ok_or_else(|| format!("{} numbers instead of one", field.0.len()))
}

/// A metric of a point, as the mean over its seeds.
fn mean(e: &Experiment, rows: &[Row], point: usize, name: &str) -> Result<f64, String> {
    let of = of_point(rows, point);
    let summary = metric_of(&of, name).filter(|_| is_count(name, rows));
    summary.map(|s| s.mean).ok_or_else(|| missing(e, &of, point, name))
}

/// Lowest and highest value over all variations. Errors: one under which there is none.
fn range(said: &Said, e: &Experiment, rows: &[Row], ours: f64) -> Result<Range, String> {
    let mut range = Range::new(ours);
    let names = e.varied.iter().flat_map(|v| &v.names);
    for (variation, name) in names.enumerate() {
        let at =
            |point: usize, metric: &str| mean(e, rows, e.point_under(variation, point), metric);
        let other = reckon(said, &said.expr, e, &at);
        range.widen(other.map_err(|why| format!("with {name}: {why}"))?);
    }
    Ok(range)
}

/// What is found of a claim. Errors: why there is no number.
fn measured(said: &Said, e: &Experiment, rows: &[Row]) -> Result<Measured, String> {
    let at = |point: usize, name: &str| mean(e, rows, point, name);
    let ours = reckon(said, &said.expr, e, &at)?;
    let mut m = match said.interval {
        true => range(said, e, rows, ours)?.measured(),
        false => Measured::value(ours),
    };
    if let Some(null) = &said.null {
        m = m.null(reckon(said, &null.expr, e, &at).map_err(|why| format!("null: {why}"))?);
    }
    Ok(m.why(outside(ours, &said.claim)))
}

/// Judges a claim by all runs. What cannot be reckoned is `not-modelled`, with the reason.
pub fn judge(said: &Said, e: &Experiment, rows: &[Row]) -> Answered {
    let single = |seed: u64| {
        let at = |point: usize, name: &str| {
            let of = of_point(rows, point);
            let row = of.into_iter().find(|r| r.seed == seed);
            row.and_then(|r| metric::value(&r.outcome.metrics, name)).ok_or_else(String::new)
        };
        reckon(said, &said.expr, e, &at).ok()
    };
    let all: Option<Vec<f64>> = e.seeds().map(single).collect();
    let edges = all.filter(|a| !a.is_empty()).map(|a| {
        let wider = |[low, high]: [f64; 2], x: &f64| [low.min(*x), high.max(*x)];
        a.iter().fold([f64::INFINITY, f64::NEG_INFINITY], wider)
    });
    let measured = measured(said, e, rows).unwrap_or_else(Measured::not_modelled);
    let judged = measured.judge(&said.claim).expect("a finite number, or a reason");
    Answered { judged, expr: said.text.clone(), seeds: edges }
}

/// Why a number does not do, where one edge of the band is none; nothing if it does.
fn outside(x: f64, claim: &Claim) -> String {
    match claim.band {
        [low, f64::MAX] if x < low => format!("{x} is below {low}"),
        [f64::MIN, high] if x > high => format!("{x} is above {high}"),
        _ => String::new(),
    }
}

/// Why a metric has no value.
fn missing(e: &Experiment, rows: &[&Row], point: usize, name: &str) -> String {
    let place = e.describe_point(point);
    let Some(row) = rows.first() else { return format!("{place} was not run") };
    let names: Vec<&str> = row.outcome.metrics.keys().map(String::as_str).collect();
    let near = wp_workload::fio::nearest_of(names.iter().copied(), name);
    let near = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
    format!("{place} has no metric `{name}`{near}")
}
