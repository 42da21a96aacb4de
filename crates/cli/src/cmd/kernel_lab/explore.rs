//! `kernel-lab --explore`: every crash state of what a real kernel has sent its drive.
//!
//! Picture:    log -> [`log::explore`], as of `crash log` -> some of the states, and those that
//!             failed -> the guest's kernel, which must find the same files.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wp_base::Sector;
use wp_base::plain::Shown as _;
use wp_campaign::{LogFile, LogState, sample_log};
use wp_machine::files::save;
use wp_machine::registry;
use wp_machine::spec::recoverable;
use wp_medium::log_order::{BEGIN, END};
use wp_parity::kernel_lab::{Mounted, Ran, StatesPlan, Tree, mount_states, tree_of};

use super::plan::{Explore, Program};
use super::{Session, scratch};
use crate::cmd::crash::log::{self, Beside, ExploreArgs, ExploredLog};
use crate::output::{Exit, Out};
use crate::outputs;
use crate::progress::Progress;

/// `--recover-as` of the guest's own kernel.
const KERNEL: &str = "kernel";
/// Differences that are printed.
const SHOWN: usize = 5;
/// Images that are kept.
const KEPT: usize = 4;
/// Least time that the states of a guest may take.
const LEAST: Duration = Duration::from_secs(600);

/// What is explored, and how.
type Asked<'a> = (&'a Program, &'a Explore, &'a ExploreArgs);

/// Explores the log at `path` of what a program did. Errors: the exit code, after saying why.
pub(super) fn run(
    session: &Session,
    asked: Asked<'_>,
    (ran, path): (&Ran, &Path),
    out: &Out,
) -> Result<ExitCode, ExitCode> {
    let (program, explore, states) = asked;
    let file = LogFile {
        path: path.to_owned(),
        base: None,
        bytes: Some(ran.bytes),
        from: Some(BEGIN.to_owned()),
        to: Some(END.to_owned()),
        acks: true,
        name: program.save_log.is_none().then(|| "FILE-OF---save-log".to_owned()),
    };
    let fs = &program.plan.fs;
    let is_ours = registry::FILE_SYSTEMS.iter().any(|e| e.name == fs);
    let recover_as = match (&explore.recover_as, is_ours) {
        (Some(given), _) if given != KERNEL => given.clone(),
        (None, true) => format!("{fs},era={}", release(&ran.kernel)),
        (Some(_), _) | (None, false) => {
            return super::kernel_states::run(session, asked, (ran, file), out);
        }
    };
    let mut then = |explored: &ExploredLog| beside(session, asked, (&recover_as, explored), out);
    log::explore(file, (&recover_as, explore.seed), states, &mut then, out)
}

/// The release of a kernel that says this of itself (`6.12.117-um`).
fn release(version: &str) -> &str {
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.');
    version.split_at(end.unwrap_or(version.len())).0
}

/// Has the guest's kernel mount some of the states. Errors: the exit code, after saying why.
fn beside(
    session: &Session,
    (program, explore, args): Asked<'_>,
    (recover_as, explored): (&str, &ExploredLog),
    out: &Out,
) -> Result<Beside, ExitCode> {
    let nothing = |text: &str| Beside {
        text: text.to_owned(),
        document: ("kernel", Value::Null),
        is_sound: true,
    };
    let Some(n) = explore.sample else { return Ok(nothing("")) };
    if explored.is_stopped {
        return Ok(nothing(
            "no state was mounted by the guest's kernel: the exploration was stopped\n",
        ));
    }
    let ExploredLog { run, states: (space, plan, seed), .. } = explored;
    let go_on = || !session.stop.load(Ordering::Relaxed);
    let chosen = (n, &explored.failures[..]);
    let sample = sample_log(run, (*space, plan, *seed), chosen, &go_on);
    let sample = sample.map_err(|e| out.machine_error(&e))?;
    let chosen = (&sample.states[..], args.limit(out)?);
    let mounted = mounted(session, program, None, chosen, out)?;
    let (entry, options) =
        recoverable(recover_as).map_err(|e| out.fail(Exit::Usage, "recover-as", &e, ""))?;
    let (mut differences, mut refused) = (Vec::new(), 0);
    for (state, kernel) in sample.states.iter().zip(&mounted) {
        let ours = tree_of((entry, &options), &state.medium, run.bytes());
        refused += usize::from(ours.is_err() && kernel.tree.is_err());
        differences.extend(difference(&ours, kernel).map(|what| (state, what)));
    }
    let (all, differing) = (mounted.len(), differences.len());
    let mut text = format!(
        "{all} of {} states mounted by the guest's kernel: {} recovered to the same files, {differing} \
         to others\n",
        sample.of,
        all - differing - refused
    );
    if refused > 0 {
        text.push_str(&format!("  {refused} that both refuse to mount\n"));
    }
    for (state, what) in differences.iter().take(SHOWN) {
        text.push_str(&format!("  state {}: {what}\n", name(state)));
    }
    let documents = differences.iter().map(
        |(state, what)| json!({ "frame": state.frame, "lost": state.lost, "difference": what }),
    );
    let document = json!({
        "mounted": all, "of": sample.of, "equal": all - differing - refused,
        "refused_by_both": refused,
        "differences": documents.collect::<Vec<_>>(),
    });
    // States of which none is mounted are not compared.
    let is_sound = differences.is_empty() && (all > 0 || sample.states.is_empty());
    text.push_str(&kept(explore, differences.iter().map(|d| d.0), run.bytes(), out)?);
    Ok(Beside { text, document: ("kernel", document), is_sound })
}

