/*
 * Loaded into a server by LD_PRELOAD: its wall clock is wrong by as much as a test says, and its monotonic one is right.
 *
 * CLOCK_CONTROL is a file of two numbers (clock-shim.ts), which may be changed at any time: seconds to add to the wall
 * clock, and seconds to add on every thread but the first, as if the clock was set between the start of the first thread
 * and those of the others.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control {
  int64_t all_seconds;
  int64_t other_threads_seconds;
};

static volatile struct control *control;

static int64_t find_step(void) {
  if (control == NULL) {
    int opened = (int)syscall(SYS_openat, AT_FDCWD, getenv("CLOCK_CONTROL"), O_RDONLY | O_CLOEXEC);
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, opened, 0);
    if (opened < 0 || mapped == MAP_FAILED) abort();
    syscall(SYS_close, opened);
    control = mapped;
  }
  int is_first = syscall(SYS_gettid) == getpid();
  return control->all_seconds + (is_first ? 0 : control->other_threads_seconds);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (real == NULL) real = (__typeof__(real))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += find_step();
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec exact;
  int result = clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return result;
}

time_t time(time_t *copy) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (copy != NULL) *copy = exact.tv_sec;
  return exact.tv_sec;
}
