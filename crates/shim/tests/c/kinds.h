/* Connections of both address families, and sockets without a connection. */

static void name6(const char *what, int got, struct sockaddr_in6 *name, socklen_t size) {
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(AF_INET6, &name->sin6_addr, text, sizeof text);
    int port = ntohs(name->sin6_port);
    say("%s: %d, size %d family %d %s port %d scope %d flow %d", what, got, size, name->sin6_family, text,
        port == DATA || port == BACK ? port : 0, name->sin6_scope_id, name->sin6_flowinfo);
}

static void check_family(int fd) {
    struct sockaddr_in6 name = {0};
    socklen_t size = sizeof name;
    int got = getpeername(fd, (void *)&name, &size);
    name6("peer", got, &name, size);
    size = sizeof name;
    got = getsockname(fd, (void *)&name, &size);
    name6("own", got, &name, size);
    memset(&name, 0, sizeof name);
    size = 20;
    got = getpeername(fd, (void *)&name, &size);
    name6("truncated", got, &name, size);
    asked(fd, "domain", SOL_SOCKET, SO_DOMAIN);
    asked(fd, "protocol", SOL_SOCKET, SO_PROTOCOL);
    asked(fd, "class", IPPROTO_IPV6, IPV6_TCLASS);
    asked(fd, "hops", IPPROTO_IPV6, IPV6_UNICAST_HOPS);
    asked(fd, "errors", IPPROTO_IPV6, IPV6_RECVERR);
    asked(fd, "tos", IPPROTO_IP, IP_TOS);
    asked(fd, "ttl", IPPROTO_IP, IP_TTL);
    asked(fd, "mtu", IPPROTO_IPV6, IPV6_MTU);
    int tos = 0x20, on = 1;
    SAY("class", setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof tos));
    asked(fd, "class", IPPROTO_IPV6, IPV6_TCLASS);
    SAY("tos", setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof tos));
    asked(fd, "tos", IPPROTO_IP, IP_TOS);
    SAY("alive", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
    char buf[100], control[100];
    SAY("send", send(fd, "hello", 5, 0));
    say("peer got %ld", order("recv", 5));
    order("send", 20);
    arrived(fd, 20);
    struct sockaddr_in6 from = {.sin6_family = 77};
    size = sizeof from;
    SAY("from", recvfrom(fd, buf, 5, 0, (void *)&from, &size));
    say("size %d family %d", size, from.sin6_family);
    struct iovec piece = {buf, 5};
    struct msghdr msg = {.msg_iov = &piece, .msg_iovlen = 1, .msg_name = &from, .msg_namelen = sizeof from,
                         .msg_control = control, .msg_controllen = sizeof control};
    SAY("message", recvmsg(fd, &msg, 0));
    say("name %d control %ld flags %x", msg.msg_namelen, (long)msg.msg_controllen, msg.msg_flags);
    msg = (struct msghdr){.msg_iov = &piece, .msg_iovlen = 1, .msg_name = &from, .msg_namelen = sizeof from};
    SAY("to a name", sendmsg(fd, &msg, 0));
    SAY("to a name", sendto(fd, "x", 1, 0, (void *)&from, sizeof from));
    SAY("connected", connect(fd, (void *)&name, sizeof name));
    struct sockaddr_in old = {.sin_family = AF_INET, .sin_port = htons(9)};
    SAY("connected", connect(fd, (void *)&old, sizeof old));
    SAY("bind", bind(fd, (void *)&name, sizeof name));
    int other = dup(fd);
    size = sizeof name;
    got = getpeername(other, (void *)&name, &size);
    name6("peer of a duplicate", got, &name, size);
    close(other);
    struct tcp_info info;
    size = sizeof info;
    SAY("info", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size));
    say("state %d mss %d %d", info.tcpi_state, info.tcpi_snd_mss, info.tcpi_advmss);
    SAY("rest", recv(fd, buf, 100, 0));
    order("shut", 0);
    ended(fd);
    SAY("end", recv(fd, buf, 100, 0));
    close(fd);
    say("peer got to the end %d", order("recv", -1) >= 0);
    order("close", 0);
}

static void families(void) {
    static const char *const hosts[] = {"fd66::2", "::ffff:10.66.0.2"};
    for (int which = 0; which < 2; which++) {
        say("-- connected to %s", hosts[which]);
        int fd = connected6(hosts[which], DATA);
        order("accept", 0);
        check_family(fd);
    }
    for (int which = 0; which < 2; which++) {
        struct sockaddr_in6 name;
        socklen_t size = sizeof name;
        int listener = listening6(BACK), tos = 0x10;
        say("-- accepted, %d", which);
        setsockopt(listener, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof tos);
        order(which ? "connect" : "connect6", 0);
        int fd = accept(listener, (void *)&name, &size);
        name6("accepted", fd < 0, &name, size);
        close(listener);
        check_family(fd);
    }
}

