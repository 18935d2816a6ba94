//! The terminal that the router was started on, as a client: `unix { interactive }`.
//!
//! The session speaks telnet; the terminal does not. Here is both halves' translator: it answers for the terminal what it is
//! and how large, and takes telnet commands out of what goes to the screen.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Stdin, Stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use quiver_command::session::frames::{Filter, terminal_type_answer};
use quiver_graph::reactor::Reactor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, OutputModes, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

use super::Wire;

/// A terminal that says it can be written takes at least so much without making us wait.
const AT_ONCE: usize = 256;

/// Standard input and output.
pub struct Terminal {
    input: Stdin,
    output: Stdout,
    reactor: Rc<Reactor>,
    filter: Filter,
    /// What the terminal answers to the session's questions.
    answers: VecDeque<u8>,
    size: (u16, u16),
    /// How it was before; put back at the end.
    before: Option<Termios>,
}

impl Terminal {
    /// Takes the process's standard input and output.
    pub fn new(reactor: &Rc<Reactor>) -> Self {
        let (input, output) = (io::stdin(), io::stdout());
        let before = tcgetattr(&input).ok().filter(|_| isatty(&output));
        let mut answers = VecDeque::new();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            // The log shares the screen and ends its lines plainly.
            raw.output_modes |= OutputModes::OPOST;
            // A terminal that refuses echoes twice; better than none.
            let _ = tcsetattr(&input, OptionalActions::Now, &raw);
            let name = std::env::var("TERM").unwrap_or_default();
            answers.extend(terminal_type_answer(if name.is_empty() { "dumb" } else { &name }));
        }
        Self { input, output, reactor: Rc::clone(reactor), filter: Filter::default(), answers, size: (0, 0), before }
    }

    /// Whether a person sits there, not a pipe.
    pub fn is_terminal(&self) -> bool {
        self.before.is_some()
    }

    /// Tells the session when the window has changed.
    fn look_at_size(&mut self) {
        let Some(size) = tcgetwinsize(&self.output).ok().filter(|_| self.is_terminal()) else { return };
        if self.size != (size.ws_col, size.ws_row) {
            self.size = (size.ws_col, size.ws_row);
            let ([w1, w0], [h1, h0]) = (size.ws_col.to_be_bytes(), size.ws_row.to_be_bytes());
            self.answers.extend([255, 250, 31, w1, w0, h1, h0, 255, 240]);
        }
    }
}

fn ready(fd: BorrowedFd<'_>, flags: PollFlags) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok() && !fds[0].revents().is_empty()
}

impl Wire for Terminal {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.look_at_size();
        if !self.answers.is_empty() {
            let count = self.answers.len().min(buffer.len());
            buffer.iter_mut().zip(self.answers.drain(..count)).for_each(|(to, from)| *to = from);
            return Ok(count);
        }
        // The descriptor is shared with the shell, so it must stay in blocking mode.
        match ready(self.input.as_fd(), PollFlags::IN) {
            true => Ok(rustix::io::read(&self.input, buffer)?),
            false => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !ready(self.output.as_fd(), PollFlags::OUT) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = &bytes[..bytes.len().min(AT_ONCE)];
        let shown: Vec<u8> = taken.iter().filter_map(|byte| self.filter.push(*byte)).collect();
        let mut rest = shown.as_slice();
        while !rest.is_empty() {
            let written = rustix::io::write(&self.output, rest)?;
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(taken.len())
    }

    async fn readable(&self) -> io::Result<()> {
        self.reactor.readable(self.input.as_fd()).await
    }

    async fn writable(&self) -> io::Result<()> {
        self.reactor.writable(self.output.as_fd()).await
    }

    fn hung_up(&self) -> bool {
        false
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.reactor.forget(self.input.as_fd());
        self.reactor.forget(self.output.as_fd());
        if let Some(before) = &self.before {
            let _ = tcsetattr(&self.input, OptionalActions::Now, before);
        }
    }
}
