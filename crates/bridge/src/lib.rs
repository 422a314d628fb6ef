//! Translates between a captured connection and the engine: what the engine is told of a captured
//! connection, and what it says of one that is to be rebuilt. These are pure functions for
//! whichever process drives the engine.
//!
//! ```text
//!  Captured --adoption, brought--> Streamer::adopt, Consumer::bring
//!  Suspended, send queue, LeftBehind --departed--> Captured
//! ```
//!
//! This is a crate of its own because the kernel's side does not need an engine, and a program's
//! consumer does not need the kernel's side.
#![forbid(unsafe_code)]

use baton_consumer::adoption::{Brought, LeftBehind};
use baton_engine::options::IpFields;
use baton_engine::streamer::{Adopt, ConsumerId, MAX_OPTIONS, Suspended};
use baton_kernel::Captured;
use baton_kernel::socket_options::IntOption;
use baton_policy::Refusal;
use baton_tcp::options::SocketOption;
use baton_wire::addr::Addr;
use baton_wire::seq::Seq;

/// Checks whether a consumer whose largest buffer has `largest` bytes can take a connection. A
/// larger receive window is kept all the same. Data for which the consumer has no room is dropped
/// until the program reads, as in a kernel that is short of memory.
///
/// # Errors
/// [`Refusal::TooMuchQueued`].
pub fn fits(captured: &Captured, largest: u32) -> Result<(), Refusal> {
    let longest = captured.send_queue.len().max(captured.receive_queue.len());
    if longest > largest as usize { Err(Refusal::TooMuchQueued) } else { Ok(()) }
}

/// The socket options that the engine is told.
pub fn options(captured: &Captured) -> Vec<SocketOption> {
    let mut options = captured.options.for_engine();
    options.truncate(MAX_OPTIONS);
    options
}

/// The adoption of a captured connection by a consumer; `options` comes from [`options`].
pub fn adoption<'a>(
    captured: &'a Captured,
    options: &'a [SocketOption],
    via: Addr,
    consumer: ConsumerId,
    token: u64,
) -> Adopt<'a> {
    let class = if captured.protocol.ipv6 { IntOption::TrafficClass } else { IntOption::Tos };
    let traffic_class = captured.options.int(class).unwrap_or(0).clamp(0, 255) as u8 & !3;
    Adopt {
        consumer,
        token,
        tuple: captured.tuple(),
        snapshot: &captured.protocol,
        ip: IpFields { traffic_class, ..IpFields::default() },
        via: Some(via),
        options,
    }
}

/// The bytes that a captured connection brings along.
pub fn brought(captured: &Captured) -> Brought {
    Brought {
        send: captured.send_queue.clone(),
        unread: captured.receive_queue.clone(),
        shut: captured.protocol.has_our_fin(),
    }
}

/// The form in which the kernel gets a connection that is suspended in the engine. `head` is what
/// was captured when the connection came, without its queues; addresses and options are taken from
/// it. `send` comes from [`read_send_queue`], and `left` from the connection's consumer.
///
/// [`read_send_queue`]: baton_engine::streamer::Streamer::read_send_queue
pub fn departed(head: &Captured, suspended: &Suspended, mut send: Vec<u8>, left: LeftBehind) -> Captured {
    let mut protocol = suspended.snapshot.clone();
    if !protocol.has_our_fin() {
        protocol.write_seq += left.unsent.len() as u32;
        send.extend(left.unsent);
    }
    let before_fin = Seq(protocol.rcv_nxt.0.wrapping_sub(u32::from(protocol.has_peer_fin())));
    protocol.copied_seq = before_fin - left.unread.len() as u32;
    let mut options = head.options.clone();
    options.set_from_engine(&suspended.options);
    Captured {
        local: head.local,
        remote: head.remote,
        protocol,
        send_queue: send,
        receive_queue: left.unread,
        shut_read: head.shut_read,
        options,
    }
}

/// The captured connection without the bytes of its queues, as [`departed`] needs it later.
pub fn without_queues(captured: &Captured) -> Captured {
    Captured {
        local: captured.local,
        remote: captured.remote,
        protocol: captured.protocol.clone(),
        send_queue: Vec::new(),
        receive_queue: Vec::new(),
        shut_read: captured.shut_read,
        options: captured.options.clone(),
    }
}
