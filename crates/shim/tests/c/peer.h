/* The peer of the tests' connections: a process that executes orders.
 *
 * The orders come over a separate connection, one on a line. The peer answers "ok" and a result when
 * it has executed an order, so that the tests do not depend on timing. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ORDERS = 9001, DATA = 9000, BACK = 9002 };

static void die(const char *what) {
    perror(what);
    exit(9);
}

static int connected(const char *host, int port, int flags) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
    if (connect(fd, (void *)&to, sizeof to) && errno != EINPROGRESS) die("connect");
    return fd;
}

static int connected6(const char *host, int port) {
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    inet_pton(AF_INET6, host, &to.sin6_addr);
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    if (connect(fd, (void *)&to, sizeof to)) die("connect, IPv6");
    return fd;
}

static int listening(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (void *)&at, sizeof at) || listen(fd, 16)) die("listen");
    return fd;
}

/* Accepts connections of both address families. */
static int listening6(int port) {
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int fd = socket(AF_INET6, SOCK_STREAM, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (void *)&at, sizeof at) || listen(fd, 16)) die("listen, IPv6");
    return fd;
}

/* The byte at a position of the data that is sent. */
static char byte_at(long at) { return 'a' + at % 23; }

/* Sends `count` bytes. */
static void push(int fd, long count) {
    char some[4096];
    for (long at = 0; at < count;) {
        long len = count - at < 4096 ? count - at : 4096;
        for (long i = 0; i < len; i++) some[i] = byte_at(at + i);
        ssize_t put = send(fd, some, len, MSG_NOSIGNAL);
        if (put <= 0) die("peer's send");
        at += put;
    }
}

/* Receives `count` bytes, or up to the end of the stream if `count` is -1. Returns how many. */
static long pull(int fd, long count) {
    char some[65536];
    long got = 0;
    while (count < 0 || got < count) {
        long room = count < 0 || count - got > 65536 ? 65536 : count - got;
        ssize_t len = recv(fd, some, room, 0);
        if (len == 0) break;
        if (len < 0) return -errno;
        got += len;
    }
    return got;
}

/* The peer's process: executes orders until their connection ends. */
static int be_the_peer(const char *host) {
    int orders = listening(ORDERS), data = listening6(DATA), fd = -1, waiting = 5;
    /* Allow data in a SYN. */
    int system = open("/proc/sys/net/ipv4/tcp_fastopen", O_WRONLY);
    if (write(system, "3", 1) != 1 || setsockopt(data, IPPROTO_TCP, TCP_FASTOPEN, &waiting, sizeof waiting)) die("fast open");
    close(system);
    puts("ready");
    fflush(stdout);
    int both = accept(orders, NULL, NULL);
    FILE *lines = fdopen(both, "r"), *answers = fdopen(dup(both), "w");
    char what[32];
    long count;
    while (fscanf(lines, "%31s %ld", what, &count) == 2) {
        long done = 0;
        if (!strcmp(what, "accept")) fd = accept(data, NULL, NULL);
        else if (!strcmp(what, "connect")) fd = connected(host, BACK, 0);
        else if (!strcmp(what, "connect6")) fd = connected6("fd66::1", BACK);
        else if (!strcmp(what, "send")) push(fd, count);
        else if (!strcmp(what, "urgent")) {
            /* Sends `count` bytes, of which the last is urgent. */
            char some[4096];
            for (long i = 0; i < count; i++) some[i] = byte_at(i);
            done = send(fd, some, count, MSG_OOB);
        }
        else if (!strcmp(what, "within")) {
            /* Waits up to `count` milliseconds for readable bytes, and tells their number. */
            struct pollfd some = {fd, POLLIN, 0};
            int have = 0;
            poll(&some, 1, count);
            ioctl(fd, FIONREAD, &have);
            done = have;
        }
        else if (!strcmp(what, "room")) {
            int room = count;
            done = setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
        }
        else if (!strcmp(what, "recv")) done = pull(fd, count);
        else if (!strcmp(what, "echo")) { done = pull(fd, count); push(fd, done); }
        else if (!strcmp(what, "shut")) done = shutdown(fd, SHUT_WR);
        else if (!strcmp(what, "close")) done = close(fd);
        else if (!strcmp(what, "reset")) {
            struct linger now = {1, 0};
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
            done = close(fd);
        }
        fprintf(answers, "ok %ld\n", done);
        fflush(answers);
    }
    return 0;
}

static int orders_fd;

/* Gives an order and does not wait for the answer. */
static void tell(const char *what, long count) {
    char line[64];
    int len = snprintf(line, sizeof line, "%s %ld\n", what, count);
    if (write(orders_fd, line, len) != len) die("order");
}

/* Waits for the answer to an order. Returns its result. */
static long answer(void) {
    char line[64];
    int at = 0;
    while (at == 0 || line[at - 1] != '\n')
        if (read(orders_fd, line + at++, 1) != 1) die("answer");
    return atol(line + 3);
}

/* Gives an order and waits for the answer. */
static long order(const char *what, long count) {
    tell(what, count);
    return answer();
}
