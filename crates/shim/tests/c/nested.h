/* Epoll sets within sets, and sets that are polled. */

static int kernels_pipe[2];

static void watch(const char *what, int set, int fd, int events, int data) {
    struct epoll_event event = {events, {.u64 = data}};
    SAY(what, epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
}

/* Prints the events of a set, after a wait of `timeout` milliseconds at most. */
static void look(const char *what, int set, int timeout) {
    struct epoll_event found[8];
    int got = epoll_wait(set, found, 8, timeout);
    say("%s: %d", what, got);
    for (int i = 0; i < got; i++) say("  %x of %d", found[i].events, (int)found[i].data.u64);
}

static void *sends_later(void *count) {
    usleep(50000);
    order("send", (long)count);
    return NULL;
}

/* Waits on a set for data that arrives on a connection nested in it. */
static void wait_on(const char *what, int set, long count) {
    pthread_t thread;
    pthread_create(&thread, NULL, sends_later, (void *)count);
    look(what, set, 5000);
    pthread_join(thread, NULL);
}

static void polled(const char *what, int set, int timeout) {
    struct pollfd all[2] = {{set, POLLIN, 0}, {kernels_pipe[0], POLLIN, 0}};
    int got = poll(all, 2, timeout);
    say("%s: %d %x %x", what, got, all[0].revents, all[1].revents);
    fd_set in;
    FD_ZERO(&in);
    FD_SET(set, &in);
    struct timeval time = {0, 0};
    got = select(set + 1, &in, NULL, NULL, &time);
    say("%s by select: %d %d", what, got, !!FD_ISSET(set, &in));
}

/* A set in a set in a set, all level-triggered or all edge-triggered. */
static void sets_in_sets(int edge, int before) {
    char buf[100];
    int one = epoll_create1(0), two = epoll_create1(0), three = epoll_create1(0), fd = begin();
    say("== %s, %s", edge ? "edge" : "level", before ? "before it moves" : "after");
    if (before) watch("fd in one", one, fd, EPOLLIN | edge, 1);
    SAY("move", send(fd, "moves", 5, 0));
    say("peer got %ld", order("recv", 5));
    if (!before) watch("fd in one", one, fd, EPOLLIN | edge, 1);
    watch("one in two", two, one, EPOLLIN | edge, 2);
    watch("two in three", three, two, EPOLLIN | edge, 3);
    watch("a pipe in three", three, kernels_pipe[0], EPOLLIN, 4);
    look("three is not ready", three, 0);
    look("two is not ready", two, 20);
    polled("nothing", three, 20);
    wait_on("data wakes three", three, 10);
    look("two is ready", two, 0);
    look("one is ready", one, 0);
    polled("one", one, 0);
    SAY("read", read(fd, buf, 100));
    look("three is not ready", three, 0);
    look("two is not ready", two, 0);
    look("one is not ready", one, 0);
    polled("three", three, 0);
    polled("two", two, 20);
    wait_on("data wakes two", two, 10);
    say("piped %ld", (long)write(kernels_pipe[1], "x", 1));
    SAY("read", read(fd, buf, 100));
    look("only the pipe is ready", three, 0);
    SAY("read", read(kernels_pipe[0], buf, 1));
    order("send", 5);
    arrived(fd, 5);
    look("three again", three, 1000);
    SAY("read half", read(fd, buf, 2));
    polled("one, with half of it", one, 0);
    look("one, with half of it", one, 0);
    look("one, once more", one, 0);
    SAY("read", read(fd, buf, 100));
    SAY("remove one from two", epoll_ctl(two, EPOLL_CTL_DEL, one, NULL));
    order("send", 5);
    arrived(fd, 5);
    look("two is not ready", two, 20);
    look("one is ready", one, 0);
    close(one);
    close(two);
    close(three);
    end(fd);
}

/* A spurious wake-up does not disable the one-shot entry of a set in a set. */
static void watched_once(void) {
    int one = epoll_create1(0), two = epoll_create1(0), fd = begin();
    char buf[10];
    SAY("move", send(fd, "moves", 5, 0));
    say("peer got %ld", order("recv", 5));
    watch("fd in one", one, fd, EPOLLIN, 1);
    watch("one in two", two, one, EPOLLIN | EPOLLONESHOT, 2);
    for (int i = 0; i < 20; i++) {
        /* The peer's acknowledgment of a write wakes the watches of the connection. */
        if (send(fd, "some", 4, 0) != 4) say("not sent");
        order("recv", 4);
        struct epoll_event found;
        if (epoll_wait(two, &found, 1, 1) != 0) say("a spurious event was reported");
    }
    wait_on("data wakes two", two, 4);
    SAY("read", read(fd, buf, 10));
    order("send", 4);
    arrived(fd, 4);
    look("the one-shot entry is disabled", two, 20);
    close(one);
    close(two);
    end(fd);
}

static void nested_sets(void) {
    if (pipe(kernels_pipe)) die("pipe");
    sets_in_sets(0, 0);
    sets_in_sets(0, 1);
    sets_in_sets(EPOLLET, 0);
    sets_in_sets(EPOLLET, 1);
    watched_once();
}

static const struct test nested[] = {{"nested", nested_sets}, {NULL, NULL}};
