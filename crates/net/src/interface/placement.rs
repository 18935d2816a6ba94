//! Which thread polls which receive queue, and how it waits for packets.
//!
//! A new device's queues are shared out over the threads of its NUMA node, one after the other. The user can put a queue
//! elsewhere; such a queue stays there for as long as that thread is. When the set of workers changes, queues of a worker that
//! leaves go to those with fewest, and workers that join get their share of what the user has not placed. A queue is moved
//! between two polls, with what waits in it: no packet is lost, and none overtakes another of its queue.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use quiver_graph::{DeviceInput, IfIndex, PlacedQueue, Port, RxMode, TxQueue, Verdict};

use super::{Device, InterfaceError};
use crate::Router;

/// Transmit queues that were opened for threads whose instance of the tx node has not been made yet.
pub(crate) type TxQueues = Rc<RefCell<HashMap<usize, Box<dyn TxQueue>>>>;

/// Place of a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxPlace {
    /// Thread that polls it.
    pub thread: usize,
    /// How the thread waits for its packets.
    pub mode: RxMode,
    /// The user has put it there.
    pub chosen: bool,
}

/// A queue for the plan of who goes where.
#[derive(Clone, Debug)]
struct Wish {
    key: (IfIndex, u16),
    at: usize,
    chosen: bool,
    /// Threads that may have it.
    near: Vec<usize>,
}

/// Moves that bring each queue to a thread that may have it, and share out the queues that the user has not placed: at most one
/// queue more on any thread than on another that may have it. As few as possible, in order of interfaces.
fn plan(mut wishes: Vec<Wish>, stay: &[usize]) -> Vec<((IfIndex, u16), usize, usize)> {
    let mut load: HashMap<usize, usize> = stay.iter().map(|t| (*t, 0)).collect();
    for wish in &wishes {
        load.entry(wish.at).and_modify(|n| *n += 1);
    }
    let least = |near: &[usize], load: &HashMap<usize, usize>| near.iter().copied().min_by_key(|t| (load[t], *t));
    let mut moves = Vec::new();
    // First those whose thread leaves, then from the fullest to the emptiest until that helps nobody.
    for wish in &mut wishes {
        if load.contains_key(&wish.at) {
            continue;
        }
        let Some(to) = least(&wish.near, &load) else { continue };
        moves.push((wish.key, wish.at, to));
        *load.entry(to).or_default() += 1;
        wish.at = to;
    }
    loop {
        let gain = |wish: &Wish| {
            let to = least(&wish.near, &load)?;
            (!wish.chosen && load[&wish.at] > load[&to] + 1).then_some((load[&wish.at] - load[&to], to))
        };
        let best = (0..wishes.len()).filter_map(|i| gain(&wishes[i]).map(|(gain, to)| (gain, i, to)));
        // The last of the best: queue 0 of a device is the one that stays.
        let Some((_, i, to)) = best.max_by_key(|(gain, i, _)| (*gain, *i)) else { return moves };
        let wish = &mut wishes[i];
        moves.push((wish.key, wish.at, to));
        load.entry(wish.at).and_modify(|n| *n -= 1);
        load.entry(to).and_modify(|n| *n += 1);
        wish.at = to;
    }
}

impl Router {
    /// Places a new device's receive queues on the threads, one after the other.
    pub(super) fn place_queues(
        &mut self,
        index: IfIndex,
        mut port: Box<dyn Port>,
        tx: TxQueues,
        name: &str,
        next: Verdict,
    ) -> Result<Device, InterfaceError> {
        let input = self.device_input(port.input_node())?;
        let queues = port.take_rx().map_err(|e| InterfaceError::Device { name: name.into(), error: e.to_string() })?;
        let threads = self.threads_for(port.numa());
        let mode = self.rx_default;
        let mut placement = Vec::new();
        for (number, rx) in queues.into_iter().enumerate() {
            let thread = threads[self.next_thread % threads.len()];
            self.next_thread += 1;
            let number = number as u16;
            let queue = PlacedQueue { interface: index, queue: number, next, up: false, rx };
            let set = self.graph.input::<DeviceInput, _>(input, thread, move |node| {
                node.place(queue);
                node.set_mode(index, number, mode)
            });
            let mode = if set == Some(true) { mode } else { RxMode::Polling };
            placement.push(RxPlace { thread, mode, chosen: false });
        }
        Ok(Device { port, input, placement, tx })
    }

