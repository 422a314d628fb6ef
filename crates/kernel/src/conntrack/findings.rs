//! Findings about conntrack for `baton doctor`, in its own network namespace.

use super::{Conntrack, sysctl};
use baton_port::doctor::Finding;

const NAME: &str = "conntrack";

/// Reports whether connections are tracked here, and whether conntrack can be told of moves.
pub fn finding() -> Finding {
    let entries = if sysctl::is_loaded() { sysctl::entries() } else { None };
    let Some(entries) = entries else {
        return Finding::yes(NAME, "not in use");
    };
    match Conntrack::open().entries() {
        Ok(_) => Finding::yes(
            NAME,
            format!(
                "entries: {entries}; each move is announced to it. Connections that NAT translates stay in the kernel"
            ),
        ),
        Err(_) if entries == 0 => Finding::yes(NAME, "tracks nothing here"),
        Err(error) => Finding::no(
            NAME,
            format!("entries: {entries}; moves cannot be announced to it ({error}), so connections stay in the kernel"),
            "run as root, or with CAP_NET_ADMIN, in a kernel with CONFIG_NF_CT_NETLINK",
        ),
    }
}
