//! Era 6.18 is the real one: our runs against recorded runs of Linux 6.18.

use std::path::Path;

use wp_machine::testing::{blessing, reference, repository};
use wp_papers::today::compare_today;
use wp_parity::reference::{TODAY_RUNS_JSON, read_today, today_runs_to_json};

/// Names of runs to look at alone: `WRITEPATH_RUNS=def_N1,era_N37`.
fn wanted(run: &str) -> bool {
    std::env::var("WRITEPATH_RUNS").map_or(true, |names| names.split(',').any(|n| n == run))
}

#[test]
fn every_difference_from_linux_6_18_is_listed_and_none_is_stale() {
    let c = compare_today(1, &|r| wanted(&r.run), &mut |_, _, _| true)
        .expect("runs")
        .expect("not interrupted");
    assert!(!c.pairs.is_empty());
    let text: Vec<String> = c.findings.iter().map(ToString::to_string).collect();
    if blessing() {
        let new = c.findings.iter().filter_map(|f| match f {
            wp_parity::reference::Finding::Unlisted(d) => Some(d.to_toml()),
            wp_parity::reference::Finding::Stale(_) => None,
        });
        eprintln!("{}", new.collect::<Vec<_>>().join("\n"));
    }
    assert!(text.is_empty(), "{} findings:\n{}", text.len(), text.join("\n"));
}

#[test]
fn the_kept_runs_are_the_recorded_ones() {
    let folder = reference("ext4-fsync-trace");
    let unpack = |path: &Path| -> std::io::Result<String> {
        let bytes = zstd::decode_all(std::fs::File::open(path)?)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let kept = today_runs_to_json(&read_today(&folder, &unpack).expect("the recorded runs"));
    if blessing() {
        std::fs::write(repository("papers/ext4-fsync/kernel-6.18-runs.json"), kept)
            .expect("the file is ours to write");
        return;
    }
    assert!(kept == TODAY_RUNS_JSON, "papers/ext4-fsync/kernel-6.18-runs.json is another");
}
