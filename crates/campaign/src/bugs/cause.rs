//! Which known bug a failure comes from: by experiment, not by its symptom. The program runs again
//! on the file system with a bug fixed, and the failure must be gone.

use std::collections::BTreeMap;

use wp_crash::Rule;
use wp_vfs::Options;
use wp_workload::program::Program;

use super::{Bug, all, find, versions_of};
use crate::campaign::{Campaign, Watch, resume};
use crate::findings::Findings;
use crate::source::Source;

/// A bug and the options that fix it in one file system.
struct Mend {
    fs: &'static str,
    id: &'static str,
    options: &'static str,
}

const fn mend(fs: &'static str, id: &'static str, options: &'static str) -> Mend {
    Mend { fs, id, options }
}

/// Bugs that have options of their own. What a version has not yet fixed is in the table of
/// `crash bug`.
const MENDS: &[Mend] = &[
    mend("ext4", "A6", "nobarrier=0"),
    mend("ext4", "N7", "discard_committed"),
    mend("ext4", "N32", "size_before_sync"),
    mend("ext4", "H1", "fast_fix=blocks"),
    mend("ext4", "N33", "fast_fix=head"),
    mend("ext4", "N34", "fast_fix=unnamed"),
    mend("ext4", "N35", "fast_fix=unlinked"),
    mend("ext4", "N36", "fast_fix=ineligible"),
    mend("ext4", "N37", "fast_fix=untracked"),
    mend("ext4", "N38", "fast_fix=directories"),
    mend("ext4", "N39", "fast_fix=company"),
    mend("ext4", "N40", "fast_fix=attributes"),
    mend("ext4", "N44", "fast_fix=area"),
    mend("ext4", "N45", "fast_fix=orphans"),
    mend("ext4", "N50", "untorn_commit"),
    mend("ext4", "N55", "fast_fix=zeroed"),
    mend("ext4", "N60", "iomap_fix=tail"),
    mend("ext4", "N61", "iomap_fix=length"),
    mend("ext4", "N62", "iomap_fix=errors"),
    mend("ext4", "N9", "extent_max_zeroout_kb=0"),
    mend("f2fs", "R1", "wait_first_node"),
    mend("f2fs", "R2", "wait_last_node"),
    mend("f2fs", "N3", "wait_earlier_nodes"),
    mend("f2fs", "N4", "size_before_sync"),
    mend("f2fs", "N12", "fsync_alone"),
    mend("f2fs", "N5", "recover_aside"),
    mend("f2fs", "N2", "mode=lfs"),
    mend("f2fs", "N11", "direct=log"),
    mend("f2fs", "N29", "noinline_xattr"),
    mend("f2fs", "N70", "sync_attributes"),
    // Whoever has this mode needs its other fixes, too.
    mend("f2fs", "A8", "fsync_mode=strict_fixed,wait_last_node,wait_earlier_nodes"),
    mend("nilfs2", "N14", "flush_segments"),
    mend("nilfs2", "N15", "sync_nameless"),
    mend("nilfs2", "N26", "await_flush"),
    mend("nilfs2", "N28", "sync_inodes"),
    mend("btrfs", "N16", "fix=nameless"),
    mend("btrfs", "N17", "overgrown=replace"),
    mend("btrfs", "N18", "fix=renamed"),
    mend("btrfs", "N19", "fix=unlinked"),
    mend("btrfs", "N20", "fix=space"),
    mend("btrfs", "N23", "fix=reloaded"),
    mend("btrfs", "N24", "fix=symlinks"),
    mend("btrfs", "N25", "fix=cut"),
    mend("btrfs", "N31", "fix=placeholder"),
];

/// Why a failure is.
#[derive(Clone, Debug)]
pub struct Cause {
    /// The bugs; of several none alone.
    pub bugs: Vec<&'static Bug>,
    /// Options of the file system with which the failure is gone.
    pub options: String,
}

/// Bugs that the file system of a campaign may have, with what fixes each.
fn candidates(c: &Campaign) -> Vec<(&'static Bug, String)> {
    let fs = c.bench.fs;
    // Without fast commits the options that fix them are refused; so are those of iomap.
    let fast = c.bench.fs_options.get("fast_commit", fs.options).is_some();
    let iomap = c.bench.fs_options.get("buffered_iomap", fs.options).is_some();
    let is_of = |m: &Mend, key: &str| m.options.starts_with(key);
    let fits = |m: &&Mend| {
        m.fs == fs.name && (fast || !is_of(m, "fast_fix")) && (iomap || !is_of(m, "iomap_fix"))
    };
    let own = MENDS.iter().filter(fits);
    let own = own.filter_map(|m| Some((find(m.id)?, m.options.to_owned())));
    let era = c.bench.fs_options.get("era", fs.options).unwrap_or_default();
    let holds = |era: &str, rule: &str| {
        let rules = (fs.eras)(era).unwrap_or_default();
        rules.iter().find(|r| r.name == rule).map(|r| r.holds)
    };
    let has_fix = fs.name == "ext4" && fs.options.iter().any(|o| o.key == "fix");
    let of_version = all().filter(|_| has_fix).filter_map(|bug| {
        let rule = bug.rule_name.filter(|rule| fast || !rule.starts_with("fast_"))?;
        let [(name, affected), (_, fixed)] = versions_of(bug)?;
        let lacks = holds(era, rule) == holds(affected, rule);
        let differs = holds(affected, rule) != holds(fixed, rule);
        (name == fs.name && lacks && differs).then(|| (bug, format!("fix={rule}")))
    });
    own.chain(of_version).collect()
}

