//! Calls of bpf(2) for maps in maps, whose descriptors `aya` keeps to itself.
//!
//! Invariants: those of [`sys`](super).

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

const BPF_MAP_CREATE: i32 = 0;
const BPF_MAP_UPDATE_ELEM: i32 = 2;

/// Makes an array of `entries` words of 8 bytes that can be mapped. Its descriptor permits writing, since the
/// kernel maps an array for nobody who may not (`bpf_map_mmap` wants `VM_SHARED`, which `do_mmap` takes from a
/// descriptor for reading alone).
///
/// # Errors
/// Errors from the system call.
pub(crate) fn mappable_array(entries: u32) -> io::Result<OwnedFd> {
    const BPF_MAP_TYPE_ARRAY: u32 = 2;
    const BPF_F_MMAPABLE: u32 = 1 << 10;
    #[repr(C)]
    struct Attributes {
        kind: u32,
        key_size: u32,
        value_size: u32,
        entries: u32,
        flags: u32,
    }
    let (kind, flags) = (BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE);
    let attributes = Attributes { kind, key_size: 4, value_size: 8, entries, flags };
    // SAFETY: `attributes` is valid for reads of its size during the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, &raw const attributes, size_of::<Attributes>()) };
    check(if fd < 0 { -1 } else { 0 })?;
    // SAFETY: the call succeeded, so this is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Sets an element of a map whose keys and values have 4 bytes.
///
/// # Errors
/// Errors from the system call.
pub(crate) fn set_element(map: BorrowedFd<'_>, key: u32, value: u32) -> io::Result<()> {
    /// The part of `union bpf_attr` for that command.
    #[repr(C)]
    struct Attributes {
        map: u32,
        _padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let (map, [key, value]) = (map.as_raw_fd() as u32, [&key, &value].map(|word| std::ptr::from_ref(word) as u64));
    let attributes = Attributes { map, _padding: 0, key, value, flags: 0 };
    // SAFETY: `attributes` is valid for reads of its size, and what it points to for reads of 4 bytes each, which
    // is the size of the map's keys and values, all during the call.
    let done =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_UPDATE_ELEM, &raw const attributes, size_of::<Attributes>()) };
    check(if done < 0 { -1 } else { 0 })
}
