//! POSIX sockets on two engines that the test connects: the behaviour that programs expect.

mod epoll;
mod options;
mod pair;
mod streams;
