/* Baton: TCP sockets on an engine that the caller drives.
 *
 * Generated from the sources by a test; see crates/libbaton/tests/header.
 *
 * A call that is named after a POSIX call does what POSIX says, with Linux's
 * constants. On failure it returns -1 and sets errno. An invalid handle fails with
 * EFAULT. SIGPIPE is never raised.
 *
 * An engine's calls start no thread and read no clock. One thread at a time may use
 * an engine; a call that finds another in progress fails with EBUSY. After an
 * internal error every call on the engine fails with EIO.
 *
 * The calls baton_service_... and baton_stream_... hand kernel sockets to a Baton
 * service, which runs the engine and has the privileges. A connection to a service
 * has a thread of its own, which blocks all signals. Any number of threads may make
 * these calls at once. After an internal error a call fails with EIO.
 *
 * In a child of fork(2) every call on a handle of the parent fails with ENOTCONN,
 * except the calls that free handles: baton_stream_close closes the child's copy of
 * the descriptor and leaves the parent's connection alone. A child may connect to
 * the service itself. To pass a connection on to a child, the parent restores it
 * before the fork. */
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

/* A stream on a connection that may move. */
typedef struct baton_stream baton_stream;

/* Lets time pass while a call blocks. */
typedef int (*baton_wait_fn)(void *arg, uint64_t until_ns);

/* Congestion control: CUBIC (RFC 9438), the default. */
#define BATON_CUBIC 0

/* Congestion control: NewReno (RFC 6582). */
#define BATON_RENO 1

/* The configuration of an engine. Fill it with `baton_config_default`, then set at least
 * `addresses`. The strings and the secret are not needed after `baton_new`. */
typedef struct baton_config {
    /* Size of this structure in bytes. */
    size_t size;
    /* Addresses with prefix lengths, separated by spaces:
     * `"10.77.0.2/24 fd00::2/64"`. */
    const char *addresses;
    /* The next hop for IPv4 packets to other networks; NULL for none. */
    const char *gateway_v4;
    /* The next hop for IPv6 packets to other networks; NULL for none. */
    const char *gateway_v6;
    /* 1 if frames have an Ethernet header (the default), 0 if they are bare IP packets. */
    int ethernet;
    /* Ethernet address; all zero for a random one. */
    uint8_t mac[6];
    /* Length in bytes of the largest IP packet; default 1500. */
    uint16_t mtu;
    /* 32 random bytes for sequence numbers and SYN cookies; NULL to let the library
     * generate them. */
    const uint8_t *secret;
    /* `BATON_CUBIC` or `BATON_RENO`. */
    int congestion;
    /* Maximum number of sockets, including those that wait to be accepted; default 4096. */
    uint32_t max_sockets;
    /* Size in bytes of each socket's send buffer, and of its receive buffer; a power of two,
     * default 262144. Memory is allocated as it is used. */
    uint32_t buffer_bytes;
    /* Maximum number of frames that are queued in each direction; default 1024. */
    uint32_t queue_frames;
    /* Duration of TIME-WAIT in milliseconds; default 60000. */
    uint32_t time_wait_ms;
    /* 1 to negotiate selective acknowledgments (RFC 2018), the default, or 0. */
    int sack;
    /* 1 to negotiate timestamps (RFC 7323 §3), the default, or 0. */
    int timestamps;
    /* 1 to negotiate window scaling (RFC 7323 §2), the default, or 0. */
    int window_scaling;
    /* 1 to negotiate ECN (RFC 3168), or 0, the default. */
    int ecn;
    /* Number of times that a SYN is repeated before a connect fails, 1 to 127; default 7, which
     * takes 247 s (Linux's `tcp_syn_retries`). */
    uint8_t syn_retries;
    /* Number of times that a SYN-ACK is repeated before a half-open connection is dropped, 1 to
     * 127; default 5 (`tcp_synack_retries`). */
    uint8_t synack_retries;
    /* Number of times that data is repeated without progress before a connection is aborted, 1
     * to 127; default 15 (`tcp_retries2`). */
    uint8_t retries;
    /* The current time, in nanoseconds of the caller's clock. */
    uint64_t now_ns;
    /* The callback that blocking calls wait with, or NULL. It must move frames in and out, let
     * time pass until `until_ns` at most, call `baton_drive`, and return 0. If it returns
     * another value, the call that waits fails with `EINTR`. It may make other calls on the
     * engine, but must not free it. */
    baton_wait_fn wait;
    /* The first argument of `wait`. */
    void *wait_arg;
} baton_config;

