//! N70, of F2FS: an attribute is set in the tick of the change before it, and the fsync behind it
//! sends nothing. Linux itself: a guest with 6.12 in virtual time, where calls take no time.

use crate::found::guest;

/// The program of `crash bug N70`, up to the last change.
const BEFORE: &str = "open 0 a rw,creat\nsetxattr a user.b 8 3\npwrite 0 4096 5414912 1\n\
                      fdatasync 0\npwrite 0 4096 5427200 2\nfsync 0\n";
const LAST: &str = "setxattr a user.a 569 23\nfsync 0\n";

/// The program runs on a fresh F2FS, which then stops where it is and is mounted again. Written:
/// `calls`, the requests of each call; `kept`, whether the attribute that was set last is there.
const RUN: &str = r#"
cp /share/prog /share/stop /share/list /run; chmod +x /run/prog /run/stop /run/list
D=/sys/kernel/config/nullb/z0
mkdir $D
for kv in memory_backed=1 completion_nsec=100000 irqmode=2 blocksize=4096 size=512 \
    cache_size=64 fua=1; do echo ${kv#*=} > $D/${kv%%=*} || exit 3; done
echo 1 > $D/power || exit 3
mkfs.f2fs -f /dev/z0 > /dev/null || exit 4
mount -t f2fs -o noinline_xattr /dev/z0 /mnt/a || exit 5
sync
/run/prog /share/program /mnt/a | cut -f7 > /share/calls || exit 7
/run/stop /mnt/a || exit 8
umount /mnt/a
mount -t f2fs -o noinline_xattr /dev/z0 /mnt/a || exit 9
/run/list /mnt/a/a user.a > /share/kept || exit 10
umount /mnt/a
"#;

/// The requests of the last call, and the length of the attribute that it was to keep; negative: it
/// is gone. `None`: there is no guest.
fn in_linux(nap: &str) -> Option<(u64, i64)> {
    let timed = |text: &str| text.lines().map(|l| format!("@call:0 {l}\n")).collect::<String>();
    let program = format!("{}{nap}{}", timed(BEFORE), timed(LAST));
    let dir = guest("N70", RUN, &program)?;
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect(name);
    let calls = read("calls");
    let number = |text: &str| text.trim().parse().expect("a number");
    Some((calls.lines().last().expect("a call").parse().expect("requests"), number(&read("kept"))))
}

#[test]
fn linux_syncs_no_attribute_that_was_set_in_the_tick_of_the_change_before() {
    let Some(lost) = in_linux("") else { return };
    assert_eq!((lost.0, lost.1 < 0), (0, true), "{lost:?}");
    let kept = in_linux("nap 20000\n").expect("the same guest");
    assert_eq!((kept.0 > 0, kept.1), (true, 569), "{kept:?}");
}
