//! `serve vhost-user-blk`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use wp_base::Time;
use wp_machine::profile::Profile;
use wp_serve::Clock;
use wp_serve::control::Speaker;
use wp_serve::vhost::cpu::Cpu;
use wp_serve::vhost::{Ended, Guest, Machine};

use super::{DriveArgs, Outputs, Problem, clock, drive, end, ready, summary};
use crate::output::{Exit, Out};

/// Nanoseconds after 1970 at which a guest's time begins, if nothing else is said: the first of
/// January 2026, for whoever looks at dates.
const DATE: u64 = 1_767_225_600 * 1_000_000_000;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath serve vhost-user-blk --device ssd-p16 --socket drive.sock --once\n\
    \x20 writepath serve vhost-user-blk --device fixed --socket d.sock --clock external \
    --calendar t.sock")]
pub struct Args {
    #[command(flatten)]
    drive: DriveArgs,
    /// Serve another drive on its own socket; repeatable
    ///
    /// PRESET may have parameters: zn540-4tb,capacity_bytes=1073741824@/run/second.sock. The drive
    /// has the options of the first one, except files.
    #[arg(long = "and", value_name = "PRESET@SOCKET")]
    more: Vec<String>,
    /// Listen for the guest's driver on this Unix socket
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Number of virtqueues, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 1)]
    queues: u16,
    /// Clock: at once, the model's, or the guest's
    ///
    /// free: at once; the model decides the order and contents of completions. paced: when the
    /// host's clock reaches the completion time of the model. external: in the virtual time of the
    /// guest, which --calendar connects.
    #[arg(long, value_name = "free|paced|external", default_value = "free")]
    clock: String,
    /// Time-travel socket of a User-Mode Linux guest
    ///
    /// The guest's command line has time-travel=ext:PATH.
    #[arg(long, value_name = "PATH", required_if_eq("clock", "external"))]
    calendar: Option<PathBuf>,
    /// CPU cost profile: one of `list cpus`
    ///
    /// CPU cost of each request and completion, with --clock external. `free` costs nothing.
    #[arg(long, value_name = "PROFILE", default_value = "free", requires = "calendar")]
    cpu: String,
    /// Serve a disk that takes the guest's control commands
    ///
    /// The guest writes a command, such as freeze or thaw, to the first sector of this disk and
    /// reads the reply there.
    #[arg(long, value_name = "SOCKET")]
    control_disk: Option<PathBuf>,
    /// Listen for control commands on this Unix socket
    ///
    /// `serve control` sends them: status, freeze, thaw, save FILE, quit. Not with --clock
    /// external, where only the guest's own time orders events: use --control-disk or --do.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Run this control command first: 'freeze after=100'; repeatable
    #[arg(long = "do", value_name = "LINE")]
    first: Vec<String>,
    /// Exit when the guest disconnects (always with --clock external)
    #[arg(long)]
    once: bool,
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    match serve(a, out) {
        Ok(code) | Err(code) => code,
    }
}

