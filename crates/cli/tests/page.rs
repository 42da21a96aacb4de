//! The page of `reproduce`, from a quick run: every claim, well formed, the same bytes again, no
//! network; what a changed document makes of it; and in a browser, what a reader does with it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::rc::Rc;
use std::sync::OnceLock;

use serde_json::Value;
use wp_machine::testing::skipped;
use wp_papers::claims::Claims;
use wp_papers::results::Results;
use wp_report::page::{self, Input, Lang, Paper};

const PAPERS: [&str; 2] = ["ext4-fsync", "inode-trim"];

fn writepath(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_writepath")).args(args).output().expect("it was built")
}

/// Results of the two papers whose quick runs are the shortest.
fn results() -> &'static Path {
    static DIR: OnceLock<tempfile::TempDir> = OnceLock::new();
    let dir = DIR.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a folder");
        let out = dir.path().to_string_lossy().into_owned();
        let done = writepath(&["reproduce", "--quick", PAPERS[0], PAPERS[1], "--out", &out]);
        let told = String::from_utf8_lossy(&done.stdout);
        assert!(told.contains("report: ") && told.contains("report.ko.html"), "{done:?}");
        dir
    });
    dir.path()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The one folder of results of a paper.
fn folder(paper: &str) -> PathBuf {
    let parent = results().join(format!("reproduce-{paper}"));
    let mut all = std::fs::read_dir(parent).expect("results").map(|e| e.expect("an entry").path());
    all.next().expect("one result")
}

/// Elements that have no end.
const VOID: [&str; 4] = ["meta", "link", "input", "br"];

/// Walks over the tags of a page: every element ends where it must, ids are there once, and links
/// within the page lead somewhere. Answers how many elements there are.
fn check_form(page: &str) -> usize {
    let (mut open, mut ids, mut links) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let mut count = 0;
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("it begins as HTML does");
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>'), "a bare `>` in: {}", &rest[..at]);
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "before: {}", &rest[..rest.len().min(80)]);
            continue;
        }
        count += 1;
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        let mut parts = tag.split('"');
        while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
            assert!(key.ends_with('='), "an attribute without quotes: <{tag}>");
            match key.trim_start_matches(name).trim() {
                "id=" => assert!(ids.insert(value.to_owned()), "id {value} twice"),
                "href=" if value.starts_with('#') => drop(links.insert(value[1..].to_owned())),
                "src=" => panic!("something to load: <{tag}>"),
                _ => {}
            }
        }
        if matches!(name, "script" | "style") {
            let close = format!("</{name}>");
            rest = &rest[rest.find(&close).expect("it ends") + close.len()..];
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "not closed: {open:?}");
    let missing: Vec<&String> = links.difference(&ids).collect();
    assert!(missing.is_empty(), "links to nothing: {missing:?}");
    count
}

#[test]
fn the_page_of_a_run_is_well_formed_has_every_claim_and_asks_for_nothing() {
    let claims = Claims::fixed();
    for name in ["report.html", "report.ko.html"] {
        let page = read(&results().join(name));
        assert!(check_form(&page) > 1000, "{name}");
        for c in PAPERS.iter().flat_map(|p| claims.of(p)) {
            let place = format!("<tr id=\"claim-{}-{}\"", c.paper, c.id);
            assert_eq!(page.matches(&place).count(), 1, "{name}: {place}");
        }
        for word in ["http://", "https://", "@import", "url(\"", "src="] {
            assert!(!page.contains(word), "{name}: {word}");
        }
        for figure in ["ext4-fig9", "ext4-fig10-extend", "ext4-fig11-alloc", "trim-pages"] {
            assert!(page.contains(&format!("id=\"{figure}\"")), "{name}: {figure}");
        }
        // What is left in English on the other page is what the run printed.
        if name == "report.ko.html" {
            let all = page.split("<html lang=").nth(1).expect("a page").split(" lang=\"en\"");
            let before = all.clone().take(all.count() - 1);
            let other: Vec<&str> = before.filter(|t| !t.ends_with("<pre")).collect();
            let ends = other.iter().map(|t| t.chars().rev().take(200).collect::<String>());
            let ends: Vec<String> = ends.map(|t| t.chars().rev().collect()).collect();
            assert!(ends.is_empty(), "reasons without Korean in papers/reasons.toml: {ends:#?}");
        }
        let command = "<code>writepath reproduce ext4-fsync --seed 1 --quick</code>";
        assert!(page.contains(command), "{name}");
    }
}

#[test]
fn report_makes_the_same_bytes_of_the_same_results_and_refuses_changed_ones() {
    let scratch = tempfile::tempdir().expect("a folder");
    let dirs = PAPERS.map(|p| folder(p).to_string_lossy().into_owned());
    let pages = ["a.html", "b.html"].map(|n| scratch.path().join(n).to_string_lossy().into_owned());
    for page in &pages {
        let done = writepath(&["report", &dirs[0], &dirs[1], "--lang", "ko", "--out", page]);
        assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    }
    assert_eq!(read(pages[0].as_ref()), read(pages[1].as_ref()));
    // That of `reproduce` has a link to its other language, and is the same besides.
    let korean = read(&results().join("report.ko.html"));
    let link = "<a class=\"tool\" href=\"report.html\">영어(English)</a>";
    assert_eq!(korean.matches(link).count(), 1);
    assert_eq!(korean.replace(link, ""), read(pages[0].as_ref()));

    let changed = scratch.path().join("changed");
    std::fs::create_dir(&changed).expect("made");
    for file in ["claims.json", "resolved.toml", "tables.txt", "MANIFEST.json"] {
        let text = read(&folder("inode-trim").join(file)).replace("differs", "match");
        std::fs::write(changed.join(file), text).expect("written");
    }
    let changed = changed.to_string_lossy().into_owned();
    let refused: [(&[&str], &str); 4] = [
        (&["report", &changed], "claims.json: changed after the run"),
        (&["report", "no/such/folder"], "no/such/folder: No such file"),
        (&["report", &dirs[0], "--lang", "fr"], "--lang fr: no such language"),
        (&["report"], "RESULT_DIR"),
    ];
    for (args, what) in refused {
        let done = writepath(args);
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(what), "{args:?}: {stderr}");
    }
}

