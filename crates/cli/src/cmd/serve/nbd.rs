//! `serve nbd`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use wp_base::plain::Shown as _;
use wp_serve::Clock;
use wp_serve::nbd::server::Server;

use super::{DriveArgs, Problem, clients, clock, drive, end, ready, summary};
use crate::output::{Exit, Out};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath serve nbd --device ssd-p16 --socket nbd.sock --control control.sock\n\
    \x20 writepath serve nbd --image disk.img --port 10809 --read-only --once")]
pub struct Args {
    #[command(flatten)]
    drive: DriveArgs,
    /// Listen on this Unix socket
    #[arg(long, value_name = "PATH", required_unless_present = "port")]
    socket: Option<PathBuf>,
    /// Listen on this TCP port of localhost; 0 picks a free port
    ///
    /// The server prints the port that it picked.
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Export name; clients may also use the empty name
    #[arg(long, value_name = "NAME", default_value = "drive")]
    name: String,
    /// Reply at once (free), or at the model's time (paced)
    ///
    /// With both, the model decides the order and contents of completions. paced delays each reply
    /// until the host's clock reaches the completion time of the model.
    #[arg(long, value_name = "free|paced", default_value = "free")]
    clock: String,
    /// Listen for control commands on this Unix socket
    ///
    /// `serve control` sends them: status, freeze, thaw, save FILE, quit.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Exit when the last client disconnects
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
    let kind = clock(&a.clock, out)?;
    // Before anything says that it is ready: what is asked to end then ends in order.
    let stop = out.interrupt();
    let (drive, outputs) = drive(&a.drive, out)?;
    let server = Server::new(drive, &a.name, a.drive.read_only, Clock::start(kind));
    let mut server = server.map_err(|e| {
        out.fail(Exit::Unsupported, "zoned", &e, "writepath serve vhost-user-blk --help")
    })?;
    if let Some(path) = &a.socket {
        server.listen_unix(path).map_err(|e| out.host_error(path, &e))?;
        ready(out, "NBD", path);
        out.note(&clients::nbd_socket(path, &a.name));
    }
    if let Some(port) = a.port {
        let place = PathBuf::from(format!("port {port}"));
        let port = server.listen_port(port).map_err(|e| out.host_error(&place, &e))?;
        out.note(&format!("NBD: nbd://localhost:{port}/{}", a.name));
        out.note(&clients::nbd_port(port, &a.name));
    }
    if let Some(path) = &a.control {
        server.control_at(path).map_err(|e| out.host_error(path, &e))?;
        ready(out, "control", path);
        out.note(&format!("  writepath serve control {} status", path.shown()));
    }
    let (drive, connections, ended) = server.serve(&stop, a.once);
    let failed = ended.err().map(|e| Problem::of_host(Path::new("waiting for clients"), &e));
    let (mut status, problems) = end((drive, outputs));
    if let Some(problem) = failed.iter().chain(&problems).next() {
        return Err(problem.tell(out));
    }
    let text = format!(
        "{}{connections} connections; the {} clock shows {}\n",
        summary(&status),
        kind.name(),
        kind.shows()
    );
    status["schema"] = json!("writepath.serve/1");
    status["connections"] = json!(connections);
    status["clock"] = json!(kind.name());
    Ok(out.result(&status, &text))
}
