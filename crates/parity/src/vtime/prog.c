// Runs a program text (see program.rs) in a directory and prints, for each timed call or stretch,
//   CASE OP INDEX START_NS DURATION_NS OK REQUESTS FLUSHES ANSWER
// in nanoseconds of CLOCK_MONOTONIC; what the device was sent and flushed meanwhile; the negative
// number of the error, where a seek found what it looked for, or the checkpoint of mkcp.
// Usage: prog FILE DIR; prog now
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/btrfs.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/nilfs2_api.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

enum { FDS = 64, BYTES = 1 << 20, AIO = 256 };
static aio_context_t context;
static unsigned in_flight;
static int fds[FDS];
static char buf[BYTES] __attribute__((aligned(4096)));
static char kase[128] = "-";
static int statistics = -1;

// Requests that were sent to the device since it began, and flushes that it has ended.
struct sent {
    long long requests, flushes;
};

static struct sent sent(void) {
    char text[512] = "";
    unsigned long long n[17] = {0};
    if (pread(statistics, text, sizeof text - 1, 0) < 0) {
        perror("/sys/block/z0/stat");
        exit(1);
    }
    char *at = text;
    for (int i = 0; i < 17; i++) n[i] = strtoull(at, &at, 10);
    // Documentation/block/stat.rst: reads, writes and discards that ended, and what is in flight.
    return (struct sent){n[0] + n[4] + n[11] + n[8], n[15]};
}
static struct sent before, after;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

// Has the program a dedupe?
static int compares;
// Are the bytes those that Writepath writes (`wp_workload::program::contents`)? It takes long.
static int exact;

// The bytes of a write: one that follows from the seed; in programs that compare ranges, bytes that
// follow from their place in the file, too, so that ranges are equal here where they are equal in
// Writepath.
static void fill(char *to, uint64_t n, uint64_t at, const char *seed) {
    if (exact) {
        for (uint64_t i = 0; i < n; i++) {
            uint64_t z = (strtoull(seed, 0, 10) + 1) ^ (at + i) / 8 * 0x9e3779b97f4a7c15ull;
            z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
            z = (z ^ z >> 27) * 0x94d049bb133111ebull;
            to[i] = (z ^ z >> 31) >> (at + i) % 8 * 8;
        }
        return;
    }
    if (!compares) {
        memset(to, 1 + atoi(seed) % 255, n);
        return;
    }
    uint64_t tag = (strtoull(seed, 0, 10) + 1) * 0x9e3779b97f4a7c15ull;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t place = at + i, word = (tag ^ place / 8) * 0xff51afd7ed558ccdull;
        to[i] = word >> (32 + place % 4 * 8) ^ place % 8 / 4;
    }
}

static void nap(uint64_t us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, 0);
}

