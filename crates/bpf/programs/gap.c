/* Whether the kernel has payload of a connection that lies beyond a gap. No frame ever comes
 * here: who wants to know runs this once (BPF_PROG_TEST_RUN), on the connection's interface, with
 * its name behind an empty link header: addresses and ports as in `struct bpf_sock_tuple`, the
 * peer's first. The answer is 1 for yes, and 0 for no and for what the kernel does not have. */
#include "bpf.h"

#define V4_NAME 12
#define V6_NAME 36
/* A namespace's number: the interface's. */
#define HERE ((u64)-1)

/* What is read of the kernel's own. The loader puts in where this kernel has it (CO-RE). */
struct rb_root {
	void *rb_node;
} __attribute__((preserve_access_index));

struct tcp_sock {
	struct rb_root out_of_order_queue;
} __attribute__((preserve_access_index));

struct sock;

static struct sock *(*const bpf_skc_lookup_tcp)(struct sk_buff *skb, const void *name, u32 len, u64 where,
						u64 flags) = (void *)99;
static struct tcp_sock *(*const bpf_skc_to_tcp_sock)(struct sock *sock) = (void *)137;
static long (*const bpf_sk_release)(struct sock *sock) = (void *)86;

SEC("classifier")
int has_gap(struct sk_buff *skb)
{
	const u8 *name = (const u8 *)(long)skb->data + ETHERNET;
	const u8 *end = (const u8 *)(long)skb->data_end;
	struct sock *sock = 0;
	int gap = 0;

	if (name + V6_NAME <= end)
		sock = bpf_skc_lookup_tcp(skb, name, V6_NAME, HERE, 0);
	else if (name + V4_NAME <= end)
		sock = bpf_skc_lookup_tcp(skb, name, V4_NAME, HERE, 0);
	if (!sock)
		return 0;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sock);
	if (tcp)
		gap = tcp->out_of_order_queue.rb_node != 0;
	bpf_sk_release(sock);
	return gap;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
