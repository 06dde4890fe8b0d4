/*
 * Loaded into a server by LD_PRELOAD: between all its threads and the files of one folder.
 *
 * DISK_FOLDER names the folder, without anything below it. DISK_CONTROL is a file of numbers (disk-shim.ts) that says
 * what goes wrong, and may be changed at any time. DISK_LOG receives a record of every operation that a disk would have
 * to keep, in the order in which they happened: test/torture/disk-model.ts makes of it what a loss of power leaves.
 * With a log, nothing is really synced: what counts is what the log says. Without one, syncs are real.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind { OPENED = 1, WRITTEN, TRUNCATED, SYNC_BEGUN, SYNCED, SYNC_FAILED, UNLINKED };

struct record {
  uint32_t kind;
  uint32_t name_bytes;
  uint64_t offset; /* of a write; the length of a truncation; the record where a sync began */
  uint64_t data_bytes;
};

struct control {
  uint32_t die_after;     /* with the first record of this number or a later one; 0: never */
  uint32_t die_in;        /* and of this kind; 0: of any */
  uint32_t syncs_are_lies; /* 1: those of all files; 2: those of SQLite's log alone */
  uint32_t write_error;   /* an errno */
  uint32_t write_fails_percent;
  uint32_t write_shortened_percent;
  uint32_t sync_fails_percent;
  uint32_t sync_ms;
  uint32_t read_fails_percent;
  uint32_t hangs;         /* 1: the next sync hangs until this is 0 again; that sync writes 2 here */
  uint32_t reads_hang;    /* 1: until it is 0 again, every look at a file or the disk hangs, and every read of a page, but
                             those of the first thread: what it reads is in the kernel's cache */
  uint32_t faults;        /* written here: how often any of these happened */
};

#define DESCRIPTORS_MAX 4096
#define NAME_BYTES_MAX 128

/* The name within the folder, of each descriptor that leads there; "." is the folder itself. */
static char names[DESCRIPTORS_MAX][NAME_BYTES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *folder;
static size_t folder_bytes;
static volatile struct control *control;
static int log_descriptor = -1;
static uint64_t records;

#define REAL(name) ((__typeof__(&name))find_real(#name))

static void *find_real(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (found == NULL) abort();
  return found;
}

static void fail_start(const char *reason) {
  (void)!write(2, reason, strlen(reason));
  abort();
}

/* Only a process that comes near the folder has a log: the shells that start the service have none. */
static void start(void) {
  int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC;
  const char *log = getenv("DISK_LOG");
  if (log != NULL) log_descriptor = (int)syscall(SYS_openat, AT_FDCWD, log, flags, 0600);
  int opened = (int)syscall(SYS_openat, AT_FDCWD, getenv("DISK_CONTROL"), O_RDWR | O_CLOEXEC);
  if ((log != NULL && log_descriptor < 0) || opened < 0) fail_start("disk-shim: no log, or no control\n");
  void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
  if (mapped == MAP_FAILED) fail_start("disk-shim: the control cannot be mapped\n");
  control = mapped;
  close(opened);
}

/* NULL where the path is outside the folder. */
static const char *find_name(const char *path) {
  if (folder == NULL) {
    folder = getenv("DISK_FOLDER");
    if (folder == NULL) folder = "";
    folder_bytes = strlen(folder);
  }
  if (folder_bytes == 0 || strncmp(path, folder, folder_bytes) != 0) return NULL;
  if (path[folder_bytes] == '\0') return ".";
  const char *name = path + folder_bytes + 1;
  if (path[folder_bytes] != '/' || strchr(name, '/') != NULL) return NULL;
  if (strlen(name) >= NAME_BYTES_MAX) fail_start("disk-shim: a name is too long\n");
  return name;
}

static const char *name_of(int descriptor) {
  if (descriptor < 0 || descriptor >= DESCRIPTORS_MAX) return NULL;
  return names[descriptor][0] == '\0' ? NULL : names[descriptor];
}

static int ends_with(const char *name, const char *end) {
  size_t length = strlen(name);
  return length >= strlen(end) && strcmp(name + length - strlen(end), end) == 0;
}

/* The index of SQLite's log is rebuilt after every loss of power, and so is no part of what a disk has to keep. */
static int is_kept(const char *name) { return log_descriptor >= 0 && !ends_with(name, "-shm"); }

/* Called with the lock held, after the operation itself: with the power gone, no other follows. */
static uint64_t note(enum kind kind, const char *name, uint64_t offset, const void *data, size_t bytes) {
  struct record record = {kind, (uint32_t)strlen(name), offset, bytes};
  struct iovec parts[3] = {
      {&record, sizeof record}, {(void *)name, record.name_bytes}, {(void *)data, bytes}};
  ssize_t whole = (ssize_t)(sizeof record + record.name_bytes + bytes);
  if (syscall(SYS_writev, log_descriptor, parts, 3) != whole)
    fail_start("disk-shim: the log cannot be written\n");
  records++;
  int is_due = control->die_after != 0 && records >= control->die_after;
  if (is_due && (control->die_in == 0 || control->die_in == kind)) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }
  return records;
}

