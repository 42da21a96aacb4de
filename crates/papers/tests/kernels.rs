//! The eras are the real ones: our runs against recorded runs of Linux 3.4.2, 3.8.0, 4.6.2 and
//! 5.10.223.

use wp_papers::kernels::compare_all;

#[test]
fn every_difference_from_the_real_kernels_is_listed_and_none_is_stale() {
    let c = compare_all(1, &mut |_, _, _| true).expect("runs").expect("not interrupted");
    assert!(c.pairs.len() >= 42, "only {} runs", c.pairs.len());
    let text: Vec<String> = c.findings.iter().map(ToString::to_string).collect();
    assert!(text.is_empty(), "{} findings:\n{}", text.len(), text.join("\n"));
}
