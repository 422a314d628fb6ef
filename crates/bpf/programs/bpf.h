/* The part of the kernel's BPF interface that these programs use, so that
 * building them needs only clang. The values are part of the kernel's stable
 * interface: include/uapi/linux/bpf.h. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int (*name)[value]
#define __type(name, value) typeof(value) *name
#define __array(name, value) typeof(value) *name[]
#define INLINE static inline __attribute__((always_inline))

/* The length of an Ethernet header. */
#define ETHERNET 14

enum map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_XSKMAP = 17,
};

/* A flag of a map: programs may map it into their memory. */
#define BPF_F_MMAPABLE (1 << 10)

enum xdp_action {
	XDP_DROP = 1,
	XDP_PASS = 2,
};

/* The return values of a program at a tc hook (TCX_NEXT, TCX_DROP). */
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

/* The first members of the context of tc programs. */
struct __sk_buff {
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

/* The members that are read of the kernel's own sk_buff, to which the context of a tc program points.
 * The loader fills in their offsets in this kernel (CO-RE, from the kernel's BTF). */
struct sk_buff {
	u8 ip_summed : 2;
	u16 csum_start; /* relative to the buffer, like mac_header */
	u16 csum_offset; /* relative to csum_start */
	u16 mac_header; /* relative to the start of the buffer */
	u8 not_relocated; /* the kernel has no such member; it exists only until the loader fills in offsets */
} __attribute__((preserve_access_index));

/* The properties of a member that the loader can fill in. Shifting a 64-bit word by the two shifts, one
 * after the other, leaves only the bits of the member. */
enum bpf_core_relo_kind {
	BPF_CORE_FIELD_BYTE_OFFSET = 0,
	BPF_CORE_FIELD_EXISTS = 2,
	BPF_CORE_FIELD_LSHIFT_U64 = 4,
	BPF_CORE_FIELD_RSHIFT_U64 = 5,
};

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static long (*const bpf_redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
static long (*const bpf_redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*const bpf_skb_pull_data)(struct __sk_buff *skb, u32 len) = (void *)39;
static long (*const bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
/* There is no such helper, so the kernel refuses a program that can reach this call. */
static void (*const does_not_load)(void) = (void *)0xbad;
