//! `bfd-process`: sends what sessions are due to send, and ends those of which nothing is heard. It is an input node, so that
//! its thread looks at the time in each poll iteration, and wakes up for it.

use quiver_graph::{Idle, InputNode, NodeCx};

use super::{Event, Next, Sender};
use crate::thread::Shared;

/// The node.
pub struct Timer {
    pub(super) shared: Shared,
    pub(super) sender: Sender,
}

impl InputNode for Timer {
    type Next = Next;
    type Drop = Event;

    fn idle(&self) -> bool {
        self.shared.due() == u64::MAX
    }

    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        let now = cx.now();
        if now < self.shared.due() {
            return 0;
        }
        let mut sent = 0;
        let mut sessions = self.shared.lock();
        // A session that has sent is due later than now, so this ends.
        while let Some(discriminator) = sessions.next_due(now) {
            let Some(entry) = sessions.get_mut(discriminator) else { continue };
            let late = entry.session.is_late(now);
            let tick = entry.session.tick(now);
            if tick.send {
                cx.count(Event::Late, u64::from(late));
                self.sender.control(cx, entry, false);
                sent += 1;
            }
            if tick.echo
                && let Some(entry) = sessions.get(discriminator)
                && let Some(datagram) = sessions.echo(entry, now, self.sender.tos())
            {
                self.sender.echo(cx, entry, &datagram);
                sent += 1;
            }
            sessions.settle(discriminator);
        }
        sent
    }

    fn arm(&mut self, _now: u64) -> Idle {
        let due = self.shared.due();
        Idle::Sleep { until: (due < u64::MAX).then_some(due) }
    }
}
