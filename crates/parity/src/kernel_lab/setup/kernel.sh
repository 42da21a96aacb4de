# Builds a kernel for User-Mode Linux. usage: kernel.sh SOURCE CONFIG WORK
# SOURCE: a tree, or an archive of one (linux-source-6.12.tar.xz); the kernel is WORK/build/linux. What was done of an earlier,
# interrupted run is not done again.
set -eu
source=$1 config=$2 work=$3
mkdir -p "$work/build"
# Two builds in one place would make each other's files; what an interrupted one has left running counts too.
exec 9> "$work/lock"
if command -v flock > /dev/null && ! flock -n 9; then
  echo "another build is under way in $work" >&2
  exit 3
fi
if [ -d "$source" ]; then
  tree=$(cd "$source" && pwd)
else
  tree=$work/source
  if [ ! -e "$work/unpacked" ]; then
    echo "unpacking $source" >&2
    mkdir -p "$tree"
    tar xf "$source" -C "$tree" --strip-components=1
    # Until 6.13 the room for a process's floating-point registers has a fixed size, 2,696 bytes. A CPU with AMX has
    # 11,008: init would die with "ptrace set fp regs failed". The larger room works on every CPU.
    sed -i 's/DEFINE_LONGS(HOST_FP_SIZE, .*);/DEFINE_LONGS(HOST_FP_SIZE, 12288);/' "$tree/arch/x86/um/user-offsets.c"
    : > "$work/unpacked"
  fi
fi
[ -e "$work/build/.config" ] || cp "$config" "$work/build/.config"
command -v ccache > /dev/null && cc="ccache gcc" || cc=gcc
make -s -C "$tree" O="$work/build" ARCH=um CC="$cc" olddefconfig >&2
echo "building with $(nproc) processes" >&2
make -s -C "$tree" O="$work/build" ARCH=um CC="$cc" -j"$(nproc)" linux >&2
strip "$work/build/linux"
