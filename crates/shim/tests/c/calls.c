/* Makes every call on connections and prints each result on a line of its own. The output must be
 * the same whether the connections are in the kernel or in an engine. The words before a result
 * only label it.
 *
 *   calls peer OUR_ADDRESS         be the peer
 *   calls run PEER_ADDRESS TEST    run one test, or "all"
 */
#include "peer.h"

static const char *peer_host;

static void say(const char *form, ...) {
    va_list rest;
    va_start(rest, form);
    vprintf(form, rest);
    va_end(rest);
    putchar('\n');
    fflush(stdout);
}

static const char *name_of(int error) {
    const char *name = error ? strerrorname_np(error) : "0";
    return name ? name : "unknown";
}

/* A value that is not an error number. */
enum { CANARY = 4711 };

static const char *canary_name(int error) { return error == CANARY ? "the canary" : name_of(error); }

/* Prints a call's result, and errno if the call failed or changed errno although it succeeded. */
#define SAY(what, call) do { errno = CANARY; long r_ = (call); int e_ = errno; \
    if (r_ >= 0 && e_ == CANARY) say("%s: %ld", what, r_); \
    else say("%s: %ld, errno %s", what, r_, canary_name(e_)); } while (0)

static int begin(void) {
    int fd = connected(peer_host, DATA, 0);
    order("accept", 0);
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void end(int fd) {
    close(fd);
    order("close", 0);
}

/* Waits until `count` bytes can be read. */
static void arrived(int fd, int count) {
    for (int i = 0; i < 3000; i++) {
        int have = 0;
        ioctl(fd, FIONREAD, &have);
        if (have >= count) return;
        usleep(1000);
    }
    say("%d bytes did not arrive", count);
}

static void ended(int fd) {
    struct pollfd p = {fd, POLLRDHUP, 0};
    if (poll(&p, 1, 3000) != 1) say("the end did not arrive");
}

static int right(const char *bytes, long from, long count) {
    for (long i = 0; i < count; i++)
        if (bytes[i] != byte_at(from + i)) return 0;
    return 1;
}

static int revents(int fd, int events, int timeout) {
    struct pollfd p = {fd, events, 0};
    int got = poll(&p, 1, timeout);
    return got < 0 ? -errno : p.revents;
}

static void names(void) {
    int fd = begin();
    struct sockaddr_in in;
    socklen_t size = sizeof in;
    SAY("peer's name", getpeername(fd, (void *)&in, &size));
    say("its port %d size %d address %s", ntohs(in.sin_port), size, inet_ntoa(in.sin_addr));
    size = 2;
    SAY("our name, short", getsockname(fd, (void *)&in, &size));
    say("its size %d family %d", size, in.sin_family);
    SAY("connect again", connect(fd, (void *)&in, sizeof in));
    SAY("listen", listen(fd, 1));
    SAY("accept", accept(fd, NULL, NULL));
    end(fd);
}

static void option(int fd, const char *what, int level, int name) {
    unsigned value[4] = {0};
    socklen_t size = sizeof value;
    int got = getsockopt(fd, level, name, value, &size);
    say("%s: %d %s, size %d value %u %u", what, got, name_of(got ? errno : 0), size, value[0], value[1]);
}

static void set(int fd, const char *what, int level, int name, int value) {
    int got = setsockopt(fd, level, name, &value, sizeof value);
    say("set %s to %d: %d %s", what, value, got, name_of(got ? errno : 0));
    option(fd, what, level, name);
}

/* TCP_INFO with buffers of several lengths. */
static void facts(int fd) {
    socklen_t size;
    char came[5];
    say("peer got %ld", order("echo", 5));
    SAY("read", recv(fd, came, 5, MSG_WAITALL));
    unsigned char whole[512];
    for (int i = 0, asked[] = {512, 280, 250, 104, 3, 0}; i < 6; i++) {
        memset(whole, 0xee, sizeof whole);
        size = asked[i];
        SAY("info", getsockopt(fd, IPPROTO_TCP, TCP_INFO, whole, &size));
        say("asked for %d: %d bytes, the rest unchanged %d", asked[i], size, whole[size] == 0xee);
    }
    size = sizeof whole;
    getsockopt(fd, IPPROTO_TCP, TCP_INFO, whole, &size);
    /* bytes_acked, notsent_bytes, min_rtt, snd_wnd, rcv_wnd of linux/tcp.h; libc's structure is shorter. */
    unsigned long acked;
    unsigned unsent, min_rtt, windows[2];
    memcpy(&acked, whole + 120, 8), memcpy(&unsent, whole + 144, 4), memcpy(&min_rtt, whole + 148, 4);
    memcpy(windows, whole + 228, 8);
    say("acked %d unsent %u rtt %d windows %d %d", acked >= 5, unsent, min_rtt > 0, windows[0] > 1000, windows[1] > 1000);
}

static void options(void) {
    int fd = begin();
    option(fd, "type", SOL_SOCKET, SO_TYPE);
    option(fd, "domain", SOL_SOCKET, SO_DOMAIN);
    option(fd, "error", SOL_SOCKET, SO_ERROR);
    option(fd, "accepts", SOL_SOCKET, SO_ACCEPTCONN);
    set(fd, "nodelay", IPPROTO_TCP, TCP_NODELAY, 0);
    set(fd, "nodelay", IPPROTO_TCP, TCP_NODELAY, 1);
    option(fd, "keepalive", SOL_SOCKET, SO_KEEPALIVE);
    set(fd, "keepalive", SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, "keepidle", IPPROTO_TCP, TCP_KEEPIDLE, 77);
    set(fd, "keepintvl", IPPROTO_TCP, TCP_KEEPINTVL, 7);
    set(fd, "keepcnt", IPPROTO_TCP, TCP_KEEPCNT, 5);
    set(fd, "keepcnt", IPPROTO_TCP, TCP_KEEPCNT, 500);
    set(fd, "user timeout", IPPROTO_TCP, TCP_USER_TIMEOUT, 9000);
    set(fd, "cork", IPPROTO_TCP, TCP_CORK, 1);
    SAY("corked", send(fd, "to", 2, 0));
    set(fd, "nodelay", IPPROTO_TCP, TCP_NODELAY, 0);
    SAY("corked", send(fd, "get", 3, MSG_MORE));
    set(fd, "cork", IPPROTO_TCP, TCP_CORK, 0);
    set(fd, "nodelay", IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, "tos", IPPROTO_IP, IP_TOS, 0x10);
    set(fd, "send buffer", SOL_SOCKET, SO_SNDBUF, 50000);
    set(fd, "receive buffer", SOL_SOCKET, SO_RCVBUF, 50000);
    struct linger linger = {1, 3};
    SAY("set linger", setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    option(fd, "linger", SOL_SOCKET, SO_LINGER);
    linger.l_onoff = 0;
    SAY("unset linger", setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    struct timeval time = {1, 500000};
    SAY("set timeout", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    option(fd, "timeout", SOL_SOCKET, SO_RCVTIMEO);
    struct tcp_info info = {0};
    socklen_t size = sizeof info.tcpi_state;
    SAY("info", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size));
    say("state %d", info.tcpi_state);
    facts(fd);
    option(fd, "unknown", IPPROTO_TCP, 9999);
    order("send", 5);
    arrived(fd, 5);
    char buf[8];
    SAY("read", read(fd, buf, 8));
    end(fd);
}

static void reads(void) {
    int fd = begin();
    char buf[100];
    SAY("dontwait", recv(fd, buf, 100, MSG_DONTWAIT));
    order("send", 20);
    arrived(fd, 20);
    SAY("peek", recv(fd, buf, 10, MSG_PEEK));
    SAY("peek all", recv(fd, buf, 100, MSG_PEEK | MSG_DONTWAIT));
    SAY("nothing", read(fd, buf, 0));
    SAY("read", read(fd, buf, 3));
    say("right %d", right(buf, 0, 3));
    struct iovec nowhere = {NULL, 10};
    SAY("null", readv(fd, &nowhere, 1));
    struct iovec backwards[2] = {{buf, 1}, {buf, (size_t)-1}};
    SAY("negative length", readv(fd, backwards, 2));
    struct msghdr none = {.msg_iov = backwards, .msg_iovlen = 2}, many = {.msg_iov = backwards, .msg_iovlen = 1025};
    SAY("negative length", recvmsg(fd, &none, 0));
    SAY("too many", recvmsg(fd, &many, 0));
    SAY("recv", recv(fd, buf, 3, 0));
    say("right %d", right(buf, 3, 3));
    SAY("trunc", recv(fd, NULL, 4, MSG_TRUNC));
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    SAY("recvfrom", recvfrom(fd, buf, 2, 0, (void *)&from, &size));
    say("right %d", right(buf, 10, 2));
    struct iovec iov[2] = {{buf, 1}, {buf + 1, 2}};
    SAY("readv", readv(fd, iov, 2));
    say("right %d", right(buf, 12, 3));
    struct msghdr msg = {.msg_name = &from, .msg_namelen = 16, .msg_iov = iov, .msg_iovlen = 2};
    SAY("recvmsg", recvmsg(fd, &msg, 0));
    say("right %d flags %d name %d", right(buf, 15, 3), msg.msg_flags, msg.msg_namelen);
    SAY("preadv2", preadv2(fd, iov, 2, -1, 0));
    say("right %d", right(buf, 18, 2));
    SAY("oob", recv(fd, buf, 1, MSG_OOB));
    SAY("error queue", recv(fd, buf, 1, MSG_ERRQUEUE));
    SAY("pread", pread(fd, buf, 1, 0));
    tell("send", 50);
    SAY("waitall", recv(fd, buf, 50, MSG_WAITALL));
    say("right %d", right(buf, 0, 50));
    answer();
    order("send", 9);
    arrived(fd, 9);
    struct iovec beyond[4] = {{buf, 1}, {buf + 1, LONG_MAX}, {buf, LONG_MAX}, {buf, LONG_MAX}};
    SAY("beyond the address space", readv(fd, beyond, 4));
    /* Longer than one call may move, but within the address space. */
    static char low[9];
    struct iovec much[2] = {{low, 1}, {low + 1, 1L << 40}};
    SAY("more than one call moves", readv(fd, much, 2));
    say("right %d", right(low, 0, 9));
    order("send", 30);
    order("shut", 0);
    ended(fd);
    SAY("waitall at the end", recv(fd, buf, 100, MSG_WAITALL));
    SAY("the end", read(fd, buf, 100));
    SAY("the end", recv(fd, buf, 100, MSG_PEEK));
    end(fd);
}

static void messages(void) {
    int fd = begin();
    char out[40], in[40];
    for (int i = 0; i < 40; i++) out[i] = byte_at(i);
    struct iovec iov[4] = {{out, 10}, {out + 10, 10}, {out + 20, 10}, {out + 30, 10}};
    struct mmsghdr all[2] = {{.msg_hdr = {.msg_iov = iov, .msg_iovlen = 2}}, {.msg_hdr = {.msg_iov = iov + 2, .msg_iovlen = 2}}};
    SAY("sendmmsg", sendmmsg(fd, all, 2, 0));
    say("lengths %d %d", all[0].msg_len, all[1].msg_len);
    say("peer got %ld", order("echo", 40));
    arrived(fd, 40);
    struct iovec in_iov[2] = {{in, 25}, {in + 25, 15}};
    struct mmsghdr ins[2] = {{.msg_hdr = {.msg_iov = in_iov, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = in_iov + 1, .msg_iovlen = 1}}};
    SAY("recvmmsg", recvmmsg(fd, ins, 2, 0, NULL));
    say("lengths %d %d right %d", ins[0].msg_len, ins[1].msg_len, right(in, 0, 40));
    struct iovec backwards[2] = {{out, 10}, {out, (size_t)-1}};
    SAY("negative length", writev(fd, backwards, 2));
    struct msghdr none = {.msg_iov = backwards, .msg_iovlen = 2}, many = {.msg_iov = backwards, .msg_iovlen = 1025};
    SAY("negative length", sendmsg(fd, &none, 0));
    SAY("too many", sendmsg(fd, &many, 0));
    SAY("writev", writev(fd, iov, 4));
    SAY("pwritev2", pwritev2(fd, iov, 1, -1, 0));
    SAY("send more", send(fd, out + 10, 10, MSG_MORE));
    SAY("sendto", sendto(fd, out + 20, 10, 0, NULL, 0));
    struct msghdr msg = {.msg_iov = iov + 3, .msg_iovlen = 1};
    SAY("sendmsg", sendmsg(fd, &msg, 0));
    SAY("write", write(fd, out, 0));
    SAY("syscall", syscall(SYS_write, fd, out, 5));
    SAY("pwrite", pwrite(fd, out, 1, 0));
    say("peer got %ld", order("echo", 85));
    arrived(fd, 85);
    char back[85];
    SAY("syscall", syscall(SYS_recvfrom, fd, back, 40L, 0, NULL, NULL));
    SAY("read", read(fd, back + 40, 45));
    say("right %d %d", right(back, 0, 40), right(back + 40, 40, 45));
    end(fd);
}

static void send_files(int fd, int file) {
    int count = 0;
    for (int i = 0; i < 100000; i++) {
        char byte = byte_at(i);
        count += write(file, &byte, 1);
    }
    off_t at = 10;
    SAY("sendfile", sendfile(fd, file, &at, 1000));
    say("at %ld", (long)at);
    say("peer got %ld", order("recv", 1000));
    lseek(file, 99000, SEEK_SET);
    SAY("sendfile to the end", sendfile(fd, file, NULL, 5000));
    say("position %ld", (long)lseek(file, 0, SEEK_CUR));
    say("peer got %ld", order("recv", 1000));
    at = 0;
    tell("recv", 100000);
    long put = 0;
    while (put < 100000) put += sendfile(fd, file, &at, 100000 - put);
    say("peer got %ld", answer());
}

static void files(void) {
    int fd = begin();
    FILE *on_disk = tmpfile();
    if (!on_disk) die("tmpfile");
    int in_memory = memfd_create("calls", MFD_CLOEXEC);
    send_files(fd, in_memory);
    send_files(fd, fileno(on_disk));
    close(in_memory);
    fclose(on_disk);
    int ends[2];
    if (pipe(ends)) die("pipe");
    say("piped %ld", (long)write(ends[1], "splice", 6));
    SAY("splice by number", syscall(SYS_splice, (long)ends[0], NULL, (long)fd, NULL, 6L, 0L));
    say("peer got %ld", order("echo", 6));
    char buf[10] = "";
    SAY("read", recv(fd, buf, 6, MSG_WAITALL));
    say("%s", buf);
    end(fd);
    fd = begin();
    FILE *out = fdopen(dup(fd), "w"), *in = fdopen(fd, "r");
    fprintf(out, "%d lines\n", 1);
    fflush(out);
    say("peer got %ld", order("echo", 8));
    say("read %s", fgets(buf, 9, in));
    fclose(out);
    fclose(in);
    order("close", 0);
}

static void polls(void) {
    int fd = begin(), ends[2];
    char buf[100];
    if (pipe(ends)) die("pipe");
    say("idle %x", revents(fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0));
    say("timeout %x", revents(fd, POLLIN, 20));
    tell("send", 10);
    say("waited %x", revents(fd, POLLIN, 3000));
    answer();
    struct pollfd all[4] = {{ends[0], POLLIN, 0}, {fd, POLLIN | POLLOUT, 0}, {-1, POLLIN, 7}, {ends[1], POLLOUT, 0}};
    SAY("mixed", poll(all, 4, 1000));
    say("%x %x %x %x", all[0].revents, all[1].revents, all[2].revents, all[3].revents);
    struct timespec time = {0, 1000000};
    SAY("ppoll", ppoll(all, 2, &time, NULL));
    fd_set in, out;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(fd, &in);
    FD_SET(ends[0], &in);
    FD_SET(fd, &out);
    struct timeval long_time = {3, 0};
    SAY("select", select(fd + 3, &in, &out, NULL, &long_time));
    say("%d %d %d", !!FD_ISSET(fd, &in), !!FD_ISSET(ends[0], &in), !!FD_ISSET(fd, &out));
    SAY("read", read(fd, buf, 100));
    FD_ZERO(&in);
    FD_SET(fd, &in);
    SAY("pselect", pselect(fd + 1, &in, NULL, NULL, &time, NULL));
    say("%d", !!FD_ISSET(fd, &in));
    say("piped %ld", (long)write(ends[1], "x", 1));
    all[1].events = POLLIN;
    SAY("pipe event", poll(all, 2, -1));
    say("%x %x", all[0].revents, all[1].revents);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    long filled = 0, put;
    char *block = calloc(1, 1 << 16);
    /* The peer's kernel accepts data until its buffer is full too. */
    do
        while ((put = write(fd, block, 1 << 16)) > 0) filled += put;
    while (revents(fd, POLLOUT, 200) & POLLOUT);
    while ((put = write(fd, block, 1 << 16)) > 0) filled += put;
    say("no room: %s", name_of(errno));
    say("full %x", revents(fd, POLLOUT, 0));
    tell("recv", filled);
    say("room %x", revents(fd, POLLOUT, 5000));
    say("peer got all %d", answer() == filled);
    order("shut", 0);
    ended(fd);
    say("peer's end %x", revents(fd, POLLIN | POLLOUT | POLLRDHUP, 0));
    SAY("shutdown", shutdown(fd, SHUT_WR));
    say("both ends %x", revents(fd, POLLIN | POLLOUT | POLLRDHUP, 0));
    SAY("write", send(fd, "x", 1, MSG_NOSIGNAL));
    SAY("read", read(fd, buf, 1));
    end(fd);
    free(block);
}

static void timeouts(void) {
    int fd = begin();
    char buf[10];
    struct timeval time = {0, 50000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    SAY("timeout", read(fd, buf, 10));
    SAY("timeout, some", recv(fd, buf, 10, MSG_WAITALL));
    order("send", 5);
    arrived(fd, 5);
    SAY("some of it", recv(fd, buf, 10, MSG_WAITALL));
    int on = 1;
    SAY("fionbio", ioctl(fd, FIONBIO, &on));
    SAY("without waiting", read(fd, buf, 10));
    say("flags %d", !!(fcntl(fd, F_GETFL) & O_NONBLOCK));
    end(fd);
}

struct test { const char *name; void (*run)(void); };

#include "more.h"
#include "rest.h"
#include "rare.h"
#include "mistaken.h"
#include "kinds.h"
#include "canary.h"
#include "urgent.h"
#include "nested.h"
#include "settings.h"

int main(int count, char **words) {
    const struct test own[] = {{"names", names}, {"options", options}, {"reads", reads}, {"messages", messages},
                               {"files", files}, {"polls", polls}, {"timeouts", timeouts}, {NULL, NULL}};
    if (count == 3 && !strcmp(words[1], "peer")) return be_the_peer(words[2]);
    if (count == 4 && !strcmp(words[1], "resumed")) return resumed(atoi(words[2]), words);
    if (count == 4 && !strcmp(words[1], "stranger")) return stranger(atoi(words[2]));
    if (count != 4) return 8;
    peer_host = words[2];
    self = words[0];
    orders_fd = connected(peer_host, ORDERS, SOCK_CLOEXEC);
    for (const struct test *list[] = {own, more, rest, rare, mistakes, kinds, canaries, urgent, nested, how}, **at = list; at < list + 10; at++)
        for (const struct test *test = *at; test->name; test++)
            if (!strcmp(words[3], "all") || !strcmp(words[3], test->name)) {
                say("== %s", test->name);
                test->run();
            }
    return 0;
}
