//! `kernels crash PROGRAMS`: recovered trees of given programs, here and in a real kernel.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::json;
use wp_campaign::folder::read;
use wp_parity::trees::{Agreement, Ask, Kernel, Row, agree};
use wp_parity::vtime::Config;

use super::kernel_crash::Args;
use crate::output::{Exit, Out};
use crate::progress::Progress;

/// Runs the programs of a file or folder. `dir`: for images.
pub(super) fn run(a: &Args, programs: &Path, dir: &Path, out: &Out) -> ExitCode {
    let configs: Result<Vec<&'static Config>, String> = a
        .config
        .iter()
        .map(|name| match wp_parity::vtime::config::find(name) {
            Ok(c) if c.zoned || !(c.images_only || c.not_modelled.is_empty()) => {
                Err(format!("{name}: not in this comparison"))
            }
            found => found,
        })
        .collect();
    let configs = match configs {
        Ok(configs) => configs,
        Err(e) => return out.fail(Exit::Usage, "config", &e, "see `kernels waits`"),
    };
    let files = match read(programs) {
        Ok(files) => files,
        Err(e) => return out.fail(Exit::Usage, "program", &e, "name a program file or a folder"),
    };
    let kernel = match &a.guest {
        None => Kernel::Host,
        Some(folder) => {
            let folder = Some(Path::new(folder)).filter(|f| !f.as_os_str().is_empty());
            match super::kernels::guest(folder, out) {
                Ok(kernel) => Kernel::Guest(kernel),
                Err(code) => return code,
            }
        }
    };
    let stop = out.interrupt();
    let live = Progress::new("kernels crash");
    let ask =
        Ask { programs: &files, configs: &configs, each: a.each_of_given(), seed: a.seed, dir };
    let all = (files.len() * configs.len()) as u64;
    let done = std::cell::Cell::new(0);
    let found = agree(&ask, &kernel, &|trees, different| {
        done.set((done.get() + 1).min(all));
        live.at(done.get(), all, format_args!("programs, {trees} trees, {different} different"));
        !stop.load(Ordering::SeqCst)
    });
    drop(live);
    let found = match found {
        Ok(found) => found,
        Err(e) => return out.fail(Exit::HostIo, "kernel", &e, ""),
    };
    let exit = match (stop.load(Ordering::SeqCst), found.different.is_empty()) {
        (true, _) => Exit::Interrupted,
        (_, true) => Exit::Ok,
        (_, false) => Exit::No,
    };
    let trees: u64 = found.rows.iter().map(|r| r.trees + r.own).sum();
    let doc = json!({
        "schema": "writepath.kernels.trees/1", "kernel": found.kernel, "rows": found.rows,
        "total": { "states": trees }, "different": found.different, "left_out": found.left_out,
    });
    out.answer(exit, &doc, &text(&found))
}

fn text(f: &Agreement) -> String {
    let line = "a string takes it";
    let mut t = String::new();
    writeln!(
        t,
        "Crash states of the programs, recovered by Writepath and by Linux {}.\n\
         Compared: success of the mount, and of every file the path, type, mode, owner, device,\n\
         flags, inode, link count, size, link target, extended attributes and contents.\n\
         own runs: the tree after the kernel's own run of the program, without inode numbers.\n",
        f.kernel
    )
    .expect(line);
    writeln!(
        t,
        "{:<20} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>11}",
        "configuration", "programs", "left out", "trees", "equal", "refused", "files", "own runs"
    )
    .expect(line);
    let mut sum = Row { config: "all".to_owned(), ..Row::default() };
    for r in &f.rows {
        row(&mut t, r);
        sum.programs += r.programs;
        sum.left_out += r.left_out;
        sum.trees += r.trees;
        sum.equal += r.equal;
        sum.refused += r.refused;
        sum.files += r.files;
        sum.own += r.own;
        sum.own_equal += r.own_equal;
    }
    row(&mut t, &sum);
    for d in &f.different {
        writeln!(t, "DIFFERENT: {} {}: {}", d.config, d.program, d.what).expect(line);
        if !d.replay.is_empty() {
            writeln!(t, "  writepath crash show {} --image FILE", d.replay).expect(line);
        }
    }
    t
}

fn row(t: &mut String, r: &Row) {
    writeln!(
        t,
        "{:<20} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>11}",
        r.config,
        r.programs,
        r.left_out,
        r.trees,
        r.equal,
        r.refused,
        r.files,
        format!("{}/{}", r.own_equal, r.own)
    )
    .expect("a string takes it");
}
