/* Baton: TCP sockets on an engine that the caller drives.
 *
 * Made from the sources by a test; see crates/libbaton/tests/header.
 *
 * Calls named after those of POSIX do what POSIX says, with Linux's numbers: they
 * return -1 and set errno. A handle that is none fails with EFAULT. SIGPIPE is never
 * raised.
 *
 * An engine's calls start no thread and read no clock. One thread at a time may use
 * an engine; a call that finds another in progress fails with EBUSY. After an
 * internal error every call on the engine fails with EIO.
 *
 * The calls baton_service_... and baton_stream_... hand sockets of the kernel to a
 * Baton service, which has engine and privileges. A connection to a service has a
 * thread of its own, which takes no signals. Any number of threads may call at once.
 * An internal error is EIO.
 *
 * In a child made by fork(2) every call on its parent's handles fails with ENOTCONN,
 * except those that free them: baton_stream_close closes the child's copy of the
 * descriptor there, and leaves the parent's connection alone. A child may connect to
 * the service by itself; whose connection it is to have restores it before. */
#ifndef BATON_H
#define BATON_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An engine and its sockets. */
typedef struct baton baton;

/* A connection to a service. */
typedef struct baton_service baton_service;

/* A stream over a connection that may move. */
typedef struct baton_stream baton_stream;

/* Makes time pass. */
typedef int (*baton_wait_fn)(void *arg, uint64_t until_ns);

/* Congestion control: CUBIC (RFC 9438), the default. */
#define BATON_CUBIC 0

/* Congestion control: NewReno (RFC 6582). */
#define BATON_RENO 1

/* What an engine is made with. Fill it by `baton_config_default`, then set at
 * least `addresses`. Nothing that it points to is needed after `baton_new`. */
typedef struct baton_config {
    /* Bytes of this structure. */
    size_t size;
    /* Addresses with prefix lengths, separated by spaces:
     * `"10.77.0.2/24 fd00::2/64"`. */
    const char *addresses;
    /* Where IPv4 packets for other networks go; NULL for nowhere. */
    const char *gateway_v4;
    /* Where IPv6 packets for other networks go; NULL for nowhere. */
    const char *gateway_v6;
    /* Frames have an Ethernet header (1, the default), or are bare IP packets (0). */
    int ethernet;
    /* Ethernet address; all zero for a random one. */
    uint8_t mac[6];
    /* Largest IP packet in bytes; default 1500. */
    uint16_t mtu;
    /* 32 random bytes for sequence numbers and SYN cookies; NULL for the
     * process's own source. */
    const uint8_t *secret;
    /* `BATON_CUBIC` or `BATON_RENO`. */
    int congestion;
    /* Sockets at most, those that wait to be accepted included; default 4096. */
    uint32_t max_sockets;
    /* Bytes of each socket's send and receive buffer, a power of two; default
     * 262144. Memory is taken as it is used. */
    uint32_t buffer_bytes;
    /* Frames that wait in each direction at most; default 1024. */
    uint32_t queue_frames;
    /* Stay in TIME-WAIT in milliseconds; default 60000. */
    uint32_t time_wait_ms;
    /* Selective acknowledgments are offered and taken (RFC 2018): 1, the default, or 0. */
    int sack;
    /* Timestamps are offered and taken (RFC 7323 §3): 1, the default, or 0. */
    int timestamps;
    /* Windows are scaled (RFC 7323 §2): 1, the default, or 0. */
    int window_scaling;
    /* ECN is asked for and granted (RFC 3168): 0, the default, or 1. */
    int ecn;
    /* SYNs repeated before a connect fails, 1 to 127; default 7, which is 247 s (Linux's
     * `tcp_syn_retries`). */
    uint8_t syn_retries;
    /* SYN-ACKs repeated before a half-open connection is forgotten, 1 to 127; default 5
     * (`tcp_synack_retries`). */
    uint8_t synack_retries;
    /* Data repeated without progress before a connection is given up, 1 to 127; default 15
     * (`tcp_retries2`). */
    uint8_t retries;
    /* The time at the start, in nanoseconds of the caller's clock. */
    uint64_t now_ns;
    /* What blocking calls wait by, or NULL. It is to move frames in and out, let
     * time pass until `until_ns` at most, call `baton_drive`, and return 0; else
     * the call that waits fails with `EINTR`. It may use other calls on the
     * engine, but may not free it. */
    baton_wait_fn wait;
    /* Passed to `wait`. */
    void *wait_arg;
} baton_config;

