//! From a point's file to what is run: names looked up, values checked, defaults filled in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use wp_base::Sector;
use wp_block::QueueConfig;
use wp_device::DeviceEntry;
use wp_machine::profile;
use wp_machine::registry;
use wp_machine::{MachineSpec, make_device};
use wp_vfs::{FsEntry, OptionSpec, Options, Version, When};
use wp_workload::fio::{Diagnostic, Place};

use super::crash::{self, CrashPlan};
use super::read::{Fields, suggest, unit_of, wrong};
use super::source::{Entry, Item, Table, Value, quoted};
use super::units::{self, Unit};
use super::work::{self, Work};

/// Where partitions begin on a drive without zones, in sectors.
const PARTITION_START: u64 = 2048;

/// What is measured besides what the workload tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// Blocks dispatched by phase, class and task.
    pub phases: bool,
    /// Pages that hold something, by class.
    pub pages: bool,
}

/// A point, ready to be run.
#[derive(Clone)]
pub struct Setup {
    /// The machine, without its seed.
    pub machine: MachineSpec,
    /// The program.
    pub work: Work,
    /// What is measured.
    pub measure: Measure,
    /// Power failures.
    pub crash: Option<CrashPlan>,
    /// Every setting with its value as TOML, defaults too, by dotted key, in order.
    pub settings: Settings,
    /// Names of the inputs that it reads.
    pub inputs: Vec<String>,
}

impl Setup {
    /// All that a run of it depends on besides the seed and the bytes of its inputs.
    pub fn text(&self) -> String {
        self.settings.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
    }

    /// A setting as a number: bytes, nanoseconds, 1 for what is true. Errors: it is none, or there
    /// is no such.
    pub fn number(&self, key: &str) -> Result<f64, String> {
        let Some((_, value)) = self.settings.iter().find(|(k, _)| k == key) else {
            let names: Vec<&str> = self.settings.iter().map(|(k, _)| k.as_str()).collect();
            return Err(format!("no setting `{key}`; {}", suggest("there are", &names, key)));
        };
        units::plain(value).ok_or_else(|| format!("the setting `{key}` is {value}, no number"))
    }
}

/// The files that an experiment reads, by the name that its results keep them under.
pub struct Files {
    dir: PathBuf,
    /// Bytes by name.
    pub inputs: BTreeMap<String, Vec<u8>>,
    /// Names by the path that the file has.
    pub names: BTreeMap<String, String>,
    /// Where each is on the host, by name.
    pub hosts: BTreeMap<String, PathBuf>,
    /// Names that were kept since this was emptied.
    kept: Vec<String>,
    /// Were all read before? Then none is read from the host again.
    is_known: bool,
}

impl Files {
    /// Paths are from `dir` on.
    pub fn new(dir: &Path) -> Files {
        Files {
            dir: dir.to_owned(),
            inputs: BTreeMap::new(),
            names: BTreeMap::new(),
            hosts: BTreeMap::new(),
            kept: Vec::new(),
            is_known: false,
        }
    }

    /// Those that were read before: bytes by name, and names by path.
    pub fn known(
        dir: &Path,
        inputs: &BTreeMap<String, Vec<u8>>,
        names: &BTreeMap<String, String>,
    ) -> Files {
        let (inputs, names) = (inputs.clone(), names.clone());
        Files { inputs, names, is_known: true, ..Files::new(dir) }
    }

    /// The bytes of a file. Errors: the host's.
    pub fn read(&self, path: &str) -> std::io::Result<Vec<u8>> {
        let known = self.names.get(path).and_then(|name| self.inputs.get(name));
        match known.filter(|_| self.is_known) {
            Some(bytes) => Ok(bytes.clone()),
            None => wp_machine::host::text::bytes(&self.host(path)),
        }
    }

