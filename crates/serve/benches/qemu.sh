#!/usr/bin/env bash
# A kernel in QEMU, with several CPUs and queues, on our drives over vhost-user-blk: file systems made, written by a thread on
# each CPU, trimmed, unmounted and checked there and, saved, on the host (clocks free and paced); power cuts of the whole
# machine, and what was fsynced looked for in the next boot; F2FS on zones, where QEMU passes them on. What needs a program
# that is not here is skipped by name. Exit code 1 if anything is wrong.
# usage: qemu.sh WRITEPATH KERNEL [QEMU]
#   KERNEL: where packages of one of Debian's kernels were unpacked (dpkg-deb -x FILE KERNEL): linux-image-VERSION-amd64; of
#   newer ones linux-binary-VERSION-amd64 and linux-modules-VERSION-amd64
#   PARTS="files cuts zones found", CPUS=4 (as many queues), FS="ext4 f2fs", CUTS=2, CYCLES=20 (of N26, five times as many of N27), ACCEL=tcg,
#   SECONDS_A_BOOT=600; KEEP=DIR leaves consoles there
# needs: qemu-system-x86 busybox-static kmod gcc e2fsprogs f2fs-tools nilfs-tools util-linux python3
set -euo pipefail
if [ $# -lt 2 ]; then sed -n 's/^# usage: //p' "$0" >&2; exit 2; fi
writepath=$(readlink -f "$1") kernel=$(readlink -f "$2") qemu=${3:-qemu-system-x86_64}
cpus=${CPUS:-4} accel=${ACCEL:-tcg} patience=${SECONDS_A_BOOT:-600}
for tool in "$qemu" busybox modprobe depmod gcc python3; do
  command -v "$tool" > /dev/null || { echo "qemu.sh: skipped: $tool is missing" >&2; exit 3; }
done
# Older packages have the kernel in boot, newer ones beside its modules.
image=$(find "$kernel" -name 'vmlinuz*' | head -1)
[ -n "$image" ] || { echo "qemu.sh: skipped: no kernel in $kernel" >&2; exit 3; }
modules=$(find "$kernel" -type d -path '*lib/modules/*' -prune | head -1)
version=$(basename "$modules")
if [ -n "${KEEP:-}" ]; then mkdir -p "$KEEP"; dir=$(readlink -f "$KEEP"); else dir=$(mktemp -d); fi
pids=() failed=0 serial=0
# shellcheck disable=SC2317  # the trap calls it
end() {
  kill "${pids[@]}" 2> /dev/null || true
  [ -n "${KEEP:-}" ] || rm -rf "$dir"
}
trap end EXIT
wrong() { echo "  WRONG: $*"; failed=1; }

# The guest's root: busybox, what makes and checks file systems, modules, and a program that writes.
root=$dir/root
rm -rf "$root"
mkdir -p "$root"/{bin,sbin,dev,proc,sys,tmp,run,m,mnt/a,etc,modules}
cp "$(command -v busybox)" "$root/bin/busybox"
for tool in mkfs.ext4 e2fsck mkfs.f2fs fsck.f2fs mkfs.nilfs2 fstrim blkdiscard blkzone; do
  found=$(command -v "$tool") || { echo "qemu.sh: $tool is missing: what needs it is skipped" >&2; continue; }
  cp -L "$found" "$root/sbin/$tool"
  { ldd "$found" 2> /dev/null || true; } | grep -oE '/[^ ]+\.so[^ ]*' | while read -r library; do
    mkdir -p "$root${library%/*}"
    cp -L "$library" "$root$library"
  done
done
[ ! -e /etc/mke2fs.conf ] || cp /etc/mke2fs.conf "$root/etc/"
ln -s /proc/self/mounts "$root/etc/mtab"
# What modprobe and depmod want to see.
[ -d "$kernel/lib/modules" ] || ln -s usr/lib "$kernel/lib"
[ -e "$modules/modules.dep" ] || depmod -b "$kernel" "$version" 2> /dev/null
for module in virtio_pci virtio_blk crc32c_generic crc32_generic crc32c-intel ext4 f2fs nilfs2; do
  modprobe -d "$kernel" -S "$version" --show-depends "$module" 2> /dev/null || true
done | awk '$1 == "insmod" { print $2 }' | while read -r file; do
  name=$(basename "$file" .xz)
  [ ! -e "$root/modules/$name" ] || continue
  # busybox takes no compressed modules.
  case $file in *.xz) xz -dc "$file" ;; *) cat "$file" ;; esac > "$root/modules/$name"
  echo "$name" >> "$root/modules/order"
