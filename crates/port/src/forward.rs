//! Forwarding for an enum of ports. The macros take the name of a macro that calls a method of
//! the actual port: `each!(self, port => port.flush())`.

/// All of `FrameIo` but its capabilities.
macro_rules! forward_frames {
    ($each:ident) => {
        fn receive<S: $crate::FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, $crate::PortError> {
            $each!(self, port => port.receive(limit, sink))
        }

        forward_sends!($each);
    };
}

/// The part of `FrameIo` for sending.
macro_rules! forward_sends {
    ($each:ident) => {
        fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
            $each!(self, port => port.slot(len))
        }

        fn commit(&mut self, len: usize, meta: $crate::TxMeta) {
            $each!(self, port => port.commit(len, meta));
        }

        fn gather(&mut self, header: &[u8], payload: &[$crate::PayloadPart], meta: $crate::TxMeta) -> bool {
            $each!(self, port => port.gather(header, payload, meta))
        }

        fn flush(&mut self) -> Result<(), $crate::PortError> {
            $each!(self, port => port.flush())
        }
    };
}

/// All of `Waitable`.
macro_rules! forward_waits {
    ($each:ident) => {
        fn poll_fds(&self, set: &mut $crate::WaitSet) {
            $each!(self, port => port.poll_fds(set));
        }

        fn prepare_wait(&mut self) -> bool {
            $each!(self, port => port.prepare_wait())
        }

        fn finish_wait(&mut self) {
            $each!(self, port => port.finish_wait());
        }
    };
}
