//! A target for what the processes of the service say to each other, as bytes.

use baton_ipc::order::{Order, Report};
use baton_ipc::record::Record;
use baton_service::guardian::{ToBroker, ToGuardian};

macro_rules! holds {
    ($data:ident, $($kind:ty),*) => {
        $(if let Some(message) = <$kind>::from_bytes($data) {
            let bytes = message.to_bytes();
            assert!(bytes.len() <= $data.len(), "{message:?}: {} bytes of {}", bytes.len(), $data.len());
            assert_eq!(<$kind>::from_bytes(&bytes), Some(message));
        })*
    };
}

/// Reads the bytes as a message of each kind. The message has an encoding that
/// is no longer than the bytes, and means the same.
pub fn messages(data: &[u8]) {
    holds!(data, Record, ToGuardian, ToBroker, Order, Report);
}
