//! Reads into a buffer that the end lends to the engine (posted receives, LC §3.3.1).

use super::{End, Holding, Phase};
use crate::stream::WrongByte;
use baton_engine::region::ConsumerRegion;

impl End {
    /// Stream position of the next byte to read, if none has arrived and the program waits for one.
    pub fn awaited(&self, region: &ConsumerRegion) -> Option<u64> {
        let open = self.phase == Phase::Open && !self.frozen && self.parcel.is_none();
        let waits = self.holding == Holding::Posts && self.stalled_until.is_none();
        (open && waits && self.read == self.arrived(region)).then_some(self.read)
    }

    /// The next bytes have arrived in the program's memory.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn take_placed(&mut self, region: &ConsumerRegion, bytes: &[u8]) -> Result<(), WrongByte> {
        self.into.check(self.into_base + self.read, bytes)?;
        self.read += bytes.len() as u64;
        assert!(self.read <= self.arrived(region), "what was placed was received");
        region.qp(self.qp).set_rcv_read(self.read);
        Ok(())
    }
}
