/* Rare uses: signal masks, calls by number, descriptors that are sent to or inherited by other
 * programs, calls that only the kernel serves. */
#include <linux/io_uring.h>
#include <spawn.h>

extern char **environ;

static void waits_with_masks(void) {
    int fd = begin(), set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.u64 = 1}};
    struct sigaction act = {.sa_handler = on_alarm};
    sigset_t alarm, none;
    sigemptyset(&none), sigemptyset(&alarm), sigaddset(&alarm, SIGALRM);
    sigaction(SIGALRM, &act, NULL);
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    /* The signal is blocked, and is delivered by the first wait whose mask allows it. */
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    struct pollfd p = {fd, POLLIN, 0};
    struct timespec long_time = {3, 0}, short_time = {0, 1000000};
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    unsigned long bits = 0;
    struct { unsigned long *at, size; } masked = {&bits, 8};
    alarms = 0;
    raise(SIGALRM);
    SAY("ppoll, blocked", ppoll(&p, 1, &short_time, &alarm));
    say("alarms %d", alarms);
    SAY("ppoll", ppoll(&p, 1, &long_time, &none));
    say("alarms %d", alarms);
    raise(SIGALRM);
    SAY("pselect", pselect(fd + 1, &in, NULL, NULL, &long_time, &none));
    say("alarms %d", alarms);
    raise(SIGALRM);
    SAY("epoll_pwait", epoll_pwait(set, &event, 1, 3000, &none));
    raise(SIGALRM);
    SAY("epoll_pwait2", epoll_pwait2(set, &event, 1, &long_time, &none));
    say("alarms %d", alarms);
    raise(SIGALRM);
    SAY("ppoll by number", syscall(SYS_ppoll, &p, 1L, &long_time, &bits, 8L));
    raise(SIGALRM);
    SAY("pselect by number", syscall(SYS_pselect6, fd + 1L, &in, NULL, NULL, &long_time, &masked));
    raise(SIGALRM);
    SAY("epoll_pwait by number", syscall(SYS_epoll_pwait, set, &event, 1L, 3000L, &bits, 8L));
    say("alarms %d", alarms);
    pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
    SAY("negative time", ppoll(&p, 1, &(struct timespec){-1, 0}, NULL));
    SAY("closed", close(set));
    SAY("not a set", epoll_wait(set, &event, 1, 0));
    end(fd);
}

