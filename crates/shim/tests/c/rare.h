/* Very rare uses: resets after data, data in a SYN, POSIX asynchronous I/O, several kinds of signal
 * handlers. */
#include <aio.h>

/* A reset does not overtake data that was sent before it, and does not discard data that has arrived. */
static void resets(void) {
    char buf[10];
    long theirs = 0, ours = 0, ends = 0;
    struct linger now = {1, 0};
    for (int i = 0; i < 20; i++) {
        int fd = begin();
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        if (send(fd, "words", 5, 0) != 5) die("send");
        close(fd);
        theirs += order("recv", 5);
        order("close", 0);
        fd = begin();
        order("send", 5);
        order("reset", 0);
        long got = recv(fd, buf, 10, 0);
        ours += got;
        ends += recv(fd, buf, 10, 0) < 0 && errno == ECONNRESET;
        close(fd);
    }
    say("peer got %ld, we got %ld, resets %ld", theirs, ours, ends);
    int fd = begin();
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    char *block = calloc(1, 20000);
    SAY("send", send(fd, block, 20000, 0));
    close(fd);
    say("peer got its first %ld", order("recv", 5000));
    order("close", 0);
    free(block);
    for (int i = 0; i < 3; i++) say("round %d", i);
}

/* A connection that was reset is not connected, even if the program has not read from it since. */
static void over(void) {
    struct sockaddr_in in;
    socklen_t size = sizeof in;
    for (int i = 0; i < 50; i++) {
        int fd = begin();
        order("reset", 0);
        SAY("peer's name", getpeername(fd, (void *)&in, &size));
        close(fd);
    }
}

/* A connection whose first bytes are in its SYN, if the peer allows that. */
static void fast_open(void) {
    char buf[10];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(DATA)};
    inet_pton(AF_INET, peer_host, &to.sin_addr);
    for (int i = 0; i < 2; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        SAY("send", sendto(fd, "hello", 5, MSG_FASTOPEN, (void *)&to, sizeof to));
        order("accept", 0);
        say("peer got %ld", order("echo", 5));
        arrived(fd, 5);
        SAY("read", read(fd, buf, 10));
        SAY("again", sendto(fd, "hello", 5, MSG_FASTOPEN, (void *)&to, sizeof to));
        SAY("write", write(fd, "hello", 5));
        end(fd);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        struct iovec iov = {"hello", 5};
        struct msghdr msg = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &iov, .msg_iovlen = 1};
        long sent = sendmsg(fd, &msg, MSG_FASTOPEN);
        int error = errno;
        say("message: %s", i ? "either" : sent < 0 ? name_of(error) : "sent");
        order("accept", 0);
        say("writable %x", revents(fd, POLLOUT, 3000));
        if (sent < 0) sent = send(fd, "hello", 5, 0);
        say("peer got %ld of %ld", order("echo", 5), sent);
        arrived(fd, 5);
        SAY("read", read(fd, buf, 10));
        end(fd);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        int one = 1;
        SAY("option", setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof one));
        SAY("connect", connect(fd, (void *)&to, sizeof to));
        SAY("write", write(fd, "hello", 5));
        order("accept", 0);
        say("peer got %ld", order("echo", 5));
        arrived(fd, 5);
        SAY("read", read(fd, buf, 10));
        SAY("write", write(fd, "hello", 5));
        say("peer got %ld", order("echo", 5));
        end(fd);
    }
}

/* Waits until a request is done. Returns its result. */
static long outcome(struct aiocb *what) {
    const struct aiocb *list[] = {what};
    while (aio_error(what) == EINPROGRESS) aio_suspend(list, 1, NULL);
    errno = aio_error(what);
    return aio_return(what);
}

