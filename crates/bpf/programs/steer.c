/* Steering: looks up each frame's connection in a map. Frames of connections in
 * the map go to the engine, all others go on to the kernel at once.
 *
 *             steer_xdp                          steer_tc
 *   wire ----> hit ----> AF_XDP socket   wire ----> hit ----> TAP, read by the engine
 *         \--> else ---> kernel                \--> else ---> kernel
 *                                                steer_tap
 *   engine --> AF_XDP socket --> wire    engine, into the TAP --> own tuple --> wire
 *                                                             \-> else -------> dropped
 *
 * If a tuple is in the map but its engine is absent, the frame is dropped. The
 * kernel would answer it with outdated sequence numbers.
 *
 * An ICMP error belongs to the connection whose segment it quotes. The kernel
 * would ignore it, because the husk has not sent the quoted sequence number.
 *
 * While no connection is in the map, frames from the wire go on unexamined.
 *
 * Frames that cannot be matched go to the kernel: fragments, and frames with IPv6
 * extension headers, more than two VLAN tags, or headers that are cut off. The map
 * layout and the order of the counters must match crates/kernel/src/steer/maps.rs.
 */
#include "bpf.h"

#define TUPLES_MAX 65536 /* the loader may change this */
#define ENGINES_MAX 1024 /* engine 0 is the interface's own, the others belong to programs */
#define SOCKETS_MAX 64

/* A connection as seen from this host. IPv4 addresses are written as ::ffff:a.b.c.d,
 * ports are in network byte order, the outermost VLAN id comes first, 0 means no tag. */
struct tuple {
	u8 local[16];
	u8 remote[16];
	u8 local_port[2];
	u8 remote_port[2];
	u16 vlans[2];
};

enum state {
	STATE_STEER, /* to the engine */
	STATE_DROP, /* nowhere */
};

struct steered {
	u32 engine;
	u32 state;
};

enum up {
	DOWN,
	UP,
	NOTED, /* up, and arrivals of its segments are noted */
};

struct engine {
	u32 up;
	u32 wire; /* index of the steered interface */
	u32 device; /* index of the TAP device (kind tc) */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TUPLES_MAX);
	__type(key, struct tuple);
	__type(value, struct steered);
} TUPLES SEC(".maps");

/* 0 while TUPLES is empty. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} STEERED SEC(".maps");

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
#include "note.h"

#define TAG 4
#define IPV4 20
#define IPV6 40
#define TCP 20
/* The offset of the checksum in a TCP header. */
#define CHECKSUM 16
/* The value of `ip_summed` if the checksum is still to be filled in. */
#define CHECKSUM_PARTIAL 3
#define ICMP 8
/* An ICMP error quotes at least this much of TCP: ports and sequence number (RFC 792). */
#define QUOTED_TCP 8
/* The longest headers that are examined: two tags, and IPv4 with all its options. */
#define HEADERS (ETHERNET + 2 * TAG + 60 + TCP)
/* The same for an ICMP error, including the headers that it quotes. */
#define ERROR_HEADERS (ETHERNET + 2 * TAG + 60 + ICMP + 60 + QUOTED_TCP)

INLINE u16 be16(const u8 *p)
{
	return p[0] << 8 | p[1];
}

/* Fills in the addresses and ports. In a frame the sender's address comes directly
 * before the receiver's, and so does its port. The sender is `ours` in a frame of
 * the engine. */
INLINE void fill_tuple(struct tuple *t, const u8 *address, int len, const u8 *ports, int ours)
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

/* An ICMP error whose quotation lies beyond `end`. More of it may be readable. */
#define CUT_OFF COUNT_MAX

/* Finds the tuple of our segment that the ICMP error at `p` quotes. */
INLINE enum count quoted_v4(const u8 *p, const u8 *end, struct tuple *t)
{
	if (p + ICMP + IPV4 > end)
		return CUT_OFF;
	/* Destination unreachable, time exceeded, parameter problem. */
	if (p[0] != 3 && p[0] != 11 && p[0] != 12)
		return COUNT_PASSED;
	const u8 *q = p + ICMP;
	u32 len = (q[0] & 0xf) * 4;
	/* It must be TCP, and not a later fragment. */
	if (q[0] >> 4 != 4 || len < IPV4 || q[9] != 6 || be16(q + 6) & 0x1fff)
		return COUNT_PASSED;
	const u8 *tcp = q + len;
	if (tcp + QUOTED_TCP > end)
		return CUT_OFF;
	fill_tuple(t, q + 12, 4, tcp, 1);
	return COUNT_HIT;
}

