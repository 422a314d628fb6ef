//! The library that `baton run` loads into a program with `LD_PRELOAD`. It replaces libc's socket
//! calls: a call on a connection in the engine goes to the engine, any other goes on to libc.
//!
//! ```text
//!   program:  read write send recv ... poll select epoll ... close dup fork exec
//!                |                        |                     |
//!   abi/      one function for each call: pointers, errno; other descriptors go to libc
//!                |                        |                     |
//!             transfer, options        poll, epoll           fork
//!                |        \               |                     |
//!             connection: in the kernel, or a stream of the service (baton_socket)
//!                |
//!             table: descriptor -> connection
//!                |
//!   os/       libc's own functions, epoll, signals, waits: calls nothing above
//! ```
//!
//! * *Descriptors stay.* A connection that is handed over keeps its descriptor number: the
//!   kernel's socket behind it is a husk. The program never sees the husk's state.
//! * *Home first.* A call that the engine cannot serve brings the connection home: the
//!   descriptor is then an ordinary socket and the kernel serves the call. Each such case has a
//!   reason, which is counted (`account.rs`).
//! * *The library stays out of the way.* A call on any other descriptor costs one load. The
//!   library's thread blocks all signals. The library's descriptors have high numbers.
//! * *Lock order*: the link to the service, a slot, its entries, a set's tables, the free slots;
//!   the client library's own lock comes after a slot's. A thread holds no lock while it sleeps,
//!   except the slot's lock while it moves a connection.

mod abi;
mod account;
mod bits;
mod busy_poll;
mod candidate;
mod config;
mod connection;
mod connections;
mod descriptors;
mod ended;
mod epoll;
mod fork;
mod gather;
mod locks;
mod log;
mod membership;
mod notifier;
mod options;
mod os;
mod patience;
mod poll;
mod service;
mod set;
mod sharing;
mod state;
mod stream_wait;
mod table;
mod transfer;
mod turned_away;
