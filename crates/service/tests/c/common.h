/* Shared by the programs: a stream of numbers that an echo server returns. */
#include <baton.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPECT(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno)); \
            exit(1); \
        } \
    } while (0)

enum { BYTES = 300000, PIECE = 10000, PATIENCE_MS = 60000 };

static unsigned char sent[BYTES], got[BYTES];

static inline void fill(unsigned from)
{
    for (unsigned at = 0; at < BYTES; at++)
        sent[at] = (unsigned char)((from + at) % 251);
    memset(got, 0, sizeof got);
}

static inline void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

/* In pieces, because otherwise each side could wait for the other to read. */
static inline void echo_blocking(baton_stream *stream)
{
    for (size_t at = 0; at < BYTES; at += PIECE) {
        for (size_t done = 0; done < PIECE;) {
            ssize_t count = baton_stream_write(stream, sent + at + done, PIECE - done);
            EXPECT(count > 0);
            done += (size_t)count;
        }
        for (size_t done = 0; done < PIECE;) {
            ssize_t count = baton_stream_read(stream, got + at + done, PIECE - done);
            EXPECT(count > 0);
            done += (size_t)count;
        }
    }
    EXPECT(!memcmp(sent, got, BYTES));
}

static inline void echo_through_socket(int fd)
{
    EXPECT(write(fd, sent, PIECE) == PIECE);
    for (size_t done = 0; done < PIECE;) {
        ssize_t count = read(fd, got + done, PIECE - done);
        EXPECT(count > 0);
        done += (size_t)count;
    }
    EXPECT(!memcmp(sent, got, PIECE));
}

/* After an engine died there is none for a while. */
static inline baton_stream *adopt(baton_service *service, int fd)
{
    char why[200] = "";
    baton_stream *stream;
    while (!(stream = baton_service_adopt(service, fd, why, sizeof why)) && !strncmp(why, "no-engine", 9))
        nap();
    if (!stream)
        fprintf(stderr, "%s\n", why);
    EXPECT(stream && baton_stream_place(stream) == BATON_PLACE_ENGINE);
    return stream;
}

static inline int connect_to(const char *address, const char *port)
{
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(port))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(inet_pton(AF_INET, address, &peer.sin_addr) == 1);
    EXPECT(fd >= 0 && !connect(fd, (struct sockaddr *)&peer, sizeof peer));
    return fd;
}
