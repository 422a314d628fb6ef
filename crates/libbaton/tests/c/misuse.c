/* A wrong call sets errno and never crashes. The rest of the interface is called too. */
#include "expect.h"

#include <baton.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>

#define FAILS(call, number) EXPECT((call) == -1 && errno == (number))

static baton *self;

static int calls_back(void *arg, uint64_t until_ns)
{
    int *turns = arg;
    /* The engine may be used from here, but not freed. */
    EXPECT(baton_free(self) == -1 && errno == EBUSY);
    EXPECT(baton_drive(self, until_ns == UINT64_MAX ? 0 : until_ns) == 0);
    return ++*turns == 1000;
}

static baton *make(const char *addresses, baton_wait_fn wait, void *arg)
{
    baton_config config;
    EXPECT(baton_config_default(&config) == 0);
    config.addresses = addresses;
    config.wait = wait;
    config.wait_arg = arg;
    config.max_sockets = 8;
    config.ethernet = 0;
    return baton_new(&config, NULL, 0);
}

static void handles(void)
{
    uint64_t other[8] = {0};
    char buf[16];
    FAILS(baton_socket(NULL, AF_INET, SOCK_STREAM, 0), EFAULT);
    FAILS(baton_socket((baton *)other, AF_INET, SOCK_STREAM, 0), EFAULT);
    FAILS(baton_recv((baton *)((char *)other + 1), 3, buf, sizeof buf, 0), EFAULT);
    FAILS(baton_free((baton *)other), EFAULT);
    EXPECT(baton_next_deadline(NULL) == 0 && errno == EFAULT);
    EXPECT(baton_free(NULL) == 0);
}

static void configurations(void)
{
    char why[100];
    baton_config config;
    FAILS(baton_config_default(NULL), EFAULT);
    EXPECT(!baton_new(NULL, why, sizeof why) && errno == EFAULT);
    EXPECT(baton_config_default(&config) == 0);
    EXPECT(!baton_new(&config, why, sizeof why) && errno == EINVAL && strstr(why, "addresses"));
    config.addresses = "10.0.0.1";
    EXPECT(!baton_new(&config, why, sizeof why) && strstr(why, "prefix"));
    EXPECT(!baton_new(&config, why, 5) && strlen(why) == 4);
    config.addresses = "10.0.0.1/24";
    config.buffer_bytes = 5000;
    EXPECT(!baton_new(&config, why, sizeof why) && strstr(why, "buffer_bytes"));
    config.buffer_bytes = 4096;
    config.ecn = 2;
    EXPECT(!baton_new(&config, why, sizeof why) && strstr(why, "ecn"));
    config.ecn = 1;
    config.retries = 0;
    EXPECT(!baton_new(&config, why, sizeof why) && strstr(why, "retries"));
    config.size = 1;
    EXPECT(!baton_new(&config, why, sizeof why) && strstr(why, "size"));
}

