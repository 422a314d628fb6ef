//! The C ABI: an engine behind POSIX-like calls, for any language and any event loop.
//! `include/baton.h` is generated from these files; `examples/echo.c` is a complete program.
//!
//! [`baton_socket::posix`] implements the calls; this crate adds pointers, `errno` and
//! waiting. An engine owns no thread, no clock and no kernel descriptor.
//!
//! A second group of calls serves clients of `baton service` ([`baton_client`]): a
//! program hands its connections over, and continues to read and write them wherever they
//! are. A connection to a service has a thread, and each stream has an eventfd for the
//! program's own event loop.
//!
//! * A panic does not cross into C: afterwards the engine is dead, and every call on it fails
//!   with `EIO`.
//! * One thread at a time uses an engine. A call that finds another one in progress fails
//!   with `EBUSY`. Streams are protected by a lock.
//! * Every handle, descriptor and length is checked. The library cannot check that a pointer
//!   points to as many bytes as the caller says.

#![allow(non_camel_case_types, reason = "the names are C's")]

mod sys;
