/* Two engines that exchange frames: messages in parts, and bytes that are peeked at,
 * discarded and counted. */
#include "expect.h"

#include <baton.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

static baton *ends[2];
static uint64_t now_ns = 1000000;
static int peer = -1;
/* The message that the peer sends while the other end waits. */
static const char *later;

static int step(void *arg, uint64_t until_ns)
{
    static unsigned char frame[2048];
    ssize_t len;
    (void)arg;
    (void)until_ns;
    now_ns += 100000;
    for (int from = 0; from < 2; from++) {
        EXPECT(baton_drive(ends[from], now_ns) == 0);
        while ((len = baton_output(ends[from], frame, sizeof frame)) > 0)
            EXPECT(baton_input(ends[1 - from], frame, (size_t)len) == 0);
    }
    if (later && baton_send(ends[1], peer, later, strlen(later), MSG_DONTWAIT) > 0)
        later = NULL;
    return 0;
}

static void steps(int count)
{
    while (count--)
        step(NULL, 0);
}

static int asked(int fd, unsigned long request)
{
    int count = -1;
    EXPECT(baton_ioctl(ends[0], fd, request, &count) == 0);
    return count;
}

static baton *engine(const char *address)
{
    baton_config config;
    EXPECT(baton_config_default(&config) == 0);
    config.addresses = address;
    config.ethernet = 0;
    config.now_ns = now_ns;
    config.wait = step;
    return baton_new(&config, NULL, 0);
}

int main(void)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(7)};
    EXPECT(inet_pton(AF_INET, "10.0.0.2", &sin.sin_addr) == 1);
    ends[0] = engine("10.0.0.1/24");
    ends[1] = engine("10.0.0.2/24");
    EXPECT(ends[0] && ends[1]);
    int listener = baton_socket(ends[1], AF_INET, SOCK_STREAM, 0), fd = baton_socket(ends[0], AF_INET, SOCK_STREAM, 0);
    EXPECT(baton_bind(ends[1], listener, (struct sockaddr *)&sin, sizeof sin) == 0);
    EXPECT(baton_listen(ends[1], listener, 1) == 0);
    EXPECT(baton_connect(ends[0], fd, (struct sockaddr *)&sin, sizeof sin) == 0);
    steps(5);
    EXPECT((peer = baton_accept4(ends[1], listener, NULL, NULL, 0)) >= 0);

    char a[4] = "", b[5] = "", c[16] = "";
    struct iovec parts[3] = {{a, 3}, {b, 4}, {c, 15}};
    struct msghdr msg = {.msg_iov = parts, .msg_iovlen = 3, .msg_flags = 77, .msg_namelen = 9};
    EXPECT(baton_recvmsg(ends[0], fd, &msg, MSG_PEEK | MSG_DONTWAIT) == -1 && errno == EAGAIN);

    /* A peek removes nothing, and fills part after part. */
    later = "0123456789";
    EXPECT(baton_recvmsg(ends[0], fd, &msg, MSG_PEEK) == 10);
    EXPECT(!strcmp(a, "012") && !strcmp(b, "3456") && !strcmp(c, "789"));
    EXPECT(msg.msg_flags == 0 && msg.msg_namelen == 0 && msg.msg_controllen == 0);
    EXPECT(asked(fd, FIONREAD) == 10);

    /* MSG_TRUNC needs no buffer. */
    EXPECT(baton_recv(ends[0], fd, NULL, 4, MSG_TRUNC) == 4);
    EXPECT(baton_recv(ends[0], fd, NULL, 100, MSG_TRUNC | MSG_PEEK) == 6);
    EXPECT(asked(fd, FIONREAD) == 6);

    /* The call returns what is there, unless MSG_WAITALL asks for all. */
    msg.msg_iovlen = 2;
    later = "abcd";
    EXPECT(baton_recvmsg(ends[0], fd, &msg, 0) == 6 && !strcmp(a, "456") && !strncmp(b, "789", 3));
    steps(5);
    later = "efg";
    EXPECT(baton_recvmsg(ends[0], fd, &msg, MSG_WAITALL) == 7 && !strcmp(a, "abc") && !strcmp(b, "defg"));

    /* With TCP_INQ a control message says how many bytes are left. */
    int one = 1;
    union { struct cmsghdr head; char bytes[CMSG_SPACE(sizeof(int))]; } control;
    EXPECT(baton_setsockopt(ends[0], fd, IPPROTO_TCP, TCP_INQ, &one, sizeof one) == 0);
    later = "hijklmnop";
    msg.msg_control = &control;
    msg.msg_controllen = sizeof control;
    EXPECT(baton_recvmsg(ends[0], fd, &msg, 0) == 7 && !msg.msg_flags && msg.msg_controllen == sizeof control);
    struct cmsghdr *first = CMSG_FIRSTHDR(&msg);
    EXPECT(first && first->cmsg_level == IPPROTO_TCP && first->cmsg_type == TCP_CM_INQ);
    EXPECT(first->cmsg_len == CMSG_LEN(sizeof(int)) && *(int *)CMSG_DATA(first) == 2);
    msg.msg_controllen = sizeof control.head;
    EXPECT(baton_recvmsg(ends[0], fd, &msg, 0) == 2 && msg.msg_flags == MSG_CTRUNC && msg.msg_controllen == 0);

    /* In the other direction. */
    memcpy(a, "one", 3);
    memcpy(b, "four", 4);
    EXPECT(baton_sendmsg(ends[0], fd, &msg, MSG_NOSIGNAL) == 7);
    EXPECT(asked(fd, TIOCOUTQ) == 7);
    EXPECT(baton_recv(ends[1], peer, c, 7, MSG_WAITALL) == 7 && !strncmp(c, "onefour", 7));
    steps(5);
    EXPECT(asked(fd, TIOCOUTQ) == 0);

    EXPECT(baton_close(ends[1], peer) == 0);
    EXPECT(baton_recvmsg(ends[0], fd, &msg, MSG_PEEK) == 0);
    EXPECT(baton_free(ends[0]) == 0 && baton_free(ends[1]) == 0);
    puts("OK");
    return 0;
}
