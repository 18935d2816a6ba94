//! Frames that would go round for ever: what is sent on a loopback comes in again, and nothing in layer 2 counts how often.
//!
//! ```text
//!   received on X ─┬─ cross-connect to Y ───────────────┐
//!                  └─ bridge domain: every port Y but X ─┴─► sent on Y ─► Y is a loopback's: received on it, or on one of its
//!                     (not its BVI: that one routes)                       sub-interfaces, whichever the tags say
//! ```
//!
//! A change that would close a circle of these arrows is refused. Loops that leave the router and come back (a memif
//! connected to itself, two TAPs on one bridge of the kernel) cannot be seen here; they go through a device and hang nothing.

use std::collections::HashSet;

use quiver_graph::IfIndex;

use super::domain::PortKind;
use crate::Router;
use crate::interface::{InterfaceError, L2Mode};

impl Router {
    /// Refuses a mode of an interface that would make frames go round.
    pub(super) fn refuse_loop(&self, index: IfIndex, mode: L2Mode) -> Result<(), InterfaceError> {
        let interface = self.interfaces.expect(index)?;
        // Nothing that is sent inside the router is received on a device.
        if !self.is_looped(index) || mode == L2Mode::L3 {
            return Ok(());
        }
        // There was no circle before, so one that is found has an arrow that is new: from here, or (to a port) to here.
        let mut starts = vec![index];
        if matches!(mode, L2Mode::Bridge { kind, .. } if kind != PortKind::Bvi) {
            starts.extend(self.received_on(index));
        }
        let mut done = HashSet::new();
        for start in starts {
            if let Some(at) = self.find_circle(start, (index, mode), &mut done) {
                return Err(InterfaceError::NotPossible(format!(
                    "{} would close a circle: frames sent on {} would come in there again, and again; \
                     connect one of the loopbacks to a device, or route",
                    interface.name,
                    self.interfaces.name(at)
                )));
            }
        }
        Ok(())
    }

    /// Looks for a circle that can be reached from `start`, depth first: an interface on the way to itself. Those in `done` lead
    /// to none.
    fn find_circle(&self, start: IfIndex, changed: (IfIndex, L2Mode), done: &mut HashSet<IfIndex>) -> Option<IfIndex> {
        if !done.insert(start) {
            return None;
        }
        let mut on_way = HashSet::from([start]);
        let mut way = vec![(start, self.received_from(start, changed))];
        while let Some((at, ahead)) = way.last_mut() {
            let Some(next) = ahead.pop() else {
                on_way.remove(at);
                way.pop();
                continue;
            };
            if on_way.contains(&next) {
                return Some(next);
            }
            if done.insert(next) {
                on_way.insert(next);
                way.push((next, self.received_from(next, changed)));
            }
        }
        None
    }

    /// Interfaces on which frames may come in again that came in on this one.
    fn received_from(&self, at: IfIndex, changed: (IfIndex, L2Mode)) -> Vec<IfIndex> {
        let looped = self.sent_on(at, changed).into_iter().filter(|to| self.is_looped(*to));
        let mut all: Vec<IfIndex> = looped.flat_map(|to| self.received_on(to)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether what is sent on an interface comes in again.
    fn is_looped(&self, index: IfIndex) -> bool {
        let parent = self.interfaces.get(index).and_then(|interface| self.interfaces.get(interface.parent));
        parent.is_some_and(|parent| parent.kind.is_loop())
    }

    /// Where frames that come in on an interface may be sent in layer 2; one has the mode that it shall get.
    fn sent_on(&self, at: IfIndex, (changed, mode): (IfIndex, L2Mode)) -> Vec<IfIndex> {
        let Some(interface) = self.interfaces.get(at) else { return Vec::new() };
        match if at == changed { mode } else { interface.l2 } {
            L2Mode::L3 => Vec::new(),
            L2Mode::CrossConnect(peer) => vec![peer],
            L2Mode::Bridge { domain, group, .. } => {
                let other = |index: IfIndex, kind, its: u8| {
                    (index != at && kind != PortKind::Bvi && (group == 0 || its != group)).then_some(index)
                };
                let ports = self.l2.domains.get(&domain).map_or(&[][..], |domain| &domain.ports);
                let there = ports.iter().filter(|port| port.interface != changed);
                let joins = match mode {
                    L2Mode::Bridge { domain: to, kind, group, .. } if to == domain => other(changed, kind, group),
                    _ => None,
                };
                there.filter_map(|port| other(port.interface, port.kind, port.group)).chain(joins).collect()
            }
        }
    }

    /// Interfaces on which frames sent on a loopback, or on a sub-interface of it, may come in: their tags say on which.
    fn received_on(&self, to: IfIndex) -> Vec<IfIndex> {
        let Some(parent) = self.interfaces.get(to).map(|interface| interface.parent) else { return Vec::new() };
        self.interfaces.iter().filter(|interface| interface.parent == parent).map(|interface| interface.index).collect()
    }
}
