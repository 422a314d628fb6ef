/* Steering: each frame's connection is looked up in a map. A hit goes to the
 * engine, everything else goes on to the kernel at once.
 *
 *             steer_xdp                          steer_tc
 *   wire ----> hit ----> AF_XDP socket   wire ----> hit ----> TAP, read by the engine
 *         \--> else ---> kernel                \--> else ---> kernel
 *                                                steer_tap
 *   engine --> AF_XDP socket --> wire    engine, into the TAP --> own tuple --> wire
 *                                                             \-> else -------> dropped
 *
 * A tuple is in the map, and its engine is not there: the frame is dropped. The
 * kernel would answer it with numbers that are no longer true.
 *
 * An ICMP error belongs to the connection whose segment it quotes. The kernel would
 * make nothing of it: the sequence number is none that the husk has sent.
 *
 * Whatever cannot be matched goes to the kernel: fragments, IPv6 extension
 * headers, more than two VLAN tags, headers that are cut off. Map layout and
 * order of the counters are shared with crates/kernel/src/steer/maps.rs.
 */
#include "bpf.h"

#define TUPLES_MAX 65536 /* the loader may choose another number */
#define ENGINES_MAX 1024 /* number 0 is the interface's own, others are programs' */
#define SOCKETS_MAX 64

/* A connection as seen from here. IPv4 addresses as ::ffff:a.b.c.d, ports in
 * network order, VLAN ids from the outermost on, 0 for none. */
struct tuple {
	u8 local[16];
	u8 remote[16];
	u8 local_port[2];
	u8 remote_port[2];
	u16 vlans[2];
};

enum state {
	STATE_STEER, /* to the engine */
	STATE_DROP, /* to nobody */
};

struct steered {
	u32 engine;
	u32 state;
};

struct engine {
	u32 up;
	u32 wire; /* index of the interface that is steered */
	u32 device; /* index of the TAP device, tc kind */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TUPLES_MAX);
	__type(key, struct tuple);
	__type(value, struct steered);
} TUPLES SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ENGINES_MAX);
	__type(key, u32);
	__type(value, struct engine);
} ENGINES SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, SOCKETS_MAX);
	__type(key, u32);
	__type(value, u32);
} SOCKETS SEC(".maps");

enum count {
	COUNT_PASSED,
	COUNT_HIT,
	COUNT_NO_ENGINE,
	COUNT_HELD_BACK,
	COUNT_FRAGMENT,
	COUNT_MALFORMED,
	COUNT_SENT,
	COUNT_FOREIGN,
	COUNT_MAX,
};

#include "counts.h"

#define TAG 4
#define IPV4 20
#define IPV6 40
#define TCP 20
/* Where the checksum is in a TCP header. */
#define CHECKSUM 16
/* An sk_buff's `ip_summed` whose checksum somebody is still to write. */
#define CHECKSUM_PARTIAL 3
#define ICMP 8
/* What an error quotes of TCP at least: ports and sequence number (RFC 792). */
#define QUOTED_TCP 8
/* The longest headers that are looked at: two tags, IPv4 with all its options. */
#define HEADERS (ETHERNET + 2 * TAG + 60 + TCP)
/* The same of an ICMP error, with the headers that it quotes. */
#define ERROR_HEADERS (ETHERNET + 2 * TAG + 60 + ICMP + 60 + QUOTED_TCP)

INLINE u16 be16(const u8 *p)
{
	return p[0] << 8 | p[1];
}

/* Ports follow each other, and so do IPv4 and IPv6 addresses: the sender's
 * first, which is ours in a frame of the engine. */
