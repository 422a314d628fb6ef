/* Redirects frames for an endpoint's own addresses from an interface to the
 * AF_XDP socket of the queue that they arrived on. All other frames, and all
 * frames of a queue without a socket, go on to the kernel.
 *
 *   ARP for or to an address of ours            -> socket
 *   neighbour solicitation for one              -> socket
 *   IPv4, IPv6 to one                           -> socket
 *   anything else, VLAN-tagged frames included  -> kernel
 */
#include "bpf.h"

#define QUEUES_MAX 64
#define ADDRESSES_MAX 256

struct address {
	u8 bytes[16]; /* IPv4 as ::ffff:a.b.c.d */
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, QUEUES_MAX);
	__type(key, u32);
	__type(value, u32);
} SOCKETS SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ADDRESSES_MAX);
	__type(key, struct address);
	__type(value, u8);
} ADDRESSES SEC(".maps");

enum count {
	COUNT_PASSED,
	COUNT_REDIRECTED,
	COUNT_MAX,
};

#include "counts.h"

INLINE void copy(u8 *to, const u8 *from, int n)
{
	for (int i = 0; i < n; i++)
		to[i] = from[i];
}

/* Finds the address that decides where the frame goes. Returns 0 if there is none. */
INLINE int find_address(const u8 *f, const u8 *end, struct address *address)
{
	__builtin_memset(address, 0, sizeof *address);
	if (f + ETHERNET > end)
		return 0;
	u16 type = f[12] << 8 | f[13];
	const u8 *p = f + ETHERNET;
	if (type == 0x0800 && p + 20 <= end) {
		address->bytes[10] = address->bytes[11] = 0xff;
		copy(address->bytes + 12, p + 16, 4);
		return 1;
	}
	if (type == 0x0806 && p + 28 <= end) {
		address->bytes[10] = address->bytes[11] = 0xff;
		copy(address->bytes + 12, p + 24, 4);
		return 1;
	}
	if (type == 0x86dd && p + 40 <= end) {
		/* A neighbour solicitation (ICMPv6, type 135) contains the address in
		 * question. Its destination is a multicast group. */
		if (p[6] == 58 && p + 64 <= end && p[40] == 135)
			copy(address->bytes, p + 48, 16);
		else
			copy(address->bytes, p + 24, 16);
		return 1;
	}
	return 0;
}

SEC("xdp.frags")
int endpoint(struct xdp_md *ctx)
{
	const u8 *frame = (const u8 *)(long)ctx->data;
	const u8 *end = (const u8 *)(long)ctx->data_end;
	struct address address;

	if (find_address(frame, end, &address) && bpf_map_lookup_elem(&ADDRESSES, &address)) {
		/* The flags are the return value if the queue has no socket. */
		long action = bpf_redirect_map(&SOCKETS, ctx->rx_queue_index, XDP_PASS);
		if (action != XDP_PASS) {
			count(COUNT_REDIRECTED);
			return action;
		}
	}
	count(COUNT_PASSED);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
