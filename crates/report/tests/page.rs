//! The page holds every claim, in both languages, whatever else its documents lack.

use std::rc::Rc;

use serde_json::json;
use wp_papers::claims::{Claims, Measured};
use wp_report::claim::Judged;
use wp_report::page::{
    About, Block, Input, Lang, Paper, Reproduced, Rule, Run, Source, Varied, page, words,
};

const PAPERS: [&str; 5] =
    ["ext4-fsync", "f2fs-oprw", "direct-io", "inode-trim", "journal-conflict"];

/// Claims of a paper without figures.
#[derive(Debug)]
struct Claimed(Vec<Judged>);

impl Reproduced for Claimed {
    fn about(&self) -> About {
        let (title, says, setup) = (words::TRIM_TITLE, words::TRIM_SAYS, words::TRIM_SETUP);
        About { title, says, setup }
    }

    fn claims(&self) -> &[Judged] {
        &self.0
    }

    fn varied(&self) -> Varied {
        Varied { all: 3, impossible: 1 }
    }

    fn blocks(&self, _: &Source<'_>) -> Vec<Block> {
        Vec::new()
    }
}

/// The claims of a paper as judged by a run that found the middle of each band.
fn judged(slug: &str) -> Vec<Judged> {
    let middle = |band: [f64; 2]| (band[0] + band[1]) / 2.0;
    let claims = Claims::fixed();
    let all = claims.of(slug).map(|c| {
        Measured::value(middle(c.band)).why("<b>why & \"how\"").judge(c).expect("a number")
    });
    all.collect()
}

/// All papers with these claims, and nothing else.
fn input() -> Input {
    let claims = Claims::fixed();
    let paper = |slug: &str| Paper {
        slug: slug.to_owned(),
        results: Rc::new(Claimed(judged(slug))),
        text: "tables </pre>".to_owned(),
        resolved: format!("paper = \"{slug}\"\n"),
        command: format!("writepath reproduce {slug} --seed 1"),
        hash: "0123456789ab".to_owned(),
        digest: "f".repeat(64),
        is_quick: false,
    };
    let rules = claims.iter().map(|c| Rule {
        paper: c.paper.clone(),
        id: c.id.clone(),
        rule: c.rule.clone().unwrap_or_default(),
        null: c.null.clone().unwrap_or_default(),
        needs: None,
    });
    Input {
        papers: PAPERS.map(paper).into(),
        rules: rules.collect(),
        reasons: vec![["at {0} KiB".to_owned(), "{0} KiB에서".to_owned()]],
        version: "1".to_owned(),
        ..Input::default()
    }
}

#[test]
fn every_claim_stands_on_the_page_with_its_rule_and_has_a_korean_sentence() {
    let input = input();
    let claims = Claims::fixed();
    let pages = Lang::ALL.map(|lang| page(&input, lang));
    for c in claims.iter() {
        for page in &pages {
            let place = format!("<tr id=\"claim-{}-{}\"", c.paper, c.id);
            assert_eq!(page.matches(&place).count(), 1, "{place}");
        }
        let english = c.what.replace('<', "&lt;").replace('>', "&gt;");
        assert!(pages[0].contains(&format!("<span>{english}</span>")), "{}", c.what);
        // The data for programs, at the end, has documents as they are.
        let shown = pages[1].split("<script type=").next().unwrap_or_default();
        assert!(!shown.contains(&english), "no Korean for: {}", c.what);
        if let Some(rule) = &c.rule {
            assert!(pages[0].contains(&rule.replace('>', "&gt;")), "{rule}");
        }
    }
    assert!(claims.iter().count() > 150);
    for slug in PAPERS {
        assert!(pages[0].contains(&format!("<code>writepath reproduce {slug} --seed 1</code>")));
    }
    assert_eq!(pages[0], page(&input, Lang::En), "the same bytes again");
}

#[test]
fn a_run_is_shown_as_its_summary_and_points() {
    let rows = [["ext4", "1", "100"], ["ext4", "2", "180"], ["f2fs", "1", "90"]];
    let run = Run {
        name: "sweep".to_owned(),
        hash: "ab".to_owned(),
        resolved: String::new(),
        summary: json!({ "iops": { "mean": 1234.5 }, "</script>": "<&>" }),
        points: Some((
            ["fs", "depth", "iops"].map(str::to_owned).into(),
            rows.map(|r| r.map(str::to_owned).into()).into(),
        )),
        claims: Vec::new(),
        fio: None,
        rated: Vec::new(),
    };
    let input = Input { runs: vec![run], ..Input::default() };
    let text = page(&input, Lang::En);
    assert!(text.contains("iops over depth") && text.contains("iops.mean"));
    assert!(text.contains("id=\"run-0-iops\"") && text.contains("data-s=\"1\""));
    assert_eq!(text.matches("</script>").count(), 2, "its own two, and none of the document's");
}

#[test]
fn a_reason_is_in_the_language_of_the_page_or_marked() {
    let mut input = input();
    let [inside, outside] = ["at 16 KiB", "at 16 pages"];
    let mut claims = judged(PAPERS[0]);
    for (claim, why) in [(0, inside), (1, outside)] {
        claims[claim].why = why.to_owned();
    }
    input.papers[0].results = Rc::new(Claimed(claims));
    let [english, korean] = Lang::ALL.map(|lang| page(&input, lang));
    for why in [inside, outside] {
        assert!(english.contains(&format!("<span>{why}</span>")), "{why}");
    }
    assert!(korean.contains("<span>16 KiB에서</span>"), "both have the number");
    assert!(korean.contains("<span lang=\"en\">at 16 pages</span>"), "nobody says it in Korean");
}