/// Options with more of them; those of `fix`, `fast_fix` and `iomap_fix` are joined. `None`: the
/// file system refuses them.
fn with(c: &Campaign, more: &[&str]) -> Option<Options> {
    let specs = c.bench.fs.options;
    let mut options = c.bench.fs_options.clone();
    for part in more.iter().flat_map(|m| m.split(',')) {
        let (key, value) = part.split_once('=').unwrap_or((part, "true"));
        let joins = matches!(key, "fix" | "fast_fix" | "iomap_fix");
        let before = options.get(key, specs).filter(|b| joins && !b.is_empty());
        let value = before.map_or(value.to_owned(), |before| format!("{before}+{value}"));
        options.set(key, &value, specs).ok()?;
    }
    Some(options)
}

/// Does the program break the rule with more options, and how many of its calls fail? `None`: that
/// is not known.
fn breaks(
    (c, program): (&Campaign, &Program),
    rule: Rule,
    more: &[&str],
    go_on: &(dyn Fn() -> bool + Sync),
) -> Option<(bool, u64)> {
    let mut one = Campaign { source: Source::Text(program.clone()), ..c.clone() };
    one.bench.fs_options = with(c, more)?;
    (one.programs, one.stop_at) = ((0, 1), vec![rule]);
    let watch = Watch { step: &|_, _| true, abandon: &|| !go_on(), at: &|_| {} };
    let f = resume(&one, 1, Findings::before(&one), &watch);
    let is_broken = f.totals.broken[rule as usize] > 0;
    let is_whole = f.done == 1 && f.unplayed().is_none();
    (is_broken || is_whole).then_some((is_broken, f.calls.failed))
}

/// The known bugs without which `program`, which breaks `rule` in the campaign's setting, does not
/// break it; `None`: there are none, or `go_on` has said no before they were found.
pub fn cause(
    c: &Campaign,
    program: &Program,
    rule: Rule,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Option<Cause> {
    let all = candidates(c);
    let (is_broken, failed) = breaks((c, program), rule, &[], go_on)?;
    if !is_broken {
        return None;
    }
    // A program whose calls the options refuse breaks nothing, and shows nothing.
    let is_gone =
        |mends: &[&str]| breaks((c, program), rule, mends, go_on) == Some((false, failed));
    let one = all.iter().find(|(_, mend)| is_gone(&[mend]));
    if let Some((bug, mend)) = one {
        return Some(Cause { bugs: vec![bug], options: mend.clone() });
    }
    // All of them; then as few as are needed.
    let mut kept: Vec<&(&Bug, String)> = all.iter().collect();
    let mends = |of: &[&(&Bug, String)]| of.iter().map(|(_, m)| m.clone()).collect::<Vec<_>>();
    let gone = |of: &[&(&Bug, String)]| {
        let mends = mends(of);
        is_gone(&mends.iter().map(String::as_str).collect::<Vec<_>>())
    };
    if kept.len() < 2 || !gone(&kept) {
        return None;
    }
    let mut n = 0;
    while n < kept.len() {
        let mut fewer = kept.clone();
        fewer.remove(n);
        if gone(&fewer) { kept = fewer } else { n += 1 }
    }
    let mut options: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for part in kept.iter().flat_map(|(_, m)| m.split(',')) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let values = options.entry(key).or_default();
        if !values.contains(&value) {
            values.push(value);
        }
    }
    let said = options.into_iter().map(|(key, values)| match values.join("+") {
        value if value.is_empty() => key.to_owned(),
        value => format!("{key}={value}"),
    });
    let options = said.collect::<Vec<_>>().join(",");
    Some(Cause { bugs: kept.iter().map(|(bug, _)| *bug).collect(), options })
}

#[cfg(test)]
mod tests {
    use wp_machine::spec::file_system;

    use super::*;
    use crate::Bench;
    use crate::space::Space;

    fn setting(fs: &str) -> Campaign {
        let (entry, options) = file_system(fs).expect("a file system");
        let mut bench = Bench::of(entry, options).expect("a machine");
        // As much as NILFS2 needs.
        bench.device_params = vec![("capacity_bytes".to_owned(), 256 << 20)];
        Campaign::new(bench, Source::Text(Program::default()), (0, 1))
    }

    #[test]
    fn every_mend_is_of_a_bug_and_an_option() {
        for mend in MENDS {
            assert!(find(mend.id).is_some(), "{} is not in `crash bug`", mend.id);
            let c = setting(mend.fs);
            assert!(with(&c, &[mend.options]).is_some(), "{}: {}", mend.id, mend.options);
        }
    }

    #[test]
    fn a_failure_comes_from_the_bug_without_which_it_is_gone() {
        let of = |fs: &str, space: Space, text: &str| {
            let mut c = setting(fs);
            c.space = space;
            let program = Program::parse(text).expect("a program");
            cause(&c, &program, Rule::LostSync, &|| true)
                .map(|cause| cause.bugs.iter().map(|b| b.id).collect::<Vec<_>>())
        };
        let file = "open 0 a rw,creat\nfsync 0\n";
        assert_eq!(of("f2fs", Space::HONEST, file), Some(vec!["R1"]));
        let bits = "open 0 a rw,creat\npwrite 0 4096 0 1\nfsync 0\nchmod a 0600\nfsync 0\n";
        assert_eq!(of("nilfs2", Space::HONEST, bits), Some(vec!["N28"]));
        // A drive that lies is no bug of the file system.
        let lying = Space::named("lying-flush", None).expect("a space");
        assert_eq!(of("ext4,era=6.18", lying, file), None);
    }
}
