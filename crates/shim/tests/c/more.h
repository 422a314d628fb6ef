/* Tests with several descriptors, threads or processes. */

static const char *self;

static void sets(void) {
    int fd = begin(), set = epoll_create1(EPOLL_CLOEXEC), ends[2];
    char buf[100];
    if (pipe(ends)) die("pipe");
    struct epoll_event got[4], ask = {EPOLLIN | EPOLLRDHUP, {.u64 = 7}}, pipes = {EPOLLIN, {.u64 = 8}};
    SAY("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &ask));
    SAY("add again", epoll_ctl(set, EPOLL_CTL_ADD, fd, &ask));
    SAY("add pipe", epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &pipes));
    SAY("none", epoll_wait(set, got, 4, 20));
    tell("send", 10);
    SAY("level", epoll_wait(set, got, 4, 3000));
    say("%x %d", got[0].events, (int)got[0].data.u64);
    answer();
    SAY("level again", epoll_wait(set, got, 4, 0));
    say("piped %ld", (long)write(ends[1], "x", 1));
    int both = epoll_wait(set, got, 4, 1000);
    say("both %d: %d", both, both == 2 ? (int)(got[0].data.u64 + got[1].data.u64) : 0);
    SAY("one at a time", epoll_wait(set, got, 1, 0));
    SAY("no room", epoll_wait(set, got, 0, 0));
    SAY("read", read(fd, buf, 100));
    SAY("read", read(ends[0], buf, 1));
    SAY("empty", epoll_wait(set, got, 4, 0));
    ask = (struct epoll_event){EPOLLIN | EPOLLOUT | EPOLLET, {.u64 = 9}};
    SAY("edge", epoll_ctl(set, EPOLL_CTL_MOD, fd, &ask));
    SAY("first", epoll_wait(set, got, 4, 0));
    say("%x", got[0].events);
    SAY("no edge", epoll_wait(set, got, 4, 0));
    order("send", 10);
    arrived(fd, 10);
    SAY("edge", epoll_wait(set, got, 4, 3000));
    say("%x", got[0].events);
    SAY("read some", read(fd, buf, 5));
    SAY("no edge", epoll_wait(set, got, 4, 20));
    order("send", 1);
    arrived(fd, 6);
    SAY("edge", epoll_wait(set, got, 4, 3000));
    ask = (struct epoll_event){EPOLLIN | EPOLLONESHOT, {.u64 = 10}};
    SAY("once", epoll_ctl(set, EPOLL_CTL_MOD, fd, &ask));
    SAY("once", epoll_wait(set, got, 4, 0));
    say("%x %d", got[0].events, (int)got[0].data.u64);
    SAY("not again", epoll_wait(set, got, 4, 20));
    SAY("again", epoll_ctl(set, EPOLL_CTL_MOD, fd, &ask));
    SAY("again", epoll_wait(set, got, 4, 0));
    ask.events = EPOLLRDHUP;
    SAY("end", epoll_ctl(set, EPOLL_CTL_MOD, fd, &ask));
    SAY("MSG_MORE", epoll_wait(set, got, 4, 0));
    tell("shut", 0);
    SAY("end", epoll_wait(set, got, 4, 3000));
    say("%x", got[0].events);
    answer();
    int outer = epoll_create1(0);
    struct epoll_event inner = {EPOLLIN, {.u64 = 1}};
    SAY("nested", epoll_ctl(outer, EPOLL_CTL_ADD, set, &inner));
    SAY("nested", epoll_wait(outer, got, 4, 1000));
    say("polled %x", revents(set, POLLIN, 0));
    SAY("remove", epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
    SAY("remove again", epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
    SAY("modify", epoll_ctl(set, EPOLL_CTL_MOD, fd, &ask));
    ask.events = EPOLLIN | EPOLLEXCLUSIVE;
    SAY("exclusive", epoll_ctl(set, EPOLL_CTL_ADD, fd, &ask));
    SAY("exclusive", epoll_wait(set, got, 4, 0));
    close(fd);
    SAY("closed", epoll_wait(set, got, 4, 0));
    order("close", 0);
    close(set), close(outer), close(ends[0]), close(ends[1]);
}

static void descriptors(void) {
    int fd = begin();
    char buf[10];
    int copy = dup(fd);
    say("smallest %d", copy == fd + 1);
    SAY("close", close(fd));
    SAY("closed", read(fd, buf, 1));
    order("send", 4);
    arrived(copy, 4);
    SAY("copy", read(copy, buf, 1));
    SAY("dup2", dup2(copy, 100));
    SAY("dup2, same", dup2(copy, copy));
    SAY("copy", read(100, buf, 1));
    int high = fcntl(copy, F_DUPFD_CLOEXEC, 120);
    say("high %d", high);
    SAY("dup3", dup3(high, 130, O_CLOEXEC) - 130);
    close(copy), close(high);
    SAY("copy", recv(130, buf, 1, 0));
    int nothing = open("/dev/null", O_RDWR);
    SAY("dup2 over a connection", dup2(nothing, 130) - 130);
    SAY("nothing", read(130, buf, 1));
    SAY("copy", recv(100, buf, 10, 0));
    SAY("range", close_range(100, 140, 0));
    SAY("closed", read(100, buf, 1));
    order("close", 0);
    close(nothing);
}

static volatile int alarms;
static void on_alarm(int signal) { (void)signal, alarms++; }

static void alarm_in(int ms, int flags) {
    struct sigaction act = {.sa_handler = on_alarm, .sa_flags = flags};
    sigaction(SIGALRM, &act, NULL);
    struct itimerval time = {{0, 0}, {0, ms * 1000}};
    setitimer(ITIMER_REAL, &time, NULL);
}

static void *send_later(void *unused) {
    (void)unused;
    while (!alarms) usleep(1000);
    usleep(20000);
    order("send", 3);
    return NULL;
}

static void signals(void) {
    int fd = begin(), set = epoll_create1(0);
    char buf[10];
    sigset_t blocked;
    sigemptyset(&blocked), sigaddset(&blocked, SIGALRM);
    alarm_in(50, 0);
    SAY("read", read(fd, buf, 10));
    alarm_in(50, 0);
    say("poll %d", revents(fd, POLLIN, 3000) == -EINTR);
    struct epoll_event event = {EPOLLIN, {.u64 = 1}};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    alarm_in(50, 0);
    SAY("epoll", epoll_wait(set, &event, 1, 3000));
    struct timeval time = {3, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    alarm_in(50, SA_RESTART);
    SAY("read with a limit", read(fd, buf, 10));
    time.tv_sec = 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    alarms = 0;
    pthread_t thread;
    /* This thread must get the alarm. */
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    pthread_create(&thread, NULL, send_later, NULL);
    pthread_sigmask(SIG_UNBLOCK, &blocked, NULL);
    alarm_in(50, SA_RESTART);
    SAY("read goes on", read(fd, buf, 10));
    pthread_join(thread, NULL);
    signal(SIGPIPE, on_alarm);
    alarms = 0;
    shutdown(fd, SHUT_WR);
    SAY("broken", write(fd, "x", 1));
    say("signals %d", alarms);
    SAY("broken, MSG_NOSIGNAL", send(fd, "x", 1, MSG_NOSIGNAL));
    say("signals %d", alarms);
    end(fd);
    close(set);
}

struct reader { int fd; long got; };

static void *reading(void *arg) {
    struct reader *reader = arg;
    reader->got = pull(reader->fd, 100000);
    return NULL;
}

static void *waiting(void *arg) {
    struct reader *reader = arg;
    char byte;
    reader->got = recv(reader->fd, &byte, 1, 0);
    return NULL;
}

static void threads(void) {
    int fd = begin();
    struct reader reader = {fd, 0}, two[2] = {{fd, 0}, {fd, 0}};
    pthread_t thread, both[2];
    pthread_create(&thread, NULL, reading, &reader);
    tell("echo", 100000);
    push(fd, 100000);
    say("echoed %ld", answer());
    pthread_join(thread, NULL);
    say("read %ld", reader.got);
    for (int i = 0; i < 2; i++) pthread_create(&both[i], NULL, waiting, &two[i]);
    usleep(20000);
    order("send", 2);
    for (int i = 0; i < 2; i++) pthread_join(both[i], NULL);
    say("each %ld %ld", two[0].got, two[1].got);
    pthread_create(&thread, NULL, waiting, &reader);
    usleep(20000);
    SAY("shut", shutdown(fd, SHUT_RD));
    pthread_join(thread, NULL);
    say("woken %ld", reader.got);
    end(fd);
}

static void ends(void) {
    char buf[10];
    int fd = begin();
    order("send", 5);
    arrived(fd, 5);
    SAY("read", read(fd, buf, 2));
    close(fd);
    say("unread: peer got %ld", order("recv", 1));
    order("close", 0);
    fd = begin();
    SAY("send", send(fd, "last words", 10, 0));
    close(fd);
    say("closed: peer got %ld", order("recv", -1));
    order("close", 0);
    fd = begin();
    struct linger now = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
    say("aborted: peer got %ld", order("recv", 1));
    order("close", 0);
    fd = begin();
    struct linger patient = {1, 5};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &patient, sizeof patient);
    SAY("send", send(fd, "patience", 8, 0));
    SAY("close", close(fd));
    say("lingered: peer got %ld", order("recv", -1));
    order("close", 0);
    fd = begin();
    order("reset", 0);
    ended(fd);
    say("reset %x", revents(fd, POLLIN | POLLOUT | POLLRDHUP, 1000));
    SAY("read", read(fd, buf, 10));
    SAY("read", read(fd, buf, 10));
    SAY("write", send(fd, "x", 1, MSG_NOSIGNAL));
    close(fd);
    fd = begin();
    struct sockaddr_in peer;
    socklen_t size = sizeof peer;
    order("send", 5);
    arrived(fd, 5);
    order("reset", 0);
    ended(fd);
    SAY("peer's name", getpeername(fd, (void *)&peer, &size));
    SAY("data before the reset", read(fd, buf, 10));
    SAY("reset", read(fd, buf, 10));
    SAY("read", read(fd, buf, 10));
    SAY("peer's name", getpeername(fd, (void *)&peer, &size));
    close(fd);
    fd = begin();
    order("reset", 0);
    ended(fd);
    option(fd, "error", SOL_SOCKET, SO_ERROR);
    option(fd, "error", SOL_SOCKET, SO_ERROR);
    SAY("read", read(fd, buf, 10));
    close(fd);
    fd = begin();
    SAY("shutdown", shutdown(fd, SHUT_RDWR));
    SAY("read", read(fd, buf, 10));
    SAY("bad", shutdown(fd, 9));
    SAY("peer's name", getpeername(fd, (void *)&peer, &size));
    say("peer got %ld", order("recv", -1));
    end(fd);
}

/* This program after an exec, with a connection under the number `fd`. */
static int resumed(int fd, char **words) {
    char buf[10];
    (void)words;
    SAY("after exec", read(fd, buf, 10));
    SAY("after exec", write(fd, "exec", 4));
    return 3;
}

static int child_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void processes(void) {
    int fd = begin();
    char buf[10], number[10];
    order("send", 6);
    arrived(fd, 6);
    SAY("parent", read(fd, buf, 2));
    pid_t child = fork();
    if (!child) {
        SAY("child", read(fd, buf, 2));
        SAY("child", write(fd, "child", 5));
        _exit(4);
    }
    say("ended %d", child_of(child));
    SAY("parent", read(fd, buf, 2));
    SAY("parent", write(fd, "parent", 6));
    say("peer got %ld", order("recv", 11));
    int second = begin();
    order("send", 3);
    arrived(second, 3);
    snprintf(number, sizeof number, "%d", 60);
    child = vfork();
    if (!child) {
        dup2(second, 60);
        execl(self, self, "resumed", number, "-", NULL);
        _exit(9);
    }
    say("ended %d", child_of(child));
    say("peer got %ld", order("recv", 4));
    SAY("system", system("exit 5"));
    order("send", 2);
    SAY("parent", recv(second, buf, 2, MSG_WAITALL));
    int listener = listening(BACK);
    fflush(stdout);
    child = fork();
    if (!child) {
        int got = accept(listener, NULL, NULL);
        SAY("accepted, read", recv(got, buf, 5, MSG_WAITALL));
        SAY("accepted, write", write(got, buf, 5));
        _exit(6);
    }
    order("close", 0);
    order("connect", 0);
    order("send", 5);
    long got = order("recv", 5);
    /* The child's output must come first. */
    say("ended %d", child_of(child));
    say("peer got %ld", got);
    close(second), close(fd), close(listener);
    order("close", 0);
}

/* A child duplicates a close-on-exec connection to another number, closes all other descriptors, as
 * Python's subprocess does, and executes a program. The parent uses the connection at the same time. */
static void taken(void) {
    char buf[10];
    int fd = begin(), gate[2];
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    SAY("pipe", pipe(gate));
    fflush(stdout);
    pid_t child = vfork();
    if (!child) {
        dup2(fd, 0);
        dup2(gate[0], 3);
        close_range(4, ~0U, 0);
        execl("/bin/sh", "sh", "-c", "read go <&3; head -c 3 | od -An -tu1", NULL);
        _exit(9);
    }
    close(gate[0]);
    /* So often that it would move if only the parent had it. */
    for (int i = 0; i < 200; i++) {
        if (write(fd, "parent", 6) != 6) say("write failed");
        usleep(1000);
    }
    say("peer got %ld", order("recv", 1200));
    order("send", 6);
    /* Said first: the child prints too. */
    say("let the child read");
    fflush(stdout);
    if (write(gate[1], "\n", 1) != 1) say("write failed");
    say("ended %d", child_of(child));
    SAY("parent", recv(fd, buf, 3, MSG_WAITALL));
    close(gate[1]);
    end(fd);
}

static void *accepting(void *arg) {
    int *listener = arg;
    *listener = accept4(*listener, NULL, NULL, SOCK_NONBLOCK);
    return NULL;
}

static void connecting(void) {
    char buf[10];
    int fd = connected(peer_host, DATA, SOCK_NONBLOCK), set = epoll_create1(0);
    struct epoll_event event = {EPOLLOUT | EPOLLIN, {.u64 = 5}};
    SAY("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    SAY("connected", epoll_wait(set, &event, 1, 3000));
    say("%x", event.events);
    option(fd, "error", SOL_SOCKET, SO_ERROR);
    order("accept", 0);
    SAY("writable", epoll_wait(set, &event, 1, 3000));
    SAY("write", write(fd, "hello", 5));
    say("peer got %ld", order("echo", 5));
    event.events = EPOLLIN;
    SAY("modify", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    SAY("readable", epoll_wait(set, &event, 1, 3000));
    SAY("read", read(fd, buf, 10));
    SAY("none", epoll_wait(set, &event, 1, 0));
    end(fd);
    int listener = listening(BACK), accepted = listener;
    pthread_t thread;
    pthread_create(&thread, NULL, accepting, &accepted);
    order("connect", 0);
    pthread_join(thread, NULL);
    say("flags %d", !!(fcntl(accepted, F_GETFL) & O_NONBLOCK));
    SAY("nothing yet", read(accepted, buf, 10));
    order("send", 4);
    say("readable %x", revents(accepted, POLLIN, 3000));
    SAY("read", read(accepted, buf, 10));
    close(listener), close(set);
    end(accepted);
    struct sockaddr_in nobody = {.sin_family = AF_INET, .sin_port = htons(9)};
    inet_pton(AF_INET, peer_host, &nobody.sin_addr);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SAY("refused", connect(fd, (void *)&nobody, sizeof nobody));
    say("polled %x", revents(fd, POLLIN | POLLOUT, 3000));
    option(fd, "error", SOL_SOCKET, SO_ERROR);
    SAY("read", read(fd, buf, 10));
    close(fd);
}

/* A socket that is added to an epoll set before it is connected, as nginx does. */
static void watched(void) {
    char buf[10];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(DATA)};
    inet_pton(AF_INET, peer_host, &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), set = epoll_create1(0);
    struct epoll_event event = {EPOLLOUT | EPOLLIN | EPOLLRDHUP | EPOLLET, {.u64 = 7}};
    SAY("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    SAY("unconnected", epoll_wait(set, &event, 1, 0));
    say("%x", event.events);
    SAY("connect", connect(fd, (void *)&to, sizeof to));
    SAY("connected", epoll_wait(set, &event, 1, 3000));
    say("%x", event.events);
    option(fd, "error", SOL_SOCKET, SO_ERROR);
    order("accept", 0);
    SAY("write", write(fd, "hello", 5));
    say("peer got %ld", order("echo", 5));
    /* EPOLLOUT may be reported more than once. */
    int got;
    do got = epoll_wait(set, &event, 1, 3000); while (got == 1 && !(event.events & EPOLLIN));
    SAY("readable", got);
    say("%lu", (unsigned long)event.data.u64);
    SAY("read", read(fd, buf, 10));
    SAY("none", epoll_wait(set, &event, 1, 0));
    close(set);
    end(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0);
    SAY("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    close(fd), close(set);
}

static const struct test more[] = {{"sets", sets}, {"descriptors", descriptors}, {"signals", signals}, {"threads", threads},
                            {"ends", ends}, {"processes", processes}, {"taken", taken}, {"connecting", connecting},
                            {"watched", watched}, {NULL, NULL}};
