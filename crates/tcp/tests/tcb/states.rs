//! The transition table, walked whole, and held against what a `Tcb` does.

use crate::rig::*;
use baton_tcp::state::{Event, State};
use baton_wire::tcp::Flags;

const EVENTS: [Event; 11] = [
    Event::PassiveOpen,
    Event::ActiveOpen,
    Event::Syn,
    Event::SynAck,
    Event::AckOfSyn,
    Event::Close,
    Event::Fin,
    Event::AckOfFin,
    Event::Timeout,
    Event::Reset,
    Event::Abort,
];

#[test]
fn every_state_times_every_event() {
    let mut table = String::new();
    for state in State::ALL {
        table += &format!("{state:?}:");
        for event in EVENTS {
            if let Some(next) = state.next(event) {
                table += &format!(" {event:?}->{next:?}");
            }
        }
        table += "\n";
    }
    let expected = "\
Closed: PassiveOpen->Listen ActiveOpen->SynSent
Listen: Syn->SynReceived Reset->Closed Abort->Closed
SynSent: Syn->SynReceived SynAck->Established Close->Closed Reset->Closed Abort->Closed
SynReceived: AckOfSyn->Established Reset->Closed Abort->Closed
Established: Close->FinWait1 Fin->CloseWait Reset->Closed Abort->Closed
FinWait1: Fin->Closing AckOfFin->FinWait2 Reset->Closed Abort->Closed
FinWait2: Fin->TimeWait Timeout->Closed Reset->Closed Abort->Closed
CloseWait: Close->LastAck Reset->Closed Abort->Closed
Closing: AckOfFin->TimeWait Reset->Closed Abort->Closed
LastAck: AckOfFin->Closed Reset->Closed Abort->Closed
TimeWait: Timeout->Closed Reset->Closed Abort->Closed
";
    assert_eq!(table, expected);
}

/// For each state with a connection: what a segment makes of it.
#[test]
fn segments_move_a_connection_as_the_table_says() {
    use State::*;
    let our_fin = SND + 1;
    let rows = [
        (SynSent, syn(SYN_ACK, SND), Established),
        (SynSent, syn(Flags::SYN, SND), SynReceived),
        (SynSent, seg(RST_ACK, RCV, SND, 0), Closed),
        (SynReceived, seg(Flags::ACK, RCV, SND, 0), Established),
        (SynReceived, seg(FIN_ACK, RCV, SND, 0), CloseWait),
        (SynReceived, seg(Flags::RST, RCV, SND, 0), Closed),
        (Established, seg(FIN_ACK, RCV, SND, 0), CloseWait),
        (Established, seg(Flags::RST, RCV, SND, 0), Closed),
        (FinWait1, seg(Flags::ACK, RCV, our_fin, 0), FinWait2),
        (FinWait1, seg(FIN_ACK, RCV, SND, 0), Closing),
        (FinWait1, seg(FIN_ACK, RCV, our_fin, 0), TimeWait),
        (FinWait1, seg(Flags::RST, RCV, SND, 0), Closed),
        (FinWait2, seg(FIN_ACK, RCV, our_fin, 0), TimeWait),
        (FinWait2, seg(Flags::RST, RCV, our_fin, 0), Closed),
        (CloseWait, seg(Flags::RST, RCV + 1, SND, 0), Closed),
        (CloseWait, seg(FIN_ACK, RCV, SND, 0), CloseWait),
        (Closing, seg(Flags::ACK, RCV + 1, our_fin, 0), TimeWait),
        (Closing, seg(Flags::RST, RCV + 1, SND, 0), Closed),
        (LastAck, seg(Flags::ACK, RCV + 1, our_fin, 0), Closed),
        (LastAck, seg(Flags::RST, RCV + 1, SND, 0), Closed),
        (TimeWait, seg(FIN_ACK, RCV, our_fin, 0), TimeWait),
        (TimeWait, seg(Flags::RST, RCV + 1, our_fin, 0), Closed),
    ];
    for (from, segment, to) in rows {
        let mut rig = Rig::in_state(from);
        rig.arrive(&segment);
        assert_eq!(rig.tcb.state(), to, "{from:?} + {segment:?}");
    }
}
