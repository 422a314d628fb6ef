/* A C program that connects to an echo server at ADDRESS PORT, hands the connection over to the
 * service at PATH, and then forks. With "survive", a child lives until standard input ends, and
 * the program ends before it. */
#include "common.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>

enum { CHILDREN = 50 };

static const char *path;
static baton_service *service;
static baton_stream *stream;
static int fd;

static bool is_parents(ssize_t answer)
{
    return answer == -1 && errno == ENOTCONN;
}

/* The child must not affect its parent's connection. When it was forked, the parent's other thread
 * may have held any lock. */
static void child(void)
{
    char byte = 0;
    int other = socket(AF_INET, SOCK_STREAM, 0);
    alarm(PATIENCE_MS / 1000);
    EXPECT(is_parents(baton_stream_read(stream, &byte, 1)));
    EXPECT(is_parents(baton_stream_write(stream, &byte, 1)));
    EXPECT(is_parents(baton_stream_shutdown(stream, SHUT_RDWR)));
    EXPECT(is_parents(baton_stream_restore(stream)));
    EXPECT(baton_stream_place(stream) == BATON_PLACE_ENDED);
    EXPECT(!baton_service_adopt(service, other, NULL, 0) && errno == ENOTCONN);
    EXPECT(fcntl(other, F_GETFD) >= 0 && fcntl(fd, F_GETFD) >= 0);
    EXPECT(baton_stream_close(stream) == 0);
    EXPECT(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
    EXPECT(baton_service_free(service) == 0);
}

/* Its own connection works. */
static void connect_anew(void)
{
    baton_service *own = baton_service_connect(path);
    EXPECT(own);
    EXPECT(baton_service_free(own) == 0);
}

static atomic_bool stop;

static void *echo(void *none)
{
    do
        echo_blocking(stream);
    while (!atomic_load(&stop));
    return none;
}

static void children_come_and_go(void)
{
    pthread_t other;
    EXPECT(!pthread_create(&other, NULL, echo, NULL));
    for (int count = 0; count < CHILDREN; count++) {
        int status;
        pid_t pid = fork();
        if (!pid) {
            child();
            connect_anew();
            _exit(0);
        }
        EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid);
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        EXPECT(baton_stream_place(stream) == BATON_PLACE_ENGINE);
    }
    atomic_store(&stop, true);
    EXPECT(!pthread_join(other, NULL));
    EXPECT(baton_stream_restore(stream) == fd);
    echo_through_socket(fd);
    EXPECT(baton_service_free(service) == 0);
}

static void a_child_survives(void)
{
    char byte;
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (pid)
        return;
    child();
    close(1);
    close(2);
    while (read(0, &byte, 1) > 0)
        ;
    _exit(0);
}

int main(int argc, char **argv)
{
    EXPECT(argc == 5);
    path = argv[1];
    fd = connect_to(argv[2], argv[3]);
    service = baton_service_connect(path);
    EXPECT(service);
    fill(0);
    stream = adopt(service, fd);
    echo_blocking(stream);
    if (!strcmp(argv[4], "survive"))
        a_child_survives();
    else
        children_come_and_go();
    puts("OK");
    return 0;
}
