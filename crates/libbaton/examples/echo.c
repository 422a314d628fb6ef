/* Two engines in one program, which passes frames from one to the other. One engine
 * listens and echoes, driven by epoll. The other connects and checks the echo, first with
 * a non-blocking client, then with a blocking one.
 *
 *   cc echo.c $(pkg-config --cflags --libs libbaton) -o echo && ./echo
 */
#include <baton.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOTAL 1000000

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

/* --- time, and a wire between the two engines --- */

static baton *server, *client;
static uint64_t now_ns = 1000000000;

static int carry(baton *from, baton *to)
{
    static unsigned char frame[2048];
    ssize_t len;
    int moved = 0;
    while ((len = baton_output(from, frame, sizeof frame)) > 0) {
        /* A full queue drops the frame, as a wire would. */
        baton_input(to, frame, (size_t)len);
        moved = 1;
    }
    check(len == 0, "baton_output");
    return moved;
}

static int echo_turn(void);

/* One step of the simulation. If the wire is idle, time advances to the next deadline. */
static void step(uint64_t until_ns)
{
    check(baton_drive(client, now_ns) == 0, "baton_drive");
    check(baton_drive(server, now_ns) == 0, "baton_drive");
    int busy = carry(client, server) | carry(server, client) | echo_turn();
    if (!busy) {
        uint64_t next = baton_next_deadline(client), other = baton_next_deadline(server);
        next = next < other ? next : other;
        next = next < until_ns ? next : until_ns;
        now_ns = next > now_ns && next != UINT64_MAX ? next : now_ns + 1000000;
    }
}

static int wait_cb(void *arg, uint64_t until_ns)
{
    (void)arg;
    step(until_ns);
    return 0;
}

static baton *engine(const char *address)
{
    char why[200] = "";
    baton_config config;
    check(baton_config_default(&config) == 0, "baton_config_default");
    config.addresses = address;
    config.now_ns = now_ns;
    config.wait = wait_cb;
    baton *b = baton_new(&config, why, sizeof why);
    if (!b) {
        fprintf(stderr, "baton_new: %s\n", why);
        exit(1);
    }
    return b;
}

static struct sockaddr_in address(const char *text, uint16_t port)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};
    check(inet_pton(AF_INET, text, &sin.sin_addr) == 1, "inet_pton");
    return sin;
}

/* --- the server: an echo with epoll, and one buffer for each connection --- */

struct peer {
    int fd;
    size_t len, done;
    char buf[65536];
};

static int epfd, listener;

static void watch(int op, int fd, uint32_t events, void *ptr)
{
    struct epoll_event event = {.events = events, .data.ptr = ptr};
    check(baton_epoll_ctl(server, epfd, op, fd, &event) == 0, "baton_epoll_ctl");
}

static void serve(struct peer *peer)
{
    for (;;) {
        if (peer->done == peer->len) {
            ssize_t got = baton_recv(server, peer->fd, peer->buf, sizeof peer->buf, 0);
            if (got < 0 && errno == EAGAIN)
                return;
            if (got <= 0) {
                check(got == 0, "baton_recv");
                check(baton_close(server, peer->fd) == 0, "baton_close");
                free(peer);
                return;
            }
            peer->len = (size_t)got;
            peer->done = 0;
        }
        ssize_t sent = baton_send(server, peer->fd, peer->buf + peer->done, peer->len - peer->done, 0);
        if (sent < 0 && errno == EAGAIN)
            return;
        check(sent > 0, "baton_send");
        peer->done += (size_t)sent;
    }
}

static int echo_turn(void)
{
    struct epoll_event events[16];
    int count = baton_epoll_wait(server, epfd, events, 16, 0);
    check(count >= 0, "baton_epoll_wait");
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr) {
            serve(events[i].data.ptr);
            continue;
        }
        int fd = baton_accept4(server, listener, NULL, NULL, SOCK_NONBLOCK);
        check(fd >= 0, "baton_accept4");
        struct peer *peer = calloc(1, sizeof *peer);
        peer->fd = fd;
        watch(EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, peer);
    }
    return count > 0;
}

