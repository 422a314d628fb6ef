//! A regular file in memory, a piece at a time, without copying it.
//!
//! ```text
//!   file   |........|===== piece =====|.............|
//!                   ^ page boundary, at or before what is not consumed yet
//! ```
//!
//! Only the headers of large frames are looked at, and bytes that are not copied cost only
//! their share of a page's mapping.
//!
//! A file may be cut while it is read; the kernel answers an access beyond its end with SIGBUS,
//! which would end the process. So every piece stands in a table while it is mapped. A handler
//! of SIGBUS puts a page of ones where the file is gone (no capture continues with those) and
//! notes it. A SIGBUS from anywhere else goes to the handler that was there before.
//!
//! This module upholds: the window lies within the piece, which stays mapped and
//! readable until it is replaced through `&mut self`, or dropped. The bytes are shared
//! with the file, so another process may change them while they are looked at; captures
//! are appended to, not rewritten. The parsers check every
//! length against its slice when they use it.

use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Once};

/// Bytes mapped at a time: more than the longest window that is asked for.
const PIECE: u64 = 8 << 20;
/// A multiple of every page size that there is.
const BOUNDARY: u64 = 64 << 10;
/// The most files that are mapped at a time; others are read.
const FILES: usize = 64;

/// Where a piece is, for the handler. A free place has length 0.
struct Place {
    taken: AtomicBool,
    start: AtomicUsize,
    len: AtomicUsize,
    /// An access beyond the file's end was caught.
    cut: AtomicBool,
}

static PLACES: [Place; FILES] = [const {
    Place {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        cut: AtomicBool::new(false),
    }
}; FILES];

/// The previous action for SIGBUS.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());
static INSTALL: Once = Once::new();

/// A file, a piece of which is mapped.
pub struct Mapped {
    file: File,
    len: u64,
    place: &'static Place,
    /// The piece: its offset in the file, its address (null: none), its length.
    base: u64,
    address: *mut u8,
    piece: usize,
    /// Where in the piece the window begins.
    start: usize,
    progress: Arc<AtomicU64>,
}

