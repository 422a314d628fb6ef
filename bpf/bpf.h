/* The little of the kernel's BPF interface that these programs use, so that
 * building them takes clang and nothing else. Values are part of the kernel's
 * stable interface: include/uapi/linux/bpf.h. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int (*name)[value]
#define __type(name, value) typeof(value) *name
#define INLINE static inline __attribute__((always_inline))

enum map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_XSKMAP = 17,
};

enum xdp_action {
	XDP_PASS = 2,
};

struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
	u32 egress_ifindex;
};

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
