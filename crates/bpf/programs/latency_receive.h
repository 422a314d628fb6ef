/* The way in of a message, from a driver until the call that takes it returns. Part of `latency.c`. */
#pragma once

#include "latency.h"

/* A driver hands a frame to the stack. */
INLINE int arrived(u64 *ctx)
{
	struct arrival *arrival = arrival_of(ctx[0]);

	if (!arrival)
		return 0;
	arrival->skb = ctx[0];
	arrival->arrived = bpf_ktime_get_ns();
	arrival->taken = 0;
	arrival->parsed = 0;
	return 0;
}

SEC("tp_btf/netif_rx")
int r_arrived(u64 *ctx)
{
	return arrived(ctx);
}

SEC("tp_btf/napi_gro_receive_entry")
int r_arrived_napi(u64 *ctx)
{
	return arrived(ctx);
}

/* The stack takes the frame up, from a processor's backlog or joined with others. */
SEC("tp_btf/netif_receive_skb")
int r_taken(u64 *ctx)
{
	struct arrival *arrival = arrival_of(ctx[0]);

	if (!arrival)
		return 0;
	u64 now = bpf_ktime_get_ns();
	if (arrival->skb != ctx[0] || now - arrival->arrived > OLDEST_NS) {
		arrival->skb = ctx[0];
		arrival->arrived = 0;
	}
	arrival->taken = now;
	arrival->parsed = 0;
	return 0;
}

INLINE int parsed(u64 *ctx)
{
	struct arrival *arrival = arrival_of(ctx[0]);

	if (arrival && arrival->skb == ctx[0])
		arrival->parsed = bpf_ktime_get_ns();
	return 0;
}

SEC("fentry/tcp_v4_rcv")
int r_parsed_v4(u64 *ctx)
{
	return parsed(ctx);
}

SEC("fentry/tcp_v6_rcv")
int r_parsed_v6(u64 *ctx)
{
	return parsed(ctx);
}

/* Follows a segment whose socket is found, unless another is followed. */
INLINE int found(struct watched *it, struct sock *sk, u64 skb)
{
	u64 now = bpf_ktime_get_ns();

	if (it->got.stage == TOLD) {
		struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

		/* Was it read by a call that is not followed, such as splice(2)? Or does a call return now? */
		if (!tcp || !reached(tcp->copied_seq, it->got.end) || now - it->got_at[R_TOLD] < GIVE_UP_NS)
			return 0;
		count(it, 1, 1);
	}
	struct arrival *arrival = arrival_of(skb);
	if (arrival && arrival->skb == skb && now - arrival->taken < OLDEST_NS) {
		it->got_at[R_ARRIVED] = arrival->arrived;
		it->got_at[R_TAKEN] = arrival->taken;
		it->got_at[R_PARSED] = arrival->parsed;
		arrival->skb = 0;
	} else {
		it->got_at[R_ARRIVED] = it->got_at[R_TAKEN] = it->got_at[R_PARSED] = 0;
	}
	it->got_at[R_FOUND] = now;
	it->got_at[R_PLACED] = 0;
	it->got_at[R_DECIDED] = 0;
	it->got_at[R_RUNS] = 0;
	it->got.skb = skb;
	return 1;
}

/* The segment's socket is found, and its filter is asked. Whether it has data is seen later. */
SEC("fentry/sk_filter_trim_cap")
int r_found(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct watched *it = watched(sk);

	if (!it || (it->got.stage != IDLE && it->got.stage != FOUND && it->got.stage != TOLD))
		return 0;
	if (found(it, sk, ctx[1]))
		it->got.stage = FOUND;
	return 0;
}

/* A segment reaches an established connection, after its socket's backlog. The next bytes are followed. */
SEC("tp_btf/tcp_probe")
int r_found_tp(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct sk_buff___latency *skb = (struct sk_buff___latency *)ctx[1];
	struct watched *it = watched(sk);

	if (!it)
		return 0;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	u32 seq = ((struct tcp_skb_cb *)skb->cb)->seq, end = end_of(skb);
	if (!tcp || seq == end || !reached(tcp->rcv_nxt, seq) || reached(tcp->rcv_nxt, end))
		return 0;
	if (it->got.stage != IDLE && it->got.stage != PLACED && it->got.stage != TOLD)
		return 0;
	if (!found(it, sk, ctx[1])) {
		count(it, 1, 0);
		return 0;
	}
	it->got.end = end;
	it->got.stage = PLACED;
	return 0;
}

/* Data in sequence lies in the receive queue. */
SEC("fexit/tcp_queue_rcv")
int r_placed(u64 *ctx)
{
	struct watched *it = watched((struct sock *)ctx[0]);

	if (!it)
		return 0;
	if (it->got.stage != FOUND || it->got.skb != ctx[1]) {
		count(it, 1, 0);
		return 0;
	}
	it->got_at[R_PLACED] = bpf_ktime_get_ns();
	it->got.end = end_of((struct sk_buff___latency *)ctx[1]);
	it->got.stage = PLACED;
	return 0;
}

