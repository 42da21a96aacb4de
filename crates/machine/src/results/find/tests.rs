use super::super::Results;
use super::*;

fn result(root: &Path, name: &str, seed: u32) -> PathBuf {
    let mut results = Results::default();
    results.add("resolved.toml", format!("seed = {seed}"));
    results.add("summary.json", "{\"schema\": \"writepath.run/1\", \"events\": 3}");
    results.add("inputs/job", "[job]");
    results.write(root, name).expect("written")
}

#[test]
fn a_result_is_found_by_its_folder_a_file_in_it_a_link_and_what_it_is_in() {
    let root = tempfile::tempdir().expect("a directory");
    let at = root.path();
    assert!(matches!(find(at), Err(NoResult::None(_))));
    assert!(matches!(find(&at.join("missing")), Err(NoResult::Host(..))));
    let first = result(at, "one", 1);
    for path in [first.clone(), first.join("summary.json"), at.join("one")] {
        assert_eq!(find(&path).expect("found"), first, "{}", path.display());
    }
    let second = result(at, "two", 1);
    let same = |path: &Path, dir: &Path| {
        let there = |p: &Path| p.canonicalize().expect("there");
        assert_eq!(there(&find(path).expect("found")), there(dir), "{}", path.display());
    };
    same(&at.join("latest"), &second);
    same(at, &second);
    // The same again is the newest again.
    assert_eq!(result(at, "one", 1), first);
    same(at, &first);
    result(at, "one", 2);
    let e = find(&at.join("one")).expect_err("two of them").to_string();
    assert!(e.contains("2 results are below it: ") && e.contains("one/"), "{e}");
}

#[test]
fn what_stands_in_the_way_of_the_link_stays() {
    let root = tempfile::tempdir().expect("a directory");
    std::fs::write(root.path().join("latest"), "the user's").expect("written");
    result(root.path(), "one", 1);
    assert_eq!(std::fs::read(root.path().join("latest")).expect("read"), b"the user's");
}

#[test]
fn only_results_are_listed_and_only_their_files_removed() {
    let root = tempfile::tempdir().expect("a directory");
    let at = root.path();
    let (first, second) = (result(at, "one", 1), result(at, "one", 2));
    std::fs::create_dir_all(at.join("mine/deep")).expect("made");
    std::fs::write(at.join("mine/deep/summary.json"), "{}").expect("written");
    std::fs::write(first.join("notes.txt"), "the user's").expect("written");
    // A manifest of something else.
    std::fs::create_dir_all(at.join("x/y")).expect("made");
    std::fs::write(at.join("x/y/MANIFEST.json"), "{\"thesis.tex\": \"\"}").expect("written");
    std::fs::write(at.join("x/y/thesis.tex"), "the user's").expect("written");
    std::fs::write(second.join("summary.json"), "{\"events\": 3, \"mine\": 1}").expect("written");
    let all = found_below(at).expect("listed");
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|r| r.events == 3 && r.bytes > 30));
    assert_eq!(all.iter().filter(|r| r.is_latest).count(), 1);
    assert_eq!(remove(at, &first).expect("removed"), ["notes.txt"]);
    assert_eq!(remove(at, &second).expect("removed"), ["MANIFEST.json", "summary.json"]);
    assert!(first.join("notes.txt").exists(), "what no result wrote");
    assert!(second.join("summary.json").exists(), "what was changed since");
    let third = result(at, "three", 3);
    assert_eq!(remove(at, &third).expect("removed"), [""; 0]);
    assert!(!third.exists());
    assert!(std::fs::symlink_metadata(at.join("latest")).is_err(), "it led to what is gone");
    assert!(at.join("mine/deep/summary.json").exists() && at.join("x/y/thesis.tex").exists());
}
