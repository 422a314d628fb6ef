//! Two programs, their link, the kernel, and the broker: everything by turns, in an order that a seed decides.

use crate::kernel::Kernel;
use crate::program::{Place, Program};
use baton_kernel::both_ends::{Carried, go_away, numbers_at_home, window_at_home};
use baton_pair::{Course, Ending, Layout, Link, Side};
use baton_tcp::snapshot::Snapshot;
use std::num::NonZeroU64;
use std::sync::Arc;

const AREA: u32 = 4096;
const SLOT: u32 = 1;

/// Something that the broker does, or that befalls a program, before a turn.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// Both ends are joined, if they can be.
    Join,
    /// Both go home. Each end may have had a write of so many bytes under way when the pair was stopped, and hears of
    /// its way home so many turns later.
    Home { under_way: [usize; 2], later: [usize; 2] },
    /// A program is killed.
    Die(usize),
}

pub struct World {
    sides: [Arc<Side>; 2],
    links: [Link; 2],
    number: u64,
    kernel: Kernel,
    heads: Option<[Snapshot; 2]>,
    programs: [Program; 2],
    /// In how many turns each program hears that it is home, and what.
    news: [Option<(usize, (u64, u64))>; 2],
    random: fastrand::Rng,
    /// How often both ends were joined, and came home.
    pub joined: usize,
    pub home: usize,
}

impl World {
    pub fn new(seed: u64, totals: [u64; 2]) -> World {
        let sides = [(); 2].map(|()| Side::heap(Layout::new(2, AREA).unwrap()));
        let link = |at: usize| Link::new(sides[at].clone(), sides[1 - at].clone()).unwrap();
        World {
            links: [link(0), link(1)],
            sides,
            number: 0,
            kernel: Kernel::new(),
            heads: None,
            programs: [Program::new(0, totals[0]), Program::new(1, totals[1])],
            news: [None; 2],
            random: fastrand::Rng::with_seed(seed),
            joined: 0,
            home: 0,
        }
    }

    /// Runs to the end of both streams, with events before turns.
    pub fn run(&mut self, events: &[(usize, Event)]) {
        let mut turn = 0;
        while !self.programs.iter().all(Program::is_over) {
            events.iter().filter(|(at, _)| *at == turn).for_each(|(_, event)| self.happen(*event));
            self.hear();
            self.turn();
            turn += 1;
            assert!(turn < 100_000, "a stream does not end: {:?}", self.state());
        }
        for (program, other) in [(0, 1), (1, 0)].map(|(at, other)| (&self.programs[at], &self.programs[other])) {
            if !matches!(program.place, Place::Dead) && program.end == Some(Ending::Finished) {
                assert_eq!(program.read, other.written, "{:?}", self.state());
            }
        }
    }

    fn state(&self) -> Vec<(u64, u64, bool, Option<Ending>)> {
        self.programs.iter().map(|it| (it.written, it.read, it.finished, it.end)).collect()
    }

    fn turn(&mut self) {
        let at = self.random.usize(..2);
        let most = [1, 100, 1000, 5000][self.random.usize(..4)];
        if self.random.bool() {
            self.programs[at].write(&mut self.kernel, most);
        } else {
            self.programs[at].read(&mut self.kernel, most);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Join => self.join(),
            Event::Home { under_way, later } => self.go_home(under_way, later),
            Event::Die(at) => self.die(at),
        }
    }

    /// A link as a program has it.
    fn link(&self, at: usize) -> Link {
        Link::new(self.sides[at].clone(), self.sides[1 - at].clone()).unwrap()
    }

    fn number(&self) -> NonZeroU64 {
        NonZeroU64::new(self.number).expect("a pair began")
    }

    fn join(&mut self) {
        let free = |it: &Program| matches!(it.place, Place::Kernel) && it.skip == 0;
        if !self.programs.iter().all(free) || self.news.iter().any(Option::is_some) {
            return;
        }
        let Some(heads) = self.kernel.capture(AREA as usize) else { return };
        self.number += 1;
        self.joined += 1;
        for (at, head) in heads.iter().enumerate() {
            // The broker does this, in a link of its own. Then the program goes on with the end.
            let mut begun = self.link(at).begin(SLOT, self.number()).unwrap();
            for bytes in [&heads[1 - at].unread, &head.unsent] {
                assert_eq!(begun.write(bytes).unwrap().0, bytes.len(), "the area is empty");
            }
            drop(begun);
            self.programs[at].place = Place::Pair(self.links[at].resume(SLOT, self.number()).unwrap());
        }
        let peer_unread = [1, 0].map(|at: usize| heads[at].unread.len() as u32);
        let mut numbers = heads.map(|head| head.numbers);
        numbers.iter_mut().zip(peer_unread).for_each(|(head, peer_unread)| go_away(head, peer_unread));
        self.heads = Some(numbers);
    }

