//! The rules of judging at their edges, the book, the pins, and the committed files.

use wp_machine::testing::repository;
use wp_report::claim::Verdict;

use super::*;

const SMALL: &str = r#"
[[claim]]
paper = "p"
id = "count"
what = "a count"
paper_value = 8
exact = true
unit = "sectors"
kind = "prediction"
rule = "how"

[[claim]]
paper = "p"
id = "share"
what = "a share"
paper_value = 0.5
band = [0.4, 0.6]
kind = "prediction"
null = "a closed form"

[[claim]]
paper = "p"
id = "word"
what = "a direction"
paper_value = "rises"
band = [1.15, 10]
unit = "ratio"
kind = "input"
"#;

fn claims() -> Claims {
    Claims::parse(SMALL).unwrap()
}

fn claim(claims: &Claims, id: &str) -> Claim {
    claims.of("p").find(|claim| claim.id == id).unwrap().clone()
}

fn verdict(id: &str, ours: f64, null: Option<f64>, interval: Option<[f64; 2]>) -> Verdict {
    judge(&claim(&claims(), id), Some(ours), null, interval).unwrap()
}

#[test]
fn an_exact_claim_matches_its_value_only() {
    assert_eq!(verdict("count", 8.0, None, None), Verdict::Match);
    assert_eq!(verdict("count", 9.0, None, None), Verdict::Differs);
    assert_eq!(verdict("count", 8.0 + 1e-9, None, None), Verdict::Differs);
}

#[test]
fn the_edges_of_a_band_belong_to_it() {
    assert_eq!(verdict("share", 0.4, None, None), Verdict::Match);
    assert_eq!(verdict("share", 0.6, None, None), Verdict::Match);
    assert_eq!(verdict("share", 0.4 - 1e-12, None, None), Verdict::Differs);
    assert_eq!(verdict("share", 0.6 + 1e-12, None, None), Verdict::Differs);
}

#[test]
fn a_null_predictor_explains_what_is_within_three_percent_of_it_and_in_the_band() {
    let near = Some(0.5 * 1.029);
    assert_eq!(verdict("share", 0.5, near, None), Verdict::FollowsFromInputs);
    assert_eq!(verdict("share", 0.5, Some(0.5 * 0.971), None), Verdict::FollowsFromInputs);
    assert_eq!(verdict("share", 0.5, Some(0.5 * 1.031), None), Verdict::Match);
    // Near, but itself outside the band.
    assert_eq!(verdict("share", 0.6, Some(0.61), None), Verdict::Match);
    // Ours outside: the null predictor does not rescue it.
    assert_eq!(verdict("share", 0.61, Some(0.6), None), Verdict::Differs);
    assert_eq!(verdict("count", 8.0, Some(8.0), None), Verdict::FollowsFromInputs);
}

#[test]
fn a_match_that_does_not_survive_the_assumed_parameters_does_not_count() {
    assert_eq!(verdict("share", 0.5, None, Some([0.4, 0.6])), Verdict::Match);
    assert_eq!(verdict("share", 0.5, None, Some([0.39, 0.55])), Verdict::Differs);
    assert_eq!(verdict("share", 0.5, Some(0.5), Some([0.45, 0.7])), Verdict::Differs);
    let judged = Measured::value(0.5).interval(0.3, 0.55);
    let judged = judged.judge(&claim(&claims(), "share")).unwrap();
    assert!(judged.why.contains("give [0.3, 0.55]"), "{}", judged.why);
}

#[test]
fn what_is_no_number_is_refused() {
    let share = claim(&claims(), "share");
    let refused = Err(ClaimError::NotFinite("share".into()));
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(judge(&share, Some(bad), None, None), refused);
        assert_eq!(judge(&share, Some(0.5), Some(bad), None), refused);
        assert_eq!(judge(&share, Some(0.5), None, Some([bad, 1.0])), refused);
        assert_eq!(judge(&share, None, Some(bad), None), refused);
    }
    let outside = judge(&share, Some(0.5), None, Some([0.51, 0.6]));
    assert_eq!(outside, Err(ClaimError::Interval("share".into())));
}

