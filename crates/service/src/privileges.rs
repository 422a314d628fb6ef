//! The engine's process gives up all that it could do beyond moving bytes.

use rustix::fs::{Gid, Uid};
use rustix::io;
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
    set_thread_gid, set_thread_groups, set_thread_uid,
};

/// Becomes that user and group, if any, without capabilities, and without a way to any. To
/// be called while the process has one thread.
///
/// # Errors
/// As the system calls': then the process must not go on.
pub fn drop_all(user: Option<(u32, u32)>) -> io::Result<()> {
    for capability in CapabilitySet::all().iter() {
        // Those that the kernel does not know, and an unprivileged process, have none to drop.
        let _ = remove_capability_from_bounding_set(capability);
    }
    if let Some((uid, gid)) = user {
        set_thread_groups(&[])?;
        set_thread_gid(Gid::from_raw(gid))?;
        set_thread_uid(Uid::from_raw(uid))?;
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)
}