static void align(void) {
    uint64_t n = (now() / 10000000 + 1) * 10000000 + 1000000;
    struct timespec t = {n / 1000000000, n % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
}

static int flags(char *text) {
    int f = 0;
    for (char *save, *w = strtok_r(text, ",", &save); w; w = strtok_r(0, ",", &save)) {
        if (!strcmp(w, "rw")) f |= O_RDWR;
        if (!strcmp(w, "creat")) f |= O_CREAT;
        if (!strcmp(w, "excl")) f |= O_EXCL;
        if (!strcmp(w, "tmpfile")) f |= O_TMPFILE;
        if (!strcmp(w, "trunc")) f |= O_TRUNC;
        if (!strcmp(w, "append")) f |= O_APPEND;
        if (!strcmp(w, "direct")) f |= O_DIRECT;
        if (!strcmp(w, "dsync")) f |= O_DSYNC;
        if (!strcmp(w, "sync")) f |= O_SYNC;
    }
    return f;
}

// Seconds, and up to nine digits of them behind a point.
static struct timespec when(const char *text) {
    struct timespec t = {strtoll(text, 0, 10), 0};
    const char *point = strchr(text, '.');
    long unit = 100000000;
    for (const char *c = point ? point + 1 : ""; *c; c++, unit /= 10) t.tv_nsec += (*c - '0') * unit;
    return t;
}

static sigjmp_buf faulted;
static void on_fault(int signal) { siglongjmp(faulted, signal); }

// A store through a mapping of its own; EFAULT where a page is behind the end of the file, or may
// not be written any more.
static int mmap_write(int fd, const char *bytes, uint64_t n, uint64_t at) {
    struct stat st;
    if (fstat(fd, &st)) return -1;
    uint64_t from = at / 4096 * 4096, end = (at + n + 4095) / 4096 * 4096;
    char *m = mmap(0, n ? end - from : 0, PROT_READ | PROT_WRITE, MAP_SHARED, fd, from);
    if (m == MAP_FAILED) return -1;
    int bad = end > ((uint64_t)st.st_size + 4095) / 4096 * 4096;
    if (!bad) {
        signal(SIGBUS, on_fault);
        bad = sigsetjmp(faulted, 1);
        if (!bad) memcpy(m + (at - from), bytes, n);
        signal(SIGBUS, SIG_DFL);
    }
    munmap(m, end - from);
    errno = EFAULT;
    return bad ? -1 : 0;
}

static int sync_mapped(int fd, uint64_t at, uint64_t n) {
    uint64_t from = at / 4096 * 4096, end = (at + n + 4095) / 4096 * 4096;
    char *m = mmap(0, n ? end - from : 4096, PROT_READ, MAP_SHARED, fd, from);
    if (m == MAP_FAILED) return -1;
    int r = msync(m, n ? end - from : 0, MS_SYNC), e = errno;
    munmap(m, n ? end - from : 4096);
    errno = e;
    return r;
}

// What the one target answers is the call's answer; bytes that differ are EBADE.
static int dedupe(int fd, uint64_t at, int target, uint64_t to, uint64_t n) {
    union {
        struct file_dedupe_range range;
        char room[sizeof(struct file_dedupe_range) + sizeof(struct file_dedupe_range_info)];
    } u = {0};
    u.range.src_offset = at, u.range.src_length = n, u.range.dest_count = 1;
    u.range.info[0].dest_fd = target, u.range.info[0].dest_offset = to;
    if (ioctl(fd, FIDEDUPERANGE, &u)) return -1;
    int status = u.range.info[0].status;
    if (status == FILE_DEDUPE_RANGE_SAME) return 0;
    errno = status == FILE_DEDUPE_RANGE_DIFFERS ? EBADE : -status;
    return -1;
}

// As chattr(1) does it: of files and directories, and the flags that have no word stay.
static int change_flags(const char *path, char *text) {
    static const struct {
        const char *word;
        unsigned flag;
    } known[] = {{"append", FS_APPEND_FL},   {"immutable", FS_IMMUTABLE_FL},
                 {"nodump", FS_NODUMP_FL},   {"noatime", FS_NOATIME_FL},
                 {"sync", FS_SYNC_FL},       {"dirsync", FS_DIRSYNC_FL},
                 {"nocow", FS_NOCOW_FL},     {"journal-data", FS_JOURNAL_DATA_FL},
                 {"compress", FS_COMPR_FL}};
    unsigned set = 0, all = 0, now = 0;
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) all |= known[i].flag;
    for (char *save, *w = strtok_r(text, ",", &save); w; w = strtok_r(0, ",", &save))
        for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
            if (!strcmp(w, known[i].word)) set |= known[i].flag;
    struct stat st;
    if (lstat(path, &st)) return -1;
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return errno = EOPNOTSUPP, -1;
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) return -1;
    int r = ioctl(fd, FS_IOC_GETFLAGS, &now);
    now = (now & ~all) | set;
    if (!r) r = ioctl(fd, FS_IOC_SETFLAGS, &now);
    int e = errno;
    close(fd);
    errno = e;
    return r;
}

// The directory that a path's last name is in, opened; `name`: where that begins.
static int parent_of(char *path, char **name) {
    char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    if (!slash) return open(".", O_RDONLY | O_DIRECTORY);
    *slash = 0;
    int fd = open(*path ? path : "/", O_RDONLY | O_DIRECTORY);
    *slash = '/';
    return fd;
}

// As btrfs(8) calls them; `from`: of which subvolume a snapshot is made.
static int subvolume(unsigned long what, char *path, const char *from, int readonly) {
    char *name;
    int source = from ? open(from, O_RDONLY) : -1;
    if (from && source < 0) return -1;
    int dir = parent_of(path, &name), r = -1;
    if (dir >= 0 && from) {
        struct btrfs_ioctl_vol_args_v2 args = {.fd = source};
        if (readonly) args.flags = BTRFS_SUBVOL_RDONLY;
        strncpy(args.name, name, sizeof args.name - 1);
        r = ioctl(dir, what, &args);
    } else if (dir >= 0) {
        struct btrfs_ioctl_vol_args args = {0};
        strncpy(args.name, name, sizeof args.name - 1);
        r = ioctl(dir, what, &args);
    }
    int e = errno;
    if (dir >= 0) close(dir);
    if (source >= 0) close(source);
    errno = e;
    return r;
}

