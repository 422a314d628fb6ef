//! Reads of a TAP device through io_uring, to compare with `read(2)`.
//!
//! This module upholds: buffers given to the kernel outlive the batch of reads, which
//! is waited for before they are touched again; registered ones outlive the ring.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;

use baton_port::Tap;
use io_uring::{IoUring, opcode, types};

const BATCH: usize = 64;
const BUFFER: usize = 2048;

/// Room for a batch of frames.
pub struct Buffers(Vec<[u8; BUFFER]>);

impl Buffers {
    pub fn new() -> Self {
        Self(vec![[0; BUFFER]; BATCH])
    }
}

/// A ring that reads from one TAP device.
pub struct Batch {
    ring: IoUring,
    registered: bool,
}

impl Batch {
    /// Makes a ring for `tap`; `buffers` must be the ones that it reads into later
    /// and outlive it.
    pub fn new(tap: &Tap, buffers: &mut Buffers, registered: bool) -> Self {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_coop_taskrun();
        let ring: IoUring = builder.build(2 * BATCH as u32).expect("io_uring");
        ring.submitter().register_files(&[tap.as_raw_fd()]).expect("registering the device");
        if registered {
            let pieces: Vec<libc::iovec> = buffers
                .0
                .iter_mut()
                .map(|b| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: BUFFER })
                .collect();
            // SAFETY: `main` keeps the buffers, unmoved on the heap, as long as the ring.
            unsafe { ring.submitter().register_buffers(&pieces) }.expect("registering buffers");
        }
        Self { ring, registered }
    }

    /// Reads `frames` frames, a multiple of the batch, each of `len` bytes.
    pub fn read(&mut self, buffers: &mut Buffers, frames: usize, len: usize) {
        for _ in 0..frames / BATCH {
            for (i, buffer) in buffers.0.iter_mut().enumerate() {
                let (fd, start) = (types::Fixed(0), buffer.as_mut_ptr());
                let entry = if self.registered {
                    opcode::ReadFixed::new(fd, start, BUFFER as u32, i as u16).build()
                } else {
                    opcode::Read::new(fd, start, BUFFER as u32).build()
                };
                // SAFETY: all reads are waited for below, before `buffers` is free again.
                unsafe { self.ring.submission().push(&entry) }.expect("room for two batches");
            }
            self.ring.submit_and_wait(BATCH).expect("io_uring");
            for completion in self.ring.completion() {
                assert_eq!(completion.result(), len as i32);
            }
        }
    }
}
