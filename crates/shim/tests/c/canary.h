/* Only a call that fails may change errno. The tests set errno to a canary before each call: SAY does
 * it for the calls of all tests; this file adds signal handlers, and calls without SAY. */

static volatile sig_atomic_t seen_by_handler, changes_in_handler, handlers_ran;
static int handlers_fd;

/* A handler that reads the program's errno and leaves it unchanged. */
static void looks(int signal) {
    (void)signal;
    int before = errno;
    char buf[1];
    seen_by_handler = before;
    /* One call that fails and sets errno, and one that succeeds. */
    if (recv(handlers_fd, buf, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno != EAGAIN) changes_in_handler++;
    errno = CANARY + 1;
    int value = 0;
    socklen_t size = sizeof value;
    if (getsockopt(handlers_fd, SOL_SOCKET, SO_TYPE, &value, &size) || errno != CANARY + 1) changes_in_handler++;
    errno = before;
    handlers_ran++;
}

/* A careless handler, which changes errno. */
static void leaves(int signal) {
    (void)signal;
    errno = CANARY + 2;
}

static void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(signal, &action, NULL);
}

static pthread_t waits_for_it;

/* Interrupts a call that waits, and then lets the peer end it. */
static void *interrupts(void *signal) {
    usleep(50000);
    pthread_kill(waits_for_it, (long)signal);
    usleep(50000);
    order("send", 1);
    return NULL;
}

static void interrupted_read(int fd, const char *what, long signal) {
    pthread_t thread;
    char buf[1];
    waits_for_it = pthread_self();
    seen_by_handler = 0;
    pthread_create(&thread, NULL, interrupts, (void *)signal);
    SAY(what, read(fd, buf, 1));
    pthread_join(thread, NULL);
    say("the handler saw %s", canary_name(seen_by_handler));
}

/* Makes successful calls while many signals arrive. Returns how many calls changed errno. */
static long under_signals(int fd) {
    long changed = 0;
    char out[1] = "x", in[1];
    tell("echo", 5000);
    for (int i = 0; i < 5000; i++) {
        struct pollfd p = {fd, POLLIN | POLLOUT, 0};
        int value;
        socklen_t size = sizeof value;
        errno = CANARY;
        if (send(fd, out, 1, 0) != 1 || errno != CANARY) changed++;
        errno = CANARY;
        if (poll(&p, 1, 100) >= 0 && errno != CANARY) changed++;
        errno = CANARY;
        if (getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &size) || errno != CANARY) changed++;
        errno = CANARY;
        if (ioctl(fd, FIONREAD, &value) || errno != CANARY) changed++;
    }
    answer();
    for (int i = 0; i < 5000; i++) {
        errno = CANARY;
        if (read(fd, in, 1) != 1 || errno != CANARY) changed++;
    }
    return changed;
}

/* A wait on an epoll set, which also polls the engine's devices. */
static void over_a_set(int fd) {
    struct epoll_event event = {EPOLLIN, {.fd = fd}}, found[4];
    int set;
    SAY("set", (set = epoll_create1(0)) < 0 ? -1 : 0);
    SAY("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    SAY("nothing yet", epoll_wait(set, found, 4, 20));
    order("send", 3);
    SAY("input", epoll_wait(set, found, 4, 3000));
    char buf[3];
    SAY("read", recv(fd, buf, 3, MSG_WAITALL));
    SAY("take out", epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
    SAY("close the set", close(set));
}

static void errnos(void) {
    int fd = begin();
    handlers_fd = fd;
    SAY("the first call", send(fd, "x", 1, 0));
    order("echo", 1);
    arrived(fd, 1);
    char buf[8];
    SAY("the first read", read(fd, buf, 8));
    over_a_set(fd);
    handle(SIGUSR1, looks, SA_RESTART);
    handle(SIGUSR2, leaves, SA_RESTART);
    interrupted_read(fd, "a read that is restarted", SIGUSR1);
    interrupted_read(fd, "a read whose handler changes errno", SIGUSR2);
    handle(SIGUSR1, looks, 0);
    interrupted_read(fd, "a read that is interrupted", SIGUSR1);
    SAY("the next byte", recv(fd, buf, 1, 0));
    handle(SIGALRM, looks, SA_RESTART);
    handlers_ran = 0;
    struct itimerval often = {{0, 300}, {0, 300}}, never = {0};
    setitimer(ITIMER_REAL, &often, NULL);
    say("changed under signals: %ld", under_signals(fd));
    setitimer(ITIMER_REAL, &never, NULL);
    say("handlers ran %d, errors in them %d", handlers_ran > 0, changes_in_handler);
    int again;
    SAY("duplicate", (again = dup(fd)) < 0 ? -1 : 0);
    SAY("close it", close(again));
    pid_t child;
    SAY("fork", (child = fork()) < 0 ? -1 : child == 0 ? (_exit(errno == CANARY ? 0 : 1), 0) : 0);
    int status = -1;
    waitpid(child, &status, 0);
    say("status of the child %d", status);
    SAY("write after it", write(fd, "x", 1));
    SAY("shut down", shutdown(fd, SHUT_WR));
    SAY("system", system("true"));
    end(fd);
}

static const struct test canaries[] = {{"errno", errnos}, {NULL, NULL}};
