# Makes the root directory of a guest out of programs of this host. usage: root.sh DIR INIT
set -eu
root=$1
rm -rf "$root"
for dir in bin sbin dev proc sys tmp run mnt etc share root; do mkdir -p "$root/$dir"; done

# A program, with the libraries that it is linked with.
take() {
  program=$(command -v "$1") || return 1
  cp -L "$program" "$root/sbin/$1"
  { ldd "$program" 2> /dev/null || true; } | grep -oE '/[^ ]+\.so[^ ]*' | while read -r library; do
    mkdir -p "$root${library%/*}"
    cp -L "$library" "$root$library"
  done
}

if ! take busybox; then
  echo "busybox is missing: apt-get install busybox-static" >&2
  exit 3
fi
mv "$root/sbin/busybox" "$root/bin/busybox"
"$root/bin/busybox" --list | while read -r name; do
  [ -e "$root/bin/$name" ] || ln -s busybox "$root/bin/$name"
done
for fs in ext4:e2fsprogs f2fs:f2fs-tools btrfs:btrfs-progs nilfs2:nilfs-tools xfs:xfsprogs; do
  take "mkfs.${fs%:*}" || echo "mkfs.${fs%:*} is missing (apt-get install ${fs#*:}): no ${fs%:*}" >&2
done
# Comparisons check and list with these; busybox has less of them.
for tool in e2fsck debugfs dumpe2fs tune2fs fsck.f2fs dump.f2fs f2fs_io btrfs xfs_repair lscp lssu mount.nilfs2 umount.nilfs2 \
  nilfs_cleanerd bash mount umount losetup blkzone blkdiscard cp dd find stat tar truncate sha256sum; do
  take "$tool" || true
done
ln -s /proc/self/mounts "$root/etc/mtab"
[ ! -e /etc/mke2fs.conf ] || cp /etc/mke2fs.conf "$root/etc/"
cp "$2" "$root/init_uml"
chmod +x "$root/init_uml"