INLINE void order(struct tuple *t, const u8 *address, int len, const u8 *ports, int ours)
{
	u8 *first = ours ? t->local : t->remote;
	u8 *second = ours ? t->remote : t->local;

	if (len == 4) {
		first[10] = first[11] = second[10] = second[11] = 0xff;
		__builtin_memcpy(first + 12, address, 4);
		__builtin_memcpy(second + 12, address + 4, 4);
	} else {
		__builtin_memcpy(first, address, 16);
		__builtin_memcpy(second, address + 16, 16);
	}
	__builtin_memcpy(ours ? t->local_port : t->remote_port, ports, 2);
	__builtin_memcpy(ours ? t->remote_port : t->local_port, ports + 2, 2);
}

/* An ICMP error whose quotation lies beyond `end`: there may be more of it. */
#define CUT_OFF COUNT_MAX

/* Finds the tuple of the segment of ours that an ICMP error at `p` quotes. */
INLINE enum count quoted_v4(const u8 *p, const u8 *end, struct tuple *t)
{
	if (p + ICMP + IPV4 > end)
		return CUT_OFF;
	/* Unreachable, time exceeded, parameter problem. */
	if (p[0] != 3 && p[0] != 11 && p[0] != 12)
		return COUNT_PASSED;
	const u8 *q = p + ICMP;
	u32 len = (q[0] & 0xf) * 4;
	/* TCP, and not a later fragment. */
	if (q[0] >> 4 != 4 || len < IPV4 || q[9] != 6 || be16(q + 6) & 0x1fff)
		return COUNT_PASSED;
	const u8 *tcp = q + len;
	if (tcp + QUOTED_TCP > end)
		return CUT_OFF;
	order(t, q + 12, 4, tcp, 1);
	return COUNT_HIT;
}

INLINE enum count quoted_v6(const u8 *p, const u8 *end, struct tuple *t)
{
	if (p + ICMP + IPV6 + QUOTED_TCP > end)
		return CUT_OFF;
	/* Unreachable, packet too big, time exceeded, parameter problem. */
	if (p[0] < 1 || p[0] > 4)
		return COUNT_PASSED;
	const u8 *q = p + ICMP;
	if (q[0] >> 4 != 6 || q[6] != 6)
		return COUNT_PASSED;
	order(t, q + 8, 16, q + IPV6, 1);
	return COUNT_HIT;
}

/* Finds the tuple of the TCP segment whose Ethernet header is at `f`, or of the one
 * that an ICMP error there quotes; the counter of the reason if there is none,
 * COUNT_HIT if there is, or CUT_OFF. A tag that the kernel has taken off the frame
 * is `tag`. Where a segment's TCP header begins is written to `tcp`. */
INLINE enum count parse(const u8 *f, const u8 *end, u32 tag, int ours, struct tuple *t, u32 *tcp)
{
	__builtin_memset(t, 0, sizeof *t);
	if (f + ETHERNET > end)
		return COUNT_MALFORMED;
	u16 type = be16(f + 12);
	const u8 *p = f + ETHERNET;
	u32 tags = 0;

	if (tag) {
		t->vlans[0] = tag & 0xfff;
		tags = 1;
	}
	for (int i = 0; i < 2; i++) {
		if (type != 0x8100 && type != 0x88a8)
			break;
		if (tags == 2)
			return COUNT_PASSED;
		if (p + TAG > end)
			return COUNT_MALFORMED;
		if (tags == 0)
			t->vlans[0] = be16(p) & 0xfff;
		else
			t->vlans[1] = be16(p) & 0xfff;
		tags++;
		type = be16(p + 2);
		p += TAG;
	}
	if (type == 0x0800) {
		if (p + IPV4 > end)
			return COUNT_MALFORMED;
		u32 len = (p[0] & 0xf) * 4;
		if (p[0] >> 4 != 4 || len < IPV4)
			return COUNT_MALFORMED;
		if (p[9] != 6 && (p[9] != 1 || ours))
			return COUNT_PASSED;
		/* More fragments, or not the first. */
		if (be16(p + 6) & 0x3fff)
			return p[9] == 6 ? COUNT_FRAGMENT : COUNT_PASSED;
		const u8 *next = p + len;
		if (p[9] == 1)
			return quoted_v4(next, end, t);
		if (next + TCP > end)
			return COUNT_MALFORMED;
		order(t, p + 12, 4, next, ours);
		*tcp = next - f;
		return COUNT_HIT;
	}
	if (type == 0x86dd) {
		if (p + IPV6 > end || p[0] >> 4 != 6)
			return COUNT_MALFORMED;
		if (p[6] == 44)
			return COUNT_FRAGMENT;
		if (p[6] == 58 && !ours)
			return quoted_v6(p + IPV6, end, t);
		if (p[6] != 6)
			return COUNT_PASSED;
		if (p + IPV6 + TCP > end)
			return COUNT_MALFORMED;
		order(t, p + 8, 16, p + IPV6, ours);
		*tcp = p + IPV6 - f;
		return COUNT_HIT;
	}
	return COUNT_PASSED;
}

