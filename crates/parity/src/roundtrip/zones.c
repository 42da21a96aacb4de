// Zoned block devices in the guest. Static, no dependencies.
//   zones load IMAGE POINTERS DEVICE   writes an image in order: conventional zones where it is not
//                                      zero, of each sequential zone as much as POINTERS says
//   zones save DEVICE IMAGE            copies what a device holds to a sparse file
//   zones report DEVICE                the zones, as `blkzone report` prints them
// POINTERS: a line a zone: first sector, sectors written (-1: conventional).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/blkzoned.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define CHUNK 65536
static char buf[CHUNK] __attribute__((aligned(4096)));

static void die(const char *what) {
  fprintf(stderr, "zones: %s: %s\n", what, strerror(errno));
  exit(1);
}

static int opened(const char *path, int flags) {
  int fd = open(path, flags, 0644);
  if (fd < 0) die(path);
  return fd;
}

static int is_zero(const char *p, size_t n) {
  return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

// Copies `n` bytes at `at`; with `sparse` not what is zero.
static void copy(int from, int to, long long at, long long n, int sparse) {
  while (n > 0) {
    size_t len = n < CHUNK ? n : CHUNK;
    if (pread(from, buf, len, at) != (ssize_t)len) die("read");
    if (!(sparse && is_zero(buf, len)) && pwrite(to, buf, len, at) != (ssize_t)len) die("write");
    at += len;
    n -= len;
  }
}

static struct blk_zone_report *zones_of(int fd) {
  unsigned n = 65536;
  struct blk_zone_report *r = calloc(1, sizeof *r + n * sizeof r->zones[0]);
  if (!r) die("memory");
  r->nr_zones = n;
  if (ioctl(fd, BLKREPORTZONE, r)) die("BLKREPORTZONE");
  return r;
}

int main(int argc, char **argv) {
  if (argc == 5 && !strcmp(argv[1], "load")) {
    int from = opened(argv[2], O_RDONLY), to = opened(argv[4], O_RDWR | O_DIRECT);
    FILE *pointers = fopen(argv[3], "r");
    if (!pointers) die(argv[3]);
    struct blk_zone_report *r = zones_of(to);
    long long start, written;
    unsigned i = 0;
    for (; fscanf(pointers, "%lld %lld", &start, &written) == 2; i++) {
      if (i >= r->nr_zones || r->zones[i].start != (unsigned long long)start) {
        fprintf(stderr, "zones: zone %u of %u begins elsewhere\n", i, r->nr_zones);
        return 1;
      }
      int conventional = r->zones[i].type == BLK_ZONE_TYPE_CONVENTIONAL;
      if (conventional != (written < 0)) {
        fprintf(stderr, "zones: zone %u is of the other kind\n", i);
        return 1;
      }
      copy(from, to, start * 512, (conventional ? (long long)r->zones[i].len : written) * 512,
           conventional);
    }
    if (i != r->nr_zones) {
      fprintf(stderr, "zones: %u zones, the device has %u\n", i, r->nr_zones);
      return 1;
    }
  } else if (argc == 4 && !strcmp(argv[1], "save")) {
    int from = opened(argv[2], O_RDONLY | O_DIRECT);
    int to = opened(argv[3], O_RDWR | O_CREAT | O_TRUNC);
    struct blk_zone_report *r = zones_of(from);
    long long end = 0;
    for (unsigned i = 0; i < r->nr_zones; i++) {
      struct blk_zone *z = &r->zones[i];
      long long n = z->type == BLK_ZONE_TYPE_CONVENTIONAL ? z->len : z->wp - z->start;
      if (n > (long long)z->capacity) n = z->capacity;
      copy(from, to, z->start * 512, n * 512, 1);
      end = (z->start + z->len) * 512;
    }
    if (ftruncate(to, end)) die("ftruncate");
  } else if (argc == 3 && !strcmp(argv[1], "report")) {
    struct blk_zone_report *r = zones_of(opened(argv[2], O_RDONLY));
    const char *names[16] = {[0] = "nw", "em", "oi", "oe", "cl", [13] = "ro", "fu", "ol"};
    for (unsigned i = 0; i < r->nr_zones; i++) {
      struct blk_zone *z = &r->zones[i];
      int conventional = z->type == BLK_ZONE_TYPE_CONVENTIONAL;
      const char *name = z->cond < 16 && names[z->cond] ? names[z->cond] : "x?";
      printf("  start: 0x%09llx, len 0x%06llx, cap 0x%06llx, wptr 0x%06llx reset:%d non-seq:%d, "
             "zcond:%2u(%s) [type: %u(%s)]\n",
             (unsigned long long)z->start, (unsigned long long)z->len,
             (unsigned long long)z->capacity,
             conventional ? 0ULL : (unsigned long long)(z->wp - z->start), z->reset, z->non_seq,
             z->cond, name, z->type, conventional ? "CONVENTIONAL" : "SEQ_WRITE_REQUIRED");
    }
  } else {
    fprintf(stderr, "zones load IMAGE POINTERS DEVICE | save DEVICE IMAGE | report DEVICE\n");
    return 2;
  }
  return 0;
}
