/* Keeps the frames of an interface from the kernel's stack. Their receiver gets them
 * through a packet socket, which comes before this hook (crates/port/src/packet). */
#include "bpf.h"

SEC("classifier") int take(struct __sk_buff *frame)
{
	(void)frame;
	return TC_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