// SAFETY: the mapping belongs to this value alone, and its place in the table is atomic.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Maps the beginning of `file`; `None` if it is not a regular file with contents,
    /// or too many are mapped. Bytes that are done with are added to `progress`.
    pub fn new(file: &File, progress: &Arc<AtomicU64>) -> io::Result<Option<Mapped>> {
        let facts = file.metadata()?;
        if !facts.is_file() || facts.len() == 0 {
            return Ok(None);
        }
        INSTALL.call_once(install);
        let free = |place: &&Place| !place.taken.swap(true, Ordering::AcqRel);
        let Some(place) = PLACES.iter().find(free) else { return Ok(None) };
        place.cut.store(false, Ordering::Release);
        let mut mapped = Mapped {
            file: file.try_clone()?,
            len: facts.len(),
            place,
            base: 0,
            address: ptr::null_mut(),
            piece: 0,
            start: 0,
            progress: progress.clone(),
        };
        // Files of some file systems cannot be mapped: those are read.
        Ok(mapped.map(0).is_ok().then_some(mapped))
    }

    /// The current window.
    #[inline]
    pub fn window(&self) -> &[u8] {
        if self.address.is_null() {
            return &[];
        }
        // SAFETY: `address` and `piece` are those of a mapping that is readable until
        // `self` is changed; `start` is at most `piece`.
        unsafe { slice::from_raw_parts(self.address.add(self.start), self.piece - self.start) }
    }

    /// Takes `len` bytes off the window, which has at least as many.
    pub fn consume(&mut self, len: usize) {
        assert!(len <= self.piece - self.start, "more consumed than there is");
        self.start += len;
        self.progress.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// True once an access beyond the end of the file was caught.
    pub fn was_cut(&self) -> bool {
        self.place.cut.load(Ordering::Acquire)
    }

    /// Maps the next piece; false if the window reaches the end of the file.
    ///
    /// # Errors
    /// The file was cut, or the operating system's answer.
    pub fn fill(&mut self) -> io::Result<bool> {
        if self.was_cut() || self.file.metadata()?.len() < self.len {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file was cut while it was read"));
        }
        let end = self.base + self.piece as u64;
        if end >= self.len {
            return Ok(false);
        }
        let at = self.base + self.start as u64;
        let base = at - at % BOUNDARY;
        self.map(base)?;
        self.start = (at - base) as usize;
        Ok(self.base + self.piece as u64 > end)
    }

    /// Maps the piece from `base` on, which is on a boundary and within the file, in
    /// place of the one before.
    fn map(&mut self, base: u64) -> io::Result<()> {
        self.unmap();
        let len = PIECE.min(self.len - base) as usize;
        // SAFETY: a new mapping, wherever the kernel puts it, of a descriptor that is open.
        let address = unsafe {
            libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, self.file.as_raw_fd(), base as i64)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        (self.base, self.address, self.piece, self.start) = (base, address.cast(), len, 0);
        self.place.start.store(address as usize, Ordering::Release);
        self.place.len.store(len, Ordering::Release);
        Ok(())
    }

    fn unmap(&mut self) {
        if !self.address.is_null() {
            self.place.len.store(0, Ordering::Release);
            // SAFETY: the mapping is ours, as long as this, and no window borrows from it,
            // since `self` is borrowed exclusively.
            unsafe { libc::munmap(self.address.cast(), self.piece) };
            (self.address, self.piece, self.start) = (ptr::null_mut(), 0, 0);
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.unmap();
        self.place.taken.store(false, Ordering::Release);
    }
}

/// Sets the handler, after keeping what there was.
fn install() {
    // SAFETY: plain data, for which zeros are a value.
    let mut before: Box<libc::sigaction> = Box::new(unsafe { zeroed() });
    // SAFETY: `before` is valid for a write of its type.
    unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut *before) };
    BEFORE.store(Box::into_raw(before), Ordering::Release);
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = on_bus as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `action` is whole, its mask empty; the handler makes only calls that a
    // handler may make.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) };
}

/// Puts a page of ones where a mapped file has ended.
extern "C" fn on_bus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure; of SIGBUS it has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    for place in &PLACES {
        let (start, len) = (place.start.load(Ordering::Acquire), place.len.load(Ordering::Acquire));
        if address.wrapping_sub(start) < len && replace(address) {
            place.cut.store(true, Ordering::Release);
            return;
        }
    }
    let before = BEFORE.load(Ordering::Acquire);
    // SAFETY: `before` was made by `install`, whole, before this handler was set, and is
    // never freed.
    let before = unsafe { &*before };
    if before.sa_flags & libc::SA_SIGINFO != 0 && before.sa_sigaction > libc::SIG_IGN {
        type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: with SA_SIGINFO the word is a handler of this type.
        let handler: Handler = unsafe { std::mem::transmute(before.sa_sigaction) };
        handler(signal, info, context);
    } else {
        // SAFETY: back to what there was; the instruction is tried again, and is fatal.
        unsafe { libc::sigaction(libc::SIGBUS, ptr::from_ref(before), ptr::null_mut()) };
    }
}

/// Puts a page of ones over the page of `address`; false if that cannot be done.
fn replace(address: usize) -> bool {
    // SAFETY: `sysconf` and the place of `errno` are there in a handler; `mmap` with
    // MAP_FIXED replaces one page of a piece that is known to be mapped, which nobody
    // writes; it is written only once it is ours.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let start = (address & !(page - 1)) as *mut libc::c_void;
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mapped = libc::mmap(start, page, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if mapped != libc::MAP_FAILED {
            ptr::write_bytes(mapped.cast::<u8>(), 0xff, page);
        }
        *errno = saved;
        mapped != libc::MAP_FAILED
    }
}
