/* The state of sockets, the maps and the histograms, which all programs of `latency.c` share. */
#pragma once

#include "bpf.h"

#define BUCKETS 1024
#define FINE 5
#define LONGEST ((1ull << 36) - 1)
/* A segment that has not reached a device after this time was lost on the way, or was cut in software. */
#define GIVE_UP_NS 1000000000ull
/* A frame's points that are older are those of another in the same memory. */
#define OLDEST_NS 1000000000ull
/* The most sockets that are remembered without being watched. */
#define LEFT_OUT_MAX 65536
#define AF_INET 2
#define AF_INET6 10
#define TCP_CLOSE 7
#define IPPROTO_TCP 6
#define BPF_F_NO_PREALLOC 1
#define BPF_SK_STORAGE_GET_F_CREATE 1
#define BPF_MAP_TYPE_QUEUE 22
#define BPF_MAP_TYPE_SK_STORAGE 24

enum layer {
	WRITE = 0,
	SEND_QUEUE = 1,
	SEGMENT = 2,
	OUTPUT = 4,
	TRANSMIT = 6,
	RECEIVE_DEVICE = 7,
	PARSE = 8,
	LOOKUP = 9,
	PLACE = 10,
	DECIDE = 11,
	TELL = 12,
	WAKE_UP = 13,
	READ = 14,
	RECEIVE = 15,
	STACK = 16,
	ANSWER = 18,
	LAYERS = 19,
};

struct histogram {
	u64 sum;
	u64 longest;
	u32 buckets[BUCKETS];
};

struct spans {
	struct histogram layers[LAYERS];
};

/* A layer's part of a message. Either end is 0 if it was not seen. */
struct part {
	u64 from, until;
};

/* The layers of each way that add up to the whole: WRITE and those behind it, RECEIVE_DEVICE and those behind. */
enum { T_PARTS = TRANSMIT - WRITE, R_PARTS = RECEIVE - RECEIVE_DEVICE };

/* A message with its time in each layer of its way. */
struct exemplar {
	u64 begun, whole;
	u64 end; /* the sequence number behind its last byte */
	u64 parts[R_PARTS];
};

/* The slowest messages of a way of a connection. */
#define KEPT 8
/* Orders what is written before it and what is written after it. */
#define WRITTEN asm volatile("" ::: "memory")
struct slowest {
	u64 writes; /* odd while one is written */
	u64 least; /* the shortest of them */
	u64 at; /* and its place */
	struct exemplar of[KEPT];
};

/* How far the message of a way is. */
enum stage {
	IDLE,
	CALLED,
	COPIED,
	TAKEN_UP,
	BUILT,
	FOUND,
	PLACED,
	DECIDED,
	TOLD,
};

/* The points of transmit and of receive. */
enum { T_CALL, T_COPIED, T_TAKEN_UP, T_BUILT, T_DEVICE, T_POINTS };
enum { R_ARRIVED, R_TAKEN, R_PARSED, R_FOUND, R_PLACED, R_DECIDED, R_TOLD, R_RUNS, R_RETURNED, R_POINTS };

/* The message of one way of a socket. */
struct message {
	u32 stage;
	u32 begin, end; /* its first sequence number, if that is known, and that behind it */
	u32 unused;
	u64 skb;
};

struct watched {
	u32 slot; /* its number plus 1; 0 for none */
	u32 in_call; /* the thread in a call to send, as far as tracepoints show */
	u64 started; /* the call of `sent` */
	u64 asked; /* the first call to send since bytes were read; 0 for none */
	struct message sent, got;
	u64 sent_at[T_POINTS], got_at[R_POINTS];
};

struct connection {
	u64 cookie;
	u64 skipped[2]; /* messages sent and received while another was followed */
	u64 lost[2]; /* followed, and not seen to its end */
	u32 pid;
	u32 state; /* 0: free, 1: watched, 2: closed */
	u8 local[16], remote[16];
	u16 local_port, remote_port;
	u32 unused;
};

/* The loader's wishes. Numbers that are 0 do not matter. */
struct wanted {
	u64 network; /* inode of the network namespace */
	u64 pid_device, pid_inode; /* the namespace in which `pid` is meant */
	u32 pid;
	u16 port; /* either end's */
	u16 local_port, remote_port;
	u16 has_tuple;
	u32 unused;
	u8 local[16], remote[16];
};

const volatile struct wanted WANTED = {};

struct net {
	struct {
		u32 inum;
	} ns;
} __attribute__((preserve_access_index));

struct in6_addr {
	u32 words[4];
};

struct sock_common {
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	u16 skc_dport; /* in network byte order */
	u16 skc_num;
	u16 skc_family;
	struct {
		struct net *net;
	} skc_net;
	struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
	int sk_rcvlowat;
	u16 sk_protocol;
} __attribute__((preserve_access_index));

