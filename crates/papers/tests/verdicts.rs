//! Every verdict is pinned: a change of one is a reviewed diff of `papers/verdicts.toml`.

use wp_machine::testing::{blessing, repository};
use wp_papers::claims::{Reasons, check_pins};
use wp_papers::journal_conflict::System;
use wp_papers::results::Results;
use wp_papers::{
    direct_io, ext4_fsync,
    f2fs_oprw::{self, Ended},
    inode_trim, journal_conflict,
};
use wp_report::claim::{Judged, Verdict};

/// A reason that a run gives, and the Korean page would leave in English.
fn assert_korean(claims: &[Judged]) {
    let reasons = Reasons::committed();
    let given = claims.iter().filter(|c| !c.why.is_empty());
    let without: Vec<&str> =
        given.filter(|c| reasons.korean(&c.why).is_none()).map(|c| c.why.as_str()).collect();
    assert!(without.is_empty(), "not in papers/reasons.toml: {without:#?}");
}

/// What is written is read again as it was, and a key that is missing is told by its name.
fn assert_read_again(slug: &str, results: &Results, key: &str) {
    let text = serde_json::to_string(results).expect("JSON");
    let read = Results::read(slug, &text).expect("the same type reads it");
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(serde_json::to_value(&read).expect("JSON"), document);
    let without = text.replacen(&format!("\"{key}\":"), "\"another\":", 1);
    let e = Results::read(slug, &without).expect_err("a key is missing").to_string();
    assert!(e.contains(&format!("missing field `{key}`")), "{e}");
}

/// Are the runs whole ones, of some minutes (`WRITEPATH_WHOLE=1`)? Blessing takes no less.
fn is_whole() -> bool {
    blessing() || std::env::var_os("WRITEPATH_WHOLE").is_some_and(|v| v == "1")
}

/// Without the crash states of thousands of programs, unless the runs are whole ones: their claims
/// are open, and say so.
#[test]
fn every_claim_of_ext4_fsync_has_the_pinned_verdict() {
    let eras = ext4_fsync::ERAS.into_iter().filter(|_| is_whole());
    let cuts = eras
        .flat_map(|era| ext4_fsync::cut_era(era, 1, 1000, 2, &|| true).expect("runs"))
        .flatten()
        .collect();
    let found = ext4_fsync::reproduce(1, false, cuts, &mut |_, _, _| true)
        .expect("runs")
        .expect("not interrupted");
    let path = repository("papers/verdicts.toml");
    let changes =
        check_pins(&path, ext4_fsync::SLUG, &found.claims, false, blessing()).expect("readable");
    assert_korean(&found.claims);
    let needs_crashes = |id: &str| {
        let of_it = found.claims.iter().find(|c| c.id == id);
        of_it.is_some_and(|c| c.verdict == Verdict::NotModelled && c.why.contains("--crash"))
    };
    let open: Vec<_> = changes.iter().filter(|c| needs_crashes(&c.id)).collect();
    assert_eq!(open.len(), if is_whole() { 0 } else { 12 }, "{open:#?}");
    let wrong: Vec<_> = changes.iter().filter(|c| !needs_crashes(&c.id)).collect();
    assert!(wrong.is_empty(), "verdicts that changed: {wrong:#?}");
}

/// A quick run, which leaves open what needs intervals, the surface or roll-forward of 50,000
/// nodes, and says so. `WRITEPATH_WHOLE=1` does all of it (some minutes), and so does blessing.
#[test]
fn every_claim_of_f2fs_oprw_has_the_pinned_verdict() {
    let whole = is_whole();
    let plan = f2fs_oprw::Plan { seed: 1, quick: !whole, cuts: None, workers: 2 };
    let ended = f2fs_oprw::reproduce(&plan, &|_, _, _| true).expect("runs");
    let Ended::Whole(found) = ended else { panic!("nobody stopped it") };
    let path = repository("papers/verdicts.toml");
    let changes =
        check_pins(&path, f2fs_oprw::SLUG, &found.claims, false, blessing()).expect("readable");
    assert_korean(&found.claims);
    let open: Vec<&str> = found
        .claims
        .iter()
        .filter(|c| c.verdict == Verdict::NotModelled && c.why.contains("--quick"))
        .map(|c| c.id.as_str())
        .collect();
    assert_eq!(open.len(), if whole { 0 } else { 13 }, "{open:?}");
    let wrong: Vec<_> =
        changes.iter().filter(|c| c.pinned.is_none() || !open.contains(&c.id.as_str())).collect();
    assert!(wrong.is_empty(), "verdicts that changed: {wrong:#?}");
    assert_eq!(found.claims.len(), 24);
    let pictures = f2fs_oprw::recordings(1).expect("runs").pictures();
    let results = f2fs_oprw::Results::new(1, &found, pictures);
    assert_read_again(f2fs_oprw::SLUG, &Results::F2fsOprw(Box::new(results)), "wait_node");
}