done

cat > "$dir/threads.c" << 'C'
/* threads write DIR THREADS OPS: each thread, held to a CPU of its own, overwrites blocks of its file and fsyncs each; with
 * OPS 0 for ever, and says "@acked THREAD NUMBER" after each fsync that has returned. Every second thread writes past the
 * cache. threads check DIR ACKED…: is what each thread was told of there, and nothing that was never written? */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { BLOCKS = 64, BYTES = 4096 };
static const char *dir;
static uint64_t ops;
static void die(const char *what) { perror(what); _exit(1); }
static int file(int thread, int flags) {
  char path[256];
  snprintf(path, sizeof path, "%s/f%d", dir, thread);
  int fd = open(path, flags, 0644);
  if (fd < 0) die(path);
  return fd;
}
static void put(int fd, uint64_t *block, uint64_t thread, uint64_t number) {
  for (int i = 0; i < BYTES / 8; i++) block[i] = thread << 48 | number;
  if (pwrite(fd, block, BYTES, number % BLOCKS * BYTES) != BYTES) die("pwrite");
}
static void *writer(void *arg) {
  long thread = (long)arg;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(thread % sysconf(_SC_NPROCESSORS_ONLN), &one);
  if (sched_setaffinity(0, sizeof one, &one)) die("sched_setaffinity");
  uint64_t *block;
  if (posix_memalign((void **)&block, BYTES, BYTES)) die("memory");
  int fd = file(thread, O_CREAT | O_RDWR);
  for (uint64_t n = 0; n < BLOCKS; n++) put(fd, block, thread, n);
  if (fsync(fd)) die("fsync");
  close(fd);
  fd = file(thread, O_RDWR | (thread % 2 ? O_DIRECT : 0));
  for (uint64_t n = BLOCKS; !ops || n < BLOCKS + ops; n++) {
    put(fd, block, thread, n);
    if (fsync(fd)) die("fsync");
    char line[64];
    int length = snprintf(line, sizeof line, "@acked %ld %llu\n", thread, (unsigned long long)n);
    if (!ops && write(1, line, length) != length) die("console");
  }
  return 0;
}
int main(int argc, char **argv) {
  dir = argv[2];
  if (!strcmp(argv[1], "write")) {
    long threads = atol(argv[3]);
    ops = strtoull(argv[4], 0, 10);
    pthread_t all[64];
    for (long t = 0; t < threads; t++) pthread_create(&all[t], 0, writer, (void *)t);
    for (long t = 0; t < threads; t++) pthread_join(all[t], 0);
    return 0;
  }
  long lost = 0, garbage = 0, newer = 0;
  for (long t = 0; t + 3 < argc; t++) {
    uint64_t acked = strtoull(argv[t + 3], 0, 10), block[BYTES / 8];
    int fd = file(t, O_RDONLY);
    for (uint64_t b = 0; b < BLOCKS; b++) {
      if (pread(fd, block, BYTES, b * BYTES) != BYTES) die("pread");
      uint64_t number = block[0] & ((1ull << 48) - 1), whole = block[0] >> 48 == (uint64_t)t && number % BLOCKS == b;
      for (int i = 1; i < BYTES / 8; i++) whole &= block[i] == block[0];
      uint64_t due = acked - (acked - b) % BLOCKS;
      garbage += !whole;
      lost += whole && number < due;
      newer += whole && number > due;
    }
  }
  printf("@checked lost %ld garbage %ld newer %ld\n", lost, garbage, newer);
  return lost || garbage;
}
C
gcc -O2 -static -pthread -o "$root/bin/threads" "$dir/threads.c"
gcc -O2 -static -pthread -o "$root/bin/lab" "$(dirname "$(readlink -f "$0")")/../src/kernel_lab/lab.c"

