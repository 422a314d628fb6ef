/* Mistakes that programs make: invalid numbers, truncated structures, descriptors of the wrong kind.
 * And calls that are valid but rare. */

/* Volatile, so that the compiler does not warn of the values. */
static void *volatile null;
static volatile int minus_one = -1, too_many = 1025;

static void mistaken_transfers(int fd) {
    char buf[100] = "";
    SAY("nothing", send(fd, buf, 0, 0));
    SAY("null, nothing", send(fd, NULL, 0, 0));
    SAY("null", send(fd, null, 1, 0));
    SAY("null", write(fd, null, 1));
    SAY("no buffers", writev(fd, NULL, 0));
    SAY("no buffers", readv(fd, NULL, 0));
    SAY("null buffers", writev(fd, null, 1));
    struct iovec piece = {buf, 1};
    SAY("negative length", writev(fd, &piece, minus_one));
    SAY("too many", readv(fd, &piece, too_many));
    struct msghdr none = {0};
    SAY("no message", sendmsg(fd, &none, 0));
    SAY("no room", recvmsg(fd, &none, MSG_DONTWAIT));
    SAY("no room", recv(fd, buf, 0, MSG_DONTWAIT));
    SAY("no room", recv(fd, buf, 0, MSG_DONTWAIT | MSG_PEEK));
    SAY("no room, read", read(fd, buf, 0));
    tell("send", 1);
    SAY("no room", recv(fd, buf, 0, 0));
    answer();
    SAY("room", recv(fd, buf, 1, 0));
    SAY("null", sendmsg(fd, NULL, 0));
    SAY("null", recvmsg(fd, NULL, 0));
    SAY("none", sendmmsg(fd, NULL, 0, 0));
    SAY("none", recvmmsg(fd, NULL, 0, 0, NULL));
    struct mmsghdr some = {.msg_hdr = {.msg_iov = &piece, .msg_iovlen = 1}};
    struct timespec no_time = {0, 1000000000}, past = {-1, 0};
    SAY("invalid time", recvmmsg(fd, &some, 1, MSG_DONTWAIT, &no_time));
    SAY("negative time", recvmmsg(fd, &some, 1, MSG_DONTWAIT, &past));
    SAY("unknown flag", recv(fd, buf, 1, MSG_DONTWAIT | 0x400000));
    SAY("fast open", send(fd, "x", 1, MSG_FASTOPEN));
    SAY("urgent", recv(fd, buf, 1, MSG_OOB | MSG_DONTWAIT));
    SAY("at an offset", pread(fd, buf, 1, 0));
    SAY("at an offset", preadv2(fd, &piece, 1, 0, 0));
    SAY("at an offset", pwritev2(fd, &piece, 1, 5, 0));
    SAY("unknown flag", preadv2(fd, &piece, 1, -1, 0x4000));
    SAY("unknown flag", pwritev2(fd, &piece, 1, -1, 0x4000));
    SAY("RWF_NOWAIT", preadv2(fd, &piece, 1, -1, RWF_NOWAIT));
    SAY("seek", lseek(fd, 0, SEEK_CUR));
    SAY("sync", fsync(fd));
    SAY("truncate", ftruncate(fd, 0));
    SAY("invalid descriptor", send(-1, "x", 1, 0));
    SAY("invalid descriptor", read(1 << 30, buf, 1));
    struct iovec ends[2] = {{"abc", 3}, {NULL, 0}};
    SAY("an empty buffer", writev(fd, ends, 2));
    say("peer got %ld", order("recv", 3));
}

