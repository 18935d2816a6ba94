//! A client on its socket.

use std::cell::Cell;
use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_lite::future::{or, poll_fn};
use quiver_api::Wire as _;
use quiver_api::defs::SockclntCreate;
use quiver_api::frame::{self, Front};
use quiver_api::{Head, Message};
use quiver_command::change_log::ChangeLog as _;
use quiver_command::operation::Access;
use quiver_graph::reactor::{AsyncFd, yield_now};
use quiver_net::Router;
use quiver_net::api::{Behind, Call, Clients, Flow, Run, Table};

use crate::engine::{Engine, Progress, SLICE};
use crate::journal::Journal;
use crate::process::Processes;
use crate::server::{SessionHandle, Wire};

/// Read at once.
const CHUNK: usize = 64 << 10;
/// Answers that wait to be read by the client; beyond them its requests wait.
const OUTPUT: usize = 1 << 20;
/// Text of a command that runs for long, as one answer has it; the command ends where there would be more.
const INBAND_MAX: usize = 16 << 20;
/// How often a client is looked at while its command runs.
const LOOK: Duration = Duration::from_millis(100);

/// Serves a client until it is gone.
///
/// `place`: its place among the sessions, and after which silence it is to end once it has said its name.
pub async fn serve(
    engine: Engine<Router>,
    processes: Processes<Router>,
    wire: AsyncFd<UnixStream>,
    table: Rc<Table>,
    place: (SessionHandle, Option<Duration>),
) {
    let (handle, idle_timeout) = place;
    let mut connection = Connection {
        engine,
        processes,
        left: Rc::default(),
        wire,
        table,
        handle,
        idle_timeout,
        index: None,
        input: Vec::new(),
        read: 0,
        output: Vec::new(),
        written: 0,
        more: None,
        ending: false,
        gone: false,
    };
    while !connection.over() {
        let mut busy = connection.receive();
        busy |= connection.answer().await;
        busy |= connection.send().await;
        connection.note(busy);
        if busy {
            yield_now().await;
        } else if !connection.over() {
            connection.wait().await;
        }
    }
    connection.leave();
}

