/* Keeps the frames of an interface from the kernel's stack: they are another
 * one's, who hears of them through a packet socket, which comes first
 * (crates/port/src/packet). */
#include "bpf.h"

SEC("classifier") int take(struct sk_buff *frame)
{
	(void)frame;
	return TC_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