#[test]
fn every_claim_of_inode_trim_has_the_pinned_verdict() {
    let found = inode_trim::reproduce(1, false, &mut |_, _, _| true)
        .expect("runs")
        .expect("is not stopped");
    let path = repository("papers/verdicts.toml");
    let changes =
        check_pins(&path, inode_trim::SLUG, &found.claims, false, blessing()).expect("readable");
    assert_korean(&found.claims);
    assert!(changes.is_empty(), "verdicts that changed: {changes:#?}");
    // Beyond: what is discarded spares copies, whatever runs; what deletions free of tables is
    // little.
    assert_eq!(found.wear.len(), 16);
    for rows in found.wear.chunks(4) {
        let [none, data, deleted, tables] = rows else { panic!("four rows of a workload") };
        assert!(deleted.copied_slots * 100 >= data.copied_slots * 97, "{}", none.work.name());
        let copied = [none, data, tables].map(|w| w.copied_slots);
        assert!(copied.is_sorted_by(|a, b| a > b), "{}: {copied:?}", none.work.name());
    }
    let results = Results::InodeTrim(Box::new(found));
    assert_read_again(inode_trim::SLUG, &results, "tables_trimmed");
}

/// A quick run: shorter ones, and no intervals; `WRITEPATH_WHOLE=1` does all of it.
#[test]
fn every_claim_of_journal_conflict_has_the_pinned_verdict() {
    let found = journal_conflict::reproduce(1, !is_whole(), &mut |_, _, _| true)
        .expect("runs")
        .expect("is not stopped");
    let path = repository("papers/verdicts.toml");
    let slug = journal_conflict::SLUG;
    let changes =
        check_pins(&path, slug, &found.claims, !is_whole(), blessing()).expect("readable");
    assert_korean(&found.claims);
    assert!(changes.is_empty(), "verdicts that changed: {changes:#?}");
    // Beyond: versions end waits for log I/O, and nothing conflicts where no version is taken.
    let [varmail, _] = &found.cure;
    let of = |s: System| varmail.of(s, 8).expect("a point of the graph");
    assert!(of(System::BfsDr).conflicts.of_case("shadow") > 0);
    for s in [System::Versions3, System::Cjfs3, System::NoConflicts] {
        assert_eq!(of(s).conflicts.of_case("shadow"), 0, "{}", s.name());
    }
    assert_eq!(of(System::NoConflicts).conflicts.total(), 0);
    assert!(of(System::Cjfs5).per_op() < of(System::BfsDr).per_op() / 2.0);
    let flushes = |s: System| of(s).counter("journal_flushes") as f64 / of(s).fsyncs as f64;
    assert!(flushes(System::Cjfs3) < flushes(System::Versions3));
    let results = Results::JournalConflict(Box::new(found));
    assert_read_again(journal_conflict::SLUG, &results, "ops_per_second");
}

/// Files whose data is on disk, blocks that fsync writes: the same for every seed, for they are not
/// chance.
#[test]
fn counts_do_not_depend_on_the_seed() {
    for (era, case) in [("3.4", "extend"), ("3.8", "alloc"), ("4.6", "over")] {
        let count = |seed| {
            let r =
                ext4_fsync::run(&ext4_fsync::RunPlan::paper(era, case, 10, seed)).expect("runs");
            let on_disk = r.data_on_disk.iter().filter(|b| **b).count();
            (on_disk, r.lines.iter().filter(|l| l.action == 'D').count())
        };
        assert_eq!(count(1), count(2), "{era} {case}");
    }
}

/// A quick run: a shorter file, one run of each point and no intervals; `WRITEPATH_WHOLE=1` does
/// all of it.
#[test]
fn every_claim_of_direct_io_has_the_pinned_verdict() {
    let found = direct_io::reproduce(1, !is_whole(), &mut |_, _, _| true)
        .expect("runs")
        .expect("is not stopped");
    let path = repository("papers/verdicts.toml");
    let changes = check_pins(&path, direct_io::SLUG, &found.claims, !is_whole(), blessing())
        .expect("readable");
    assert_korean(&found.claims);
    assert!(changes.is_empty(), "verdicts that changed: {changes:#?}");
    let results = Results::DirectIo(Box::new(found));
    assert_read_again(direct_io::SLUG, &results, "record_bytes");
}
