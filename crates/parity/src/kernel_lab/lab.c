// Power cuts in a guest, thousands in one boot: fill files, overwrite blocks of them with an fsync after each, a thread a
// file, have the power go in between, unmount, let it come back, mount, read.
//
// usage: lab DISK CONTROL FSTYPE MOUNT-OPTIONS MKFS CYCLES SEED BLOCKS OPS CUT JOBS DIRECT SYNC WRITE-NS FSYNC-NS RETURN-NS
// CUT: change, event or time: of what a cut's instant is drawn. DIRECT: 1 writes past the cache.
// SYNC: a sync(2) behind every so many overwrites of a thread, 0 for none. The rest: CPU time that is spent at a write, as an
// fsync begins and as it ends, since in time travel the kernel takes none of its own.
// A line a cycle on stdout, fields by tabs: see the end of main(). Block contents: number, version, and a pattern of both,
// so that an old version, another block's data and garbage are told apart. Compiled behind control.c.
enum { JOBS = 64 };
static const char *fstype, *options, *mkfs;
static const char *MOUNT = "/mnt/a";

static uint64_t mix(uint64_t z) {
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static uint64_t below(uint64_t *state, uint64_t n) { return mix(*state += 0x9e3779b97f4a7c15u) % n; }

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

// Keeps the CPU busy: each look at the clock takes 256 ns of it there.
static void spend(long long ns) {
  if (ns <= 0) return;
  for (long long end = now_ns() + ns; now_ns() < end;);
}

// A thread and its file.
struct job {
  uint64_t number, state, next;
  // Of each block: what was written last, and what an fsync has returned for before the cut.
  uint64_t *versions, *promised;
  // Of each block: had no flush ended, as that fsync returned, that came since it was called?
  char *early;
  // Of a round: fsyncs that returned before the cut, their total and longest time.
  uint64_t done;
  long long total, longest;
  pthread_t thread;
};
static struct job jobs[JOBS];
static uint64_t count, blocks, ops, sync_every;
static int direct;
static long long write_ns, fsync_ns, return_ns;

// What block `b` of a job is called in its contents.
static uint64_t name_of(const struct job *j, uint64_t b) { return j->number * blocks + b; }

static int open_file(const struct job *j, int flags) {
  char path[64];
  snprintf(path, sizeof path, "%s/file%llu", MOUNT, (unsigned long long)j->number);
  return open(path, flags, 0644);
}

// A new file system with the files on it, all of it durable.
static void fresh(void) {
  static uint64_t bytes[BLOCK / 8];
  if (system(mkfs)) die("mkfs");
  if (mount_it()) die("mount of a new file system");
  for (struct job *j = jobs; j < jobs + count; j++) {
    int fd = open_file(j, O_RDWR | O_CREAT);
    if (fd < 0) die("file");
    for (uint64_t b = 0; b < blocks; b++) {
      j->versions[b] = 0;
      fill(bytes, name_of(j, b), 0);
      if (pwrite(fd, bytes, BLOCK, b * BLOCK) != BLOCK) die("fill");
    }
    if (fsync(fd)) die("fsync");
    close(fd);
  }
  sync();
  unmount_it();
  if (mount_it()) die("mount");
}

// A job's round: overwrites, each with an fsync, until they fail or are done.
static void *round_of(void *job) {
  struct job *j = job;
  uint64_t *bytes = aligned();
  int fd = open_file(j, O_RDWR | (direct ? O_DIRECT : 0)), cut = 0, failed = 0;
  if (fd < 0) die("file");
  j->done = j->total = j->longest = 0;
  for (uint64_t i = 0; i < ops; i++) {
    uint64_t b = below(&j->state, blocks);
    fill(bytes, name_of(j, b), j->next);
    spend(write_ns);
    if ((failed = pwrite(fd, bytes, BLOCK, b * BLOCK) != BLOCK)) break;
    j->versions[b] = j->next++;
    long long start = now_ns();
    spend(fsync_ns);
    if ((failed = fsync(fd) != 0)) break;
    spend(return_ns);
    long long took = now_ns() - start;
    if (!cut) {
      status();
      cut = number("in_doubt") >= 0;
    }
    if (!cut) {
      j->promised[b] = j->versions[b];
      j->early[b] = number("flushed_ns") < number("now_ns") - took;
      j->done++, j->total += took;
      if (took > j->longest) j->longest = took;
    }
    if (sync_every && (i + 1) % sync_every == 0) sync();
  }
  close(fd);
  free(bytes);
  // A drive that still has its power fails nothing.
  if (failed && !cut) {
    status();
    if (number("in_doubt") < 0) die("a write or an fsync before the power went");
  }
  if (count > 1) status_done();
  return 0;
}

// All jobs' rounds side by side, and the unmount.
static void rounds(void) {
  for (struct job *j = jobs; j < jobs + count; j++) {
    memcpy(j->promised, j->versions, blocks * 8);
    memset(j->early, 0, blocks);
    if (count > 1 && pthread_create(&j->thread, 0, round_of, j)) die("thread");
  }
  if (count == 1) round_of(jobs);
  for (struct job *j = jobs; count > 1 && j < jobs + count; j++) pthread_join(j->thread, 0);
  unmount_it();
}

// FNV-1a over words of 64 bits, of all that was read since the mount.
static uint64_t digest;
static void word(uint64_t w) { digest = (digest ^ w) * 0x100000001b3u; }

// What recovery has left of a job's file.
static void check(struct job *j, long *lost, long *early, long *garbage, long *unreadable, int *error) {
  static uint64_t bytes[BLOCK / 8];
  int fd = open_file(j, O_RDONLY);
  if (fd < 0) {
    *error = errno;
    return;
  }
  for (uint64_t b = 0; b < blocks; b++) {
    if (pread(fd, bytes, BLOCK, b * BLOCK) != BLOCK) {
      ++*unreadable;
      word(-1);
      continue;
    }
    for (int i = 0; i < BLOCK / 8; i++) word(bytes[i]);
    long long v = version_of(bytes, name_of(j, b));
    if (v < 0 || (uint64_t)v > j->versions[b]) ++*garbage;
    else if ((uint64_t)v < j->promised[b]) ++*lost, *early += j->early[b];
    j->versions[b] = v < 0 ? 0 : v;
  }
  close(fd);
}

// What the drive has counted, of the kind that cuts are drawn from.
static long long counted(const char *kind) {
  status();
  if (!strcmp(kind, "time")) return number("now_ns");
  if (!strcmp(kind, "event")) return number("events");
  return number("writes") + number("discards") + number("zone_commands");
}

// Has the power go so much later.
static void arm(const char *kind, long long later) {
  if (!strcmp(kind, "time")) must("freeze at=%lld", counted(kind) + later);
  else must("freeze %s=%lld", strcmp(kind, "event") ? "after" : "events", later);
}

int main(int argc, char **argv) {
  if (argc != 17) return 2;
  disk = argv[1], control_path = argv[2], fstype = argv[3], options = argv[4], mkfs = argv[5];
  long cycles = atol(argv[6]);
  uint64_t state = strtoull(argv[7], 0, 10), seed = mix(state), range = 0;
  blocks = strtoull(argv[8], 0, 10), ops = strtoull(argv[9], 0, 10);
  const char *kind = argv[10];
  count = strtoull(argv[11], 0, 10), direct = atoi(argv[12]);
  sync_every = strtoull(argv[13], 0, 10);
  write_ns = atoll(argv[14]), fsync_ns = atoll(argv[15]), return_ns = atoll(argv[16]);
  if (!count || count > JOBS) return 2;
  find_device();
  for (uint64_t i = 0; i < count; i++) {
    jobs[i] = (struct job){.number = i, .state = mix(seed ^ i), .next = 1};
    jobs[i].versions = calloc(blocks, 8), jobs[i].promised = calloc(blocks, 8), jobs[i].early = calloc(blocks, 1);
    if (!jobs[i].versions || !jobs[i].promised || !jobs[i].early) die("memory");
  }
  fresh();
  for (long cycle = 0; cycle < cycles; cycle++) {
    // The first cycle measures how long a round is; cuts fall anywhere in as much.
    if (!range) {
      long long before = counted(kind);
      rounds();
      range = counted(kind) - before;
      if (!range) die("the rounds write nothing");
      if (mount_it()) die("mount");
      continue;
    }
    uint64_t after = below(&state, range);
    arm(kind, after);
    rounds();
    status();
    // In real time the moment may come between the two.
    if (number("in_doubt") < 0 && (control("freeze"), !is_ok())) {
      status();
      if (number("in_doubt") < 0) die("freeze");
    }
    must("thaw seed=%llu", (unsigned long long)mix(seed + cycle) >> 1);
    long long kept = number("kept"), doubt = number("in_doubt"), back = number("zones_back");
    long long events = number("events");
    replug();
    long lost = 0, early = 0, garbage = 0, unreadable = 0;
    int error = mount_it() ? errno : 0, again = error != 0;
    digest = 0xcbf29ce484222325u;
    if (!error) {
      for (struct job *j = jobs; j < jobs + count; j++) check(j, &lost, &early, &garbage, &unreadable, &error);
      again = error || garbage || unreadable;
      if (again) unmount_it();
    }
    uint64_t done = 0;
    long long total = 0, longest = 0;
    for (struct job *j = jobs; j < jobs + count; j++) {
      done += j->done, total += j->total;
      if (j->longest > longest) longest = j->longest;
    }
    // Cycle, what of the round was before the cut, events before it, in doubt, kept, zones back, fsyncs that returned before
    // it, their total and longest time, errno of mount or open, blocks lost, those of them that an fsync had
    // returned early for, garbage, unreadable, digest.
    printf("%ld\t%llu\t%lld\t%lld\t%lld\t%lld\t%llu\t%lld\t%lld\t%d\t%ld\t%ld\t%ld\t%ld\t%llu\n", cycle,
           (unsigned long long)after, events, doubt, kept, back, (unsigned long long)done, total, longest, error, lost,
           early, garbage, unreadable, (unsigned long long)digest);
    fflush(stdout);
    if (again) fresh();
  }
  unmount_it();
  return 0;
}