/* --- the clients --- */

/* The byte at a stream position: a ramp whose period is a prime number. */
static char ramp(size_t at)
{
    return (char)(at % 251);
}

static void check_info(int fd)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    check(baton_getsockopt(client, fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0, "TCP_INFO");
    check(info.tcpi_state == TCP_ESTABLISHED && info.tcpi_snd_mss > 500, "the values of TCP_INFO");
}

static void nonblocking_client(const struct sockaddr_in *to)
{
    int fd = baton_socket(client, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    check(fd >= 0, "baton_socket");
    check(baton_connect(client, fd, (const struct sockaddr *)to, sizeof *to) == -1 && errno == EINPROGRESS, "connect");
    struct pollfd pfd = {.fd = fd, .events = POLLOUT};
    while (baton_poll(client, &pfd, 1, 0) == 0)
        step(UINT64_MAX);
    int error = -1;
    socklen_t len = sizeof error;
    check(baton_getsockopt(client, fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0, "SO_ERROR");

    size_t sent = 0, got = 0;
    char buf[9973];
    while (got < TOTAL) {
        size_t part = TOTAL - sent < sizeof buf ? TOTAL - sent : sizeof buf;
        for (size_t i = 0; i < part; i++)
            buf[i] = ramp(sent + i);
        ssize_t count = part ? baton_send(client, fd, buf, part, MSG_NOSIGNAL) : 0;
        check(count >= 0 || errno == EAGAIN, "baton_send");
        sent += count > 0 ? (size_t)count : 0;
        if (count > 0 && sent == TOTAL) {
            check_info(fd);
            check(baton_shutdown(client, fd, SHUT_WR) == 0, "baton_shutdown");
        }
        while ((count = baton_recv(client, fd, buf, sizeof buf, 0)) > 0)
            for (ssize_t i = 0; i < count; i++, got++)
                check(buf[i] == ramp(got), "the echo");
        check(count == 0 || errno == EAGAIN, "baton_recv");
        step(UINT64_MAX);
    }
    check(baton_close(client, fd) == 0, "baton_close");
}

static void blocking_client(const struct sockaddr_in *to)
{
    static char out[TOTAL], in[TOTAL];
    for (size_t i = 0; i < TOTAL; i++)
        out[i] = ramp(i);
    int fd = baton_socket(client, AF_INET, SOCK_STREAM, 0);
    check(fd >= 0, "baton_socket");
    check(baton_connect(client, fd, (const struct sockaddr *)to, sizeof *to) == 0, "baton_connect");
    for (size_t at = 0; at < TOTAL; at += TOTAL / 10) {
        check(baton_send(client, fd, out + at, TOTAL / 10, 0) == TOTAL / 10, "baton_send");
        check(baton_recv(client, fd, in + at, TOTAL / 10, MSG_WAITALL) == TOTAL / 10, "baton_recv");
    }
    check(memcmp(in, out, TOTAL) == 0, "the echo");
    check(baton_shutdown(client, fd, SHUT_WR) == 0, "baton_shutdown");
    check(baton_recv(client, fd, in, 1, 0) == 0, "the end");
    check(baton_close(client, fd) == 0, "baton_close");
}

int main(void)
{
    server = engine("10.0.0.1/24");
    client = engine("10.0.0.2/24");
    struct sockaddr_in at = address("10.0.0.1", 7);

    epfd = baton_epoll_create1(server, 0);
    listener = baton_socket(server, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    check(epfd >= 0 && listener >= 0, "baton_socket");
    check(baton_bind(server, listener, (struct sockaddr *)&at, sizeof at) == 0, "baton_bind");
    check(baton_listen(server, listener, 16) == 0, "baton_listen");
    watch(EPOLL_CTL_ADD, listener, EPOLLIN, NULL);

    nonblocking_client(&at);
    blocking_client(&at);

    /* Let the FINs arrive before the end. */
    for (int i = 0; i < 100; i++)
        step(UINT64_MAX);
    check(baton_free(client) == 0 && baton_free(server) == 0, "baton_free");
    puts("OK");
    return 0;
}