static void pointers(baton *b)
{
    int fd = baton_socket(b, AF_INET, SOCK_STREAM, 0), value = 0;
    struct sockaddr_in sin = {.sin_family = AF_INET};
    struct sockaddr *addr = (struct sockaddr *)&sin;
    socklen_t len = sizeof sin;
    EXPECT(fd == 3);
    FAILS(baton_bind(b, fd, NULL, sizeof sin), EFAULT);
    FAILS(baton_bind(b, fd, addr, 3), EINVAL);
    FAILS(baton_bind(b, fd + 1, addr, sizeof sin), EBADF);
    FAILS(baton_bind(b, -1, addr, sizeof sin), EBADF);
    FAILS(baton_bind(b, 0, addr, sizeof sin), EBADF);
    EXPECT(baton_bind(b, fd, addr, sizeof sin) == 0);
    FAILS(baton_getsockname(b, fd, addr, NULL), EFAULT);
    EXPECT(baton_getsockname(b, fd, addr, &len) == 0 && len == sizeof sin && sin.sin_port != 0);
    len = 4; /* truncated, but the full length is reported */
    EXPECT(baton_getsockname(b, fd, addr, &len) == 0 && len == sizeof sin);
    FAILS(baton_getsockopt(b, fd, SOL_SOCKET, SO_TYPE, &value, NULL), EFAULT);
    len = sizeof value;
    FAILS(baton_getsockopt(b, fd, SOL_SOCKET, SO_TYPE, NULL, &len), EFAULT);
    EXPECT(baton_getsockopt(b, fd, SOL_SOCKET, SO_TYPE, &value, &len) == 0 && value == SOCK_STREAM);
    FAILS(baton_setsockopt(b, fd, IPPROTO_TCP, TCP_NODELAY, NULL, 4), EFAULT);
    FAILS(baton_setsockopt(b, fd, IPPROTO_TCP, TCP_NODELAY, &value, 1), EINVAL);
    FAILS(baton_send(b, fd, NULL, 4, 0), EFAULT);
    FAILS(baton_send(b, fd, &value, SIZE_MAX, 0), EINVAL);
    struct iovec part = {NULL, 9};
    FAILS(baton_writev(b, fd, NULL, 1), EFAULT);
    FAILS(baton_writev(b, fd, &part, 5000), EINVAL);
    FAILS(baton_readv(b, fd, &part, 1), EFAULT);
    struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &value, .msg_controllen = sizeof value};
    FAILS(baton_sendmsg(b, fd, NULL, 0), EFAULT);
    FAILS(baton_sendmsg(b, fd, &msg, 0), EINVAL); /* control data */
    FAILS(baton_recvmsg(b, fd, &msg, 0), EFAULT);
    FAILS(baton_recvmsg(b, fd, &msg, MSG_PEEK), ENOTCONN);
    FAILS(baton_recvmsg(b, fd, &msg, MSG_OOB | MSG_TRUNC), EOPNOTSUPP);
    msg.msg_iovlen = 5000;
    FAILS(baton_recvmsg(b, fd, &msg, 0), EMSGSIZE);
    FAILS(baton_ioctl(b, fd, FIONREAD, NULL), EFAULT);
    FAILS(baton_ioctl(b, fd, TCGETS, &value), ENOTTY);
    FAILS(baton_ioctl(b, 77, TCGETS, &value), EBADF);
    FAILS(baton_poll(b, NULL, 1, 0), EFAULT);
    struct pollfd pfd[3] = {{.fd = fd, .events = POLLIN}, {.fd = -1}, {.fd = 77}};
    EXPECT(baton_poll(b, pfd, 3, 0) == 2 && pfd[0].revents == POLLHUP && pfd[2].revents == POLLNVAL);
    value = 1;
    EXPECT(baton_ioctl(b, fd, FIONBIO, &value) == 0);
    EXPECT(baton_fcntl(b, fd, F_GETFL, 0) == (O_RDWR | O_NONBLOCK));
    FAILS(baton_fcntl(b, fd, F_DUPFD, 0), EINVAL);
    EXPECT(baton_close(b, fd) == 0);
    FAILS(baton_close(b, fd), EBADF);
}