/// Values of a document, by path.
fn paths(v: &Value, at: &str, out: &mut Vec<String>) {
    let mut go = |key: &str, v: &Value| {
        let path = format!("{at}/{key}");
        paths(v, &path, out);
        out.push(path);
    };
    match v {
        Value::Object(map) => map.iter().for_each(|(k, v)| go(&k.replace('~', "~0"), v)),
        Value::Array(list) => list.iter().enumerate().for_each(|(n, v)| go(&n.to_string(), v)),
        _ => {}
    }
}

#[test]
fn whatever_a_document_holds_the_page_is_well_formed_or_refused() {
    let other = [
        Value::Null,
        Value::from(-1),
        Value::from(u64::MAX),
        Value::from(1e308),
        Value::from("</script><b a=\"' & \u{0}"),
        serde_json::json!([]),
        serde_json::json!({}),
    ];
    let mut made = [0; 2];
    for slug in PAPERS {
        let mut document: Value =
            serde_json::from_str(&read(&folder(slug).join("claims.json"))).expect("JSON");
        // Long, and no part of a figure.
        document["linux_6_18"]["runs"] = serde_json::json!([]);
        let mut all = Vec::new();
        paths(&document, "", &mut all);
        let mut state = 1_u64;
        let mut next = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % n
        };
        for _ in 0..60 {
            let mut changed = document.clone();
            for _ in 0..=next(4) {
                let path = &all[next(all.len())];
                let value = other[next(other.len())].clone();
                changed.pointer_mut(path).map(|v| *v = value).unwrap_or_default();
            }
            let found = match Results::read(slug, &changed.to_string()) {
                Ok(found) => found,
                Err(e) => {
                    assert!(e.key != "." || e.what.contains("missing field"), "{e}");
                    made[0] += 1;
                    continue;
                }
            };
            made[1] += 1;
            let paper = Paper {
                slug: slug.to_owned(),
                results: Rc::new(found),
                text: String::new(),
                resolved: String::new(),
                command: String::new(),
                hash: String::new(),
                digest: String::new(),
                is_quick: true,
            };
            let input = Input { papers: vec![paper], ..Input::default() };
            for lang in Lang::ALL {
                assert!(check_form(&page::page(&input, lang)) > 100);
            }
        }
    }
    assert!(made[0] > 0 && made[1] > 0, "refused and made: {made:?}");
}

/// What the browser found, or that there is none here.
fn in_a_browser(page: &str) -> Option<Value> {
    let scratch = tempfile::tempdir().expect("a folder");
    let inner = page.replace('&', "&amp;").replace('"', "&quot;");
    let outer = include_str!("page.html").replacen("PAGE", &inner, 1);
    let file = scratch.path().join("outer.html");
    std::fs::write(&file, outer).expect("written");
    let profile = format!("--user-data-dir={}", scratch.path().join("profile").display());
    let done = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        .args(["--disable-component-update", "--no-first-run", "--enable-logging=stderr"])
        .args(["--virtual-time-budget=4000", "--dump-dom", &profile])
        .arg(format!("file://{}", file.display()))
        .output();
    let done = match done {
        Ok(done) => done,
        Err(e) => {
            skipped("the page in a browser", &format!("chromium: {e}"));
            return None;
        }
    };
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{stderr}");
    let said: Vec<&str> = stderr.lines().filter(|l| l.contains("CONSOLE")).collect();
    assert!(said.is_empty(), "the console: {said:?}");
    let dom = String::from_utf8_lossy(&done.stdout);
    let found = dom.split_once("<pre id=\"found\">").and_then(|(_, t)| t.split_once("</pre>"));
    let found = found.expect("the browser shows the page").0;
    let text = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Some(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}")))
}

#[test]
fn in_a_browser_the_page_fits_a_phone_and_does_what_its_buttons_say() {
    for name in ["report.html", "report.ko.html"] {
        let Some(found) = in_a_browser(&read(&results().join(name))) else { return };
        let is = |key: &str, value: Value| assert_eq!(found[key], value, "{name}, {key}: {found}");
        is("requests", serde_json::json!([]));
        is("wide", serde_json::json!([]));
        assert!(found["width"].as_u64() <= Some(390), "{name}: {found}");
        is("series", serde_json::json!([true, false, true]));
        is("scales", serde_json::json!(["log", "lin", "log"]));
        let axes = &found["axes"];
        assert!(axes["pictures"].as_u64() > Some(10), "{name}: {axes}");
        for scale in ["lin", "log"] {
            assert!(axes["changed"][scale].as_u64() > Some(0), "{name}, {scale}: {axes}");
        }
        for key in ["misplaced", "lost"] {
            assert_eq!(axes[key], serde_json::json!([]), "{name}, {key}");
        }
        assert_ne!(found["grounds"][0], found["grounds"][1], "{name}: light and dark");
        let tip = found["tip"].as_str().unwrap_or_default();
        assert!(tip.contains(" µs") && tip.lines().count() > 2, "{name}: {tip}");
        let rows = |n: usize| found["rows"][n].as_u64().unwrap_or_default();
        assert!(rows(0) > rows(1) && rows(1) > 0, "{name}: {found}");
        for key in ["only", "rising", "falling"] {
            is(key, Value::Bool(true));
        }
    }
}