    /// The host's path of one that the file names.
    pub fn host(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    /// Keeps a file, and those that it includes, under a name that leads to it from the results
    /// too. `others`: host paths. Errors: one that lies outside the first one's folder; a name that
    /// another file of the experiment has.
    pub fn keep(
        &mut self,
        path: &str,
        bytes: &[u8],
        others: &[(String, Vec<u8>)],
    ) -> Result<String, String> {
        let host = self.host(path);
        let folder = host.parent().map_or_else(PathBuf::new, Path::to_owned);
        let is_below = Path::new(path)
            .components()
            .all(|c| matches!(c, std::path::Component::Normal(_) | std::path::Component::CurDir));
        let name = host.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        let tidy = path.strip_prefix("./").unwrap_or(path);
        let stored = if is_below && tidy.starts_with("inputs/") {
            tidy.to_owned()
        } else if is_below {
            format!("inputs/{tidy}")
        } else {
            format!("inputs/{}/{name}", &wp_machine::results::sha256(bytes)[..8])
        };
        let stored_folder = stored.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        for (other, bytes) in others {
            let inside = Path::new(other).strip_prefix(&folder).ok().and_then(Path::to_str);
            let Some(inside) = inside.filter(|p| !p.contains("..")) else {
                return Err(format!("it includes {other}, which is not below its folder"));
            };
            self.store(format!("{stored_folder}/{inside}"), PathBuf::from(other), bytes)?;
        }
        self.store(stored.clone(), host, bytes)?;
        self.names.insert(path.to_owned(), stored.clone());
        Ok(stored)
    }

    /// Errors: other bytes have the name.
    fn store(&mut self, name: String, host: PathBuf, bytes: &[u8]) -> Result<(), String> {
        match self.inputs.get(&name) {
            Some(known) if known != bytes => {
                let what = "which another file of the experiment already is; rename one";
                return Err(format!("the results would store it as {name}, {what}"));
            }
            _ => drop(self.inputs.insert(name.clone(), bytes.to_vec())),
        }
        self.hosts.insert(name.clone(), host);
        self.kept.push(name);
        Ok(())
    }
}

/// Settings: dotted key, value as TOML.
pub type Settings = Vec<(String, String)>;

/// A table of the file, or an empty one in its place.
fn section<'a>(
    root: &Fields<'a>,
    name: &str,
    nothing: &'a Table,
    found: &mut Vec<Diagnostic>,
) -> (&'a Table, Place) {
    match root.table(name, found) {
        Some((table, at)) => (table, at.clone()),
        None => (nothing, root.at.clone()),
    }
}

/// Resolves the file of one point. `None`: errors were found.
pub fn resolve(
    file: &Table,
    at: &Place,
    files: &mut Files,
    found: &mut Vec<Diagnostic>,
) -> Option<Setup> {
    let before = found.len();
    files.kept.clear();
    let root = Fields::new("", (file, at), &[], found);
    let nothing = Table::default();
    let mut settings = Settings::new();
    let (table, fs_at) = section(&root, "fs", &nothing, found);
    let fs = file_system((table, &fs_at), &mut settings, found);
    let (table, at) = section(&root, "device", &nothing, found);
    let device = device((table, &at), &mut settings, found);
    let (table_of_machine, at) = section(&root, "machine", &nothing, found);
    let machine = match (fs, device) {
        (Some(fs), Some(device)) => {
            machine((table_of_machine, &at), (fs, &fs_at), device, &mut settings, found)
        }
        _ => None,
    };
    let work = match root.table("workload", found) {
        Some((table, at)) => work::read((table, at), files, &mut settings, found),
        None => {
            let help = "as in `[workload]` with `name = \"varmail\"` or `fio = \"job.fio\"`";
            wrong(found, &root.at, "table [workload] is missing", help);
            None
        }
    };
    let (table, at) = section(&root, "measure", &nothing, found);
    let measure = measure((table, &at), work.as_ref(), &mut settings, found);
    let (machine, work) = (machine?, work?);
    let crash = match root.table("crash", found) {
        Some(item) => {
            for key in ["partition_start", "partition_size"] {
                if let Some(e) = table_of_machine.get(key) {
                    let help = "leave it out; `device.capacity_bytes` makes the drive smaller";
                    wrong(found, &e.at, "[crash] needs a drive without partitions", help);
                }
            }
            settings.retain(|(key, _)| !key.starts_with("machine.partition_"));
            crash::read(item, (&machine, &work), measure, &mut settings, found)
        }
        None => None,
    };
    settings.sort();
    let inputs = std::mem::take(&mut files.kept);
    (found.len() == before).then_some(Setup { machine, work, measure, crash, settings, inputs })
}