/* Calls by number. */
static void numbers(void) {
    char out[40], in[60];
    for (int i = 0; i < 40; i++) out[i] = byte_at(i);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(DATA)};
    inet_pton(AF_INET, peer_host, &to.sin_addr);
    long fd = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    SAY("connect", syscall(SYS_connect, fd, &to, (long)sizeof to));
    order("accept", 0);
    struct iovec iov[2] = {{out, 10}, {out + 10, 10}}, into[2] = {{in, 10}, {in + 10, 10}};
    struct msghdr head = {.msg_iov = iov, .msg_iovlen = 1}, got = {.msg_iov = into, .msg_iovlen = 1};
    struct mmsghdr heads = {.msg_hdr = head}, gots = {.msg_hdr = got};
    SAY("write", syscall(SYS_write, fd, out, 10L));
    SAY("writev", syscall(SYS_writev, fd, iov, 2L));
    SAY("pwritev2", syscall(SYS_pwritev2, fd, iov, 1L, -1L, -1L, 0L));
    SAY("sendto", syscall(SYS_sendto, fd, out, 10L, 0L, NULL, 0L));
    SAY("sendmsg", syscall(SYS_sendmsg, fd, &head, 0L));
    SAY("sendmmsg", syscall(SYS_sendmmsg, fd, &heads, 1L, 0L));
    say("peer got %ld", order("echo", 70));
    arrived(fd, 70);
    SAY("read", syscall(SYS_read, fd, in, 10L));
    SAY("readv", syscall(SYS_readv, fd, into, 1L));
    SAY("preadv2", syscall(SYS_preadv2, fd, into, 1L, -1L, -1L, 0L));
    SAY("recvfrom", syscall(SYS_recvfrom, fd, in, 10L, 0L, NULL, NULL));
    SAY("recvmsg", syscall(SYS_recvmsg, fd, &got, 0L));
    struct timespec time = {3, 0};
    SAY("recvmmsg", syscall(SYS_recvmmsg, fd, &gots, 1L, 0L, &time));
    say("some time is left %d", time.tv_sec < 3 || time.tv_nsec == 0);
    int have = 0;
    SAY("ioctl", syscall(SYS_ioctl, fd, (long)FIONREAD, &have));
    say("available %d", have);
    long set = syscall(SYS_epoll_create1, 0L);
    struct epoll_event event = {EPOLLIN, {.u64 = 4}};
    SAY("epoll_ctl", syscall(SYS_epoll_ctl, set, (long)EPOLL_CTL_ADD, fd, &event));
    SAY("epoll_wait", syscall(SYS_epoll_wait, set, &event, 1L, 1000L));
    struct pollfd p = {fd, POLLIN | POLLOUT, 0};
    SAY("poll", syscall(SYS_poll, &p, 1L, 1000L));
    fd_set wait;
    FD_ZERO(&wait);
    FD_SET(fd, &wait);
    struct timeval limit = {3, 0};
    SAY("select", syscall(SYS_select, fd + 1, &wait, NULL, NULL, &limit));
    unsigned size = 4, error = 7;
    SAY("getsockopt", syscall(SYS_getsockopt, fd, (long)SOL_SOCKET, (long)SO_ERROR, &error, &size));
    say("error %d", error);
    struct sockaddr_in name;
    size = sizeof name;
    SAY("getpeername", syscall(SYS_getpeername, fd, &name, &size));
    say("port %d", ntohs(name.sin_port));
    SAY("fcntl", syscall(SYS_fcntl, fd, (long)F_SETFL, (long)O_NONBLOCK));
    SAY("read", syscall(SYS_read, fd, in, 60L));
    SAY("read", syscall(SYS_read, fd, in, 60L));
    SAY("dup3", syscall(SYS_dup3, fd, 90L, 0L));
    SAY("close", syscall(SYS_close, fd));
    int file = memfd_create("calls", 0);
    write(file, out, 40);
    off_t at = 5;
    SAY("sendfile", syscall(SYS_sendfile, 90L, (long)file, &at, 20L));
    say("peer got %ld", order("recv", 20));
    SAY("shutdown", syscall(SYS_shutdown, 90L, (long)SHUT_WR));
    say("peer got %ld", order("recv", -1));
    SAY("close_range", syscall(SYS_close_range, 90L, 90L, 0L));
    close(set), close(file);
    order("close", 0);
}

/* A program that runs without the library and receives a descriptor in a message. */
static int stranger(int way) {
    char byte, buf[10], space[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    SAY("receive a descriptor", recvmsg(way, &msg, 0));
    int fd = *(int *)CMSG_DATA(CMSG_FIRSTHDR(&msg));
    SAY("stranger reads", read(fd, buf, 4));
    SAY("stranger writes", write(fd, "from afar", 9));
    return 7;
}

static void strangers(void) {
    int fd = begin(), ends[2];
    char buf[10], number[10], space[CMSG_SPACE(sizeof(int))];
    order("send", 8);
    arrived(fd, 8);
    SAY("read", read(fd, buf, 2));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) die("socketpair");
    fflush(stdout);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 50);
    snprintf(number, sizeof number, "%d", 50);
    char *words[] = {(char *)self, "stranger", number, "-", NULL}, *empty[] = {NULL};
    pid_t child;
    int spawned = posix_spawn(&child, self, &actions, NULL, words, empty);
    struct iovec iov = {"x", 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    long sent = sendmsg(ends[0], &msg, 0);
    /* The child's output must come first. */
    int ended = child_of(child);
    say("spawn: %d, sent away: %ld, ended %d", spawned, sent, ended);
    say("peer got %ld", order("recv", 9));
    SAY("read", read(fd, buf, 2));
    end(fd);
    /* The spawned program gets the close-on-exec descriptor under another number. */
    fd = begin();
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    order("send", 5);
    arrived(fd, 5);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 51);
    char *again[] = {(char *)self, "resumed", "51", "-", NULL};
    spawned = posix_spawn(&child, self, &actions, NULL, again, environ);
    ended = child_of(child);
    say("spawn: %d, ended %d", spawned, ended);
    say("peer got %ld", order("recv", 4));
    end(fd);
    close(ends[0]), close(ends[1]);
}