/* Fills a configuration with the defaults. Returns 0, or -1 with `errno` set.
 *
 * `config` is NULL or points to writable memory for a `baton_config`. */
int baton_config_default(baton_config *config);

/* Creates an engine. Returns NULL on failure, with `errno` set; if `err` is not NULL, the
 * reason is then written to it as one line of at most `err_len` bytes, including the
 * terminating zero.
 *
 * `config` points to a configuration whose strings are zero-terminated; `err` is NULL or
 * points to `err_len` bytes. */
baton *baton_new(const baton_config *config, char *err, size_t err_len);

/* Frees an engine and all its sockets; nothing is sent to the peers. NULL is allowed.
 * Returns 0, or -1 with `errno` set: `EBUSY` while a call is in progress.
 *
 * `b` is NULL or came from `baton_new`. */
int baton_free(baton *b);

/* Queues one received frame for the engine; the next `baton_drive` processes it. Returns 0,
 * or -1 with `errno` set: `ENOBUFS` if the queue is full, `EMSGSIZE` if the frame is longer
 * than `baton_frame_bytes`. The caller may drop a frame that was not accepted.
 *
 * `frame` points to `len` bytes. */
int baton_input(baton *b, const void *frame, size_t len);

/* Takes one frame that is to be sent. Returns its length, 0 if no frame is ready, or -1 with
 * `errno` set: `EINVAL` if `cap` is less than `baton_frame_bytes`.
 *
 * `buf` points to `cap` bytes. */
ssize_t baton_output(baton *b, void *buf, size_t cap);

/* Returns the length in bytes of the largest frame in either direction, or -1 with `errno`
 * set.
 *
 * `b` came from `baton_new`. */
ssize_t baton_frame_bytes(baton *b);

/* Runs the engine at time `now_ns` of the caller's clock: it processes queued frames, due
 * timers, and requests from earlier calls. Returns 0, or -1 with `errno` set.
 *
 * `b` came from `baton_new`. */
int baton_drive(baton *b, uint64_t now_ns);

/* Returns the time, in nanoseconds of the caller's clock, at which `baton_drive` next has
 * work to do if no frame arrives and no call is made before then. A time in the past means
 * now; `UINT64_MAX` means never. Returns 0 with `errno` set if `b` is not an engine.
 *
 * `b` came from `baton_new`. */
uint64_t baton_next_deadline(baton *b);

/* `socket(2)`: AF_INET or AF_INET6, and SOCK_STREAM with or without SOCK_NONBLOCK. The
 * descriptor is valid for this engine only; the kernel does not know it.
 *
 * `b` came from `baton_new`. */
int baton_socket(baton *b, int domain, int kind, int protocol);

/* `bind(2)`.
 *
 * `addr` points to `len` bytes. */
int baton_bind(baton *b, int fd, const struct sockaddr *addr, socklen_t len);

/* `listen(2)`.
 *
 * `b` came from `baton_new`. */
int baton_listen(baton *b, int fd, int backlog);

/* `accept4(2)`.
 *
 * `addr` and `len` are NULL, or `addr` points to `*len` bytes. */
int baton_accept4(baton *b, int fd, struct sockaddr *addr, socklen_t *len, int flags);

/* `connect(2)`. On a blocking socket it waits with the engine's wait callback. Without a
 * callback, and on a non-blocking socket, it fails with `EINPROGRESS`; the socket is
 * connected once it is writable.
 *
 * `addr` points to `len` bytes. */
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
 * `addr` points to `*len` bytes. */
int baton_getsockname(baton *b, int fd, struct sockaddr *addr, socklen_t *len);

/* `getpeername(2)`.
 *
 * `addr` points to `*len` bytes. */
int baton_getpeername(baton *b, int fd, struct sockaddr *addr, socklen_t *len);

/* `fcntl(2)` with F_GETFL (`arg` is ignored) or F_SETFL (only O_NONBLOCK is used).
 *
 * `b` came from `baton_new`. */
int baton_fcntl(baton *b, int fd, int cmd, int arg);

/* `ioctl(2)` with FIONREAD (SIOCINQ), TIOCOUTQ (SIOCOUTQ) or FIONBIO.
 *
 * `arg` points to an `int`. */
int baton_ioctl(baton *b, int fd, unsigned long request, int *arg);