/// A value of the registry's: its word, checked for units. `None`: an error, or `false` for what
/// is there or not.
fn option_word(
    name: &str,
    (owner, spec): (&str, &OptionSpec),
    item: &Item,
    found: &mut Vec<Diagnostic>,
) -> Option<String> {
    if let Some(unit) = units::of_option(owner, spec) {
        // What stands for nothing has no unit.
        return match &item.value {
            Value::Text(text) if text.is_empty() => None,
            _ => unit_of(name, item, unit, found).map(|n| n.to_string()),
        };
    }
    match &item.value {
        Value::Bool(b) if matches!(spec.default, "0" | "1") => Some(u8::from(*b).to_string()),
        Value::Bool(false) => None,
        Value::Float(x) => {
            let what = format!("`{name}` takes a string or a whole number");
            let help = format!("write \"{x}\": 3.10 and 3.1 are one number, and two versions");
            wrong(found, &item.at, what, help);
            None
        }
        other => {
            let word = other.word();
            if word.is_none() {
                let kind = other.kind();
                let what =
                    format!("`{name}` takes a string, a number or a truth value, not {kind}");
                wrong(found, &item.at, what, spec.help);
            }
            word
        }
    }
}

/// An option's value as TOML.
fn option_toml(owner: &str, spec: &OptionSpec, value: &str) -> String {
    let number = value.parse::<u64>().ok().filter(|n| n.to_string() == value);
    match (units::of_option(owner, spec), number) {
        (Some(unit), Some(n)) => quoted(&unit.text(n)),
        (None, Some(n)) if i64::try_from(n).is_ok() => n.to_string(),
        _ if value == "true" => "true".to_owned(),
        _ => quoted(value),
    }
}

/// Options from entries, each checked against the table of its owner.
pub(super) fn options<'a>(
    section: &str,
    (owner, specs): (&str, &[OptionSpec]),
    entries: impl Iterator<Item = &'a Entry>,
    found: &mut Vec<Diagnostic>,
) -> Options {
    let mut options = Options::default();
    for e in entries {
        let name = format!("{section}.{}", e.key);
        let Some(spec) = specs.iter().find(|s| s.key == e.key) else {
            let known: Vec<&str> = specs.iter().map(|s| s.key).collect();
            let what = format!("{owner} has no option `{}`", e.key);
            wrong(found, &e.at, what, suggest("it has", &known, &e.key));
            continue;
        };
        if let Some(word) = option_word(&name, (owner, spec), &e.item, found)
            && let Err(error) = options.set(spec.key, &word, specs)
        {
            wrong(found, &e.item.at, error.to_string(), "");
        }
    }
    options
}

/// Adds every option that has a value to the settings.
pub(super) fn settle(
    section: &str,
    (owner, specs): (&str, &[OptionSpec]),
    options: &Options,
    settings: &mut Settings,
) {
    for spec in specs {
        if let Some(value) = options.get(spec.key, specs) {
            settings.push((format!("{section}.{}", spec.key), option_toml(owner, spec, value)));
        }
    }
}

/// An entry of a table by its name; an unknown one is told with those that there are.
fn named<'a, T>(
    kind: &str,
    table: &[&'a T],
    name_of: fn(&T) -> &'static str,
    (name, at): (&str, &Place),
    found: &mut Vec<Diagnostic>,
) -> Option<&'a T> {
    let known = table.iter().find(|e| name_of(e) == name).copied();
    if known.is_none() {
        let names: Vec<&str> = table.iter().map(|e| name_of(e)).collect();
        wrong(found, at, format!("no {kind} called `{name}`"), suggest("there are", &names, name));
    }
    known
}

