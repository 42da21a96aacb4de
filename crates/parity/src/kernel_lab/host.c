// Commands of the host in a guest. Their root is the host's (hostfs), read-only, with memory over what programs write to; the
// drive's file system is at a place of it. Compiled behind control.c.
#include <dirent.h>
#include <sys/wait.h>

enum { PATH = 4096 };
// The root of commands in the guest, and files in it.
static const char *HOST = "/run/host", *ACK = "/run/writepath-ack", *ACKED = "/run/writepath-acked";
// Directories over which memory lies.
static const char *MEMORY[] = {"/tmp", "/run", "/var/tmp", 0};
static const char *place;

static const char *host(const char *path) {
  static char out[PATH];
  snprintf(out, sizeof out, "%s%s", HOST, path);
  return out;
}

static void must_mount(const char *what, const char *at, const char *type, unsigned long flags, const char *data) {
  if (mount(what, at, type, flags, data)) die(at);
}

// A directory and those above it.
static void make_dirs(const char *path) {
  char part[PATH];
  snprintf(part, sizeof part, "%s", path);
  for (char *at = part + 1; *at; at++) {
    if (*at != '/') continue;
    *at = 0;
    mkdir(part, 0755);
    *at = '/';
  }
  mkdir(part, 0755);
}

// The files of a directory over which memory lies: links to them, for whoever works in that very directory.
static void link_files(const char *dir) {
  char under[PATH], from[2 * PATH], to[2 * PATH];
  snprintf(under, sizeof under, "/run/writepath-under%s", dir);
  make_dirs(host(under));
  must_mount("none", host(under), "hostfs", MS_RDONLY, dir);
  DIR *all = opendir(host(under));
  if (!all) die(dir);
  for (struct dirent *entry; (entry = readdir(all));) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    snprintf(to, sizeof to, "%s/%s", under, entry->d_name);
    snprintf(from, sizeof from, "%s/%s", host(dir), entry->d_name);
    if (symlink(to, from) && errno != EEXIST) die(from);
  }
  closedir(all);
}

// The host's files, as programs see them.
static void make_root(char **host_dirs) {
  make_dirs(HOST);
  must_mount("none", HOST, "hostfs", MS_RDONLY, "/");
  const char *kernels[] = {"/proc", "/sys", "/dev", 0};
  for (const char **dir = kernels; *dir; dir++) must_mount(*dir, host(*dir), 0, MS_BIND, 0);
  for (const char **dir = MEMORY; *dir; dir++) {
    if (!access(host(*dir), F_OK)) must_mount("tmpfs", host(*dir), "tmpfs", 0, "mode=1777");
  }
  mkdir("/dev/shm", 0755);
  must_mount("tmpfs", host("/dev/shm"), "tmpfs", 0, "mode=1777");
  // What a device manager would make.
  if (symlink("/proc/self/fd", "/dev/fd") && errno != EEXIST) die("/dev/fd");
  for (char **dir = host_dirs; *dir; dir++) {
    int is_memory = 0;
    for (const char **memory = MEMORY; *memory; memory++) is_memory |= !strcmp(*dir, *memory);
    if (is_memory) link_files(*dir);
    if (!access(host(*dir), F_OK)) continue;
    make_dirs(host(*dir));
    must_mount("none", host(*dir), "hostfs", MS_RDONLY, *dir);
  }
}

// Starts a shell command on the file system, with its output in a file of the folder.
static pid_t start(const char *line, const char *output) {
  pid_t pid = fork();
  if (pid < 0) die("fork");
  if (pid) return pid;
  int out = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644), in = open("/dev/null", O_RDONLY);
  if (out < 0 || in < 0) die(output);
  if (chroot(HOST) || chdir(place)) die(place);
  dup2(in, 0), dup2(out, 1), dup2(out, 2);
  close(in), close(out);
  const char *kept[] = {"PATH", "HOME", "LANG", 0};
  for (const char **name = kept; *name; name++) {
    char given[64];
    snprintf(given, sizeof given, "GUEST_%s", *name);
    const char *value = getenv(given);
    if (value) setenv(*name, value, 1);
    else unsetenv(*name);
    unsetenv(given);
  }
  setenv("WRITEPATH_MOUNT", place, 1);
  setenv("WRITEPATH_DIR", place, 1);
  setenv("WRITEPATH_TREE", place, 1);
  setenv("WRITEPATH_ACK", ACK, 1);
  setenv("WRITEPATH_ACKED", ACKED, 1);
  execl("/bin/sh", "sh", "-c", line, (char *)0);
  die("/bin/sh");
  return 0;
}

// Runs it to its end; its exit status as a shell has it.
static int run(const char *line, const char *output) {
  int status;
  if (waitpid(start(line, output), &status, 0) < 0) die("waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

