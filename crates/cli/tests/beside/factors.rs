//! The factors of the matrix, and its cells.

use std::fmt;

/// A factor: its values, each with the word that names it.
macro_rules! factor {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $value:ident $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[$doc])* $value,)* }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$value,)*];

            pub fn word(self) -> &'static str {
                match self { $($name::$value => $word,)* }
            }
        }
    };
}

factor! {
    /// A factor beside the socket, on the machine whose connections move.
    Situation {
        /// Strict tracking: invalid packets are dropped, and so is what no rule lets pass.
        Stateful "stateful-rules",
        Redirect "redirect",
        DestinationNat "dnat",
        SourceNat "snat",
        /// A router between the two machines translates; this one knows nothing of it.
        Masquerade "masquerade-between",
        BanAdded "ban-added",
        BanRemoved "ban-removed",
        Limits "limits",
        /// Packets are marked, and the mark chooses another interface.
        Marks "marks",
        XfrmBlock "xfrm-block",
        /// IPsec in transport mode, where the kernel has ESP.
        XfrmTransport "xfrm-transport",
        /// A token bucket on the interface.
        Tbf "tbf",
        TcBefore "tc-before",
        TcBehind "tc-behind",
        CgroupProgram "cgroup-program",
        AddressRemoved "address-removed",
        Renamed "renamed",
        DownUp "down-up",
        MovedAway "moved-away",
    }
}

factor! {
    Traffic {
        /// Nothing but a message each way when somebody looks.
        Idle "idle",
        /// As much as fits, both ways.
        Bulk "bulk",
        /// 64 bytes there, 512 back, by turns.
        Request "request",
    }
}

factor! {
    Life {
        Stays "stays",
        MovesOnce "moves-once",
        MovesOften "moves-often",
        /// It moves 6 MiB each way and so goes home, before anything else happens.
        HomeByBulk "home-by-bulk",
        EngineKilled "engine-killed",
        ProgramKilled "program-killed",
        BrokerKilled "broker-killed",
    }
}

factor! {
    Family {
        V4 "ipv4",
        V6 "ipv6",
    }
}

factor! {
    /// Where the engine runs, and how frames reach it. A program drives an engine over tc only.
    Engine {
        DirectTc "direct-tc",
        ServiceTc "service-tc",
        ServiceXdp "service-xdp",
    }
}

/// One value of each factor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cell {
    pub situation: Situation,
    pub traffic: Traffic,
    pub life: Life,
    pub family: Family,
    pub engine: Engine,
}

impl Cell {
    /// Every cell that can be.
    pub fn all() -> Vec<Cell> {
        let mut cells = Vec::new();
        for &situation in Situation::ALL {
            for &traffic in Traffic::ALL {
                for &life in Life::ALL {
                    for &family in Family::ALL {
                        for &engine in Engine::ALL {
                            cells.push(Cell { situation, traffic, life, family, engine });
                        }
                    }
                }
            }
        }
        cells.retain(|cell| cell.excluded().is_none());
        cells
    }

    /// Why there is no such cell, if so.
    pub fn excluded(&self) -> Option<&'static str> {
        (self.engine == Engine::DirectTc && self.life == Life::EngineKilled)
            .then_some("an engine inside the program dies with the program")
    }

    /// Which value each factor has, by number.
    pub fn values(&self) -> [usize; 5] {
        let Cell { situation, traffic, life, family, engine } = *self;
        [situation as usize, traffic as usize, life as usize, family as usize, engine as usize]
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { situation, traffic, life, family, engine } = *self;
        let words = [situation.word(), traffic.word(), life.word(), family.word(), engine.word()];
        f.write_str(&words.join("/"))
    }
}
