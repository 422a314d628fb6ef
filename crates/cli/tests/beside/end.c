/* One end of a connection: an ordinary program, which does not know about Baton.
 *
 *     end listen|connect ADDRESS PORT idle|bulk|ask|answer
 *
 * It opens one connection and prints "ready" (when it listens) and "open". Each byte that it sends
 * is a function of its place in the stream, and each byte that it receives is checked against that
 * function. It reads commands from standard input, one letter per line:
 *
 *     p  send 64 bytes                  b  send 6 MiB (the other end is told, too)
 *     h  send nothing new               f  shut the sending side down
 *     r  report: "sent N received N end WORD wrong N"
 *
 * A burst is not answered: an answer would be 48 MiB long, which takes a shaped link most of a
 * minute.
 *
 * `end` is `-` while the connection is open, then `eof` or the name of the first error. `wrong` is
 * the place of the first wrong byte, or -1. The program ends when its standard input closes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 65536, REQUEST = 64, ANSWER = 512, BURST = 6 << 20 };

/* Limit of bulk data: bytes per interval in nanoseconds, since several ends share a machine. */
static const long long PACE = 5000000;

static int fd;
static int connects;
static char traffic;
static long long sent, received, wrong = -1, wanted, next_ns;
/* Bytes of bursts, in each direction. */
static long long bursts;
static int hushed;
static const char *end = "-";

static long long now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* The two directions differ, so that an echo cannot pass for an answer. */
static unsigned char at(long long place, int from_client)
{
	return ((unsigned long long)place * 0x9e3779b97f4a7c15ULL >> 56) ^ (from_client ? 0x5a : 0);
}

static void failed(const char *why)
{
	if (!strcmp(end, "-"))
		end = why;
}

static void open_connection(int listens, const char *address, const char *port)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM }, *found;
	if (getaddrinfo(address, port, &hints, &found))
		exit(3);
	int one = 1, first = socket(found->ai_family, SOCK_STREAM, 0);
	if (listens) {
		setsockopt(first, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		if (bind(first, found->ai_addr, found->ai_addrlen) || listen(first, 1)) {
			perror("end: listen");
			exit(3);
		}
		puts("ready");
		fd = accept(first, NULL, NULL);
		close(first);
	} else {
		fd = connect(first, found->ai_addr, found->ai_addrlen) ? -1 : first;
	}
	if (fd < 0) {
		perror("end: open");
		exit(3);
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	freeaddrinfo(found);
	puts("open");
}

static void send_some(void)
{
	static unsigned char piece[PIECE];
	long long len = wanted - sent < PIECE ? wanted - sent : PIECE;
	for (long long i = 0; i < len; i++)
		piece[i] = at(sent + i, connects);
	ssize_t done = send(fd, piece, len, MSG_NOSIGNAL);
	if (done >= 0)
		sent += done;
	else if (errno != EAGAIN && errno != EINTR)
		failed(strerrorname_np(errno));
}

static void receive_some(void)
{
	static unsigned char piece[PIECE];
	ssize_t done = recv(fd, piece, PIECE, 0);
	if (done == 0)
		failed("eof");
	else if (done < 0 && errno != EAGAIN && errno != EINTR)
		failed(strerrorname_np(errno));
	for (ssize_t i = 0; i < done; i++, received++)
		if (wrong < 0 && piece[i] != at(received, !connects))
			wrong = received;
}

/* Length of the stream of answers to this many bytes of the stream of questions. */
static long long answers(long long asked)
{
	return bursts + (asked - bursts) / REQUEST * ANSWER;
}

/* The position up to which to send now, and the time until there is more, in milliseconds. */
static int plan(void)
{
	if (hushed)
		return -1;
	if (traffic == 'w') {
		if (wanted < answers(received))
			wanted = answers(received);
		return -1;
	}
	if (traffic == 'i' || wanted > sent || (traffic == 'a' && received < answers(wanted)))
		return -1;
	long long left = next_ns - now();
	if (left > 0)
		return left / 1000000 + 1;
	next_ns = now() + PACE;
	wanted += traffic == 'a' ? REQUEST : PIECE;
	return -1;
}

static void obey(char order)
{
	switch (order) {
	case 'p':
		wanted += REQUEST;
		break;
	case 'b':
		wanted += BURST;
		bursts += BURST;
		break;
	case 'h':
		hushed = 1;
		break;
	case 'f':
		if (shutdown(fd, SHUT_WR))
			failed(strerrorname_np(errno));
		break;
	case 'r':
		printf("sent %lld received %lld end %s wrong %lld\n", sent, received, end, wrong);
	}
}

int main(int count, char **words)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count != 5)
		return 2;
	connects = words[1][0] == 'c';
	/* "ask" begins as "answer" does. */
	traffic = strcmp(words[4], "answer") ? words[4][0] : 'w';
	open_connection(!connects, words[2], words[3]);
	for (;;) {
		int patience = plan(), lives = !strcmp(end, "-");
		struct pollfd both[] = {
			{ .fd = 0, .events = POLLIN },
			{ .fd = lives ? fd : -1, .events = POLLIN | (wanted > sent ? POLLOUT : 0) },
		};
		if (poll(both, 2, patience) < 0 && errno != EINTR)
			return 4;
		/* Receive first: a reset is reported only once, and the reader must see it. */
		if (both[1].revents & (POLLIN | POLLHUP | POLLERR))
			receive_some();
		if (both[1].revents & POLLOUT)
			send_some();
		if (both[0].revents) {
			char orders[256];
			ssize_t len = read(0, orders, sizeof orders);
			if (len <= 0)
				return 0;
			for (ssize_t i = 0; i < len; i++)
				obey(orders[i]);
		}
	}
}
