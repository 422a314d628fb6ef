/* Measures how long messages of kernel connections spend in each layer.
 *
 * Where the kernel lets programs see its functions:
 *
 *   transmit  tcp_sendmsg -> tcp_push -> __tcp_transmit_skb -> ip_queue_xmit -> net_dev_start_xmit
 *   receive   netif_rx, napi_gro_receive_entry -> netif_receive_skb -> tcp_v4_rcv
 *             -> sk_filter_trim_cap -> tcp_queue_rcv -> tcp_data_ready -> its return -> sk_wait_data's return or tcp_recvmsg -> its return
 *
 * Elsewhere by tracepoints alone, which are fewer (programs with `_tp` in their name):
 *
 *   transmit  tcp_sendmsg_locked -> sock_send_length, if the call returns first -> net_dev_queue
 *             -> net_dev_start_xmit
 *   receive   netif_rx, napi_gro_receive_entry -> netif_receive_skb -> tcp_probe -> sk_data_ready
 *             -> skb_copy_datagram_iovec -> sock_recv_length
 *
 * A time between two points that has several layers counts as the first of them.
 *
 * A connection is watched from its first call on that the loader wants (WANTED). Its state lies with the
 * socket, so it ends with it. On each way one message at a time is followed; calls and segments meanwhile
 * are counted only. So one processor at a time adds to the histograms of a way, and needs no lock.
 *
 * The layers' numbers and the histogram are those of the crate `latency`. */
#include "bpf.h"

#define BUCKETS 1024
#define FINE 5
#define LONGEST ((1ull << 36) - 1)
/* A segment that has not reached a device after this time was lost on the way, or was cut in software. */
#define GIVE_UP_NS 1000000000ull
/* A frame's points that are older are those of another in the same memory. */
#define OLDEST_NS 1000000000ull
#define NO_SLOT 0xffffffff
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
	LAYERS = 17,
};

struct histogram {
	u64 sum;
	u64 longest;
	u32 buckets[BUCKETS];
};

struct spans {
	struct histogram layers[LAYERS];
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
	u32 slot;
	u32 in_call; /* to send, as far as tracepoints show */
	u64 started; /* the call of `sent` */
	struct message sent, got;
	u64 sent_at[T_POINTS], got_at[R_POINTS];
};

struct connection {
	u64 cookie;
	u64 skipped[2]; /* sent while another was followed, received likewise */
	u64 lost[2]; /* followed, and not seen to its end */
	u32 pid;
	u32 state; /* 0: free, 1: watched, 2: closed */
	u8 local[16], remote[16];
	u16 local_port, remote_port;
	u32 unused;
};

/* What the loader wants. Numbers that are 0 do not matter. */
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

static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static long (*const bpf_map_pop_elem)(void *map, void *value) = (void *)88;
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

/* The loader sets the sizes of these three. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct spans);
} SPANS SEC(".maps");

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

/* The state of a socket that is watched. */
INLINE struct watched *watched(struct sock *sk)
{
	struct watched *it = bpf_sk_storage_get(&SOCKETS, sk, 0, 0);

	return it && it->slot != NO_SLOT ? it : 0;
}