type More = Box<dyn FnMut(&mut Call<'_>) -> bool>;

struct Connection {
    engine: Engine<Router>,
    processes: Processes<Router>,
    /// Set when the client is gone, for what runs behind it.
    left: Rc<Cell<bool>>,
    wire: AsyncFd<UnixStream>,
    table: Rc<Table>,
    handle: SessionHandle,
    /// After which silence it ends, once it has a name.
    idle_timeout: Option<Duration>,
    /// Its number, once it has said its name.
    index: Option<u32>,
    input: Vec<u8>,
    /// Bytes of the input that are done.
    read: usize,
    output: Vec<u8>,
    written: usize,
    /// Details that have not all been sent, with the context that they are sent with.
    more: Option<(u32, More)>,
    /// It has said good-bye, or will send nothing more.
    ending: bool,
    gone: bool,
}

impl Connection {
    fn over(&self) -> bool {
        self.gone || (self.ending && self.pending() == 0 && self.more.is_none() && !self.has_message())
    }

    /// Bytes that wait to be sent.
    fn pending(&self) -> usize {
        self.output.len() - self.written
    }

    fn congested(&self) -> bool {
        self.pending() >= OUTPUT
    }

    fn front(&self) -> Front<'_> {
        frame::front(self.input.get(self.read..).unwrap_or_default())
    }

    fn has_message(&self) -> bool {
        !matches!(self.front(), Front::Partial(_))
    }

    /// Tells what it does, and ends it where it is to end.
    fn note(&mut self, busy: bool) {
        self.handle.note(busy, self.pending(), self.more.is_some());
        self.gone |= self.handle.end().is_some();
    }

    fn wants_input(&self) -> bool {
        !self.ending && !self.gone && !self.congested() && !self.has_message()
    }

    fn receive(&mut self) -> bool {
        if !self.wants_input() {
            return false;
        }
        if self.read > 0 {
            self.input.drain(..self.read);
            self.read = 0;
        }
        let mut chunk = [0; CHUNK];
        match self.wire.receive(&mut chunk) {
            Ok(0) => self.ending = true,
            Ok(n) => self.input.extend_from_slice(chunk.get(..n).unwrap_or_default()),
            Err(error) if blocked(&error) => return false,
            Err(_) => self.gone = true,
        }
        true
    }

    /// Answers what has come, for about a slice.
    async fn answer(&mut self) -> bool {
        if self.gone || self.congested() || !(self.more.is_some() || self.has_message()) {
            return false;
        }
        let journal = self.engine.journal().cloned();
        if let Some(journal) = &journal {
            poll_fn(|context| journal.poll_room(context)).await;
        }
        let turn = self.engine.turn().await;
        let before = journal.as_ref().map(|journal| (journal.sequence(), journal.changes()));
        let run = self.slice();
        drop(turn);
        if let Some(journal) = journal.filter(|journal| before != Some((journal.sequence(), journal.changes()))) {
            self.stored(&journal).await;
        }
        if let Some((context, run)) = run {
            self.run(context, run).await;
        }
        true
    }

    /// Waits until what has changed is on the disk. A client whose changes cannot be stored, although they were made, is cut off.
    async fn stored(&mut self, journal: &Journal) {
        let changes = journal.changes();
        poll_fn(|context| journal.poll_checked(changes, context)).await;
        let sequence = journal.sequence();
        if let Err(error) = poll_fn(|context| journal.poll_durable(sequence, context)).await {
            tracing::warn!(target: "api", "a client is cut off: {error}");
            self.gone = true;
        }
    }

    /// Answers messages until the slice is over, or one wants a request to be run.
    fn slice(&mut self) -> Option<(u32, Run)> {
        let start = Instant::now();
        let engine = self.engine.clone();
        let mut router = engine.control().borrow_mut();
        while !self.gone && !self.congested() && start.elapsed() < SLICE {
            if let Some((context, more)) = &mut self.more {
                let (client, context) = (self.index.unwrap_or_default(), *context);
                let mut call = Call { router: &mut router, table: &self.table, client, context, out: &mut self.output };
                if more(&mut call) {
                    self.more = None;
                }
                continue;
            }
            let (flow, context) = match frame::front(self.input.get(self.read..).unwrap_or_default()) {
                Front::Partial(_) => return None,
                Front::TooLong(length) => {
                    tracing::warn!(target: "api", "a client announces a message of {length} bytes and is cut off");
                    self.gone = true;
                    return None;
                }
                Front::Message(message, taken) => {
                    self.read += taken;
                    let now = router.graph.clock().now();
                    let client = self.index.unwrap_or_default();
                    if let Some(clients) = router.part_mut::<Clients>() {
                        clients.count(client);
                        clients.trace.record(now, client, message);
                    }
                    let is_create = message.first_chunk().is_some_and(|id| u16::from_be_bytes(*id) == frame::CREATE);
                    if is_create == self.index.is_some() {
                        // Names are said once, and first.
                        tracing::warn!(target: "api", "a client says its name {}", if is_create { "twice" } else { "too late" });
                        continue;
                    }
                    if is_create {
                        self.index = create(&mut router, &self.table, message, &mut self.output);
                        if let Some((index, clients)) = self.index.zip(router.part::<Clients>()) {
                            self.handle.set_name(clients.name(index));
                            self.handle.set_idle_timeout(self.idle_timeout);
                        }
                        continue;
                    }
                    let mut call = Call { router: &mut router, table: &self.table, client, context: 0, out: &mut self.output };
                    let journal = engine.journal().filter(|journal| journal.is_on() && self.table.lasts(message));
                    let before = journal.map(|journal| journal.sequence());
                    // What cannot be stored is refused, as it is to a client that may only read.
                    let refused = journal.is_some_and(|journal| journal.trouble().is_some());
                    let access = if refused { Access::Read } else { engine.access() };
                    let flow = self.table.dispatch_as(access, &mut call, message);
                    // What is still to run is recorded when it has.
                    let has_run = !refused && !matches!(flow, Flow::Run(_));
                    if let Some(journal) = journal.filter(|journal| has_run && before == Some(journal.sequence())) {
                        journal.unrecorded();
                    }
                    (flow, call.context)
                }
            };
            match flow {
                Flow::Done => {}
                Flow::More(more) => self.more = Some((context, more)),
                Flow::Run(run) => return Some((context, run)),
                Flow::Behind(behind) => {
                    let task = run_behind(self.engine.clone(), behind, Rc::clone(&self.left));
                    self.processes.account("api-request", task);
                }
                Flow::Close => {
                    self.ending = true;
                    self.read = self.input.len();
                }
            }
        }
        None
    }

    /// Runs a request, and answers with what it comes to.
    async fn run(&mut self, context: u32, run: Run) {
        let mut running = self.engine.start(run.request);
        let mut text = String::new();
        let mut looked = Instant::now();
        let result = loop {
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.handle.note(true, self.pending(), true);
                if self.wire.hung_up() || self.handle.end().is_some() {
                    running.cancel();
                    self.gone = true;
                }
            }
            match running.step() {
                Progress::Again => yield_now().await,
                Progress::Blocked => {
                    let reactor = Rc::clone(self.engine.reactor());
                    or(running.wait(), reactor.sleep(LOOK)).await;
                }
                Progress::Print(part) if text.len() + part.len() <= INBAND_MAX => text.push_str(&part),
                // The answer is one message: what is longer than anybody reads must not fill the memory.
                Progress::Print(_) => running.cancel(),
                Progress::Done(result) => break result,
            }
        };
        let engine = self.engine.clone();
        let mut router = engine.control().borrow_mut();
        let client = self.index.unwrap_or_default();
        (run.then)(&mut Call { router: &mut router, table: &self.table, client, context, out: &mut self.output }, text, result);
    }

    async fn send(&mut self) -> bool {
        self.take_events().await;
        if self.gone || self.pending() == 0 {
            return false;
        }
        match self.wire.send(self.output.get(self.written..).unwrap_or_default()) {
            Ok(0) => self.gone = true,
            Ok(n) => self.written += n,
            Err(error) if blocked(&error) => return false,
            Err(_) => self.gone = true,
        }
        if self.written == self.output.len() {
            // A large answer does not keep its memory.
            if self.output.capacity() > OUTPUT {
                self.output = Vec::new();
            }
            self.output.clear();
            self.written = 0;
        }
        true
    }

    /// Puts events behind the answers.
    async fn take_events(&mut self) {
        let Some(index) = self.index.filter(|_| !self.congested()) else { return };
        let engine = self.engine.clone();
        let events = poll_fn(|cx| {
            let mut router = engine.control().borrow_mut();
            Poll::Ready(router.part_mut::<Clients>().map(|clients| clients.take_events(index, cx.waker())).unwrap_or_default())
        });
        self.output.extend_from_slice(&events.await);
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) {
        let (reads, writes) = (self.wants_input(), self.pending() > 0);
        let (wire, engine, index) = (&self.wire, &self.engine, self.index.filter(|_| !self.congested()));
        let read = async {
            match reads {
                true => wire.readable().await,
                false => std::future::pending().await,
            }
        };
        let write = async {
            match writes {
                true => wire.writable().await,
                false => std::future::pending().await,
            }
        };
        // `take_events` has left the waker.
        let event = poll_fn(|_| {
            let router = engine.control().borrow();
            let waits = index.is_some_and(|index| router.part::<Clients>().is_some_and(|clients| clients.has_events(index)));
            if waits { Poll::Ready(Ok(())) } else { Poll::Pending }
        });
        let (handle, reactor) = (&self.handle, Rc::clone(self.engine.reactor()));
        let idle = handle.idle_out();
        let end = async {
            match idle {
                Some(left) => or(handle.ended(), reactor.sleep(left)).await,
                None => handle.ended().await,
            }
            Ok(())
        };
        let failed = or(or(read, write), or(event, end)).await.is_err();
        if idle.is_some() && self.handle.idle_out().is_some_and(|left| left.is_zero()) {
            tracing::info!(target: "api", "a client is cut off: it was silent for too long");
            self.gone = true;
        }
        self.gone |= failed;
    }

    fn leave(&mut self) {
        self.left.set(true);
        if let (Some(index), Ok(mut router)) = (self.index, self.engine.control().try_borrow_mut())
            && let Some(clients) = router.part_mut::<Clients>()
        {
            clients.leave(index);
        }
    }
}