cat > "$root/init" << 'I'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/sbin:/bin
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
while read -r m; do insmod "/modules/$m" 2> /dev/null; done < /modules/order
for i in $(seq 50); do [ -b /dev/vda ] && break; sleep 0.2; done
for word in $(cat /proc/cmdline); do case $word in wp.*) eval "${word#wp.}" ;; esac; done
say() { echo "@$*"; }
check() {
  case $fs in ext4) e2fsck -fn /dev/vda ;; *) fsck.f2fs --dry-run /dev/vda ;; esac > /run/fsck 2>&1
  code=$?
  [ $code = 0 ] || cat /run/fsck
  say "fsck $code"
}
new() {
  case $fs in
    ext4) mkfs.ext4 -q -E nodiscard /dev/vda ;;
    *) mkfs.f2fs -f $zones /dev/vda ;;
  esac > /run/mkfs 2>&1 || { cat /run/mkfs; say "wrong mkfs"; say end; poweroff -f; sleep 60; }
  mount -t "$type" $options /dev/vda /m || say "wrong mount"
}
type=$fs options= zones=
! grep -q host-managed /sys/block/vda/queue/zoned || zones=-m
[ "$fs" != zoned ] || type=f2fs
[ "$fs" = zoned ] || options="-o discard"
n=$(nproc)
say "up $(uname -r) cpus $n queues $(ls -d /sys/block/vda/mq/* | wc -l): $(for q in /sys/block/vda/mq/*; do echo "${q##*/}=$(cat $q/cpu_list)"; done | tr -d ' ' | tr '\n' ' ')"
say "disk zoned=$(cat /sys/block/vda/queue/zoned) cache=$(tr ' ' _ < /sys/block/vda/queue/write_cache) discard=$(cat /sys/block/vda/queue/discard_max_bytes)"
case $mode in
  clean)
    [ "$fs" = zoned ] || { blkdiscard /dev/vda && say "discarded" || say "wrong blkdiscard"; }
    [ "$fs" != zoned ] || blkzone report /dev/vda | awk '/CONVENTIONAL/ { c++ } /SEQ_WRITE/ { s++ } END { print "@zones conventional " c + 0 " sequential " s + 0 }'
    new
    threads write /m "$n" 200 || say "wrong write"
    last=$(seq 1 "$n" | sed 's/.*/263/')
    echo 3 > /proc/sys/vm/drop_caches
    threads check /m $last || say "wrong check"
    [ "$fs" = zoned ] || fstrim /m || say "wrong fstrim"
    rm /m/f0; sync
    umount /m && say unmounted cleanly || say "wrong umount"
    check
    mount -t "$type" $options /dev/vda /m && [ -e /m/f1 ] && [ ! -e /m/f0 ] && umount /m && say remounted || say "wrong remount"
    # On zones that resets those that hold something.
    [ "$fs" != zoned ] || { new; umount /m && say "made anew"; }
    ;;
  # As kernel-lab does it: fs,cycles and one that is measured,blocks,ops,cut,jobs,sync; the second disk is the control disk.
  lab)
    set -- $(echo "$lab" | tr , ' ')
    case $1 in f2fs) arguments="-f $zones" ;; *) arguments="-f" ;; esac
    lab /dev/vda /dev/vdb "$1" "" "mkfs.$1 $arguments /dev/vda > /run/mkfs.out 2>&1" "$2" 1 "$3" "$4" "$5" "$6" 0 "$7" > /run/lab 2> /run/lab.said || say "wrong lab: $? $(tail -n 2 /run/lab.said | tr '\n' ' ')"
    awk 'NF == 14 { cuts++; if ($11 > 0) { lost++; if ($4 == $5) whole++ } if ($12 > 0) garbage++; if ($10 > 0) failed++ }
      END { print "@lab " cuts + 0 " cuts, " lost + 0 " lost what an fsync had promised (" whole + 0 " of them nothing that was in doubt), " garbage + 0 " left garbage, " failed + 0 " mounts failed" }' /run/lab
    dmesg | awk '/Assign new section to curseg\[4\]/ { moved++ } /Mounted with checkpoint version/ { n++; same += $NF == last; last = $NF }
      END { if (n) print "@said " n " mounts, " same + 0 " at the version of the one before; log 4 moved " moved + 0 " times" }'
    ;;
  write) new; threads write /m "$n" 0 ;;
  after)
    mount -t "$type" $options /dev/vda /m || say "wrong mount"
    threads check /m $(echo "$acked" | tr , ' ')
    umount /m && say unmounted cleanly || say "wrong umount"
    check
    ;;
esac
dmesg | grep -E 'vda|EXT4-fs|F2FS-fs' | grep -iE 'error|corrupt|warn|fail' | head -5 | sed 's/^/@kernel /'
say end
poweroff -f
I
chmod +x "$root/init"
(cd "$root" && find . | busybox cpio -o -H newc 2> /dev/null | gzip -1 > "$dir/initrd")

