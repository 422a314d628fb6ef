/* A C program that connects to an echo server at ADDRESS PORT. The connection goes to the service at
 * PATH and comes back. The process ENGINE is killed in the middle. */
#include "common.h"

/* Writes everything at once, as an event loop does. The engine is killed once half has come back. */
static void echo_polling(baton_stream *stream, pid_t engine)
{
    struct pollfd ready = {.fd = baton_stream_eventfd(stream), .events = POLLIN};
    size_t written = 0, read_ = 0;
    EXPECT(ready.fd >= 0 && baton_stream_eventfd(stream) == ready.fd);
    EXPECT(baton_stream_set_nonblocking(stream, 1) == 0);
    for (;;) {
        uint64_t rung;
        while (written < BYTES) {
            ssize_t count = baton_stream_write(stream, sent + written, BYTES - written);
            if (count < 0) {
                EXPECT(errno == EAGAIN);
                break;
            }
            written += (size_t)count;
        }
        while (read_ < BYTES) {
            ssize_t count = baton_stream_read(stream, got + read_, BYTES - read_);
            if (count < 0) {
                EXPECT(errno == EAGAIN);
                break;
            }
            EXPECT(count > 0);
            read_ += (size_t)count;
            if (engine && read_ > BYTES / 2) {
                EXPECT(!kill(engine, SIGKILL));
                engine = 0;
            }
        }
        if (read_ == BYTES)
            break;
        EXPECT(poll(&ready, 1, PATIENCE_MS) == 1 && ready.revents == POLLIN);
        EXPECT(read(ready.fd, &rung, sizeof rung) == sizeof rung);
    }
    EXPECT(!memcmp(sent, got, BYTES));
    EXPECT(baton_stream_set_nonblocking(stream, 0) == 0);
}

static void misuse(baton_service *service)
{
    char why[100] = "", cut[4] = "", none[64] = {0};
    EXPECT(!baton_service_connect("/nowhere/service") && errno == ENOENT);
    EXPECT(!baton_service_adopt(NULL, 0, NULL, 0) && errno == EFAULT);
    EXPECT(!baton_service_adopt((baton_service *)none, 0, NULL, 0) && errno == EFAULT);
    EXPECT(!baton_service_adopt(service, -1, NULL, 0) && errno == EBADF);
    EXPECT(!baton_service_adopt(service, 9999, NULL, 0) && errno == EBADF);
    /* Standard error is not a socket, and stays as it was. */
    EXPECT(!baton_service_adopt(service, 2, why, sizeof why) && errno == EOPNOTSUPP);
    EXPECT(!strncmp(why, "not-tcp: ", 9) && write(2, "", 0) == 0);
    EXPECT(!baton_service_adopt(service, 2, cut, sizeof cut) && !strcmp(cut, "not"));
    EXPECT(!baton_service_adopt(service, 2, NULL, 0) && errno == EOPNOTSUPP);
    EXPECT(baton_stream_read((baton_stream *)service, none, 1) == -1 && errno == EFAULT);
    EXPECT(baton_stream_restore((baton_stream *)service) == -1 && errno == EFAULT);
    EXPECT(baton_stream_restore(NULL) == -1 && errno == EFAULT);
    EXPECT(baton_stream_eventfd(NULL) == -1 && errno == EFAULT);
    EXPECT(baton_stream_close((baton_stream *)service) == -1 && errno == EFAULT);
    EXPECT(baton_stream_close(NULL) == 0 && baton_service_free(NULL) == 0);
}

static void misuse_stream(baton_stream *stream)
{
    EXPECT(baton_service_free((baton_service *)stream) == -1 && errno == EFAULT);
    EXPECT(baton_stream_shutdown(stream, 77) == -1 && errno == EINVAL);
    EXPECT(baton_stream_read(stream, NULL, 1) == -1 && errno == EFAULT);
    EXPECT(baton_stream_write(stream, NULL, 1) == -1 && errno == EFAULT);
    EXPECT(baton_stream_read(stream, NULL, 0) == 0 && baton_stream_write(stream, NULL, 0) == 0);
    EXPECT(baton_stream_set_nonblocking(stream, 1) == 0);
    EXPECT(baton_stream_read(stream, got, 1) == -1 && errno == EAGAIN);
    EXPECT(baton_stream_set_nonblocking(stream, 0) == 0);
}

static void ignore(int signal)
{
    (void)signal;
}

/* A signal that this thread blocks stays pending for it, and does not go to the library's thread. */
static void signals_are_ours(void)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    EXPECT(signal(SIGUSR1, ignore) != SIG_ERR);
    EXPECT(!pthread_sigmask(SIG_BLOCK, &one, NULL));
    EXPECT(!kill(getpid(), SIGUSR1));
    EXPECT(sigtimedwait(&one, NULL, &(struct timespec){.tv_sec = 10}) == SIGUSR1);
}

int main(int argc, char **argv)
{
    EXPECT(argc == 5);
    int fd = connect_to(argv[2], argv[3]);
    pid_t engine = atoi(argv[4]);

    baton_service *service = baton_service_connect(argv[1]);
    EXPECT(service);
    signals_are_ours();
    misuse(service);
    for (int round = 0; round < 4; round++) {
        fill((unsigned)round * 1000);
        baton_stream *stream = adopt(service, fd);
        misuse_stream(stream);
        echo_blocking(stream);
        if (round == 2) {
            echo_polling(stream, engine);
            while (baton_stream_place(stream) != BATON_PLACE_KERNEL)
                nap();
            echo_blocking(stream);
        }
        echo_polling(stream, 0);
        EXPECT(baton_stream_restore(stream) == fd);
        echo_through_socket(fd);
    }
    baton_stream *stream = adopt(service, fd);
    EXPECT(baton_service_free(service) == 0);
    echo_blocking(stream);
    EXPECT(baton_stream_shutdown(stream, SHUT_WR) == 0);
    EXPECT(baton_stream_read(stream, got, 1) == 0);
    EXPECT(baton_stream_close(stream) == 0);
    puts("OK");
    return 0;
}
