//! Acknowledging a run as its segments (RA §3.4, §4).
//!
//! ```text
//!   segments of a run     | 1 | 2 | 3 | 4 | 5 |
//!   every second                  ^       ^   .     one template of two; the fifth waits
//!   per run                                   ^     one ACK
//! ```
//!
//! The segments of a run agree in everything but their bytes. So the acknowledgment that they
//! carry is new with the first only, and it remains to decide when each of them is
//! acknowledged. Each takes its turn here, with the same result as if it had come alone,
//! delayed and quick ACKs included; ACKs that follow each other at equal distances become one
//! command.

use crate::command::{Command, CommandSink};
use crate::segment::{Lengths, Segment};
use crate::tcb::{Context, Tcb};
use baton_wire::seq::Seq;
use baton_wire::tcp::SackBlocks;

/// ACKs at equal distances, as far as there are any.
#[derive(Clone, Copy, Debug)]
struct Template {
    first: Seq,
    step: u32,
    count: u16,
}

impl Template {
    /// The same with one more ACK; `None` if its distance differs.
    #[inline]
    fn with(self, ack: Seq) -> Option<Template> {
        let step = if self.count == 1 { ack.since(self.first).max(0) as u32 } else { self.step };
        let expected = self.first + step * u32::from(self.count);
        (ack == expected).then_some(Template { step, count: self.count + 1, ..self })
    }

    fn command(self) -> Command {
        match self {
            Template { first, count: 1, .. } => Command::Ack { ack: first, sack: SackBlocks::EMPTY },
            Template { first, step, count } => Command::Acks { first, step, count },
        }
    }
}

impl Tcb {
    /// The next bytes arrived in a run.
    pub(crate) fn acknowledge_each(&mut self, cx: &mut Context<'_>, seg: &Segment, out: &mut impl CommandSink) {
        let end = seg.seq + seg.lengths.len;
        let mut template: Option<Template> = None;
        let mut at = seg.seq;
        for n in 0..seg.lengths.count {
            if n > 0 && self.update_ts_recent(at, seg.timestamps) {
                // ACKs from here on echo another timestamp.
                out_of(&mut template, out);
                self.tell_receive(out);
            }
            let len = u32::from(seg.lengths.size).min(end.since(at) as u32);
            self.rcv.rcv_nxt = self.rcv.rcv_nxt.latest(at + len);
            // With the first as a rule; a window is believed of later segments than the
            // last that told of one (RFC 9293 §3.10.7.4, SND.WL1).
            if self.says_news(seg) {
                out_of(&mut template, out);
                self.process_ack(cx, &Segment { seq: at, ..*seg }, out);
            }
            at += len;
            if !self.data_in_order(cx, &Lengths::single(len)) {
                continue;
            }
            let ack = self.rcv.rcv_nxt;
            let longer = template.and_then(|template| template.with(ack));
            if longer.is_none() {
                out_of(&mut template, out);
            }
            template = longer.or(Some(Template { first: ack, step: 0, count: 1 }));
            self.ack.on_pure_ack();
            self.on_ack_left(ack);
        }
        out_of(&mut template, out);
    }
}

fn out_of(template: &mut Option<Template>, out: &mut impl CommandSink) {
    if let Some(template) = template.take() {
        out.command(template.command());
    }
}
