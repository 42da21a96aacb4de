//! `list`.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use serde_json::{Value, json};
use wp_device::{DeviceEntry, Param};
use wp_machine::device_file;
use wp_machine::profile;
use wp_machine::registry;
use wp_papers::claims::{Claims, Pins};
use wp_report::claim::PaperValue;
use wp_trace::Format;
use wp_vfs::OptionSpec;
use wp_workload::program::{SYNTAX, Syntax};

use crate::output::{Exit, Out};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Lists:\n\
    \x20 fs          file systems and their options\n\
    \x20 devices     device presets, each parameter with its source\n\
    \x20 elevators   I/O schedulers\n\
    \x20 workloads   workloads and their options\n\
    \x20 formats     trace formats that replay and compare read, their units\n\
    \x20 cpus        CPU cost profiles\n\
    \x20 calls       lines of programs that `crash` runs: system calls and steps\n\
    \x20 eras        kernel versions and distributions, with the rules of each\n\
    \x20 durability  kernel changes of what survives a power failure, modelled or not\n\
    \x20 techniques  mechanisms that `matrix` compares\n\
    \x20 sites       crash-safety points, which `crash mutate` leaves out\n\
    \x20 papers      reproduced papers\n\
    \x20 claims      claims of the papers, with the pinned verdict of each\n\
    \x20 results     saved results\n\
    \x20 verbs       commands: options, exit codes, what exit code 0 requires\n\
    \n\
    Examples:\n\
    \x20 writepath list fs ext4\n\
    \x20 writepath list devices my.toml\n\
    \x20 writepath list eras debian-12\n\
    \x20 writepath list verbs --json")]
pub struct Args {
    /// Name of the list: one of those below
    #[arg(value_name = "LIST")]
    what: String,
    /// One entry: a name, paper, kernel version, folder or device file
    ///
    /// fs, elevators, workloads, formats, cpus, papers, techniques, calls, verbs: a name.
    /// durability: a file system. devices: a preset or a file of your own (my.toml). claims: a
    /// paper. sites: the beginning of a name. eras: a kernel version or distribution. results: a
    /// folder.
    name: Option<String>,
}

/// Runs the verb. `program`: what clap knows of all verbs.
pub fn run(a: &Args, program: &Command, out: &Out) -> ExitCode {
    let name = a.name.as_deref();
    let listed = match a.what.as_str() {
        "fs" => fs(name),
        "devices" => match devices(name) {
            Ok(l) => l,
            Err(e) => return out.fail(Exit::Usage, "device", &e, "writepath list devices"),
        },
        "elevators" => elevators(name),
        "workloads" => workloads(name),
        "formats" => formats(name),
        "papers" => papers(name),
        "claims" => claims(name),
        "eras" => match super::eras::list(name) {
            Some(l) => l,
            None => {
                let v = name.unwrap_or_default();
                let message = format!("`{v}` is neither a kernel version nor a distribution");
                let help = "write 3.4, 4.6.2, debian-12; `writepath list eras` lists them";
                return out.fail(Exit::Usage, "version", &message, help);
            }
        },
        "durability" => super::durability::list(name),
        "calls" => calls(name),
        "cpus" => cpus(name),
        "techniques" => super::techniques::list(name),
        "sites" => super::crash::mutate::list(name),
        "verbs" => super::verbs::list(program, name),
        "results" => match super::clean::list(Path::new(name.unwrap_or("results")), out) {
            Ok(l) => l,
            Err(code) => return code,
        },
        other => {
            return out.fail(
                Exit::Usage,
                "what",
                &format!("no list is named `{other}`"),
                "fs, devices, elevators, workloads, formats, papers, claims, techniques, eras, durability, \
                 calls, cpus, sites, results, verbs",
            );
        }
    };
    if listed.1.is_empty() {
        let (what, name) = (&a.what, name.unwrap_or_default());
        let message = format!("`{name}` is not in the list of {what}");
        return out.fail(Exit::Usage, "name", &message, &format!("see `writepath list {what}`"));
    }
    let count = listed.0.as_array().map_or(0, Vec::len);
    let doc = json!({ "schema": "writepath.list/1", "count": count, a.what.as_str(): listed.0 });
    out.result(&doc, &listed.1)
}

