//! A target for what programs and the broker say to each other, as bytes.

use baton_ipc::message::{Reply, Request};

/// Reads the bytes as a message of either side. The message has an encoding that
/// is no longer than the bytes, and means the same.
pub fn messages(data: &[u8]) {
    if let Some(request) = Request::from_bytes(data) {
        let bytes = request.to_bytes();
        assert!(bytes.len() <= data.len(), "{request:?}: {} bytes of {}", bytes.len(), data.len());
        assert_eq!(Request::from_bytes(&bytes), Some(request));
    }
    if let Some(reply) = Reply::from_bytes(data) {
        let bytes = reply.to_bytes();
        assert!(bytes.len() <= data.len(), "{reply:?}: {} bytes of {}", bytes.len(), data.len());
        assert_eq!(Reply::from_bytes(&bytes), Some(reply));
    }
}