static int happens(uint32_t percent) {
  static __thread unsigned int state;
  if (percent == 0) return 0;
  if (state == 0) state = (unsigned int)getpid() ^ (unsigned int)(uintptr_t)&state;
  if ((uint32_t)rand_r(&state) % 100 >= percent) return 0;
  __atomic_add_fetch(&((struct control *)control)->faults, 1, __ATOMIC_RELAXED);
  return 1;
}

/* Called with the lock held since before it was opened: another thread may be removing the very file. */
static int remember(int descriptor, const char *path) {
  if (descriptor < 0) return descriptor;
  const char *name = find_name(path);
  if (descriptor >= DESCRIPTORS_MAX) fail_start("disk-shim: too many descriptors\n");
  if (control == NULL) start();
  strcpy(names[descriptor], name);
  if (strcmp(name, ".") != 0 && is_kept(name)) note(OPENED, name, 0, NULL, 0);
  return descriptor;
}

/* Each has an alias for large files, which on a 64-bit machine is the same. */
#define OPEN(function, parameters, arguments)                      \
  int function parameters {                                        \
    va_list rest;                                                  \
    va_start(rest, flags);                                         \
    mode_t mode = va_arg(rest, mode_t);                            \
    va_end(rest);                                                  \
    if (find_name(path) == NULL) return REAL(function) arguments;  \
    pthread_mutex_lock(&lock);                                     \
    int opened = remember(REAL(function) arguments, path);         \
    int error = errno;                                             \
    pthread_mutex_unlock(&lock);                                   \
    errno = error;                                                 \
    return opened;                                                 \
  }                                                                \
  int function##64 parameters __attribute__((alias(#function)));
OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))

int close(int descriptor) {
  if (name_of(descriptor) != NULL) names[descriptor][0] = '\0';
  return (int)syscall(SYS_close, descriptor);
}

static int write_fails(const char *name) {
  if (name == NULL || !happens(control->write_fails_percent)) return 0;
  errno = (int)control->write_error;
  return 1;
}

ssize_t pwrite(int descriptor, const void *data, size_t bytes, off_t offset) {
  const char *name = name_of(descriptor);
  size_t taken = bytes;
  if (write_fails(name)) return -1;
  if (name != NULL && bytes > 1 && happens(control->write_shortened_percent))
    taken = 1 + (size_t)rand() % (bytes - 1);
  if (name == NULL || !is_kept(name)) return syscall(SYS_pwrite64, descriptor, data, taken, offset);
  pthread_mutex_lock(&lock);
  ssize_t written = syscall(SYS_pwrite64, descriptor, data, taken, offset);
  int error = errno;
  if (written > 0) note(WRITTEN, name, (uint64_t)offset, data, (size_t)written);
  pthread_mutex_unlock(&lock);
  errno = error;
  return written;
}
ssize_t pwrite64(int, const void *, size_t, off64_t) __attribute__((alias("pwrite")));

