// States of a drive, one after the other, as the kernel recovers them: mount, list every file with a digest of its contents,
// check, unmount. Compiled behind control.c and host.c.
//
// usage: states DISK CONTROL FSTYPE MOUNT-OPTIONS PLACE CHECK [HOST-DIR]...
// The control disk's `next` puts the next state on the drive. For each a line `state N`, then `refused ERRNO`, or `file` lines:
// kind, mode, user, group, links, length, mtime, digest, name, target of a symbolic link, by tabs. CHECK, if there is one, is a
// shell command that runs in the tree of each state, with WRITEPATH_ACKED, unless it saw the same before: `ok` or `bad REASON`.
#include <dirent.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

enum { CHUNK = 1 << 16, CHECKED = 1 << 16 };

// FNV-1a over words of 64 bits.
static uint64_t word(uint64_t digest, uint64_t w) { return (digest ^ w) * 0x100000001b3u; }
static const uint64_t EMPTY = 0xcbf29ce484222325u;

static uint64_t bytes(uint64_t digest, const void *data, size_t length) {
  for (size_t at = 0; at < length; at += 8) {
    uint64_t w = 0;
    memcpy(&w, (const char *)data + at, length - at < 8 ? length - at : 8);
    digest = word(digest, w);
  }
  return digest;
}

// Of a file's contents; `*error`: why they cannot be read.
static uint64_t contents(int dir, const char *name, int *error) {
  static char chunk[CHUNK];
  uint64_t digest = EMPTY;
  int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW);
  if (fd < 0) {
    *error = errno;
    return 0;
  }
  for (;;) {
    size_t have = 0;
    ssize_t n;
    while (have < CHUNK && (n = read(fd, chunk + have, CHUNK - have)) > 0) have += n;
    if (have < CHUNK && n < 0) *error = errno;
    digest = bytes(digest, chunk, have);
    if (have < CHUNK) break;
  }
  close(fd);
  return digest;
}

// Bytes that would end a field or a line, as the host writes them.
static void put(const char *text) {
  for (; *text; text++) {
    if (*text == '\t' || *text == '\n' || *text == '\\') printf("\\%03o", (unsigned char)*text);
    else putchar(*text);
  }
}

static char kind_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG: return 'f';
    case S_IFDIR: return 'd';
    case S_IFLNK: return 'l';
    case S_IFCHR: return 'c';
    case S_IFBLK: return 'b';
    case S_IFIFO: return 'p';
    default: return 's';
  }
}

// Adds a file's extended attributes, or why they cannot be read.
static uint64_t attributes(uint64_t digest, int dir, const char *name) {
  static char names[CHUNK], value[CHUNK];
  char path[PATH];
  snprintf(path, sizeof path, "/proc/self/fd/%d/%s", dir, name);
  ssize_t all = llistxattr(path, names, sizeof names);
  if (all < 0) return word(digest, errno);
  for (char *at = names; at < names + all; at += strlen(at) + 1) {
    ssize_t n = lgetxattr(path, at, value, sizeof value);
    digest = bytes(digest, at, strlen(at));
    digest = n < 0 ? word(digest, errno) : bytes(digest, value, n);
  }
  return digest;
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

// Lists what is below a directory, and adds it to the digest of the tree.
static uint64_t walk(int dir, const char *path, uint64_t digest) {
  struct dirent **names;
  int count = scandirat(dir, ".", &names, 0, by_name);
  if (count < 0) {
    printf("unreadable\t%d\t", errno), put(path), putchar('\n');
    return word(digest, errno);
  }
  for (int i = 0; i < count; i++) {
    const char *name = names[i]->d_name;
    char full[PATH], target[PATH] = "";
    // What belongs to the file system, or to its cleaner.
    int is_own = !*path && (!strcmp(name, "lost+found") || !strcmp(name, ".nilfs"));
    if (!strcmp(name, ".") || !strcmp(name, "..") || is_own) continue;
    snprintf(full, sizeof full, "%s%s%s", path, *path ? "/" : "", name);
    struct stat st;
    int error = 0;
    uint64_t sum = EMPTY;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW)) {
      printf("unreadable\t%d\t", errno), put(full), putchar('\n');
      digest = word(digest, errno);
      continue;
    }
    char kind = kind_of(st.st_mode);
    if (kind == 'f') sum = contents(dir, name, &error);
    if (kind == 'l') target[readlinkat(dir, name, target, sizeof target - 1)] = 0;
    if (error) printf("unreadable\t%d\t", error), put(full), putchar('\n');
    long long size = kind == 'f' || kind == 'l' ? st.st_size : 0;
    // A directory's is that of the mount where recovery has added or removed a name (btrfs, fs/btrfs/tree-log.c).
    if (kind == 'd') memset(&st.st_mtim, 0, sizeof st.st_mtim);
    printf("file\t%c\t%o\t%u\t%u\t%lu\t%lld\t%lld.%09ld\t%016llx\t", kind, st.st_mode & 07777, st.st_uid, st.st_gid,
           (unsigned long)st.st_nlink, size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (unsigned long long)sum);
    put(full), putchar('\t'), put(target), putchar('\n');
    digest = bytes(digest, full, strlen(full));
    digest = bytes(digest, target, strlen(target));
    uint64_t plain[] = {st.st_mode, st.st_uid, st.st_gid, st.st_nlink, size, sum, error, st.st_blocks};
    digest = bytes(digest, plain, sizeof plain);
    digest = attributes(digest, dir, name);
    if (kind == 'd') {
      int below = openat(dir, name, O_RDONLY | O_DIRECTORY);
      if (below >= 0) digest = walk(below, full, digest), close(below);
    }
  }
  for (int i = 0; i < count; i++) free(names[i]);
  free(names);
  return digest;
}

