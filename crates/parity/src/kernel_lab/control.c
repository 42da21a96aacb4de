// What programs in a guest share: the drive, the control disk that speaks to its server, and a drive that is taken away
// and given back.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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
static const char *disk, *control_path;
static char device[64];
static __thread char answer[LINE + 1];

static void die(const char *what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(3);
}

// Memory for a block, aligned as O_DIRECT wants it.
static void *aligned(void) {
  void *memory;
  if (posix_memalign(&memory, BLOCK, BLOCK)) die("memory");
  return memory;
}

// Where the drive is: the control disk has it at its second block.
static __thread int status_fd = -1;
static __thread char *status_buffer;
static void status(void) {
  int fd = status_fd;
  if (fd < 0 && (fd = status_fd = open(control_path, O_RDONLY | O_DIRECT)) < 0) die(control_path);
  if (!status_buffer) status_buffer = aligned();
  char *buffer = status_buffer;
  if (pread(fd, buffer, LINE, LINE) != LINE) die("control disk");
  memcpy(answer, buffer, LINE);
}

// A thread that ends takes what it has for that with it.
static void status_done(void) {
  if (status_fd >= 0) close(status_fd);
  free(status_buffer);
}

// One line to the control disk, and its answer.
static const char *control(const char *format, ...) {
  static char *buffer;
  if (!buffer) buffer = aligned();
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

static int is_ok(void) { return strstr(answer, "\"ok\":true") != 0; }

static void must(const char *format, ...) {
  char line[256];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  control("%s", line);
  // A guest in real time may have something under way behind an unmount: what it reads ahead.
  for (int i = 0; strstr(answer, "in flight") && i < TRIES; i++) {
    usleep(1000);
    control("%s", line);
  }
  if (!is_ok()) {
    fprintf(stderr, "%s: %s\n", line, answer);
    exit(3);
  }
}

// What the drive is called on its bus.
static void find_device(void) {
  char link[256], path[64];
  snprintf(path, sizeof path, "/sys/block/%s/device", disk + 5);
  ssize_t n = readlink(path, link, sizeof link - 1);
  if (n < 0) die(path);
  link[n] = 0;
  snprintf(device, sizeof device, "%s", strrchr(link, '/') + 1);
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