/// The string of a key that decides what other keys there are; another value is told later.
fn chosen<'a>(
    table: &'a Table,
    key: &str,
    default: &'a str,
    at: &'a Place,
) -> (&'a str, &'a Place) {
    match table.item(key).map(|i| (&i.value, &i.at)) {
        Some((Value::Text(name), at)) => (name.as_str(), at),
        _ => (default, at),
    }
}

type Fs = (&'static FsEntry, Options, Version);

fn file_system(
    (table, at): (&Table, &Place),
    settings: &mut Settings,
    found: &mut Vec<Diagnostic>,
) -> Option<Fs> {
    let kind = chosen(table, "kind", "ext4", at);
    let all: Vec<&FsEntry> =
        registry::FILE_SYSTEMS.iter().copied().chain([registry::NONE]).collect();
    let fs = named("file system", &all, |f| f.name, kind, found)?;
    let known: Vec<&str> = fs.options.iter().map(|o| o.key).collect();
    let fields = Fields::new("fs", (table, at), &known, found);
    fields.text("kind", found);
    let own = fields.others().filter(|e| known.contains(&e.key.as_str()));
    let mut all: Vec<Entry> = own.cloned().collect();
    if let Some((inner, _)) = fields.table("mkfs", found) {
        for e in &inner.0 {
            if fs.options.iter().any(|o| o.key == e.key && o.when == When::Mount) {
                let help = format!("write it in [fs] itself: `{} = …`", e.key);
                wrong(found, &e.at, format!("`{}` is an option of mount", e.key), help);
            }
            all.push(e.clone());
        }
    }
    if let (Some(text), Some(item)) = (fields.text("mount", found), fields.item("mount")) {
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, "true"));
            let value = Item { at: item.at.clone(), value: mounted(fs, key, value) };
            all.push(Entry { key: key.to_owned(), at: item.at.clone(), item: value });
        }
    }
    for (n, e) in all.iter().enumerate() {
        if all[..n].iter().any(|before| before.key == e.key) {
            wrong(found, &e.at, format!("`{}` is given twice", e.key), "");
        }
    }
    let options = options("fs", (fs.name, fs.options), all.iter(), found);
    let era = options.get("era", fs.options).unwrap_or("4.6").to_owned();
    let Some(version) = Version::parse(&era) else {
        let help = "write \"3.4\", \"4.6.2\", \"6.18\"";
        wrong(found, &fields.place("era"), format!("`{era}` is not a kernel version"), help);
        return None;
    };
    if let Err(why) = fs.check_run(&era) {
        wrong(found, &fields.place("era"), why, "");
        return None;
    }
    settings.push(("fs.kind".to_owned(), quoted(fs.name)));
    settle("fs", (fs.name, fs.options), &options, settings);
    Some((fs, options, version))
}

/// A value of the one string that mount takes, whose numbers are in the option's own unit.
fn mounted(fs: &FsEntry, key: &str, value: &str) -> Value {
    let unit = fs.options.iter().find(|o| o.key == key).and_then(|o| units::of_option(fs.name, o));
    match (unit, value.parse()) {
        (Some(unit), Ok(n)) => Value::Text(unit.text(n)),
        _ => Value::Text(value.to_owned()),
    }
}

/// A device with its replaced parameters.
struct Drive {
    name: String,
    params: Vec<(String, u64)>,
    entry: &'static DeviceEntry,
    at: Place,
}

fn device(
    item: (&Table, &Place),
    settings: &mut Settings,
    found: &mut Vec<Diagnostic>,
) -> Option<(Drive, Vec<Drive>)> {
    let (first, shown) = one_device(item, found)?;
    settings.push(("device.preset".to_owned(), quoted(&first.name)));
    settings.extend(shown.into_iter().map(|(key, value)| (format!("device.{key}"), value)));
    let (mut more, mut texts) = (Vec::new(), Vec::new());
    let further = item.0.item("more");
    let list = match further.map(|i| &i.value) {
        Some(Value::List(items)) => &items[..],
        _ => &[],
    };
    for item in list {
        let Value::Table(table) = &item.value else {
            wrong(found, &item.at, format!("a device is a table, not {}", item.value.kind()), "");
            return None;
        };
        if let Some(e) = table.get("more") {
            let help = "put it into the same array";
            wrong(found, &e.at, "a further device has no further devices", help);
            return None;
        }
        let (one, shown) = one_device((table, &item.at), found)?;
        let parts: Vec<String> = shown.iter().map(|(k, v)| format!(", {k} = {v}")).collect();
        texts.push(format!("{{ preset = {}{} }}", quoted(&one.name), parts.concat()));
        more.push(one);
    }
    if !texts.is_empty() {
        settings.push(("device.more".to_owned(), format!("[{}]", texts.join(", "))));
    }
    Some((first, more))
}