/* Fills a configuration with the defaults. Returns 0, or -1 with `errno` set.
 *
 * `config` is NULL or leads to a `baton_config` to be written. */
int baton_config_default(baton_config *config);

/* Makes an engine. NULL on failure, with `errno` set; then `err`, if it is not
 * NULL, has a line of at most `err_len` bytes that says why.
 *
 * `config` leads to a configuration whose strings end in a zero byte; `err` is
 * NULL or leads to `err_len` bytes. */
baton *baton_new(const baton_config *config, char *err, size_t err_len);

/* Frees an engine and all its sockets; peers hear nothing. NULL is no error.
 * Returns 0, or -1 with `errno` set: `EBUSY` while a call is in progress.
 *
 * `b` is NULL or came from `baton_new`. */
int baton_free(baton *b);

/* Gives one frame to the engine; `baton_drive` then looks at it. Returns 0, or
 * -1 with `errno` set: `ENOBUFS` if too many wait, `EMSGSIZE` if it is longer
 * than `baton_frame_bytes`. A frame that was not taken may be dropped.
 *
 * `frame` leads to `len` bytes. */
int baton_input(baton *b, const void *frame, size_t len);

/* Takes one frame to be sent: its length, 0 if there is none, or -1 with `errno`
 * set: `EINVAL` if `cap` is less than `baton_frame_bytes`.
 *
 * `buf` leads to `cap` bytes. */
ssize_t baton_output(baton *b, void *buf, size_t cap);

/* Bytes of the largest frame that comes or goes; -1 with `errno` set.
 *
 * `b` came from `baton_new`. */
ssize_t baton_frame_bytes(baton *b);

/* Lets the engine work, at time `now_ns` of the caller's clock: frames given,
 * timers due, what calls asked for. Returns 0, or -1 with `errno` set.
 *
 * `b` came from `baton_new`. */
int baton_drive(baton *b, uint64_t now_ns);

/* When `baton_drive` has something to do, in nanoseconds of the caller's clock,
 * if no frame comes and no call is made before: `UINT64_MAX` for never, a time
 * that has passed for now. 0 with `errno` set if `b` is no engine.
 *
 * `b` came from `baton_new`. */
uint64_t baton_next_deadline(baton *b);

/* `socket(2)`: AF_INET or AF_INET6, SOCK_STREAM, with SOCK_NONBLOCK or without.
 * The descriptor is the engine's and means nothing to the kernel.
 *
 * `b` came from `baton_new`. */
int baton_socket(baton *b, int domain, int kind, int protocol);

/* `bind(2)`.
 *
 * `addr` leads to `len` bytes. */
int baton_bind(baton *b, int fd, const struct sockaddr *addr, socklen_t len);

/* `listen(2)`.
 *
 * `b` came from `baton_new`. */
int baton_listen(baton *b, int fd, int backlog);

/* `accept4(2)`.
 *
 * `addr` and `len` are NULL, or `addr` leads to `*len` bytes. */
int baton_accept4(baton *b, int fd, struct sockaddr *addr, socklen_t *len, int flags);

/* `connect(2)`. A blocking socket waits by the engine's wait callback; without
 * one, and on a non-blocking socket, it fails with `EINPROGRESS` and is connected
 * once the socket is writable.
 *
 * `addr` leads to `len` bytes. */
int baton_connect(baton *b, int fd, const struct sockaddr *addr, socklen_t len);

/* `shutdown(2)`: SHUT_RD, SHUT_WR or SHUT_RDWR.
 *
 * `b` came from `baton_new`. */
int baton_shutdown(baton *b, int fd, int how);

/* `close(2)`, of sockets and epoll instances.
 *
 * `b` came from `baton_new`. */
int baton_close(baton *b, int fd);

/* `getsockname(2)`.
 *
 * `addr` leads to `*len` bytes. */
int baton_getsockname(baton *b, int fd, struct sockaddr *addr, socklen_t *len);

/* `getpeername(2)`.
 *
 * `addr` leads to `*len` bytes. */
int baton_getpeername(baton *b, int fd, struct sockaddr *addr, socklen_t *len);

/* `fcntl(2)` with F_GETFL (`arg` is not looked at) or F_SETFL (of O_NONBLOCK).
 *
 * `b` came from `baton_new`. */
