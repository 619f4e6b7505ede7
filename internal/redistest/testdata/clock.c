/* Moves the clock of the process it is preloaded into by the number of microseconds
 * in the file named by REDISTEST_CLOCK, which may change at any time. Redis reads its
 * clock with gettimeofday; what it waits by is monotonic and stays as it is.
 * (libfaketime can do this too, but not in a program with jemalloc.) */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void start(void) {
    const char *name = getenv("REDISTEST_CLOCK");
    int fd = name ? open(name, O_RDONLY) : -1;
    if (fd < 0) abort();
    void *p = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) abort();
    offset = p;
    close(fd);
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
    struct timespec now;
    (void)tz;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    int64_t us = now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000 + (offset ? *offset : 0);
    tv->tv_sec = us / 1000000;
    tv->tv_usec = us % 1000000;
    return 0;
}
