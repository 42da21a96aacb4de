//! `kernel-lab --compare … --explore`: states of one log, as two kernels recover them.
//!
//! Picture:    log of the first kernel -> some of its states, and every prefix -> a guest of each
//!             kernel mounts them all -> files, and what the check says, state by state.
//! Invariants: both kernels are given the same bytes: what differs is of the recovery.

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use wp_campaign::{LogFile, LogState, log_prefixes, sample_log};
use wp_machine::host::Shape;
use wp_medium::log_order::{BEGIN, END};
use wp_medium::write_log::write_log;
use wp_parity::kernel_lab::{Mounted, Ran, Tree, Verdict};

use super::explore::{kept, mounted, name};
use super::kernel_states::guest_check;
use super::plan::{Explore, Program};
use super::{Session, scratch};
use crate::cmd::crash::log::{self, ExploreArgs};
use crate::output::Out;
use crate::outputs;

/// States that are mounted, if nobody says how many.
const SAMPLE: usize = 200;
/// Differences that are printed.
const SHOWN: usize = 5;

/// A kernel and what it mounts the states with.
pub(super) type Side<'a> = (&'a Session<'a>, &'a Program);

/// What two kernels have made of the same states.
pub(super) struct Both {
    /// Lines.
    pub text: String,
    /// For programs.
    pub document: Value,
    /// Are all recovered to the same?
    pub is_same: bool,
}

