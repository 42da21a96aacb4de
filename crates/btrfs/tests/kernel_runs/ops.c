// Random calls on a file system, with syncs among them; and a listing of what is there.
// ops run SEED CALLS DIR | ops list DIR
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

// By the thousands of the seed: 0: all calls; 1: names, and directories synced; 2: many links with
// long names; 3: in a subvolume, with snapshots.
static int flavour;
static uint64_t state;
static uint64_t next(void) {
    uint64_t x = state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
static uint64_t below(uint64_t n) { return next() % n; }

static char *dirs[] = {"", "a", "b", "a/c", "d", "b/e"};
static void path(char *out) {
    const char *dir = dirs[below(6)];
    // Few names, so that they meet; some are directories.
    const char *root = flavour == 3 ? below(2) ? "sv/" : "" : "";
    sprintf(out, "%s%s%s%c%d", root, dir, *dir ? "/" : "", below(8) ? 'f' : 'g', (int)below(flavour == 2 ? 3 : 12));
    if (flavour == 2 && !below(3)) {
        size_t n = strlen(out);
        memset(out + n, 'x', 150);
        sprintf(out + n + 150, "%d", (int)below(300));
    }
}

// `struct btrfs_ioctl_vol_args`.
struct args { int64_t fd; char name[4088]; };
static void subvolume(unsigned what, const char *from, const char *name) {
    struct args a = {0};
    int at = open(".", O_RDONLY);
    if (from) a.fd = open(from, O_RDONLY);
    strcpy(a.name, name);
    ioctl(at, _IOW(0x94, what, struct args), &a);
    if (from) close((int)a.fd);
    close(at);
}
static void dir_path(char *out) { strcpy(out, dirs[1 + below(5)]); }

static void sync_path(const char *p) {
    int fd = open(p, O_RDONLY);
    if (fd < 0) return;
    if (below(4)) fsync(fd); else fdatasync(fd);
    close(fd);
}

static void one(void) {
    char p[400], q[400], name[32];
    static char data[300000];
    path(p); path(q);
    int fd;
    static const char names[] = {5, 6, 7, 8, 9, 10, 12, 13, 14, 18, 18, 18, 19, 20, 23, 4, 21};
    static const char links[] = {0, 7, 7, 7, 7, 7, 7, 9, 5, 18, 23};
    int call = (int)below(24);
    if (flavour == 1 && below(4)) call = names[below(sizeof names)];
    if (flavour == 2 && below(8)) call = links[below(sizeof links)];
    if (flavour == 3 && !below(60)) {
        sprintf(name, "snap%d", (int)below(100));
        subvolume(1, "sv", name);
    }
    switch (call) {
    case 0: case 1: case 2: case 3: case 4: {
        fd = open(p, O_RDWR | O_CREAT, 0640);
        if (fd < 0) return;
        size_t n = 1 + below(below(3) ? 9000 : 200000);
        for (size_t i = 0; i < n; i++) data[i] = (char)next();
        if (flavour == 2) n = 1 + n % 3000;
        if (flavour == 1) n = 1 + n % 300;
        off_t at = below(3) || flavour == 1 ? 0 : (off_t)below(300000);
        if (pwrite(fd, data, n, at) < 0) {}
        if (!below(3)) fsync(fd);
        close(fd);
        return;
    }
    case 5: case 6: rename(p, q); return;
    case 7: case 8:
        if (flavour == 2 && below(2)) {
            // Names beyond what one item holds.
            strcpy(p, "a/f0");
            memset(q, 'y', 180);
            memcpy(q, "a/", 2);
            sprintf(q + 180, "%d", (int)below(90));
            if (!below(3)) { unlink(q); return; }
        }
        link(p, q);
        if (flavour == 2 && !below(6)) sync_path(p);
        return;
    case 9: case 10: case 11: unlink(p); return;
    case 12: mkdir(p, 0750); return;
    case 13: rmdir(p); return;
    case 14: symlink(q, p); return;
    case 15: if (truncate(p, (off_t)below(200000))) {} return;
    case 16:
        fd = open(p, O_RDWR);
        if (fd < 0) return;
        switch (below(3)) {
        case 0: if (fallocate(fd, 0, below(200000), 1 + below(200000))) {} break;
        case 1: if (fallocate(fd, 1, below(200000), 1 + below(200000))) {} break;
        default: if (fallocate(fd, 3, below(200000), 1 + below(100000))) {} break;
        }
        if (!below(2)) fsync(fd);
        close(fd);
        return;
    case 17:
        sprintf(name, "user.x%d", (int)below(4));
        if (below(3)) setxattr(p, name, data, below(300), 0); else removexattr(p, name);
        if (!below(2)) sync_path(p);
        return;
    case 18: dir_path(p); sync_path(p); return;
    case 19: dir_path(p); if (!below(6)) { dir_path(q); rename(p, q); } return;
    case 20: if (!below(8)) sync(); return;
    case 21:
        // A file that is deleted while it is open, and synced.
        fd = open(p, O_RDWR);
        if (fd < 0) return;
        unlink(p);
        if (!below(2)) fsync(fd);
        close(fd);
        return;
    default: sync_path(p); return;
    }
}

static void list(const char *dir) {
    DIR *d = opendir(dir);
    struct dirent *e;
    if (!d) return;
    while ((e = readdir(d))) {
        char p[4096], target[4096] = "", names[4096];
        struct stat s;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(p, sizeof p, "%s/%s", dir, e->d_name);
        if (lstat(p, &s)) { printf("E %s %s\n", p + 2, strerror(errno)); continue; }
        if (S_ISLNK(s.st_mode)) {
            ssize_t n = readlink(p, target, sizeof target - 1);
            target[n < 0 ? 0 : n] = 0;
        }
        printf("F\t%s\t%o\t%lu\t%lu\t%lu\t%lu\t%s", p + 2, s.st_mode, (unsigned long)s.st_nlink,
               (unsigned long)s.st_ino, S_ISDIR(s.st_mode) ? 0 : (unsigned long)s.st_size,
               S_ISDIR(s.st_mode) ? 0 : (unsigned long)s.st_blocks, target);
        if (!S_ISLNK(s.st_mode)) {
            ssize_t n = listxattr(p, names, sizeof names);
            // Sorted by the reader.
            for (char *x = names; n > 0 && x < names + n; x += strlen(x) + 1) {
                char value[4096];
                ssize_t len = getxattr(p, x, value, sizeof value);
                printf("\t%s=", x);
                for (ssize_t i = 0; i < len; i++) printf("%02x", (unsigned char)value[i]);
            }
        }
        printf("\n");
        if (S_ISDIR(s.st_mode)) list(p);
    }
    closedir(d);
}

int main(int n, char **v) {
    if (n > 4 && !strcmp(v[1], "run")) {
        state = strtoull(v[2], 0, 0) * 1000003;
        if (chdir(v[4])) return 1;
        flavour = (int)(strtoull(v[2], 0, 0) / 1000 % 4);
        for (int i = 1; i < 6; i++) mkdir(dirs[i], 0755);
        if (flavour == 3) {
            subvolume(14, 0, "sv");
            if (!chdir("sv")) {
                for (int i = 1; i < 6; i++) mkdir(dirs[i], 0755);
                if (chdir("..")) return 1;
            }
        }
        int calls = atoi(v[3]), before = calls / 3;
        for (int i = 0; i < calls; i++) {
            if (i == before) sync();
            one();
        }
        return 0;
    }
    if (n > 2 && !strcmp(v[1], "list")) {
        if (chdir(v[2])) return 1;
        list(".");
        return 0;
    }
    return 2;
}