# Serves a drive; what is asked of it stands in $socket, $control and $said. serve CLOCK DEVICE [ARGUMENT…]
serve() {
  serial=$((serial + 1))
  socket=$dir/d$serial control=$dir/c$serial said=$dir/said$serial
  "$writepath" serve vhost-user-blk --device "$2" --socket "$socket" --control "$control" --control-disk "$socket.control" --queues "$cpus" --clock "$1" --json \
    "${@:3}" > "$said" 2> "$said.notes" & server=$!
  pids+=("$server")
  for _ in $(seq 200); do [ -S "$socket" ] && [ -S "$control" ] && return; sleep 0.05; done
  cat "$said.notes" >&2; exit 1
}
# A line at the control socket; prints the answer.
tell() {
  python3 - "$control" "$1" << 'P'
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(sys.argv[2].encode() + b"\n")
print(s.makefile().readline().strip())
P
}
# Boots the kernel on the drive; its console is $console. boot FRONT-END WORDS…
boot() {
  serial=$((serial + 1)) console=$dir/console$serial
  rm -f "$console"
  timeout "$patience" "$qemu" -accel "$accel" -M q35 -smp "$cpus" -m 768 -object memory-backend-memfd,id=m,size=768M,share=on \
    -numa node,memdev=m -nodefaults -no-user-config -display none -serial "file:$console" -monitor none -no-reboot \
    -chardev "socket,id=c,path=$socket" -device "$1" -chardev "socket,id=o,path=$socket.control" -device vhost-user-blk-pci,chardev=o,num-queues=1 -kernel "$image" -initrd "$dir/initrd" \
    -append "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off ${*:2}" < /dev/null 2> "$console.qemu" & machine=$!
  pids+=("$machine")
}
# What the console has behind "@WORD ", without carriage returns.
heard() { tr -d '\r' 2> /dev/null < "$console" | sed -n "s/^.*@$1 \\{0,1\\}//p"; }
# The last number of each thread that was heard to have been fsynced: N,N,… A last line may be half there.
acked() {
  heard acked | sed '$d' | awk -v n="$cpus" 'NF == 2 { a[$1] = $2 } END { for (t = 0; t < n; t++) printf "%s%d", t ? "," : "", a[t] }'
}
blk="vhost-user-blk-pci,chardev=c,num-queues=$cpus"
any="vhost-user-test-device-pci,chardev=c,virtio-id=2,num_vqs=$cpus,vq_size=128,config_size=96"
# Looks at what a guest has said at its end.
ended() {
  tr -d '\r' < "$console" | grep -q '@end' || { wrong "the guest has not come to its end"; tail -n 5 "$console" "$console.qemu"; }
  heard wrong | while read -r what; do echo "  the guest: $what"; done
  [ -z "$(heard wrong)" ] || failed=1
  [ -z "$(heard kernel)" ] || { heard kernel | sed 's/^/  its kernel: /'; failed=1; }
  case $(heard fsck) in
    0 | '') ;;
    # fsck.f2fs 1.15 counts the free segments of zones that hold less than their size otherwise than the kernel does.
    4) [[ "$(tr -d '\r' < "$console" | grep '\[Fail\]')" == "[FSCK] free segment_count "* ]] || wrong "fsck in the guest: 4" ;;
    *) wrong "fsck in the guest: $(heard fsck)" ;;
  esac
}
# What the server has said at its end: requests by queue, and notes.
served() {
  wait "$server" || wrong "the server has ended with $?"
  sed -n 's/^note: /  note: /p' "$said.notes"
  python3 - "$said" "$cpus" << 'P' || failed=1
import json, sys
said = json.load(open(sys.argv[1]))
drive, malformed = said["drives"][0], said["malformed_requests"]
counts = drive["counts"]
print("  requests by queue:", *drive["queues"], "; reads", counts["reads"], "writes", counts["writes"], "flushes", counts["flushes"],
      "discards", counts["discards"], "for zones", counts["zone_commands"], "; malformed", malformed, "; the drive's time %.3f s" % (drive["now_ns"] / 1e9))
sys.exit(malformed > 0 or not all(drive["queues"]) or len(drive["queues"]) != int(sys.argv[2]))
P
}
fsck_here() {
  case $1 in ext4) set -- e2fsck -fn "$2" ;; *) set -- fsck.f2fs --dry-run "$2" ;; esac
  command -v "$1" > /dev/null || { echo "  skipped: $1 is missing"; return; }
  if "$@" > "$dir/fsck" 2>&1; then echo "  $1 of the saved image on the host: clean"; else
    wrong "$1 of the saved image"
    cat "$dir/fsck"
  fi
}

