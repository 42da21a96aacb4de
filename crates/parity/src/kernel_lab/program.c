// A program of the host in a guest, on the drive's file system. Compiled behind control.c and host.c.
//
// usage: program DISK CONTROL FSTYPE MOUNT-OPTIONS MKFS PLACE SETUP RUN REST-SECONDS [HOST-DIR]...
// The file system is at PLACE of the host's root. Exit status of RUN: file `code` of the folder.
// A line that a program writes to the pipe $WRITEPATH_ACK becomes a mark of the drive's log before its writer goes on: who
// reads it has real-time priority, and does not wait for the control disk.
#include <linux/aio_abi.h>
#include <sched.h>
#include <sys/syscall.h>

enum { MARK = 480, SLOTS = 64 };

// Requests of the control disk that nobody waits for.
static aio_context_t context;
static int disk_fd, in_flight;
static struct iocb *slots[SLOTS];

static void post(const char *line, size_t bytes) {
  struct iocb *request;
  if (in_flight < SLOTS) {
    request = slots[in_flight++] = calloc(1, sizeof *request);
    request->aio_buf = (uintptr_t)aligned();
  } else {
    struct io_event done;
    if (syscall(SYS_io_getevents, context, 1, 1, &done, 0) != 1) die("control disk");
    request = (struct iocb *)(uintptr_t)done.obj;
  }
  char *buffer = (char *)(uintptr_t)request->aio_buf;
  memset(buffer, 0, LINE);
  snprintf(buffer, LINE, "mark %.*s", (int)bytes, line);
  request->aio_lio_opcode = IOCB_CMD_PWRITE, request->aio_fildes = disk_fd, request->aio_nbytes = LINE;
  if (syscall(SYS_io_submit, context, 1, &request) != 1) die("control disk");
}

// Tells the drive of every line that is written to the pipe.
static void acknowledge(int ready) {
  static char text[2 * LINE];
  size_t have = 0;
  struct sched_param most = {.sched_priority = 50};
  if (sched_setscheduler(0, SCHED_FIFO, &most)) die("SCHED_FIFO");
  int pipe = open(host(ACK), O_RDWR);
  disk_fd = open(control_path, O_WRONLY | O_DIRECT);
  if (pipe < 0 || disk_fd < 0 || syscall(SYS_io_setup, SLOTS, &context)) die("acknowledgements");
  if (write(ready, "", 1) != 1) die("acknowledgements");
  close(ready);
  for (;;) {
    ssize_t n = read(pipe, text + have, sizeof text - have);
    if (n <= 0) die("acknowledgements");
    have += n;
    char *from = text, *end;
    while ((end = memchr(from, '\n', have - (from - text)))) {
      if (end - from > MARK) {
        fprintf(stderr, "an acknowledgement of %zd bytes; at most %d\n", end - from, MARK);
      } else if (end > from) {
        post(from, end - from);
      }
      from = end + 1;
    }
    have -= from - text;
    memmove(text, from, have);
    if (have == sizeof text) have = 0, fprintf(stderr, "an acknowledgement without an end\n");
  }
}

// Its reader is there when this returns.
static void make_pipe(void) {
  int ready[2];
  char byte;
  if (mkfifo(host(ACK), 0666) || chmod(host(ACK), 0666) || pipe(ready)) die("acknowledgements");
  // A scheduler of the control disk's requests would put them off.
  char path[64];
  snprintf(path, sizeof path, "/sys/block/%s/queue/scheduler", control_path + 5);
  write_text(path, "none");
  pid_t pid = fork();
  if (pid < 0) die("fork");
  if (!pid) {
    close(ready[0]);
    acknowledge(ready[1]);
  }
  close(ready[1]);
  if (read(ready[0], &byte, 1) != 1) die("acknowledgements");
  close(ready[0]);
}

static void note(const char *file, int code) {
  FILE *to = fopen(file, "w");
  if (!to || fprintf(to, "%d\n", code) < 0 || fclose(to)) die(file);
}

int main(int argc, char **argv) {
  if (argc < 10) return 2;
  disk = argv[1], control_path = argv[2], place = argv[6];
  const char *fstype = argv[3], *options = argv[4], *mkfs = argv[5], *setup = argv[7], *line = argv[8];
  if (system(mkfs)) {
    fprintf(stderr, "%s\n", mkfs);
    return 4;
  }
  make_root(argv + 10);
  if (mount(disk, host(place), fstype, 0, *options ? options : 0)) {
    fprintf(stderr, "mount -t %s -o '%s': %s\n", fstype, options, strerror(errno));
    return 4;
  }
  make_pipe();
  int code = 0;
  if (*setup) {
    code = run(setup, "/share/setup.out");
    note("/share/setup-code", code);
  }
  if (!code) {
    sync();
    must("mark writepath begin");
    code = run(line, "/share/run.out");
    must("status");
    FILE *at = fopen("/share/ended", "w");
    if (!at || fprintf(at, "%lld\n", number("now_ns")) < 0 || fclose(at)) die("/share/ended");
    note("/share/code", code);
    sleep(atoi(argv[9]));
    must("mark writepath end");
  }
  // What the command has left running may keep it from that.
  if (umount(host(place))) fprintf(stdout, "umount: %s\n", strerror(errno));
  return 0;
}
