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

/* Length of an Ethernet header. */
#define ETHERNET 14

enum map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_XSKMAP = 17,
};

enum xdp_action {
	XDP_DROP = 1,
	XDP_PASS = 2,
};

/* What a program at a tc hook answers (TCX_NEXT, TCX_DROP). */
enum tc_action {
	TC_NEXT = -1,
	TC_DROP = 2,
};

struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
	u32 egress_ifindex;
};

/* The first members of struct __sk_buff. */
struct sk_buff {
	u32 len;
	u32 pkt_type;
	u32 mark;
	u32 queue_mapping;
	u32 protocol;
	u32 vlan_present;
	u32 vlan_tci;
	u32 vlan_proto;
	u32 priority;
	u32 ingress_ifindex;
	u32 ifindex;
	u32 tc_index;
	u32 cb[5];
	u32 hash;
	u32 tc_classid;
	u32 data;
	u32 data_end;
};

/* What is read of the kernel's own sk_buff, to which a tc program's context points. The loader puts
 * in where this kernel has it (CO-RE, by the kernel's BTF). */
struct sk_buff___kernel {
	u8 ip_summed : 2;
	u16 csum_start; /* as `mac_header` */
	u16 csum_offset; /* from there on */
	u16 mac_header; /* from the buffer's beginning on */
	u8 unplaced; /* the kernel has no such member: 1 of it until places were put in */
} __attribute__((preserve_access_index));

/* What of a member's place is asked for (enum bpf_core_relo_kind). */
enum place {
	PLACE_OFFSET = 0,
	PLACE_EXISTS = 2,
	PLACE_SHIFT_LEFT = 4, /* with the next, has only the member's bits left of a 64-bit word */
	PLACE_SHIFT_RIGHT = 5,
};

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
static long (*const bpf_redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*const bpf_skb_pull_data)(struct sk_buff *skb, u32 len) = (void *)39;
static long (*const bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
/* No such helper: a program that can get to this call is refused by the kernel. */
static void (*const does_not_load)(void) = (void *)0xbad;