// What the last call found, if it looked for something; the checkpoint of mkcp.
static long long found;

// As nilfs-utils does it: through the root directory of the file system.
static int checkpoints(unsigned long request, void *argument) {
    int fd = open(".", O_RDONLY);
    if (fd < 0) return -1;
    int r = ioctl(fd, request, argument), e = errno;
    close(fd);
    errno = e;
    return r;
}

static int change_mode(uint64_t number, int mode) {
    struct nilfs_cpmode asked = {.cm_cno = number, .cm_mode = mode};
    return checkpoints(NILFS_IOCTL_CHANGE_CPMODE, &asked);
}

static int mkcp(int is_snapshot) {
    __u64 number = 0;
    int r = checkpoints(NILFS_IOCTL_SYNC, &number);
    if (!r && is_snapshot) r = change_mode(number, NILFS_SNAPSHOT);
    found = number;
    return r;
}

// One call, already split into words; everything but the call itself is done before `start`.
static long call(char **w, uint64_t *start, uint64_t *end) {
    char *c = w[0];
    unsigned n = w[1] ? atoi(w[1]) : 0;
    long r = -1;
    int fd = n < FDS ? fds[n] : -1;
    uint64_t a = w[2] ? strtoull(w[2], 0, 10) : 0, b = w[3] ? strtoull(w[3], 0, 10) : 0;
    errno = EINVAL;
    found = 0;
#define T(e) do { before = sent(); *start = now(); r = (e); *end = now(); after = sent(); } while (0)
    if (!strcmp(c, "open")) {
        int f = flags(w[3]);
        T(open(w[2], f, 0644));
        if (r >= 0) {
            if (fd >= 0) close(fd);
            fds[n] = r;
        }
    } else if (!strcmp(c, "close")) {
        T(close(fd));
        if (n < FDS) fds[n] = -1;
    } else if (!strcmp(c, "pwrite")) {
        struct iovec one = {buf, a};
        fill(buf, a, b, w[4]);
        if (w[4] && w[5] && !strcmp(w[5], "atomic")) {
            // RWF_ATOMIC (0x40, Linux 6.11) is younger than most headers.
            T(pwritev2(fd, &one, 1, b, 0x40));
        } else {
            T(pwrite(fd, buf, a, b));
        }
    } else if (!strncmp(c, "aio_", 4) && strcmp(c, "aio_wait")) {
        // Its memory is its own until it has ended, and nobody needs it back.
        static struct iocb all[1 << 16];
        static unsigned next;
        void *own = 0;
        if (next == 1 << 16 || posix_memalign(&own, 4096, a ? a : 1)) return -1;
        int write = !strcmp(c, "aio_write");
        if (write) fill(own, a, b, w[4]);
        struct iocb *io = &all[next++];
        io->aio_lio_opcode = write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
        io->aio_fildes = fd, io->aio_buf = (uintptr_t)own, io->aio_nbytes = a, io->aio_offset = b;
        T(syscall(SYS_io_submit, context, 1, &io));
        in_flight += r == 1;
    } else if (!strcmp(c, "aio_wait")) {
        static struct io_event ended[AIO];
        unsigned least = n < in_flight ? n : in_flight;
        T(syscall(SYS_io_getevents, context, least, AIO, ended, 0));
        for (long i = 0; i < r; i++)
            if ((int64_t)ended[i].res < 0) errno = -ended[i].res, fprintf(stderr, "%m\n");
        if (r > 0) in_flight -= r;
    } else if (!strcmp(c, "mmap_write")) {
        fill(buf, a, b, w[4]);
        T(mmap_write(fd, buf, a, b));
    } else if (!strcmp(c, "msync")) T(sync_mapped(fd, a, b));
    else if (!strcmp(c, "sync_file_range")) T(sync_file_range(fd, a, b, 7));
    else if (!strcmp(c, "copy_file_range")) {
        loff_t from = a, to = strtoll(w[4], 0, 10);
        int target = b < FDS ? fds[b] : -1;
        size_t n = strtoull(w[5], 0, 10);
        T(copy_file_range(fd, &from, target, &to, n, 0));
    } else if (!strcmp(c, "reflink")) {
        int target = b < FDS ? fds[b] : -1;
        struct file_clone_range range = {fd, a, strtoull(w[5], 0, 10), strtoull(w[4], 0, 10)};
        T(ioctl(target, FICLONERANGE, &range));
    } else if (!strcmp(c, "dedupe")) {
        int target = b < FDS ? fds[b] : -1;
        uint64_t to = strtoull(w[4], 0, 10), n = strtoull(w[5], 0, 10);
        T(dedupe(fd, a, target, to, n));
    } else if (!strcmp(c, "pread")) T(pread(fd, buf, a, b));
    else if (!strcmp(c, "fadvise")) {
        int what = !strcmp(w[2], "sequential") ? POSIX_FADV_SEQUENTIAL
                   : !strcmp(w[2], "random")   ? POSIX_FADV_RANDOM
                   : !strcmp(w[2], "dontneed") ? POSIX_FADV_DONTNEED
                                               : POSIX_FADV_NORMAL;
        T(-(errno = posix_fadvise(fd, 0, 0, what)));
    } else if (!strcmp(c, "fsync")) T(fsync(fd));
    else if (!strcmp(c, "fdatasync")) T(fdatasync(fd));
    else if (!strcmp(c, "syncfs")) T(syncfs(fd));
    else if (!strcmp(c, "ftruncate")) T(ftruncate(fd, a));
    else if (!strcmp(c, "fallocate")) {
        int m = !strcmp(w[2], "keep")    ? FALLOC_FL_KEEP_SIZE
                : !strcmp(w[2], "punch") ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
                : !strcmp(w[2], "zero")  ? FALLOC_FL_ZERO_RANGE
                : !strcmp(w[2], "zero-keep") ? FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE
                : !strcmp(w[2], "collapse") ? FALLOC_FL_COLLAPSE_RANGE
                : !strcmp(w[2], "insert") ? FALLOC_FL_INSERT_RANGE
                                         : 0;
        a = strtoull(w[4], 0, 10);
        T(fallocate(fd, m, b, a));
    } else if (!strcmp(c, "rename")) T(rename(w[1], w[2]));
    else if (!strcmp(c, "renameat2")) {
        int f = !strcmp(w[3], "exchange") ? RENAME_EXCHANGE : !strcmp(w[3], "whiteout") ? RENAME_WHITEOUT : RENAME_NOREPLACE;
        T(renameat2(AT_FDCWD, w[1], AT_FDCWD, w[2], f));
    } else if (!strcmp(c, "linkat")) T(linkat(fd, "", AT_FDCWD, w[2], AT_EMPTY_PATH));
    else if (!strcmp(c, "mknod")) {
        dev_t d = makedev(strtoul(w[3], 0, 10), strtoul(w[4], 0, 10));
        T(mknod(w[1], (!strcmp(w[2], "block") ? S_IFBLK : S_IFCHR) | 0644, d));
    } else if (!strcmp(c, "mkfifo")) T(mkfifo(w[1], 0644));
    else if (!strcmp(c, "chmod")) T(chmod(w[1], strtoul(w[2], 0, 8)));
    else if (!strcmp(c, "chown")) T(chown(w[1], a, b));
    else if (!strcmp(c, "utimensat")) {
        struct timespec t[2] = {when(w[2]), when(w[3])};
        T(utimensat(AT_FDCWD, w[1], t, 0));
    } else if (!strcmp(c, "truncate")) T(truncate(w[1], a));
    else if (!strcmp(c, "link")) T(link(w[1], w[2]));
    else if (!strcmp(c, "unlink")) T(unlink(w[1]));
    else if (!strcmp(c, "mkdir")) T(mkdir(w[1], 0755));
    else if (!strcmp(c, "rmdir")) T(rmdir(w[1]));
    else if (!strcmp(c, "symlink")) T(symlink(w[1], w[2]));
    else if (!strcmp(c, "subvolume_create")) T(subvolume(BTRFS_IOC_SUBVOL_CREATE, w[1], 0, 0));
    else if (!strcmp(c, "subvolume_delete")) T(subvolume(BTRFS_IOC_SNAP_DESTROY, w[1], 0, 0));
    else if (!strcmp(c, "snapshot")) T(subvolume(BTRFS_IOC_SNAP_CREATE_V2, w[2], w[1], w[3] != 0));
    else if (!strcmp(c, "chattr")) T(change_flags(w[1], w[2]));
    // F2FS_IOC_START_ATOMIC_WRITE and those beside it, of include/uapi/linux/f2fs.h.
    else if (!strcmp(c, "atomic_start")) T(ioctl(fd, _IO(0xf5, 1)));
    else if (!strcmp(c, "atomic_replace")) T(ioctl(fd, _IO(0xf5, 25)));
    else if (!strcmp(c, "atomic_commit")) T(ioctl(fd, _IO(0xf5, 2)));
    else if (!strcmp(c, "atomic_abort")) T(ioctl(fd, _IO(0xf5, 5)));
    else if (!strcmp(c, "mkcp")) T(mkcp(w[1] && !strcmp(w[1], "-s")));
    else if (!strcmp(c, "chcp")) T(change_mode(a, !strcmp(w[1], "ss") ? NILFS_SNAPSHOT : NILFS_CHECKPOINT));
    else if (!strcmp(c, "rmcp")) {
        __u64 number = strtoull(w[1], 0, 10);
        T(checkpoints(NILFS_IOCTL_DELETE_CHECKPOINT, &number));
    } else if (!strcmp(c, "seek_data")) T(found = lseek(fd, a, SEEK_DATA));
    else if (!strcmp(c, "seek_hole")) T(found = lseek(fd, a, SEEK_HOLE));
    else if (!strcmp(c, "setxattr")) {
        a = strtoull(w[3], 0, 10);
        if (exact) fill(buf, a, 0, w[4]);
        else memset(buf, 1 + atoi(w[4]) % 255, a);
        T(setxattr(w[1], w[2], buf, a, 0));
    } else if (!strcmp(c, "removexattr")) T(removexattr(w[1], w[2]));
    else if (!strcmp(c, "sync")) T((sync(), 0));
    else if (!strcmp(c, "drop_caches")) {
        int all = open("/proc/sys/vm/drop_caches", O_WRONLY);
        T(write(all, "3", 1));
        close(all);
    }
    else T(-1);
    return r;
}

