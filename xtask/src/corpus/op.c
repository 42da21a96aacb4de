// Plays a history in the guest: one call a line from standard input, and says how many succeeded.
// Lines that begin with `!` are for the shell. Files that are held open stay so until the end.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static char *word(char **rest) {
  char *w = strsep(rest, " ");
  return w ? w : "";
}
static long long number(char **rest) { return strtoll(word(rest), NULL, 0); }

// kind: 0 random, 1 text that compresses, 2 zeroes
static void fill(char *b, long long n, unsigned long long seed, int kind) {
  uint64_t x = seed * 0x9E3779B97F4A7C15ull + 1;
  for (long long i = 0; i < n; i++) {
    if (kind == 2) { b[i] = 0; continue; }
    if (kind == 1) { b[i] = "all work and no play "[(i + seed) % 21]; continue; }
    x ^= x << 13; x ^= x >> 7; x ^= x << 17;
    b[i] = (char)(x >> 32);
  }
}

static int put(const char *path, int flags, long long at, long long n, long long seed, int kind) {
  int fd = open(path, O_CREAT | O_WRONLY | flags, 0644);
  if (fd < 0) return -1;
  char *b = malloc(n + 1);
  fill(b, n, seed, kind);
  int rc = (flags & O_APPEND ? write(fd, b, n) : pwrite(fd, b, n, at)) < 0 ? -1 : 0;
  free(b);
  close(fd);
  return rc;
}

static int sync_one(const char *path, int data_only) {
  int fd = open(path, O_RDONLY);
  if (fd < 0) return -1;
  int rc = data_only ? fdatasync(fd) : fsync(fd);
  close(fd);
  return rc;
}

static int change_flags(const char *path, long long set, long long clear) {
  int fd = open(path, O_RDONLY), flags = 0;
  if (fd < 0) return -1;
  int rc = ioctl(fd, FS_IOC_GETFLAGS, &flags);
  flags = (flags | (int)set) & ~(int)clear;
  if (!rc) rc = ioctl(fd, FS_IOC_SETFLAGS, &flags);
  close(fd);
  return rc;
}

static int project(const char *path, long long id) {
  int fd = open(path, O_RDONLY);
  struct fsxattr x;
  if (fd < 0) return -1;
  int rc = ioctl(fd, FS_IOC_FSGETXATTR, &x);
  x.fsx_projid = (unsigned)id;
  x.fsx_xflags |= FS_XFLAG_PROJINHERIT;
  if (!rc) rc = ioctl(fd, FS_IOC_FSSETXATTR, &x);
  close(fd);
  return rc;
}

static int sock(const char *path) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  int rc = bind(fd, (struct sockaddr *)&a, sizeof a);
  close(fd);
  return rc;
}

static int clone_range(const char *from, const char *to, long long a, long long n, long long b) {
  int in = open(from, O_RDONLY), out = open(to, O_CREAT | O_RDWR, 0644), rc = -1;
  struct file_clone_range r = {.src_fd = in, .src_offset = a, .src_length = n, .dest_offset = b};
  if (in >= 0 && out >= 0) rc = ioctl(out, FICLONERANGE, &r);
  if (in >= 0) close(in);
  if (out >= 0) close(out);
  return rc;
}

static int through_a_mapping(const char *path, long long n, long long seed) {
  int fd = open(path, O_CREAT | O_RDWR, 0644);
  if (fd < 0) return -1;
  if (ftruncate(fd, n)) { close(fd); return -1; }
  char *m = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (m == MAP_FAILED) return -1;
  fill(m, n, seed, 0);
  return munmap(m, n);
}

static int many(const char *dir, long long n, long long bytes, long long seed) {
  char path[4200];
  int rc = mkdir(dir, 0755);
  for (long long i = 0; i < n; i++) {
    snprintf(path, sizeof path, "%s/entry-%lld-%lld", dir, seed, i);
    rc = put(path, O_TRUNC, 0, bytes, seed + i, (int)(i % 2));
  }
  return rc;
}

