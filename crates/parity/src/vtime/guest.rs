//! The real kernel: programs run in a User-Mode-Linux guest in virtual time.
//!
//! One boot runs a whole batch: for each program a new null_blk, mkfs, mount, `sync`, the program.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use wp_base::plain::Shown as _;
use wp_workload::program::Program;

use super::config::Config;
use super::run::{Sent, Timed};
use crate::kernel_lab::Kernel;

/// The program's runner in the guest.
pub(crate) const PROG_C: &str = include_str!("prog.c");
/// Seconds that a boot may take on the host.
const BOOT_SECONDS: u64 = 120;

/// MiB: the contents of its devices are in its memory.
pub(crate) const MEMORY_MIB: u32 = 1500;

/// A guest that can be started.
pub struct Guest {
    kernel: Kernel,
    prog: Vec<u8>,
    scratch: PathBuf,
}

/// What the kernel did with a program.
#[derive(Clone, Debug)]
pub struct Ran {
    /// When the file system was mounted, nanoseconds since power-on.
    pub mount_ns: u64,
    /// Timed calls.
    pub timed: Vec<Timed>,
}

impl Guest {
    /// A guest of this kernel, with `scratch` for what it shares. Errors: no C compiler; the
    /// host's.
    pub fn new(kernel: &Kernel, scratch: &Path) -> Result<Guest, String> {
        let at = |e: std::io::Error| format!("{}: {e}", scratch.shown());
        std::fs::create_dir_all(scratch).map_err(at)?;
        let binary = scratch.join("prog");
        compile(PROG_C, &binary)?;
        let prog = std::fs::read(&binary).map_err(at)?;
        Ok(Guest { kernel: kernel.with_memory(MEMORY_MIB), prog, scratch: scratch.to_owned() })
    }

    /// Runs every program on a file system of its own, all in one boot. A program that the kernel
    /// refused to run is `Err`, with what it said.
    ///
    /// Errors: a guest that does not start or end.
    pub fn run(
        &self,
        latency_ns: u64,
        batch: &[(&Config, &Program)],
    ) -> Result<Vec<Result<Ran, String>>, String> {
        let dir = self.scratch.join("share");
        let at = |e: std::io::Error| format!("{}: {e}", dir.shown());
        if dir.exists() {
            std::fs::remove_dir_all(&dir).map_err(at)?;
        }
        std::fs::create_dir_all(&dir).map_err(at)?;
        std::fs::write(dir.join("prog"), &self.prog).map_err(at)?;
        let mut script = SETUP.replace("LATENCY", &latency_ns.to_string());
        for (i, (config, program)) in batch.iter().enumerate() {
            std::fs::write(dir.join(format!("{i}.prog")), program.to_string()).map_err(at)?;
            let cache = match (config.cache, config.fua) {
                (false, _) => "",
                (true, true) => "cache_size=64 fua=1",
                (true, false) => "cache_size=64 fua=0",
            };
            let zones = match config.zoned {
                true => "size=1024 zoned=1 zone_size=16 zone_capacity=16 zone_nr_conv=16",
                false => "size=512",
            };
            let block = config.device_block();
            writeln!(
                script,
                "one {i} 'blocksize={block} {zones} {cache}' {} '{}' '{}'",
                config.fs, config.mkfs, config.mount
            )
            .expect("a string takes it");
        }
        std::fs::write(dir.join("run.sh"), script).map_err(at)?;
        self.kernel.run_script(&dir, BOOT_SECONDS)?;
        Ok((0..batch.len()).map(|i| read(&dir, i)).collect())
    }
}

/// Makes a program of C that needs no libraries in the guest. Errors: no C compiler, and what it
/// says.
pub fn compile(source: &str, binary: &Path) -> Result<(), String> {
    let file = binary.with_extension("c");
    std::fs::write(&file, source).map_err(|e| format!("{}: {e}", file.shown()))?;
    let made = Command::new("gcc")
        .args(["-O2", "-w", "-static", "-pthread", "-o"])
        .args([binary, &file])
        .output()
        .map_err(|e| format!("gcc: {e}"))?;
    if !made.status.success() {
        return Err(format!("gcc: {}", String::from_utf8_lossy(&made.stderr)));
    }
    Ok(())
}

