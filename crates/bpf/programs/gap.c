/* Returns 1 if the kernel holds payload of a connection beyond a gap, and 0 if it does not or does not
 * have the connection. This program is not attached, so no frame reaches it. The caller runs it once
 * (BPF_PROG_TEST_RUN), on the connection's interface. Its input is an empty link header followed by the
 * addresses and ports as in `struct bpf_sock_tuple`, the peer's first. */
#include "bpf.h"

#define V4_TUPLE 12
#define V6_TUPLE 36
/* Stands for the network namespace of the interface. */
#define SAME_NAMESPACE ((u64)-1)

/* The kernel's own structures. The loader fills in the offsets of the members (CO-RE). */
struct rb_root {
	void *rb_node;
} __attribute__((preserve_access_index));

struct tcp_sock {
	struct rb_root out_of_order_queue;
} __attribute__((preserve_access_index));

struct sock;

static struct sock *(*const bpf_skc_lookup_tcp)(struct __sk_buff *skb, const void *tuple, u32 len, u64 netns,
						u64 flags) = (void *)99;
static struct tcp_sock *(*const bpf_skc_to_tcp_sock)(struct sock *sock) = (void *)137;
static long (*const bpf_sk_release)(struct sock *sock) = (void *)86;

SEC("classifier")
int has_gap(struct __sk_buff *skb)
{
	const u8 *tuple = (const u8 *)(long)skb->data + ETHERNET;
	const u8 *end = (const u8 *)(long)skb->data_end;
	struct sock *sock = 0;
	int gap = 0;

	if (tuple + V6_TUPLE <= end)
		sock = bpf_skc_lookup_tcp(skb, tuple, V6_TUPLE, SAME_NAMESPACE, 0);
	else if (tuple + V4_TUPLE <= end)
		sock = bpf_skc_lookup_tcp(skb, tuple, V4_TUPLE, SAME_NAMESPACE, 0);
	if (!sock)
		return 0;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sock);
	if (tcp)
		gap = tcp->out_of_order_queue.rb_node != 0;
	bpf_sk_release(sock);
	return gap;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