ssd="ssd-128,capacity_bytes=536870912"
echo "$("$qemu" --version | head -1), $accel; Linux $version; $cpus CPUs and queues"
part() { case " ${PARTS:-files cuts zones found} " in *" $1 "*) ;; *) return 1 ;; esac; }
for fs in ${FS:-ext4 f2fs}; do
  for clock in free paced; do
    part files || break
    echo "$fs on $ssd, clock $clock: made, written, trimmed, checked"
    serve "$clock" "$ssd" --once --save "$dir/image"
    boot "$blk" "wp.mode=clean wp.fs=$fs"
    wait "$machine" || wrong "QEMU has ended with $?"
    echo "  $(heard up)"
    echo "  $(heard disk)"
    ended
    echo "  $(heard checked)"
    served
    fsck_here "$fs" "$dir/image"
    rm -f "$dir/image"
  done
  for cut in $(seq "${CUTS:-2}"); do
    part cuts || break
    echo "$fs on $ssd, clock free: the power goes while $cpus threads write, cut $cut"
    serve free "$ssd"
    boot "$blk" "wp.mode=write wp.fs=$fs"
    for _ in $(seq "$patience"); do
      [ "$(acked | tr , '\n' | sort -n | head -1)" -lt 120 ] || break
      kill -0 "$machine" 2> /dev/null || break
      sleep 1
    done
    # What has been heard by now was fsynced before the cut, which comes a few requests later.
    heard=$(acked)
    tell "freeze events=$((cut * 7))" > /dev/null
    for _ in $(seq 100); do
      [[ "$(tell status)" == *'"cut":null'* ]] || break
      sleep 0.1
    done
    # The machine ends where it is: nobody unmounts.
    kill "$machine" 2> /dev/null || true
    wait "$machine" 2> /dev/null || true
    echo "  fsynced by then: $heard"
    echo "  $(tell "thaw seed=$cut")"
    boot "$blk" "wp.mode=after wp.fs=$fs wp.acked=$heard"
    wait "$machine" || wrong "QEMU has ended with $?"
    ended
    echo "  in the next boot: $(heard checked), unmounted $(heard unmounted), fsck $(heard fsck)"
    [[ "$(heard checked)" == "lost 0 garbage 0"* ]] || wrong "what was fsynced"
    tell quit > /dev/null
    served
  done
done

zones="zn540-4tb,zone_bytes=16777216,blocks_per_plane=96,pages_per_block=12"
passes=$("$qemu" -device "${any%%,*},help" 2>&1 | grep -c chardev= || true)
if part zones; then
  echo "f2fs on $zones,conventional_zones=4, clock free"
  if [ "$passes" -gt 0 ]; then front=$any; else front=$blk; fi
  echo "  front end ${front%%,*}"
  serve free "$zones,conventional_zones=4" --once
  boot "$front" "wp.mode=clean wp.fs=zoned"
  wait "$machine" || wrong "QEMU has ended with $?"
  echo "  $(heard disk) $(heard zones)"
  if [ "$passes" = 0 ]; then
    wait "$server" || true
    sed -n 's/^note: /  note: /p' "$said.notes"
    echo "  skipped: this QEMU does not pass VIRTIO_BLK_F_ZONED on (one with vhost-user-test-device-pci does)"
  else
    ended
    echo "  $(heard checked), unmounted $(heard unmounted), fsck $(heard fsck)"
    served
  fi
fi

# What kernel-lab found, with a kernel of Debian's and several CPUs (docs/serve.md). campaign NAME CLOCK DEVICE FRONT-END LAB
campaign() {
  echo "$1, on $3, clock $2"
  serve "$2" "$3" --once
  boot "$4" "wp.mode=lab wp.fs=${5%%,*} wp.lab=$5"
  wait "$machine" || wrong "QEMU has ended with $?"
  ended
  echo "  $(heard lab)"
  heard said | sed 's/^/  its kernel: /'
  wait "$server" || wrong "the server has ended with $?"
}
if part found; then
  cycles=${CYCLES:-20}
  # A flush that takes long beside what QEMU makes of a CPU, or the cut is seldom within one.
  campaign "N26: nilfs2, three threads, a block and an fsync each" paced fixed,capacity_bytes=268435456,latency_ns=20000000 "$blk" \
    "nilfs2,$((cycles + 1)),1,1,time,3,0"
  if [ "$passes" = 0 ]; then
    echo "N27: skipped: it needs zones"
  else
    campaign "N27: f2fs on zones, an overwrite, its fsync and a sync in each life" free "$zones,conventional_zones=4" "$any" \
      "f2fs,$((5 * cycles + 1)),4,1,event,1,1"
  fi
fi
exit $failed
