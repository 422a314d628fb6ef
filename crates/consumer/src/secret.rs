//! Random numbers from the process's random source.

/// Returns a secret for [`EngineConfig::new`](baton_engine::engine::EngineConfig::new).
pub fn random_secret() -> [u8; 32] {
    let random = std::hash::RandomState::new();
    let mut secret = [0; 32];
    for (n, place) in (0u64..).zip(secret.chunks_mut(8)) {
        place.copy_from_slice(&std::hash::BuildHasher::hash_one(&random, n).to_le_bytes());
    }
    secret
}