INLINE enum count quoted_v6(const u8 *p, const u8 *end, struct tuple *t)
{
	if (p + ICMP + IPV6 + QUOTED_TCP > end)
		return CUT_OFF;
	/* Destination unreachable, packet too big, time exceeded, parameter problem. */
	if (p[0] < 1 || p[0] > 4)
		return COUNT_PASSED;
	const u8 *q = p + ICMP;
	if (q[0] >> 4 != 6 || q[6] != 6)
		return COUNT_PASSED;
	fill_tuple(t, q + 8, 16, q + IPV6, 1);
	return COUNT_HIT;
}

/* Finds the tuple of the TCP segment whose Ethernet header is at `f`, or of the one
 * that an ICMP error there quotes. Returns COUNT_HIT if there is one, else CUT_OFF
 * or the counter of the reason. `tag` is a VLAN tag that the kernel has removed from
 * the frame. The offset of a segment's TCP header is written to `tcp`. */
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
		/* A fragment: more follow, or it is not the first. */
		if (be16(p + 6) & 0x3fff)
			return p[9] == 6 ? COUNT_FRAGMENT : COUNT_PASSED;
		const u8 *next = p + len;
		if (p[9] == 1)
			return quoted_v4(next, end, t);
		if (next + TCP > end)
			return COUNT_MALFORMED;
		fill_tuple(t, p + 12, 4, next, ours);
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
		fill_tuple(t, p + 8, 16, p + IPV6, ours);
		*tcp = p + IPV6 - f;
		return COUNT_HIT;
	}
	return COUNT_PASSED;
}

/* Returns 1 if no connection is in the map: then a look-up, which takes longest, would find nothing. */
INLINE int steers_none(void)
{
	u32 only = 0;
	u32 *steered = bpf_map_lookup_elem(&STEERED, &only);

	return steered && !*steered;
}

enum decision { PASS, STEER, DROP };

