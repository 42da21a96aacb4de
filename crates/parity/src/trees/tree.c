// Mounts images one after the other and writes down every file of each, in a guest.
//
// Standard input: lines `NAME TYPE OPTIONS`: the image /share/NAME.img, a type of mount(2) and its
// options (`-`: none). Of each it writes /share/NAME.tree:
//
//   R ERRNO                       the kernel refuses the mount
//   E PATH MODE LINKS SIZE INODE UID GID SECONDS NANOSECONDS MAJOR MINOR FLAGS TARGET
//   X NAME VALUE                  an extended attribute of the file before
//   N                             its attributes cannot be read
//   D NUMBER BYTES, then the bytes  a block of it that is not zero, or the last, partial one
//   U PATH ERRNO                  a file or directory that cannot be read
//   Z                             the end
//
// PATH, TARGET, NAME and VALUE are in hexadecimal, behind a `-`.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#define BLOCK 4096
#define FORGET _IOW(0x94, 5, struct { long long fd; char name[4088]; })
static const char *root = "/mnt/a";
static FILE *out;

static void hex(const void *p, size_t n) {
    const unsigned char *b = p;
    fputs(" -", out);
    while (n--) fprintf(out, "%02x", *b++);
}

static void unreadable(const char *path) {
    int why = errno;
    fputs("U", out);
    hex(path, strlen(path));
    fprintf(out, " %d\n", why);
}

static void attributes(const char *place) {
    static char names[1 << 16], value[1 << 16];
    ssize_t n = llistxattr(place, names, sizeof names);
    if (n < 0) {
        fputs("N\n", out);
        return;
    }
    for (char *name = names; name < names + n; name += strlen(name) + 1) {
        ssize_t length = lgetxattr(place, name, value, sizeof value);
        if (length < 0) {
            fputs("N\n", out);
            return;
        }
        fputs("X", out);
        hex(name, strlen(name));
        hex(value, length);
        fputs("\n", out);
    }
}

static int contents(const char *place, off_t size) {
    static char block[BLOCK], zero[BLOCK];
    int fd = open(place, O_RDONLY | O_NOATIME), failed = fd < 0;
    for (off_t at = 0; !failed && at < size;) {
        if (at % (1 << 20) == 0) {
            // A length gone wild: holes are not read one by one.
            off_t data = lseek(fd, at, SEEK_DATA);
            if (data < 0 && errno == ENXIO) data = size;
            if (data < 0) { failed = 1; break; }
            at = data / BLOCK * BLOCK > at ? data / BLOCK * BLOCK : at;
            if (size % BLOCK && at >= size) at = size / BLOCK * BLOCK;
            if (at >= size) break;
        }
        ssize_t want = size - at < BLOCK ? size - at : BLOCK, n = pread(fd, block, want, at);
        if (n != want) {
            if (n >= 0) errno = EIO;
            failed = 1;
            break;
        }
        if (want < BLOCK || memcmp(block, zero, BLOCK)) {
            fprintf(out, "D %lld %lld\n", (long long)(at / BLOCK), (long long)want);
            fwrite(block, want, 1, out);
        }
        at += want;
    }
    int why = errno;
    if (fd >= 0) close(fd);
    errno = why;
    return failed;
}

static void walk(const char *path) {
    char place[8192], child[4096];
    snprintf(place, sizeof place, "%s/%s", root, path);
    DIR *dir = opendir(place);
    if (!dir) {
        unreadable(path);
        return;
    }
    struct dirent *entry;
    while (errno = 0, entry = readdir(dir)) {
        const char *name = entry->d_name;
        if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
        // NILFS2's own file is no file of the program.
        if (!*path && (!strcmp(name, "lost+found") || !strcmp(name, ".nilfs"))) continue;
        snprintf(child, sizeof child, "%s%s%s", path, *path ? "/" : "", name);
        snprintf(place, sizeof place, "%s/%s", root, child);
        struct stat s;
        if (lstat(place, &s)) {
            unreadable(child);
            continue;
        }
        char target[4096];
        ssize_t length = S_ISLNK(s.st_mode) ? readlink(place, target, sizeof target) : 0;
        if (length < 0) {
            unreadable(child);
            continue;
        }
        int flags = 0;
        if (S_ISREG(s.st_mode) || S_ISDIR(s.st_mode)) {
            int fd = open(place, O_RDONLY | O_NOATIME);
            if (fd >= 0 && ioctl(fd, FS_IOC_GETFLAGS, &flags)) flags = 0;
            if (fd >= 0) close(fd);
        }
        fputs("E", out);
        hex(child, strlen(child));
        fprintf(out, " %o %lld %lld %lld %d %d %lld %ld %u %u %u", s.st_mode, (long long)s.st_nlink,
                (long long)s.st_size, (long long)s.st_ino, s.st_uid, s.st_gid,
                (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec, major(s.st_rdev), minor(s.st_rdev),
                (unsigned)flags);
        hex(target, length);
        fputs("\n", out);
        attributes(place);
        if (S_ISREG(s.st_mode) && contents(place, s.st_size)) unreadable(child);
        if (S_ISDIR(s.st_mode)) walk(child);
    }
    if (errno) unreadable(path);
    closedir(dir);
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

int main(void) {
    char line[1024], name[256], type[64], options[512], file[600];
    int control = open("/dev/loop-control", O_RDWR), btrfs = open("/dev/btrfs-control", O_RDWR);
    if (control < 0) die("/dev/loop-control");
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%255s %63s %511s", name, type, options) != 3) die("a line");
        snprintf(file, sizeof file, "/share/%s.img", name);
        int image = open(file, O_RDWR), number = ioctl(control, LOOP_CTL_GET_FREE);
        if (image < 0 || number < 0) die(file);
        char device[64];
        snprintf(device, sizeof device, "/dev/loop%d", number);
        int loop = open(device, O_RDWR | O_CLOEXEC);
        if (loop < 0 || ioctl(loop, LOOP_SET_FD, image)) die(device);
        close(image);
        // Of another image with the same UUID, the kernel remembers the generation.
        struct { long long fd; char name[4088]; } of = {0};
        snprintf(of.name, sizeof of.name, "%s", device);
        if (btrfs >= 0) ioctl(btrfs, FORGET, &of);
        snprintf(file, sizeof file, "/share/%s.tree", name);
        out = fopen(file, "w");
        if (!out) die(file);
        if (mount(device, root, type, MS_NOATIME, strcmp(options, "-") ? options : "")) {
            fprintf(out, "R %d\n", errno);
        } else {
            walk("");
            for (int tries = 0; umount2(root, 0); tries++) {
                if (errno != EBUSY || tries == 1000) die("umount");
                usleep(1000);
            }
        }
        fputs("Z\n", out);
        if (fclose(out)) die(file);
        if (ioctl(loop, LOOP_CLR_FD, 0)) die("LOOP_CLR_FD");
        close(loop);
    }
    return 0;
}