    /// Threads that may poll a device unless the user says otherwise: workers on its NUMA node, or all where none is or it has
    /// none; those that are about to leave are not among them.
    fn threads_for(&self, numa: Option<usize>) -> Vec<usize> {
        let staying = self.staying_workers();
        let info = self.graph.thread_info();
        // A device names its node as the kernel does; threads are by the node's place.
        let place = numa.and_then(|numa| self.numa_numbers.iter().position(|number| *number as usize == numa));
        let near = |t: &usize| place.is_some() && info.iter().any(|i| i.thread == *t && Some(i.numa) == place);
        let near: Vec<usize> = staying.iter().copied().filter(near).collect();
        if near.is_empty() { staying } else { near }
    }

    /// Place of each receive queue of an interface; none where it has no device.
    pub fn rx_places(&self, index: IfIndex) -> Vec<RxPlace> {
        self.interfaces.get(index).and_then(|i| i.device.as_ref()).map_or_else(Vec::new, |d| d.placement.clone())
    }

    fn queue(&mut self, index: IfIndex, queue: u16) -> Result<(&mut Device, RxPlace), InterfaceError> {
        let interface = self.interfaces.get_mut(index).ok_or(InterfaceError::UnknownIndex(index.0))?;
        let name = interface.name.clone();
        let Some(device) = interface.device.as_mut().filter(|d| !d.placement.is_empty()) else {
            return Err(InterfaceError::NotPossible(format!("{name} has no receive queues")));
        };
        let last = device.placement.len() - 1;
        let place = device.placement.get(usize::from(queue)).copied().ok_or(InterfaceError::Range {
            what: "queue",
            value: queue.into(),
            expected: format!("0 to {last}"),
        })?;
        Ok((device, place))
    }

    /// Puts a receive queue on a thread: main (0), which then forwards beside the workers, or a worker.
    ///
    /// # Errors
    /// No such interface, queue or thread.
    pub fn set_rx_placement(&mut self, index: IfIndex, queue: u16, thread: usize) -> Result<(), InterfaceError> {
        self.queue(index, queue)?;
        if thread == 0 {
            self.main_joins();
        }
        if !self.graph.fleet().threads().contains(&thread) {
            let workers = self.graph.fleet().workers();
            return Err(InterfaceError::Range {
                what: "worker",
                value: thread as u64 - 1,
                expected: if workers == 0 { "main: there are no workers".into() } else { format!("0 to {}", workers - 1) },
            });
        }
        self.move_queue(index, queue, thread);
        if let Ok((device, _)) = self.queue(index, queue) {
            device.placement[usize::from(queue)].chosen = true;
        }
        self.main_leaves();
        Ok(())
    }

    fn move_queue(&mut self, index: IfIndex, queue: u16, to: usize) {
        let Ok((device, place)) = self.queue(index, queue) else { return };
        if place.thread == to {
            return;
        }
        let input = device.input;
        device.placement[usize::from(queue)] = RxPlace { thread: to, chosen: false, ..place };
        let moving = self.graph.input::<DeviceInput, _>(input, place.thread, move |node| node.take(index, queue)).flatten();
        if let Some(moving) = moving {
            self.graph.input::<DeviceInput, _>(input, to, move |node| node.adopt(moving));
        }
    }

    /// Sets how the threads wait for packets of a queue, or of all queues of an interface.
    ///
    /// # Errors
    /// No such interface or queue, or a device without events, which must be polled; then nothing has changed.
    pub fn set_rx_mode(&mut self, index: IfIndex, queue: Option<u16>, mode: RxMode) -> Result<(), InterfaceError> {
        let (device, _) = self.queue(index, queue.unwrap_or(0))?;
        let input = device.input;
        let queues = match queue {
            Some(queue) => queue..queue + 1,
            None => 0..device.placement.len() as u16,
        };
        for queue in queues {
            let (_, place) = self.queue(index, queue)?;
            let set = self.graph.input::<DeviceInput, _>(input, place.thread, move |node| node.set_mode(index, queue, mode));
            if set != Some(true) {
                let name = self.interfaces.name(index);
                return Err(InterfaceError::NotPossible(format!(
                    "{name} queue {queue} has no events to wait for: it can only be polled"
                )));
            }
            self.queue(index, queue)?.0.placement[usize::from(queue)].mode = mode;
        }
        Ok(())
    }

    /// The mode that queues of new interfaces start with, where their devices have events.
    pub fn rx_default(&self) -> RxMode {
        self.rx_default
    }

    /// Sets the mode that queues of new interfaces start with.
    pub fn set_rx_default(&mut self, mode: RxMode) {
        self.rx_default = mode;
    }