/// Writes images of the first of these states, if somebody wants them, and says where. Errors: the
/// host's, and that was told.
pub(super) fn kept<'s>(
    explore: &Explore,
    states: impl Iterator<Item = &'s LogState>,
    bytes: u64,
    out: &Out,
) -> Result<String, ExitCode> {
    let Some(folder) = &explore.keep else { return Ok(String::new()) };
    outputs::empty_folder(folder, out)?;
    let mut text = String::new();
    for state in states.take(KEPT) {
        let lost = state.lost.first().map_or(String::new(), |n| format!("-{n}"));
        let path = folder.join(format!("{}-{}{lost}.img", state.frame, state.lost.len()));
        let saved = save(&state.medium, Sector(0), bytes, &path);
        saved.map_err(|e| out.host_error(&path, &e))?;
        text.push_str(&format!("  image: {}\n", path.shown()));
    }
    Ok(text)
}

/// A state as `crash show` takes it, unless that is long.
pub(super) fn name(state: &LogState) -> String {
    /// Lost writes that are named.
    const NAMED: usize = 16;
    if state.lost.len() > NAMED {
        return format!("{} without {} writes", state.frame, state.lost.len());
    }
    let lost: Vec<String> = state.lost.iter().map(usize::to_string).collect();
    format!("{}:{}", state.frame, lost.join(","))
}

/// What the guest's kernel makes of some states, with `check` in the guest: of the first ones
/// alone, if `limit` is over before. Errors: the exit code, after saying why.
pub(super) fn mounted(
    session: &Session,
    program: &Program,
    check: Option<String>,
    (states, limit): (&[LogState], Option<Duration>),
    out: &Out,
) -> Result<Vec<Mounted>, ExitCode> {
    let plan = StatesPlan {
        fs: program.plan.fs.clone(),
        mount: program.plan.mount.clone(),
        device: program.plan.device.clone(),
        check,
        folders: program.plan.folders.clone(),
        limit: program.plan.limit.max(LEAST),
    };
    let scratch = scratch(out)?;
    let shown = Progress::new("kernel-lab");
    let all = states.len() as u64;
    #[expect(clippy::disallowed_methods, reason = "the budget is of the host")]
    let begun = Instant::now();
    let mut progress = |done: u64| {
        shown.at(done, all, "states mounted by the guest's kernel");
        session.stop.load(Ordering::Relaxed) || limit.is_some_and(|l| begun.elapsed() >= l)
    };
    let states = states.iter().map(|s| (s.medium.clone(), s.zones.clone(), s.acked.clone()));
    let states: Vec<_> = states.collect();
    let done = mount_states(&session.kernel, &plan, scratch.path(), &states, &mut progress);
    let done = done.map_err(|e| out.fail(Exit::Simulated, "guest", &e, ""))?;
    drop(shown);
    if done.len() < states.len() && !session.stop.load(Ordering::Relaxed) {
        let (n, all) = (done.len(), states.len());
        out.note(&format!("note: --budget is over: the kernel has mounted {n} of {all} states"));
    }
    Ok(done)
}

/// The first thing in which two recoveries differ.
fn difference(ours: &Result<Tree, String>, kernel: &Mounted) -> Option<String> {
    let (ours, linux) = match (ours, &kernel.tree) {
        (Ok(ours), Ok(linux)) => (ours, linux),
        (Err(_), Err(_)) => return None,
        (Err(why), Ok(_)) => return Some(format!("Writepath refuses the mount: {why}")),
        (Ok(_), Err(why)) => return Some(format!("a tree of Writepath; {why}")),
    };
    if let Some(file) = kernel.unreadable.first() {
        return Some(format!("the kernel cannot read {file}"));
    }
    let mut paths = ours.keys().chain(linux.keys());
    let path = paths.find(|p| ours.get(*p) != linux.get(*p))?;
    let said =
        |words: Option<&String>| words.map_or("no file".to_owned(), |w| w.replace('\t', " "));
    let (here, there) = (said(ours.get(path)), said(linux.get(path)));
    Some(format!("{path}: {here} of Writepath, {there} of the kernel"))
}
