/* A frame that is to arrive once more: who wants that runs this once (BPF_PROG_TEST_RUN), on the
 * interface over which it comes. */
#include "bpf.h"

#define BPF_F_INGRESS 1

static long (*const bpf_clone_redirect)(struct sk_buff *skb, u32 ifindex, u64 flags) = (void *)13;

SEC("classifier")
int arrive(struct sk_buff *skb)
{
	return bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS) == 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