/* Everything about the segment is decided, and the program is to be told. */
SEC("fentry/tcp_data_ready")
int r_decided(u64 *ctx)
{
	struct watched *it = watched((struct sock *)ctx[0]);

	if (!it || it->got.stage != PLACED)
		return 0;
	it->got_at[R_DECIDED] = bpf_ktime_get_ns();
	it->got.stage = DECIDED;
	return 0;
}

SEC("fexit/tcp_data_ready")
int r_told(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct watched *it = watched(sk);

	if (!it || it->got.stage != DECIDED)
		return 0;
	/* With less than SO_RCVLOWAT bytes the program is not told. */
	int low = sk->sk_rcvlowat;
	if (low > 1) {
		struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

		if (tcp && (int)(tcp->rcv_nxt - tcp->copied_seq) < low) {
			it->got.stage = PLACED;
			return 0;
		}
	}
	it->got_at[R_TOLD] = bpf_ktime_get_ns();
	it->got.stage = TOLD;
	return 0;
}

/* The program is told. */
SEC("tp_btf/sk_data_ready")
int r_told_tp(u64 *ctx)
{
	struct watched *it = watched((struct sock *)ctx[0]);

	if (!it || it->got.stage != PLACED)
		return 0;
	it->got_at[R_TOLD] = bpf_ktime_get_ns();
	it->got.stage = TOLD;
	return 0;
}

/* A thread runs and begins to copy. */
SEC("tp_btf/skb_copy_datagram_iovec")
int r_copies_tp(u64 *ctx)
{
	struct sock *sk = ((struct sk_buff___latency *)ctx[0])->sk;

	if (!sk)
		return 0;
	struct watched *it = watched(sk);
	if (it && it->got.stage == TOLD && !it->got_at[R_RUNS])
		it->got_at[R_RUNS] = bpf_ktime_get_ns();
	return 0;
}

/* A thread that waited in a call runs. */
SEC("fexit/sk_wait_data")
int r_waited(u64 *ctx)
{
	struct watched *it = watched((struct sock *)ctx[0]);

	if (it && it->got.stage == TOLD && !it->got_at[R_RUNS])
		it->got_at[R_RUNS] = bpf_ktime_get_ns();
	return 0;
}

/* A thread runs and asks for data. The interrupt may still be telling it. */
SEC("fentry/tcp_recvmsg")
int r_call(u64 *ctx)
{
	struct watched *it = watch((struct sock *)ctx[0]);

	if (it && it->got.stage >= PLACED && !it->got_at[R_RUNS])
		it->got_at[R_RUNS] = bpf_ktime_get_ns();
	return 0;
}

/* The call has so many bytes of the answer to what was sent before. */
INLINE void answered(struct watched *it, int length)
{
	u32 slot = it->slot - 1;

	if (length <= 0 || !it->asked)
		return;
	struct spans *spans = bpf_map_lookup_elem(&SPANS, &slot);
	if (spans)
		record(&spans->layers[ANSWER], it->asked, bpf_ktime_get_ns());
	it->asked = 0;
}

/* A call to receive returns. */
INLINE int returned(struct watched *it, struct sock *sk, int length)
{
	answered(it, length);
	if (it->got.stage != TOLD)
		return 0;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp || !reached(tcp->copied_seq, it->got.end))
		return 0;
	u64 now = bpf_ktime_get_ns();
	u32 slot = it->slot - 1;
	struct spans *spans = bpf_map_lookup_elem(&SPANS, &slot);
	u64 *at = it->got_at, told = at[R_TOLD], runs = at[R_RUNS];
	/* It ran already when it was told. */
	if (runs < told)
		runs = told;
	if (spans && now >= runs) {
		u64 start = or(or(at[R_ARRIVED], at[R_TAKEN]), or(at[R_PARSED], at[R_FOUND]));
		u64 decided = or(at[R_DECIDED], told);
		const struct part parts[R_PARTS] = {
			[RECEIVE_DEVICE - RECEIVE_DEVICE] = { at[R_ARRIVED], at[R_TAKEN] },
			[PARSE - RECEIVE_DEVICE] = { at[R_TAKEN], or(at[R_PARSED], at[R_FOUND]) },
			[LOOKUP - RECEIVE_DEVICE] = { at[R_PARSED], at[R_FOUND] },
			[PLACE - RECEIVE_DEVICE] = { at[R_FOUND], or(at[R_PLACED], decided) },
			[DECIDE - RECEIVE_DEVICE] = { at[R_PLACED], decided },
			[TELL - RECEIVE_DEVICE] = { at[R_DECIDED], told },
			[WAKE_UP - RECEIVE_DEVICE] = { told, runs },
			[READ - RECEIVE_DEVICE] = { runs, now },
		};

		record(&spans->layers[STACK], start, told);
		finish(it, 1, parts, start, now, it->got.end);
	}
	it->got.stage = IDLE;
	return 0;
}

SEC("fexit/tcp_recvmsg")
int r_returned(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct watched *it = watched(sk);
	u64 length = 0;

	bpf_get_func_ret(ctx, &length);
	return it ? returned(it, sk, length) : 0;
}

SEC("tp_btf/sock_recv_length")
int r_returned_tp(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct watched *it = watch(sk);

	return it ? returned(it, sk, ctx[1]) : 0;
}
