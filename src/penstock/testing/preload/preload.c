/* Simulates faults for a process (LD_PRELOAD): a clock that jumps, writes that fail, and copies of what fsync
 * made durable. Each part is inactive unless its variable is set:
 *
 *   PENSTOCK_CLOCK=FILE        8 bytes: nanoseconds to add to the wall clock.
 *   PENSTOCK_REFUSE=FILE       8 bytes: the errno with which writes fail below the folder PENSTOCK_REFUSED;
 *                              0: they succeed. Opening a file for writing counts as a write.
 *   PENSTOCK_STORED=FOLDER     copies what fsync makes durable below the folders of PENSTOCK_ROOTS (separated
 *                              by colons) to FOLDER; penstock.testing.preload reads it.
 *
 * In FOLDER, a file is `f-KEY` (its bytes at the last fsync) and a directory `d-KEY` (a line `TYPE KEY NAME`
 * for each entry at the last fsync). KEY is the inode and its creation time, so that an inode number that is
 * reused gets another key.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))real_of(#name))

static void *real_of(const char *name) { return dlsym(RTLD_NEXT, name); }

static volatile int64_t *word_of(const char *variable) {
    const char *path = getenv(variable);
    if (path == NULL) return NULL;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return NULL;
    void *at = mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

static volatile int64_t *clock_word, *refuse_word;
static const char *refused_folder, *stored_folder, *stored_roots;

__attribute__((constructor)) static void begin(void) {
    clock_word = word_of("PENSTOCK_CLOCK");
    refuse_word = word_of("PENSTOCK_REFUSE");
    refused_folder = getenv("PENSTOCK_REFUSED");
    stored_folder = getenv("PENSTOCK_STORED");
    stored_roots = getenv("PENSTOCK_ROOTS");
    if (refused_folder != NULL) refused_folder = strdup(refused_folder);
    if (stored_folder != NULL) stored_folder = strdup(stored_folder);
    if (stored_roots != NULL) stored_roots = strdup(stored_roots);
}

/* The clock ------------------------------------------------------------------------------------------------ */

static void shift(struct timespec *at) {
    int64_t ns = at->tv_nsec + (clock_word == NULL ? 0 : *clock_word % 1000000000);
    at->tv_sec += clock_word == NULL ? 0 : *clock_word / 1000000000;
    if (ns < 0) { ns += 1000000000; at->tv_sec--; }
    if (ns >= 1000000000) { ns -= 1000000000; at->tv_sec++; }
    at->tv_nsec = ns;
}

int clock_gettime(clockid_t which, struct timespec *at) {
    static __typeof__(&clock_gettime) real;
    if (real == NULL) real = REAL(clock_gettime);
    int done = real(which, at);
    if (done == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) shift(at);
    return done;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at != NULL) *at = now.tv_sec;
    return now.tv_sec;
}

/* Writes that fail ----------------------------------------------------------------------------------------- */

static int is_below(const char *path, const char *folder) {
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int path_of_handle(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return 1;
}

static int refuses(void) { return refuse_word != NULL && refused_folder != NULL && *refuse_word != 0; }

static int refuse_handle(int fd) {
    char path[PATH_MAX];
    if (!refuses() || !path_of_handle(fd, path) || !is_below(path, refused_folder)) return 0;
    errno = (int)*refuse_word;
    return 1;
}

static int refuse_path(int folder, const char *path) {
    char base[PATH_MAX], whole[2 * PATH_MAX];
    if (!refuses() || path == NULL) return 0;
    if (path[0] == '/') snprintf(whole, sizeof whole, "%s", path);
    else {
        if (folder == AT_FDCWD ? getcwd(base, sizeof base) == NULL : !path_of_handle(folder, base)) return 0;
        snprintf(whole, sizeof whole, "%s/%s", base, path);
    }
    if (!is_below(whole, refused_folder)) return 0;
    errno = (int)*refuse_word;
    return 1;
}

#define WRITES(flags) (((flags) & O_ACCMODE) != O_RDONLY || ((flags) & (O_CREAT | O_TRUNC)))
#define MODE(flags, mode)                                          \
    mode_t mode = 0;                                               \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                         \
        va_list rest;                                              \
        va_start(rest, flags);                                     \
        mode = va_arg(rest, mode_t);                               \
        va_end(rest);                                              \
    }

int open(const char *path, int flags, ...) {
    MODE(flags, mode)
    if (WRITES(flags) && refuse_path(AT_FDCWD, path)) return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags, mode)
    if (WRITES(flags) && refuse_path(AT_FDCWD, path)) return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode);
}
int openat(int folder, const char *path, int flags, ...) {
    MODE(flags, mode)
    if (WRITES(flags) && refuse_path(folder, path)) return -1;
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...) {
    MODE(flags, mode)
    if (WRITES(flags) && refuse_path(folder, path)) return -1;
    return (int)syscall(SYS_openat, folder, path, flags | O_LARGEFILE, mode);
}

#define HANDLED(type, name, declared, given)                       \
    type name declared {                                           \
        static __typeof__(&name) real;                             \
        if (real == NULL) real = REAL(name);                       \
        return refuse_handle(fd) ? -1 : real given;                \
    }
