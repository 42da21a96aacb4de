//! SIGINT, SIGTERM and SIGHUP.
//!
//! Laws:       1. the first one asks long work to stop, where the verb has asked for
//!                [`flag`]; what is done is kept. Otherwise, and always the second time, the
//!                program ends at once;
//!             2. work that is kept in parts ([`flag_in_parts`]) has [`GRACE`] to stop; then what
//!                is under way is given up;
//!             3. however it ends, nothing of `wp_machine::host::leftover` stays: temporary files,
//!                scratch directories, processes, mounts, loop devices, sockets;
//!             4. the exit code is 128 + the number of the first signal;
//!             5. a SIGHUP that is ignored when the program starts (nohup) stays ignored.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use wp_machine::host::leftover;

use crate::output::{Exit, Out, stderr};

/// The first signal; 0: none.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// Set by the first signal, if a verb has asked for it.
static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Is what the verb has done on disk already, whenever it is ended?
static IN_PARTS: AtomicBool = AtomicBool::new(false);

/// How long work that is kept in parts may go on after the first signal; its processes (a guest)
/// have half of it.
const GRACE: Duration = Duration::from_millis(1200);

/// Takes the signals from now on. Errors: the host's; then each ends the program at once.
pub fn install() -> std::io::Result<()> {
    let wanted: &[i32] = match hangup_is_ignored() {
        true => &[SIGINT, SIGTERM],
        false => &[SIGINT, SIGTERM, SIGHUP],
    };
    let mut signals = Signals::new(wanted)?;
    let listen = move || signals.forever().for_each(take);
    std::thread::Builder::new().name("signals".to_owned()).spawn(listen).map(drop)
}

fn take(signal: i32) {
    // The exit code is that of the first.
    let _ = FIRST.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
    match FLAG.get() {
        Some(flag) if !flag.load(Ordering::SeqCst) => {
            // Before the work hears of it: it may stop, and the program end, before a thread that
            // says so has its turn.
            in_time("notice", || {
                stderr(format_args!(
                    "\nstopping after the current step; a second signal stops at once\n"
                ));
            });
            flag.store(true, Ordering::SeqCst);
            if IN_PARTS.load(Ordering::SeqCst) {
                // If it cannot be had, the second signal ends the program.
                drop(std::thread::Builder::new().name("grace".to_owned()).spawn(give_up));
            }
        }
        _ => end("the command ended at once", ""),
    }
}

/// Ends the program after [`GRACE`], unless its answer is being written.
fn give_up() {
    std::thread::sleep(GRACE / 2);
    leftover::end_processes();
    std::thread::sleep(GRACE / 2);
    if !Out::is_answered() {
        end(
            "unfinished work is discarded, finished work is kept",
            "run the same command to continue",
        );
    }
}

/// Ends the program now.
fn end(what: &str, help: &'static str) {
    leftover::end_all();
    answer(format!("interrupted: {what}"), help);
    std::process::exit(i32::from(exit_code()));
}

/// How long words may take: whoever reads them may have stopped reading.
const WORDS: Duration = Duration::from_millis(300);

/// Has something said, and waits for it, but no longer than [`WORDS`].
fn in_time(name: &str, say: impl FnOnce() + Send + 'static) {
    let (said, wait) = std::sync::mpsc::channel();
    let say = move || {
        say();
        // Who waits has a limit, and may be gone.
        let _ = said.send(());
    };
    if std::thread::Builder::new().name(name.to_owned()).spawn(say).is_ok() {
        let _ = wait.recv_timeout(WORDS);
    }
}

/// Says that the command was ended, as one document with `--json`, if it has not answered.
fn answer(what: String, help: &'static str) {
    if Out::is_answered() {
        return;
    }
    // Another thread: the one that was interrupted may hold stdout.
    in_time("last words", move || {
        let out = Out::of_this_process();
        out.fail(Exit::Interrupted, "interrupted", &what, help);
    });
}

/// Has a signal come?
pub fn has_come() -> bool {
    FIRST.load(Ordering::SeqCst) != 0
}

/// A flag that the first signal sets.
pub fn flag() -> Arc<AtomicBool> {
    FLAG.get_or_init(Arc::default).clone()
}

/// As [`flag`], for work of which every part that is done is on disk, whole, or of which nothing
/// is kept. It need not look at the flag in time: one part may take longer than anybody waits.
pub fn flag_in_parts() -> Arc<AtomicBool> {
    IN_PARTS.store(true, Ordering::SeqCst);
    flag()
}

/// The exit code of interrupted work: 130 (SIGINT), 143 (SIGTERM) or 129 (SIGHUP).
pub fn exit_code() -> u8 {
    let signal = match FIRST.load(Ordering::SeqCst) {
        0 => SIGINT,
        signal => signal,
    };
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Does the program that has started this one want hang-ups to be ignored?
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok());
    mask.is_some_and(|m| m & 1 << (SIGHUP - 1) != 0)
}