struct tcp_sock {
	u32 write_seq;
	u32 copied_seq;
	u32 rcv_nxt;
} __attribute__((preserve_access_index));

struct sk_buff___latency {
	struct sock *sk;
	u32 len;
	u8 *head, *data;
	u16 transport_header; /* relative to head */
	char cb[48];
} __attribute__((preserve_access_index));

struct tcp_skb_cb {
	u32 seq, end_seq;
} __attribute__((preserve_access_index));

struct iov_iter {
	u64 count;
} __attribute__((preserve_access_index));

struct msghdr {
	struct iov_iter msg_iter;
} __attribute__((preserve_access_index));

struct bpf_pidns_info {
	u32 pid;
	u32 tgid;
};

static long (*const bpf_map_pop_elem)(void *map, void *value) = (void *)88;
static long (*const bpf_get_func_ret)(void *ctx, u64 *value) = (void *)184;
static void *(*const bpf_sk_storage_get)(void *map, void *sk, void *value, u64 flags) = (void *)107;
static long (*const bpf_get_ns_current_pid_tgid)(u64 device, u64 inode, struct bpf_pidns_info *to, u32 size) =
	(void *)120;
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static struct tcp_sock *(*const bpf_skc_to_tcp_sock)(void *sock) = (void *)137;
static u64 (*const bpf_get_socket_cookie)(void *sock) = (void *)46;

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct watched);
} SOCKETS SEC(".maps");

/* The loader sets the sizes of these four. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct spans);
} SPANS SEC(".maps");

/* Two a slot: those sent and those received. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct slowest);
} SLOWEST SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct connection);
} CONNECTIONS SEC(".maps");

/* The numbers of the slots that are free. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} FREE SEC(".maps");

/* The number of sockets for which there was no slot. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} LEFT_OUT SEC(".maps");

/* Frames on their way to a socket that is not known yet, from whatever processor. Of two that fall together
 * the older's points are lost. */
#define ARRIVALS 1024
struct arrival {
	u64 skb;
	u64 arrived;
	u64 taken;
	u64 parsed;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ARRIVALS);
	__type(key, u32);
	__type(value, struct arrival);
} ON_THE_WAY SEC(".maps");

/* Where an address is stored and read again: a number, with which programs may reckon. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} ADDRESS SEC(".maps");

INLINE struct arrival *arrival_of(u64 skb)
{
	u32 key = 0;
	volatile u64 *address = bpf_map_lookup_elem(&ADDRESS, &key);

	if (!address)
		return 0;
	*address = skb;
	skb = *address;
	key = (skb >> 8 ^ skb >> 18) & (ARRIVALS - 1);
	return bpf_map_lookup_elem(&ON_THE_WAY, &key);
}

/* `latency::bucket`. */
INLINE u32 bucket(u64 ns)
{
	if (ns > LONGEST)
		ns = LONGEST;
	u64 rest = ns >> FINE;
	u32 octave = 0;

	if (rest >> 16) {
		octave += 16;
		rest >>= 16;
	}
	if (rest >> 8) {
		octave += 8;
		rest >>= 8;
	}
	if (rest >> 4) {
		octave += 4;
		rest >>= 4;
	}
	if (rest >> 2) {
		octave += 2;
		rest >>= 2;
	}
	if (rest >> 1)
		octave += 1;
	return ((octave << FINE) + (u32)(ns >> octave)) & (BUCKETS - 1);
}

static __attribute__((noinline)) int record(struct histogram *to, u64 from, u64 until)
{
	if (!to || !from || !until)
		return 0;
	u64 ns = until - from;

	to->buckets[bucket(ns)] += 1;
	to->sum += ns;
	if (ns > to->longest)
		to->longest = ns;
	return 0;
}

/* Keeps a message if it is one of the slowest. */
INLINE void keep(struct slowest *all, const struct part *parts, u64 begun, u64 ended, u32 end)
{
	struct exemplar *it = &all->of[all->at % KEPT];
	u64 least, at = 0;

	all->writes += 1;
	WRITTEN;
	it->begun = begun;
	it->whole = ended - begun;
	it->end = end;
	for (u32 i = 0; i < R_PARTS; i++)
		it->parts[i] = parts[i].from && parts[i].until ? parts[i].until - parts[i].from : 0;
	least = all->of[0].whole;
	for (u32 i = 1; i < KEPT; i++) {
		if (all->of[i].whole < least) {
			least = all->of[i].whole;
			at = i;
		}
	}
	all->least = least;
	all->at = at;
	WRITTEN;
	all->writes += 1;
}

