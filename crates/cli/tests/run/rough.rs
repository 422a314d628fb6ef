//! A wire that loses, duplicates and reorders frames: a TAP device at each end, and a thread that carries
//! frames between them. Faults apply to single frames of MTU size, since the devices accept no larger
//! ones.

use baton_port::{Faults, Faulty, FrameIo, FrameSink, RxFrame, Tap, TapOptions, TxMeta, WaitSet, Waitable};
use baton_testkit::Netns;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Shares of frames, each way.
const FAULTS: Faults = Faults { loss: 0.01, reorder: 0.01, dup: 0.01, corrupt: 0.0, seed: 11 };

/// How long a frame that was held back waits for others to overtake it.
const HELD: Duration = Duration::from_millis(2);

/// A wire with faults. It ends when this value is dropped.
pub struct Rough {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<[Faulty<Tap>; 2]>>,
}

impl Rough {
    /// Puts one between two namespaces, or within one: both ends' devices, which are up.
    pub fn new(ends: [(&Netns, &str); 2]) -> Rough {
        let mut ends = ends.map(|(namespace, device)| {
            let options = TapOptions::new().vnet_hdr(false).merge(false);
            let tap = namespace.enter(|| Tap::open(device, options).unwrap());
            namespace.run(&format!("ip link set {device} up"));
            Faulty::new(tap, Some(FAULTS))
        });
        let stop = Arc::new(AtomicBool::new(false));
        let stops = stop.clone();
        let thread = thread::spawn(move || {
            let mut wait = WaitSet::new();
            ends.iter().for_each(|end| end.poll_fds(&mut wait));
            while !stops.load(Ordering::Relaxed) {
                // An end that has nothing gives what it has held back.
                wait.wait(Some(HELD)).unwrap();
                let [a, b] = &mut ends;
                carry(a, b);
                carry(b, a);
            }
            ends
        });
        Rough { stop, thread: Some(thread) }
    }
}

fn carry(from: &mut Faulty<Tap>, to: &mut Faulty<Tap>) {
    // The device disappears when its namespace is removed.
    let received = from.receive(64, &mut Onto(to.port_mut()));
    let _ = received.and_then(|_| to.port_mut().flush());
}

/// Frames go on to this device; what it has no room for is lost.
struct Onto<'a>(&'a mut Tap);

impl FrameSink for Onto<'_> {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        for frame in frames {
            if let Some(slot) = self.0.slot(frame.data.len()) {
                slot.copy_from_slice(frame.data);
                self.0.commit(frame.data.len(), TxMeta::default());
            }
        }
    }
}

impl Drop for Rough {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A panic of its own was said already.
        let ends = self.thread.take().and_then(|thread| thread.join().ok());
        for (end, from) in ends.iter().flatten().zip(["one", "the other"]) {
            println!("frames from {from} end: {:?}", end.counters().expect("it has faults").0);
        }
    }
}