/* `send(2)` with MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL (always in effect) and MSG_EOR (without
 * effect: TCP has no records).
 *
 * `buf` points to `len` bytes. */
ssize_t baton_send(baton *b, int fd, const void *buf, size_t len, int flags);

/* `recv(2)` with MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL and MSG_TRUNC, which discards the bytes
 * and returns their number (`buf` may be NULL).
 *
 * `buf` points to `len` bytes. */
ssize_t baton_recv(baton *b, int fd, void *buf, size_t len, int flags);

/* `writev(2)`.
 *
 * `parts` points to `count` entries, each of which points to as many bytes as it says. */
ssize_t baton_writev(baton *b, int fd, const struct iovec *parts, int count);

/* `readv(2)`.
 *
 * `parts` points to `count` entries, each of which points to as many bytes as it says. */
ssize_t baton_readv(baton *b, int fd, const struct iovec *parts, int count);

/* `sendmsg(2)`, with the flags of `baton_send`. An address is ignored, as on every connected
 * socket; control data is refused with EINVAL.
 *
 * `msg` points to a message whose parts each point to as many bytes as they say. */
ssize_t baton_sendmsg(baton *b, int fd, const struct msghdr *msg, int flags);

/* `recvmsg(2)`, with the flags of `baton_recv`. `msg_namelen` becomes 0. The only control
 * message is TCP_CM_INQ, if TCP_INQ is on; otherwise `msg_controllen` becomes 0. `msg_flags`
 * becomes 0, or MSG_CTRUNC if the control buffer was too small.
 *
 * `msg` points to a message whose parts and control buffer each point to as many bytes as
 * they say. */
ssize_t baton_recvmsg(baton *b, int fd, struct msghdr *msg, int flags);

/* `getsockopt(2)`. SOL_SOCKET: SO_ERROR, SO_TYPE, SO_DOMAIN, SO_PROTOCOL,
 * SO_ACCEPTCONN, SO_REUSEADDR, SO_KEEPALIVE, SO_LINGER, SO_RCVBUF, SO_SNDBUF,
 * SO_RCVTIMEO, SO_SNDTIMEO. IPPROTO_TCP: TCP_NODELAY, TCP_CORK, TCP_QUICKACK,
 * TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_USER_TIMEOUT, TCP_LINGER2,
 * TCP_MAXSEG, TCP_NOTSENT_LOWAT, TCP_INQ, TCP_CONGESTION, TCP_INFO. IPPROTO_IP: IP_TOS,
 * IP_TTL, IP_MTU_DISCOVER. IPPROTO_IPV6: IPV6_V6ONLY, IPV6_TCLASS, IPV6_UNICAST_HOPS.
 *
 * `value` points to `*len` bytes. */
int baton_getsockopt(baton *b, int fd, int level, int name, void *value, socklen_t *len);

/* `setsockopt(2)`, with those options of `baton_getsockopt` that are not read-only. SO_RCVBUF
 * and SO_SNDBUF set how much of the engine's `buffer_bytes` a socket uses: at least 2048, at
 * most all of it. Reading them back returns the value in effect, not doubled as in Linux. A
 * window that was advertised to the peer before is not withdrawn. The congestion control is
 * that of the engine. TCP_MAXSEG applies to connections that the socket opens later.
 * IP_MTU_DISCOVER accepts IP_PMTUDISC_WANT and IP_PMTUDISC_DO, which have the same effect
 * here, and IP_PMTUDISC_DONT; any other value fails with EINVAL.
 *
 * `value` points to `len` bytes. */
int baton_setsockopt(
    baton *b,
    int fd,
    int level,
    int name,
    const void *value,
    socklen_t len);

/* `poll(2)` on descriptors of the engine.
 *
 * `fds` points to `count` entries. */
int baton_poll(baton *b, struct pollfd *fds, nfds_t count, int timeout_ms);

/* `epoll_create1(2)`. Close the instance with `baton_close`.
 *
 * `b` came from `baton_new`. */
int baton_epoll_create1(baton *b, int flags);

/* `epoll_ctl(2)`, with EPOLLET, EPOLLONESHOT and EPOLLRDHUP. Only sockets can be added.
 *
 * `event` is NULL or points to an event. */
int baton_epoll_ctl(baton *b, int epfd, int op, int fd, struct epoll_event *event);

/* `epoll_wait(2)`.
 *
 * `events` points to an array of `max` events. */