static void asynchronous(void) {
    int fd = begin();
    char in[20], out[20] = "written without wait";
    struct aiocb reads = {.aio_fildes = fd, .aio_buf = in, .aio_nbytes = 20};
    struct aiocb writes = {.aio_fildes = fd, .aio_buf = out, .aio_nbytes = 20};
    SAY("write", write(fd, out, 5));
    SAY("begin to write", aio_write(&writes));
    SAY("written", outcome(&writes));
    /* Requests on one descriptor are executed one after the other. */
    SAY("begin to read", aio_read(&reads));
    say("peer got %ld", order("echo", 25));
    SAY("read", outcome(&reads) > 0);
    end(fd);
    fd = begin();
    struct aiocb more = {.aio_fildes = fd, .aio_buf = out, .aio_nbytes = 20, .aio_lio_opcode = LIO_WRITE};
    struct aiocb *list[] = {&more};
    SAY("list", lio_listio(LIO_WAIT, list, 1, NULL));
    SAY("written", outcome(&more));
    say("peer got %ld", order("recv", 20));
    end(fd);
}

static volatile sig_atomic_t restarting;

static void on_restarting(int signal) {
    (void)signal;
    restarting++;
}

struct later { pthread_t to; int signal; };

/* Sends a signal to a thread that sleeps by then. */
static void *later_signal(void *what) {
    struct later *later = what;
    usleep(60000);
    pthread_kill(later->to, later->signal);
    if (later->signal == SIGUSR1) {
        usleep(60000);
        order("send", 4);
    }
    return NULL;
}

/* One handler restarts calls, the other interrupts them. */
static void handlers(void) {
    int fd = begin();
    char buf[10];
    struct sigaction interrupts_calls = {.sa_handler = on_alarm}, restarts_calls = {.sa_handler = on_restarting, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &interrupts_calls, NULL);
    sigaction(SIGUSR1, &restarts_calls, NULL);
    alarms = 0;
    for (int i = 0; i < 4; i++) {
        struct later later = {pthread_self(), i % 2 ? SIGALRM : SIGUSR1};
        pthread_t thread;
        pthread_create(&thread, NULL, later_signal, &later);
        SAY("read", read(fd, buf, 4));
        pthread_join(thread, NULL);
        say("alarms %d, restarting %d", alarms, restarting);
    }
    /* A signal that the program blocks stays blocked. */
    sigset_t restarting_set, before;
    sigemptyset(&restarting_set), sigaddset(&restarting_set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &restarting_set, NULL);
    struct later later = {pthread_self(), SIGUSR1};
    pthread_t thread;
    pthread_create(&thread, NULL, later_signal, &later);
    SAY("blocked", read(fd, buf, 4));
    pthread_join(thread, NULL);
    say("alarms %d, restarting %d", alarms, restarting);
    pthread_sigmask(SIG_UNBLOCK, &restarting_set, &before);
    say("restarting %d, still blocked %d", restarting, sigismember(&before, SIGUSR1));
    signal(SIGALRM, SIG_DFL), signal(SIGUSR1, SIG_DFL);
    end(fd);
}

static sigjmp_buf out;

static void leave(int signal) {
    (void)signal;
    alarms++;
    siglongjmp(out, 1);
}

static void quit(int signal) {
    (void)signal;
    exit(0);
}

/* Handlers leave the interrupted call with longjmp, many times; the last one ends the program. */
static void leaving(void) {
    int fd = begin();
    char buf[10];
    struct itimerval soon = {{0, 0}, {0, 300}};
    signal(SIGALRM, leave);
    alarms = 0;
    sigsetjmp(out, 1);
    if (alarms < 300) {
        setitimer(ITIMER_REAL, &soon, NULL);
        for (;;) recv(fd, buf, sizeof buf, MSG_DONTWAIT);
    }
    say("left %d", alarms);
    order("send", 4);
    SAY("read", read(fd, buf, 4));
    SAY("written", write(fd, buf, 4));
    say("peer got %ld", order("recv", 4));
    signal(SIGALRM, quit);
    setitimer(ITIMER_REAL, &soon, NULL);
    for (;;) recv(fd, buf, sizeof buf, MSG_DONTWAIT);
}

static const struct test rare[] = {{"resets", resets}, {"fastopen", fast_open}, {"asynchronous", asynchronous},
                                   {"handlers", handlers}, {"leaving", leaving}, {"over", over}, {NULL, NULL}};