/// Lines of programs.
fn calls(name: Option<&str>) -> (Value, String) {
    let named = |s: &&Syntax| is_wanted(name, s.form.split(' ').next().unwrap_or_default());
    let all: Vec<&Syntax> = SYNTAX.iter().filter(named).collect();
    let width = all.iter().map(|s| s.form.len()).max().unwrap_or(0);
    let mut text = String::new();
    for s in &all {
        writeln!(text, "{:<width$}  {}", s.form, s.what).expect("a string takes it");
    }
    let rows = all.iter().map(|s| json!({ "form": s.form, "example": s.example, "what": s.what }));
    (rows.collect(), text)
}

/// Is an entry of this name wanted?
fn is_wanted(wanted: Option<&str>, name: &str) -> bool {
    wanted.is_none_or(|w| w == name)
}

fn options(specs: &[OptionSpec], text: &mut String) -> Value {
    for s in specs {
        let default =
            if s.default.is_empty() { String::new() } else { format!(" [{}]", s.default) };
        writeln!(text, "    {:<18} {}{default}", s.key, s.help).expect("a string takes it");
    }
    specs
        .iter()
        .map(|s| {
            let when = format!("{:?}", s.when).to_lowercase();
            json!({ "key": s.key, "when": when, "default": s.default, "help": s.help })
        })
        .collect()
}

fn fs(name: Option<&str>) -> (Value, String) {
    let mut text = String::new();
    let all = registry::FILE_SYSTEMS
        .iter()
        .chain([&registry::NONE])
        .filter(|f| is_wanted(name, f.name))
        .map(|f| {
            writeln!(text, "{:<10} {}", f.name, f.about).expect("a string takes it");
            json!({ "name": f.name, "about": f.about, "options": options(f.options, &mut text) })
        })
        .collect();
    (all, text)
}

fn workloads(name: Option<&str>) -> (Value, String) {
    let mut text = String::new();
    let all = registry::WORKLOADS
        .iter()
        .filter(|w| is_wanted(name, w.name))
        .map(|w| {
            writeln!(text, "{:<12} {}", w.name, w.about).expect("a string takes it");
            json!({ "name": w.name, "about": w.about, "options": options(w.options, &mut text) })
        })
        .collect();
    (all, text)
}

/// Formats of block traces. Those that are made of columns have a description of them.
fn formats(name: Option<&str>) -> (Value, String) {
    let mut text = String::new();
    let mut all = Vec::new();
    for f in Format::ALL.into_iter().filter(|f| is_wanted(name, f.name())) {
        let units = f.units();
        writeln!(text, "{:<13} {}", f.name(), f.what()).expect("a string takes it");
        writeln!(text, "{:<13} units: {units}", "").expect("a string takes it");
        if let Some(columns) = f.columns() {
            writeln!(text, "{:<13} columns: {columns}", "").expect("a string takes it");
        }
        all.push(json!({
            "name": f.name(), "about": f.what(), "units": units, "columns": f.columns(),
        }));
    }
    (json!(all), text)
}

/// All devices, or that of a name or file. Errors: there is none.
fn devices(which: Option<&str>) -> Result<(Value, String), String> {
    let mut text = String::new();
    let Some(which) = which else {
        let all = registry::DEVICES
            .iter()
            .map(|d| device(&mut text, d.name, d.about, &parameters(d)))
            .collect();
        return Ok((all, text));
    };
    if let Some(path) = device_file::path_of(which) {
        let file = device_file::read(path)?;
        let mut params = parameters(file.base);
        for n in &file.numbers {
            if let Some(p) = params.iter_mut().find(|p| p.0.name == n.key) {
                *p = (Param { value: n.value, interval: None, ..p.0 }, &n.source);
            }
        }
        let about = match file.about.as_str() {
            "" => format!("like {}", file.base.name),
            about => format!("like {}: {about}", file.base.name),
        };
        return Ok((json!([device(&mut text, which, &about, &params)]), text));
    }
    let d = registry::find("device", registry::DEVICES, |d| d.name, which)?;
    Ok((json!([device(&mut text, d.name, d.about, &parameters(d))]), text))
}

/// A device's numbers with their sources.
fn parameters(d: &DeviceEntry) -> Vec<(Param, &str)> {
    d.params.iter().map(|p| (*p, p.source)).collect()
}

