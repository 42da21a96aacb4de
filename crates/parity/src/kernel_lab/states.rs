//! States of a drive that a guest's kernel recovers, one after the other in one boot.
//!
//! Picture:    states -> drive, which holds the next one when the guest asks -> mount, files, check
//!             (`states.c`) -> [`Mounted`] of each.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use wp_base::Zone;
use wp_machine::make_device;
use wp_machine::profile::PROFILES;
use wp_medium::Medium;
use wp_serve::drive::Drive;
use wp_serve::drive::freeze::Loss;

use super::program::{exports, place, words};
use super::session::{self, Share};
use super::tree::{self, Tree};
use super::{Kernel, quoted};

/// The program in the guest.
const STATES_C: &str = include_str!("states.c");

/// How states are mounted.
#[derive(Clone, Debug)]
pub struct StatesPlan {
    /// File system, as `mount -t` has it.
    pub fs: String,
    /// Options of its mount, joined by commas.
    pub mount: String,
    /// The device: preset and replaced parameters.
    pub device: (String, Vec<(String, u64)>),
    /// Shell command that judges each tree, in the guest.
    pub check: Option<String>,
    /// Folders of the host that the command needs, wherever they are; those above others first.
    pub folders: Vec<PathBuf>,
    /// Wall-clock time that the guest may take.
    pub limit: Duration,
}

/// What a check has said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It passes.
    Ok,
    /// It does not; why.
    Bad(String),
    /// Nobody asked it.
    NotAsked,
}

/// Why a kernel has no files for a state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The mount fails with this error number.
    Errno(i32),
    /// The kernel panics; what it says first.
    Panic(String),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Errno(n) => write!(f, "the mount fails: errno {n}"),
            Refused::Panic(said) => write!(f, "the kernel panics: {said}"),
        }
    }
}

/// What the kernel has made of a state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mounted {
    /// Number of the state.
    pub state: u64,
    /// Its files, or why there are none.
    pub tree: Result<Tree, Refused>,
    /// Files that cannot be read, each with its error number.
    pub unreadable: Vec<String>,
    /// What the check says of it.
    pub verdict: Verdict,
    /// Did an earlier state have the same files and acknowledgements? Known since the last boot.
    pub is_same: bool,
}

/// A state, as a guest gets it: the device, its zones, what had been acknowledged by then.
type State = (Medium, Vec<Zone>, Vec<u8>);

