# Runs in the guest: plays histories, and says of images whether they mount and what is in them.
export PATH=/share/tools:$PATH LD_LIBRARY_PATH=/share/tools
for m in loop btrfs ext4 f2fs nilfs2 quota_v2 quota_tree lz4 lz4hc zstd lzo crc32c_generic xxhash_generic; do
  modprobe $m 2>/dev/null
done
A=/mnt/a

# tree DIR OUT: names with their attributes, then hashes of contents.
tree() {
  (
    cd $1
    find . -mindepth 1 -path ./lost+found -prune -o -printf 'E\t%y\t%m\t%n\t%s\t%i\t%U\t%G\t%P\t%l\n'
    find . -path ./lost+found -prune -o -type f -print0 | sort -z | xargs -0 -r sha256sum |
      sed -E 's/^([0-9a-f]{64}) [ *]\.\/(.*)$/S\t\1\t\2/'
  ) >$2 2>$2.err
}

# play N FS OPTIONS [cut]: one history. Leaves N.played with its counts.
play() {
  echo "play $1"
  export D=$(losetup -f --show /share/$1.img)
  if mount -i -t $2 ${3:+-o $3} $D $A 2>/share/$1.err; then
    (
      cd $A
      timeout -s KILL 60 /share/op <"/share/$1.calls" >/share/$1.played 2>>/share/$1.err
      # Files stay open as long as the copy takes.
    )
    umount $A 2>/dev/null || { killall nilfs_cleanerd 2>/dev/null; sleep 1; umount $A; }
  fi
  losetup -d $D
  if [ "$4" = cut ]; then
    # Without the copy there is no such image.
    mv /share/$1.cut /share/$1.img || rm -f /share/$1.played
  fi
  dmesg -c >/share/$1.dmesg
}

# look N FS: does a copy of the image mount, and what is in it?
look() {
  echo "look $1"
  cp --sparse=always /share/$1.img /dev/shm/copy
  D=$(losetup -f --show /dev/shm/copy)
  timeout 60 mount -i -t $2 $D $A 2>/share/$1.mount_err
  echo $? >/share/$1.mount
  if [ "$(cat /share/$1.mount)" = 0 ]; then
    tree $A /share/$1.tree
    umount $A
  fi
  losetup -d $D
  rm -f /dev/shm/copy
  dmesg -c >/share/$1.mount_dmesg
}
