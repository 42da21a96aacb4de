//! Bugs that were found here (`crash bug N2` to `N6`, `N10`, `N11`, `N13`, `N29`, `N30`, of F2FS,
//! N5, N10 and N11 by reading and the others by generated programs; `N7`, of ext4, by reading;
//! `N9`, of ext4, `N14` and `N15`, of NILFS2, and `N16` to `N25` and N31, of btrfs, by programs),
//! seen in Linux itself: a guest with 6.12 runs the reduced program in virtual time, and this
//! host's kernel the one of `N9`.
//!
//! N2 and N3 are read off the guest's block trace: a memory-backed null_blk has done a write when
//! it takes it, so that a cut there cannot show that a flush came too early.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use wp_campaign::{Bench, Cut, Space, play};
use wp_machine::spec::file_system;
use wp_machine::testing::skipped;
use wp_workload::program::Program;

use crate::guest::guest as usual_guest;

/// Runs programs in the guest.
const PROG_C: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/vtime/prog.c");
/// MiB of a guest, and seconds until it is ended.
const GUEST: (u32, u64) = (1500, 120);

/// Stops a file system without writing what is dirty (`FS_IOC_SHUTDOWN`, `NOSYNC`).
const STOP_C: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
int main(int c, char **v) {
    uint32_t how = 2;
    return c != 2 || ioctl(open(v[1], O_RDONLY), _IOR('X', 125, uint32_t), &how);
}
"#;

