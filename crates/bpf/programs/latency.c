/* Measures how long messages of kernel connections spend in each layer.
 *
 * Where the kernel lets programs see its functions:
 *
 *   transmit  tcp_sendmsg -> tcp_push -> __tcp_transmit_skb -> ip_queue_xmit -> net_dev_start_xmit
 *   receive   netif_rx, napi_gro_receive_entry -> netif_receive_skb -> tcp_v4_rcv
 *             -> sk_filter_trim_cap -> tcp_queue_rcv -> tcp_data_ready -> its return -> sk_wait_data's return or tcp_recvmsg -> its return
 *
 * Elsewhere by tracepoints alone, which are fewer (programs with `_tp` in their name):
 *
 *   transmit  tcp_sendmsg_locked -> sock_send_length, if the call returns first -> net_dev_queue
 *             -> net_dev_start_xmit
 *   receive   netif_rx, napi_gro_receive_entry -> netif_receive_skb -> tcp_probe -> sk_data_ready
 *             -> skb_copy_datagram_iovec -> sock_recv_length
 *
 * A time between two points that has several layers counts as the first of them.
 *
 * A connection is watched from its first call on that the loader wants (WANTED). Its state lies with the
 * socket, so it ends with it. On each way one message at a time is followed; calls and segments meanwhile
 * are counted only. So one processor at a time adds to the histograms of a way, and needs no lock.
 *
 * The layers' numbers and the histogram are those of the crate `latency`. */
#include "latency.h"
#include "latency_transmit.h"
#include "latency_receive.h"

/* A connection ends. The reader frees its slot. */
SEC("tp_btf/inet_sock_set_state")
int closed(u64 *ctx)
{
	if ((int)ctx[2] != TCP_CLOSE)
		return 0;
	struct watched *it = watched((struct sock *)ctx[0]);

	if (!it)
		return 0;
	u32 slot = it->slot - 1;
	struct connection *connection = bpf_map_lookup_elem(&CONNECTIONS, &slot);
	it->slot = 0;
	if (connection)
		connection->state = 2;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
