//! A wire with faults: a program between two interfaces.

use baton_port::{PacketOptions, PacketPort, Vnet, VnetFrame, VnetIo, VnetSink, WaitSet, Waitable};
use baton_testkit::Netns;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How many of a thousand frames are lost, duplicated, and sent after later ones.
#[derive(Clone, Copy)]
pub struct Faults {
    pub lost: u32,
    pub repeated: u32,
    pub late: u32,
}

impl Faults {
    pub const NONE: Faults = Faults { lost: 0, repeated: 0, late: 0 };
}

/// Carries frames until it is dropped.
pub struct FaultyWire {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FaultyWire {
    /// Between the interfaces `left` and `right` of a namespace.
    pub fn start(netns: &Netns, faults: Faults, seed: u64) -> FaultyWire {
        let open = |name| PacketPort::open(name, PacketOptions { take: true }).unwrap();
        let ports = netns.enter(|| [open("left"), open("right")]);
        let stop = Arc::new(AtomicBool::new(false));
        let until = stop.clone();
        let random = fastrand::Rng::with_seed(seed);
        FaultyWire { stop, thread: Some(std::thread::spawn(move || carry(ports, faults, random, &until))) }
    }
}

impl Drop for FaultyWire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || !matches!(ended, Some(Err(_))), "the faulty wire panicked");
    }
}

fn carry(mut ports: [PacketPort; 2], faults: Faults, mut random: fastrand::Rng, stop: &AtomicBool) {
    let mut late: [Vec<(Vnet, Vec<u8>)>; 2] = Default::default();
    while !stop.load(Ordering::Relaxed) {
        let mut busy = false;
        for way in [0, 1] {
            let [a, b] = &mut ports;
            let (from, to) = if way == 0 { (a, b) } else { (b, a) };
            // Delayed frames leave after the frames of this turn.
            let before = std::mem::take(&mut late[way]);
            let mut sink = Chance { to, faults, random: &mut random, late: &mut late[way] };
            busy |= from.receive(256, &mut sink).unwrap() > 0;
            before.iter().for_each(|(vnet, data)| send(to, *vnet, data));
            busy |= !late[way].is_empty();
            to.flush().unwrap();
        }
        if !busy {
            let mut set = WaitSet::new();
            ports.iter().for_each(|port| port.poll_fds(&mut set));
            if ports.iter_mut().all(Waitable::prepare_wait) {
                set.wait(Some(Duration::from_millis(20))).unwrap();
            }
        }
    }
}

/// Sends a frame. A frame that does not fit into the queue is lost, too.
fn send(to: &mut PacketPort, vnet: Vnet, data: &[u8]) {
    let _ = to.send(vnet, &[IoSlice::new(data)]);
}

struct Chance<'a> {
    to: &'a mut PacketPort,
    faults: Faults,
    random: &'a mut fastrand::Rng,
    late: &'a mut Vec<(Vnet, Vec<u8>)>,
}

impl VnetSink for Chance<'_> {
    fn burst(&mut self, frames: &[VnetFrame<'_>]) {
        let Faults { lost, repeated, late } = self.faults;
        for frame in frames {
            let draw = self.random.u32(..1000);
            if draw < lost {
                continue;
            }
            if draw < lost + late {
                self.late.push((frame.vnet, frame.data.to_vec()));
                continue;
            }
            send(self.to, frame.vnet, frame.data);
            if draw < lost + late + repeated {
                send(self.to, frame.vnet, frame.data);
            }
        }
    }
}
