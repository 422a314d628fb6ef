/* Options that control when bytes are sent, and what is reported about received ones. */

enum { INQ = 36 };

/* Setting TCP_NODELAY sends the bytes that a cork or MSG_MORE holds back; later bytes are held back
 * again. */
static void pushes(int fd) {
    int off = 0, on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    SAY("corked", send(fd, "abc", 3, 0));
    SAY("push", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    say("peer has %ld", order("within", 90));
    say("peer got %ld", order("recv", 3));
    SAY("still corked", send(fd, "de", 2, 0));
    say("peer has %ld", order("within", 20));
    option(fd, "cork", IPPROTO_TCP, TCP_CORK);
    SAY("uncork", setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off));
    say("peer has %ld", order("within", 1000));
    say("peer got %ld", order("recv", 2));
    SAY("more", send(fd, "fg", 2, MSG_MORE));
    SAY("push", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    say("peer has %ld", order("within", 90));
    say("peer got %ld", order("recv", 2));
    SAY("MSG_EOR", send(fd, "hij", 3, MSG_EOR));
    SAY("another", send(fd, "k", 1, MSG_EOR | MSG_MORE));
    SAY("the end", send(fd, "l", 1, 0));
    say("peer got %ld", order("recv", 5));
}

static void receive_and_report(int fd, const char *what, long room, size_t control_room) {
    char buf[100], control[64] = {0};
    struct iovec iov = {buf, room};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = control_room};
    SAY(what, recvmsg(fd, &msg, 0));
    say("flags %x, control %zu", msg.msg_flags, msg.msg_controllen);
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&msg); at; at = CMSG_NXTHDR(&msg, at)) {
        int left = -1;
        memcpy(&left, CMSG_DATA(at), sizeof left);
        say("level %d type %d length %zu: %d left", at->cmsg_level, at->cmsg_type, at->cmsg_len, left);
    }
}

static void reports_bytes_left(int fd) {
    order("send", 10);
    arrived(fd, 10);
    receive_and_report(fd, "TCP_INQ off", 2, 64);
    set(fd, "inq", IPPROTO_TCP, INQ, 1);
    receive_and_report(fd, "TCP_INQ on", 3, 64);
    receive_and_report(fd, "just enough", 1, CMSG_LEN(4));
    receive_and_report(fd, "no room", 1, 8);
    receive_and_report(fd, "the rest", 50, 64);
    set(fd, "inq", IPPROTO_TCP, INQ, 2);
    order("send", 4);
    order("shut", 0);
    ended(fd);
    receive_and_report(fd, "the last", 4, 64);
    receive_and_report(fd, "the end", 4, 64);
}

static void settings(void) {
    int fd = begin_moved();
    set(fd, "not sent", IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384);
    option(fd, "largest segment", IPPROTO_TCP, TCP_MAXSEG);
    set(fd, "largest segment", IPPROTO_TCP, TCP_MAXSEG, 600);
    set(fd, "largest segment", IPPROTO_TCP, TCP_MAXSEG, 5);
    set(fd, "discovery", IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
    set(fd, "discovery", IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_WANT);
    set(fd, "discovery", IPPROTO_IP, IP_MTU_DISCOVER, 17);
    pushes(fd);
    reports_bytes_left(fd);
    end(fd);
}

static const struct test how[] = {{"settings", settings}, {NULL, NULL}};