fn one_device(
    (table, at): (&Table, &Place),
    found: &mut Vec<Diagnostic>,
) -> Option<(Drive, Vec<(String, String)>)> {
    let preset = chosen(table, "preset", "ssd-128", at);
    let entry = named("device", registry::DEVICES, |d| d.name, preset, found)?;
    let known: Vec<&str> = entry.params.iter().map(|p| p.name).collect();
    let before = found.len();
    let fields = Fields::new("device", (table, at), &known, found);
    fields.text("preset", found);
    fields.list("more", found);
    let mut params = Vec::new();
    for e in fields.others() {
        let Some(param) = entry.params.iter().find(|p| p.name == e.key) else { continue };
        let value = parameter(param, &e.item, found);
        params.extend(value.map(|v| (e.key.clone(), v)));
    }
    if found.len() > before {
        return None;
    }
    let replaced: Vec<(&str, u64)> = params.iter().map(|(k, v)| (k.as_str(), *v)).collect();
    if let Err(error) = entry.make(&replaced) {
        let at = fields.place(&error.key);
        wrong(found, &at, format!("device {}: {error}", entry.name), "");
        return None;
    }
    let shown = entry.params.iter().map(|p| {
        let given = params.iter().find(|(key, _)| key == p.name).map(|(_, v)| *v);
        let value = given.unwrap_or(p.value);
        let text = match units::of_parameter(p.unit) {
            Some(unit) => quoted(&unit.text(value)),
            None if p.unit == "switch" => (value == 1).to_string(),
            None => value.to_string(),
        };
        (p.name.to_owned(), text)
    });
    let shown = shown.collect();
    let drive = Drive { name: entry.name.to_owned(), params, entry, at: at.clone() };
    Some((drive, shown))
}

fn parameter(param: &wp_device::Param, item: &Item, found: &mut Vec<Diagnostic>) -> Option<u64> {
    let name = format!("device.{}", param.name);
    match (units::of_parameter(param.unit), &item.value) {
        (Some(unit), _) => unit_of(&name, item, unit, found),
        (None, Value::Bool(b)) if param.unit == "switch" => Some(u64::from(*b)),
        (None, Value::Int(n)) if param.unit != "switch" && *n >= 0 => Some(n.unsigned_abs()),
        (None, other) => {
            let takes = match param.unit {
                "switch" => "true or false".to_owned(),
                unit => format!("a whole number from 0 on ({unit})"),
            };
            let what = format!("`{name}` takes {takes}, not {}", other.to_toml());
            wrong(found, &item.at, what, "");
            None
        }
    }
}

