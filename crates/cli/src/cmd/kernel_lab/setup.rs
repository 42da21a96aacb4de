//! `kernel-lab --setup`: what a guest has, and how to come by one.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use wp_parity::kernel_lab::Kernel;
use wp_parity::kernel_lab::setup::{Looked, build, look, places, take};

use super::Args;
use crate::output::{Exit, Out};

/// What leads out of a set-up that cannot be.
const HELP: &str = "`writepath kernel-lab --setup check` lists what the guest has";

/// Does it, and says what there is then.
pub fn run(a: &Args, what: &str, out: &Out) -> Result<ExitCode, ExitCode> {
    let failed = |e: String| out.fail(Exit::Unsupported, "guest", &e, HELP);
    let (kernel, root) = (a.kernel.as_deref(), a.root.as_deref());
    let to = || match &a.to {
        Some(to) => std::path::absolute(to).map_err(|e| out.host_error(to, &e)),
        None => Kernel::usual().map_err(failed),
    };
    let (kernel, root) = match what {
        "check" => Kernel::named(kernel, root).map_err(failed)?,
        "take" => {
            let (kernel, root) = Kernel::named(kernel, root).map_err(failed)?;
            let to = to()?;
            take(&kernel, &root, &to).map_err(failed)?;
            places(&to)
        }
        "build" => {
            let to = to()?;
            build(kernel, root, a.source.as_deref(), &to).map_err(failed)?;
            places(&to)
        }
        other => {
            let message = format!("--setup {other}: use check, take or build");
            return Err(out.fail(Exit::Usage, "setup", &message, "--setup check"));
        }
    };
    let looked = tried(&kernel, &root, out)?;
    let exit = if looked.is_usable() { Exit::Ok } else { Exit::Unsupported };
    let document = json!({ "schema": "writepath.kernel-lab-setup/1", "guest": looked });
    Ok(out.answer(exit, &document, &looked.table()))
}

/// What there is, after a power failure on each file system if nothing is missing.
fn tried(kernel: &Path, root: &Path, out: &Out) -> Result<Looked, ExitCode> {
    let mut looked = look(kernel, root);
    if looked.missing.is_empty() {
        let scratch = super::scratch(out)?;
        looked.try_out(scratch.path(), &mut |text| out.note(text));
    }
    Ok(looked)
}