fn serve(a: &Args, out: &Out) -> Result<ExitCode, ExitCode> {
    if !(1..=64).contains(&a.queues) {
        let message = format!("--queues {}: from 1 to 64", a.queues);
        return Err(out.fail(Exit::Usage, "queues", &message, "--queues 4"));
    }
    let external = a.clock == "external";
    if external && a.control.is_some() {
        let message =
            "--control cannot be used with --clock external: its commands have no virtual time";
        return Err(out.fail(
            Exit::Usage,
            "control",
            message,
            "--control-disk SOCKET, or --do LINE",
        ));
    }
    let cpu = Profile::find(&a.cpu);
    let cpu = cpu.map_err(|e| out.fail(Exit::Usage, "cpu", &e, "writepath list cpus"))?;
    let kind = if external { None } else { Some(clock(&a.clock, out)?) };
    // Before anything says that it is ready: what is asked to end then ends in order.
    let stop = out.interrupt();
    let (mut machine, outputs) = machine(a, out)?;
    let costs = cpu.model().profile;
    if !costs.is_zero() {
        machine.charge(Cpu::new(costs));
    }
    for line in &a.first {
        let (answer, _) = machine.control(Time(0), line, Speaker::Host);
        if answer.contains("\"ok\":false") {
            return Err(out.fail(Exit::Usage, "do", &format!("--do `{line}`: {answer}"), ""));
        }
    }
    let mut how = json!({ "clock": a.clock });
    // However it ends, what the drives hold is saved.
    let failed;
    let shows = match (kind, &a.calendar) {
        (Some(kind), _) => {
            let control = a.control.as_deref();
            let served = machine.serve_real(&Clock::start(kind), control, &stop, a.once);
            failed = served.err().map(|e| Problem::of_host(Path::new("waiting for a guest"), &e));
            kind.shows()
        }
        (None, Some(path)) => {
            let mut guest = Guest::listen(path, DATE).map_err(|e| out.host_error(path, &e))?;
            ready(out, "calendar", path);
            let ended = machine.serve_guest(&mut guest, &mut |_, _| stop.load(Ordering::Relaxed));
            how["calendar_messages"] = json!(guest.messages());
            how["ended"] = json!(match &ended {
                Ok(Ended::Gone) => "the guest disconnected",
                Ok(Ended::Asleep) => "the guest has no pending event",
                Ok(Ended::Interrupted) => "interrupted",
                Err(_) => "the guest violated the protocol",
            });
            failed = ended.err().map(|message| {
                let help = "see the console of the guest";
                Problem { exit: Exit::HostIo, code: "guest", message, help }
            });
            how["cpu"] = json!({ "profile": a.cpu, "charged": machine.charged() });
            match machine.charged() {
                None => "virtual time: the guest's CPU takes no time, waiting for a drive does",
                Some(_) => "virtual time: the guest's CPU takes time for requests and completions",
            }
        }
        (None, None) => {
            let message = "--clock external needs --calendar";
            return Err(out.fail(Exit::Usage, "calendar", message, "--calendar PATH"));
        }
    };
    finish(a, (machine, outputs), (how, shows, failed), out)
}

/// Makes the devices.
fn machine(a: &Args, out: &Out) -> Result<(Machine, Vec<Outputs>), ExitCode> {
    let mut machine = Machine::new();
    let (first, outputs) = drive(&a.drive, out)?;
    let mut all = vec![outputs];
    machine.add(first, &a.socket, a.queues).map_err(|e| out.host_error(&a.socket, &e))?;
    ready(out, "vhost-user-blk", &a.socket);
    if a.calendar.is_none() {
        out.note(&super::clients::vhost_user_blk(&a.socket));
    }
    for text in &a.more {
        let Some((preset, socket)) = text.split_once('@') else {
            let message = format!("--and {text}: write PRESET@SOCKET");
            return Err(out.fail(Exit::Usage, "and", &message, "--and fixed@/run/second.sock"));
        };
        let socket = PathBuf::from(socket);
        let (more, outputs) = drive(&a.drive.of_another(preset), out)?;
        all.push(outputs);
        machine.add(more, &socket, a.queues).map_err(|e| out.host_error(&socket, &e))?;
        ready(out, "vhost-user-blk", &socket);
    }
    if let Some(path) = &a.control_disk {
        machine.add_control(path).map_err(|e| out.host_error(path, &e))?;
        ready(out, "control disk", path);
    }
    Ok((machine, all))
}

/// Ends the drives, and says what they have done.
fn finish(
    a: &Args,
    (machine, outputs): (Machine, Vec<Outputs>),
    (how, shows, failed): (Value, &str, Option<Problem>),
    out: &Out,
) -> Result<ExitCode, ExitCode> {
    let malformed = machine.malformed();
    for complaint in machine.complaints() {
        out.note(&format!("note: {complaint}"));
    }
    let mut text = String::new();
    let mut all = Vec::new();
    let mut problems: Vec<Problem> = failed.into_iter().collect();
    let queues: Vec<Vec<u64>> =
        (0..machine.drives.len()).map(|n| machine.taken(n).to_vec()).collect();
    for (own, queues) in machine.drives.into_iter().zip(outputs).zip(queues) {
        let (mut status, of_it) = end(own);
        problems.extend(of_it);
        text.push_str(&summary(&status));
        if queues.len() > 1 {
            let told: Vec<String> = queues.iter().map(u64::to_string).collect();
            text.push_str(&format!("  requests by queue: {}\n", told.join(" ")));
        }
        status["queues"] = json!(queues);
        all.push(status);
    }
    if let Some(first) = problems.first() {
        return Err(first.tell(out));
    }
    text.push_str(&format!("the {} clock shows {shows}\n", a.clock));
    let mut document = how;
    document["schema"] = json!("writepath.serve/1");
    document["drives"] = Value::Array(all);
    document["malformed_requests"] = json!(malformed);
    Ok(out.result(&document, &text))
}
