//! `kernel-lab --setup`: what a guest has, and how to come by one.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use wp_parity::kernel_lab::Kernel;
use wp_parity::kernel_lab::setup::{Looked, build, look, places, take};

use super::plan::{Setup, Step};
use crate::output::{Exit, Out};

/// What leads out of a set-up that cannot be.
const HELP: &str = "`writepath kernel-lab --setup check` lists what the guest has";

/// Does it, and says what there is then.
pub(super) fn run(asked: &Setup, out: &Out) -> Result<ExitCode, ExitCode> {
    let failed = |e: String| out.fail(Exit::Unsupported, "guest", &e, HELP);
    let (kernel, root) = (asked.kernel.as_deref(), asked.root.as_deref());
    let to = || match &asked.to {
        Some(to) => std::path::absolute(to).map_err(|e| out.host_error(to, &e)),
        None => Kernel::usual().map_err(failed),
    };
    let (kernel, root) = match asked.step {
        Step::Check => Kernel::named(kernel, root).map_err(failed)?,
        Step::Take => {
            let (kernel, root) = Kernel::named(kernel, root).map_err(failed)?;
            let to = to()?;
            take(&kernel, &root, &to).map_err(failed)?;
            places(&to)
        }
        Step::Build => {
            let to = to()?;
            build(kernel, root, asked.source.as_deref(), &to).map_err(failed)?;
            places(&to)
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