/* A message has come to its end. */
INLINE void finish(const struct watched *it, int receive, const struct part *parts, u64 begun, u64 ended, u32 end)
{
	u32 slot = it->slot - 1, way = slot * 2 + receive, count = receive ? R_PARTS : T_PARTS;
	struct spans *spans = bpf_map_lookup_elem(&SPANS, &slot);
	struct slowest *slowest = bpf_map_lookup_elem(&SLOWEST, &way);

	if (!spans || !slowest)
		return;
	struct histogram *layers = &spans->layers[receive ? RECEIVE_DEVICE : WRITE];
	for (u32 i = 0; i < count; i++) {
		if (parts[i].from && parts[i].until)
			record(&layers[i], parts[i].from, parts[i].until);
	}
	record(&layers[count], begun, ended);
	if (ended - begun > slowest->least)
		keep(slowest, parts, begun, ended, end);
}

/* The state of a socket that is watched. */
INLINE struct watched *watched(struct sock *sk)
{
	struct watched *it = bpf_sk_storage_get(&SOCKETS, sk, 0, 0);

	return it && it->slot ? it : 0;
}

INLINE void count(const struct watched *it, int receive, int lost)
{
	u32 slot = it->slot - 1;
	struct connection *connection = bpf_map_lookup_elem(&CONNECTIONS, &slot);

	if (!connection)
		return;
	if (lost)
		connection->lost[receive] += 1;
	else
		connection->skipped[receive] += 1;
}

/* Writes both addresses, IPv4 mapped to IPv6. */
INLINE void addresses(struct sock *sk, u32 *local, u32 *remote)
{
	struct sock_common *common = &sk->__sk_common;

	if (common->skc_family == AF_INET6) {
		bpf_probe_read_kernel(local, sizeof(struct in6_addr), &common->skc_v6_rcv_saddr);
		bpf_probe_read_kernel(remote, sizeof(struct in6_addr), &common->skc_v6_daddr);
		return;
	}
	local[0] = remote[0] = local[1] = remote[1] = 0;
	local[2] = remote[2] = __builtin_bswap32(0xffff);
	local[3] = common->skc_rcv_saddr;
	remote[3] = common->skc_daddr;
}

INLINE int wanted(struct sock *sk)
{
	struct sock_common *common = &sk->__sk_common;
	u16 local_port = common->skc_num, remote_port = __builtin_bswap16(common->skc_dport);

	/* Without a peer it is no connection: the broker tries the kernel's repair mode on such. */
	if (!remote_port)
		return 0;
	if (WANTED.network && common->skc_net.net->ns.inum != WANTED.network)
		return 0;
	if (WANTED.port && WANTED.port != local_port && WANTED.port != remote_port)
		return 0;
	if (WANTED.pid) {
		struct bpf_pidns_info here = {};

		if (bpf_get_ns_current_pid_tgid(WANTED.pid_device, WANTED.pid_inode, &here, sizeof(here)))
			return 0;
		if (here.tgid != WANTED.pid)
			return 0;
	}
	if (WANTED.has_tuple) {
		u32 local[4] = {}, remote[4] = {};

		if (WANTED.local_port != local_port || WANTED.remote_port != remote_port)
			return 0;
		addresses(sk, local, remote);
		for (int i = 0; i < 4; i++) {
			if (local[i] != ((const volatile u32 *)WANTED.local)[i])
				return 0;
			if (remote[i] != ((const volatile u32 *)WANTED.remote)[i])
				return 0;
		}
	}
	return 1;
}

/* The state of a socket on which a program calls; it is watched from now on if it is wanted. */
INLINE struct watched *watch(struct sock *sk)
{
	struct watched *it = bpf_sk_storage_get(&SOCKETS, sk, 0, 0);
	u32 slot;

	if (it)
		return it->slot ? it : 0;
	if (sk->sk_protocol != IPPROTO_TCP || !wanted(sk))
		return 0;
	u32 zero = 0;
	u64 *left_out = bpf_map_lookup_elem(&LEFT_OUT, &zero);
	if (!left_out)
		return 0;
	if (bpf_map_pop_elem(&FREE, &slot)) {
		slot = -1;
		if (*left_out >= LEFT_OUT_MAX)
			return 0;
		__sync_fetch_and_add(left_out, 1);
	}
	it = bpf_sk_storage_get(&SOCKETS, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!it)
		return 0;
	it->slot = slot + 1;
	struct connection *connection = bpf_map_lookup_elem(&CONNECTIONS, &slot);
	if (!connection)
		return 0;
	connection->cookie = bpf_get_socket_cookie(sk);
	connection->pid = bpf_get_current_pid_tgid() >> 32;
	connection->local_port = sk->__sk_common.skc_num;
	connection->remote_port = __builtin_bswap16(sk->__sk_common.skc_dport);
	addresses(sk, (u32 *)connection->local, (u32 *)connection->remote);
	connection->state = 1;
	return it;
}

INLINE u32 end_of(struct sk_buff___latency *skb)
{
	return ((struct tcp_skb_cb *)skb->cb)->end_seq;
}

INLINE int reached(u32 seq, u32 end)
{
	return (int)(seq - end) >= 0;
}

INLINE u64 or(u64 first, u64 second)
{
	return first ? first : second;
}
