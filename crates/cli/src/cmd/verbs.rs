//! `list verbs`: the table of verbs, with what clap knows of their arguments.

use std::fmt::Write;

use clap::{Arg, Command};
use serde_json::{Value, json};

use crate::contract;
use crate::output::Exit;

const LINE: &str = "a string takes it";

/// Every verb that runs something, as `kernels waits`.
pub fn leaves(program: &Command) -> Vec<(String, &Command)> {
    let mut found = Vec::new();
    let mut left: Vec<(String, &Command)> = vec![(String::new(), program)];
    while let Some((name, verb)) = left.pop() {
        let inner = verb.get_subcommands().filter(|v| v.get_name() != "help");
        let inner: Vec<(String, &Command)> =
            inner.map(|v| (format!("{name} {}", v.get_name()).trim().to_owned(), v)).collect();
        match inner.is_empty() {
            true => found.push((name, verb)),
            // The first is to be the next.
            false => left.extend(inner.into_iter().rev()),
        }
    }
    found
}

/// Verbs whose name begins so; all if none is named.
pub fn list(program: &Command, name: Option<&str>) -> (Value, String) {
    let mut text = String::new();
    let wanted = leaves(program).into_iter().filter(|(v, _)| {
        name.is_none_or(|n| v == n || v.strip_prefix(n).is_some_and(|rest| rest.starts_with(' ')))
    });
    let all: Vec<Value> = wanted.filter_map(|(v, command)| one(&v, command, &mut text)).collect();
    (json!(all), text)
}

fn one(name: &str, verb: &Command, text: &mut String) -> Option<Value> {
    let contract = contract::find(name)?;
    let codes: Vec<(Exit, &str)> =
        std::iter::once((Exit::Ok, contract.yes)).chain(contract.codes()).collect();
    writeln!(text, "{name}").expect(LINE);
    for (code, what) in &codes {
        writeln!(text, "  {:>3}  {what}", *code as u8).expect(LINE);
    }
    writeln!(text, "       exit 0 needs at least one: {}", contract.counted()).expect(LINE);
    let codes: Vec<Value> =
        codes.iter().map(|(code, what)| json!({ "code": *code as u8, "what": what })).collect();
    let arguments: Vec<Value> = verb
        .get_arguments()
        .filter(|a| !["help", "version", "json"].contains(&a.get_id().as_str()))
        .map(argument)
        .collect();
    Some(json!({
        "verb": name, "counted": contract.counted(), "exit_codes": codes,
        "is_stream": contract.is_stream, "arguments": arguments,
    }))
}

fn argument(a: &Arg) -> Value {
    let takes_value = a.get_action().takes_values();
    let names: Vec<String> =
        a.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    let values: Vec<String> = if takes_value {
        a.get_possible_values().iter().map(|v| v.get_name().to_owned()).collect()
    } else {
        Vec::new()
    };
    json!({
        "name": a.get_id().as_str(), "long": a.get_long(), "takes_value": takes_value,
        "required": a.is_required_set(), "value_names": names, "values": values,
        "type": format!("{:?}", a.get_value_parser()),
    })
}
