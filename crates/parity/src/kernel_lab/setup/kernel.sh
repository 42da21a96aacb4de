# Builds a kernel for User-Mode Linux. usage: kernel.sh SOURCE CONFIG WORK
# SOURCE: a tree, or an archive of one (linux-source-6.12.tar.xz); the kernel is WORK/build/linux. What was done of an earlier,
# interrupted run is not done again.
set -eu
source=$1 config=$2 work=$3
missing=
for tool in gcc make flex bison bc tar xz; do
  command -v "$tool" > /dev/null || missing="$missing $tool"
done
if [ -n "$missing" ]; then
  echo "to build a kernel needs$missing: apt-get install gcc make flex bison bc tar xz-utils" >&2
  exit 3
fi
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
    : > "$work/unpacked"
  fi
fi
[ -e "$work/build/.config" ] || cp "$config" "$work/build/.config"
make -s -C "$tree" O="$work/build" ARCH=um olddefconfig >&2
echo "building with $(nproc) processes" >&2
make -s -C "$tree" O="$work/build" ARCH=um -j"$(nproc)" linux >&2
strip "$work/build/linux"