fn machine(
    item: (&Table, &Place),
    ((fs, fs_options, era), fs_at): (Fs, &Place),
    (first, more): (Drive, Vec<Drive>),
    settings: &mut Settings,
    found: &mut Vec<Diagnostic>,
) -> Option<MachineSpec> {
    let fields = Fields::new("machine", item, &[], found);
    let cpu = fields.text("cpu", found).unwrap_or("i7-4770");
    let profiles: Vec<&profile::Profile> = profile::PROFILES.iter().collect();
    let cpu = named("CPU profile", &profiles, |p| p.name, (cpu, &fields.place("cpu")), found)?;
    let kernel = match fields.text("kernel", found) {
        None => (era.0, era.1),
        Some(text) => match Version::parse(text) {
            Some(v) => (v.0, v.1),
            None => {
                let what = format!("`{text}` is not a kernel version");
                wrong(found, &fields.place("kernel"), what, "write \"3.13\", \"6.12\"");
                return None;
            }
        },
    };
    let elevator = match QueueConfig::for_kernel(kernel, fields.text("elevator", found)) {
        Ok(config) => config.elevator_text(),
        Err(why) => {
            wrong(found, &fields.place("elevator"), why, "leave it out for the kernel's own");
            return None;
        }
    };
    if fs.mount.is_none() {
        wrong(found, fs_at, format!("{}: only images are supported, not mounting", fs.name), "");
    }
    if !more.is_empty() && fs.mkfs_disks.is_none() {
        let what = format!("{} supports one device, {} are given", fs.name, more.len() + 1);
        wrong(found, &more[0].at, what, "leave out `device.more`");
    }
    let (start, size) = partition(&fields, &first, !more.is_empty(), settings, found)?;
    let disk = fields.text("disk", found).unwrap_or("sdb1");
    if disk.is_empty() || disk.len() > 16 || !disk.chars().all(|c| c.is_ascii_alphanumeric()) {
        let what = format!("`{disk}` is not a disk name");
        wrong(found, &fields.place("disk"), what, "such as sdb1 or nvme0n1");
    }
    for (key, value) in [
        ("cpu", cpu.name),
        ("kernel", &format!("{}.{}", kernel.0, kernel.1)),
        ("elevator", elevator.as_str()),
        ("disk", disk),
    ] {
        settings.push((format!("machine.{key}"), quoted(value)));
    }
    Some(MachineSpec {
        seed: 1,
        cpu: cpu.model(),
        device: first.name,
        device_params: first.params,
        more: more.into_iter().map(|d| (d.name, d.params)).collect(),
        elevator,
        start: Sector(start),
        sectors: size,
        fs,
        fs_options,
        disk: disk.to_owned(),
        // As the kernel has disks of NVMe, and of SCSI.
        device_number: if disk.starts_with("nvme") { (259, 0) } else { (8, 16) },
        kernel,
    })
}

/// First sector of the partition, and how many it has if that is said.
fn partition(
    fields: &Fields<'_>,
    drive: &Drive,
    is_of_several: bool,
    settings: &mut Settings,
    found: &mut Vec<Diagnostic>,
) -> Option<(u64, Option<u64>)> {
    let sectors = Unit::Bytes(512);
    let limits = *make_device(&drive.name, &drive.params).ok()?.limits();
    let whole = limits.zones.is_some() || is_of_several;
    let start = fields.unit("partition_start", sectors, found);
    let start = start.unwrap_or(if whole { 0 } else { PARTITION_START });
    let size = fields.unit("partition_size", sectors, found);
    let end = start.checked_add(size.unwrap_or(1));
    if size == Some(0) || end.is_none_or(|end| end > limits.sectors) {
        let at = fields.place(if size.is_some() { "partition_size" } else { "partition_start" });
        let total = sectors.text(limits.sectors);
        let what = format!("the partition does not fit device {} of {total}", drive.entry.name);
        wrong(found, &at, what, "");
    }
    let text = |n| quoted(&sectors.text(n));
    settings.push(("machine.partition_start".to_owned(), text(start)));
    settings.extend(size.map(|n| ("machine.partition_size".to_owned(), text(n))));
    Some((start, size))
}

fn measure(
    item: (&Table, &Place),
    work: Option<&Work>,
    settings: &mut Settings,
    found: &mut Vec<Diagnostic>,
) -> Measure {
    let fields = Fields::new("measure", item, &[], found);
    let phases = fields.truth("phases", found).unwrap_or(false);
    let pages = fields.truth("pages", found).unwrap_or(false);
    if phases && work.is_some_and(|w| !w.has_phases()) {
        let help = "it is for `workload.name = \"fsync-last\"`, whose files have known names";
        wrong(found, &fields.place("phases"), "the workload has no phases", help);
    }
    settings.push(("measure.phases".to_owned(), phases.to_string()));
    settings.push(("measure.pages".to_owned(), pages.to_string()));
    Measure { phases, pages }
}
