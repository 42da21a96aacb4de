# Runs in a guest with the real kernel, as root, in a folder with: `ops` (ops.c, static), `seeds`
# (numbers), images that mkfs.btrfs made: template.img and template4k.img (128 MiB, -m single; -n
# 4096 -m dup). Leaves crash-N.img (cut off while mounted), list-N.txt and sha-N.txt (what the
# kernel found at its next mount).
cd "${1:-/share}" || exit 1
mkdir -p /mnt/a
for s in $(cat seeds); do
  t=template; [ $((s % 3)) = 0 ] && t=template4k
  cp $t.img work.img
  L=$(losetup -f); losetup $L work.img
  mount -t btrfs -o commit=300 $L /mnt/a || exit 1
  ./ops run $s $((60 + s % 5 * 60)) /mnt/a
  cp work.img crash-$s.img
  umount /mnt/a; losetup -d $L
  cp crash-$s.img work.img
  losetup $L work.img
  if mount -t btrfs $L /mnt/a; then
    ./ops list /mnt/a > list-$s.txt
    (cd /mnt/a && find . -type f -exec sha256sum {} \;) > sha-$s.txt
    umount /mnt/a
  else
    echo failed > list-$s.txt
  fi
  losetup -d $L
done
echo 0 > rc
