// Power cuts in a guest, thousands in one boot: fill a file, overwrite blocks of it with an fsync after each, have the
// power go in between, unmount, let it come back, mount, read.
//
// usage: lab DISK CONTROL FSTYPE MOUNT-OPTIONS MKFS CYCLES SEED BLOCKS OPS
// A line a cycle on stdout, fields by tabs: see the end of main(). Block contents: number, version, and a pattern of both,
// so that an old version, another block's data and garbage are told apart.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, LINE = 4096, TRIES = 1000 };
static const char *disk, *control_path, *fstype, *options, *mkfs;
static char device[64], answer[LINE + 1];
static const char *MOUNT = "/mnt/a", *FILE_PATH = "/mnt/a/file";

static void die(const char *what) {
  fprintf(stderr, "lab: %s: %s\n", what, strerror(errno));
  exit(3);
}

static uint64_t mix(uint64_t z) {
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static uint64_t state;
static uint64_t below(uint64_t n) { return mix(state += 0x9e3779b97f4a7c15u) % n; }

static char *buffer;

// Where the drive is: the control disk has it at its second block.
static void status(void) {
  static int fd = -1;
  if (fd < 0 && (fd = open(control_path, O_RDONLY | O_DIRECT)) < 0) die(control_path);
  if (pread(fd, buffer, LINE, LINE) != LINE) die("control disk");
  memcpy(answer, buffer, LINE);
}

// One line to the control disk, and its answer.
static const char *control(const char *format, ...) {
  memset(buffer, 0, LINE);
  va_list args;
  va_start(args, format);
  vsnprintf(buffer, LINE, format, args);
  va_end(args);
  int fd = open(control_path, O_RDWR | O_DIRECT);
  if (fd < 0) die(control_path);
  if (pwrite(fd, buffer, LINE, 0) != LINE || pread(fd, buffer, LINE, 0) != LINE) die("control disk");
  close(fd);
  memcpy(answer, buffer, LINE);
  return answer;
}

// The number behind "key": in the last answer; -1 without.
static long long number(const char *key) {
  char quoted[64];
  snprintf(quoted, sizeof quoted, "\"%s\":", key);
  const char *at = strstr(answer, quoted);
  return at ? strtoll(at + strlen(quoted), 0, 10) : -1;
}

static void must(const char *format, ...) {
  char line[256];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  if (!strstr(control("%s", line), "\"ok\":true")) {
    fprintf(stderr, "lab: %s: %s\n", line, answer);
    exit(3);
  }
}

static void fill(uint64_t *out, uint64_t block, uint64_t version) {
  out[0] = block;
  out[1] = version;
  for (int i = 2; i < BLOCK / 8; i++) out[i] = mix(block << 32 ^ version << 10 ^ i);
}

// Version of block `block` in `bytes`; -1: it is none of this block's.
static long long version_of(const uint64_t *bytes, uint64_t block) {
  static uint64_t wanted[BLOCK / 8];
  fill(wanted, block, bytes[1]);
  return memcmp(wanted, bytes, BLOCK) ? -1 : (long long)bytes[1];
}

static void write_text(const char *path, const char *text) {
  int fd = open(path, O_WRONLY);
  if (fd < 0 || write(fd, text, strlen(text)) < 0) die(path);
  close(fd);
}

// The disk is taken away and given back: the kernel forgets what it knew of it, zones' write pointers too.
static void replug(void) {
  write_text("/sys/bus/virtio/drivers/virtio_blk/unbind", device);
  write_text("/sys/bus/virtio/drivers/virtio_blk/bind", device);
  for (int i = 0; access(disk, F_OK) && i < TRIES; i++) usleep(1000);
}

static int mount_it(void) { return mount(disk, MOUNT, fstype, 0, *options ? options : 0); }

static void unmount_it(void) {
  for (int i = 0; umount(MOUNT); i++) {
    if (errno != EBUSY || i > TRIES) die("umount");
    usleep(1000);
  }
}

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// A new file system with the file on it, all of it durable.
static void fresh(uint64_t blocks, uint64_t *versions) {
  static uint64_t bytes[BLOCK / 8];
  if (system(mkfs)) die("mkfs");
  if (mount_it()) die("mount of a new file system");
  int fd = open(FILE_PATH, O_RDWR | O_CREAT, 0644);
  if (fd < 0) die(FILE_PATH);
  for (uint64_t b = 0; b < blocks; b++) {
    versions[b] = 0;
    fill(bytes, b, 0);
    if (pwrite(fd, bytes, BLOCK, b * BLOCK) != BLOCK) die("fill");
  }
  if (fsync(fd)) die("fsync");
  close(fd);
  sync();
  unmount_it();
  if (mount_it()) die("mount");
}

int main(int argc, char **argv) {
  if (argc != 10) return 2;
  disk = argv[1], control_path = argv[2], fstype = argv[3], options = argv[4], mkfs = argv[5];
  long cycles = atol(argv[6]);
  uint64_t blocks = strtoull(argv[8], 0, 10), ops = strtoull(argv[9], 0, 10), next = 1, range = 0;
  state = strtoull(argv[7], 0, 10);
  if (posix_memalign((void **)&buffer, BLOCK, LINE)) die("memory");
  uint64_t seed = mix(state);
  char link[256], path[64];
  snprintf(path, sizeof path, "/sys/block/%s/device", disk + 5);
  ssize_t n = readlink(path, link, sizeof link - 1);
  if (n < 0) die(path);
  link[n] = 0;
  snprintf(device, sizeof device, "%s", strrchr(link, '/') + 1);
  uint64_t *versions = calloc(blocks, 8), *promised = calloc(blocks, 8), bytes[BLOCK / 8];
  fresh(blocks, versions);
  for (long cycle = 0; cycle < cycles; cycle++) {
    memcpy(promised, versions, blocks * 8);
    // The first cycle measures how many changes a round makes; cuts fall anywhere in as many.
    status();
    long long writes = number("writes") + number("discards") + number("zone_commands");
    uint64_t after = range ? below(range) : 0;
    if (range) must("freeze after=%llu", (unsigned long long)after);
    int fd = open(FILE_PATH, O_RDWR), cut = 0, failed = 0;
    if (fd < 0) die(FILE_PATH);
    long long longest = 0, total = 0;
    uint64_t done = 0;
    for (uint64_t i = 0; i < ops && !failed; i++) {
      uint64_t b = below(blocks);
      fill(bytes, b, next);
      failed |= pwrite(fd, bytes, BLOCK, b * BLOCK) != BLOCK;
      versions[b] = next++;
      long long start = now_ns();
      failed |= fsync(fd) != 0;
      long long took = now_ns() - start;
      if (!cut) {
        status();
        cut = number("in_doubt") >= 0;
      }
      if (!cut) {
        promised[b] = versions[b];
        done++, total += took;
        if (took > longest) longest = took;
      }
    }
    close(fd);
    unmount_it();
    status();
    if (!range) {
      range = number("writes") + number("discards") + number("zone_commands") - writes;
      if (!range) die("the rounds write nothing");
      if (mount_it()) die("mount");
      continue;
    }
    if (number("in_doubt") < 0) must("freeze");
    must("thaw seed=%llu", (unsigned long long)mix(seed + cycle) >> 1);
    long long kept = number("kept"), doubt = number("in_doubt"), back = number("zones_back");
    long long events = number("events");
    replug();
    long lost = 0, garbage = 0, unreadable = 0;
    int error = mount_it() ? errno : 0;
    int again = error != 0;
    if (!error) {
      fd = open(FILE_PATH, O_RDONLY);
      if (fd < 0) error = errno;
      for (uint64_t b = 0; fd >= 0 && b < blocks; b++) {
        if (pread(fd, bytes, BLOCK, b * BLOCK) != BLOCK) {
          unreadable++;
          continue;
        }
        long long v = version_of(bytes, b);
        if (v < 0 || (uint64_t)v > versions[b]) garbage++;
        else if ((uint64_t)v < promised[b]) lost++;
        versions[b] = v < 0 ? 0 : v;
      }
      if (fd >= 0) close(fd);
      again = error || garbage || unreadable;
      if (again) unmount_it();
    }
    // Cycle, changes before the cut, events before it, in doubt, kept, zones back, fsyncs that returned before it, their
    // total and longest time, errno of mount or open, blocks lost, garbage, unreadable.
    printf("%ld\t%llu\t%lld\t%lld\t%lld\t%lld\t%llu\t%lld\t%lld\t%d\t%ld\t%ld\t%ld\n", cycle, (unsigned long long)after,
           events, doubt, kept, back, (unsigned long long)done, total, longest, error, lost, garbage, unreadable);
    fflush(stdout);
    if (again) fresh(blocks, versions);
  }
  unmount_it();
  return 0;
}