/// Runs a request while its client goes on; it ends with the client.
async fn run_behind(engine: Engine<Router>, behind: Behind, left: Rc<Cell<bool>>) {
    let Behind { request, then } = behind;
    let mut running = engine.start(request);
    let result = loop {
        if left.get() {
            running.cancel();
        }
        match running.step() {
            Progress::Again => yield_now().await,
            Progress::Blocked => running.wait().await,
            Progress::Print(_) => {}
            Progress::Done(result) => break result,
        }
    };
    if !left.get() {
        let turn = engine.turn().await;
        then(&mut engine.control().borrow_mut(), result);
        drop(turn);
    }
}

/// The handshake: the client says its name, and is told its number and all messages.
fn create(router: &mut Router, table: &Table, message: &[u8], out: &mut Vec<u8>) -> Option<u32> {
    let mut reader = quiver_api::Reader::new(message.get(2..).unwrap_or_default());
    debug_assert_eq!(SockclntCreate::INFO.prefix, Head::Context);
    let context = u32::get(&mut reader).ok()?;
    let name = SockclntCreate::read(&mut reader).ok()?.name;
    let index = router.part_mut::<Clients>()?.join(name.as_str());
    super::handlers::session::welcome(table, index, context, out);
    Some(index)
}

fn blocked(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
