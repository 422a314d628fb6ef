/* Counters of a program, one for each number of its enum count, which ends in
 * COUNT_MAX and stands before this is included. */
#pragma once

#include "bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNT_MAX);
	__type(key, u32);
	__type(value, u64);
} COUNTS SEC(".maps");

INLINE void count(u32 which)
{
	u64 *value = bpf_map_lookup_elem(&COUNTS, &which);
	if (value)
		*value += 1;
}
