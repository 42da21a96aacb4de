//! The grammar: commands, with their attributes and lists, as they stand.
//!
//! filebench ends at the first mistake; here reading goes on with the next command that begins a
//! line, so that more than one is told.

use crate::fio::{Diagnostic, Place};

use super::lex::{Lexed, Token};
use super::words::{self, Owner};

/// Mistakes that are told of one text.
pub(super) const TOLD_MAX: usize = 50;
/// Words that begin a command.
const COMMANDS: [&str; 15] = [
    "set",
    "define",
    "create",
    "run",
    "psrun",
    "echo",
    "debug",
    "sleep",
    "system",
    "eventgen",
    "version",
    "quit",
    "list",
    "enable",
    "domultisync",
];

/// The other words of the language: a name that is one of them stands in quotes.
const KEYWORDS: [&str; 66] = [
    "file",
    "files",
    "fileset",
    "process",
    "thread",
    "flowop",
    "randvar",
    "mode",
    "multi",
    "cvar",
    "alldone",
    "blocking",
    "client",
    "cached",
    "dirwidth",
    "dirdepthrv",
    "directio",
    "dirgamma",
    "dsync",
    "entries",
    "fd",
    "filename",
    "filesetname",
    "filesize",
    "firstdone",
    "gamma",
    "highwater",
    "indexed",
    "instances",
    "iosize",
    "iters",
    "leafdirs",
    "master",
    "mean",
    "memsize",
    "ioprio",
    "min",
    "max",
    "name",
    "nice",
    "opennext",
    "paralloc",
    "parameters",
    "path",
    "prealloc",
    "random",
    "randsrc",
    "randtable",
    "rate",
    "readonly",
    "writeonly",
    "reuse",
    "round",
    "seed",
    "size",
    "srcfd",
    "target",
    "timeout",
    "trusttree",
    "type",
    "useism",
    "value",
    "workingset",
    "nousestats",
    "lathist",
    "noreadahead",
];

/// What an attribute is given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Int(u64),
    Bool(bool),
    Text(String),
    Variable(String),
    /// Rows of a `randtable`.
    Table(Vec<[Box<Value>; 3]>),
}

/// An attribute.
#[derive(Clone, Debug)]
pub(super) struct Attr {
    pub(super) name: String,
    pub(super) value: Value,
    pub(super) at: Place,
    pub(super) value_at: Place,
}

/// A flowop, or a use of one of the text's own.
#[derive(Clone, Debug)]
pub(super) struct FlowopText {
    pub(super) kind: String,
    pub(super) at: Place,
    pub(super) attrs: Vec<Attr>,
    /// `$name=value`.
    pub(super) locals: Vec<Attr>,
}

/// A thread.
#[derive(Clone, Debug)]
pub(super) struct ThreadText {
    pub(super) at: Place,
    pub(super) attrs: Vec<Attr>,
    pub(super) flowops: Vec<FlowopText>,
}

/// What is set.
#[derive(Clone, Debug)]
pub(super) enum Setting {
    Plain(Value),
    Random(Vec<Attr>),
    Custom(Vec<Attr>),
}

/// A command.
#[derive(Clone, Debug)]
pub(super) enum CommandText {
    Set { name: String, to: Setting },
    Mode(String),
    Files { owner: Owner, attrs: Vec<Attr> },
    Process { attrs: Vec<Attr>, threads: Vec<ThreadText> },
    Composite { attrs: Vec<Attr>, locals: Vec<Attr>, flowops: Vec<FlowopText> },
    Create,
    Run { seconds: Option<Value>, is_psrun: bool },
    Sleep(Value),
    Echo(String),
    System(String),
    Rate(Option<Attr>),
    Lathist,
    Quit,
    Nothing,
}

/// A command and where it begins.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) command: CommandText,
    pub(super) at: Place,
}

/// Reads a text's commands.
pub(super) fn parse(tokens: &[Lexed], found: &mut Vec<Diagnostic>) -> Vec<Placed> {
    let mut p = Parser { tokens, at: 0, found };
    let mut all = Vec::new();
    while let Some(first) = p.peek() {
        let at = first.at.clone();
        match p.command() {
            Ok(command) => all.push(Placed { command, at }),
            Err(()) => p.recover(),
        }
        if p.found.len() >= TOLD_MAX {
            break;
        }
    }
    all
}

struct Parser<'a> {
    tokens: &'a [Lexed],
    at: usize,
    found: &'a mut Vec<Diagnostic>,
}

