//! A connection as arguments and reports write it.

use baton_wire::addr::Tuple;
use std::net::SocketAddr;

/// Reads LOCAL,REMOTE, each as ADDRESS:PORT.
pub fn tuple(text: &str) -> Result<Tuple, String> {
    let pair = text.split_once(',').and_then(|(local, remote)| Some((local.parse().ok()?, remote.parse().ok()?)));
    let (local, remote): (SocketAddr, SocketAddr) = pair.ok_or("write LOCAL,REMOTE, each as ADDRESS:PORT")?;
    Ok(Tuple::new(local, remote))
}