/* Lengths that the kernel refuses before it looks at what is there. */
static void mistaken_lengths(int fd) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *end = (char *)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + page;
    int pair[2];
    if (munmap(end, page) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) die("lengths");
    SAY("no list", sendmmsg(fd, null, 1, 0));
    SAY("no list", recvmmsg(fd, null, 1, MSG_DONTWAIT, NULL));
    struct cmsghdr *head = (struct cmsghdr *)(end - CMSG_SPACE(sizeof fd));
    *head = (struct cmsghdr){.cmsg_len = 1 << 20, .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    struct iovec piece = {"x", 1};
    struct msghdr msg = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = head, .msg_controllen = CMSG_SPACE(sizeof fd)};
    SAY("a part that is longer than all", sendmsg(pair[0], &msg, 0));
    struct pollfd *last = (struct pollfd *)end - 1;
    *last = (struct pollfd){fd, POLLOUT, 0};
    SAY("more than may be open", poll(last, (nfds_t)minus_one, 0));
    fd_set *set = (fd_set *)end - 1;
    FD_ZERO(set);
    struct timeval now = {0, 0};
    FD_SET(fd, set);
    SAY("more than a set has", select(1000000, NULL, set, NULL, &now));
    say("ready %d", !!FD_ISSET(fd, set));
    close(pair[0]);
    close(pair[1]);
}

static void mistaken_files(int fd) {
    int ends[2], in_memory = memfd_create("mistaken", MFD_CLOEXEC), directory = open("/", O_RDONLY);
    int unread = open("/dev/null", O_WRONLY), socket_pair[2];
    if (pipe(ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, socket_pair) || ftruncate(in_memory, 10)) die("files");
    off_t before = -1, beyond = 20;
    SAY("nothing", sendfile(fd, in_memory, NULL, 0));
    SAY("before", sendfile(fd, in_memory, &before, 1));
    SAY("beyond the address space", sendfile(fd, in_memory, &beyond, 1));
    SAY("from itself", sendfile(in_memory, fd, NULL, 1));
    SAY("invalid descriptor", sendfile(fd, -1, NULL, 1));
    close(ends[0]), close(ends[1]), close(in_memory), close(directory), close(unread);
    close(socket_pair[0]), close(socket_pair[1]);
}

static void mistaken_descriptors(int fd) {
    SAY("onto itself", dup2(fd, fd) == fd ? 0 : -1);
    SAY("onto itself", dup3(fd, fd, 0));
    SAY("onto an invalid number", dup2(fd, minus_one));
    SAY("from an invalid number", dup2(-1, fd));
    SAY("unknown flag", dup3(fd, 100, 0x4000));
    SAY("unknown flag", dup3(0, fd, 0x4000));
    SAY("below", fcntl(fd, F_DUPFD, -1));
    SAY("above", fcntl(fd, F_DUPFD, 1 << 30));
    SAY("close, invalid number", close(-1));
    SAY("negative length", close_range(10, 9, 0));
    SAY("unknown flag", close_range(fd, fd, 0x4000));
    SAY("unknown", fcntl(fd, 0x7777, 0));
    SAY("a pipe's request", fcntl(fd, F_GETPIPE_SZ));
    SAY("owner", fcntl(fd, F_GETOWN));
    say("flags %x %x", fcntl(fd, F_GETFD), fcntl(fd, F_GETFL) & ~O_LARGEFILE);
    SAY("a terminal's request", ioctl(fd, TIOCGWINSZ, NULL));
    SAY("null", ioctl(fd, FIONREAD, NULL));
    SAY("null", ioctl(fd, FIONBIO, NULL));
    SAY("shutdown", shutdown(fd, 3));
    SAY("shutdown", shutdown(fd, -1));
    SAY("shutdown, invalid number", shutdown(-1, SHUT_RD));
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    socklen_t size = sizeof to, negative = -1;
    SAY("listen", listen(fd, 1));
    SAY("bind", bind(fd, (void *)&to, sizeof to));
    SAY("accept", accept(fd, NULL, NULL));
    SAY("connect", connect(fd, (void *)&to, sizeof to));
    SAY("connect, short", connect(fd, (void *)&to, 1));
    SAY("connect, null", connect(fd, null, sizeof to));
    SAY("connect, long", connect(fd, (void *)&to, 1000));
    SAY("name, null address", getsockname(fd, NULL, &size));
    SAY("name, no size", getsockname(fd, (void *)&to, NULL));
    SAY("name, negative size", getsockname(fd, (void *)&to, &negative));
    SAY("peer, negative size", getpeername(fd, (void *)&to, &negative));
    SAY("not a socket", getpeername(orders_fd + 500, (void *)&to, &size));
}