// Runs the check in the tree; its first line if it fails.
static void check(const char *line) {
  int code = run(line, "/share/check.out");
  if (!code) {
    printf("ok\n");
    return;
  }
  char said[256] = "";
  FILE *from = fopen("/share/check.out", "r");
  if (from && !fgets(said, sizeof said, from)) *said = 0;
  if (from) fclose(from);
  said[strcspn(said, "\n")] = 0;
  printf("bad\texit status %d: ", code), put(said), putchar('\n');
}

// What was acknowledged in a state, where the check finds it.
static uint64_t acknowledged(long long number) {
  char from[64];
  static char text[1 << 20];
  snprintf(from, sizeof from, "/share/acked-%lld", number);
  int in = open(from, O_RDONLY), out = open(host(ACKED), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ssize_t n = in < 0 ? 0 : read(in, text, sizeof text);
  if (n < 0 || out < 0 || write(out, text, n) != n) die("acknowledgements");
  if (in >= 0) close(in);
  close(out);
  return bytes(EMPTY, text, n);
}

int main(int argc, char **argv) {
  static struct { uint64_t tree, acked; } seen[CHECKED];
  size_t seens = 0;
  if (argc < 7) return 2;
  disk = argv[1], control_path = argv[2], place = argv[5];
  const char *fstype = argv[3], *options = argv[4], *line = argv[6];
  setvbuf(stdout, 0, _IOFBF, 1 << 16);
  make_root(argv + 7);
  find_device();
  for (;;) {
    must("next");
    long long state = number("state");
    if (state < 0) break;
    replug();
    printf("state\t%lld\n", state);
    // A kernel that panics has said which state it had.
    fflush(stdout);
    if (mount(disk, host(place), fstype, 0, *options ? options : 0)) {
      printf("refused\t%d\n", errno);
      fflush(stdout);
      continue;
    }
    int root = open(host(place), O_RDONLY | O_DIRECTORY);
    if (root < 0) die(place);
    uint64_t tree = walk(root, "", EMPTY);
    close(root);
    if (*line) {
      uint64_t acked = acknowledged(state);
      size_t i = 0;
      while (i < seens && (seen[i].tree != tree || seen[i].acked != acked)) i++;
      if (i < seens) {
        printf("same\t%zu\n", i);
      } else {
        if (seens < CHECKED) seen[seens].tree = tree, seen[seens++].acked = acked;
        fflush(stdout);
        check(line);
      }
    }
    for (int i = 0; umount(host(place)); i++) {
      if (errno != EBUSY || i > TRIES) die("umount");
      usleep(1000);
    }
    fflush(stdout);
  }
  return 0;
}