/* Every call on sockets without a connection. */
static void beginnings(void) {
    static const char *const states[] = {"new", "bound", "listening", "refused", "unreachable", "in progress", "ended by connect"};
    int file = memfd_create("beginnings", MFD_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
    if (write(file, "file", 4) != 4) die("file");
    for (int state = 0; state < 7; state++)
        for (int first = 0; first < CALLS; first++) {
            int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
            struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(state == 3 ? 9002 : DATA)};
            say("-- %s", states[state]);
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
            if (state == 1 || state == 2) at.sin_port = htons(BACK);
            if (state == 1 || state == 2) SAY("bind", bind(fd, (void *)&at, sizeof at));
            if (state == 2) SAY("listen", listen(fd, 1));
            if (state > 2) inet_pton(AF_INET, state == 4 ? "10.99.0.1" : state == 5 ? "10.66.0.77" : peer_host, &at.sin_addr);
            if (state == 5) fcntl(fd, F_SETFL, O_NONBLOCK);
            if (state > 2) SAY("connect", connect(fd, (void *)&at, sizeof at));
            if (state == 6) {
                order("accept", 0);
                SAY("read", recv(fd, &at, 1, MSG_DONTWAIT));
                at.sin_family = AF_UNSPEC;
                SAY("disconnect", connect(fd, (void *)&at, sizeof at));
                say("peer's end %ld", order("recv", -1));
            }
            for (int which = 0; which < CALLS; which++) any_call(fd, first + which, file);
            close(fd);
            if (state == 6) order("close", 0);
        }
    close(file);
}

/* A thread that is cancelled while it waits in a call. */
struct cancelled { int how, fd, set, cleaned, went_on; long got; volatile int ready; };

static sigjmp_buf before_the_read;

static void leave_read(int signal) {
    (void)signal;
    siglongjmp(before_the_read, 1);
}

static void clean(void *at) { ((struct cancelled *)at)->cleaned = 1; }

static void *is_cancelled(void *at) {
    struct cancelled *c = at;
    static char much[1 << 20];
    char buf[10];
    struct iovec piece = {buf, 10};
    struct msghdr msg = {.msg_iov = &piece, .msg_iovlen = 1};
    struct pollfd p = {c->fd, POLLIN, 0};
    struct epoll_event event;
    fd_set in;
    FD_ZERO(&in);
    FD_SET(c->fd, &in);
    pthread_cleanup_push(clean, c);
    switch (c->how) {
    case 0: if (read(c->fd, buf, 10)) break; break;
    case 1: recv(c->fd, buf, 10, 0); break;
    case 2: recvfrom(c->fd, buf, 10, MSG_WAITALL, NULL, NULL); break;
    case 3: recvmsg(c->fd, &msg, 0); break;
    case 4: if (readv(c->fd, &piece, 1)) break; break;
    case 5: poll(&p, 1, -1); break;
    case 6: poll(&p, 1, 20000); break;
    case 7: select(c->fd + 1, &in, NULL, NULL, NULL); break;
    case 8: epoll_wait(c->set, &event, 1, -1); break;
    case 9: epoll_wait(c->set, &event, 1, 20000); break;
    case 10: while (send(c->fd, much, sizeof much, MSG_NOSIGNAL) > 0) {} break;
    case 11: while (write(c->fd, much, sizeof much) > 0) {} break;
    /* A thread with cancellation disabled continues. */
    case 12:
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        c->got = recv(c->fd, buf, 10, 0);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
        pthread_testcancel();
        break;
    /* A handler that left the wait does not keep it from being cancelled later. */
    case 13:
        if (!sigsetjmp(before_the_read, 1)) {
            c->ready = 1;
            c->got = recv(c->fd, buf, 10, 0);
        }
        c->ready = 2;
        c->got = recv(c->fd, buf, 10, 0);
    }
    c->went_on = 1;
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancelled(void) {
    signal(SIGUSR2, leave_read);
    for (int other_kind = 0; other_kind < 2; other_kind++)
        for (int early = 0; early < 2; early++)
            for (int how = 0; how < 14; how++) {
                int pair[2];
                if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) die("pair");
                struct cancelled c = {how, other_kind ? pair[0] : begin(), epoll_create1(0), 0, 0, 0, 0};
                struct epoll_event event = {EPOLLIN, {.u64 = 1}};
                struct timeval limit = {3, 0};
                pthread_t thread;
                void *got;
                epoll_ctl(c.set, EPOLL_CTL_ADD, c.fd, &event);
                if (how == 1) setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
                pthread_create(&thread, NULL, is_cancelled, &c);
                if (how == 13) {
                    while (!c.ready) usleep(1000);
                    usleep(20000);
                    pthread_kill(thread, SIGUSR2);
                    while (c.ready < 2) usleep(1000);
                }
                if (!early) usleep(how > 9 ? 300000 : 50000);
                pthread_cancel(thread);
                if (how == 12 && !other_kind) order("send", 10);
                if (how == 12 && other_kind && write(pair[1], "0123456789", 10) != 10) die("pair");
                struct timespec until;
                clock_gettime(CLOCK_REALTIME, &until);
                until.tv_sec += 3;
                int joined = pthread_timedjoin_np(thread, &got, &until);
                say("%d %d %d: %s, cancelled %d, cleaned %d, went on %d, got %ld", other_kind, early, how, name_of(joined), got == PTHREAD_CANCELED, c.cleaned, c.went_on, c.got);
                close(c.set);
                if (!other_kind) end(c.fd);
                close(pair[0]);
                close(pair[1]);
            }
}

static const struct test kinds[] = {{"families", families}, {"beginnings", beginnings}, {"cancelled", cancelled}, {NULL, NULL}};
