//! `kernel-lab --compare`: the same program on two kernels, request by request, and with
//! `--explore` state by state.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use wp_base::plain::Shown as _;
use wp_parity::kernel_lab::{Compared, Kernel, Ran};

use super::plan::{Other, Program};
use super::program::ran;
use super::{Session, both};
use crate::cmd::crash::log::ExploreArgs;
use crate::output::{Exit, Out, path as path_value};

/// Runs the program twice, and says in what the runs differ.
pub(super) fn run(
    session: &Session,
    (asked, states): (&Program, &ExploreArgs),
    other: &Other,
    out: &Out,
) -> Result<ExitCode, ExitCode> {
    let binary = other.kernel.as_deref().unwrap_or(&session.kernel.binary);
    let second = with_kernel(session, binary, out)?;
    let here = ran(session, asked, out)?;
    let mut plan = asked.plan.clone();
    plan.mount = other.mount.clone().unwrap_or(plan.mount);
    let twin = Program { plan, trace: None, ..asked.clone() };
    let there = ran(&second, &twin, out)?;
    let both = match &asked.explore {
        Some(explore) => {
            let sides = [(session, asked), (&second, &twin)];
            Some(both::compared(sides, (explore, states), &here, out)?)
        }
        None => None,
    };
    let compared = Compared::of([&here, &there]);
    let mounts = [&asked.plan.mount, other.mount.as_ref().unwrap_or(&asked.plan.mount)];
    let side = |n: usize, ran: &Ran| {
        let mount = if mounts[n].is_empty() { String::new() } else { format!(",{}", mounts[n]) };
        format!(
            "{}: Linux {} {}{mount}: exit {}, {} acknowledgements, ended at {} ns; {} writes of {} \
             bytes, {} FLUSHes\n",
            n + 1,
            ran.kernel,
            asked.plan.fs,
            ran.code,
            ran.acks.len(),
            ran.ended_ns,
            compared.writes[n],
            compared.bytes[n],
            compared.flushes[n],
        )
    };
    let mut text =
        format!("{} on {}\n{}{}", asked.line, asked.device, side(0, &here), side(1, &there));
    let mut is_same = compared.is_same() && here.code == there.code && here.acks == there.acks;
    text.push_str(&difference(&compared));
    if here.acks != there.acks {
        text.push_str("the acknowledgements differ\n");
    }
    if let Some(both) = &both {
        text.push_str(&both.text);
        is_same &= both.is_same;
    }
    let ended = [&here, &there].map(|ran| {
        json!({
            "kernel": ran.kernel, "exit": ran.code, "acknowledged": ran.acks.len(),
            "ended_ns": ran.ended_ns,
        })
    });
    let document = json!({
        "schema": "writepath.kernel-lab-compare/1", "fs": asked.plan.fs, "mounts": mounts,
        "device": asked.device, "command": asked.line,
        "kernels": [path_value(&session.kernel.binary), path_value(binary)],
        "runs": ended, "same": is_same, "compared": compared,
        "states": both.map(|both| both.document),
        "requests": compared.requests.iter().sum::<usize>(),
    });
    out.note(&format!("kernels: {}, {}", session.kernel.binary.shown(), binary.shown()));
    Ok(out.answer(if is_same { Exit::Ok } else { Exit::No }, &document, &text))
}

/// The same guest with another kernel. Errors: it is none, and that was told.
fn with_kernel<'a>(
    session: &Session<'_>,
    binary: &Path,
    out: &'a Out,
) -> Result<Session<'a>, ExitCode> {
    let kernel = Kernel::find(Some(binary), Some(&session.kernel.root));
    let kernel = kernel.map_err(|e| {
        out.fail(Exit::Unsupported, "guest", &e, "--compare names a User-Mode Linux kernel")
    })?;
    let kernel = Kernel { memory_mib: session.kernel.memory_mib, ..kernel };
    Ok(Session { kernel, out, stop: session.stop.clone() })
}

/// In what the requests differ, in lines.
fn difference(c: &Compared) -> String {
    let [here, there] = c.requests;
    let mut text = match (&c.first, c.other_contents) {
        (None, 0) => format!("the same {here} requests with the same contents\n"),
        (None, _) => format!("the same {here} requests\n"),
        _ => format!("requests: {here} and {there}; the first {} are the same\n", c.same),
    };
    if c.other_contents > 0 {
        text.push_str(&format!("{} of those write other contents\n", c.other_contents));
    }
    if let Some([a, b]) = &c.first {
        let end = || "the end".to_owned();
        text.push_str(&format!(
            "request {}: 1: {}; 2: {}\n",
            c.same,
            a.clone().unwrap_or_else(end),
            b.clone().unwrap_or_else(end)
        ));
    }
    text
}