fn device(text: &mut String, name: &str, about: &str, params: &[(Param, &str)]) -> Value {
    writeln!(text, "{name:<18} {about}").expect("a string takes it");
    for (p, source) in params {
        write!(text, "    {:<26} {:>14} {:<8} {source}", p.name, p.value, p.unit)
            .expect("a string takes it");
        if let Some((least, most)) = p.interval {
            write!(text, "; {least} to {most}").expect("a string takes it");
        }
        text.push('\n');
    }
    let params: Vec<Value> = params
        .iter()
        .map(|(p, source)| {
            json!({
                "name": p.name, "value": p.value, "unit": p.unit, "source": source,
                "interval": p.interval.map(|(least, most)| [least, most]),
            })
        })
        .collect();
    json!({ "name": name, "about": about, "parameters": params })
}

fn elevators(name: Option<&str>) -> (Value, String) {
    let mut names = Vec::new();
    let mut text = String::new();
    for e in wp_block::ELEVATORS.iter().filter(|e| is_wanted(name, e.name)) {
        names.push(e.name);
        let (from, without) = e.versions;
        let until = match without.0 {
            u16::MAX => "on".to_owned(),
            _ => format!("to before {without}"),
        };
        let layer = match e.layer {
            wp_block::Layer::Single => "single queue",
            wp_block::Layer::Multi => "blk-mq",
        };
        writeln!(text, "{:<12} {layer}, Linux {from} {until}", e.name).expect("a string takes it");
    }
    (json!(names), text)
}

const SLUGS: [&str; 5] = [
    wp_papers::ext4_fsync::SLUG,
    wp_papers::f2fs_oprw::SLUG,
    wp_papers::direct_io::SLUG,
    wp_papers::inode_trim::SLUG,
    wp_papers::journal_conflict::SLUG,
];

fn papers(name: Option<&str>) -> (Value, String) {
    let claims = Claims::fixed();
    let mut text = String::new();
    let all = SLUGS
        .iter()
        .filter(|s| is_wanted(name, s))
        .map(|s| {
            let n = claims.of(s).count();
            writeln!(text, "{s:<18} {n} claims").expect("a string takes it");
            json!({ "slug": s, "claims": n })
        })
        .collect();
    (all, text)
}

/// The claims of the papers, with the verdict that a whole run gives each: `papers/verdicts.toml`
/// pins it, and a test holds the runs to that.
fn claims(name: Option<&str>) -> (Value, String) {
    let pins = Pins::committed();
    let mut text = String::new();
    let mut all = Vec::new();
    for slug in SLUGS.iter().filter(|s| is_wanted(name, s)) {
        writeln!(text, "{:<40} {:>8}  {:<18} {:<9} verdict", slug, "paper", "band", "unit")
            .expect("a string takes it");
        for c in Claims::fixed().of(slug) {
            let says = match &c.paper_value {
                PaperValue::Number(n) => n.to_string(),
                PaperValue::Word(w) => w.clone(),
            };
            let band = match c.band {
                [low, high] if low == high => "exact".to_owned(),
                [low, high] => format!("{low} to {high}"),
            };
            let unit = c.unit.as_deref().unwrap_or_default();
            let verdict = pins.of(slug, &c.id, false).map_or("not pinned", |v| v.name());
            writeln!(text, "  {:<38} {says:>8}  {band:<18} {unit:<9} {verdict}", c.id)
                .expect("a string takes it");
            all.push(json!({
                "paper": slug, "id": c.id, "what": c.what, "paper_value": c.paper_value,
                "band": c.band, "unit": c.unit, "kind": c.kind, "pinned_verdict": verdict,
            }));
        }
    }
    (json!(all), text)
}

fn cpus(name: Option<&str>) -> (Value, String) {
    let mut text = String::new();
    let all = profile::PROFILES
        .iter()
        .filter(|p| is_wanted(name, p.name))
        .map(|p| {
            writeln!(text, "{:<12} {} core(s): {}", p.name, p.cores, p.about)
                .expect("a string takes it");
            let costs: Vec<Value> = p
                .costs
                .iter()
                .map(|c| {
                    writeln!(text, "    {:<18} {:>8} ns  {}", c.op.name(), c.ns, c.source)
                        .expect("a string takes it");
                    json!({ "operation": c.op.name(), "ns": c.ns, "source": c.source })
                })
                .collect();
            json!({ "name": p.name, "about": p.about, "cores": p.cores, "costs": costs })
        })
        .collect();
    (all, text)
}
