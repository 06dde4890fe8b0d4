/* Loaded into the service by LD_PRELOAD: no sync succeeds while the file named by FSYNC_FAILS_WHILE exists. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int sync_or_fail(const char *name, int descriptor) {
  const char *flag = getenv("FSYNC_FAILS_WHILE");
  if (flag != NULL && access(flag, F_OK) == 0) {
    errno = EIO;
    return -1;
  }
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  return real(descriptor);
}

int fsync(int descriptor) { return sync_or_fail("fsync", descriptor); }

int fdatasync(int descriptor) { return sync_or_fail("fdatasync", descriptor); }