static void mistaken_waits(int fd) {
    int set = epoll_create1(0);
    struct epoll_event all = {EPOLLIN, {.u64 = 1}}, got[2];
    SAY("size", epoll_create(0));
    SAY("unknown flag", epoll_create1(0x4000));
    SAY("no such entry", epoll_ctl(set, EPOLL_CTL_MOD, fd, &all));
    SAY("no such entry", epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
    SAY("unknown", epoll_ctl(set, 77, fd, &all));
    SAY("itself", epoll_ctl(set, EPOLL_CTL_ADD, set, &all));
    SAY("not a set", epoll_ctl(fd, EPOLL_CTL_ADD, fd, &all));
    SAY("invalid descriptor", epoll_ctl(set, EPOLL_CTL_ADD, -1, &all));
    all.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT;
    SAY("exclusive, once", epoll_ctl(set, EPOLL_CTL_ADD, fd, &all));
    all.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLPRI;
    SAY("exclusive, urgent", epoll_ctl(set, EPOLL_CTL_ADD, fd, &all));
    all.events = EPOLLIN | EPOLLEXCLUSIVE;
    SAY("exclusive", epoll_ctl(set, EPOLL_CTL_ADD, fd, &all));
    SAY("exclusive, changed", epoll_ctl(set, EPOLL_CTL_MOD, fd, &all));
    all.events = EPOLLIN;
    SAY("modify an exclusive entry", epoll_ctl(set, EPOLL_CTL_MOD, fd, &all));
    /* Nobody looks at the event of what is removed. */
    SAY("removed", epoll_ctl(set, EPOLL_CTL_DEL, fd, (void *)8));
    SAY("added", epoll_ctl(set, EPOLL_CTL_ADD, fd, &all));
    SAY("no room", epoll_wait(set, got, 0, 0));
    SAY("negative room", epoll_wait(set, got, minus_one, 0));
    SAY("not a set", epoll_wait(fd, got, 2, 0));
    SAY("invalid descriptor", epoll_wait(-1, got, 2, 0));
    struct timespec no_time = {0, 1000000000};
    SAY("invalid time", epoll_pwait2(set, got, 2, &no_time, NULL));
    struct pollfd p = {fd, 0, 0x7f};
    SAY("no events requested", poll(&p, 1, 0));
    say("%x", p.revents);
    p.events = 0x4000;
    SAY("unknown event", poll(&p, 1, 0));
    SAY("none", poll(NULL, 0, 1));
    SAY("invalid time", ppoll(&p, 1, &no_time, NULL));
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    struct timeval no_long = {-1, 0}, now = {0, 0};
    SAY("negative length", select(-1, &in, NULL, NULL, &now));
    SAY("negative time", select(fd + 1, &in, NULL, NULL, &no_long));
    SAY("nothing", select(0, NULL, NULL, NULL, &now));
    SAY("invalid time", pselect(fd + 1, &in, NULL, NULL, &no_time, NULL));
    close(set);
}

static void mistaken_options(int fd) {
    int on = 1, room = 0;
    struct timeval time = {0, 1000000};
    socklen_t size = 1, negative = -1, none = 0;
    SAY("short", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, 1));
    SAY("invalid time", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    SAY("null", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, NULL, 4));
    SAY("short", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, 1));
    SAY("short", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, 3));
    SAY("negative length", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, -1));
    SAY("short", setsockopt(fd, SOL_SOCKET, SO_LINGER, &on, sizeof on));
    int idle = 0, many = 40000;
    SAY("idle", setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle));
    SAY("idle", setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &many, sizeof many));
    SAY("interval", setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof idle));
    SAY("count", setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &many, sizeof many));
    int less = -5;
    SAY("user timeout", setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &less, sizeof less));
    SAY("get, truncated", getsockopt(fd, SOL_SOCKET, SO_TYPE, &room, &size));
    say("%d of %d", room, size);
    SAY("get, negative size", getsockopt(fd, SOL_SOCKET, SO_TYPE, &room, &negative));
    SAY("get, zero size", getsockopt(fd, SOL_SOCKET, SO_TYPE, &room, &none));
    say("size %d", none);
    size = sizeof room;
    SAY("get, no size", getsockopt(fd, SOL_SOCKET, SO_ERROR, &room, NULL));
    SAY("get, negative size", getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &room, &negative));
    struct tcp_info info;
    size = 8;
    SAY("info, truncated", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size));
    say("size %d state %d", size, info.tcpi_state);
    char name[16] = "";
    size = 2;
    SAY("control, truncated", getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size));
    say("size %d", size);
    SAY("unknown congestion control", setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "nonesuch", 8));
}

