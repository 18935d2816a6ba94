//! What clients asked, remembered for `api trace save`.

use std::collections::VecDeque;

/// Messages that are remembered where nothing is said.
pub const MESSAGES: usize = 256 << 10;
/// Bytes that are remembered at most.
const BYTES: usize = 64 << 20;

/// A message as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// When, ns of the router's clock.
    pub time: u64,
    /// Number of the client.
    pub client: u32,
    /// The message.
    pub bytes: Vec<u8>,
}

/// The last messages.
#[derive(Debug)]
pub struct Trace {
    on: bool,
    most: usize,
    bytes: usize,
    messages: VecDeque<Recorded>,
}

impl Trace {
    /// A recording of at most `most` messages.
    pub fn new(on: bool, most: Option<u32>) -> Self {
        Self { on, most: most.map_or(MESSAGES, |n| n as usize), bytes: 0, messages: VecDeque::new() }
    }

    /// Begins or ends to record.
    pub fn switch(&mut self, on: bool) {
        self.on = on;
    }

    /// Whether it records.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Remembers a message.
    pub fn record(&mut self, time: u64, client: u32, message: &[u8]) {
        if !self.on || self.most == 0 {
            return;
        }
        self.messages.push_back(Recorded { time, client, bytes: message.to_owned() });
        self.bytes += message.len();
        while self.messages.len() > self.most || self.bytes > BYTES {
            let Some(gone) = self.messages.pop_front() else { break };
            self.bytes -= gone.bytes.len();
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.bytes = 0;
    }

    /// What is remembered, oldest first.
    pub fn messages(&self) -> impl Iterator<Item = &Recorded> {
        self.messages.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_messages_are_kept_while_it_is_on() {
        let mut trace = Trace::new(false, Some(2));
        trace.record(1, 1, b"a");
        trace.switch(true);
        [b"b", b"c", b"d"].iter().for_each(|message| trace.record(2, 1, *message));
        let kept: Vec<&[u8]> = trace.messages().map(|m| m.bytes.as_slice()).collect();
        assert_eq!(kept, [b"c", b"d"]);
        assert_eq!(trace.bytes, 2);
        trace.clear();
        assert_eq!((trace.messages().count(), trace.bytes), (0, 0));
    }
}