static void epolls(baton *b)
{
    int fd = baton_socket(b, AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0), ep = baton_epoll_create1(b, 0);
    struct epoll_event event = {.events = EPOLLOUT, .data.u64 = 99}, out[2];
    EXPECT(fd >= 0 && ep >= 0);
    FAILS(baton_epoll_create1(b, 12345), EINVAL);
    FAILS(baton_epoll_ctl(b, ep, EPOLL_CTL_ADD, fd, NULL), EFAULT);
    FAILS(baton_epoll_ctl(b, ep, EPOLL_CTL_MOD, fd, &event), ENOENT);
    FAILS(baton_epoll_ctl(b, ep, EPOLL_CTL_ADD, ep, &event), EINVAL);
    FAILS(baton_epoll_ctl(b, fd, EPOLL_CTL_ADD, fd, &event), EINVAL);
    EXPECT(baton_epoll_ctl(b, ep, EPOLL_CTL_ADD, fd, &event) == 0);
    FAILS(baton_epoll_ctl(b, ep, EPOLL_CTL_ADD, fd, &event), EEXIST);
    FAILS(baton_epoll_wait(b, ep, NULL, 2, 0), EFAULT);
    FAILS(baton_epoll_wait(b, ep, out, 0, 0), EINVAL);
    FAILS(baton_epoll_wait(b, fd, out, 2, 0), EINVAL);
    EXPECT(baton_epoll_wait(b, ep, out, 2, -1) == 1 && out[0].data.u64 == 99);
    EXPECT(out[0].events == (EPOLLOUT | EPOLLHUP));
    FAILS(baton_recv(b, ep, out, sizeof out, 0), ENOTSOCK);
    EXPECT(baton_epoll_ctl(b, ep, EPOLL_CTL_DEL, fd, NULL) == 0);
    EXPECT(baton_epoll_wait(b, ep, out, 2, 1000) == 0);
    EXPECT(baton_close(b, fd) == 0 && baton_close(b, ep) == 0);
}

static void frames(baton *b)
{
    unsigned char frame[2000];
    memset(frame, 0x45, sizeof frame);
    EXPECT(baton_frame_bytes(b) == 1500);
    FAILS(baton_output(b, frame, 100), EINVAL);
    FAILS(baton_input(b, frame, 1501), EMSGSIZE);
    FAILS(baton_input(b, NULL, 20), EFAULT);
    EXPECT(baton_input(b, frame, 0) == 0 && baton_input(b, frame, 1500) == 0);
    EXPECT(baton_drive(b, 5) == 0 && baton_output(b, frame, sizeof frame) == 0);
    while (baton_input(b, frame, 40) == 0)
        ;
    EXPECT(baton_input(b, frame, 40) == -1 && errno == ENOBUFS);
}

static void blocking(void)
{
    int turns = 0;
    self = make("10.0.0.1/24", calls_back, &turns);
    int fd = baton_socket(self, AF_INET, SOCK_STREAM, 0);
    struct timeval half = {0, 500000};
    EXPECT(baton_listen(self, fd, 1) == 0);
    FAILS(baton_accept4(self, fd, NULL, NULL, 0), EINTR); /* the callback asked to stop */
    turns = 0;
    EXPECT(baton_setsockopt(self, fd, SOL_SOCKET, SO_RCVTIMEO, &half, sizeof half) == 0);
    FAILS(baton_accept4(self, fd, NULL, NULL, 0), EAGAIN); /* the time limit passed */
    EXPECT(turns > 0 && turns < 1000);
    EXPECT(baton_free(self) == 0);

    self = make("10.0.0.1/24", NULL, NULL);
    fd = baton_socket(self, AF_INET, SOCK_STREAM, 0);
    EXPECT(baton_listen(self, fd, 1) == 0);
    FAILS(baton_accept4(self, fd, NULL, NULL, 0), EAGAIN); /* there is no wait callback */
    for (int i = 0; i < 7; i++)
        EXPECT(baton_socket(self, AF_INET, SOCK_STREAM, 0) >= 0);
    FAILS(baton_socket(self, AF_INET, SOCK_STREAM, 0), EMFILE);
    EXPECT(baton_free(self) == 0);
}

int main(void)
{
    handles();
    configurations();
    baton *b = make("10.0.0.1/24 fd00::1/64", NULL, NULL);
    EXPECT(b);
    FAILS(baton_socket(b, AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
    FAILS(baton_socket(b, AF_INET, SOCK_DGRAM, 0), EPROTOTYPE);
    FAILS(baton_socket(b, AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
    pointers(b);
    epolls(b);
    frames(b);
    EXPECT(baton_free(b) == 0);
    blocking();
    puts("OK");
    return 0;
}
