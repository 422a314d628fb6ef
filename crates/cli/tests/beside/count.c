/* BPF programs that stand for another product's: each adds up packet lengths and lets packets pass. */
#include "bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} BYTES SEC(".maps");

INLINE void count(const struct __sk_buff *skb)
{
	u32 key = 0;
	u64 *bytes = bpf_map_lookup_elem(&BYTES, &key);
	if (bytes)
		__sync_fetch_and_add(bytes, skb->len);
}

SEC("classifier")
int count_frames(struct __sk_buff *skb)
{
	count(skb);
	return TC_NEXT;
}

SEC("cgroup_skb/egress")
int count_packets(struct __sk_buff *skb)
{
	count(skb);
	return 1;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