int baton_epoll_wait(
    baton *b,
    int epfd,
    struct epoll_event *events,
    int max,
    int timeout_ms);

/* The connection is in the kernel. */
#define BATON_PLACE_KERNEL 0

/* The connection is in an engine. */
#define BATON_PLACE_ENGINE 1

/* The connection is moving. */
#define BATON_PLACE_MOVING 2

/* The connection has ended. */
#define BATON_PLACE_ENDED 3

/* Its other end is in a program of this machine, and its bytes go through memory that both share. */
#define BATON_PLACE_PAIR 4

/* Connects to the service that listens at `path`; NULL stands for the default path,
 * /run/baton/baton.sock. Returns NULL on failure, with `errno` set as by `connect(2)`; EACCES
 * also if the service refuses this user or this version of the library.
 *
 * `path` is NULL or zero-terminated. */
baton_service *baton_service_connect(const char *path);

/* Frees the handle; streams stay usable until they are closed. NULL is allowed. Free a handle
 * only once: another object may later have the same address.
 *
 * `service` is NULL or came from `baton_service_connect`, and no other call uses it. */
int baton_service_free(baton_service *service);

/* Hands a connected TCP socket over and waits until the engine has it. From then on the stream
 * owns the descriptor: the caller must not use or close it or a duplicate of it before
 * `baton_stream_restore`. Socket options keep their values, but O_NONBLOCK does not: a stream
 * begins as blocking.
 *
 * Returns NULL on failure, with `errno` set. EOPNOTSUPP: the connection stays in the kernel; if
 * `why` is not NULL, the reason is written to it as one line of at most `why_len` bytes,
 * including the terminating zero. ENOTCONN: the service cannot be reached. In both cases, and
 * with EBADF and EFAULT, the caller keeps the descriptor, unchanged. ECONNABORTED: the
 * connection was lost because the service died, and the descriptor is closed.
 *
 * `service` came from `baton_service_connect`; the caller owns `fd`; `why` is NULL or points to
 * `why_len` bytes. */
baton_stream *baton_service_adopt(baton_service *service, int fd, char *why, size_t why_len);

/* `read(2)`, wherever the connection is. A signal does not interrupt the wait of this or of any
 * call below.
 *
 * `stream` came from `baton_service_adopt`; `buf` points to `len` bytes. */
ssize_t baton_stream_read(baton_stream *stream, void *buf, size_t len);

/* `write(2)`, wherever the connection is.
 *
 * `stream` came from `baton_service_adopt`; `buf` points to `len` bytes. */
ssize_t baton_stream_write(baton_stream *stream, const void *buf, size_t len);

/* `shutdown(2)`, with SHUT_RD, SHUT_WR or SHUT_RDWR.
 *
 * `stream` came from `baton_service_adopt`. */
int baton_stream_shutdown(baton_stream *stream, int how);

/* Sets whether reads and writes fail with EAGAIN (`on` is not 0) instead of waiting.
 *
 * `stream` came from `baton_service_adopt`. */
int baton_stream_set_nonblocking(baton_stream *stream, int on);

/* Returns an eventfd to poll, which works wherever the connection is. (The connection's own
 * descriptor is not meaningful while an engine has it.) It becomes readable (POLLIN, EPOLLIN)
 * when a read or write that failed with EAGAIN is worth another try. So first try to read or
 * write; wait only after EAGAIN; when the eventfd is readable, read its eight bytes, then try
 * both. The stream owns the eventfd and closes it at its end; every call returns the same one.
 *
 * `stream` came from `baton_service_adopt`. */
int baton_stream_eventfd(baton_stream *stream);

/* Returns where the connection is: one of `BATON_PLACE_...`.
 *
 * `stream` came from `baton_service_adopt`. */
int baton_stream_place(baton_stream *stream);

/* Moves the whole connection back to the kernel, and waits for that. Returns the descriptor
 * that was handed over; it is an ordinary socket again and the caller owns it. The handle is
 * freed. On failure the stream and its handle stay usable.
 *
 * `stream` came from `baton_service_adopt`, and no other call uses it. */
int baton_stream_restore(baton_stream *stream);

/* Closes the connection and frees the handle. The connection ends with a FIN, or with a reset
 * if received bytes were never read. NULL is allowed. Free a handle only once, with this call or
 * with `baton_stream_restore`: another object may later have the same address.
 *
 * `stream` is NULL or came from `baton_service_adopt`, and no other call uses it. */
int baton_stream_close(baton_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