INLINE void count(const struct watched *it, int receive, int lost)
{
	u32 slot = it->slot;
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
	u32 slot = NO_SLOT;

	if (it)
		return it->slot != NO_SLOT ? it : 0;
	if (sk->sk_protocol != IPPROTO_TCP || !wanted(sk))
		return 0;
	u32 zero = 0;
	u64 *left_out = bpf_map_lookup_elem(&LEFT_OUT, &zero);
	if (!left_out)
		return 0;
	if (bpf_map_pop_elem(&FREE, &slot)) {
		slot = NO_SLOT;
		if (*left_out >= LEFT_OUT_MAX)
			return 0;
		__sync_fetch_and_add(left_out, 1);
	}
	it = bpf_sk_storage_get(&SOCKETS, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!it)
		return 0;
	it->slot = slot;
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

/* Follows the message of a call, unless another of its way is on its way still. */
INLINE int call(struct watched *it, u32 begin, u32 length)
{
	u64 now = bpf_ktime_get_ns();
	u32 stage = it->sent.stage;

	if (stage == COPIED || ((stage == TAKEN_UP || stage == BUILT) && now - it->started < GIVE_UP_NS)) {
		count(it, 0, 0);
		return 0;
	}
	if (stage == TAKEN_UP || stage == BUILT)
		count(it, 0, 1);
	it->started = now;
	it->sent_at[T_CALL] = now;
	it->sent_at[T_COPIED] = 0;
	it->sent_at[T_TAKEN_UP] = 0;
	it->sent.begin = begin;
	it->sent.end = begin + length;
	it->sent.stage = CALLED;
	return 0;
}

/* The call to send. */
SEC("fentry/tcp_sendmsg")
int t_call(u64 *ctx)
{
	struct watched *it = watch((struct sock *)ctx[0]);

	if (!it)
		return 0;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock((struct sock *)ctx[0]);
	return tcp ? call(it, tcp->write_seq, ctx[2]) : 0;
}

/* The call to send has the lock. It comes here again for each buffer that it fills. */
SEC("tp_btf/tcp_sendmsg_locked")
int t_call_tp(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct msghdr *message = (struct msghdr *)ctx[1];
	struct watched *it = watch(sk);

	if (!it || it->sent.stage == CALLED || it->in_call)
		return 0;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return 0;
	it->in_call = 1;
	return call(it, tcp->write_seq, message->msg_iter.count);
}

/* The call to send returns. What it took is queued, if it is not sent yet. */
SEC("tp_btf/sock_send_length")
int t_returned_tp(u64 *ctx)
{
	struct watched *it = watched((struct sock *)ctx[0]);
	int length = ctx[1];

	if (!it)
		return 0;
	it->in_call = 0;
	if (it->sent.stage != CALLED)
		return 0;
	it->sent.end = it->sent.begin + length;
	it->sent_at[T_COPIED] = bpf_ktime_get_ns();
	it->sent.stage = length > 0 ? COPIED : IDLE;
	return 0;
}

/* The sequence number behind a segment that IP has built. */
INLINE u32 end_of_built(struct sk_buff___latency *skb)
{
	u8 *header = skb->head + skb->transport_header;
	u8 bytes[16] = {};

	if (bpf_probe_read_kernel(bytes, sizeof(bytes), header))
		return 0;
	u32 seq = __builtin_bswap32(*(u32 *)(bytes + 4));
	u32 before = header - skb->data;
	return seq + skb->len - before - (bytes[12] >> 4) * 4;
}

/* A segment has its headers, and a device's queue gets it. That with the message's last byte counts. */
SEC("tp_btf/net_dev_queue")
int t_queued_tp(u64 *ctx)
{
	struct sk_buff___latency *skb = (struct sk_buff___latency *)ctx[0];
	struct sock *sk = skb->sk;

	if (!sk)
		return 0;
	struct watched *it = watched(sk);
	if (!it || (it->sent.stage != CALLED && it->sent.stage != COPIED))
		return 0;
	if (!reached(end_of_built(skb), it->sent.end))
		return 0;
	it->sent_at[T_BUILT] = bpf_ktime_get_ns();
	it->sent.skb = ctx[0];
	it->sent.stage = BUILT;
	return 0;
}

/* The bytes lie in the send queue. */
SEC("fentry/tcp_push")
int t_copied(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct watched *it = watched(sk);

	if (!it || it->sent.stage != CALLED)
		return 0;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return 0;
	it->sent.end = tcp->write_seq;
	it->sent_at[T_COPIED] = bpf_ktime_get_ns();
	it->sent.stage = COPIED;
	return 0;
}

/* A segment is taken up. That with the message's last byte counts. Without `tcp_push`, which a compiler may
 * have inlined, the message is not seen to be copied. */
SEC("fentry/__tcp_transmit_skb")
int t_taken_up(u64 *ctx)
{
	struct watched *it = watched((struct sock *)ctx[0]);

	if (!it || (it->sent.stage != COPIED && it->sent.stage != CALLED))
		return 0;
	if (!reached(end_of((struct sk_buff___latency *)ctx[1]), it->sent.end))
		return 0;
	it->sent_at[T_TAKEN_UP] = bpf_ktime_get_ns();
	it->sent.stage = TAKEN_UP;
	return 0;
}

INLINE int built(u64 *ctx)
{
	struct watched *it = watched((struct sock *)ctx[0]);

	if (!it || it->sent.stage != TAKEN_UP)
		return 0;
	it->sent_at[T_BUILT] = bpf_ktime_get_ns();
	it->sent.skb = ctx[1];
	it->sent.stage = BUILT;
	return 0;
}

SEC("fentry/ip_queue_xmit")
int t_built_v4(u64 *ctx)
{
	return built(ctx);
}

SEC("fentry/inet6_csk_xmit")
int t_built_v6(u64 *ctx)
{
	return built(ctx);
}

/* A device gets a frame. */
SEC("tp_btf/net_dev_start_xmit")
int t_device(u64 *ctx)
{
	struct sk_buff___latency *skb = (struct sk_buff___latency *)ctx[0];
	struct sock *sk = skb->sk;

	if (!sk)
		return 0;
	struct watched *it = watched(sk);
	if (!it || it->sent.stage != BUILT || it->sent.skb != ctx[0])
		return 0;
	u64 now = bpf_ktime_get_ns();
	u32 slot = it->slot;
	struct spans *spans = bpf_map_lookup_elem(&SPANS, &slot);
	if (spans) {
		u64 *at = it->sent_at;

		record(&spans->layers[WRITE], at[T_CALL], or(at[T_COPIED], or(at[T_TAKEN_UP], at[T_BUILT])));
		record(&spans->layers[SEND_QUEUE], at[T_COPIED], or(at[T_TAKEN_UP], at[T_BUILT]));
		record(&spans->layers[SEGMENT], at[T_TAKEN_UP], at[T_BUILT]);
		record(&spans->layers[OUTPUT], at[T_BUILT], now);
		record(&spans->layers[TRANSMIT], at[T_CALL], now);
	}
	it->sent.stage = IDLE;
	return 0;
}

/* A driver hands a frame to the stack. */
INLINE int arrived(u64 *ctx)
{
	struct arrival *arrival = arrival_of(ctx[0]);

	if (!arrival)
		return 0;
	arrival->skb = ctx[0];
	arrival->arrived = bpf_ktime_get_ns();
	arrival->taken = 0;
	arrival->parsed = 0;
	return 0;
}

SEC("tp_btf/netif_rx")
int r_arrived(u64 *ctx)
{
	return arrived(ctx);
}

SEC("tp_btf/napi_gro_receive_entry")
int r_arrived_napi(u64 *ctx)
{
	return arrived(ctx);
}

/* The stack takes the frame up, from a processor's backlog or joined with others. */
SEC("tp_btf/netif_receive_skb")
int r_taken(u64 *ctx)
{
	struct arrival *arrival = arrival_of(ctx[0]);

	if (!arrival)
		return 0;
	u64 now = bpf_ktime_get_ns();
	if (arrival->skb != ctx[0] || now - arrival->arrived > OLDEST_NS) {
		arrival->skb = ctx[0];
		arrival->arrived = 0;
	}
	arrival->taken = now;
	arrival->parsed = 0;
	return 0;
}

INLINE int parsed(u64 *ctx)
{
	struct arrival *arrival = arrival_of(ctx[0]);

	if (arrival && arrival->skb == ctx[0])
		arrival->parsed = bpf_ktime_get_ns();
	return 0;
}

SEC("fentry/tcp_v4_rcv")
int r_parsed_v4(u64 *ctx)
{
	return parsed(ctx);
}

SEC("fentry/tcp_v6_rcv")
int r_parsed_v6(u64 *ctx)
{
	return parsed(ctx);
}

/* Follows a segment whose socket is found, unless another is followed. */
INLINE int found(struct watched *it, struct sock *sk, u64 skb)
{
	u64 now = bpf_ktime_get_ns();

	if (it->got.stage == TOLD) {
		struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

		/* Was it read by a call that is not followed, such as splice(2)? Or does a call return now? */
		if (!tcp || !reached(tcp->copied_seq, it->got.end) || now - it->got_at[R_TOLD] < GIVE_UP_NS)
			return 0;
		count(it, 1, 1);
	}
	struct arrival *arrival = arrival_of(skb);
	if (arrival && arrival->skb == skb && now - arrival->taken < OLDEST_NS) {
		it->got_at[R_ARRIVED] = arrival->arrived;
		it->got_at[R_TAKEN] = arrival->taken;
		it->got_at[R_PARSED] = arrival->parsed;
		arrival->skb = 0;
	} else {
		it->got_at[R_ARRIVED] = it->got_at[R_TAKEN] = it->got_at[R_PARSED] = 0;
	}
	it->got_at[R_FOUND] = now;
	it->got_at[R_PLACED] = 0;
	it->got_at[R_DECIDED] = 0;
	it->got_at[R_RUNS] = 0;
	it->got.skb = skb;
	return 1;
}

/* The segment's socket is found, and its filter is asked. Whether it has data is seen later. */
SEC("fentry/sk_filter_trim_cap")
int r_found(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct watched *it = watched(sk);

	if (!it || (it->got.stage != IDLE && it->got.stage != FOUND && it->got.stage != TOLD))
		return 0;
	if (found(it, sk, ctx[1]))
		it->got.stage = FOUND;
	return 0;
}

/* A segment reaches an established connection, after its socket's backlog. The next bytes are followed. */
SEC("tp_btf/tcp_probe")
int r_found_tp(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct sk_buff___latency *skb = (struct sk_buff___latency *)ctx[1];
	struct watched *it = watched(sk);

	if (!it)
		return 0;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	u32 seq = ((struct tcp_skb_cb *)skb->cb)->seq, end = end_of(skb);
	if (!tcp || seq == end || !reached(tcp->rcv_nxt, seq) || reached(tcp->rcv_nxt, end))
		return 0;
	if (it->got.stage != IDLE && it->got.stage != PLACED && it->got.stage != TOLD)
		return 0;
	if (!found(it, sk, ctx[1])) {
		count(it, 1, 0);
		return 0;
	}
	it->got.end = end;
	it->got.stage = PLACED;
	return 0;
}

/* Data in sequence lies in the receive queue. */
SEC("fexit/tcp_queue_rcv")
int r_placed(u64 *ctx)
{
	struct watched *it = watched((struct sock *)ctx[0]);

	if (!it)
		return 0;
	if (it->got.stage != FOUND || it->got.skb != ctx[1]) {
		count(it, 1, 0);
		return 0;
	}
	it->got_at[R_PLACED] = bpf_ktime_get_ns();
	it->got.end = end_of((struct sk_buff___latency *)ctx[1]);
	it->got.stage = PLACED;
	return 0;
}

/* Everything about the segment is decided, and the program is to be told. */
SEC("fentry/tcp_data_ready")
int r_decided(u64 *ctx)
{
	struct watched *it = watched((struct sock *)ctx[0]);

	if (!it || it->got.stage != PLACED)
		return 0;
	it->got_at[R_DECIDED] = bpf_ktime_get_ns();
	it->got.stage = DECIDED;
	return 0;
}

SEC("fexit/tcp_data_ready")
int r_told(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct watched *it = watched(sk);

	if (!it || it->got.stage != DECIDED)
		return 0;
	/* With less than SO_RCVLOWAT bytes the program is not told. */
	int low = sk->sk_rcvlowat;
	if (low > 1) {
		struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

		if (tcp && (int)(tcp->rcv_nxt - tcp->copied_seq) < low) {
			it->got.stage = PLACED;
			return 0;
		}
	}
	it->got_at[R_TOLD] = bpf_ktime_get_ns();
	it->got.stage = TOLD;
	return 0;
}

/* The program is told. */
SEC("tp_btf/sk_data_ready")
int r_told_tp(u64 *ctx)
{
	struct watched *it = watched((struct sock *)ctx[0]);

	if (!it || it->got.stage != PLACED)
		return 0;
	it->got_at[R_TOLD] = bpf_ktime_get_ns();
	it->got.stage = TOLD;
	return 0;
}

/* A thread runs and begins to copy. */
SEC("tp_btf/skb_copy_datagram_iovec")
int r_copies_tp(u64 *ctx)
{
	struct sock *sk = ((struct sk_buff___latency *)ctx[0])->sk;

	if (!sk)
		return 0;
	struct watched *it = watched(sk);
	if (it && it->got.stage == TOLD && !it->got_at[R_RUNS])
		it->got_at[R_RUNS] = bpf_ktime_get_ns();
	return 0;
}

/* A thread that waited in a call runs. */
SEC("fexit/sk_wait_data")
int r_waited(u64 *ctx)
{
	struct watched *it = watched((struct sock *)ctx[0]);

	if (it && it->got.stage == TOLD && !it->got_at[R_RUNS])
		it->got_at[R_RUNS] = bpf_ktime_get_ns();
	return 0;
}

/* A thread runs and asks for data. The interrupt may still be telling it. */
SEC("fentry/tcp_recvmsg")
int r_call(u64 *ctx)
{
	struct watched *it = watch((struct sock *)ctx[0]);

	if (it && it->got.stage >= PLACED && !it->got_at[R_RUNS])
		it->got_at[R_RUNS] = bpf_ktime_get_ns();
	return 0;
}

/* A call to receive returns. */
INLINE int returned(struct watched *it, struct sock *sk)
{
	if (it->got.stage != TOLD)
		return 0;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp || !reached(tcp->copied_seq, it->got.end))
		return 0;
	u64 now = bpf_ktime_get_ns();
	u32 slot = it->slot;
	struct spans *spans = bpf_map_lookup_elem(&SPANS, &slot);
	u64 *at = it->got_at, told = at[R_TOLD], runs = at[R_RUNS];
	/* It ran already when it was told. */
	if (runs < told)
		runs = told;
	if (spans && now >= runs) {
		u64 start = or(or(at[R_ARRIVED], at[R_TAKEN]), or(at[R_PARSED], at[R_FOUND]));
		u64 decided = or(at[R_DECIDED], told);

		record(&spans->layers[RECEIVE_DEVICE], at[R_ARRIVED], at[R_TAKEN]);
		record(&spans->layers[PARSE], at[R_TAKEN], or(at[R_PARSED], at[R_FOUND]));
		record(&spans->layers[LOOKUP], at[R_PARSED], at[R_FOUND]);
		record(&spans->layers[PLACE], at[R_FOUND], or(at[R_PLACED], decided));
		record(&spans->layers[DECIDE], at[R_PLACED], decided);
		record(&spans->layers[TELL], at[R_DECIDED], told);
		record(&spans->layers[WAKE_UP], told, runs);
		record(&spans->layers[READ], runs, now);
		record(&spans->layers[RECEIVE], start, now);
		record(&spans->layers[STACK], start, told);
	}
	it->got.stage = IDLE;
	return 0;
}

SEC("fexit/tcp_recvmsg")
int r_returned(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct watched *it = watched(sk);

	return it ? returned(it, sk) : 0;
}

SEC("tp_btf/sock_recv_length")
int r_returned_tp(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct watched *it = watch(sk);

	return it ? returned(it, sk) : 0;
}

/* A connection ends. The reader frees its slot. */
SEC("tp_btf/inet_sock_set_state")
int closed(u64 *ctx)
{
	if ((int)ctx[2] != TCP_CLOSE)
		return 0;
	struct watched *it = watched((struct sock *)ctx[0]);

	if (!it)
		return 0;
	u32 slot = it->slot;
	struct connection *connection = bpf_map_lookup_elem(&CONNECTIONS, &slot);
	it->slot = NO_SLOT;
	if (connection)
		connection->state = 2;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