enum decision { PASS, STEER, DROP };

/* What becomes of a frame from the wire, in which `reason` was found. */
INLINE enum decision decide(enum count reason, const struct tuple *t, struct engine **engine)
{
	struct steered *steered;

	if (reason != COUNT_HIT) {
		/* An error that says too little is nobody's. */
		count(reason == CUT_OFF ? COUNT_PASSED : reason);
		return PASS;
	}
	steered = bpf_map_lookup_elem(&TUPLES, t);
	if (!steered) {
		count(COUNT_PASSED);
		return PASS;
	}
	if (steered->state != STATE_STEER) {
		count(COUNT_HELD_BACK);
		return DROP;
	}
	u32 id = steered->engine;
	*engine = bpf_map_lookup_elem(&ENGINES, &id);
	if (!*engine || !(*engine)->up) {
		count(COUNT_NO_ENGINE);
		return DROP;
	}
	return STEER;
}

SEC("xdp.frags")
int steer_xdp(struct xdp_md *ctx)
{
	struct engine *engine = 0;
	struct tuple t;
	u32 tcp;
	enum count reason = parse((const u8 *)(long)ctx->data, (const u8 *)(long)ctx->data_end, 0, 0, &t, &tcp);

	switch (decide(reason, &t, &engine)) {
	case PASS:
		return XDP_PASS;
	case DROP:
		return XDP_DROP;
	case STEER:
		break;
	}
	/* The flags are what is returned if the queue has no socket. */
	long action = bpf_redirect_map(&SOCKETS, ctx->rx_queue_index, XDP_DROP);
	count(action == XDP_DROP ? COUNT_NO_ENGINE : COUNT_HIT);
	return action;
}

/* A tag that the kernel has taken off, with a bit that makes it differ from none. */
INLINE u32 taken_tag(const struct sk_buff *skb)
{
	return skb->vlan_present ? skb->vlan_tci | 0x10000 : 0;
}

/* Headers may lie in pages that are not mapped to be read directly. It is done only where they
 * do: of a frame whose headers are all that is mapped it would take payload, and a copy of the
 * head for a frame that the sender keeps for retransmission. */
INLINE void pull_headers(struct sk_buff *skb, u32 most)
{
	u32 len = skb->len < most ? skb->len : most;
	if (skb->data_end - skb->data < len)
		bpf_skb_pull_data(skb, len);
}

INLINE enum count parse_skb(const struct sk_buff *skb, int ours, struct tuple *t, u32 *tcp)
{
	const u8 *data = (const u8 *)(long)skb->data;
	const u8 *end = (const u8 *)(long)skb->data_end;

	/* Pointers from here on: where several looks become one, the compiler would carry 32 bits
	 * there and widen them afterwards, which the verifier takes for arithmetic. */
	asm volatile("" : "+r"(data), "+r"(end));
	return parse(data, end, taken_tag(skb), ours, t, tcp);
}

/* The same, wherever the headers lie. */
INLINE enum count find(struct sk_buff *skb, int ours, struct tuple *t, u32 *tcp)
{
	enum count reason = parse_skb(skb, ours, t, tcp);

	if (reason != COUNT_MALFORMED)
		return reason;
	pull_headers(skb, HEADERS);
	return parse_skb(skb, ours, t, tcp);
}

