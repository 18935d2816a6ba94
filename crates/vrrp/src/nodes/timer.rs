//! `vrrp-process`: sends what virtual routers are due to send, and makes them masters where nothing is heard. It is an input node,
//! so that its thread looks at the time in each poll iteration, and wakes up for it.

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
        let mut done = 0;
        let mut routers = self.shared.lock();
        // One that has sent is due later than now, so this ends.
        while let Some(serial) = routers.next_due(now) {
            let Some(entry) = routers.get_mut(serial) else { break };
            entry.machine.tick(now);
            let send = entry.machine.take(now);
            self.sender.send(cx, entry, send);
            routers.settle(serial);
            done += 1;
        }
        done
    }

    fn arm(&mut self, _now: u64) -> Idle {
        let due = self.shared.due();
        Idle::Sleep { until: (due < u64::MAX).then_some(due) }
    }
}