static void mistaken(void) {
    int fd = begin();
    mistaken_transfers(fd);
    mistaken_files(fd);
    mistaken_lengths(fd);
    mistaken_descriptors(fd);
    mistaken_waits(fd);
    mistaken_options(fd);
    SAY("still there", send(fd, "end", 3, 0));
    say("peer got %ld", order("recv", 3));
    end(fd);
    fd = begin();
    int on = 1;
    SAY("unknown level", setsockopt(fd, 9999, 1, &on, sizeof on));
    SAY("unknown option", setsockopt(fd, SOL_SOCKET, 9999, &on, sizeof on));
    SAY("unknown option", setsockopt(fd, IPPROTO_TCP, 9999, &on, sizeof on));
    socklen_t size = sizeof on;
    SAY("unknown option", getsockopt(fd, IPPROTO_TCP, 9999, &on, &size));
    end(fd);
}

static void asked(int fd, const char *what, int level, int name) {
    unsigned char value[64] = "";
    socklen_t size = sizeof value;
    int done = getsockopt(fd, level, name, value, &size);
    say("%s: %d %s, %d bytes, %d %d", what, done, done ? name_of(errno) : "0", size, value[0], value[1]);
}

/* Calls that are valid but hardly ever made. */
static void unusual(void) {
    int fd = begin(), other;
    char buf[100] = "";
    int number = 7;
    asked(fd, "type", SOL_SOCKET, SO_TYPE);
    asked(fd, "domain", SOL_SOCKET, SO_DOMAIN);
    asked(fd, "protocol", SOL_SOCKET, SO_PROTOCOL);
    asked(fd, "listens", SOL_SOCKET, SO_ACCEPTCONN);
    asked(fd, "least", SOL_SOCKET, SO_RCVLOWAT);
    asked(fd, "least", SOL_SOCKET, SO_SNDLOWAT);
    asked(fd, "inline", SOL_SOCKET, SO_OOBINLINE);
    asked(fd, "priority", SOL_SOCKET, SO_PRIORITY);
    asked(fd, "mark", SOL_SOCKET, SO_MARK);
    asked(fd, "device", SOL_SOCKET, SO_BINDTODEVICE);
    asked(fd, "stamps", SOL_SOCKET, SO_TIMESTAMP);
    asked(fd, "time", SOL_SOCKET, SO_RCVTIMEO);
    asked(fd, "alive", SOL_SOCKET, SO_KEEPALIVE);
    asked(fd, "linger", SOL_SOCKET, SO_LINGER);
    asked(fd, "ttl", IPPROTO_IP, IP_TTL);
    asked(fd, "tos", IPPROTO_IP, IP_TOS);
    asked(fd, "errors", IPPROTO_IP, IP_RECVERR);
    asked(fd, "idle", IPPROTO_TCP, TCP_KEEPIDLE);
    asked(fd, "interval", IPPROTO_TCP, TCP_KEEPINTVL);
    asked(fd, "count", IPPROTO_TCP, TCP_KEEPCNT);
    asked(fd, "unsent", IPPROTO_TCP, TCP_NOTSENT_LOWAT);
    asked(fd, "user timeout", IPPROTO_TCP, TCP_USER_TIMEOUT);
    asked(fd, "cork", IPPROTO_TCP, TCP_CORK);
    asked(fd, "control", IPPROTO_TCP, TCP_CONGESTION);
    SAY("at the mark", ioctl(fd, SIOCATMARK, &number));
    SAY("queued", ioctl(fd, FIONREAD, &number));
    say("%d", number);
    SAY("append", fcntl(fd, F_SETFL, O_APPEND));
    say("flags %x", fcntl(fd, F_GETFL) & ~O_LARGEFILE);
    SAY("plain", fcntl(fd, F_SETFL, 0));
    SAY("owner", fcntl(fd, F_SETOWN, getpid()));
    say("owner is this process %d", fcntl(fd, F_GETOWN) == getpid());
    SAY("MSG_CONFIRM", send(fd, "a", 1, MSG_CONFIRM));
    SAY("MSG_DONTROUTE", send(fd, "b", 1, MSG_DONTROUTE));
    SAY("MSG_EOR", send(fd, "c", 1, MSG_EOR));
    SAY("MSG_ZEROCOPY", send(fd, "d", 1, MSG_ZEROCOPY));
    SAY("MSG_MORE", send(fd, "e", 1, MSG_MORE | MSG_DONTWAIT | MSG_NOSIGNAL));
    struct iovec pieces[3] = {{buf, 0}, {"fgh", 3}, {buf, 0}};
    SAY("empty buffers", writev(fd, pieces, 3));
    struct sockaddr_in to = {.sin_family = AF_INET};
    SAY("to an empty address", sendto(fd, "i", 1, 0, (void *)&to, sizeof to));
    say("peer got %ld", order("recv", 9));
    order("send", 30);
    arrived(fd, 30);
    SAY("queued", ioctl(fd, FIONREAD, &number));
    say("%d", number);
    struct iovec rooms[3] = {{buf, 0}, {buf, 2}, {buf + 2, 3}};
    SAY("an empty buffer", readv(fd, rooms, 3));
    say("right %d", right(buf, 0, 5));
    char control[64];
    struct msghdr msg = {.msg_iov = rooms + 1, .msg_iovlen = 2, .msg_control = control, .msg_controllen = sizeof control, .msg_flags = 0x7777};
    SAY("control", recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_WAITALL));
    say("control %ld flags %x", (long)msg.msg_controllen, msg.msg_flags);
    SAY("peek and discard", recv(fd, NULL, 50, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT));
    struct pollfd twice[3] = {{fd, POLLIN | POLLRDNORM | POLLRDBAND, 0}, {fd, POLLOUT | POLLWRNORM | POLLWRBAND, 0}, {1 << 20, POLLIN, 0}};
    SAY("the same descriptor twice", poll(twice, 3, 0));
    say("%x %x %x", twice[0].revents, twice[1].revents, twice[2].revents);
    fd_set in, out, except;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&except);
    FD_SET(fd, &in);
    FD_SET(fd, &out);
    FD_SET(fd, &except);
    struct timeval now = {0, 0};
    SAY("all three", select(fd + 1, &in, &out, &except, &now));
    say("%d %d %d", !!FD_ISSET(fd, &in), !!FD_ISSET(fd, &out), !!FD_ISSET(fd, &except));
    int set = epoll_create1(0);
    struct epoll_event ask = {EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM | EPOLLPRI | EPOLLMSG, {.u64 = 1}}, got[4];
    SAY("many events", epoll_ctl(set, EPOLL_CTL_ADD, fd, &ask));
    SAY("many events", epoll_wait(set, got, 4, 1000));
    say("%x", got[0].events);
    other = dup(fd);
    ask = (struct epoll_event){EPOLLIN, {.u64 = 2}};
    SAY("another", epoll_ctl(set, EPOLL_CTL_ADD, other, &ask));
    SAY("both", epoll_wait(set, got, 4, 1000));
    SAY("close", close(other));
    SAY("after the close", epoll_wait(set, got, 4, 1000));
    SAY("remove a closed one", epoll_ctl(set, EPOLL_CTL_DEL, other, NULL));
    close(set);
    SAY("shutdown of reads", shutdown(fd, SHUT_RD));
    SAY("buffered data", recv(fd, buf, 100, 0));
    SAY("the end", recv(fd, buf, 100, 0));
    order("send", 5);
    usleep(100000);
    SAY("data after the shutdown", recv(fd, buf, 100, MSG_DONTWAIT));
    say("%x", revents(fd, POLLIN | POLLOUT | POLLRDHUP, 0));
    SAY("send", send(fd, "end", 3, 0));
    say("peer got %ld", order("recv", 3));
    end(fd);
}