    fn go_home(&mut self, under_way: [usize; 2], later: [usize; 2]) {
        let both = self.programs.iter().all(|it| matches!(it.place, Place::Pair(_)));
        let Some(heads) = self.heads.as_ref().filter(|_| both && self.news == [None; 2]) else { return };
        let sides = [&*self.sides[0], &*self.sides[1]];
        // A write that is under way has found the pair going on, and is seen only afterwards. It may take the place of
        // bytes that the other end has read since.
        let course = Course::read(sides, SLOT, self.number()).unwrap();
        for (at, most) in under_way.into_iter().enumerate().filter(|(_, most)| *most > 0) {
            self.programs[1 - at].read(&mut self.kernel, most);
            self.programs[at].write(&mut self.kernel, most);
        }
        Course::stop(sides, SLOT, self.number()).unwrap();
        if course.ends.contains(&Ending::Reset) || !course.ends.contains(&Ending::Open) {
            let reset = course.ends.contains(&Ending::Reset);
            return self.programs.iter_mut().for_each(|program| program.part(reset));
        }
        let ends = [0, 1].map(|at| Carried {
            written: course.written[at],
            received: course.written[1 - at],
            finished: course.ends[at] != Ending::Open,
            peer_finished: course.ends[1 - at] != Ending::Open,
        });
        let unread = [0, 1].map(|at| course.unread(sides, SLOT, at));
        let counts = unread.each_ref().map(|bytes| bytes.len() as u32);
        let windows = [0, 1].map(|at| window_at_home(&heads[at], counts[at]));
        let home = [0, 1].map(|at| numbers_at_home(&heads[at], windows[1 - at], ends[at], counts[at]).unwrap());
        self.news = [0, 1].map(|at| Some((later[at], (ends[at].received - u64::from(counts[at]), ends[at].written))));
        self.kernel.rebuild(home, unread);
        self.heads = None;
        self.home += 1;
    }

    /// Programs hear that they are home, when it is time.
    fn hear(&mut self) {
        for (program, news) in self.programs.iter_mut().zip(&mut self.news) {
            match news {
                Some((0, home)) => {
                    if matches!(program.place, Place::Pair(_)) {
                        program.come_home(&mut self.kernel, *home);
                    }
                    *news = None;
                }
                Some((turns, _)) => *turns -= 1,
                None => {}
            }
        }
    }

    /// Kills a program in a pair. The other end reads all that it wrote, then sees the end that the kernel would have
    /// shown.
    fn die(&mut self, at: usize) {
        let is_pair = |it: &Program| matches!(it.place, Place::Pair(_));
        if !self.programs.iter().all(is_pair) || self.news != [None; 2] {
            return;
        }
        let survivor = &self.programs[1 - at];
        let unread = survivor.written - survivor.unsent.len() as u64 > self.programs[at].read;
        // One that had finished has told so, and a reset after that is another matter.
        let tells = !self.programs[at].finished;
        self.programs[at].place = Place::Dead;
        // The broker does this for it, in a link of its own.
        let link = self.link(at);
        let mut end = link.resume(SLOT, self.number()).unwrap();
        let unread_there = end.readable().unwrap() > 0;
        let _ = if unread_there { end.reset() } else { end.close() };
        let written = self.programs[at].written;
        let survivor = &mut self.programs[1 - at];
        // It reads before it writes, which may meet a reset.
        while survivor.end.is_none() {
            survivor.read(&mut self.kernel, 700);
        }
        assert_eq!(survivor.read, written, "all that was written");
        let expected = if unread { Ending::Reset } else { Ending::Finished };
        assert!(!tells || survivor.end == Some(expected), "{:?}, not {expected:?}", survivor.end);
        survivor.finished = true;
    }
}