int baton_fcntl(baton *b, int fd, int cmd, int arg);

/* `ioctl(2)` with FIONREAD (SIOCINQ), TIOCOUTQ (SIOCOUTQ) or FIONBIO.
 *
 * `arg` leads to an `int`. */
int baton_ioctl(baton *b, int fd, unsigned long request, int *arg);

/* `send(2)` with MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL (always so) and MSG_EOR (which marks
 * nothing: TCP has no records).
 *
 * `buf` leads to `len` bytes. */
ssize_t baton_send(baton *b, int fd, const void *buf, size_t len, int flags);

/* `recv(2)` with MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL and MSG_TRUNC, which drops the
 * bytes and tells how many they were (`buf` may be NULL).
 *
 * `buf` leads to `len` bytes. */
ssize_t baton_recv(baton *b, int fd, void *buf, size_t len, int flags);

/* `writev(2)`.
 *
 * `parts` leads to `count` entries, each to as many bytes as it says. */
ssize_t baton_writev(baton *b, int fd, const struct iovec *parts, int count);

/* `readv(2)`.
 *
 * `parts` leads to `count` entries, each to as many bytes as it says. */
ssize_t baton_readv(baton *b, int fd, const struct iovec *parts, int count);

/* `sendmsg(2)`, with the flags of `baton_send`. An address is not looked at, as on
 * every connected socket; control data is refused with EINVAL.
 *
 * `msg` leads to a message whose parts each lead to as many bytes as they say. */
ssize_t baton_sendmsg(baton *b, int fd, const struct msghdr *msg, int flags);

/* `recvmsg(2)`, with the flags of `baton_recv`. There is no address, and no control data
 * but TCP_CM_INQ if TCP_INQ is on: the other lengths become 0, and `msg_flags` 0 or, if
 * there was no room for that, MSG_CTRUNC.
 *
 * `msg` leads to a message whose parts and control buffer each lead to as many bytes as
 * they say. */
ssize_t baton_recvmsg(baton *b, int fd, struct msghdr *msg, int flags);

/* `getsockopt(2)`. SOL_SOCKET: SO_ERROR, SO_TYPE, SO_DOMAIN, SO_PROTOCOL,
 * SO_ACCEPTCONN, SO_REUSEADDR, SO_KEEPALIVE, SO_LINGER, SO_RCVBUF, SO_SNDBUF,
 * SO_RCVTIMEO, SO_SNDTIMEO. IPPROTO_TCP: TCP_NODELAY, TCP_CORK, TCP_QUICKACK,
 * TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_USER_TIMEOUT, TCP_LINGER2,
 * TCP_MAXSEG, TCP_NOTSENT_LOWAT, TCP_INQ, TCP_CONGESTION, TCP_INFO. IPPROTO_IP: IP_TOS,
 * IP_TTL, IP_MTU_DISCOVER. IPPROTO_IPV6: IPV6_V6ONLY, IPV6_TCLASS, IPV6_UNICAST_HOPS.
 *
 * `value` leads to `*len` bytes. */
int baton_getsockopt(baton *b, int fd, int level, int name, void *value, socklen_t *len);

/* `setsockopt(2)`, of those that can be set among `baton_getsockopt`'s. SO_RCVBUF
 * and SO_SNDBUF say how much of the engine's `buffer_bytes` a socket uses: at least
 * 2048, at most all of it; what holds is told, not doubled as in Linux. A window
 * that the peer was promised before is not taken back. The congestion control is the
 * engine's. TCP_MAXSEG counts for the connections that the socket opens later.
 * IP_MTU_DISCOVER takes IP_PMTUDISC_WANT and IP_PMTUDISC_DO, which are one here, and
 * IP_PMTUDISC_DONT; else EINVAL.
 *
 * `value` leads to `len` bytes. */
int baton_setsockopt(
    baton *b,
    int fd,
    int level,
    int name,
    const void *value,
    socklen_t len);

/* `poll(2)` over descriptors of the engine.
 *
 * `fds` leads to `count` entries. */
int baton_poll(baton *b, struct pollfd *fds, nfds_t count, int timeout_ms);

/* `epoll_create1(2)`. The instance is closed by `baton_close`.
 *
 * `b` came from `baton_new`. */
int baton_epoll_create1(baton *b, int flags);

/* `epoll_ctl(2)`, with EPOLLET, EPOLLONESHOT and EPOLLRDHUP. Only sockets can be
 * watched.
 *
 * `event` is NULL or leads to an event. */