static void done(char *op, char *index, uint64_t start, uint64_t end, long r, long long answer) {
    printf("%s\t%s\t%s\t%llu\t%llu\t%d\t%lld\t%lld\t%lld\n", kase, op, index,
           (unsigned long long)start, (unsigned long long)(end - start), r >= 0,
           after.requests - before.requests, after.flushes - before.flushes, answer);
}

int main(int argc, char **argv) {
    if (argc == 2) {
        printf("%llu\n", (unsigned long long)now());
        return 0;
    }
    if (argc < 3) return 2;
    FILE *f = fopen(argv[1], "r");
    if (!f || chdir(argv[2])) return 2;
    // Present, so that no direct read ends early and is done again (`iocb->ki_flags` of btrfs:
    // `nofault`).
    memset(buf, 1, sizeof buf);
    static char out[1 << 20];
    setvbuf(stdout, out, _IOFBF, sizeof out);
    for (int i = 0; i < FDS; i++) fds[i] = -1;
    if (syscall(SYS_io_setup, AIO, &context)) perror("io_setup");
    statistics = open("/sys/block/z0/stat", O_RDONLY);
    exact = argc > 3;
    char line[512], op[128] = "", index[16] = "";
    while (fgets(line, sizeof line, f)) compares |= strstr(line, "dedupe ") != 0;
    rewind(f);
    uint64_t begin = 0;
    struct sent begun = {0};
    while (fgets(line, sizeof line, f)) {
        char *w[8] = {0}, *save;
        int n = 0;
        for (char *s = strtok_r(line, " \n", &save); s && n < 7; s = strtok_r(0, " \n", &save)) w[n++] = s;
        if (!n || *w[0] == '#') continue;
        if (!strcmp(w[0], "case")) snprintf(kase, sizeof kase, "%s", w[1]);
        else if (!strcmp(w[0], "align")) align();
        else if (!strcmp(w[0], "nap")) nap(strtoull(w[1], 0, 10));
        else if (!strcmp(w[0], "begin")) {
            snprintf(op, sizeof op, "%s", w[1]);
            snprintf(index, sizeof index, "%s", w[2]);
            begun = sent();
            begin = now();
        } else if (!strcmp(w[0], "end")) {
            uint64_t end = now();
            before = begun, after = sent();
            done(op, index, begin, end, 0, 0);
        }
        else if (!strcmp(w[0], "exit")) {
            static struct io_event ended[AIO];
            while (in_flight) in_flight -= syscall(SYS_io_getevents, context, 1, AIO, ended, 0);
            for (int i = 0; i < FDS; i++)
                if (fds[i] >= 0) close(fds[i]), fds[i] = -1;
        } else if (*w[0] == '@') {
            uint64_t a = 0, b = 0;
            char *colon = strrchr(w[0], ':');
            long r = call(w + 1, &a, &b);
            long long answer = r < 0 ? -errno : found;
            if (colon) *colon = 0;
            done(w[0] + 1, colon ? colon + 1 : "0", a, b, r, answer);
        } else {
            uint64_t a, b;
            if (call(w, &a, &b) < 0) {
                perror(w[0]);
                return 1;
            }
        }
    }
    return 0;
}