/// Mounts states in a guest of `kernel`, with `scratch` for what they share; each with what had
/// been acknowledged by then. A kernel that panics at a state is booted again for the next one.
/// `progress` is told how many are done, and says whether to stop: what was done by then is the
/// answer.
///
/// Errors: a guest that does not start or end, or takes too long; the host's.
pub fn mount_states(
    kernel: &Kernel,
    plan: &StatesPlan,
    scratch: &Path,
    states: &[State],
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Vec<Mounted>, String> {
    #[expect(clippy::disallowed_methods, reason = "a kernel that does not come back is ended")]
    let start = Instant::now();
    let mut late = false;
    let mut all: Vec<Mounted> = Vec::new();
    while let Some(rest) = states.get(all.len()..).filter(|s| !s.is_empty() || all.is_empty()) {
        let mut stop = |done: u64| {
            late |= start.elapsed() > plan.limit;
            late || progress(done)
        };
        let (mounted, is_over) = boot(kernel, plan, scratch, (all.len() as u64, rest), &mut stop)?;
        all.extend(mounted);
        if late {
            return Err(format!(
                "{} states were not mounted in {} s of wall-clock time",
                all.len(),
                plan.limit.as_secs_f64()
            ));
        }
        if is_over {
            break;
        }
    }
    Ok(all)
}

/// One boot with the states from number `first` on. The answer: what became of them, and whether
/// that is all: it is not where the kernel has panicked at the last of them.
///
/// Errors: as of [`mount_states`].
fn boot(
    kernel: &Kernel,
    plan: &StatesPlan,
    scratch: &Path,
    (first, states): (u64, &[State]),
    stop: &mut dyn FnMut(u64) -> bool,
) -> Result<(Vec<Mounted>, bool), String> {
    let (name, params) = &plan.device;
    let model = make_device(name, params).map_err(|e| e.to_string())?;
    let share = Share::new(scratch)?;
    share.compile_with_host("states", STATES_C)?;
    share.write(
        "run.sh",
        format!(
            "cp /share/states /run/states; chmod +x /run/states; uname -r > /share/version\n\
             {}/run/states /dev/vda /dev/vdb {} {} {} {} {} > /share/trees 2> /share/err\n",
            exports(),
            quoted(&plan.fs),
            quoted(&plan.mount),
            place(&plan.folders)?,
            quoted(plan.check.as_deref().unwrap_or_default()),
            words(&plan.folders),
        )
        .as_bytes(),
    )?;
    for (n, (_, _, acked)) in (first..).zip(states).filter(|(_, s)| !s.2.is_empty()) {
        share.write(&format!("acked-{n}"), acked)?;
    }
    let mut drive = Drive::new(name, model, Loss::Model);
    let done = std::rc::Rc::new(std::cell::Cell::new(first));
    let counted = done.clone();
    // A medium shares what it has with its copy.
    let mut rest = (first..).zip(states.to_vec());
    drive.supply(Box::new(move || {
        let (n, (medium, zones, _)) = rest.next()?;
        counted.set(n);
        Some((n, medium, zones))
    }));
    let mut stop = || stop(done.get());
    let ended = session::serve(kernel, &share, drive, &PROFILES[0], &mut stop)?;
    let mut mounted = parse(&share.read("trees"))?;
    if share.is_whole() {
        return Ok((mounted, true));
    }
    if ended.stopped {
        // Some files of the state at which it was stopped may be missing.
        mounted.pop();
        return Ok((mounted, true));
    }
    match (share.panic(), mounted.last_mut()) {
        (Some(said), Some(last)) => last.tree = Err(Refused::Panic(said)),
        _ => return Err(share.failure()),
    }
    Ok((mounted, false))
}

/// Of the guest's lines. A state whose verdict is missing is one at which it was stopped. Errors: a
/// line that is none of its.
fn parse(text: &str) -> Result<Vec<Mounted>, String> {
    let mut all: Vec<Mounted> = Vec::new();
    // What was checked, in order.
    let mut verdicts: Vec<Verdict> = Vec::new();
    for line in text.split_inclusive('\n').filter_map(|l| l.strip_suffix('\n')) {
        let wrong = || format!("`{line}` is not a line of a tree");
        let fields: Vec<&str> = line.split('\t').collect();
        if let ["state", number] = fields[..] {
            all.push(Mounted {
                state: number.parse().map_err(|_| wrong())?,
                tree: Ok(Tree::new()),
                unreadable: Vec::new(),
                verdict: Verdict::NotAsked,
                is_same: false,
            });
            continue;
        }
        let now = all.last_mut().ok_or_else(wrong)?;
        match &fields[..] {
            ["refused", error] => {
                now.tree = Err(Refused::Errno(error.parse().map_err(|_| wrong())?));
            }
            ["unreadable", error, path] => now.unreadable.push(format!("{path} (errno {error})")),
            ["ok"] => now.verdict = Verdict::Ok,
            ["bad", why] => now.verdict = Verdict::Bad((*why).to_owned()),
            ["same", number] => {
                let earlier = number.parse::<usize>().ok().and_then(|n| verdicts.get(n));
                now.verdict = earlier.cloned().ok_or_else(wrong)?;
                now.is_same = true;
                continue;
            }
            ["file", rest @ ..] => {
                let (path, words) = tree::listed(rest).ok_or_else(wrong)?;
                now.tree.as_mut().map_err(|_| wrong())?.insert(path, words);
            }
            _ => return Err(wrong()),
        }
        if matches!(fields[..], ["ok"] | ["bad", _]) {
            verdicts.push(now.verdict.clone());
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_and_verdicts_are_read_and_a_line_that_is_none_is_an_error() {
        let file = "file\tf\t644\t0\t0\t1\t5\t1.000000002\t00000000000000ab\td/a\\011b\t\n";
        let text = format!(
            "state\t0\n{file}ok\nstate\t1\nrefused\t117\nstate\t2\nunreadable\t5\tx\nbad\tgone\n\
             state\t3\n{file}same\t0\nstate\t4\nsame\t1\nstate\t5"
        );
        let all = parse(&text).expect("lines of a guest");
        assert_eq!(all.len(), 5, "half a line is none");
        let words = "f\t644\t0\t0\t1\t5\t1.000000002\t00000000000000ab\t";
        let tree = Tree::from([("d/a\\011b".to_owned(), words.to_owned())]);
        assert_eq!((&all[0].tree, &all[0].verdict), (&Ok(tree.clone()), &Verdict::Ok));
        assert_eq!(
            (&all[1].tree, &all[1].verdict),
            (&Err(Refused::Errno(117)), &Verdict::NotAsked)
        );
        assert_eq!(all[2].unreadable, ["x (errno 5)"]);
        assert_eq!((&all[3].verdict, all[3].is_same), (&Verdict::Ok, true));
        assert_eq!(all[4].verdict, Verdict::Bad("gone".to_owned()));
        for wrong in ["ok\n", "state\tx\n", "state\t0\nfile\tf\n", "state\t0\nsame\t0\n"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