/// Mounts states of what the first side's program has left in guests of both. Errors: the exit
/// code, after saying why.
pub(super) fn compared(
    [one, two]: [Side<'_>; 2],
    (explore, states): (&Explore, &ExploreArgs),
    ran: &Ran,
    out: &Out,
) -> Result<Both, ExitCode> {
    let session = one.0;
    let folder = scratch(out)?;
    let path = folder.path().join("writes.log");
    let mut log = outputs::new(&path, Shape::Image, out)?;
    let written = write_log(&mut log, ran.sector_bytes, &ran.writes);
    written.and_then(|()| log.commit()).map_err(|e| out.host_error(&path, &e))?;
    let file = LogFile {
        path,
        bytes: Some(ran.bytes),
        from: Some(BEGIN.to_owned()),
        to: Some(END.to_owned()),
        acks: true,
        ..LogFile::default()
    };
    let (run, space, plan) = log::of_any(file, states, out)?;
    let go_on = || !session.stop.load(Ordering::Relaxed);
    let n = explore.sample.unwrap_or(SAMPLE);
    let sample = sample_log(&run, (space, &plan, explore.seed), (n, &[]), &go_on);
    let mut chosen = sample.map_err(|e| out.machine_error(&e))?;
    let explored = chosen.states.len();
    chosen.states.extend(log_prefixes(&run, &go_on).map_err(|e| out.machine_error(&e))?);
    let mut each = [Vec::new(), Vec::new()];
    for (all, (session, program)) in each.iter_mut().zip([one, two]) {
        let check = guest_check(states, &program.folder);
        *all = mounted(session, program, check, (&chosen.states, states.limit(out)?), out)?;
    }
    let [here, there] = each;
    // Whoever interrupts it has what both have mounted.
    let pairs: Vec<(&LogState, &Mounted, &Mounted)> =
        chosen.states.iter().zip(&here).zip(&there).map(|((s, a), b)| (s, a, b)).collect();
    let different: Vec<(&LogState, String)> =
        pairs.iter().filter_map(|(s, a, b)| Some((*s, difference(a, b)?))).collect();
    let is_refused = |a: &Mounted, b: &Mounted| a.tree.is_err() && a.tree == b.tree;
    let refused = pairs.iter().filter(|(_, a, b)| is_refused(a, b)).count();
    let (all, differing) = (pairs.len(), different.len());
    let prefixes = all.saturating_sub(explored);
    let same = all - differing - refused;
    let mut text = format!(
        "states of 1's log: {} of {}, and {prefixes} prefixes, mounted by both kernels: {} \
         recovered to the same, {differing} to others\n",
        all - prefixes,
        chosen.of,
        same,
    );
    if refused > 0 {
        text.push_str(&format!("  {refused} that both refuse to mount\n"));
    }
    for (state, what) in different.iter().take(SHOWN) {
        text.push_str(&format!("  state {}: {what}\n", name(state)));
    }
    text.push_str(&kept(explore, different.iter().map(|d| d.0), ran.bytes, out)?);
    let documents =
        different.iter().map(|(s, w)| json!({ "frame": s.frame, "lost": s.lost, "difference": w }));
    let document = json!({
        "of": chosen.of, "mounted": all, "prefixes": prefixes, "equal": same,
        "refused_by_both": refused, "differences": documents.collect::<Vec<_>>(),
    });
    // States that nobody mounts are not compared.
    Ok(Both { text, document, is_same: differing == 0 && same > 0 })
}

/// The first thing in which two kernels differ about a state. Messages of a check are of its run:
/// only whether it passes is compared.
fn difference(one: &Mounted, two: &Mounted) -> Option<String> {
    let (a, b) = match (&one.tree, &two.tree) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(a), Err(b)) if a == b => return None,
        (a, b) => {
            let said = |t: &Result<Tree, _>| match t {
                Ok(tree) => format!("{} files", tree.len()),
                Err(why) => format!("{why}"),
            };
            return Some(format!("1: {}; 2: {}", said(a), said(b)));
        }
    };
    let mut paths = a.keys().chain(b.keys());
    if let Some(path) = paths.find(|p| a.get(*p) != b.get(*p)) {
        let said =
            |words: Option<&String>| words.map_or("no file".to_owned(), |w| w.replace('\t', " "));
        return Some(format!("{path}: 1: {}; 2: {}", said(a.get(path)), said(b.get(path))));
    }
    if one.unreadable != two.unreadable {
        let said = |m: &Mounted| m.unreadable.first().cloned().unwrap_or("nothing".to_owned());
        return Some(format!("unreadable: 1: {}; 2: {}", said(one), said(two)));
    }
    let verdicts = [&one.verdict, &two.verdict];
    let bad = verdicts.map(|v| match v {
        Verdict::Bad(why) => Some(why),
        Verdict::Ok | Verdict::NotAsked => None,
    });
    match bad {
        [None, None] | [Some(_), Some(_)] => None,
        _ => {
            let said = bad.map(|b| b.map_or("ok".to_owned(), Clone::clone));
            let [one, two] = said;
            Some(format!("the check: 1: {one}; 2: {two}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use wp_parity::kernel_lab::Refused;

    use super::*;

    fn one(tree: Result<Tree, Refused>, verdict: Verdict) -> Mounted {
        Mounted { state: 0, tree, unreadable: Vec::new(), verdict, is_same: false }
    }

    #[test]
    fn what_two_kernels_make_of_a_state_is_compared_in_files_mounts_and_verdicts() {
        let tree = |words: &str| Ok(Tree::from([("a".to_owned(), words.to_owned())]));
        let (ok, bad) = (|| Verdict::Ok, |why: &str| Verdict::Bad(why.to_owned()));
        let said = |a: Mounted, b: Mounted| difference(&a, &b);
        assert_eq!(said(one(tree("f\t1"), ok()), one(tree("f\t1"), ok())), None);
        assert_eq!(
            said(one(tree("f\t1"), ok()), one(Ok(Tree::new()), ok())).as_deref(),
            Some("a: 1: f 1; 2: no file")
        );
        let refused = |n| Err(Refused::Errno(n));
        assert_eq!(said(one(refused(5), ok()), one(refused(5), ok())), None);
        assert_eq!(
            said(one(refused(5), ok()), one(tree("f"), ok())).as_deref(),
            Some("1: the mount fails: errno 5; 2: 1 files")
        );
        assert!(said(one(refused(5), ok()), one(refused(117), ok())).is_some());
        assert_eq!(
            said(one(tree("f"), bad("gone")), one(tree("f"), ok())).as_deref(),
            Some("the check: 1: gone; 2: ok")
        );
        assert_eq!(said(one(tree("f"), bad("x")), one(tree("f"), bad("y"))), None);
        let unread = Mounted { unreadable: vec!["b (errno 5)".to_owned()], ..one(tree("f"), ok()) };
        assert!(said(unread, one(tree("f"), ok())).is_some());
    }
}