/// The program runs on a fresh F2FS, traced; then the file system stops where it is and is mounted
/// again. Written: `trace`, and `size`, the length of a file `a` afterwards.
const RUN: &str = r#"
cp /share/prog /share/stop /run; chmod +x /run/prog /run/stop
D=/sys/kernel/config/nullb/z0; TR=/sys/kernel/tracing
mkdir $D
for kv in memory_backed=1 completion_nsec=100000 irqmode=2 blocksize=4096 size=512 \
    cache_size=64 fua=1; do echo ${kv#*=} > $D/${kv%%=*} || exit 3; done
echo 1 > $D/power || exit 3
mkfs.f2fs -f /dev/z0 > /dev/null || exit 4
mount -t f2fs -o MOUNT /dev/z0 /mnt/a || exit 5
sync
for e in block_rq_issue block_rq_complete; do echo 1 > $TR/events/block/$e/enable || exit 6; done
echo > $TR/trace; echo 1 > $TR/tracing_on
/run/prog /share/program /mnt/a || exit 7
echo 0 > $TR/tracing_on
grep -v '^#' $TR/trace > /share/trace
/run/stop /mnt/a || exit 8
umount /mnt/a
mount -t f2fs -o MOUNT /dev/z0 /mnt/a || exit 9
[ ! -e /mnt/a/a ] || stat -c %s /mnt/a/a > /share/size
umount /mnt/a
"#;

/// The program runs on a fresh ext4, traced; then the file system stops where it is and is mounted
/// again. Written: `trace`; `names`, what is there; and `size`, the length of a file `a`,
/// afterwards.
const RUN_EXT4: &str = r#"
cp /share/prog /share/stop /run; chmod +x /run/prog /run/stop
D=/sys/kernel/config/nullb/z0; TR=/sys/kernel/tracing
mkdir $D
for kv in memory_backed=1 completion_nsec=100000 irqmode=2 blocksize=4096 size=512 \
    cache_size=64 fua=1; do echo ${kv#*=} > $D/${kv%%=*} || exit 3; done
echo 1 > $D/power || exit 3
mkfs.ext4 -q -F -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 MKFS /dev/z0 || exit 4
mount -t ext4 /dev/z0 /mnt/a || exit 5
sync
for e in block_rq_issue block_rq_complete; do echo 1 > $TR/events/block/$e/enable || exit 6; done
echo > $TR/trace; echo 1 > $TR/tracing_on
/run/prog /share/program /mnt/a || exit 7
echo 0 > $TR/tracing_on
grep -v '^#' $TR/trace > /share/trace
/run/stop /mnt/a || exit 8
umount /mnt/a
LOSE
mount -t ext4 /dev/z0 /mnt/a || { echo refused > /share/names; exit 0; }
ls /mnt/a > /share/names
for f in a b; do [ ! -f /mnt/a/$f ] || stat -c %s /mnt/a/$f > /share/size-$f; done
for f in a b; do [ ! -f /mnt/a/$f ] || head -c 4 /mnt/a/$f | od -An -tx1 > /share/data-$f; done
umount /mnt/a
e2fsck -fn /dev/z0 > /share/check; echo $? > /share/checked
"#;
/// The tail of the last fast commit is lost with the drive's cache; or the blocks before it.
const LOSE_TAIL: &str = r#"
AT=$(grep block_rq_issue /share/trace | grep ' WFSM ' | tail -1 |
    sed 's/.*() \([0-9]*\) + .*/\1/')
dd if=/dev/zero of=/dev/z0 bs=4096 seek=$((AT / 8)) count=1 conv=notrunc oflag=direct ||
    exit 8
"#;
const LOSE_OTHERS: &str = r#"
AT=$(grep block_rq_issue /share/trace | grep ' WFSM ' | tail -1 |
    sed 's/.*() \([0-9]*\) + .*/\1/')
dd if=/dev/zero of=/dev/z0 bs=4096 seek=$((AT / 8 - 1)) count=1 conv=notrunc oflag=direct ||
    exit 8
"#;

/// The error of `listxattr`, as a number; 0: none. With the name of an attribute its length; -1:
/// there is none.
const LIST_C: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <sys/xattr.h>
int main(int c, char **v) {
    char names[4096];
    if (c == 3) return printf("%ld\n", (long)getxattr(v[1], v[2], 0, 0)) < 0;
    return c != 2 || printf("%d\n", listxattr(v[1], names, sizeof names) < 0 ? errno : 0) < 0;
}
"#;

/// A crash state is mounted. Written: `said`, what listing the attributes of the file `a` answers.
const ATTRIBUTES: &str = r#"
cp /share/list /run; chmod +x /run/list
L=$(losetup -f) && losetup $L /share/base || exit 3
mount -t f2fs $L /mnt/a || exit 4
/run/list /mnt/a/a > /share/said || exit 5
umount /mnt/a
"#;

/// A file is synced, and the file system stops where it is. Linux recovers it, and stops behind
/// that. Written: `size`, the length of the file `a` then; `cut`, its length when Linux mounts what
/// recovery had done before the first block of its checkpoint's pack; `packs`, the first block of
/// those; and `trace`, the requests of recovery.
const RECOVER: &str = r#"
cp /share/prog /share/stop /run; chmod +x /run/prog /run/stop
D=/sys/kernel/config/nullb/z0; TR=/sys/kernel/tracing
mkdir $D
for kv in memory_backed=1 completion_nsec=100000 irqmode=2 blocksize=4096 DEVICE; do
    echo ${kv#*=} > $D/${kv%%=*} || exit 3
done
echo 1 > $D/power || exit 3
mount_it() { mount -t f2fs -o MOUNT /dev/z0 /mnt/a || exit 5; }
length() { if [ -e /mnt/a/a ]; then stat -c %s /mnt/a/a; else echo none; fi > /share/$1; }
stop() { /run/stop /mnt/a || exit 6; umount /mnt/a; }
mkfs.f2fs -f MKFS /dev/z0 > /dev/null || exit 4
# Two packs of a segment each, from `cp_blkaddr` of the super block on.
CP=$(od -An -tu4 -j1100 -N4 /dev/z0 | tr -d ' ')
echo $CP > /share/packs
mount_it; sync
/run/prog /share/program /mnt/a || exit 7
stop
dd if=/dev/z0 of=/run/packs bs=4096 skip=$CP count=1024 iflag=direct 2> /dev/null || exit 4
echo 1 > $TR/events/block/block_rq_issue/enable || exit 9
echo > $TR/trace; echo 1 > $TR/tracing_on
mount_it; length size; stop
echo 0 > $TR/tracing_on
grep -v '^#' $TR/trace > /share/trace
dd if=/run/packs of=/dev/z0 bs=4096 seek=$CP conv=notrunc oflag=direct 2> /dev/null || exit 8
mount_it; length cut; umount /mnt/a
"#;

/// A synced file of an ext4 with `discard` is deleted, and writes to the journal fail; later they
/// would not. Written: `before` and `after`, the file's hash when it was synced and when Linux
/// mounts again; `said`, what the fsync of another file answers; and `trace`.
const FAILING_COMMIT: &str = r#"
D=/sys/kernel/config/nullb/z0; TR=/sys/kernel/tracing
mkdir $D
for kv in memory_backed=1 completion_nsec=100000 irqmode=2 blocksize=4096 size=128 discard=1; do
    echo ${kv#*=} > $D/${kv%%=*} || exit 3
done
echo 1 > $D/power || exit 3
mkfs.ext4 -q -F -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 /dev/z0 || exit 4
# The journal's blocks but its super block, as ranges of sectors.
BAD=$(debugfs -R "stat <8>" /dev/z0 2> /dev/null | grep -A1 EXTENTS | tail -1 | tr -d ' ' |
    tr ',' '\n' | sed 's/.*://' | while IFS=- read a b; do
        [ -s /run/first ] || { echo 1 > /run/first; a=$((a + 1)); }
        echo $((a * 8))-$((b * 8 + 7))
    done)
journal() { for r in $BAD; do echo $1$r > $D/badblocks || exit 6; done; }
mount -t ext4 -o discard /dev/z0 /mnt/a || exit 5
head -c 16384 /dev/urandom > /mnt/a/f
sync
sha256sum < /mnt/a/f > /share/before
echo 1 > $TR/events/block/block_rq_issue/enable || exit 9
echo > $TR/trace; echo 1 > $TR/tracing_on
rm /mnt/a/f
echo something > /mnt/a/g
journal +
sync /mnt/a/g; echo $? > /share/said
sleep 2
echo 0 > $TR/tracing_on
grep -v '^#' $TR/trace > /share/trace
journal -
umount /mnt/a
mount -t ext4 -o ro /dev/z0 /mnt/a || exit 10
sha256sum < /mnt/a/f > /share/after
umount /mnt/a
"#;

/// Writes two blocks at the start of a file past the cache, from memory of which the second block
/// must first be read from a slow device.
const HELD_C: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int c, char **v) {
    int slow = open(v[1], O_RDONLY), fd = open(v[2], O_RDWR | O_DIRECT);
    char *b = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(b, 'n', 4096);
    if (mmap(b + 4096, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, slow, 0) == MAP_FAILED) return 2;
    return pwrite(fd, b, 8192, 0) != 8192;
}
"#;

/// A direct write is held, the file system is synced, and what the device holds then is mounted
/// later: `cut`, the bytes of the file `a` by their values. `before`: what it was synced with. The
/// device was full of `s`.
const HELD: &str = r#"
cp /share/held /run; chmod +x /run/held
K=/sys/kernel/config/nullb
mkdir $K/z0 $K/z1
null() { echo $3 > $K/$1/$2 || exit 3; }
for z in z0 z1; do null $z memory_backed 1; null $z irqmode 2; null $z blocksize 4096; done
null z0 completion_nsec 100000; null z0 size 64; null z0 power 1
null z1 completion_nsec 900000000; null z1 size 16; null z1 power 1
head -c 67108864 /dev/zero | tr '\0' s > /dev/z0
mkfs.f2fs -f -t 0 /dev/z0 > /dev/null || exit 4
mount_it() { mount -t f2fs -o MOUNT /dev/z0 /mnt/a || exit 5; }
bytes() { od -An -v -c -w1 /mnt/a/a | sort | uniq -c | tr -s ' \n' ' ' > /share/$1; }
mount_it
MAKE
sync; bytes before
/run/held /dev/z1 /mnt/a/a & P=$!
sleep 0.2
sync -f /mnt/a
dd if=/dev/z0 of=/run/copy bs=1M iflag=direct 2> /dev/null || exit 6
kill -0 $P || exit 7
wait $P || exit 8
umount /mnt/a
dd if=/run/copy of=/dev/z0 bs=1M oflag=direct 2> /dev/null || exit 9
mount_it; bytes cut; umount /mnt/a
"#;

/// A NILFS2 of small segments, synced twice, so that the second sync's logs go on in a next
/// segment; then what its device may hold after a cut during the second: all of its logs but the
/// block LOST, and no super block of it, which waits for a flush. Written: `whole`, what Linux has
/// at its root when no block is lost; `lost`, the same, or that it does not mount; `trace`.
const SEGMENTS: &str = r#"
cp /share/prog /run; chmod +x /run/prog
D=/sys/kernel/config/nullb/z0; TR=/sys/kernel/tracing
mkdir $D
for kv in memory_backed=1 completion_nsec=100000 irqmode=2 blocksize=4096 size=6 cache_size=4 \
    fua=1; do echo ${kv#*=} > $D/${kv%%=*} || exit 3; done
echo 1 > $D/power || exit 3
device() { dd if=$1 of=/dev/z0 bs=1M oflag=direct 2> /dev/null || exit 4; }
block() { dd if=/share/base of=/run/cut bs=4096 count=1 skip=$1 seek=$1 conv=notrunc 2> /dev/null; }
root() {
    device /run/cut
    if mount -t nilfs2 /dev/z0 /mnt/a; then ls /mnt/a; umount /mnt/a; else echo no mount; fi \
        > /share/$1 2> /dev/null
}
device /share/base
mount -t nilfs2 /dev/z0 /mnt/a || exit 5
echo 1 > $TR/events/block/block_rq_issue/enable || exit 9
echo > $TR/trace; echo 1 > $TR/tracing_on
/run/prog /share/program /mnt/a || exit 7
echo 0 > $TR/tracing_on
grep -v '^#' $TR/trace > /share/trace
dd if=/dev/z0 of=/run/cut bs=1M iflag=direct 2> /dev/null || exit 6
umount /mnt/a
block 0; root whole
block LOST; root lost
"#;

/// A program runs on a fresh NILFS2 with a synced file `keep`, and the device is mounted as it is
/// then. Written: `cut`, what is at its root, or that it does not mount.
const NAMELESS: &str = r#"
cp /share/prog /run; chmod +x /run/prog
D=/sys/kernel/config/nullb/z0
mkdir $D
for kv in memory_backed=1 completion_nsec=100000 irqmode=2 blocksize=4096 size=64; do
    echo ${kv#*=} > $D/${kv%%=*} || exit 3
done
echo 1 > $D/power || exit 3
device() { dd if=$1 of=/dev/z0 bs=1M oflag=direct 2> /dev/null || exit 4; }
device /share/base
mount -t nilfs2 /dev/z0 /mnt/a || exit 5
echo keep > /mnt/a/keep; sync
/run/prog /share/program /mnt/a || exit 7
dd if=/dev/z0 of=/run/cut bs=1M iflag=direct 2> /dev/null || exit 6
umount /mnt/a
device /run/cut
if mount -t nilfs2 /dev/z0 /mnt/a; then ls /mnt/a; umount /mnt/a; else echo no mount; fi \
    > /share/cut 2> /dev/null
"#;

/// A program runs on a fresh btrfs, and the device is mounted as it is then. Written: `names`, all
/// of them, and `sums`, of files, once it was mounted; `state`: how far it came.
const LOGGED: &str = r#"
cp /share/prog /run; chmod +x /run/prog
D=/sys/kernel/config/nullb/z0
mkdir $D
for kv in memory_backed=1 completion_nsec=100000 irqmode=2 blocksize=4096 size=128; do
    echo ${kv#*=} > $D/${kv%%=*} || exit 3
done
echo 1 > $D/power || exit 3
device() { dd if=$1 of=/dev/z0 bs=1M oflag=direct 2> /dev/null || exit 4; }
device /share/base
mount -t btrfs /dev/z0 /mnt/a || exit 5
/run/prog /share/program /mnt/a || exit 7
dd if=/dev/z0 of=/run/cut bs=1M iflag=direct 2> /dev/null || exit 6
umount /mnt/a
device /run/cut
echo cut > /share/state
mount -t btrfs /dev/z0 /mnt/a || exit 8
echo mounted > /share/state
cd /mnt/a
find . -type f -exec sha256sum {} \; > /share/sums
find . | sort > /share/names
find . -type f -exec stat -c '%n %s %b' {} \; | sort > /share/space
cd /
umount /mnt/a
"#;

/// What the guest left.
struct Seen {
    /// Requests that the device was given (`true`) and answered, and what they are: `rwbs`, first
    /// sector.
    requests: Vec<(bool, String, u64)>,
    size: Option<u64>,
}

/// [`RUN`]. `None`: this machine has no guest, and the check was named as skipped.
fn in_linux(bug: &str, mount: &str, program: &str) -> Option<Seen> {
    let scratch = guest(bug, &RUN.replace("MOUNT", mount), program)?;
    let dir = scratch.path();
    let trace = std::fs::read_to_string(dir.join("trace")).expect("a trace");
    let requests = trace.lines().filter_map(request).collect();
    let size = std::fs::read_to_string(dir.join("size")).ok();
    Some(Seen { requests, size: size.map(|s| s.trim().parse().expect("a number")) })
}

/// The directory that the guest has as `/share`, when it has run a script. `None`: as above.
pub(crate) fn guest(bug: &str, run: &str, program: &str) -> Option<TempDir> {
    guest_with(bug, run, program, None)
}

/// As [`guest`], with a file `base` there: an image.
fn guest_with(bug: &str, run: &str, program: &str, base: Option<&[u8]>) -> Option<TempDir> {
    let (scratch, went_well) = any_guest(bug, run, program, base)?;
    let said = std::fs::read_to_string(scratch.path().join("stdout.txt")).unwrap_or_default();
    assert!(went_well, "the guest failed: {said}");
    Some(scratch)
}

/// The same, of one that may fail: did it not?
fn any_guest(bug: &str, run: &str, program: &str, base: Option<&[u8]>) -> Option<(TempDir, bool)> {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    let ready = usual_guest(&[]).and_then(|guest| {
        compile(Path::new(PROG_C), &dir.join("prog"))?;
        std::fs::write(dir.join("stop.c"), STOP_C).map_err(|e| e.to_string())?;
        compile(&dir.join("stop.c"), &dir.join("stop"))?;
        std::fs::write(dir.join("held.c"), HELD_C).map_err(|e| e.to_string())?;
        compile(&dir.join("held.c"), &dir.join("held"))?;
        std::fs::write(dir.join("list.c"), LIST_C).map_err(|e| e.to_string())?;
        compile(&dir.join("list.c"), &dir.join("list"))?;
        Ok(guest)
    });
    let guest = match ready {
        Ok(guest) => guest,
        Err(why) => {
            skipped(&format!("{bug} in a real kernel"), &why);
            return None;
        }
    };
    if let Some(base) = base {
        std::fs::write(dir.join("base"), base).expect("written");
    }
    std::fs::write(dir.join("program"), program).expect("written");
    std::fs::write(dir.join("run.sh"), run).expect("written");
    let went_well = guest.with_memory(GUEST.0).run_script(dir, GUEST.1).is_ok();
    Some((scratch, went_well))
}

fn compile(source: &Path, binary: &Path) -> Result<(), String> {
    let made = Command::new("gcc").args(["-w", "-static", "-o"]).args([binary, source]).output();
    let made = made.map_err(|e| format!("gcc: {e}"))?;
    let said = || format!("gcc: {}", String::from_utf8_lossy(&made.stderr));
    if made.status.success() { Ok(()) } else { Err(said()) }
}

/// `… block_rq_issue: 253,1 WS 4096 () 36872 + 8 …`, `… block_rq_complete: 253,1 WS () 36872 + 8
/// …`.
fn request(line: &str) -> Option<(bool, String, u64)> {
    let (is_issue, rest) = match line.split_once("block_rq_issue: ") {
        Some((_, rest)) => (true, rest),
        None => (false, line.split_once("block_rq_complete: ")?.1),
    };
    let rwbs = rest.split(' ').nth(1)?;
    let sector = rest.split(") ").nth(1)?.split(' ').next()?;
    Some((is_issue, rwbs.to_owned(), sector.parse().ok()?))
}

/// Is anything of a request about a flush?
fn flushes(rwbs: &str) -> bool {
    rwbs.contains('F')
}

#[test]
fn linux_too_sends_no_flush_when_syncfs_finds_data_written_in_place() {
    let program = "open 0 a rw,creat\npwrite 0 8192 0 1\nopen 1 . r\nsyncfs 1\n\
        case again\npwrite 0 4096 0 2\nsyncfs 1\n";
    let Some(seen) = in_linux("N2", "fsync_mode=posix", program) else { return };
    let issued: Vec<&str> =
        seen.requests.iter().filter(|r| r.0).map(|(_, rwbs, _)| rwbs.as_str()).collect();
    let last = issued.iter().rposition(|r| flushes(r)).expect("the first syncfs is a checkpoint");
    assert_eq!(&issued[last + 1..], ["W"], "{issued:?}");
}

#[test]
fn linux_too_lets_the_last_nodes_flush_overtake_the_node_before_it() {
    let program = "open 0 a rw,creat\npwrite 0 8192 0 1\nclose 0\nopen 1 . r\nsyncfs 1\n\
        setxattr a user.note 1000 2\nopen 2 a r\nfsync 2\nnap 1000000\n";
    let Some(seen) = in_linux("N3", "mode=lfs,fsync_mode=strict", program) else { return };
    let all = &seen.requests;
    // The attribute's node is the last write, forced, and behind a flush of its own.
    let forced = all.iter().rposition(|(issue, rwbs, _)| *issue && rwbs.starts_with("WF"));
    let forced = forced.expect("a forced node");
    let flush = all[..forced].iter().rposition(|(issue, rwbs, _)| *issue && rwbs == "FF");
    let flush = flush.expect("its flush");
    let before = all[..flush].iter().rposition(|(issue, rwbs, _)| *issue && !flushes(rwbs));
    let inode = all[before.expect("the inode's node")].2;
    let arrives =
        all.iter().rposition(|(issue, _, at)| !issue && *at == inode).expect("it arrives");
    assert!(flush < arrives, "the flush was sent when the node had arrived: {all:?}");
    assert!(
        all[arrives..].iter().all(|(issue, rwbs, _)| !issue || rwbs.starts_with("WF")),
        "{all:?}"
    );
}

#[test]
fn linux_too_loses_the_length_of_a_direct_dsync_write() {
    let of = |before: &str, flags: &str, after: &str| {
        let text = format!(
            "open 0 a rw,creat\n{before}\nopen 1 a rw,direct{flags}\npwrite 1 4096 0 1\n{after}\n"
        );
        in_linux("N4", "fsync_mode=posix", &text).map(|seen| seen.size)
    };
    let Some(kept) = of("fallocate 0 keep 0 4096", ",dsync", "") else { return };
    assert_eq!(kept, Some(0), "the promised block is behind the end of the file");
    assert_eq!(of("link a b", ",dsync", ""), Some(Some(0)), "so with a second name");
    // Without either, recovery makes the file longer by itself; and fsync knows the length.
    assert_eq!(of("", ",dsync", ""), Some(Some(4096)));
    assert_eq!(of("fallocate 0 keep 0 4096", "", "fsync 1"), Some(Some(4096)));
}

/// N32: the data are forced, and the length on disk, which a delayed write has left behind, is in
/// no commit.
#[test]
fn linux_too_loses_the_length_of_a_direct_dsync_write_before_a_delayed_one() {
    let of = |delayed: &str, after: &str| {
        let text = format!(
            "open 0 a rw,creat,direct,dsync\nopen 1 a rw\npwrite 1 11776 0 1\nfdatasync 0\n\
            {delayed}\npwrite 0 8192 4096 3\n{after}\n"
        );
        let run = RUN_EXT4.replace("MKFS", "").replace("LOSE", "");
        let scratch = guest("N32", &run, &text)?;
        let size = std::fs::read_to_string(scratch.path().join("size-a")).expect("it is there");
        Some(size.trim().parse::<u64>().expect("a number"))
    };
    let Some(kept) = of("pwrite 1 4096 12288 2", "") else { return };
    assert_eq!(kept, 11776, "the last 512 bytes of the synced write are behind the end");
    assert_eq!(of("", ""), Some(12288), "without the delayed write the length is synced");
    assert_eq!(of("pwrite 1 4096 12288 2", "fdatasync 0"), Some(16384));
}

/// What is found after a stop of a file system with fast commits.
#[derive(Debug)]
struct AfterFast {
    /// Names, or `refused` where the mount fails.
    names: String,
    /// First bytes of `a` and `b`, as `od` prints them.
    data: [String; 2],
    /// e2fsck finds damage.
    is_damaged: bool,
    /// Requests, as [`Seen`] has them.
    requests: Vec<(bool, String, u64)>,
}

fn with_fast_commits(bug: &str, lose: &str, program: &str) -> Option<AfterFast> {
    let run = RUN_EXT4.replace("MKFS", "-O fast_commit").replace("LOSE", lose);
    let scratch = guest(bug, &run, program)?;
    let read = |name: &str| {
        let text = std::fs::read_to_string(scratch.path().join(name)).unwrap_or_default();
        text.trim().to_owned()
    };
    Some(AfterFast {
        names: read("names").replace('\n', " "),
        data: [read("data-a"), read("data-b")],
        is_damaged: read("checked") == "4",
        requests: read("trace").lines().filter_map(request).collect(),
    })
}

/// Ten new files with long names and one synced: two blocks of a fast commit.
fn many_names() -> String {
    let mut text = "open 0 a rw,creat\nfsync 0\n".to_owned();
    for n in 0..10 {
        let name = "n".repeat(240);
        text += &format!("open 1 {name}{n} rw,creat\nclose 1\n");
    }
    text + "pwrite 0 4096 0 1\nfsync 0\n"
}

/// H1, N33: the FLUSH of the tail is issued while the block before it is on its way.
#[test]
fn linux_too_does_not_wait_for_the_blocks_before_the_tail_of_a_fast_commit() {
    let Some(whole) = with_fast_commits("H1", "", &many_names()) else { return };
    assert!(whole.names.split(' ').count() > 10, "all names: {}", whole.names);
    let flush = whole.requests.iter().rposition(|(issued, rwbs, _)| *issued && rwbs == "FF");
    let flush = flush.expect("the tail's flush");
    let tail = whole.requests.iter().rfind(|(_, rwbs, _)| rwbs == "WFSM").expect("the tail").2;
    let before = |issued: bool| (issued, "WSM".to_owned(), tail - 8);
    let done = whole.requests.iter().position(|r| *r == before(false)).expect("it is written");
    assert!(done > flush, "it is complete when the flush is issued: {:#?}", whole.requests);
    let torn = with_fast_commits("H1", LOSE_OTHERS, &many_names()).expect("as before");
    assert!(!torn.names.contains("nnn"), "{}", torn.names);
    let cut = with_fast_commits("N33", LOSE_TAIL, &many_names()).expect("as before");
    assert_eq!(cut.names, "refused", "no mount after a power failure in a first fast commit");
}

/// N44: 63 fast commits of a block each fill the area; with 62, or with one more, which is a full
/// commit, the mount is as it should be.
#[test]
fn linux_too_cannot_mount_where_the_area_of_fast_commits_is_full() {
    let after = |count: u64| {
        let mut text = "open 0 a rw,creat\nfsync 0\n".to_owned();
        for n in 0..count {
            text += &format!("pwrite 0 4096 {} {}\nfsync 0\n", n * 4096, n + 1);
        }
        with_fast_commits("N44", "", &text).map(|seen| seen.names)
    };
    // null_blk of 512 MiB: a journal of 4096 blocks and an area of 64, one of which is never used.
    let Some(full) = after(63) else { return };
    assert_eq!(full, "refused");
    assert_ne!(after(62).expect("as before"), "refused");
    assert_ne!(after(64).expect("as before"), "refused");
}

/// N55: the first write zeroes the block before it, which the second overwrites in place.
#[test]
fn linux_too_loses_what_is_written_over_zeroes_that_no_fast_commit_has() {
    let bug = wp_campaign::bugs::find("N55").expect("it is in the list");
    let program = wp_campaign::bugs::text(bug).expect("a program of its own");
    let of = |feature: &str| {
        let run = RUN_EXT4.replace("MKFS", feature).replace("LOSE", "");
        let run = run.replace("mount -t ext4", "mount -t ext4 -o nodelalloc");
        let scratch = guest("N55", &run, program)?;
        Some(std::fs::read_to_string(scratch.path().join("data-a")).expect("it is there"))
    };
    let Some(lost) = of("-O fast_commit") else { return };
    assert_eq!(lost.trim(), "00 00 00 00", "the synced write is gone");
    assert_ne!(of("-O ^fast_commit").expect("as before").trim(), "00 00 00 00");
}

/// N34 to N38 and N40: the file system stops behind the last sync of each program.
#[test]
fn linux_too_loses_what_fast_commits_forget() {
    let of = |id: &str| {
        let bug = wp_campaign::bugs::find(id).expect("it is in the list");
        wp_campaign::bugs::text(bug).expect("a program of its own")
    };
    let Some(unnamed) = with_fast_commits("N34", "", of("N34")) else { return };
    assert!(!unnamed.names.contains('b') && unnamed.is_damaged, "{unnamed:?}");
    let unlinked = with_fast_commits("N35", "", of("N35")).expect("as before");
    assert_eq!(unlinked.names, "refused");
    let untracked = with_fast_commits("N37", "", of("N37")).expect("as before");
    assert_eq!(untracked.data[0], "00 00 00 00", "both writes are lost");
    for id in ["N38", "N40"] {
        assert!(with_fast_commits(id, "", of(id)).expect("as before").is_damaged, "{id}");
    }
    // N36: which write comes while the transaction commits depends on the phase of its timer.
    let lost = (0..8).any(|n| {
        let text = format!(
            "open 0 a rw,creat\nfsync 0\nopen 1 b rw,creat\nfsync 1\nnap 7500000\n\
             open 2 c rw,creat\nnap {}\nsetxattr a user.a 23 11\npwrite 1 4096 0 1\nfdatasync 1\n",
            4_800_000 + n * 100_000
        );
        with_fast_commits("N36", "", &text).expect("as before").data[1] == "00 00 00 00"
    });
    assert!(lost, "what was written while the transaction with the attribute committed");
}

/// The write is there, forced, and no node leads to it.
#[test]
fn linux_too_forgets_the_nodes_of_a_direct_dsync_overwrite() {
    let of = |flags: &str, after: &str| {
        let text = format!(
            "open 0 a rw,creat\npwrite 0 4096 0 1\nopen 1 a rw,direct{flags}\n\
            pwrite 1 4096 0 2\n{after}\n"
        );
        in_linux("N13", "fsync_mode=posix", &text).map(|seen| seen.size)
    };
    let Some(kept) = of(",dsync", "") else { return };
    assert_eq!(kept, None, "there is no such file");
    assert_eq!(of("", "fdatasync 1"), Some(Some(4096)));
}

/// N30: of the nodes that a strict fsync writes the last alone gets what changed of the inode.
#[test]
fn linux_too_leaves_the_length_out_where_the_last_node_holds_attributes() {
    let of = |mount: &str, attribute: &str| {
        let text = format!(
            "open 0 . r\nopen 1 a rw,creat\nfsync 0\n{attribute}\npwrite 1 4096 0 1\nfsync 1\n"
        );
        in_linux("N30", mount, &text).map(|seen| seen.size)
    };
    let large = "setxattr a user.b 1343 13";
    let Some(strict) = of("fsync_mode=strict", large) else { return };
    assert_eq!(strict, Some(0), "fsync has returned");
    assert_eq!(of("fsync_mode=posix", large), Some(Some(4096)));
    assert_eq!(
        of("fsync_mode=strict", "setxattr a user.b 40 13"),
        Some(Some(4096)),
        "in the inode"
    );
}

/// N29: the inode of a file is recovered and the node behind it is not; its attributes end in the
/// middle of one.
#[test]
fn linux_too_keeps_a_part_of_an_attribute() {
    let of = |options: &str| {
        let bench = Bench::new(&wp_f2fs::ENTRY, options).expect("options of F2FS");
        let text = "open 0 a rw,creat\nsetxattr a user.b 1065 6\nfsync 0\n";
        let played = play(&bench, &Program::parse(text).expect("a program")).expect("played");
        let history = Space::Permitted {
            lying_flush: false,
            lost_fua: false,
            faulty_plp: false,
            atomic: None,
        }
        .history(&played);
        // The first frame in which both nodes are unpersisted; the second of them is lost.
        let frame = history.frames.iter().position(|f| f.live.len() == 2).expect("two nodes");
        let fs = (bench.fs, &bench.fs_options);
        let cut = Cut { fs, played: &played, history: &history, frame, lost: &[1] };
        let mut base = vec![0; played.partition.1 as usize];
        cut.medium().read_bytes(played.partition.0, &mut base);
        let dir = guest_with("N29", ATTRIBUTES, text, Some(&base))?;
        let said = std::fs::read_to_string(dir.path().join("said")).expect("told");
        Some(said.trim().to_owned())
    };
    let Some(shared) = of("") else { return };
    assert_eq!(shared, "117", "EUCLEAN");
    assert_eq!(of("noinline_xattr").as_deref(), Some("0"), "none, and nothing damaged");
}

/// N10 and N11: a checkpoint while a direct write is under way has its new place, and there is what
/// somebody wrote long ago. In place nothing happens.
#[test]
fn linux_too_shows_old_data_where_a_direct_write_was_to_go() {
    let of = |bug: &str, mount: &str, make: &str| {
        let scratch = guest(bug, &HELD.replace("MOUNT", mount).replace("MAKE", make), "")?;
        let read = |name: &str| std::fs::read_to_string(scratch.path().join(name)).expect("told");
        Some((read("before").trim().to_owned(), read("cut").trim().to_owned()))
    };
    let written = "head -c 8192 /dev/zero | tr '\\0' o > /mnt/a/a";
    let promised = "fallocate -l 8192 /mnt/a/a";
    let is = |before: &str, cut: &str| Some((before.to_owned(), cut.to_owned()));
    let Some(moved) = of("N10", "mode=lfs", written) else { return };
    assert_eq!(Some(moved), is("8192 o", "8192 s"), "synced data are gone");
    assert_eq!(of("N10", "mode=adaptive", written), is("8192 o", "8192 o"), "in place");
    assert_eq!(of("N11", "mode=adaptive", promised), is("8192 \\0", "8192 s"), "zeroes are gone");
}

/// [`RECOVER`] after a file of two blocks was written and synced: the requests that it sent, and
/// the first sector of the packs. `None`: as above.
fn recovery_cut(
    bug: &str,
    mount: &str,
    (device, mkfs): (&str, &str),
) -> Option<(Vec<(String, u64)>, u64)> {
    let program = "open 0 a rw,creat\npwrite 0 8192 0 1\nfsync 0\n";
    let run = RECOVER.replace("MOUNT", mount).replace("DEVICE", device).replace("MKFS", mkfs);
    let dir = guest(bug, &run, program)?;
    let of = |name| std::fs::read_to_string(dir.path().join(name)).expect("the guest wrote it");
    assert_eq!(of("size").trim(), "8192", "{mount}: recovery brings it back");
    assert_eq!(of("cut").trim(), "none", "{mount}: and not after a cut");
    let sent = of("trace").lines().filter_map(request).map(|(_, what, at)| (what, at)).collect();
    Some((sent, of("packs").trim().parse::<u64>().expect("a block") * 8))
}

#[test]
fn linux_too_loses_a_synced_file_when_its_recovery_is_cut() {
    for mode in ["fsync_mode=posix", "mode=lfs,fsync_mode=strict"] {
        if recovery_cut("N5", mode, ("size=64", "")).is_none() {
            return;
        }
    }
}

#[test]
fn linux_too_resets_the_zone_that_it_recovers_from() {
    // What lies before the main area takes the conventional zones: every log is on a sequential
    // one, that of the file's node on the second.
    let device = "size=256 zoned=1 zone_size=4 zone_nr_conv=5";
    for mode in ["fsync_mode=posix", "fsync_mode=strict"] {
        let Some((sent, packs)) = recovery_cut("N6", mode, (device, "-m")) else { return };
        let node = 6 << 13;
        let reset = sent.iter().position(|(what, at)| what.starts_with('N') && *at == node);
        let reset = reset.expect("the zone with the node is reset");
        let written = |what: &str| what.starts_with('W');
        let pack =
            |(what, at): &(String, u64)| written(what) && (packs..packs + 1024 * 8).contains(at);
        let first = sent.iter().position(pack).expect("a checkpoint ends the recovery");
        assert!(reset < first, "{mode}: {sent:?}");
        assert!(sent[..reset].iter().all(|(what, _)| !written(what)), "{mode}: {sent:?}");
    }
}

#[test]
fn linux_too_discards_what_a_failed_commit_freed() {
    let Some(scratch) = guest("N7", FAILING_COMMIT, "") else { return };
    let read = |name: &str| std::fs::read_to_string(scratch.path().join(name)).expect("written");
    assert_eq!(read("said").trim(), "1", "the fsync fails: so does the commit");
    let trace = read("trace");
    let discards: Vec<_> = trace.lines().filter_map(request).filter(|r| r.1 == "DS").collect();
    assert_eq!(discards.len(), 1, "{trace}");
    let zeroes = wp_machine::results::sha256(&[0; 16384]);
    let hash = |name: &str| read(name).split(' ').next().expect("a hash").to_owned();
    assert_ne!(hash("before"), zeroes);
    assert_eq!(hash("after"), zeroes, "the file is there again, and holds nothing");
}

/// Blocks of a file of logged data are written, zeroed in place, and one of them is written again
/// and synced; then power fails: what the device had is mounted. Printed: the first byte of each
/// of four blocks, before and after. `$1` KiB are rather zeroed than split off.
const ZEROED: &str = r#"
set -e
trap 'umount m 2> /dev/null || true' EXIT
truncate -s 64M image; mkdir -p m
mkfs.ext4 -q -F -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 image
mount -o loop,data=journal image m
echo $1 > /sys/fs/ext4/$(basename $(findmnt -no SOURCE m))/extent_max_zeroout_kb
block() { head -c 4096 /dev/zero | tr '\0' $1; }
bytes() { for i in 0 1 2 3; do dd if=m/a bs=4096 skip=$i count=1 status=none | head -c 1 |
    tr '\0' 0; done; echo; }
block A | dd of=m/a bs=4096 seek=1 conv=notrunc status=none
fallocate -z -o 4096 -l 61440 m/a
block B | dd of=m/a bs=4096 seek=2 conv=notrunc status=none
sync -d m/a
cp image cut
bytes
umount m
mount -o loop cut m
bytes
"#;

#[test]
fn linux_too_brings_back_what_was_zeroed_past_the_log() {
    let scratch = tempfile::tempdir().expect("a directory");
    if let Some(why) = wp_parity::host_kernel::cannot(&scratch.path().join("try")) {
        skipped("N9 in this host's kernel", &why);
        return;
    }
    let after = |kib: &str| {
        let ran = Command::new("bash")
            .args(["-c", ZEROED, "zeroed", kib])
            .current_dir(scratch.path())
            .output()
            .expect("bash");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    // When the log no longer has the older copy it cannot come back: the host's journal may have
    // moved its tail on its own. Seen in about half of the runs.
    const TRIES: usize = 20;
    let back = ["00B0", "0AB0"];
    let seen = (0..TRIES).any(|_| after("32") == back);
    assert!(seen, "the first block that was zeroed is as it was before");
    for _ in 0..4 {
        assert_eq!(after("0"), ["00B0", "00B0"], "with nothing zeroed past the log it is not");
    }
}

fn new_image(text: &str, bytes: usize) -> Vec<u8> {
    let mut image = vec![0; bytes];
    let (fs, options) = file_system(text).expect("options");
    let made = (fs.mkfs)(&options, bytes as u64).expect("a file system");
    made.read_bytes(0, &mut image);
    image
}

#[test]
fn linux_too_takes_a_log_for_whole_whose_first_part_is_lost() {
    let base = new_image("nilfs2,blocks_per_segment=16", 6 << 20);
    let program = "mkdir a\nopen 0 . r\nsyncfs 0\nopen 1 b rw,creat\nsyncfs 0\n";
    // The last block of its segment.
    const LOST: u64 = 31;
    let run = SEGMENTS.replace("LOST", &LOST.to_string());
    let Some(dir) = guest_with("N14", &run, program, Some(&base)) else { return };
    let of = |name| std::fs::read_to_string(dir.path().join(name)).expect("the guest wrote it");
    let sent: Vec<(bool, String, u64)> = of("trace").lines().filter_map(request).collect();
    let writes: Vec<(&str, u64)> = sent
        .iter()
        .filter(|(_, what, _)| !what.contains('R'))
        .map(|(_, w, at)| (&**w, *at))
        .collect();
    // Two writes and a flush for each sync, none between the writes; the second begins in the
    // segment that the block ends, and goes on in the next.
    let kinds: Vec<&str> = writes.iter().map(|(what, _)| *what).collect();
    assert_eq!(kinds, ["WS", "WS", "FF", "WFS", "WS", "WS", "FF", "WFS"], "{writes:?}");
    assert!(writes[4].1 / 8 <= LOST && writes[5].1 == (LOST + 1) * 8, "{writes:?}");
    assert_eq!(of("whole"), "a\nb\n", "both syncs have returned");
    assert_eq!(of("lost"), "no mount\n", "and `a` was synced before");
}

#[test]
fn linux_too_cannot_mount_after_an_fdatasync_of_a_file_without_a_name() {
    let base = new_image("nilfs2,blocks_per_segment=64", 64 << 20);
    let program = |last: &str| {
        format!(
            "open 0 a rw,creat\npwrite 0 4096 0 1\nunlink a\nfsync 0\npwrite 0 4096 0 2\n{last} 0\n"
        )
    };
    for (last, left) in [("fsync", "keep\n"), ("fdatasync", "no mount\n")] {
        let Some(dir) = guest_with("N15", NAMELESS, &program(last), Some(&base)) else { return };
        let cut = std::fs::read_to_string(dir.path().join("cut")).expect("the guest wrote it");
        assert_eq!(cut, left, "{last}");
    }
}

#[test]
fn linux_too_gives_a_file_its_name_and_old_data_back_that_was_synced_without_it() {
    let base = new_image("btrfs", 128 << 20);
    let of = |last: &str| {
        let program = format!(
            "open 0 a rw,creat\npwrite 0 4096 0 1\nopen 1 . r\nsyncfs 1\nunlink a\n\
            pwrite 0 4096 0 2\nfsync 0\n{last}"
        );
        let dir = guest_with("N16", LOGGED, &program, Some(&base))?;
        Some(std::fs::read_to_string(dir.path().join("sums")).expect("the guest wrote it"))
    };
    // What the program in the guest writes for a seed.
    let sum = |seed: u8| wp_machine::results::sha256(&[1 + seed; 4096]);
    let Some(left) = of("") else { return };
    assert_eq!(left, format!("{}  ./a\n", sum(1)), "what was there before, not {}", sum(2));
    // A sync of all is a commit, and the name is gone.
    assert_eq!(of("syncfs 1\n").as_deref(), Some(""));
}

#[test]
fn linux_too_gives_a_file_the_name_back_that_it_lost_before_its_fsync() {
    let base = new_image("btrfs", 128 << 20);
    let of = |before: &str| {
        let program = format!(
            "mkdir a\nopen 0 a/b rw,creat\nopen 1 . r\nsyncfs 1\npwrite 0 4096 0 1\nfsync 0\n\
            {before}link a/b b\nunlink a/b\nfsync 0\n"
        );
        let dir = guest_with("N19", LOGGED, &program, Some(&base))?;
        Some(std::fs::read_to_string(dir.path().join("names")).expect("the guest wrote it"))
    };
    let Some(left) = of("mkdir a/c\n") else { return };
    assert_eq!(left, ".\n./a\n./a/b\n./a/c\n./b\n");
    // Without a change of the directory before it does not.
    assert_eq!(of("").as_deref(), Some(".\n./a\n./b\n"));
}

#[test]
fn linux_too_loses_a_synced_file_whose_only_durable_name_is_removed_by_a_directory_sync() {
    let base = new_image("btrfs", 128 << 20);
    let of = |moves: &str, last: &str| {
        let program = format!(
            "mkdir a\nopen 0 a/b rw,creat\npwrite 0 4096 0 1\nopen 1 . r\nsyncfs 1\n\
            open 2 a r\n{moves}{last}"
        );
        let dir = guest_with("N21", LOGGED, &program, Some(&base))?;
        Some(std::fs::read_to_string(dir.path().join("names")).expect("the guest wrote it"))
    };
    let linked = "link a/b c\nunlink a/b\n";
    let Some(left) = of(linked, "fsync 2\n") else { return };
    assert_eq!(left, ".\n./a\n", "it has neither name");
    assert_eq!(of(linked, "").as_deref(), Some(".\n./a\n./a/b\n"));
    // The same by a rename is a commit.
    assert_eq!(of("rename a/b c\n", "fsync 2\n").as_deref(), Some(".\n./a\n./c\n"));
}

#[test]
fn linux_too_loses_space_behind_the_end_of_a_file_when_its_directory_is_synced() {
    let base = new_image("btrfs", 128 << 20);
    let of = |last: &str| {
        let program = format!(
            "open 0 a rw,creat\nfallocate 0 keep 0 4096\nfsync 0\nopen 1 . r\nsyncfs 1\n\
            link a b\n{last}"
        );
        let dir = guest_with("N20", LOGGED, &program, Some(&base))?;
        Some(std::fs::read_to_string(dir.path().join("space")).expect("the guest wrote it"))
    };
    let Some(left) = of("fsync 1\n") else { return };
    assert_eq!(left, "./a 0 0\n./b 0 0\n");
    assert_eq!(of("").as_deref(), Some("./a 0 8\n"));
}

#[test]
fn linux_too_panics_at_mount_where_a_log_has_more_names_than_its_leaf_has_room_for() {
    let base = new_image("btrfs", 128 << 20);
    let links = |from: u32, to: u32| -> String {
        (from..to).map(|n| format!("link file {n:0>181}\n")).collect()
    };
    let of = |more: u32| {
        let program = format!(
            "open 0 file rw,creat\n{}open 1 . r\nsyncfs 1\n{}fsync 0\n",
            links(0, 35),
            links(35, 35 + more)
        );
        let (dir, went_well) = any_guest("N17", LOGGED, &program, Some(&base))?;
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        Some((went_well, read("state"), read("names").lines().count(), read("console.txt")))
    };
    let Some((went_well, state, _, console)) = of(15) else { return };
    assert!(!went_well && state == "cut\n", "{state}: {console}");
    assert!(console.contains("Kernel panic") && console.contains("btrfs_extend_item"), "{console}");
    // Fewer names are replayed: those of the links, the file's, and the root.
    let (went_well, state, names, console) = of(5).expect("there is a guest");
    assert!(went_well && state == "mounted\n", "{state}: {console}");
    assert_eq!(names, 35 + 5 + 2);
}

#[test]
fn linux_too_has_a_synced_file_below_the_old_name_of_its_directory() {
    let base = new_image("btrfs", 128 << 20);
    let of = |last: &str| {
        let program = format!(
            "mkdir A\nopen 1 . r\nsyncfs 1\nrename A B\nopen 0 B/foo rw,creat\nfsync 0\n{last}"
        );
        let dir = guest_with("N18", LOGGED, &program, Some(&base))?;
        Some(std::fs::read_to_string(dir.path().join("names")).expect("the guest wrote it"))
    };
    let Some(left) = of("") else { return };
    assert_eq!(left, ".\n./A\n./A/foo\n");
    assert_eq!(of("open 2 B r\nfsync 2\n").as_deref(), Some(".\n./B\n./B/foo\n"));
}

#[test]
fn linux_too_loses_space_behind_the_end_of_a_file_whose_front_is_written_and_synced() {
    let base = new_image("btrfs", 128 << 20);
    let of = |before: &str, last: &str| {
        let program = format!(
            "open 0 a rw,creat\n{before}fallocate 0 keep 0 65536\nopen 1 . r\nsyncfs 1\n\
            pwrite 0 4096 0 1\n{last}"
        );
        let dir = guest_with("N22", LOGGED, &program, Some(&base))?;
        Some(std::fs::read_to_string(dir.path().join("space")).expect("the guest wrote it"))
    };
    let Some(left) = of("fsync 0\n", "fdatasync 0\n") else { return };
    assert_eq!(left, "./a 4096 8\n", "of 128 sectors");
    let whole = Some("./a 4096 128\n");
    // The next fsync logs the rest, and so does one that logs all of the file.
    assert_eq!(of("fsync 0\n", "fsync 0\nfsync 0\n").as_deref(), whole);
    assert_eq!(of("", "fdatasync 0\n").as_deref(), whole);
}

#[test]
fn linux_too_takes_a_file_for_synced_that_it_forgot_and_another_file_logged() {
    let base = new_image("btrfs", 128 << 20);
    // The program goes on when nobody has the new file open: a cache can forget it.
    let of = |forget: &str| {
        let ran = "/run/prog /share/program /mnt/a || exit 7\n";
        let more = "sed '1,/^--$/d' /share/program > /run/program2\n\
            sed '/^--$/,$d' /share/program > /run/program1\n\
            /run/prog /run/program1 /mnt/a || exit 7\n\
            FORGET\n/run/prog /run/program2 /mnt/a || exit 7\n";
        assert!(LOGGED.contains(ran));
        let run = LOGGED.replace(ran, &more.replace("FORGET", forget));
        let program = "open 0 a rw,creat\nopen 1 . r\nsyncfs 1\npwrite 0 4096 0 1\n\
            fdatasync 0\nopen 2 b rw,creat\n--\nrename a c\nopen 2 b rw\nfsync 2\n";
        let dir = guest_with("N23", &run, program, Some(&base))?;
        Some(std::fs::read_to_string(dir.path().join("names")).expect("the guest wrote it"))
    };
    let Some(left) = of("echo 2 > /proc/sys/vm/drop_caches") else { return };
    assert_eq!(left, ".\n./a\n", "`b` was synced");
    assert_eq!(of(":").as_deref(), Some(".\n./b\n./c\n"));
}

#[test]
fn linux_too_loses_a_symbolic_link_that_is_renamed_between_two_syncs_of_its_directory() {
    let base = new_image("btrfs", 128 << 20);
    let of = |between: &str| {
        let program = format!(
            "open 0 . r\nsymlink v1 cur\nsyncfs 0\nsymlink v2 tmp\n{between}rename tmp cur\nfsync 0\n"
        );
        let dir = guest_with("N24", LOGGED, &program, Some(&base))?;
        Some(std::fs::read_to_string(dir.path().join("names")).expect("the guest wrote it"))
    };
    let Some(left) = of("fsync 0\n") else { return };
    assert_eq!(left, ".\n./tmp\n", "no link is called `cur` any more");
    assert_eq!(of("").as_deref(), Some(".\n./cur\n"));
}

#[test]
fn linux_too_brings_back_what_a_synced_truncate_took_when_a_file_becomes_longer() {
    let base = new_image("btrfs", 128 << 20);
    let of = |last: &str| {
        let program = format!(
            "open 0 a rw,creat\nmkdir A\nopen 1 A/f rw,creat\nopen 2 A r\nopen 3 . r\n\
            pwrite 0 4096 0 1\nsyncfs 3\nftruncate 0 1\nfsync 0\nftruncate 0 2\n{last}"
        );
        let dir = guest_with("N25", LOGGED, &program, Some(&base))?;
        let sums = std::fs::read_to_string(dir.path().join("sums")).expect("the guest wrote it");
        sums.lines().find_map(|l| l.strip_suffix("  ./a").map(str::to_owned))
    };
    let sum = wp_machine::results::sha256;
    // What the program in the guest writes for a seed.
    let byte = 2;
    let Some(left) = of("rename A/f f\nfsync 2\n") else { return };
    assert_eq!(left, sum(&[byte, byte]), "the second byte was cut off, and is there again");
    // Its own fsync writes the zeroes.
    assert_eq!(of("fsync 0\n"), Some(sum(&[byte, 0])));
}

/// What `$1` does in a new btrfs, and what is there when power fails: names and sectors.
const ON_THIS_HOST: &str = r#"
set -e
trap 'exec 3>&- 4>&-; cd "$there"; umount m 2> /dev/null || true' EXIT
there=$PWD
mkdir -p m; cp new image
mount -o loop image m
cd m
eval "$1"
cp ../image ../cut
exec 3>&- 4>&-
cd ..
umount m
mount -o loop cut m
cd m
find . -printf '%p %b\n' | sort | tail -n +2 | while read f n; do
    if [ $f = ./a ] && [ $(stat -c %s a) = 2 ]; then n="$n $(tr '\0' 0 < a)"; fi
    echo "$f $n"
done
"#;

/// The holes of btrfs' logs that the guest's kernel has, in that of this host: it is newer.
#[test]
fn linux_6_18_too_has_most_of_btrfs_holes() {
    let scratch = tempfile::tempdir().expect("a directory");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cannot = match release.starts_with("6.18.") {
        true => wp_parity::host_kernel::cannot(&scratch.path().join("try")),
        false => Some(format!("what Linux {} makes of them is not known", release.trim())),
    };
    if let Some(why) = cannot {
        return skipped("N16 to N25 in this host's kernel", &why);
    }
    std::fs::write(scratch.path().join("new"), new_image("btrfs", 128 << 20)).expect("written");
    let after = |calls: &str| {
        let mut bash = Command::new("bash");
        let ran = bash.args(["-c", ON_THIS_HOST, "btrfs", calls]).current_dir(scratch.path());
        let ran = ran.output().expect("bash");
        assert!(ran.status.success(), "{calls}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).replace('\n', ";")
    };
    let block = "dd if=/dev/zero of=$F bs=4096 count=1 conv=notrunc status=none";
    let cases = [
        // N16 is fixed there: the name stays away.
        (format!("F=a; exec 3> a; {block}; sync -f .; rm a; echo x >&3; sync /dev/fd/3"), ""),
        // N18.
        ("mkdir A; sync -f .; mv A B; > B/foo; sync B/foo".to_owned(), "./A 0;./A/foo 0;"),
        // N19.
        (
            format!(
                "F=a/b; mkdir a; > a/b; sync -f .; {block}; sync a/b; mkdir a/c; ln a/b b; rm a/b; \
                sync b"
            ),
            "./a 0;./a/b 8;./a/c 0;./b 8;",
        ),
        // N20.
        (
            "> a; sync a; fallocate -n -l 4096 a; sync a; sync -f .; ln a b; sync .".to_owned(),
            "./a 0;./b 0;",
        ),
        // N21: the file is gone.
        (format!("F=a/b; mkdir a; {block}; sync -f .; ln a/b c; rm a/b; sync a"), "./a 0;"),
        // N23: `b` is.
        (
            format!(
                "F=a; > a; sync -f .; {block}; sync -d a; > b; echo 2 > /proc/sys/vm/drop_caches; \
                mv a c; sync b"
            ),
            "./a 8;",
        ),
        (format!("F=a; > a; sync -f .; {block}; sync -d a; > b; mv a c; sync b"), "./b 0;./c 8;"),
        // N25: the second byte of the file is there again, as a name with its number shows.
        (
            "mkdir A; > A/f; printf ABCD > a; head -c 4092 /dev/zero >> a; sync -f .; \
            truncate -s 1 a; sync a; truncate -s 2 a; mv A/f f; sync A"
                .to_owned(),
            "./A 0;./a 8 AB;./f 0;",
        ),
        // N24 is fixed there.
        (
            "ln -s v1 cur; sync -f .; ln -s v2 tmp; sync .; mv -T tmp cur; sync .".to_owned(),
            "./cur 8;",
        ),
    ];
    for (calls, left) in &cases {
        assert_eq!(&after(calls), left, "{calls}");
    }
}

/// N31: the log has an item of the directory that stands for a subvolume of a snapshot's source,
/// which replay takes for one of a subvolume.
#[test]
fn linux_too_cannot_mount_after_rmdir_of_a_subvolumes_name_in_a_snapshot() {
    let base = new_image("btrfs", 128 << 20);
    let of = |last: &str| {
        let program = format!("subvolume_create s\nsnapshot . t\nopen 0 t r\n{last}");
        let (dir, went_well) = any_guest("N31", LOGGED, &program, Some(&base))?;
        let state = std::fs::read_to_string(dir.path().join("state")).unwrap_or_default();
        Some((went_well, state))
    };
    let Some(lost) = of("rmdir t/s\nfsync 0\n") else { return };
    assert_eq!(lost, (false, "cut\n".to_owned()), "the mount fails");
    // Behind a commit nothing is replayed.
    assert_eq!(of("rmdir t/s\nsync\n"), Some((true, "mounted\n".to_owned())));
}
