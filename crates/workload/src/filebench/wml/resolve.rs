//! Commands with their variables filled in: a personality, or what is wrong with them.
//!
//! Left out: variables that change while threads run. filesets are filled in where they are made,
//!           everything else where `run` stands.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::fio::{Diagnostic, Place};

use super::super::model::{
    Command, Fileset, Flowop, Kind, Num, Personality, Process, QuitMode, Step, ThreadKind,
};
use super::super::tree::ENTRIES_MAX;
use super::check;
use super::parse::{Attr, CommandText, FlowopText, Placed, Setting, TOLD_MAX, ThreadText, Value};
use super::vars::{Var, Vars};
use super::words::{self, Owner};

/// Most flowops of a thread, those of flowops of the text's own counted each time.
const FLOWOPS_MAX: usize = 10_000;
/// Most threads: filebench has a rotor for as many.
const THREADS_MAX: u64 = 16_384;

/// A flowop of the text's own.
struct Composite {
    iters: Option<Attr>,
    locals: Vec<Attr>,
    flowops: Vec<FlowopText>,
}

/// What came of a text.
pub(super) struct Resolved {
    pub(super) personality: Personality,
    pub(super) echoes: Vec<String>,
    pub(super) found: Vec<Diagnostic>,
}

struct Resolver {
    vars: Vars,
    composites: BTreeMap<String, Composite>,
    filesets: Vec<Fileset>,
    placed: usize,
}

fn last<'a>(attrs: &'a [Attr], name: &str) -> Option<&'a Attr> {
    attrs.iter().rev().find(|a| a.name == name)
}

/// Fills a text's commands in. `given` are variables that stay as they are.
pub(super) fn resolve(
    name: &str,
    commands: &[Placed],
    given: &BTreeMap<String, Setting>,
    given_at: &Place,
) -> Resolved {
    let mut r = Resolver {
        vars: Vars::default(),
        composites: BTreeMap::new(),
        filesets: Vec::new(),
        placed: 0,
    };
    for (name, to) in given {
        r.set(name, to, given_at);
    }
    let mut p = Personality {
        name: name.to_owned(),
        commands: Vec::new(),
        filesets: Vec::new(),
        processes: Vec::new(),
        drawn: Vec::new(),
        mode: QuitMode::Timeout,
        event_rate: Num::Fixed(0),
        histograms: false,
        flowop_ns: 0,
        own_numbers: false,
    };
    let mut echoes = Vec::new();
    let mut texts: Vec<(Owner, &[Attr], &Place)> = Vec::new();
    let mut processes: Vec<(&[Attr], &[ThreadText], &Place)> = Vec::new();
    let mut ends: Option<usize> = None;
    for (n, placed) in commands.iter().enumerate() {
        let at = &placed.at;
        match &placed.command {
            CommandText::Set { name, to } if !given.contains_key(name) => r.set(name, to, at),
            CommandText::Set { .. } | CommandText::Nothing => {}
            CommandText::Mode(mode) => {
                p.mode = match mode.as_str() {
                    "firstdone" => QuitMode::FirstDone,
                    "alldone" => QuitMode::AllDone,
                    _ => QuitMode::Timeout,
                };
            }
            CommandText::Files { owner, attrs } => texts.push((*owner, attrs, at)),
            CommandText::Process { attrs, threads } => processes.push((attrs, threads, at)),
            CommandText::Composite { attrs, locals, flowops } => {
                r.define(attrs, locals, flowops, at);
            }
            CommandText::Create => {
                r.files(&mut texts);
                p.commands.push(Command::Create);
            }
            CommandText::Run { seconds, .. } => {
                let secs = seconds.as_ref().map_or(0, |v| r.seconds(v, at));
                r.files(&mut texts);
                p.commands.push(Command::Run(secs));
                ends = Some(n);
                break;
            }
            CommandText::Sleep(v) => {
                let secs = r.seconds(v, at);
                p.commands.push(Command::Sleep(secs));
            }
            CommandText::Echo(text) => echoes.push(text.clone()),
            CommandText::System(text) => match text.trim() {
                "sync" => p.commands.push(Command::Sync),
                text if drops_caches(text) => p.commands.push(Command::DropCaches),
                _ => {
                    let help = "\"sync\" and \"echo 3 > /proc/sys/vm/drop_caches\" are executed";
                    r.warn(at, "host commands are skipped", help);
                }
            },
            CommandText::Rate(rate) => {
                if let Some(attr) = rate {
                    p.event_rate = r.vars.num(attr);
                }
            }
            CommandText::Lathist => p.histograms = true,
            CommandText::Quit => {
                ends = Some(n);
                break;
            }
        }
    }
    if let (Some(n), Some(next)) = (ends, ends.and_then(|n| commands.get(n + 1))) {
        let word = if matches!(commands[n].command, CommandText::Quit) { "quit" } else { "run" };
        let message = format!("commands after `{word}` are not executed");
        r.warn(&next.at, message, "as in filebench, which ends there");
    }
    let end = ends.or(commands.len().checked_sub(1)).map(|n| commands[n].at.clone());
    let end = end.unwrap_or_else(|| given_at.clone());
    if !p.commands.iter().any(|c| matches!(c, Command::Run(_))) {
        r.files(&mut texts);
        p.commands.push(Command::Run(0));
        r.warn(
            &end,
            "no `run` command: filebench would do nothing",
            "Writepath runs it as if `run` stood at the end",
        );
    }
    if processes.is_empty() {
        r.vars.error(
            &end,
            "no process is defined",
            "define process name=... { thread name=... { ... } }",
        );
    }
    for (attrs, threads, at) in processes {
        let process = r.process(attrs, threads, at);
        p.processes.push(process);
    }
    p.filesets = std::mem::take(&mut r.filesets);
    p.drawn = std::mem::take(&mut r.vars.drawn);
    if p.threads() > THREADS_MAX {
        r.vars.error(&end, format!("{} threads are too many", p.threads()), "at most 16384");
    }
    let mut found = r.vars.found;
    found.truncate(TOLD_MAX);
    Resolved { personality: p, echoes, found }
}

