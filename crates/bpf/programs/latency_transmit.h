/* The way out of a message, from the call to send until a device has it. Part of `latency.c`. */
#pragma once

#include "latency.h"

/* Follows the message of a call, unless another of its way is on its way still. */
INLINE int call(struct watched *it, u32 begin, u32 length)
{
	u64 now = bpf_ktime_get_ns();
	u32 stage = it->sent.stage;

	if (!it->asked)
		it->asked = now;
	if (stage == COPIED || ((stage == TAKEN_UP || stage == BUILT) && now - it->started < GIVE_UP_NS)) {
		count(it, 0, 0);
		return 0;
	}
	if (stage == TAKEN_UP || stage == BUILT)
		count(it, 0, 1);
	it->started = now;
	it->sent_at[T_CALL] = now;
	it->sent_at[T_COPIED] = 0;
	it->sent_at[T_TAKEN_UP] = 0;
	it->sent.begin = begin;
	it->sent.end = begin + length;
	it->sent.stage = CALLED;
	return 0;
}

/* The call to send. */
SEC("fentry/tcp_sendmsg")
int t_call(u64 *ctx)
{
	struct watched *it = watch((struct sock *)ctx[0]);

	if (!it)
		return 0;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock((struct sock *)ctx[0]);
	return tcp ? call(it, tcp->write_seq, ctx[2]) : 0;
}

/* The call to send has the lock. It comes here again for each buffer that it fills. */
SEC("tp_btf/tcp_sendmsg_locked")
int t_call_tp(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct msghdr *message = (struct msghdr *)ctx[1];
	struct watched *it = watch(sk);
	u32 thread = bpf_get_current_pid_tgid();

	if (!it || it->in_call == thread)
		return 0;
	it->in_call = thread;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return 0;
	return call(it, tcp->write_seq, message->msg_iter.count);
}

/* The call to send returns. The bytes that it took are queued, if they are not sent yet. */
SEC("tp_btf/sock_send_length")
int t_returned_tp(u64 *ctx)
{
	struct watched *it = watched((struct sock *)ctx[0]);
	int length = ctx[1];

	if (!it)
		return 0;
	it->in_call = 0;
	if (it->sent.stage != CALLED)
		return 0;
	it->sent.end = it->sent.begin + length;
	it->sent_at[T_COPIED] = bpf_ktime_get_ns();
	it->sent.stage = length > 0 ? COPIED : IDLE;
	return 0;
}

/* The sequence number behind a segment that IP has built. */
INLINE u32 end_of_built(struct sk_buff___latency *skb)
{
	u8 *header = skb->head + skb->transport_header;
	u8 bytes[16] = {};

	if (bpf_probe_read_kernel(bytes, sizeof(bytes), header))
		return 0;
	u32 seq = __builtin_bswap32(*(u32 *)(bytes + 4));
	u32 before = header - skb->data;
	return seq + skb->len - before - (bytes[12] >> 4) * 4;
}

/* A segment has its headers, and a device's queue gets it. That with the message's last byte counts. */
SEC("tp_btf/net_dev_queue")
int t_queued_tp(u64 *ctx)
{
	struct sk_buff___latency *skb = (struct sk_buff___latency *)ctx[0];
	struct sock *sk = skb->sk;

	if (!sk)
		return 0;
	struct watched *it = watched(sk);
	if (!it || (it->sent.stage != CALLED && it->sent.stage != COPIED))
		return 0;
	if (!reached(end_of_built(skb), it->sent.end))
		return 0;
	it->sent_at[T_BUILT] = bpf_ktime_get_ns();
	it->sent.skb = ctx[0];
	it->sent.stage = BUILT;
	return 0;
}

/* The bytes lie in the send queue. */
SEC("fentry/tcp_push")
int t_copied(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct watched *it = watched(sk);

	if (!it || it->sent.stage != CALLED)
		return 0;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return 0;
	it->sent.end = tcp->write_seq;
	it->sent_at[T_COPIED] = bpf_ktime_get_ns();
	it->sent.stage = COPIED;
	return 0;
}

/* A segment is taken up. That with the message's last byte counts. Without `tcp_push`, which a compiler may
 * have inlined, the message is not seen to be copied. */
SEC("fentry/__tcp_transmit_skb")
int t_taken_up(u64 *ctx)
{
	struct watched *it = watched((struct sock *)ctx[0]);

	if (!it || (it->sent.stage != COPIED && it->sent.stage != CALLED))
		return 0;
	if (!reached(end_of((struct sk_buff___latency *)ctx[1]), it->sent.end))
		return 0;
	it->sent_at[T_TAKEN_UP] = bpf_ktime_get_ns();
	it->sent.stage = TAKEN_UP;
	return 0;
}

INLINE int built(u64 *ctx)
{
	struct watched *it = watched((struct sock *)ctx[0]);

	if (!it || it->sent.stage != TAKEN_UP)
		return 0;
	it->sent_at[T_BUILT] = bpf_ktime_get_ns();
	it->sent.skb = ctx[1];
	it->sent.stage = BUILT;
	return 0;
}

SEC("fentry/ip_queue_xmit")
int t_built_v4(u64 *ctx)
{
	return built(ctx);
}

SEC("fentry/inet6_csk_xmit")
int t_built_v6(u64 *ctx)
{
	return built(ctx);
}

/* A device gets a frame. */
SEC("tp_btf/net_dev_start_xmit")
int t_device(u64 *ctx)
{
	struct sk_buff___latency *skb = (struct sk_buff___latency *)ctx[0];
	struct sock *sk = skb->sk;

	if (!sk)
		return 0;
	struct watched *it = watched(sk);
	if (!it || it->sent.stage != BUILT || it->sent.skb != ctx[0])
		return 0;
	u64 now = bpf_ktime_get_ns(), *at = it->sent_at;
	const struct part parts[R_PARTS] = {
		[WRITE] = { at[T_CALL], or(at[T_COPIED], or(at[T_TAKEN_UP], at[T_BUILT])) },
		[SEND_QUEUE] = { at[T_COPIED], or(at[T_TAKEN_UP], at[T_BUILT]) },
		[SEGMENT] = { at[T_TAKEN_UP], at[T_BUILT] },
		[OUTPUT] = { at[T_BUILT], now },
	};

	finish(it, 0, parts, at[T_CALL], now, it->sent.end);
	it->sent.stage = IDLE;
	return 0;
}