SEC("classifier")
int steer_tc(struct sk_buff *skb)
{
	struct engine *engine = 0;
	struct tuple t;
	u32 tcp;

	/* For another host: seen because the interface is promiscuous. */
	if (skb->pkt_type != 0) {
		count(COUNT_PASSED);
		return TC_NEXT;
	}
	enum count reason = find(skb, 0, &t, &tcp);
	if (reason == CUT_OFF) {
		pull_headers(skb, ERROR_HEADERS);
		reason = parse_skb(skb, 0, &t, &tcp);
	}
	switch (decide(reason, &t, &engine)) {
	case PASS:
		return TC_NEXT;
	case DROP:
		return TC_DROP;
	case STEER:
		break;
	}
	count(COUNT_HIT);
	/* Out of the TAP device is to its reader. */
	return bpf_redirect(engine->device, 0);
}

#define PLACE(member, what) __builtin_preserve_field_info(kernel->member, what)
/* Where a member is from `ip_summed` on. */
#define BEHIND(member) (PLACE(member, PLACE_OFFSET) - PLACE(ip_summed, PLACE_OFFSET))

INLINE u16 half(const void *from)
{
	u16 value;

	__builtin_memcpy(&value, from, sizeof value);
	return value;
}

/* Whether no sum is to be written into the frame after this (virtio: NEEDS_CSUM), or only TCP's,
 * into its own field. Elsewhere it would change what was looked at here, the ports for instance,
 * to a number that who wrote the frame can choose. Not known is no. */
INLINE int keeps_headers(struct sk_buff *skb, u32 tcp)
{
	const struct sk_buff___kernel *kernel = (const void *)skb;
	/* One read, for each takes some 30 ns: these members are neighbours. The verifier takes no
	 * kernel of which that is not so. */
	u64 copy[8];
	const u8 *members = (const u8 *)copy;

	if (PLACE(unplaced, PLACE_EXISTS))
		does_not_load();
	if (bpf_probe_read_kernel(copy, BEHIND(mac_header) + sizeof kernel->mac_header,
				  (const u8 *)kernel + PLACE(ip_summed, PLACE_OFFSET)))
		return 0;
	if (copy[0] << PLACE(ip_summed, PLACE_SHIFT_LEFT) >> PLACE(ip_summed, PLACE_SHIFT_RIGHT) != CHECKSUM_PARTIAL)
		return 1;
	/* The frame begins at its link header. */
	return half(members + BEHIND(csum_start)) == half(members + BEHIND(mac_header)) + tcp &&
	       half(members + BEHIND(csum_offset)) == CHECKSUM;
}

/* What becomes of a frame that an engine wrote. */
INLINE int leave(struct sk_buff *skb, int guarded)
{
	struct tuple t;
	struct steered *steered = 0;
	u32 tcp = 0;

	if (find(skb, 1, &t, &tcp) == COUNT_HIT)
		steered = bpf_map_lookup_elem(&TUPLES, &t);
	if (steered && steered->state == STATE_STEER) {
		u32 id = steered->engine;
		struct engine *engine = bpf_map_lookup_elem(&ENGINES, &id);
		/* An engine that is given up sends no more. */
		if (engine && engine->up && engine->device == skb->ifindex && (!guarded || keeps_headers(skb, tcp))) {
			count(COUNT_SENT);
			return bpf_redirect(engine->wire, 0);
		}
	}
	count(COUNT_FOREIGN);
	return TC_DROP;
}

SEC("classifier")
int steer_tap(struct sk_buff *skb)
{
	return leave(skb, 1);
}

/* For the interface's own engine, where the kernel does not show its sk_buff. */
SEC("classifier")
int steer_tap_own(struct sk_buff *skb)
{
	return leave(skb, 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
