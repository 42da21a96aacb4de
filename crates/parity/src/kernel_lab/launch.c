// Starts a guest's kernel without the host's random numbers: those that it makes itself come out the same every time.
// usage: launch KERNEL [ARGUMENT]...
// User-Mode Linux seeds its generator with getrandom(2) of the host (arch/um/include/asm/archrandom.h), and does without
// where that fails. System calls of the guest's programs do not come by here.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof code / sizeof *code, code};
  if (argc < 2) return 2;
  // A host that forbids it leaves the guest with random numbers of the host.
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
    perror("random numbers of the host");
  }
  execv(argv[1], argv + 1);
  perror(argv[1]);
  return 127;
}
