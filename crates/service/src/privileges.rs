//! Takes from the engine's process every privilege that moving bytes does not need.

use baton_ipc::order::RunAs;
use rustix::fs::{Gid, Uid};
use rustix::io;
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
    set_thread_gid, set_thread_groups, set_thread_uid,
};

/// Switches to the user and group, if given, and drops all capabilities for good. Call it while the
/// process has one thread.
///
/// # Errors
/// Errors from the system calls. The process must not continue then.
pub fn drop_all(run_as: Option<RunAs>) -> io::Result<()> {
    for capability in CapabilitySet::all().iter() {
        // Capabilities that the kernel does not know cannot be dropped, nor can an unprivileged
        // process drop any.
        let _ = remove_capability_from_bounding_set(capability);
    }
    if let Some(RunAs { uid, gid }) = run_as {
        set_thread_groups(&[])?;
        set_thread_gid(Gid::from_raw(gid))?;
        set_thread_uid(Uid::from_raw(uid))?;
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)
}