impl Resolver {
    fn warn(&mut self, at: &Place, message: impl Into<String>, help: impl Into<String>) {
        self.vars.found.push(Diagnostic::warning(at, message, help));
    }

    fn set(&mut self, name: &str, to: &Setting, at: &Place) {
        let var = match to {
            Setting::Plain(value) => self.vars.value(value, at),
            Setting::Random(attrs) => Some(self.vars.random(attrs, at)),
            Setting::Custom(attrs) => Some(self.vars.custom(attrs, at)),
        };
        if let Some(var) = var {
            self.vars.global.insert(name.to_owned(), var);
        }
    }

    fn seconds(&mut self, value: &Value, at: &Place) -> u64 {
        match self.vars.value(value, at) {
            Some(Var::Int(n)) if n <= 1_000_000_000 => n,
            Some(_) => {
                self.vars.error(at, "this is not a number of seconds", "up to 1000000000");
                0
            }
            None => 0,
        }
    }

    fn needed<'a>(&mut self, attrs: &'a [Attr], name: &str, at: &Place) -> Option<&'a Attr> {
        let found = last(attrs, name);
        if found.is_none() {
            self.vars.error(at, format!("`{name}` is needed"), "");
        }
        found
    }

    /// Filesets that were defined since.
    fn files(&mut self, texts: &mut Vec<(Owner, &[Attr], &Place)>) {
        for (owner, attrs, at) in texts.drain(..) {
            let Some(set) = self.fileset(owner, attrs, at) else { continue };
            if self.filesets.iter().any(|s| s.name == set.name) {
                let message = format!("`{}` is defined twice", set.name);
                self.vars.error(at, message, "give it another name");
            }
            self.filesets.push(set);
        }
    }

    fn fileset(&mut self, owner: Owner, attrs: &[Attr], at: &Place) -> Option<Fileset> {
        let name = self.needed(attrs, "name", at).map(|a| self.vars.text(a));
        let path = self.needed(attrs, "path", at).map(|a| self.vars.text(a));
        let flag = |r: &mut Resolver, name| last(attrs, name).is_some_and(|a| r.vars.flag(a));
        let is_file = owner == Owner::File;
        let mut num = |name: &str, default| {
            last(attrs, name).map_or(Num::Fixed(default), |a| self.vars.num(a))
        };
        let size = num("size", 1024);
        let (entries, leafdirs) = if is_file {
            (Num::Fixed(1), Num::Fixed(0))
        } else {
            (num("entries", 0), num("leafdirs", 0))
        };
        let dir_width = if is_file { Num::Fixed(10) } else { num("dirwidth", 0) };
        if !is_file {
            if let (Num::Fixed(0), Num::Fixed(0)) = (entries, leafdirs) {
                self.vars.error(at, "this fileset has no files", "give it `entries`");
            }
            if let (Num::Fixed(n), Num::Fixed(m)) = (entries, leafdirs)
                && n.saturating_add(m) > ENTRIES_MAX
            {
                self.vars.error(at, "this fileset has too many entries", "at most 10000000");
            }
            if last(attrs, "dirwidth").is_none() {
                self.vars.error(at, "`dirwidth` is needed", "more than `entries`: one directory");
            }
        }
        let prealloc_percent = match last(attrs, "prealloc") {
            None => 0,
            Some(a) => match self.vars.value(&a.value, &a.value_at) {
                Some(Var::Bool(b)) => u32::from(b) * 100,
                Some(Var::Int(n)) if n <= 100 => n as u32,
                Some(_) => {
                    self.vars.error(&a.value_at, "`prealloc` is a percentage, or true", "");
                    0
                }
                None => 0,
            },
        };
        let dir_depth = last(attrs, "dirdepthrv").and_then(|a| match self.vars.num(a) {
            Num::Drawn(i) if matches!(self.vars.drawn[i], super::super::Drawn::Random { .. }) => {
                Some(i)
            }
            _ => {
                self.vars.error(
                    &a.value_at,
                    "`dirdepthrv` is a randvar",
                    "set $depth=randvar(...)",
                );
                None
            }
        });
        let dir_gamma = match last(attrs, "dirgamma") {
            Some(a) => self.vars.fixed(a),
            None => {
                if is_file {
                    0
                } else {
                    1500
                }
            }
        };
        if dir_gamma > 1_000_000 {
            self.vars.error(
                at,
                "this `dirgamma` is too large",
                "1500 is 1.5; 0 is for the mean alone",
            );
        }
        let (name, path) = (name?, path?);
        if name.is_empty()
            || name.split('/').any(|p| p == "..")
            || path.split('/').any(|p| p == "..")
        {
            self.vars.error(at, "a fileset's path is in the simulated file system", "without `..`");
        }
        Some(Fileset {
            name,
            path,
            entries,
            leafdirs,
            dir_width,
            dir_gamma: dir_gamma.min(1_000_000),
            dir_depth,
            size,
            prealloc_percent,
            paralloc: flag(self, "paralloc"),
            reuse: flag(self, "reuse"),
            is_cold: last(attrs, "cached").is_some() && !flag(self, "cached"),
            trusttree: flag(self, "trusttree"),
            readonly: flag(self, "readonly"),
            writeonly: flag(self, "writeonly"),
        })
    }

    fn define(&mut self, attrs: &[Attr], locals: &[Attr], flowops: &[FlowopText], at: &Place) {
        let Some(attr) = self.needed(attrs, "name", at) else { return };
        let name = self.vars.text(attr);
        if words::find(Owner::Flowop, &name).is_some() {
            self.vars.error(&attr.value_at, format!("`{name}` is a built-in flowop type"), "");
        }
        // Of flowops that are known here: none can use itself.
        for f in flowops {
            self.known(f);
        }
        let composite = Composite {
            iters: last(attrs, "iters").cloned(),
            locals: locals.to_vec(),
            flowops: flowops.to_vec(),
        };
        self.composites.insert(name, composite);
    }

    fn known(&mut self, f: &FlowopText) -> bool {
        let is =
            self.composites.contains_key(&f.kind) || Kind::ALL.iter().any(|k| k.name() == f.kind);
        if !is {
            let help = words::way_out(Owner::Flowop, &f.kind);
            self.vars.error(&f.at, format!("`{}` is not a type of flowop", f.kind), help);
        }
        is
    }

    fn process(&mut self, attrs: &[Attr], threads: &[ThreadText], at: &Place) -> Process {
        let name = self.needed(attrs, "name", at).map_or(String::new(), |a| self.vars.text(a));
        let instances = last(attrs, "instances").map_or(Num::Fixed(1), |a| self.vars.num(a));
        if threads.is_empty() {
            self.vars.error(at, "a process needs a thread", "thread name=... { flowop ... }");
        }
        let threads = threads.iter().map(|t| self.thread(t)).collect();
        Process { name, instances, threads }
    }

    fn thread(&mut self, t: &ThreadText) -> ThreadKind {
        let name =
            self.needed(&t.attrs, "name", &t.at).map_or(String::new(), |a| self.vars.text(a));
        let instances = last(&t.attrs, "instances").map_or(Num::Fixed(1), |a| self.vars.num(a));
        let memory = last(&t.attrs, "memsize").map_or(Num::Fixed(0), |a| self.vars.num(a));
        self.placed = 0;
        let mut flat = Vec::new();
        let steps = self.steps(&t.flowops, "", &mut flat);
        check::thread(&flat, memory, &self.filesets, &mut self.vars);
        ThreadKind { name, instances, memory, steps }
    }

    fn steps(
        &mut self,
        texts: &[FlowopText],
        prefix: &str,
        flat: &mut Vec<(Flowop, Place)>,
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        for text in texts {
            self.placed += 1;
            if self.placed > FLOWOPS_MAX {
                if self.placed == FLOWOPS_MAX + 1 {
                    self.vars.error(&text.at, "a thread has too many flowops", "at most 10000");
                }
                break;
            }
            if !self.known(text) {
                continue;
            }
            let name = self
                .needed(&text.attrs, "name", &text.at)
                .map_or(String::new(), |a| self.vars.text(a));
            let name = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
            if let Some(kind) = Kind::ALL.iter().find(|k| k.name() == text.kind) {
                let flowop = self.flowop(&name, *kind, text);
                flat.push((flowop.clone(), text.at.clone()));
                steps.push(Step::Do(flowop));
                continue;
            }
            // Taken out while it is used, so that it cannot be used within.
            let Some(c) = self.composites.remove(&text.kind) else { continue };
            let mut scope = BTreeMap::new();
            for local in c.locals.iter().chain(&text.locals) {
                let is_itself = local.value == Value::Variable(local.name.clone());
                let value = if is_itself && !self.vars.global.contains_key(&local.name) {
                    None
                } else {
                    self.vars.value(&local.value, &local.value_at)
                };
                if let Some(value) = value {
                    scope.insert(local.name.clone(), value);
                }
            }
            let iters = last(&text.attrs, "iters").or(c.iters.as_ref());
            let iters = iters.map_or(Num::Fixed(1), |a| self.vars.num(a));
            self.vars.scopes.push(scope);
            let inner = self.steps(&c.flowops, &name, flat);
            self.vars.scopes.pop();
            self.composites.insert(text.kind.clone(), c);
            steps.push(Step::Repeat(iters, inner));
        }
        steps
    }

    fn flowop(&mut self, name: &str, kind: Kind, text: &FlowopText) -> Flowop {
        let mut f = Flowop::new(name, kind);
        for local in &text.locals {
            let help = "only flowops defined in the model take variables";
            self.vars.error(
                &local.at,
                format!("`${}` stands where an attribute is needed", local.name),
                help,
            );
        }
        for a in &text.attrs {
            match a.name.as_str() {
                "filename" => {
                    let name = self.vars.text(a);
                    f.fileset = self.filesets.iter().position(|s| s.name == name);
                    if f.fileset.is_none() {
                        let names: Vec<&str> = self.filesets.iter().map(|s| &*s.name).collect();
                        let help = format!("known: {}", names.join(", "));
                        self.vars.error(
                            &a.value_at,
                            format!("`{name}` is not a fileset or file"),
                            help,
                        );
                    }
                }
                "fd" => f.fd = self.descriptor(a),
                "srcfd" => f.srcfd = self.descriptor(a),
                "iosize" => f.iosize = self.vars.num(a),
                "workingset" => f.workingset = self.vars.num(a),
                "iters" => f.iters = self.vars.num(a),
                "value" if kind == Kind::Print => f.text = self.vars.text(a).into(),
                "value" => f.value = self.vars.num(a),
                "random" => f.random = self.vars.flag(a),
                "dsync" => f.dsync = self.vars.flag(a),
                "directio" => f.directio = self.vars.flag(a),
                "noreadahead" => f.noreadahead = self.vars.flag(a),
                "opennext" => f.opennext = self.vars.flag(a),
                "blocking" => f.blocking = self.vars.flag(a),
                "highwater" => f.highwater = self.vars.fixed(a).min(32_767),
                "indexed" => f.indexed = Some(self.vars.num(a)),
                "target" => f.target = Some(Rc::from(self.vars.text(a))),
                _ => {}
            }
        }
        f
    }

    fn descriptor(&mut self, a: &Attr) -> u32 {
        let n = self.vars.fixed(a);
        if n > 128 {
            self.vars.error(&a.value_at, format!("a thread has no descriptor {n}"), "0 to 128");
        }
        n.min(128) as u32
    }
}

/// Is it `echo N > /proc/sys/vm/drop_caches`, by `sudo sh -c`, `sysctl` or as it is? What is
/// dropped is what 3 drops, but directories and inodes stay.
fn drops_caches(text: &str) -> bool {
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || "\"'>".contains(c)).collect();
    let words: Vec<&str> = words.into_iter().filter(|w| !w.is_empty()).collect();
    let shell = ["sudo", "sh", "bash", "-c", "echo", "sysctl", "-w", "|", "tee", "1", "2", "3"];
    let file = |w: &str| w == "/proc/sys/vm/drop_caches" || w.starts_with("vm.drop_caches=");
    words.iter().any(|w| file(w)) && words.iter().all(|w| file(w) || shell.contains(w))
}