/* A call that waits on a descriptor while another thread changes it. */
struct waits { int fd, how, set; long got; int error; };

static void *waits_for(void *at) {
    struct waits *w = at;
    char buf[100], block[1];
    struct pollfd p = {w->fd, POLLIN, 0};
    struct epoll_event event = {0};
    fd_set in;
    FD_ZERO(&in);
    FD_SET(w->fd, &in);
    struct timeval time = {0, 500000};
    errno = 0;
    switch (w->how) {
    case 0: w->got = recv(w->fd, buf, 100, 0); break;
    case 1: w->got = recv(w->fd, buf, 10, MSG_WAITALL); break;
    case 2: w->got = poll(&p, 1, 500); break;
    case 3: w->got = epoll_wait(w->set, &event, 1, 500); break;
    case 4: w->got = select(w->fd + 1, &in, NULL, NULL, &time); break;
    case 5: w->got = recv(w->fd, block, 1, MSG_PEEK); break;
    }
    w->error = w->got < 0 ? errno : 0;
    return NULL;
}

static void together(void) {
    static const char *const actions[] = {"shut in", "shut both", "nonblocking", "time", "add", "remove", "data", "end", "reset", "replace"};
    int others[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, others) || write(others[1], "another", 7) != 7) die("pair");
    for (int action = 0; action < 10; action++)
        for (int how = 0; how < 6; how++) {
            if (action == 9 && how > 0) break;
            struct waits w = {begin(), how, epoll_create1(0), 0, 0};
            struct epoll_event event = {EPOLLIN, {.u64 = 1}};
            struct timeval time = {0, 50000};
            pthread_t thread;
            say("-- %s, %d", actions[action], how);
            if (action != 4) epoll_ctl(w.set, EPOLL_CTL_ADD, w.fd, &event);
            pthread_create(&thread, NULL, waits_for, &w);
            usleep(30000);
            switch (action) {
            case 0: shutdown(w.fd, SHUT_RD); break;
            case 1: shutdown(w.fd, SHUT_RDWR); break;
            case 2: fcntl(w.fd, F_SETFL, O_NONBLOCK); break;
            case 3: setsockopt(w.fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time); break;
            case 4: epoll_ctl(w.set, EPOLL_CTL_ADD, w.fd, &event); break;
            case 5: epoll_ctl(w.set, EPOLL_CTL_DEL, w.fd, NULL); break;
            case 7: order("shut", 0); break;
            case 8: order("reset", 0); break;
            case 9: dup2(others[0], w.fd); break;
            }
            usleep(30000);
            if (action < 7 || action == 9) order("send", 10);
            pthread_join(thread, NULL);
            /* If the descriptor is replaced during the wait, the call must not read from the new one. */
            if (action == 9) say("read from the new descriptor %d", w.got == 7);
            else say("%ld %s", w.got, name_of(w.error));
            close(w.set);
            end(w.fd);
        }
    close(others[0]);
    close(others[1]);
}