/* Children that are made without libc. */
static void clones(void) {
    int fd = begin();
    char buf[10];
    order("send", 6);
    arrived(fd, 6);
    fflush(stdout);
    pid_t child = syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
    if (!child) {
        SAY("clone", read(fd, buf, 2));
        _exit(3);
    }
    say("ended %d", child_of(child));
    child = syscall(SYS_fork);
    if (!child) {
        SAY("fork", read(fd, buf, 2));
        _exit(4);
    }
    say("ended %d", child_of(child));
    SAY("parent", read(fd, buf, 4));
    SAY("parent", write(fd, "x", 1));
    say("peer got %ld", order("recv", 1));
    end(fd);
}

/* One receive with io_uring, which the library cannot see. */
static void rings(void) {
    int fd = begin();
    char buf[10];
    order("send", 6);
    arrived(fd, 6);
    SAY("read", read(fd, buf, 2));
    struct io_uring_params with = {0};
    int ring = syscall(SYS_io_uring_setup, 4L, &with);
    if (ring < 0) die("io_uring");
    size_t len = with.sq_off.array + 4 * sizeof(unsigned);
    size_t other = with.cq_off.cqes + 8 * sizeof(struct io_uring_cqe);
    char *at = mmap(NULL, len > other ? len : other, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(NULL, 4 * sizeof *entry, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    if (at == MAP_FAILED || entry == MAP_FAILED) die("mmap");
    *entry = (struct io_uring_sqe){.opcode = IORING_OP_RECV, .fd = fd, .addr = (uintptr_t)buf, .len = 10};
    *(unsigned *)(at + with.sq_off.array) = 0;
    __atomic_store_n((unsigned *)(at + with.sq_off.tail), 1, __ATOMIC_RELEASE);
    SAY("enter", syscall(SYS_io_uring_enter, ring, 1L, 1L, (long)IORING_ENTER_GETEVENTS, NULL, 0L));
    say("received %d", ((struct io_uring_cqe *)(at + with.cq_off.cqes))->res);
    SAY("write", write(fd, "x", 1));
    say("peer got %ld", order("recv", 1));
    end(fd);
    close(ring);
}

/* Calls that only the kernel serves, each on its own connection. */
static void homes(void) {
    char out[20] = "some bytes to send.";
    char buf[40];
    int ends[2], fd = begin();
    volatile double half = 1234.5;
    dprintf(fd, "%s %d %.1f", "line", 5, half);
    say("peer got %ld", order("recv", 13));
    end(fd);
    fd = begin();
    if (pipe(ends)) die("pipe");
    order("send", 9);
    arrived(fd, 9);
    SAY("splice out", splice(fd, NULL, ends[1], NULL, 5, 0));
    SAY("piped", read(ends[0], buf, 10));
    SAY("the rest", read(fd, buf, 10));
    end(fd);
    fd = begin();
    SAY("write", write(ends[1], out, 10));
    SAY("sendfile of a pipe", sendfile(fd, ends[0], NULL, 10) < 0);
    SAY("write", write(fd, out, 3));
    say("peer got %ld", order("recv", 3));
    end(fd);
    fd = begin();
    SAY("urgent", send(fd, out, 5, MSG_OOB));
    say("peer got %ld", order("recv", 4));
    end(fd);
    fd = begin();
    SAY("O_ASYNC", fcntl(fd, F_SETFL, O_ASYNC));
    end(fd);
    fd = begin();
    int mark = 7;
    SAY("mark", setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof mark));
    end(fd);
    /* Disconnect, and connect to the same peer again. */
    fd = begin();
    struct sockaddr_in to = {.sin_family = AF_UNSPEC};
    SAY("disconnect", connect(fd, (void *)&to, sizeof to));
    order("close", 0);
    to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(DATA)};
    inet_pton(AF_INET, peer_host, &to.sin_addr);
    SAY("connect", connect(fd, (void *)&to, sizeof to));
    order("accept", 0);
    SAY("write", write(fd, out, 4));
    say("peer got %ld", order("recv", 4));
    end(fd);
    close(ends[0]), close(ends[1]);
}

