#!/bin/bash
# What xfstests' check calls before each test (as logger: "run xfstest generic/001"). Makes the test device anew and tells
# Writepath where the test begins among the drive's requests. What leads it is written in front of it: TEST, TEST_DIR,
# SCRATCH_MNT, MKFS, MOUNT, RESULTS, ACK.
[[ $1 == "run xfstest "* ]] || exit 0
test=${1#run xfstest }
{
  # An earlier test may have left devices on top of the drives, and mounts.
  for at in "$SCRATCH_MNT" "$TEST_DIR"; do
    for ((n = 0; n < 8; n++)); do
      while read -r _ where _; do [[ $where == "$at" ]] && break; done < /proc/self/mounts
      [[ $where == "$at" ]] || break
      umount "$at" || sleep 1
    done
  done
  shopt -s nullglob
  for at in /dev/mapper/*; do [[ $at == */control ]] || { dmsetup remove_all --force; break; }; done
  rm -f "$RESULTS"/*/*.{full,out.bad,dmesg,notrun}
  read -r up _ < /proc/uptime
} < /dev/null > /run/writepath-before 2>&1
echo "test $up $test" > "$ACK"
{ eval "$MKFS" && eval "$MOUNT"; } < /dev/null >> /run/writepath-before 2>&1 || {
  why=$(tail -n 3 /run/writepath-before /run/mkfs.out 2>&1)
  why=${why//$'\n'/; }
  echo "unfit ${why:0:400}" > "$ACK"
}
exit 0