/// Set-up of one file system, as in the recorded runs. `umount` and the device's end come after the
/// program, so that their requests are not in anybody's way.
const SETUP: &str = r#"
cp /share/prog /run/prog; chmod +x /run/prog
U=11111111-2222-3333-4444-555555555555
D=/sys/kernel/config/nullb/z0
one() {
 mkdir $D
 for kv in memory_backed=1 completion_nsec=LATENCY irqmode=2 $2; do
  echo ${kv#*=} > $D/${kv%%=*} || exit 3
 done
 echo 1 > $D/power || exit 3
 E=lazy_itable_init=0,lazy_journal_init=0,hash_seed=$U
 case $3 in
  ext4) mkfs.ext4 -q -F -U $U -E $E $4 /dev/z0 ;;
  nilfs2) mkfs.nilfs2 -f $4 /dev/z0 ;;
  *) mkfs.$3 -f -U $U $4 /dev/z0 ;;
 esac > /share/$1.err 2>&1 || touch /share/$1.failed
 cp /share/$1.prog /run/p
 # A share of the dirty pages that does not depend on what other programs of this boot have written
 # (`wb_calc_thresh`): the flusher would start early on a device whose share has become 0. btrfs is
 # a device of its own to the flusher, and ours counts its share.
 [ $3 = btrfs ] || echo 90 > /sys/block/z0/bdi/min_ratio
 /run/prog now > /share/$1.mount
 # Ours keeps no access times: reads must not dirty inodes.
 mount -i -t $3 -o noatime${5:+,$5} /dev/z0 /mnt/a 2>> /share/$1.err || touch /share/$1.failed
 sync
 [ -e /share/$1.failed ] || /run/prog /run/p /mnt/a > /share/$1.out 2>> /share/$1.err ||
  touch /share/$1.failed
 # The files of asynchronous calls are let go a moment after the process has ended.
 umount /mnt/a 2> /dev/null || { sleep 1; umount /mnt/a; }
 echo 0 > $D/power; rmdir $D
}
"#;

fn read(dir: &Path, i: usize) -> Result<Ran, String> {
    let text = |kind: &str| std::fs::read_to_string(dir.join(format!("{i}.{kind}")));
    if dir.join(format!("{i}.failed")).exists() {
        return Err(text("err").unwrap_or_default().trim().to_owned());
    }
    let mount = text("mount").map_err(|e| e.to_string())?;
    let mount_ns = mount.trim().parse().map_err(|_| format!("`{}` is not a time", mount.trim()))?;
    let out = text("out").map_err(|e| e.to_string())?;
    let timed = out.lines().map(timed).collect::<Result<_, _>>()?;
    Ok(Ran { mount_ns, timed })
}

/// A call as `prog.c` prints it. Errors: a line that is none.
pub fn timed(line: &str) -> Result<Timed, String> {
    let wrong = || format!("`{line}` is not a timed call");
    let cells: Vec<&str> = line.split('\t').collect();
    let [case, op, index, start, ns, ok, ref sent @ ..] = cells[..] else { return Err(wrong()) };
    let number = |t: &str| t.parse::<u64>().map_err(|_| wrong());
    Ok(Timed {
        case: case.to_owned(),
        op: op.to_owned(),
        index: number(index)? as u32,
        start_ns: number(start)?,
        ns: number(ns)?,
        ok: ok == "1",
        answer: match *sent {
            [_, _, answer] => Some(answer.parse().map_err(|_| wrong())?),
            _ => None,
        },
        sent: match *sent {
            [] => None,
            [requests, flushes, ..] if sent.len() < 4 => {
                let requests = requests.parse().map_err(|_| wrong())?;
                Some(Sent { requests, flushes: number(flushes)? })
            }
            _ => return Err(wrong()),
        },
    })
}