int baton_epoll_ctl(baton *b, int epfd, int op, int fd, struct epoll_event *event);

/* `epoll_wait(2)`.
 *
 * `events` leads to room for `max` events. */
int baton_epoll_wait(
    baton *b,
    int epfd,
    struct epoll_event *events,
    int max,
    int timeout_ms);

/* The kernel has the connection. */
#define BATON_PLACE_KERNEL 0

/* An engine has it. */
#define BATON_PLACE_ENGINE 1

/* It is on its way. */
#define BATON_PLACE_MOVING 2

/* It has ended. */
#define BATON_PLACE_ENDED 3

/* Connects to the service that listens at `path`, or, for NULL, where one usually does:
 * /run/baton/baton.sock. NULL on failure, with `errno` set: as `connect(2)`; EACCES also if
 * it refuses this user, or this version of the library.
 *
 * `path` is NULL or ends in a zero byte. */
baton_service *baton_service_connect(const char *path);

/* Frees the handle; streams go on until they are closed. NULL is no error. A handle is
 * freed once: what is at its place later may be another.
 *
 * `service` is NULL or came from `baton_service_connect`, and nobody else uses it. */
int baton_service_free(baton_service *service);

/* Hands a connected TCP socket over and waits until the engine has it. From then on the
 * descriptor is the stream's: neither it nor a duplicate is used or closed before
 * `baton_stream_restore`. What was set on the socket goes along, except O_NONBLOCK: a
 * stream begins blocking.
 *
 * NULL on failure, with `errno` set. EOPNOTSUPP: it stays in the kernel; `why`, if it is
 * not NULL, has a line of at most `why_len` bytes, the zero included, that says the reason.
 * ENOTCONN: the service cannot be asked. In both cases, and with EBADF and EFAULT, the descriptor
 * is the caller's, as it was. ECONNABORTED: the connection was lost with the service, and
 * the descriptor is closed.
 *
 * `service` came from `baton_service_connect`; `fd` is the caller's; `why` is NULL or leads
 * to `why_len` bytes. */
baton_stream *baton_service_adopt(baton_service *service, int fd, char *why, size_t why_len);

/* `read(2)`, wherever the connection is. A signal does not end a wait, here and below.
 *
 * `stream` came from `baton_service_adopt`; `buf` leads to `len` bytes. */
ssize_t baton_stream_read(baton_stream *stream, void *buf, size_t len);

/* `write(2)`, wherever the connection is.
 *
 * `stream` came from `baton_service_adopt`; `buf` leads to `len` bytes. */
ssize_t baton_stream_write(baton_stream *stream, const void *buf, size_t len);

/* `shutdown(2)`, with SHUT_RD, SHUT_WR or SHUT_RDWR.
 *
 * `stream` came from `baton_service_adopt`. */
int baton_stream_shutdown(baton_stream *stream, int how);

/* Whether reads and writes fail with EAGAIN instead of waiting.
 *
 * `stream` came from `baton_service_adopt`. */
int baton_stream_set_nonblocking(baton_stream *stream, int on);

/* An eventfd for a poll set, wherever the connection is (its descriptor tells nothing while
 * an engine has it): readable (POLLIN, EPOLLIN) once a read or write that failed with EAGAIN
 * is worth another try. So who waits tries first; who sees it readable reads its eight bytes,
 * then tries both. It is the stream's, which closes it at its end; each call returns the
 * same.
 *
 * `stream` came from `baton_service_adopt`. */
int baton_stream_eventfd(baton_stream *stream);

/* Where the connection is: one of `BATON_PLACE_...`.
 *
 * `stream` came from `baton_service_adopt`. */
int baton_stream_place(baton_stream *stream);

/* Has the whole connection given back to the kernel, and waits for it. Returns the
 * descriptor that was handed over, a plain socket again and the caller's; the handle is
 * freed. On failure the stream goes on, and its handle with it.
 *
 * `stream` came from `baton_service_adopt`, and nobody else uses it. */
int baton_stream_restore(baton_stream *stream);

/* Closes the connection and frees the handle: in form, or by a reset if received bytes were
 * never read. NULL is no error. A handle is freed once, by this or by
 * `baton_stream_restore`: what is at its place later may be another.
 *
 * `stream` is NULL or came from `baton_service_adopt`, and nobody else uses it. */
int baton_stream_close(baton_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
