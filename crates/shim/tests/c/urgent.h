/* Urgent data from the peer that arrives while a connection is in an engine. */

static volatile sig_atomic_t urgent_signalled;

static void on_urgent(int signal) {
    (void)signal;
    urgent_signalled = 1;
}

static int at_mark(int fd) {
    int at = -1;
    ioctl(fd, SIOCATMARK, &at);
    return at;
}

/* Reads up to the mark, or `most` bytes, in pieces of any length. */
static void read_to_mark(int fd, long most) {
    char buf[4096];
    long got = 0;
    while (got < most && !at_mark(fd)) {
        long room = most - got < 4096 ? most - got : 4096;
        ssize_t len = recv(fd, buf, room, 0);
        if (len <= 0) break;
        if (!right(buf, got, len)) say("wrong bytes from %ld on", got);
        got += len;
    }
    say("read %ld, at the mark %d", got, at_mark(fd));
}

/* Reads data whose last byte is urgent, and reads that byte with MSG_OOB. */
static void read_urgent_byte(int fd, long before) {
    char byte = 0;
    say("waited %x", revents(fd, POLLPRI, 5000));
    say("at the mark %d", at_mark(fd));
    read_to_mark(fd, before);
    SAY("urgent", recv(fd, &byte, 1, MSG_OOB));
    say("right %d", byte == byte_at(before));
    SAY("once more", recv(fd, &byte, 1, MSG_OOB));
    SAY("no more data", recv(fd, &byte, 1, MSG_DONTWAIT));
    say("idle %x", revents(fd, POLLIN | POLLPRI, 0));
    order("send", 7);
    arrived(fd, 7);
    char buf[16];
    SAY("then", recv(fd, buf, 16, 0));
    say("right %d", right(buf, 0, 7));
    SAY("reply", send(fd, "back", 4, 0));
    say("peer got %ld", order("recv", 4));
}

static int begin_moved(void) {
    int fd = begin();
    SAY("move", send(fd, "moves", 5, 0));
    say("peer got %ld", order("recv", 5));
    return fd;
}

static void urgent_by_select(void) {
    int fd = begin_moved();
    fd_set except, in;
    FD_ZERO(&except);
    FD_ZERO(&in);
    FD_SET(fd, &except);
    FD_SET(fd, &in);
    struct timeval time = {5, 0};
    tell("urgent", 1);
    SAY("select", select(fd + 1, NULL, NULL, &except, &time));
    say("exceptional %d", !!FD_ISSET(fd, &except));
    answer();
    end(fd);
}

static void urgent_by_epoll(int edge) {
    int fd = begin_moved(), set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {EPOLLIN | EPOLLPRI | edge, {.u64 = 77}}, found[4];
    SAY("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    SAY("nothing", epoll_wait(set, found, 4, 0));
    tell("urgent", 1);
    SAY("wait", epoll_wait(set, found, 4, 5000));
    say("events %x data %d", found[0].events, (int)found[0].data.u64);
    answer();
    char byte = 0;
    SAY("urgent", recv(fd, &byte, 1, MSG_OOB));
    SAY("no more events", epoll_wait(set, found, 4, 0));
    end(fd);
    close(set);
}

/* With SO_OOBINLINE urgent bytes stay in the stream, and a read stops before them. */
static void urgent_inline(void) {
    int fd = begin_moved(), one = 1;
    char buf[16];
    SAY("inline", setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof one));
    order("urgent", 6);
    arrived(fd, 6);
    say("waited %x", revents(fd, POLLIN | POLLPRI, 5000));
    read_to_mark(fd, 5);
    SAY("MSG_OOB", recv(fd, buf, 1, MSG_OOB));
    SAY("inline", recv(fd, buf, 16, 0));
    say("right %d at the mark %d", buf[0] == byte_at(5), at_mark(fd));
    end(fd);
}

/* Urgent data arrives while a read waits, and SIGURG reports it. */
static void urgent_during_a_read(void) {
    int fd = begin_moved();
    char buf[100];
    handle(SIGURG, on_urgent, SA_RESTART);
    fcntl(fd, F_SETOWN, getpid());
    urgent_signalled = 0;
    tell("urgent", 30);
    long got = 0;
    while (got < 29) {
        ssize_t len = read(fd, buf + got, sizeof buf - got);
        if (len <= 0) break;
        got += len;
    }
    answer();
    say("read %ld right %d, signalled %d", got, right(buf, 0, 29), urgent_signalled);
    SAY("urgent", recv(fd, buf, 1, MSG_OOB));
    say("right %d", buf[0] == byte_at(29));
    end(fd);
}

/* The program has not read the data before the urgent byte, and is writing itself. */
static void urgent_behind_much(void) {
    int fd = begin_moved();
    static char block[200000];
    order("send", 40000);
    arrived(fd, 40000);
    for (int i = 0; i < 200000; i++) block[i] = byte_at(i);
    tell("urgent", 10);
    long put = 0;
    while (put < 200000) {
        ssize_t len = send(fd, block + put, 200000 - put, MSG_DONTWAIT);
        if (len < 0 && revents(fd, POLLOUT, 3000) <= 0) break;
        if (len > 0) put += len;
        if (put > 50000 && urgent_signalled == 0) { answer(); tell("recv", 200000); urgent_signalled = 1; }
    }
    say("sent %ld, peer got %ld", put, answer());
    say("waited %x", revents(fd, POLLPRI, 5000));
    read_to_mark(fd, 40000);
    read_to_mark(fd, 9);
    char byte = 0;
    SAY("urgent", recv(fd, &byte, 1, MSG_OOB));
    say("right %d", byte == byte_at(9));
    end(fd);
}

/* The window is closed, so window probes announce urgent data that cannot be sent yet. */
static void urgent_beyond_the_window(void) {
    int fd = begin(), small = 20000;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    SAY("move", send(fd, "moves", 5, 0));
    say("peer got %ld", order("recv", 5));
    order("room", 4 << 20);
    order("send", 1000000);
    /* Wait until nothing more fits: if data is sent in pieces and lost while its sender is in urgent
     * mode, Linux retransmits it with urgent pointers that point too far. */
    for (int before = -1, have = 0; before != have; usleep(50000)) {
        before = have;
        ioctl(fd, FIONREAD, &have);
    }
    order("urgent", 1);
    usleep(300000);
    read_to_mark(fd, 1000000);
    say("waited %x", revents(fd, POLLPRI, 5000));
    char byte = 0;
    SAY("urgent", recv(fd, &byte, 1, MSG_OOB));
    say("right %d", byte == byte_at(0));
    end(fd);
}

static void urgents(void) {
    int fd = begin_moved();
    tell("urgent", 2);
    read_urgent_byte(fd, 1);
    answer();
    /* Once more, wherever the connection is by now. */
    order("urgent", 2);
    read_urgent_byte(fd, 1);
    end(fd);
    urgent_by_select();
    urgent_by_epoll(0);
    urgent_by_epoll(EPOLLET);
    urgent_inline();
    urgent_during_a_read();
    urgent_signalled = 0;
    urgent_behind_much();
    urgent_beyond_the_window();
}

static const struct test urgent[] = {{"urgent", urgents}, {NULL, NULL}};
