#!/usr/bin/env bash
# Requests per second and latency over NBD: ours (free clock) beside nbdkit's memory plugin and qemu-nbd, in one run,
# by one client (qemu-img bench) over Unix sockets.
# usage: nbd.sh WRITEPATH [REQUESTS]     needs: qemu-utils, nbdkit
set -euo pipefail
writepath=$(readlink -f "$1")
requests=${2:-20000}
dir=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; rm -rf "$dir"' EXIT
await() { for _ in $(seq 200); do [ -S "$1" ] && return; sleep 0.05; done; echo "no server at $1" >&2; exit 1; }

truncate -s 1G "$dir/image" "$dir/ours.img"
"$writepath" serve nbd --device fixed,capacity_bytes=1073741824 --socket "$dir/fixed" 2>/dev/null >&2 & pids+=($!)
"$writepath" serve nbd --device ssd-128 --socket "$dir/ssd" 2>/dev/null >&2 & pids+=($!)
"$writepath" serve nbd --image "$dir/ours.img" --socket "$dir/file" 2>/dev/null >&2 & pids+=($!)
nbdkit -f -U "$dir/nbdkit" memory 1G 2>/dev/null >&2 & pids+=($!)
qemu-nbd -k "$dir/qemu" -f raw -t -e 8 "$dir/image" 2>/dev/null >&2 & pids+=($!)
for s in fixed ssd file nbdkit qemu; do await "$dir/$s"; done

printf '%-28s %-6s %5s %12s %14s\n' server what depth requests/s 'latency, us'
for what in write read flush; do
  for depth in 1 16; do
    for s in "fixed:writepath, model fixed" "ssd:writepath, model ssd-128" "file:writepath, image file" \
             "nbdkit:nbdkit memory" "qemu:qemu-nbd, image file"; do
      case $what in
        write) flags=(-w) ;;
        read) flags=() ;;
        # A flush behind every 8th write.
        flush) flags=(-w "--flush-interval=$((depth > 8 ? depth : 8))") ;;
      esac
      seconds=$(qemu-img bench -f raw -t none -c "$requests" -d "$depth" -s 4096 -S 65536 "${flags[@]}" \
        "nbd+unix:///?socket=$dir/${s%%:*}" | sed -n 's/^Run completed in \([0-9.]*\) seconds.*/\1/p')
      awk -v s="${s#*:}" -v w="$what" -v d="$depth" -v n="$requests" -v t="$seconds" \
        'BEGIN { printf "%-28s %-6s %5d %12.0f %14.1f\n", s, w, d, n / t, t * 1e6 * d / n }'
    done
  done
done
