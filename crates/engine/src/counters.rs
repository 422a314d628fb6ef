//! Counters: one for each verdict, by name, so that nothing is dropped silently.

use baton_tcp::kind::{Handled, Kind};

macro_rules! counters {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl $name {
            /// Every counter with its name, in order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Work of the Streamer, and its refusals by reason.
    StreamerCounters {
        /// Frames taken from the port.
        rx_frames,
        /// Bytes of those frames.
        rx_bytes,
        /// TCP segments among them; a super-frame counts as its segments.
        rx_segments,
        /// Runs of two frames or more that were handled as one.
        rx_runs,
        /// Frames in them behind the first.
        rx_coalesced,
        /// Payload bytes placed at their final position without the TCE.
        rx_placed_bytes,
        /// Segments taken on the fast path.
        rx_fast,
        /// Of these, segments whose headers were as predicted.
        rx_predicted,
        /// Segments taken without a TCP checksum, as their connection had agreed.
        rx_unsummed,
        /// Fast-path segments that came out of order.
        rx_out_of_order,
        /// Fast-path segments that brought nothing new.
        rx_duplicate,
        /// Segments handed to the TCE to judge.
        rx_slow,
        /// Segments to no connection.
        rx_unknown,
        /// Dropped: neither IPv4 nor IPv6 nor ARP, or shorter than its link header.
        drop_not_ip,
        /// Dropped: lengths or versions that contradict each other.
        drop_malformed,
        /// Dropped: IPv4 header checksum wrong.
        drop_ip_checksum,
        /// Dropped: TCP checksum wrong.
        drop_tcp_checksum,
        /// Dropped: no TCP checksum, on a connection that did not agree to that.
        drop_unsummed,
        /// Dropped: IP fragment (fragments are not reassembled).
        drop_fragment,
        /// Dropped: neither TCP nor anything that the endpoint answers.
        drop_protocol,
        /// Dropped: not for one of our addresses.
        drop_not_ours,
        /// Dropped: to no connection, and from an address that is no host's, or ours.
        drop_source,
        /// Dropped: the reassembly area was full.
        drop_reassembly_full,
        /// Dropped: more out-of-order ranges than a connection may have.
        drop_ranges_full,
        /// Frames handed to the port.
        tx_frames,
        /// Bytes of those frames.
        tx_bytes,
        /// Data segments sent; a super-frame counts as its segments.
        tx_segments,
        /// Payload bytes sent for the first time.
        tx_payload_bytes,
        /// Payload bytes sent again.
        tx_retransmitted_bytes,
        /// ACKs without data sent.
        tx_acks,
        /// Segments to no connection answered (RST, SYN cookies).
        tx_replies,
        /// Segments not sent because the neighbour's address is not known yet.
        tx_no_neighbour,
        /// Times that the port was full.
        tx_port_full,
        /// Times that a full event ring stopped the intake of frames.
        intake_stopped,
        /// Connections refused because no queue pair was free.
        no_queue_pair,
        /// Connections ended because their consumer broke the queue rules.
        hostile_consumer,
        /// Connections taken over from another stack.
        adopted,
        /// Connections that left for another stack.
        let_go,
        /// Dropped: segments that announced urgent data, which is left to another stack.
        urgent_refused,
        /// Frames kept while their connection was between two stacks.
        held_frames,
        /// Dropped: their connection is leaving, or too many were kept.
        drop_moving,
        /// ICMP errors that named a connection of ours.
        icmp_errors,
    }
}

counters! {
    /// Work of the TCE.
    TceCounters {
        /// Events taken from the ring.
        events,
        /// Orders put on the ring.
        orders,
        /// Timers that fired.
        timers,
        /// Active opens.
        active_opens,
        /// SYNs taken at a listener.
        passive_opens,
        /// SYN cookies sent because a backlog was full.
        cookies_sent,
        /// Connections made of a SYN cookie that came back.
        cookies_accepted,
        /// SYN cookies that did not verify.
        cookies_failed,
        /// Resets sent for segments to no connection.
        resets_sent,
        /// Connection attempts refused because the table was full.
        table_full,
        /// Connections released.
        released,
        /// TIME-WAIT connections that a new SYN reopened (RFC 6191).
        time_wait_reopened,
        /// Segments with payload and without a new acknowledgment; of a run, those behind its first too.
        data_segments,
        /// Of these, segments that took the short way of header prediction.
        data_predicted,
        /// Segments with a new acknowledgment and without payload.
        ack_segments,
        /// Of these, segments that took the short way of header prediction.
        ack_predicted,
        /// Segments with payload and a new acknowledgment.
        data_ack_segments,
        /// Of these, segments that took the short way of header prediction.
        data_ack_predicted,
        /// Clock ticks spent working, in the driver's unit.
        busy_ticks,
        /// Clock ticks between polls, in the driver's unit.
        idle_ticks,
    }
}

impl TceCounters {
    /// Counts a segment, or a run of `count` segments whose first was handled like this. The
    /// others acknowledge the same, so they bring data only.
    #[inline]
    pub(crate) fn count_segment(&mut self, handled: Handled, count: u16) {
        let hit = u64::from(handled.predicted);
        let (segments, predicted) = match handled.kind {
            Kind::DataAck => (&mut self.data_ack_segments, &mut self.data_ack_predicted),
            Kind::Data => (&mut self.data_segments, &mut self.data_predicted),
            Kind::Ack => (&mut self.ack_segments, &mut self.ack_predicted),
            Kind::Other => return,
        };
        *segments += 1;
        *predicted += hit;
        if count > 1 && handled.kind != Kind::Ack {
            let rest = u64::from(count) - 1;
            self.data_segments += rest;
            self.data_predicted += rest * hit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_a_run_behind_its_first_count_as_data() {
        let mut counters = TceCounters::default();
        let mut count = |kind, count, predicted| counters.count_segment(Handled { kind, predicted }, count);
        count(Kind::DataAck, 3, true);
        count(Kind::Data, 2, false);
        count(Kind::Ack, 1, true);
        count(Kind::Other, 1, false);
        let counted = TceCounters {
            data_segments: 4,
            data_predicted: 2,
            ack_segments: 1,
            ack_predicted: 1,
            data_ack_segments: 1,
            data_ack_predicted: 1,
            ..TceCounters::default()
        };
        assert_eq!(counters, counted);
    }

    #[test]
    fn counters_are_listed_by_name() {
        let counters = StreamerCounters { rx_frames: 3, ..Default::default() };
        assert_eq!(counters.iter().next(), Some(("rx_frames", 3)));
        assert!(counters.iter().any(|(name, value)| name == "icmp_errors" && value == 0));
    }
}
