/* Which queue of a TAP device a frame that the kernel sends goes to: the first,
 * always. The second is there to be written to only (crates/port/src/merging.rs). */
#include "bpf.h"

SEC("socket") int first_queue(struct sk_buff *frame)
{
	(void)frame;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