    /// Shares the queues out over the threads that stay.
    pub(crate) fn share_out_queues(&mut self) {
        let mut stay = self.staying_workers();
        let mut wishes = Vec::new();
        for interface in self.interfaces.iter() {
            let Some(device) = &interface.device else { continue };
            let near = self.threads_for(device.port.numa());
            for (queue, place) in device.placement.iter().enumerate() {
                let key = (interface.index, queue as u16);
                wishes.push(Wish { key, at: place.thread, chosen: place.chosen, near: near.clone() });
                // Main keeps what the user has put there.
                if place.thread == 0 && place.chosen && !stay.contains(&0) && !self.leaving.contains(&0) {
                    stay.push(0);
                }
            }
        }
        for ((index, queue), _, to) in plan(wishes, &stay) {
            self.move_queue(index, queue, to);
        }
    }

    /// Opens a transmit queue of every device for a thread that is about to join.
    pub(crate) fn open_tx_queues(&mut self, thread: usize) -> Result<(), InterfaceError> {
        let indices: Vec<IfIndex> = self.interfaces.iter().map(|i| i.index).collect();
        let mut opened: Vec<TxQueues> = Vec::new();
        for index in indices {
            let Some(interface) = self.interfaces.get_mut(index) else { continue };
            let Some(device) = &mut interface.device else { continue };
            match device.port.open_tx(thread) {
                Ok(queue) => {
                    device.tx.borrow_mut().insert(thread, queue);
                    opened.push(device.tx.clone());
                }
                Err(error) => {
                    opened.iter().for_each(|tx| drop(tx.borrow_mut().remove(&thread)));
                    return Err(InterfaceError::Device { name: interface.name.clone(), error: error.to_string() });
                }
            }
        }
        Ok(())
    }

    /// Drops transmit queues of a thread that did not join after all.
    pub(crate) fn close_tx_queues(&mut self, thread: usize) {
        for device in self.interfaces.iter().filter_map(|i| i.device.as_ref()) {
            device.tx.borrow_mut().remove(&thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(interface: u32, queue: u16, at: usize, near: &[usize]) -> Wish {
        Wish { key: (IfIndex(interface), queue), at, chosen: false, near: near.to_vec() }
    }

    fn moved(wishes: &[Wish], stay: &[usize]) -> HashMap<(IfIndex, u16), usize> {
        let mut at: HashMap<_, _> = wishes.iter().map(|w| (w.key, w.at)).collect();
        for (key, from, to) in plan(wishes.to_vec(), stay) {
            assert_eq!(at.insert(key, to), Some(from), "a move starts where the queue is");
        }
        at
    }

    #[test]
    fn queues_of_a_thread_that_leaves_go_to_those_with_fewest() {
        let wishes = [wish(1, 0, 1, &[1, 2]), wish(2, 0, 3, &[1, 2]), wish(3, 0, 4, &[1, 2]), wish(4, 0, 3, &[1, 2])];
        let at = moved(&wishes, &[1, 2]);
        assert_eq!(at.values().filter(|t| **t == 1).count(), 2);
        assert_eq!(at[&(IfIndex(1), 0)], 1, "who can stay stays");
    }

    #[test]
    fn who_joins_gets_a_share_and_no_more_is_moved_than_that_takes() {
        let wishes: Vec<Wish> = (0..8).map(|q| wish(1, q, 1, &[1, 2, 3, 4])).collect();
        let at = moved(&wishes, &[1, 2, 3, 4]);
        for thread in 1..=4 {
            assert_eq!(at.values().filter(|t| **t == thread).count(), 2);
        }
        assert_eq!(plan(wishes, &[1, 2, 3, 4]).len(), 6);
        assert_eq!(at[&(IfIndex(1), 0)], 1);
        let shared: Vec<Wish> = (0..4).map(|q| wish(1, q, 1 + usize::from(q) % 2, &[1, 2])).collect();
        assert!(plan(shared, &[1, 2]).is_empty());
    }

    #[test]
    fn what_the_user_has_placed_stays_while_its_thread_does() {
        let chosen = |at| Wish { chosen: true, ..wish(1, 0, at, &[1, 2]) };
        assert!(plan(vec![chosen(1), Wish { key: (IfIndex(1), 1), ..chosen(1) }], &[1, 2]).is_empty());
        assert_eq!(plan(vec![chosen(3)], &[1, 2]), [((IfIndex(1), 0), 3, 1)]);
    }

    #[test]
    fn queues_stay_on_the_memory_node_of_their_device() {
        let wishes = [wish(1, 0, 1, &[1, 3]), wish(1, 1, 1, &[1, 3]), wish(2, 0, 5, &[2, 4]), wish(2, 1, 1, &[2, 4])];
        let at = moved(&wishes, &[1, 2, 3, 4]);
        assert_eq!((at[&(IfIndex(1), 0)], at[&(IfIndex(1), 1)]), (1, 3));
        assert!([2, 4].contains(&at[&(IfIndex(2), 0)]));
    }
}
