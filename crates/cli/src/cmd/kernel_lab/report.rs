//! What `kernel-lab` says of a campaign.

use std::process::ExitCode;

use serde_json::{Value, json};
use wp_parity::kernel_lab::{CutBy, Cycle, Outcome, Report};

use super::plan::Campaign;
use crate::output::{Exit, Out};

/// A cycle in a line.
fn line(c: &Cycle, unit: &str) -> String {
    let ours = match c.ours.as_ref().map(|o| &o.outcome) {
        Some(Outcome::Refused(why)) if c.differs() => {
            format!("; Writepath refuses the mount: {why}")
        }
        Some(Outcome::Files(_)) if c.differs() => "; Writepath recovers other files".to_owned(),
        _ => String::new(),
    };
    let early = match c.early {
        Some(n) if c.lost > 0 => format!(" ({n} early)"),
        _ => String::new(),
    };
    format!(
        "power failure {} after {} {unit}: {} of {} unpersisted writes kept, {} zones rolled back; mount \
         {}, lost {}{early}, garbage {}, unreadable {}{ours}\n",
        c.cycle,
        c.into,
        c.kept,
        c.in_doubt,
        c.zones_back,
        c.mount_error,
        c.lost,
        c.garbage,
        c.unreadable
    )
}

/// How losses and crash points are drawn, and whose CPU it is if that costs something.
pub(super) fn drawn(c: &Campaign) -> String {
    let plan = &c.plan;
    let cpu = match plan.cpu.name {
        "free" => String::new(),
        name => format!(", CPU of {name}"),
    };
    format!("--loss {}, --cut {}, --seed {}{cpu}", plan.loss.name(), plan.cut.name(), plan.seed)
}

/// What power failures that were stopped, or not, come to.
pub(super) fn exit(is_stopped: bool, is_sound: bool) -> Exit {
    match (is_stopped, is_sound) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Ok,
        (false, false) => Exit::No,
    }
}

/// Prints one campaign.
pub(super) fn print(c: &Campaign, report: &Report, out: &Out) -> ExitCode {
    let plan = &c.plan;
    let mount = if plan.mount.is_empty() { String::new() } else { format!(",{}", plan.mount) };
    let mut text =
        format!("Linux {} {}{mount} on {}, {}\n", report.kernel, plan.fs, c.device, drawn(c));
    let unit = match plan.cut {
        CutBy::Time => "ns",
        CutBy::Change => "changes",
        CutBy::Event => "events",
    };
    text.push_str(&report.table());
    for cycle in report.cycles.iter().filter(|r| c.all || !r.is_sound() || r.differs()) {
        text.push_str(&line(cycle, unit));
    }
    out.answer(exit(report.stopped, report.is_sound()), &document(c, report), &text)
}

/// A campaign as JSON.
pub(super) fn document(c: &Campaign, report: &Report) -> Value {
    let plan = &c.plan;
    json!({
        "schema": "writepath.kernel-lab/1",
        "fs": plan.fs, "mount": plan.mount, "device": c.device, "loss": plan.loss.name(),
        "cut": plan.cut.name(), "jobs": plan.jobs, "direct": plan.direct, "sync": plan.sync,
        "cpu": plan.cpu.name, "seed": plan.seed,
        "fsync_mean_ns": report.fsync_mean_ns(),
        "ours_fsync_mean_ns": report.ours_fsyncs.map(|ours| ours.mean_ns()),
        "lost": report.count(|c| c.lost > 0),
        "lost_early": report.early(),
        "garbage": report.count(|c| c.garbage > 0),
        "unreadable": report.count(|c| c.unreadable > 0),
        "mount_failed": report.count(|c| c.mount_error > 0),
        "oprw_garbage": report.oprw_garbage(),
        "ours_otherwise": report.otherwise(),
        "report": report,
    })
}
