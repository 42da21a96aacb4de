//! `list eras`: kernel versions, what people call them, and the rules of each.

use std::fmt::Write;

use serde_json::{Value, json};
use wp_base::era::Policy;
use wp_campaign::bugs;
use wp_machine::registry;
use wp_vfs::{Base, DISTRIBUTIONS, Distribution, EraRule, FsEntry, Version, era_rules};

use crate::output::stderr;

/// Without a version the versions that there are; with one its rules. `None`: it is none.
pub(super) fn list(version: Option<&str>) -> Option<(Value, String)> {
    match version {
        None => Some(versions()),
        Some(v) => Version::parse(v).map(|_| rules(v)),
    }
}

/// Tells what the user of an era should know of it, if there is something.
pub(super) fn tell(fs: &FsEntry, era: &str) {
    if let Some(note) = fs.era_note(era) {
        stderr(format_args!("note: {note}\n"));
    }
}

/// What every file system of a kernel stands on, with its rules.
static PARTS: [(&str, &[Policy]); 3] = [
    ("jbd2", wp_jbd2::POLICIES),
    ("page cache", wp_cache::POLICIES),
    ("block", wp_block::POLICIES),
];

const LINE: &str = "a string takes it";

fn versions() -> (Value, String) {
    let mut text = String::from("File systems, and the Linux versions whose rules each has:\n");
    let mut all = Vec::new();
    for f in registry::FILE_SYSTEMS {
        let [oldest, newest] = f.kernels;
        let held = f.held.join(", ");
        let runs = match f.runs_since == oldest {
            true => String::new(),
            false => format!(" (without power failures from {})", f.runs_since),
        };
        writeln!(text, "  {:<8} {oldest} to {newest}{runs}; compared with: {held}", f.name)
            .expect(LINE);
        all.push(json!({
            "fs": f.name, "oldest": oldest, "newest": newest, "runs_since": f.runs_since,
            "compared": f.held,
        }));
    }
    for f in registry::FILE_SYSTEMS.iter().filter(|f| f.next.is_some()) {
        let rests_on = f.next.unwrap_or_default();
        writeln!(text, "\nera=next of {}: {rests_on}.", f.name).expect(LINE);
        all.push(json!({ "fs": f.name, "era": Version::NEXT, "rests_on": rests_on }));
    }
    text.push_str("\nDistributions (era=NAME), each with the kernel that it stands for:\n");
    for d in DISTRIBUTIONS {
        let own = d.base == Base::Own;
        let more = if own { " and fixes of its own, which are not modelled" } else { "" };
        writeln!(text, "  {:<18} {}{more}", d.name, d.kernel).expect(LINE);
        all.push(json!({
            "distribution": d.name, "kernel": d.kernel.to_string(), "follows_stable": !own,
        }));
    }
    text.push_str(
        "\n`writepath list eras VERSION` lists the rules of a version or distribution.\n",
    );
    (json!(all), text)
}

fn rules(version: &str) -> (Value, String) {
    let mut text = String::new();
    let mut all = Vec::new();
    if let Some(d) = Distribution::find(version) {
        let own = d.base == Base::Own;
        let more = if own { ", without the fixes that it took over itself" } else { "" };
        writeln!(text, "{version}: Linux {}{more}\n", d.kernel).expect(LINE);
    }
    for f in registry::FILE_SYSTEMS.iter().filter(|_| version == Version::NEXT) {
        if let Some(rests_on) = f.next {
            writeln!(text, "next of {}: {rests_on}\n", f.name).expect(LINE);
        }
    }
    for f in registry::FILE_SYSTEMS {
        all.push(of_fs(f, version, &mut text));
    }
    for (part, policies) in PARTS {
        all.push(of_part(part, policies, version, &mut text));
    }
    text.push_str(
        "FROM..UNTIL: the rule holds from version FROM on and before version UNTIL.\n\
         Releases in brackets have the change too, each in its stable series.\n\
         + the rule holds in this version, - it does not. V: `writepath crash bug V`.\n",
    );
    (json!(all), text)
}

fn of_fs(f: &FsEntry, version: &str, text: &mut String) -> Value {
    let rules = (f.eras)(version);
    let Some(rules) = rules.filter(|_| f.check_run(version).is_ok()) else {
        writeln!(text, "{} in {version}: not modelled", f.name).expect(LINE);
        return json!({ "fs": f.name, "version": version, "is_modelled": false, "rules": [] });
    };
    let known = f.has_evidence(version);
    let mark = match (f.check_era(version).is_ok(), known) {
        (false, _) => " (without power failures)",
        (true, false) => " (not validated against a real kernel)",
        (true, true) => "",
    };
    writeln!(text, "{} in {version}{mark}", f.name).expect(LINE);
    let list: Vec<Value> = rules.iter().map(|r| rule(r, text)).collect();
    json!({
        "fs": f.name, "version": version, "is_modelled": true, "has_evidence": known,
        "rules": list,
    })
}

/// The rules of the journal or of the block layer, which every version has.
fn of_part(part: &str, policies: &[Policy], version: &str, text: &mut String) -> Value {
    writeln!(text, "{part} in {version}").expect(LINE);
    let all = Version::parse(version).map(|v| era_rules(policies, v)).unwrap_or_default();
    let list: Vec<Value> = all.iter().map(|r| rule(r, text)).collect();
    json!({ "part": part, "version": version, "rules": list })
}

fn rule(r: &EraRule, text: &mut String) -> Value {
    let mark = if r.holds { '+' } else { '-' };
    let bug = bugs::all().find(|b| b.rule_name == Some(r.name)).map(|b| b.id);
    let range = format!("{}..{}", r.from, r.until);
    write!(text, "  {mark} {:<30} {range:<16} {}", r.name, r.commit).expect(LINE);
    if !r.backports.is_empty() {
        write!(text, " [{}]", r.backports.join(", ")).expect(LINE);
    }
    if let Some(id) = bug {
        write!(text, " ({id})").expect(LINE);
    }
    text.push('\n');
    json!({
        "name": r.name, "holds": r.holds, "what": r.what, "commit": r.commit, "from": r.from,
        "until": r.until, "backports": r.backports, "bug": bug,
    })
}