#[test]
fn no_number_is_not_modelled_and_has_to_say_why() {
    let share = claim(&claims(), "share");
    assert_eq!(judge(&share, None, None, None), Ok(Verdict::NotModelled));
    let judged = Measured::not_modelled("needs htree").judge(&share).unwrap();
    assert_eq!((judged.verdict, judged.ours), (Verdict::NotModelled, None));
    let silent = Measured::not_modelled(" ").judge(&share);
    assert_eq!(silent, Err(ClaimError::NoReason("share".into())));
}

#[test]
fn an_inconsistent_paper_needs_a_proof_and_our_number() {
    let share = claim(&claims(), "share");
    let judged = Measured::value(0.9).inconsistent("its own table says 0.9").judge(&share);
    assert_eq!(judged.unwrap().verdict, Verdict::PaperInconsistent);
    assert!(Measured::value(0.9).inconsistent("").judge(&share).is_err());
    assert!(Measured::default().inconsistent("proof").judge(&share).is_err());
}

#[test]
fn json_has_the_documented_keys_and_counts_without_fractions() {
    let mut book_claims = claims();
    let share = claim(&book_claims, "share");
    let judged = Measured::value(0.5).null(0.7).interval(0.45, 0.55).judge(&share).unwrap();
    assert_eq!(
        serde_json::to_string(&judged).unwrap(),
        r#"{"paper":"p","id":"share","what":"a share","paper_value":0.5,"ours":0.5,"unit":null,"#
            .to_owned()
            + r#""band":[0.4,0.6],"kind":"prediction","null":0.7,"interval":[0.45,0.55],"#
            + r#""verdict":"match","why":""}"#
    );
    book_claims.0.retain(|claim| claim.id == "count");
    let judged = Measured::not_modelled("later").judge(&book_claims.0[0]).unwrap();
    let json = serde_json::to_string(&judged).unwrap();
    assert!(json.contains(r#""paper_value":8,"ours":null,"unit":"sectors","band":[8,8]"#));
    assert!(json.contains(r#""null":null,"interval":null,"verdict":"not-modelled""#));
    let judged = Measured::value(2.0).judge(&claim(&claims(), "word")).unwrap();
    let json = serde_json::to_string(&judged).unwrap();
    assert!(json.contains(r#""paper_value":"rises","ours":2,"#), "{json}");
    assert!(json.contains(r#""kind":"input""#));
}

#[test]
fn a_difference_says_by_itself_what_it_is() {
    let judged = Measured::value(9.0).judge(&claim(&claims(), "count")).unwrap();
    assert_eq!(judged.why, "9 is outside [8, 8]");
    let said = Measured::value(9.0).why("a bug of ours").judge(&claim(&claims(), "count"));
    assert_eq!(said.unwrap().why, "a bug of ours");
}

#[test]
fn a_book_takes_each_claim_once_and_closes_when_all_are_in() {
    let claims = claims();
    assert_eq!(Book::open(&claims, "q").unwrap_err(), ClaimError::Unknown("q".into()));
    let mut book = Book::open(&claims, "p").unwrap();
    book.emit("share", Measured::value(0.5)).unwrap();
    let again = book.emit("share", Measured::value(0.5)).unwrap_err();
    assert_eq!(again, ClaimError::Twice("share".into()));
    let unknown = book.emit("shar", Measured::value(0.5)).unwrap_err();
    assert_eq!(unknown, ClaimError::Unknown("shar".into()));
    assert_eq!(book.open_ids(), ["count", "word"]);
    // A refused measurement does not close the claim.
    assert!(book.emit("count", Measured::value(f64::NAN)).is_err());
    book.emit("count", Measured::answer(true)).unwrap();
    let ids = vec!["word".to_owned()];
    assert_eq!(book.close().unwrap_err(), ClaimError::Missing(ids));
}

#[test]
fn a_closed_book_is_in_file_order_with_our_own_claims_last() {
    let claims = claims();
    let mut book = Book::open(&claims, "p").unwrap();
    let own = Claim { id: "own".into(), ..claim(&claims, "count") };
    book.emit_own(&own, Measured::value(8.0)).unwrap();
    assert!(book.emit_own(&own, Measured::value(8.0)).is_err());
    let taken = Claim { band: [0.0, 100.0], ..claim(&claims, "count") };
    assert!(book.emit_own(&taken, Measured::value(9.0)).is_err(), "a fixed id is not ours");
    for (id, value) in [("word", 2.0), ("share", 0.5), ("count", 8.0)] {
        book.emit(id, Measured::value(value)).unwrap();
    }
    let judged = book.close().unwrap();
    let ids: Vec<&str> = judged.iter().map(|judged| judged.id.as_str()).collect();
    assert_eq!(ids, ["count", "share", "word", "own"]);
}

#[test]
fn a_changed_new_or_missing_verdict_is_named() {
    let claims = claims();
    let judged = |id: &str, value: f64| Measured::value(value).judge(&claim(&claims, id)).unwrap();
    let mut pins = Pins::default();
    pins.set("p", &[judged("count", 8.0), judged("word", 2.0)], false);
    let again = Pins::parse(&pins.to_toml()).unwrap();
    assert_eq!(again, pins);
    assert!(again.compare("p", &[judged("count", 8.0), judged("word", 2.0)], false).is_empty());
    let changes = again.compare("p", &[judged("count", 9.0), judged("share", 0.5)], false);
    let lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "p count: pinned match, now differs",
            "p share: pinned nothing, now match",
            "p word: pinned match, now nothing",
        ]
    );
}

#[test]
fn a_quick_run_has_pins_of_its_own_where_it_judges_otherwise() {
    let claims = claims();
    let judged = |id: &str, value: f64| Measured::value(value).judge(&claim(&claims, id)).unwrap();
    let whole = [judged("count", 8.0), judged("word", 2.0)];
    let quick = [judged("count", 9.0), judged("word", 2.0)];
    let mut pins = Pins::default();
    pins.set("p", &whole, false);
    assert_eq!(pins.compare("p", &quick, true).len(), 1);
    pins.set("p", &quick, true);
    let again = Pins::parse(&pins.to_toml()).unwrap();
    assert_eq!(again.0["p --quick"].len(), 1, "only what is judged otherwise");
    assert!(again.compare("p", &quick, true).is_empty());
    assert!(again.compare("p", &whole, false).is_empty());
    assert_eq!(again.compare("p", &whole, true).len(), 1);
    pins.set("p", &whole, true);
    assert!(!pins.0.contains_key("p --quick"));
}

#[test]
fn blessing_rewrites_one_paper_and_keeps_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pins.toml");
    std::fs::write(&file, "[other]\n\"a.b\" = \"differs\"\n").unwrap();
    let claims = claims();
    let judged = [Measured::value(8.0).judge(&claim(&claims, "count")).unwrap()];
    assert_eq!(check_pins(&file, "p", &judged, false, false).unwrap().len(), 1);
    assert!(check_pins(&file, "p", &judged, false, true).unwrap().is_empty());
    assert!(check_pins(&file, "p", &judged, false, false).unwrap().is_empty());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("[other]\n\"a.b\" = \"differs\"\n\n[p]\n\"count\" = \"match\"\n"));
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(check_pins(&file, "p", &judged, false, false), Err(ClaimError::Host(_))));
}

#[test]
fn a_claim_without_a_band_with_two_or_with_an_impossible_one_is_refused() {
    let head = "[[claim]]\npaper = \"p\"\nid = \"a\"\nwhat = \"w\"\nkind = \"input\"\n";
    let parse = |rest: &str| Claims::parse(&format!("{head}{rest}")).map(drop);
    assert_eq!(parse("paper_value = 1\nexact = true\n"), Ok(()));
    let refused = Err(ClaimError::Band("a".into()));
    assert_eq!(parse("paper_value = 1\n"), refused);
    assert_eq!(parse("paper_value = 1\nexact = true\nband = [0, 2]\n"), refused);
    assert_eq!(parse("paper_value = \"more\"\nexact = true\n"), refused);
    assert_eq!(parse("paper_value = 1\nband = [2, 0]\n"), refused);
    assert_eq!(parse("paper_value = 1\nband = [nan, 2]\n"), refused);
    assert!(matches!(parse("paper_value = 1\nbend = [0, 2]\n"), Err(ClaimError::Syntax(_))));
    let twice = format!("{head}paper_value = 1\nexact = true\n").repeat(2);
    assert_eq!(Claims::parse(&twice).map(drop), Err(ClaimError::Twice("a".into())));
}

#[test]
fn the_committed_claims_are_read_whole() {
    let claims = Claims::fixed();
    assert_eq!(claims.iter().count(), CLAIMS_TOML.matches("[[claim]]").count());
    assert_eq!(claims.of("ext4-fsync").count(), 93);
    for claim in claims.iter() {
        if let PaperValue::Number(value) = claim.paper_value {
            let inside = claim.band[0] <= value && value <= claim.band[1];
            assert!(inside, "{}: the paper's value is in its band", claim.id);
        }
    }
}

#[test]
fn the_committed_claims_are_the_ones_that_were_fixed() {
    // Of the file as it was fixed, before any run was judged by it.
    let fixed = "f1c3db7a83c8688db46becc07ebefecd3e37f33df8a9fdda3097792e483bf0d2";
    assert_eq!(
        wp_machine::results::sha256(CLAIMS_TOML.as_bytes()),
        fixed,
        "papers/claims.toml changed"
    );
}

#[test]
fn a_pinned_paper_has_every_claim_pinned() {
    let text = std::fs::read_to_string(repository("papers/verdicts.toml")).unwrap();
    let pins = Pins::parse(&text).unwrap();
    assert_eq!(pins.to_toml(), text, "the file is as a blessing run writes it");
    let claims = Claims::fixed();
    for table in pins.0.keys() {
        let paper = table.trim_end_matches(" --quick");
        assert!(claims.of(paper).next().is_some(), "{paper}: no such paper");
        for claim in claims.of(paper) {
            assert!(pins.0[paper].contains_key(&claim.id), "{}: not pinned", claim.id);
        }
        for id in pins.0[table].keys() {
            assert!(claims.of(paper).any(|c| c.id == *id), "{table}: no claim {id}");
        }
    }
}

#[test]
fn rules_and_listed_differences_have_korean_and_both_languages_have_the_same_numbers() {
    let reasons = Reasons::committed();
    for [en, ko] in reasons.pairs() {
        assert!(ko.chars().any(|c| ('가'..='힣').contains(&c)), "{en}: {ko}");
        assert!(!en.chars().any(|c| ('가'..='힣').contains(&c)), "{en}");
    }
    let claims = Claims::fixed();
    let texts = claims.iter().flat_map(|c| [&c.rule, &c.null]).flatten();
    let files = ["differences.toml", "differences-6.18.toml"].map(|name| {
        let path = repository(&format!("papers/ext4-fsync/{name}"));
        let text = std::fs::read_to_string(path).expect("it is there");
        toml::from_str::<toml::Table>(&text).expect("TOML")
    });
    let listed = files.iter().flat_map(|t| t["difference"].as_array().expect("a list"));
    let whys = listed.map(|d| d["why"].as_str().expect("a text").to_owned());
    let mut count = 0;
    for text in texts.cloned().chain(whys) {
        assert!(reasons.korean(&text).is_some(), "no Korean in papers/reasons.toml: {text}");
        count += 1;
    }
    assert!(count > 100, "{count}");
    assert_eq!(reasons.korean("what no run says"), None);
    let ours = "S 1, G 2, DB 3, IB 4, IT 5, D 6; 70 operations";
    let theirs = "블록 유형별 저널 충돌 수: S 1, G 2, DB 3, IB 4, IT 5, D 6; 작업 70회";
    assert_eq!(reasons.korean(ours).as_deref(), Some(theirs));
}

#[test]
fn a_reason_with_other_numbers_or_parts_is_refused() {
    let file = |en: &str, ko: &str| format!("[[reason]]\nen = \"{en}\"\nko = \"{ko}\"\n");
    assert!(Reasons::parse(&file("some {0} of 30 s", "30 s 중 {0}")).is_ok());
    for (en, ko) in [("{0} of {1}", "{0}"), ("30 s", "3 s"), ("1.5 s.", "1,5 s"), ("one", "1")] {
        let e = Reasons::parse(&file(en, ko)).expect_err("other numbers");
        assert!(e.to_string().contains("other parts or numbers"), "{e}");
    }
    let twice = file("a", "가").repeat(2);
    assert_eq!(Reasons::parse(&twice), Err(ClaimError::Twice("a".to_owned())));
}