enum { CALLS = 16, STATES = 6 };

/* Makes one of the CALLS calls, by number, and prints the result. */
static void any_call(int fd, int which, int file) {
    char buf[10];
    struct sockaddr_in name;
    struct tcp_info info;
    socklen_t size = sizeof name, long_size = sizeof info;
    int number = 0, set;
    off_t at = 0;
    struct epoll_event event = {EPOLLIN | EPOLLOUT | EPOLLRDHUP, {.u64 = 1}};
    switch (which % CALLS) {
    case 0: SAY("read", recv(fd, buf, 2, MSG_DONTWAIT)); break;
    case 1: SAY("peek", recv(fd, buf, 2, MSG_DONTWAIT | MSG_PEEK)); break;
    case 2: SAY("no room", recv(fd, buf, 0, MSG_DONTWAIT)); break;
    case 3: SAY("send", send(fd, "x", 1, MSG_NOSIGNAL)); break;
    case 4: SAY("send nothing", send(fd, "x", 0, MSG_NOSIGNAL)); break;
    case 5: SAY("error", getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &size)); say("%s", name_of(number)); break;
    case 6: SAY("peer's name", getpeername(fd, (void *)&name, &size)); break;
    case 7: SAY("own name", getsockname(fd, (void *)&name, &size)); break;
    /* Wait for the peer's answer. */
    case 8: SAY("shutdown of writes", shutdown(fd, SHUT_WR)); usleep(30000); break;
    case 9: SAY("shutdown of reads", shutdown(fd, SHUT_RD)); break;
    case 10: say("poll %x", revents(fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0)); break;
    case 11: SAY("queued", ioctl(fd, FIONREAD, &number)); say("%d", number); break;
    case 12: SAY("sendfile", sendfile(fd, file, &at, 3)); break;
    case 13: SAY("info", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &long_size)); say("%d", info.tcpi_state); break;
    case 14:
        set = epoll_create1(0);
        epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
        SAY("wait", epoll_wait(set, &event, 1, 0));
        say("%x", event.events);
        close(set);
        break;
    case 15: SAY("all of it", recv(fd, buf, 10, MSG_DONTWAIT | MSG_WAITALL)); break;
    }
}

