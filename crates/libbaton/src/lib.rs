//! The C ABI: an engine behind POSIX-like calls, for any language and any event
//! loop. `include/baton.h` is made from these files; `examples/echo.c` shows the
//! whole of it.
//!
//! What the calls do is [`baton_socket::posix`]'s; here are pointers, `errno`,
//! and waiting. An engine owns no thread, no clock and no descriptor of the kernel.
//!
//! Beside it stand the calls of a program of `baton service`
//! ([`baton_client`]): it hands its connections over, and goes on reading and
//! writing them wherever they are. These have a thread, and an eventfd a stream for the
//! program's own event loop.
//!
//! * A panic does not cross into C: the engine counts as dead from then on and
//!   every call on it fails with `EIO`.
//! * One thread at a time uses an engine. A call that finds another one in
//!   progress fails with `EBUSY`. Streams are behind a lock.
//! * Every handle, descriptor and length is checked. What cannot be: that a
//!   pointer leads to as many bytes as the caller says.

#![allow(non_camel_case_types, reason = "the names are C's")]

mod sys;
