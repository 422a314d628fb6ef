//! What `baton doctor` says of conntrack, in the network namespace that it runs in.

use super::{Conntrack, sysctl};
use baton_port::doctor::Finding;

const NAME: &str = "conntrack";

/// Whether connections are tracked here, and whether conntrack can be told of moves.
pub fn finding() -> Finding {
    let entries = if sysctl::is_loaded() { sysctl::entries() } else { None };
    let Some(entries) = entries else {
        return Finding::yes(NAME, "not in use: nothing has to be told");
    };
    match Conntrack::open().entries() {
        Ok(_) => Finding::yes(
            NAME,
            format!("entries: {entries}; told of each move. Connections that NAT translates stay in the kernel"),
        ),
        Err(_) if entries == 0 => Finding::yes(NAME, "tracks nothing here: nothing has to be told"),
        Err(error) => Finding::no(
            NAME,
            format!("entries: {entries}; it cannot be told of moves ({error}), so connections stay in the kernel"),
            "run as root, or with CAP_NET_ADMIN, in a kernel with CONFIG_NF_CT_NETLINK",
        ),
    }
}
