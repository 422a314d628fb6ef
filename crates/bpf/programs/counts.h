/* The counters of a program, one for each value of its enum count. The program
 * must define that enum, which ends with COUNT_MAX, before it includes this file. */
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
