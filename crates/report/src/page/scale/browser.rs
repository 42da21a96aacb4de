//! `axis.js` beside these laws: a browser makes the axes that the picture was drawn with.

use std::process::Command;

use serde::Deserialize;
use serde_json::{Value, json};
use wp_machine::testing::skipped;

use super::{Scale, nice, tick_text, ticks};
use crate::document;

const PAGE: &str = r#"<!DOCTYPE html><meta charset="utf-8"><pre id="found"></pre><script>
AXIS
const cases = CASES;
const found = cases.map(([scale, low, high, zero]) => {
  const range = axis.nice(scale, [low, high], zero);
  const marks = axis.ticks(scale, range);
  return { range, marks, texts: marks.map(axis.text) };
});
document.getElementById("found").textContent = JSON.stringify(found);
</script>"#;

/// Ranges of all sizes: what ends at round numbers, what does not, below 0, of one number.
fn cases() -> Vec<(Scale, [f64; 2], bool)> {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as f64 / f64::from(1_u32 << 31)
    };
    let mut all = Vec::new();
    for n in 0..3000 {
        let a = 10f64.powf(next() * 14.0 - 5.0);
        let b = a * if n % 3 == 0 { 10f64.powf(next() * 9.0) } else { 1.0 + next() };
        let is_round = n % 5 == 0;
        let [a, b] = [a, b].map(|v| if is_round { format!("{v:.0e}").parse() } else { Ok(v) });
        let (Ok(a), Ok(b)) = (a, b) else { continue };
        all.push((Scale::Log, [a, b], false));
        all.push((Scale::Linear, [if n % 7 == 0 { -a } else { a }, b], n % 2 == 0));
    }
    all.extend([(Scale::Log, [3.0, 3.0], false), (Scale::Linear, [0.0, 0.0], true)]);
    all
}

/// An axis as the browser makes it.
#[derive(Deserialize)]
struct Found {
    texts: Vec<String>,
    range: [f64; 2],
    marks: Vec<f64>,
}

#[test]
fn a_browser_makes_the_axes_that_pictures_are_drawn_with() {
    let cases = cases();
    let key = |scale| if scale == Scale::Log { "log" } else { "lin" };
    let asked: Vec<Value> =
        cases.iter().map(|(s, [a, b], zero)| json!([key(*s), a, b, zero])).collect();
    let asked = Value::from(asked).to_string();
    let page = PAGE.replacen("AXIS", include_str!("../axis.js"), 1).replacen("CASES", &asked, 1);
    let scratch = tempfile::tempdir().expect("a folder");
    let file = scratch.path().join("axis.html");
    std::fs::write(&file, page).expect("written");
    let done = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        .args(["--no-first-run", "--dump-dom"])
        .arg(format!("--user-data-dir={}", scratch.path().join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .output();
    let done = match done {
        Ok(done) => done,
        Err(e) => return skipped("axes in a browser", &format!("chromium: {e}")),
    };
    let dom = String::from_utf8_lossy(&done.stdout);
    let found = dom.split_once("<pre id=\"found\">").and_then(|(_, t)| t.split_once("</pre>"));
    let found: Vec<Found> = document::read(found.expect("an answer").0).expect("axes");
    assert_eq!(found.len(), cases.len());
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    for (found, (scale, ends, zero)) in found.iter().zip(cases) {
        let range = nice(scale, ends, zero);
        let marks = ticks(scale, range);
        let texts: Vec<String> = marks.iter().map(|t| tick_text(*t)).collect();
        assert_eq!(found.texts, texts, "{scale:?} {ends:?} {zero}");
        let ours = range.iter().chain(&marks);
        for (a, b) in ours.zip(found.range.iter().chain(&found.marks)) {
            assert!(near(*a, *b), "{scale:?} {ends:?} {zero}: {a} {b}");
        }
    }
}