/// What stands there is told of already.
type Parsed<T> = Result<T, ()>;

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Lexed> {
        self.tokens.get(self.at)
    }

    fn is_sign(&self, sign: char) -> bool {
        self.peek().is_some_and(|l| l.token == Token::Sign(sign))
    }

    fn take_sign(&mut self, sign: char) -> bool {
        let is = self.is_sign(sign);
        self.at += usize::from(is);
        is
    }

    /// A mistake at the next word, or behind the last.
    fn wrong<T>(&mut self, message: impl Into<String>, help: impl Into<String>) -> Parsed<T> {
        match self.peek().or(self.tokens.last()) {
            Some(l) => self.wrong_at(&l.at.clone(), message, help),
            None => Err(()),
        }
    }

    fn wrong_at<T>(
        &mut self,
        at: &Place,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Parsed<T> {
        self.found.push(Diagnostic::error(at, message, help));
        Err(())
    }

    /// Goes on to the next command that begins a line.
    fn recover(&mut self) {
        // Commands that were understood in part do not end where they began.
        while let Some(l) = self.peek() {
            if l.is_first && matches!(&l.token, Token::Word(w) if COMMANDS.contains(&w.as_str())) {
                return;
            }
            self.at += 1;
        }
    }

    fn sign(&mut self, sign: char, why: &str) -> Parsed<()> {
        if self.take_sign(sign) {
            Ok(())
        } else {
            self.wrong(format!("`{sign}` is needed: {why}"), "")
        }
    }

    fn word(&mut self, what: &str) -> Parsed<(String, Place)> {
        match self.peek() {
            Some(Lexed { token: Token::Word(w), at, .. }) => {
                self.at += 1;
                Ok((w.clone(), at.clone()))
            }
            _ => self.wrong(format!("{what} is needed here"), ""),
        }
    }

    fn variable(&mut self) -> Option<String> {
        match self.peek()?.token.clone() {
            Token::Variable(name) => {
                self.at += 1;
                Some(name)
            }
            _ => None,
        }
    }

    fn value(&mut self) -> Parsed<(Value, Place)> {
        let Some(l) = self.peek() else { return self.wrong("a value is needed", "") };
        let value = match &l.token {
            Token::Int(n) => Value::Int(*n),
            Token::Text(t) => Value::Text(t.clone()),
            Token::Variable(v) => Value::Variable(v.clone()),
            // The next command, where a value was forgotten.
            Token::Word(w) if l.is_first && COMMANDS.contains(&w.as_str()) => {
                return self.wrong("a value is needed before this", "");
            }
            Token::Word(w) => match w.as_str() {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                _ => Value::Text(w.clone()),
            },
            Token::Negative(_) => return self.wrong("a number below 0 is not possible here", ""),
            Token::Sign(_) => {
                return self.wrong(
                    "a value is needed",
                    "a number, a word, a text in quotes, true, false or `$NAME`",
                );
            }
        };
        self.at += 1;
        Ok((value, l.at.clone()))
    }

    /// `name=value, name, ...`; and `$name=value` where locals may be.
    fn attrs(&mut self, owner: Owner, locals: Option<&mut Vec<Attr>>) -> Parsed<Vec<Attr>> {
        let mut all = Vec::new();
        let mut ours = Vec::new();
        let takes_locals = locals.is_some();
        // A use without attributes; what follows is no attribute's name.
        if !matches!(self.peek(), Some(Lexed { token: Token::Word(_) | Token::Variable(_), .. })) {
            return Ok(all);
        }
        loop {
            if let (true, Some(Lexed { token: Token::Variable(name), at, .. })) =
                (takes_locals, self.peek())
            {
                self.at += 1;
                let (value, value_at) = if self.take_sign('=') {
                    self.value()?
                } else {
                    (Value::Variable(name.clone()), at.clone())
                };
                ours.push(Attr { name: name.clone(), value, at: at.clone(), value_at });
            } else {
                all.push(self.attr(owner)?);
            }
            if !self.take_sign(',') {
                break;
            }
        }
        if let Some(locals) = locals {
            *locals = ours;
        }
        Ok(all)
    }

    fn attr(&mut self, owner: Owner) -> Parsed<Attr> {
        let (name, at) = self.word(&format!("an attribute of {}", owner.word()))?;
        let Some(word) = words::find(owner, &name) else {
            let help = words::way_out(owner, &name);
            return self.wrong_at(
                &at,
                format!("`{name}` is not an attribute of {}", owner.word()),
                help,
            );
        };
        if word.class == crate::fio::Class::Refused {
            return self.wrong_at(&at, format!("`{name}` is not supported"), word.note);
        }
        let name = word.name.to_owned();
        if !self.take_sign('=') {
            return Ok(Attr { name, value: Value::Bool(true), value_at: at.clone(), at });
        }
        if name == "randtable" {
            let value_at = at.clone();
            return Ok(Attr { name, value: self.table()?, at, value_at });
        }
        let next = self.peek().map(|l| (&l.token, &l.at));
        if let (false, Some((Token::Word(w), at))) = (name == "type", next)
            && (KEYWORDS.contains(&w.as_str()) || COMMANDS.contains(&w.as_str()))
        {
            let help = format!("put it in quotes: {name}=\"{w}\"");
            return self.wrong_at(&at.clone(), format!("`{w}` is a word of WML"), help);
        }
        let (value, value_at) = self.value()?;
        Ok(Attr { name, value, at, value_at })
    }

    /// `{{percent, min, max}, ...}`.
    fn table(&mut self) -> Parsed<Value> {
        self.sign('{', "a table begins with it")?;
        let mut rows = Vec::new();
        loop {
            self.sign('{', "a row of a table begins with it")?;
            let percent = self.value()?.0;
            self.sign(',', "a row is percent, least, most")?;
            let least = self.value()?.0;
            self.sign(',', "a row is percent, least, most")?;
            let most = self.value()?.0;
            self.sign('}', "a row of a table ends with it")?;
            rows.push([Box::new(percent), Box::new(least), Box::new(most)]);
            if !self.take_sign(',') {
                break;
            }
        }
        self.sign('}', "a table ends with it")?;
        Ok(Value::Table(rows))
    }

    fn command(&mut self) -> Parsed<CommandText> {
        let (word, at) = self.word("a command")?;
        match word.as_str() {
            "set" => self.set(),
            "define" => self.define(),
            "create" => {
                let (what, at) = self.word("`files`")?;
                match what.as_str() {
                    "files" | "fileset" | "filesets" => Ok(CommandText::Create),
                    "process" | "processes" => Ok(CommandText::Nothing),
                    _ => self.wrong_at(&at, format!("`create {what}` is unknown"), "create files"),
                }
            }
            "run" => Ok(CommandText::Run { seconds: self.optional_number(), is_psrun: false }),
            "psrun" => {
                if matches!(self.peek(), Some(Lexed { token: Token::Negative(_), .. })) {
                    self.at += 1;
                } else {
                    self.optional_number();
                }
                Ok(CommandText::Run { seconds: self.optional_number(), is_psrun: true })
            }
            "sleep" => match self.optional_number() {
                Some(n) => Ok(CommandText::Sleep(n)),
                None => self.wrong("a number of seconds is needed", "sleep 5"),
            },
            "debug" => match self.optional_number() {
                Some(_) => Ok(CommandText::Nothing),
                None => self.wrong("a level is needed", "debug 1"),
            },
            "echo" => self.text().map(CommandText::Echo),
            "system" => self.text().map(CommandText::System),
            "eventgen" => {
                let attrs = self.attrs_on(Owner::EventGen, &["rate"])?;
                Ok(CommandText::Rate(attrs.into_iter().last()))
            }
            "version" => Ok(CommandText::Nothing),
            "quit" => Ok(CommandText::Quit),
            "list" => self.word("`fileset` or `flowop`").map(|_| CommandText::Nothing),
            "enable" => match self.word("`lathist`")? {
                (w, _) if w == "lathist" => Ok(CommandText::Lathist),
                (w, at) if w == "multi" => {
                    self.wrong_at(&at, "several clients are not modelled", "leave it out")
                }
                (_, at) => self.wrong_at(&at, "`lathist` is needed here", ""),
            },
            "domultisync" => self.wrong_at(&at, "several clients are not modelled", "leave it out"),
            "usage" => self.text().map(|_| CommandText::Nothing),
            "stats" | "log" | "dump" | "foreach" | "load" | "inherit" | "shutdown" => {
                let help = "leave it out; filebench 1.5 has no such command";
                self.wrong_at(
                    &at,
                    format!("`{word}` is a command of older filebench versions"),
                    help,
                )
            }
            "thread" | "flowop" | "process" | "fileset" | "file" => {
                let help = "is the `{` or `}` before it right? `define process name=... { thread ... { flowop ... } }`";
                self.wrong_at(&at, format!("`{word}` is not allowed here"), help)
            }
            _ => {
                let help = words::way_out(Owner::Command, &word);
                self.wrong_at(&at, format!("`{word}` is not a command"), help)
            }
        }
    }

    /// Attributes that may be left out, where another command may follow.
    fn attrs_on(&mut self, owner: Owner, names: &[&str]) -> Parsed<Vec<Attr>> {
        match self.peek() {
            Some(Lexed { token: Token::Word(w), .. }) if names.contains(&w.as_str()) => {
                self.attrs(owner, None)
            }
            _ => Ok(Vec::new()),
        }
    }

    fn optional_number(&mut self) -> Option<Value> {
        let value = match &self.peek()?.token {
            Token::Int(n) => Value::Int(*n),
            Token::Variable(v) => Value::Variable(v.clone()),
            _ => return None,
        };
        self.at += 1;
        Some(value)
    }

    fn text(&mut self) -> Parsed<String> {
        match self.peek() {
            Some(Lexed { token: Token::Text(t), .. }) => {
                self.at += 1;
                Ok(t.clone())
            }
            _ => self.wrong("a text in quotes is needed", ""),
        }
    }

    fn set(&mut self) -> Parsed<CommandText> {
        let Some(name) = self.variable() else {
            let (word, at) = self.word("`$NAME=` or `mode`")?;
            if word != "mode" {
                return self.wrong_at(&at, "`$NAME=` or `mode` is needed", "");
            }
            let (what, at) = self.word("`quit`")?;
            if what == "nousestats" {
                return Ok(CommandText::Nothing);
            }
            if what != "quit" {
                return self.wrong_at(
                    &at,
                    "`quit` or `nousestats` is needed",
                    "set mode quit firstdone",
                );
            }
            let (mode, at) = self.word("a mode")?;
            return match mode.as_str() {
                "timeout" | "firstdone" | "alldone" => Ok(CommandText::Mode(mode)),
                _ => {
                    let help = "one of timeout, firstdone, alldone";
                    self.wrong_at(&at, format!("`{mode}` is not a mode"), help)
                }
            };
        };
        self.sign('=', "a variable is set to something")?;
        let kind = match self.peek() {
            Some(Lexed { token: Token::Word(w), .. }) => w.as_str(),
            _ => "",
        };
        let owner = match kind {
            "randvar" => Owner::RandVar,
            "cvar" => Owner::CVar,
            _ => return Ok(CommandText::Set { name, to: Setting::Plain(self.value()?.0) }),
        };
        self.at += 1;
        self.sign('(', "its attributes stand in brackets")?;
        let attrs = self.attrs(owner, None)?;
        self.sign(')', "its attributes stand in brackets")?;
        let to = if owner == Owner::CVar { Setting::Custom(attrs) } else { Setting::Random(attrs) };
        Ok(CommandText::Set { name, to })
    }

    fn define(&mut self) -> Parsed<CommandText> {
        let (what, at) = self.word("`fileset`, `file`, `process` or `flowop`")?;
        match what.as_str() {
            "file" => {
                Ok(CommandText::Files { owner: Owner::File, attrs: self.attrs(Owner::File, None)? })
            }
            "fileset" | "filesets" => Ok(CommandText::Files {
                owner: Owner::Fileset,
                attrs: self.attrs(Owner::Fileset, None)?,
            }),
            "process" | "processes" => {
                let attrs = self.attrs(Owner::Process, None)?;
                self.sign('{', "a process has threads")?;
                let mut threads = Vec::new();
                while !self.take_sign('}') {
                    threads.push(self.thread()?);
                }
                Ok(CommandText::Process { attrs, threads })
            }
            "flowop" => {
                let mut locals = Vec::new();
                let attrs = self.attrs(Owner::Composite, Some(&mut locals))?;
                let flowops = self.flowops("a flowop of its own has flowops")?;
                Ok(CommandText::Composite { attrs, locals, flowops })
            }
            _ => {
                let help = "fileset, file, process, flowop";
                self.wrong_at(&at, format!("`define {what}` is unknown"), help)
            }
        }
    }

    fn thread(&mut self) -> Parsed<ThreadText> {
        let (word, at) = self.word("`thread`")?;
        if word != "thread" {
            return self.wrong_at(&at, "a process has threads", "thread name=... { flowop ... }");
        }
        let attrs = self.attrs(Owner::Thread, None)?;
        let flowops = self.flowops("a thread has flowops")?;
        Ok(ThreadText { at, attrs, flowops })
    }

    fn flowops(&mut self, why: &str) -> Parsed<Vec<FlowopText>> {
        self.sign('{', why)?;
        let mut all = Vec::new();
        while !self.take_sign('}') {
            let (word, at) = self.word("`flowop` or `}`")?;
            if word != "flowop" {
                let help = "a list has flowops, and ends with `}`; attributes are parted by `,`";
                return self.wrong_at(&at, "`flowop` is needed here", help);
            }
            let (kind, at) = self.word("a type of flowop")?;
            let mut locals = Vec::new();
            // A type may be followed by the next flowop.
            let is_bare =
                matches!(self.peek(), Some(Lexed { token: Token::Word(w), .. }) if w == "flowop");
            let attrs =
                if is_bare { Vec::new() } else { self.attrs(Owner::Attribute, Some(&mut locals))? };
            all.push(FlowopText { kind, at, attrs, locals });
        }
        if all.is_empty() {
            return self.wrong("a list of flowops is empty", "");
        }
        Ok(all)
    }
}
