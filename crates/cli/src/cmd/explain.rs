//! `explain`.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_machine::host::Shape;
use wp_report::draw;
use wp_report::run::{Call, SYNCS, Seen, WHOLE, WRITES};
use wp_report::{explain, flow, summary};

use crate::output::{self, Exit, Out};
use crate::outputs;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath explain results/latest\n\
    \x20 writepath explain results/latest --slowest\n\
    \x20 writepath explain results/latest --top 10\n\
    \x20 writepath explain results/latest --flow --to svg --out fsync.svg")]
pub struct Args {
    /// Result of `run`: its folder, or results/latest
    run: PathBuf,
    /// Number of the call, in order of start
    #[arg(long, value_name = "N", default_value_t = 1)]
    op: usize,
    /// System calls to number, joined by commas [default: fsync,fdatasync]
    ///
    /// `write` stands for write and pwrite64 calls that wait for the device, as with O_DIRECT or
    /// O_SYNC. The default of a run without fsync and fdatasync is sync,syncfs, and of a run
    /// without any sync call it is write.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    call: Vec<String>,
    /// Explain the N-th slowest call [default of N: 1]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1")]
    slowest: Option<usize>,
    /// Summarize all calls: latencies, stages, waits for other tasks
    #[arg(long)]
    summary: bool,
    /// List all calls, one a line
    #[arg(long, conflicts_with = "summary")]
    all: bool,
    /// List the N slowest calls
    #[arg(long, value_name = "N", conflicts_with_all = ["summary", "all"])]
    top: Option<usize>,
    /// Print the call's flow: steps, requests, when each is durable
    ///
    /// Prints what the call does and waits for in order, the requests that it sends, when the
    /// device has them on flash, and which of them may persist out of order.
    #[arg(long)]
    flow: bool,
    /// Format of --flow: text, mermaid (sequence diagram) or svg
    #[arg(long, value_name = "FORMAT", default_value = "text", requires = "flow")]
    to: String,
    /// New file for the flow [default: stdout]
    #[arg(long, value_name = "FILE", requires = "flow")]
    out: Option<PathBuf>,
}

/// Names of the calls that count.
fn names<'a>(a: &'a Args, seen: &Seen<'_>) -> Vec<&'a str> {
    if !a.call.is_empty() {
        let each = a.call.iter().flat_map(|name| match name.as_str() {
            "write" => WRITES.to_vec(),
            name => vec![name],
        });
        return each.collect();
    }
    let kinds = [SYNCS, WHOLE, WRITES];
    kinds.into_iter().find(|k| !seen.calls(k).is_empty()).unwrap_or(SYNCS).to_vec()
}

/// The call that is asked for.
fn chosen(a: &Args, seen: &Seen<'_>, names: &[&str]) -> Result<Call, String> {
    let mut number = a.op;
    if let Some(rank) = a.slowest {
        let calls = seen.calls(names);
        let ranked = summary::list(seen, &calls, Some(rank));
        let found = rank.checked_sub(1).and_then(|i| ranked.get(i));
        number = found.map_or(calls.len() + 1, |l| l.number);
    }
    seen.call(names, number).map_err(|e| e.to_string())
}

fn flow_of(a: &Args, seen: &Seen<'_>, call: Call) -> (Value, String) {
    let flow = flow::flow(seen, call);
    let text = match a.to.as_str() {
        "mermaid" => draw::mermaid(&flow),
        "svg" => draw::svg(&flow),
        _ => return (json!(flow), flow.text()),
    };
    (json!({ "schema": "writepath.flow/1", "calls": 1, (a.to.as_str()): text }), text)
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    if !["text", "mermaid", "svg"].contains(&a.to.as_str()) {
        let what = format!("--to {}: no such format", a.to);
        return out.fail(Exit::Usage, "to", &what, "text, mermaid or svg");
    }
    let (file, recorded) = match outputs::asked(a.out.as_deref(), Shape::Text, out)
        .and_then(|file| Ok((file, super::recorded(&a.run, out)?)))
    {
        Ok(both) => both,
        Err(code) => return code,
    };
    let seen = Seen::new(recorded.run());
    let names = names(a, &seen);
    let calls = seen.calls(&names).len();
    if calls == 0 {
        let what = format!("{}: no {} call is recorded", a.run.shown(), names.join(" or "));
        let help = "run it again with --events all; --call names other calls";
        return out.fail(Exit::Usage, "calls", &what, help);
    }
    if a.summary {
        let found = summary::summary(&seen, &seen.calls(&names));
        return out.result(&found.json(), &found.text());
    }
    if a.all || a.top.is_some() {
        let list = summary::list(&seen, &seen.calls(&names), a.top);
        return out.result(&summary::list_json(&list), &summary::list_text(&list));
    }
    let done = chosen(a, &seen, &names).map(|call| {
        if a.flow {
            return flow_of(a, &seen, call);
        }
        let found = explain::explain(&seen, call);
        (found.json(), found.text())
    });
    match (done, file) {
        (Ok((_, text)), Some(file)) => {
            let path = file.path().to_owned();
            if let Err(code) = outputs::finish(file, text.as_bytes(), out) {
                return code;
            }
            let doc = json!({ "schema": "writepath.flow/1", "calls": 1, "file": output::path(&path),
                "bytes": text.len() });
            out.result(&doc, &format!("{} bytes in {}\n", text.len(), path.shown()))
        }
        (Ok((doc, text)), None) => out.result(&doc, &text),
        (Err(e), _) => {
            let help =
                "a run is recorded from after mount to before unmount; `--all` lists its calls";
            out.fail(Exit::Usage, "op", &e, help)
        }
    }
}