static int tmpfile_held(const char *dir, long long n, long long seed) {
  int fd = open(dir, O_TMPFILE | O_RDWR, 0600);
  if (fd < 0) return -1;
  char *b = malloc(n + 1);
  fill(b, n, seed, 0);
  int rc = write(fd, b, n) < 0 ? -1 : 0;
  free(b);
  return rc;
}

static int node(const char *path, const char *kind, long long number) {
  if (*kind == 's') return sock(path);
  mode_t mode = *kind == 'c' ? S_IFCHR : *kind == 'b' ? S_IFBLK : S_IFIFO;
  return mknod(path, mode | 0640, makedev(number >> 8, number & 0xffffff));
}

static int play(char *line) {
  if (*line == '!') return system(line + 1) ? -1 : 0;
  char *rest = line, *op = word(&rest), *path = word(&rest);
#define IS(name) (!strcmp(op, name))
  if (IS("write") || IS("direct")) {
    long long at = number(&rest), n = number(&rest), seed = number(&rest);
    return put(path, 0, at, n, seed, (int)number(&rest));
  }
  if (IS("append")) {
    long long n = number(&rest), seed = number(&rest);
    return put(path, O_APPEND, 0, n, seed, (int)number(&rest));
  }
  if (IS("truncate")) return truncate(path, number(&rest));
  if (IS("fallocate")) {
    long long mode = number(&rest), at = number(&rest), n = number(&rest);
    int fd = open(path, O_CREAT | O_RDWR, 0644);
    if (fd < 0) return -1;
    int rc = fallocate(fd, (int)mode, at, n);
    close(fd);
    return rc;
  }
  if (IS("mkdir")) return mkdir(path, 0755);
  if (IS("rmdir")) return rmdir(path);
  if (IS("unlink")) return unlink(path);
  if (IS("rename")) return rename(path, word(&rest));
  if (IS("link")) return link(path, word(&rest));
  if (IS("symlink")) return symlink(path, word(&rest));
  if (IS("node")) { char *kind = word(&rest); return node(path, kind, number(&rest)); }
  if (IS("setxattr")) {
    char *name = word(&rest), value[65536];
    long long n = number(&rest), seed = number(&rest);
    fill(value, n, seed, 0);
    return lsetxattr(path, name, value, n, 0);
  }
  if (IS("removexattr")) return lremovexattr(path, word(&rest));
  if (IS("fsync")) return sync_one(path, 0);
  if (IS("fdatasync")) return sync_one(path, 1);
  if (IS("sync")) { int fd = open(".", O_RDONLY), rc = syncfs(fd); close(fd); return rc; }
  if (IS("clone")) {
    char *to = word(&rest);
    long long a = number(&rest), n = number(&rest), b = number(&rest);
    return clone_range(path, to, a, n, b);
  }
  if (IS("flags")) { long long set = number(&rest); return change_flags(path, set, number(&rest)); }
  if (IS("project")) return project(path, number(&rest));
  if (IS("chmod")) return chmod(path, (mode_t)number(&rest));
  if (IS("chown")) { long long u = number(&rest); return lchown(path, u, number(&rest)); }
  if (IS("mapped")) { long long n = number(&rest); return through_a_mapping(path, n, number(&rest)); }
  if (IS("many")) {
    long long n = number(&rest), bytes = number(&rest);
    return many(path, n, bytes, number(&rest));
  }
  if (IS("hold")) return open(path, O_RDWR) < 0 ? -1 : unlink(path);
  if (IS("holddir")) return mkdir(path, 0755) || open(path, O_RDONLY) < 0 ? -1 : rmdir(path);
  if (IS("tmpfile")) { long long n = number(&rest); return tmpfile_held(path, n, number(&rest)); }
  if (IS("sleep")) return usleep(1000 * atoi(path));
  fprintf(stderr, "no call %s\n", op);
  exit(2);
}

int main(void) {
  char *line = NULL;
  size_t room = 0;
  long long ok = 0, all = 0;
  for (ssize_t n; (n = getline(&line, &room, stdin)) > 0;) {
    if (line[n - 1] == '\n') line[n - 1] = 0;
    if (!*line) continue;
    all++;
    if (!play(line)) ok++;
  }
  printf("%lld of %lld calls\n", ok, all);
  return 0;
}
