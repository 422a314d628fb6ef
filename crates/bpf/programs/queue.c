/* Selects the queue of a TAP device for frames that the kernel sends: always the
 * first. The second is only written to (crates/port/src/merging.rs). */
#include "bpf.h"

SEC("socket") int first_queue(struct __sk_buff *frame)
{
	(void)frame;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
