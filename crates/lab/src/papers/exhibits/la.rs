//! LA, *Latency Analysis of TCP on an ATM Network*: where the time of a round trip goes.

use crate::experiment::{Exhibit, Method};
use crate::papers::LA;

const fn measured(
    id: &'static str,
    what: &'static str,
    about: &'static str,
    from: &'static [&'static str],
    why: &'static str,
) -> Exhibit {
    Exhibit { id, paper: &LA, what, about, method: Method::Measured, why, from }
}

/// Tables and figures in the paper's order.
pub const EXHIBITS: &[Exhibit] = &[
    measured(
        "la-table-1",
        "Table 1",
        "round trips by size over two devices",
        &["la-round-trips"],
        "A DECstation of 25 MHz there, two namespaces of one machine here; its adapter, wire and interrupts are a device \
         of the kernel. So a round trip here is mostly wake-ups, and its size matters little.",
    ),
    measured(
        "la-table-2",
        "Table 2",
        "time of a message on its way out, by layer",
        &["la-layers"],
        "The answers of a server, from its write until the device has the last byte. Each row names the paper's layers, then \
         ours. The engine copies and sums in one pass, so checksum and mcopy are one row; it writes IP's header with TCP's, so \
         segment and IP are one; its ATM is the system call that sends a frame, with all that the kernel does in it. The \
         kernel's time ends where its driver begins, so its ATM is empty: compare the rest. The queue from program to \
         engine has no row in the paper. Where a kernel permits tracepoints only, User, TCP and IP are one time; a message \
         that is cut between IP and the device, as 8,000 bytes without offloads are, is not seen. The paper's machine has \
         25 MHz: compare shares. Beside a wire, the paper's shares and total are of the rows that are seen there.",
    ),
    measured(
        "la-table-3",
        "Table 3",
        "time of a message on its way in, by layer",
        &["la-layers"],
        "The requests of a server, from the frame until its read returns. Each row names the paper's layers, then ours. A \
         message is the segments that arrive together; the paper's time is that of the last segment only, and with an MTU \
         of 1500 here more than 1,448 bytes arrive as several unless devices join them. A TAP device and AF_XDP do not tell \
         when a frame arrived, so the engine's ATM and IPQ are empty there; that time is in table 1. The engine tells the \
         program before TCP decides (LC §3.3.1); here program and both halves of the engine share a thread, so its wake-up is \
         the rest of a turn, with the decision in it. The kernel's is a switch of threads. Checksum is the engine's check, copy and placement. The \
         kernel checks in parse or place, or has the device do it. Beside a wire, the paper's shares and total are of the \
         rows that are seen there.",
    ),
    measured(
        "la-pcb-search",
        "PCB search",
        "time to find a connection, by how many there are",
        &["la-memory"],
        "The paper searched a list of control blocks only. A train of four lookups asks for the same connection, as packets \
         come in trains; a cache of one entry serves three of them. 1,024 connections are asked for in turn, so that their own \
         memory is in the cache.",
    ),
    measured(
        "la-table-4",
        "Table 4",
        "round trips with header prediction and without it",
        &["la-prediction"],
        "Two engines on one thread over a wire in memory, by its CPU clock; without prediction the cache of one connection \
         is off too, as in the paper. 4.4BSD's rule misses answers that acknowledge their requests, here as there. Both \
         packets of an answer of 8,000 bytes are predicted, since the request's second packet was acknowledged at once; \
         that acknowledgment is missed, because it announces another window.",
    ),
    measured(
        "la-figure-1",
        "Figure 1",
        "round trips with header prediction and without it, by size",
        &["la-prediction"],
        "The paper plots table 4. Here runs are a line too: packets that arrive together are handled as one.",
    ),
    measured(
        "la-table-5",
        "Table 5",
        "copy and checksum, apart and in one pass",
        &["la-memory"],
        "All data is in the first cache. There a vector kernel sums faster than a copy stores, so one pass saves a smaller \
         share than where both waited for memory; the simple loop is RFC 1071's.",
    ),
    measured(
        "la-figure-2",
        "Figure 2",
        "copy and checksum by kernel and size",
        &["la-memory"],
        "The paper plots table 5. Here every kernel that this processor has is a line.",
    ),
    measured(
        "la-table-6",
        "Table 6",
        "round trips with copy and checksum apart, and in one pass",
        &["la-passes"],
        "Two engines on one thread over a wire in memory, by its CPU clock. The paper's one pass lost up to 500 bytes, \
         because partial sums had to be kept with each buffer from the socket on. Here a segment is copied where it is built \
         or checked, so one pass keeps nothing; but its bytes are in a cache, where a second pass costs little.",
    ),
    measured(
        "la-table-7",
        "Table 7",
        "round trips with and without TCP's checksum",
        &["la-sums"],
        "Two engines on one thread over a wire in memory, by its CPU clock. The checksum is left out in two ways: \
         by the device, whose wire vouches for its bytes, and by agreement of both engines (--integrity link), on a wire \
         that does not, as the paper's would. One pass of copy and checksum leaves little to save by leaving it out.",
    ),
    Exhibit {
        id: "la-error-sources",
        paper: &LA,
        what: "Error sources",
        about: "damage at a switch, a controller, a gateway and a link, by who finds it",
        method: Method::Simulated,
        why: "The paper argues (§4.2.1) and has no figures. Two engines in virtual time send over a path that damages \
              one frame with payload of eight. The CRC is that of AAL5 and Ethernet. Where a switch makes it anew, as some \
              Ethernet switches do, it covers less than AAL5's. A gateway is a router: it lowers the time to live, so the \
              engines keep their checksums.",
        from: &["la-corruption"],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_and_figure_of_the_paper_is_here_in_its_order() {
        let places: Vec<&str> = EXHIBITS.iter().map(|exhibit| exhibit.what).collect();
        let tables: Vec<String> = (1..=7).map(|number| format!("Table {number}")).collect();
        let of = |word: &str| places.iter().filter(|place| place.starts_with(word)).copied().collect::<Vec<_>>();
        assert_eq!(
            (of("Table"), of("Figure")),
            (tables.iter().map(String::as_str).collect(), vec!["Figure 1", "Figure 2"])
        );
    }
}