/* An epoll set with all kinds of descriptors, and a write with a time limit. */
static void mixtures(void) {
    int fd = begin(), set = epoll_create1(0), file = memfd_create("calls", 0);
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    char buf[10], *block = calloc(1, 1 << 16);
    uint64_t times;
    struct epoll_event got[3], ours = {EPOLLIN, {.u64 = 1}}, clock = {EPOLLIN, {.u64 = 2}};
    SAY("connection", epoll_ctl(set, EPOLL_CTL_ADD, fd, &ours));
    SAY("timer", epoll_ctl(set, EPOLL_CTL_ADD, timer, &clock));
    SAY("file", epoll_ctl(set, EPOLL_CTL_ADD, file, &clock));
    SAY("itself", epoll_ctl(set, EPOLL_CTL_ADD, set, &clock));
    struct itimerspec soon = {{0, 0}, {0, 20000000}};
    timerfd_settime(timer, 0, &soon, NULL);
    SAY("timer event", epoll_wait(set, got, 3, 3000));
    say("%d", (int)got[0].data.u64);
    SAY("read", read(timer, &times, 8));
    order("send", 3);
    arrived(fd, 3);
    SAY("connection event", epoll_wait(set, got, 3, 3000));
    say("%d", (int)got[0].data.u64);
    SAY("read", read(fd, buf, 10));
    SAY("no event", epoll_wait(set, got, 3, 20));
    struct pollfd p[2] = {{fd, POLLIN, 0}, {500, POLLIN, 0}};
    SAY("invalid descriptor", poll(p, 2, 1000));
    say("%x %x", p[0].revents, p[1].revents);
    SAY("close on exec", close_range(fd, fd, CLOSE_RANGE_CLOEXEC));
    say("flags %d", fcntl(fd, F_GETFD));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    do
        while (write(fd, block, 1 << 16) > 0);
    while (revents(fd, POLLOUT, 200) & POLLOUT);
    while (write(fd, block, 1 << 16) > 0);
    fcntl(fd, F_SETFL, 0);
    struct timeval limit = {0, 50000};
    SAY("limit", setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    SAY("time limit while full", write(fd, block, 1));
    close(fd);
    order("close", 0);
    close(set), close(timer), close(file);
    free(block);
}

/* A one-shot entry from before the connect: nothing tells whether the kernel has reported it. */
static void early(void) {
    char buf[10];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(DATA)};
    inet_pton(AF_INET, peer_host, &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), set = epoll_create1(0);
    struct epoll_event event = {EPOLLOUT | EPOLLONESHOT, {.u64 = 1}};
    SAY("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    SAY("unconnected", epoll_wait(set, &event, 1, 0));
    SAY("connect", connect(fd, (void *)&to, sizeof to));
    SAY("once", epoll_wait(set, &event, 1, 20));
    event.events = EPOLLOUT | EPOLLONESHOT;
    SAY("again", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    SAY("connected", epoll_wait(set, &event, 1, 3000));
    order("accept", 0);
    SAY("write", write(fd, "hello", 5));
    say("peer got %ld", order("echo", 5));
    arrived(fd, 5);
    SAY("read", read(fd, buf, 10));
    close(set);
    end(fd);
}

static const struct test rest[] = {{"masks", waits_with_masks}, {"numbers", numbers}, {"strangers", strangers},
                                   {"clones", clones}, {"rings", rings}, {"homes", homes}, {"mixtures", mixtures},
                                   {"early", early}, {NULL, NULL}};