/* All calls on connections that have ended in each way, beginning with each call in turn. */
static void afterwards(void) {
    static const char *const states[STATES] = {"peer shut", "data, peer shut", "reset", "data, reset", "shut", "both shut"};
    int file = memfd_create("afterwards", MFD_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
    if (write(file, "file", 4) != 4) die("file");
    for (int state = 0; state < STATES; state++)
        for (int first = 0; first < CALLS; first++) {
            int fd = begin();
            say("-- %s", states[state]);
            if (strstr(states[state], "data")) {
                order("send", 5);
                arrived(fd, 5);
            }
            if (strstr(states[state], "peer") || state == 5) order("shut", 0);
            if (strstr(states[state], "reset")) order("reset", 0);
            if (state != 4) ended(fd);
            if (state > 3) shutdown(fd, SHUT_WR);
            /* Wait for the peer's acknowledgment. */
            if (state > 3) order("recv", -1), usleep(50000);
            for (int which = 0; which < CALLS; which++) any_call(fd, first + which, file);
            end(fd);
        }
    close(file);
}

/* Connections inherit the listener's options, and keep the data that arrived before they were
 * accepted. */
static void accepted(void) {
    static const char *const befores[] = {"nothing", "data", "data, end", "data, reset", "end"};
    int one = 1, zero = 0, idle = 77, tos = 0x10, small = 30000;
    struct timeval time = {0, 40000};
    struct linger now = {1, 0};
    char buf[20];
    for (int flags = 0; flags < 4; flags++)
        for (int before = 0; before < 5; before++) {
            int listener = listening(BACK);
            say("-- %s, %d", befores[before], flags);
            setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, flags & 1 ? &zero : &one, sizeof one);
            setsockopt(listener, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
            setsockopt(listener, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
            setsockopt(listener, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
            setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
            if (flags & 2) setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
            if (flags & 2) setsockopt(listener, SOL_SOCKET, SO_LINGER, &now, sizeof now);
            order("connect", 0);
            if (strstr(befores[before], "data")) order("send", 10);
            if (strstr(befores[before], "end")) order("shut", 0);
            if (strstr(befores[before], "reset")) order("reset", 0);
            usleep(20000);
            struct sockaddr_in from;
            socklen_t size = sizeof from;
            int fd = accept4(listener, (void *)&from, &size, (flags & 1 ? SOCK_NONBLOCK : 0) | SOCK_CLOEXEC);
            say("size %d family %d, accepted %d", size, from.sin_family, fd >= 0);
            say("flags %x %x", fcntl(fd, F_GETFD), fcntl(fd, F_GETFL) & ~O_LARGEFILE);
            asked(fd, "nodelay", IPPROTO_TCP, TCP_NODELAY);
            asked(fd, "alive", SOL_SOCKET, SO_KEEPALIVE);
            asked(fd, "idle", IPPROTO_TCP, TCP_KEEPIDLE);
            asked(fd, "interval", IPPROTO_TCP, TCP_KEEPINTVL);
            asked(fd, "tos", IPPROTO_IP, IP_TOS);
            asked(fd, "time", SOL_SOCKET, SO_RCVTIMEO);
            asked(fd, "linger", SOL_SOCKET, SO_LINGER);
            asked(fd, "buffer", SOL_SOCKET, SO_RCVBUF);
            say("poll %x", revents(fd, POLLIN | POLLOUT | POLLRDHUP, 0));
            SAY("peer's name", getpeername(fd, (void *)&from, &size));
            SAY("some", recv(fd, buf, 4, 0));
            SAY("more", recv(fd, buf, 20, MSG_WAITALL));
            SAY("then", recv(fd, buf, 20, 0));
            if (before != 3) {
                SAY("send", send(fd, "hello", 5, 0));
                say("peer got %ld", order("recv", 5));
            }
            close(listener);
            close(fd);
            if (before != 3) say("peer got %ld", order("recv", -1));
            order("close", 0);
        }
}

/* A blocked send, and an event that ends it. */
struct sends { int fd, flags; long put; int error; };

static void *sends_much(void *at) {
    enum { MUCH = 64 << 20 };
    struct sends *s = at;
    char *much = calloc(1, MUCH);
    errno = 0;
    s->put = send(s->fd, much, MUCH, s->flags | MSG_NOSIGNAL);
    s->error = s->put < 0 ? errno : 0;
    free(much);
    return NULL;
}

static void on_usr1(int signal) { (void)signal; }

static void partly(void) {
    static const char *const actions[] = {"time", "at once", "shut", "reset", "signal", "nonblocking"};
    struct sigaction act = {.sa_handler = on_usr1};
    sigaction(SIGUSR1, &act, NULL);
    for (int action = 0; action < 6; action++) {
        struct sends s = {begin(), action == 1 ? MSG_DONTWAIT : 0, 0, 0};
        struct timeval time = {0, 300000};
        pthread_t thread;
        long sent = 0;
        char buf[10];
        say("-- %s", actions[action]);
        if (action == 0) setsockopt(s.fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
        pthread_create(&thread, NULL, sends_much, &s);
        usleep(200000);
        if (action == 2) shutdown(s.fd, SHUT_WR);
        if (action == 3) order("reset", 0);
        if (action == 4) pthread_kill(thread, SIGUSR1);
        if (action == 5) {
            fcntl(s.fd, F_SETFL, O_NONBLOCK);
            sent = -order("recv", 64 << 20);
        }
        pthread_join(thread, NULL);
        say("some %d, all %d, %s", s.put > 0, s.put == 64 << 20, name_of(s.error));
        /* By now there may be room for a few bytes. */
        if (action == 2 || action == 3) SAY("then", send(s.fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
        SAY("then", recv(s.fd, buf, 10, MSG_DONTWAIT));
        say("poll %x", revents(s.fd, POLLIN | POLLRDHUP, 0));
        if (action != 3) {
            sent += s.put;
            say("peer got all %d", order("recv", sent) == sent);
        }
        end(s.fd);
    }
}

static const struct test mistakes[] = {{"mistaken", mistaken}, {"unusual", unusual}, {"afterwards", afterwards}, {"together", together}, {"accepted", accepted}, {"partly", partly}, {NULL, NULL}};
