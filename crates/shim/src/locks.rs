//! Locks that a thread does not hold while it sleeps.

use baton_consumer::held::Counted;
use std::sync::{Mutex, MutexGuard};

/// A lock that a thread does not hold while it sleeps.
pub type Locked<'a, T> = Counted<MutexGuard<'a, T>>;

pub fn locked<T>(mutex: &Mutex<T>) -> Locked<'_, T> {
    // A panic does not leave the data inconsistent.
    Counted::lock(mutex)
}
