//! POSIX sockets on two engines joined by hand: what programs expect of them.

mod epoll;
mod options;
mod pair;
mod streams;
