//! What `baton run` loads into a program (`LD_PRELOAD`): its calls on sockets, carried to the
//! engine where a connection is there, passed on to libc where it is not.
//!
//! ```text
//!   program:  read write send recv ... poll select epoll ... close dup fork exec
//!                |                        |                     |
//!   sys/      one function a call: pointers, errno, what is not ours to libc
//!                |                        |                     |
//!             transfer, options        poll, epoll           fork
//!                |        \               |                     |
//!             connection: in the kernel, or a stream of the service's (baton_socket)
//!                |
//!             table: descriptor -> connection
//! ```
//!
//! * *Descriptors stay.* A connection that is handed over keeps its number: the kernel's
//!   socket behind it is a husk. What the husk would say is never shown to the program.
//! * *Home first.* What cannot be carried brings the connection home: then the descriptor is
//!   a plain socket, and the call the kernel's. Each such case has a reason that is counted
//!   (`account.rs`).
//! * *Nothing of ours is in the way.* A call on anything else costs one load; our thread
//!   takes no signals; our descriptors are far up.
//! * *Locks* are taken in this order: the link to the service, a slot, its entries, a set's
//!   tables, the free slots; the library's own lock comes after a slot's. Nobody sleeps with
//!   any of them but who moves a connection, with the slot's.

mod account;
mod bell;
mod bits;
mod candidate;
mod config;
mod connection;
mod descriptors;
mod epoll;
mod everything;
mod fork;
mod gather;
mod log;
mod options;
mod over;
mod patience;
mod poll;
mod service;
mod sharing;
mod sys;
mod table;
mod transfer;