/* Decides where a frame from the wire goes, given the result of parsing it. `id` is the number of `engine`. */
INLINE enum decision decide(enum count reason, const struct tuple *t, u32 *id, struct engine **engine)
{
	struct steered *steered;

	if (reason != COUNT_HIT) {
		/* An error that quotes too little belongs to no connection. */
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
	*id = steered->engine;
	*engine = bpf_map_lookup_elem(&ENGINES, id);
	if (!*engine || !(*engine)->up) {
		count(COUNT_NO_ENGINE);
		return DROP;
	}
	return STEER;
}

SEC("xdp.frags")
int steer_xdp(struct xdp_md *ctx)
{
	const u8 *data = (const u8 *)(long)ctx->data;
	const u8 *end = (const u8 *)(long)ctx->data_end;
	struct engine *engine = 0;
	struct tuple t;
	u32 tcp = 0, id = 0;

	if (steers_none()) {
		count(COUNT_PASSED);
		return XDP_PASS;
	}
	enum count reason = parse(data, end, 0, 0, &t, &tcp);
	switch (decide(reason, &t, &id, &engine)) {
	case PASS:
		return XDP_PASS;
	case DROP:
		return XDP_DROP;
	case STEER:
		break;
	}
	if (engine->up == NOTED && tcp)
		note_arrival(id, data, end, tcp);
	/* The flags are the return value if the queue has no socket. */
	long action = bpf_redirect_map(&SOCKETS, ctx->rx_queue_index, XDP_DROP);
	count(action == XDP_DROP ? COUNT_NO_ENGINE : COUNT_HIT);
	return action;
}

/* The tag that the kernel has removed, with an extra bit so that it differs from 0 (no tag). */
INLINE u32 removed_tag(const struct __sk_buff *skb)
{
	return skb->vlan_present ? skb->vlan_tci | 0x10000 : 0;
}

/* Makes headers readable that lie in pages without direct access. Other frames are left alone: if
 * all headers of a frame are readable already, the call would also pull payload, and would copy the
 * head of a frame that the sender keeps for retransmission. */
INLINE void pull_headers(struct __sk_buff *skb, u32 most)
{
	u32 len = skb->len < most ? skb->len : most;
	if (skb->data_end - skb->data < len)
		bpf_skb_pull_data(skb, len);
}

INLINE enum count parse_skb(const struct __sk_buff *skb, int ours, struct tuple *t, u32 *tcp)
{
	const u8 *data = (const u8 *)(long)skb->data;
	const u8 *end = (const u8 *)(long)skb->data_end;

	/* Forces the values into pointers here. When the compiler merges several of these calls, it
	 * would otherwise keep 32 bits and widen them later, which the verifier rejects as arithmetic. */
	asm volatile("" : "+r"(data), "+r"(end));
	return parse(data, end, removed_tag(skb), ours, t, tcp);
}

/* Like parse_skb, wherever the headers lie. */
INLINE enum count find(struct __sk_buff *skb, int ours, struct tuple *t, u32 *tcp)
{
	enum count reason = parse_skb(skb, ours, t, tcp);

	if (reason != COUNT_MALFORMED)
		return reason;
	pull_headers(skb, HEADERS);
	return parse_skb(skb, ours, t, tcp);
}

SEC("classifier")
int steer_tc(struct __sk_buff *skb)
{
	struct engine *engine = 0;
	struct tuple t;
	u32 tcp = 0, id = 0;

	/* A frame for another host is visible because the interface is promiscuous. */
	if (steers_none() || skb->pkt_type != 0) {
		count(COUNT_PASSED);
		return TC_NEXT;
	}
	enum count reason = find(skb, 0, &t, &tcp);
	if (reason == CUT_OFF) {
		pull_headers(skb, ERROR_HEADERS);
		reason = parse_skb(skb, 0, &t, &tcp);
	}
	switch (decide(reason, &t, &id, &engine)) {
	case PASS:
		return TC_NEXT;
	case DROP:
		return TC_DROP;
	case STEER:
		break;
	}
	count(COUNT_HIT);
	/* An ICMP error has no TCP header of its own. */
	if (engine->up == NOTED && tcp)
		note_arrival(id, (const u8 *)(long)skb->data, (const u8 *)(long)skb->data_end, tcp);
	/* A frame that leaves by the TAP device goes to the device's reader. */
	return bpf_redirect(engine->device, 0);
}

/* A property of a member of the kernel's sk_buff. */
#define FIELD_INFO(member, kind) __builtin_preserve_field_info(kernel->member, kind)
#define OFFSET(member) FIELD_INFO(member, BPF_CORE_FIELD_BYTE_OFFSET)
/* The offset of a member, relative to `ip_summed`. */
#define FROM_IP_SUMMED(member) (OFFSET(member) - OFFSET(ip_summed))

INLINE u16 load_u16(const void *from)
{
	u16 value;

	__builtin_memcpy(&value, from, sizeof value);
	return value;
}

/* Returns 1 if no checksum will be written into the frame later (virtio: NEEDS_CSUM), or only TCP's
 * own into its field. Written elsewhere, it would change what was checked here, for example the
 * ports, to a value that the writer of the frame can choose. Returns 0 if this is unknown. */
INLINE int keeps_headers(struct __sk_buff *skb, u32 tcp)
{
	const struct sk_buff *kernel = (const void *)skb;
	/* One read, because each takes some 30 ns. The members are close together; on a kernel where
	 * they are not, the verifier refuses the program. */
	u64 copy[8];
	const u8 *members = (const u8 *)copy;

	if (FIELD_INFO(not_relocated, BPF_CORE_FIELD_EXISTS))
		does_not_load();
	if (bpf_probe_read_kernel(copy, FROM_IP_SUMMED(mac_header) + sizeof kernel->mac_header,
				  (const u8 *)kernel + OFFSET(ip_summed)))
		return 0;
	u64 summed = copy[0] << FIELD_INFO(ip_summed, BPF_CORE_FIELD_LSHIFT_U64);
	if (summed >> FIELD_INFO(ip_summed, BPF_CORE_FIELD_RSHIFT_U64) != CHECKSUM_PARTIAL)
		return 1;
	/* The frame begins at its link header. */
	return load_u16(members + FROM_IP_SUMMED(csum_start)) == load_u16(members + FROM_IP_SUMMED(mac_header)) + tcp &&
	       load_u16(members + FROM_IP_SUMMED(csum_offset)) == CHECKSUM;
}

/* Decides where a frame that an engine wrote goes. */
INLINE int send_from_engine(struct __sk_buff *skb, int guarded)
{
	struct tuple t;
	struct steered *steered = 0;
	u32 tcp = 0;

	if (find(skb, 1, &t, &tcp) == COUNT_HIT)
		steered = bpf_map_lookup_elem(&TUPLES, &t);
	if (steered && steered->state == STATE_STEER) {
		u32 id = steered->engine;
		struct engine *engine = bpf_map_lookup_elem(&ENGINES, &id);
		/* An engine that was given up may not send. */
		if (engine && engine->up && engine->device == skb->ifindex && (!guarded || keeps_headers(skb, tcp))) {
			count(COUNT_SENT);
			return bpf_redirect(engine->wire, 0);
		}
	}
	count(COUNT_FOREIGN);
	return TC_DROP;
}

SEC("classifier")
int steer_tap(struct __sk_buff *skb)
{
	return send_from_engine(skb, 1);
}

/* For the interface's own engine, on kernels that do not show their sk_buff. */
SEC("classifier")
int steer_tap_own(struct __sk_buff *skb)
{
	return send_from_engine(skb, 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