HANDLED(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
HANDLED(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
HANDLED(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
HANDLED(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
HANDLED(int, ftruncate, (int fd, off_t size), (fd, size))
HANDLED(int, ftruncate64, (int fd, off64_t size), (fd, size))

#define PATHED(name, folder, path, declared, given)                \
    int name declared {                                            \
        static __typeof__(&name) real;                             \
        if (real == NULL) real = REAL(name);                       \
        return refuse_path(folder, path) ? -1 : real given;        \
    }
PATHED(mkdir, AT_FDCWD, path, (const char *path, mode_t mode), (path, mode))
PATHED(mkdirat, at, path, (int at, const char *path, mode_t mode), (at, path, mode))
PATHED(unlink, AT_FDCWD, path, (const char *path), (path))
PATHED(unlinkat, at, path, (int at, const char *path, int flags), (at, path, flags))
PATHED(rmdir, AT_FDCWD, path, (const char *path), (path))
PATHED(rename, AT_FDCWD, to, (const char *from, const char *to), (from, to))
PATHED(renameat, there, to, (int at, const char *from, int there, const char *to), (at, from, there, to))
PATHED(link, AT_FDCWD, to, (const char *from, const char *to), (from, to))
PATHED(linkat, there, to, (int at, const char *from, int there, const char *to, int flags),
       (at, from, there, to, flags))

/* Copies of durable content -------------------------------------------------------------------------------- */

static int is_kept(const char *path) {
    const char *root = stored_roots;
    if (stored_folder == NULL) return 0;
    while (root != NULL && *root) {
        const char *end = strchr(root, ':');
        size_t length = end == NULL ? strlen(root) : (size_t)(end - root);
        if (strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == 0)) return 1;
        root = end == NULL ? NULL : end + 1;
    }
    return 0;
}

static int key_of(int folder, const char *name, int flags, char *key, size_t size, mode_t *mode) {
    struct statx found;
    if (syscall(SYS_statx, folder, name, flags | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &found))
        return 0;
    snprintf(key, size, "%llu-%lld-%u", (unsigned long long)found.stx_ino, (long long)found.stx_btime.tv_sec,
             found.stx_btime.tv_nsec);
    *mode = found.stx_mode;
    return 1;
}

static void whole_write(int fd, const char *data, size_t size, off_t at) {
    while (size > 0) {
        ssize_t done = (ssize_t)syscall(SYS_pwrite64, fd, data, size, at);
        if (done <= 0) return;
        data += done; size -= (size_t)done; at += done;
    }
}

static void keep_file(int fd, const char *copy) {
    enum { BLOCK = 65536 };
    char now[BLOCK], before[BLOCK], own[64];
    int kept = (int)syscall(SYS_openat, AT_FDCWD, copy, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    snprintf(own, sizeof own, "/proc/self/fd/%d", fd);  /* fd may be open for writing only */
    int source = (int)syscall(SYS_openat, AT_FDCWD, own, O_RDONLY | O_CLOEXEC, 0);
    if (kept >= 0 && source >= 0) {
        flock(kept, LOCK_EX);
        off_t at = 0;
        for (;;) {
            ssize_t size = pread(source, now, BLOCK, at);
            if (size <= 0) break;
            if (pread(kept, before, (size_t)size, at) != size || memcmp(now, before, (size_t)size) != 0)
                whole_write(kept, now, (size_t)size, at);
            at += size;
        }
        syscall(SYS_ftruncate, kept, at);
    }
    if (kept >= 0) close(kept);
    if (source >= 0) close(source);
}

static void keep_folder(int fd, const char *copy) {
    char draft[PATH_MAX + 256], key[96], own[64];
    snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
    snprintf(draft, sizeof draft, "%s.%ld", copy, (long)syscall(SYS_gettid));
    DIR *folder = opendir(own);
    int fresh = (int)syscall(SYS_openat, AT_FDCWD, draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FILE *out = fresh < 0 ? NULL : fdopen(fresh, "w");
    struct dirent *entry;
    mode_t mode;
    while (folder != NULL && out != NULL && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (key_of(dirfd(folder), entry->d_name, 0, key, sizeof key, &mode))
            fprintf(out, "%c %s %s\n", S_ISDIR(mode) ? 'd' : 'f', key, entry->d_name);
    }
    if (folder != NULL) closedir(folder);
    if (out != NULL) fclose(out);
    syscall(SYS_renameat, AT_FDCWD, draft, AT_FDCWD, copy);
}

static int keep(int fd) {
    char path[PATH_MAX], key[96], copy[PATH_MAX + 128];
    mode_t mode;
    int before = errno;
    if (stored_folder == NULL || !path_of_handle(fd, path) || !is_kept(path)) return 0;
    if (key_of(fd, "", AT_EMPTY_PATH, key, sizeof key, &mode)) {
        snprintf(copy, sizeof copy, "%s/%c-%s", stored_folder, S_ISDIR(mode) ? 'd' : 'f', key);
        if (S_ISDIR(mode)) keep_folder(fd, copy);
        else if (S_ISREG(mode)) keep_file(fd, copy);
    }
    errno = before;
    return 1;
}

int fsync(int fd) {
    static __typeof__(&fsync) real;
    if (real == NULL) real = REAL(fsync);
    if (refuse_handle(fd)) return -1;
    return keep(fd) ? 0 : real(fd);
}

int fdatasync(int fd) {
    static __typeof__(&fdatasync) real;
    if (real == NULL) real = REAL(fdatasync);
    if (refuse_handle(fd)) return -1;
    return keep(fd) ? 0 : real(fd);
}