static void hang_read(void) {
  if (control == NULL || control->reads_hang == 0) return;
  happens(100);
  while (control->reads_hang != 0) usleep(1000);
}

/* The runtime has no other way to look at a file. */
long syscall(long number, ...) {
  static long (*real)(long, ...);
  if (real == NULL) real = find_real("syscall");
  va_list rest;
  va_start(rest, number);
  long given[6];
  for (int index = 0; index < 6; index++) given[index] = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_statx && find_name((const char *)given[1]) != NULL) hang_read();
  return real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

int statfs(const char *path, struct statfs *found) {
  if (find_name(path) != NULL) hang_read();
  return REAL(statfs)(path, found);
}
int statfs64(const char *, struct statfs64 *) __attribute__((alias("statfs")));

ssize_t pread(int descriptor, void *data, size_t bytes, off_t offset) {
  if (name_of(descriptor) != NULL && gettid() != getpid()) hang_read();
  if (name_of(descriptor) != NULL && happens(control->read_fails_percent)) {
    errno = EIO;
    return -1;
  }
  return syscall(SYS_pread64, descriptor, data, bytes, offset);
}
ssize_t pread64(int, void *, size_t, off64_t) __attribute__((alias("pread")));

int ftruncate(int descriptor, off_t length) {
  const char *name = name_of(descriptor);
  if (write_fails(name)) return -1;
  if (name == NULL || !is_kept(name)) return (int)syscall(SYS_ftruncate, descriptor, length);
  pthread_mutex_lock(&lock);
  int result = (int)syscall(SYS_ftruncate, descriptor, length);
  if (result == 0) note(TRUNCATED, name, (uint64_t)length, NULL, 0);
  pthread_mutex_unlock(&lock);
  return result;
}
int ftruncate64(int, off64_t) __attribute__((alias("ftruncate")));

/* To the end, whatever signals arrive: a disk that hangs does not notice them either. */
static void delay_sync(void) {
  uint32_t ms = control->sync_ms;
  struct timespec left = {ms / 1000, (long)(ms % 1000) * 1000000};
  if (ms != 0) happens(100);
  while (nanosleep(&left, &left) == -1) continue;
  uint32_t told = 1;
  uint32_t *hangs = (uint32_t *)&control->hangs;
  if (!__atomic_compare_exchange_n(hangs, &told, 2, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
  happens(100);
  while (control->hangs != 0) usleep(1000);
}

/* Keeps what was written before it began, and nothing of what others write meanwhile. */
static int sync_in_log(const char *name) {
  int is_lie = control->syncs_are_lies == 1 || (control->syncs_are_lies == 2 && ends_with(name, "-wal"));
  if (is_lie) return 0;
  pthread_mutex_lock(&lock);
  uint64_t begun = note(SYNC_BEGUN, name, 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  delay_sync();
  int fails = happens(control->sync_fails_percent);
  pthread_mutex_lock(&lock);
  note(fails ? SYNC_FAILED : SYNCED, name, begun, NULL, 0);
  pthread_mutex_unlock(&lock);
  if (fails) errno = EIO;
  return fails ? -1 : 0;
}

#define SYNC(function)                                                                        \
  int function(int descriptor) {                                                              \
    const char *name = name_of(descriptor);                                                   \
    if (name != NULL && log_descriptor >= 0) return sync_in_log(name);                        \
    if (name != NULL) delay_sync();                                                           \
    return REAL(function)(descriptor);                                                        \
  }
SYNC(fsync)
SYNC(fdatasync)

int unlink(const char *path) {
  const char *name = find_name(path);
  if (name == NULL || !is_kept(name)) return REAL(unlink)(path);
  pthread_mutex_lock(&lock);
  int result = REAL(unlink)(path);
  if (result == 0) note(UNLINKED, name, 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  return result;
}
