//! Which handler answers which message.

use std::cell::OnceCell;
use std::collections::HashMap;

use quiver_api::{Catalog, Head, MODULES, Message, Module, Reader, Wire, WireError, frame};
use quiver_command::operation::{Access, Answer, OpError, Operation, View, json_of, retval};
use quiver_command::session::Request;
use serde_json::Value;

use crate::Router;

/// What is left to do after a handler.
pub enum Flow {
    /// Nothing.
    Done,
    /// Run a request and answer with what it comes to; the client's next messages wait for that.
    Run(Run),
    /// More details than one slice: call it until it says that it is done.
    More(Box<dyn FnMut(&mut Call<'_>) -> bool>),
    /// A request that runs while the client goes on.
    Behind(Behind),
    /// The client leaves; close when it has read everything.
    Close,
}

/// What is run before a message is answered.
pub struct Run {
    /// What is run.
    pub request: Request,
    /// Answers.
    pub then: Reply,
}

/// Answers a message with what a request printed while it ran, and its result.
pub type Reply = Box<dyn FnOnce(&mut Call<'_>, String, Result<Answer, OpError>)>;

/// What runs behind a client's back.
pub struct Behind {
    /// What is run.
    pub request: Request,
    /// What is done with its result, unless the client has left.
    pub then: After,
}

/// What is done with the result of a request.
pub type After = Box<dyn FnOnce(&mut Router, Result<Answer, OpError>)>;

/// What answers with details: it calls its last argument for each.
pub type Dump<M> = fn(&mut Router, M, &mut dyn FnMut(&dyn Details));

type Handler = Box<dyn Fn(&mut Call<'_>, &mut Reader<'_>) -> Result<Flow, WireError>>;

/// A message that is being answered.
pub struct Call<'a> {
    /// The router.
    pub router: &'a mut Router,
    /// All messages.
    pub table: &'a Table,
    /// Number of the client.
    pub client: u32,
    /// What the client wants back with each answer.
    pub context: u32,
    /// What is sent.
    pub out: &'a mut Vec<u8>,
}

impl Call<'_> {
    /// Sends an answer.
    pub fn send<M: Message>(&mut self, message: &M) {
        self.table.push(self.out, self.client, self.context, message);
    }

    /// Sends an answer without content that refuses, with VPP's code.
    pub fn refuse<M: Message>(&mut self, code: i32) {
        let start = self.out.len();
        self.send(&M::default());
        let fields = M::INFO.fields;
        // A reply that has no field for the code is empty.
        let Some(before) = fields.iter().position(|field| field.name == "retval") else { return };
        let at = start + frame::HEADER + 2 + M::INFO.prefix.size() + fields[..before].iter().map(|field| field.size).sum::<usize>();
        if let Some(place) = self.out.get_mut(at..at + 4) {
            place.copy_from_slice(&code.to_be_bytes());
        }
    }

    /// Begins an operation, which may take its time; `reply` makes the answer of what it replied, as JSON, or of its error.
    pub fn begin<O: Operation<Router>, R: Message + 'static>(
        &mut self,
        request: Result<O::Request, OpError>,
        reply: impl FnOnce(&mut Router, Result<Value, OpError>) -> Result<R, OpError> + 'static,
    ) -> Flow {
        match request.and_then(|request| json_of(&request)) {
            Ok(request) => Flow::Run(Run {
                request: Request::Operation { name: O::NAME.to_owned(), request, view: View::JSON },
                then: Box::new(move |call, _, result| {
                    let json = result.map(|answer| answer.json.unwrap_or_default());
                    let replied = json.map(|json| serde_json::from_str(&json).unwrap_or_default());
                    let answer = reply(call.router, replied);
                    call.answer(answer);
                }),
            }),
            Err(error) => {
                self.answer::<R>(Err(error));
                Flow::Done
            }
        }
    }

    /// Sends what an operation came to.
    pub fn answer<M: Message>(&mut self, result: Result<M, OpError>) {
        match result {
            Ok(reply) => self.send(&reply),
            Err(error) => {
                tracing::debug!(target: "api", "{}: {error} ({})", M::INFO.name, error.code);
                self.refuse::<M>(error.code);
            }
        }
    }
}

/// What answers a message, and what a client must be allowed to have it answered.
struct Entry {
    handler: Handler,
    access: Access,
    /// What it changes is configuration.
    lasts: bool,
    /// Answers one that the client may not have answered.
    refuse: Option<fn(&mut Call<'_>, i32)>,
}

/// Handlers by message, as modules and plugins add them.
///
/// A [dump](Self::dump) reads, all others count as a change unless [declared](Self::reads) otherwise.
#[derive(Default)]
pub struct Handlers {
    by_message: HashMap<&'static str, Entry>,
    modules: Vec<&'static Module>,
}

impl Handlers {
    /// Adds a module that a plugin declares by [`quiver_api::module!`]. Its messages are numbered behind all others.
    pub fn module(&mut self, module: &'static Module) {
        self.modules.push(module);
    }

    /// Answers a request with one message, or with an error's code in it.
    pub fn reply<M: Message + 'static, R: Message + 'static>(&mut self, run: fn(&mut Router, M) -> Result<R, OpError>) {
        self.call::<M>(move |call, message| {
            let result = run(call.router, message);
            call.answer(result);
            Flow::Done
        });
        self.changes::<M, R>();
    }

    /// Answers a request that [reads](Self::reads) with one message.
    pub fn get<M: Message + 'static, R: Message + 'static>(&mut self, run: fn(&mut Router, M) -> Result<R, OpError>) {
        self.reply(run);
        self.reads::<M>();
    }

    /// Answers a request with a code and nothing else.
    pub fn act<M: Message + 'static, R: Message + 'static>(&mut self, run: fn(&mut Router, M) -> Result<(), OpError>) {
        self.call::<M>(move |call, message| {
            let result = run(call.router, message).map(|()| R::default());
            call.answer(result);
            Flow::Done
        });
        self.changes::<M, R>();
    }

    /// Answers a request by an operation that may take its time: `request` makes its request of the message, `reply` the answer of what
    /// it replied, as JSON, or of its error.
    pub fn run<O: Operation<Router>, M: Message + Clone + 'static, R: Message + 'static>(
        &mut self,
        request: impl Fn(&Router, M) -> Result<O::Request, OpError> + 'static,
        reply: impl Fn(&mut Router, M, Result<Value, OpError>) -> Result<R, OpError> + Clone + 'static,
    ) {
        self.call::<M>(move |call, message| {
            let (request, reply) = (request(call.router, message.clone()), reply.clone());
            call.begin::<O, R>(request, move |router, made| reply(router, message, made))
        });
        self.changes::<M, R>();
    }

    /// Answers a request with any number of messages.
    pub fn dump<M: Message + 'static>(&mut self, run: Dump<M>) {
        self.call::<M>(move |call, message| {
            let Call { router, table, client, context, out } = call;
            run(router, message, &mut |details| details.push(table, out, *client, *context));
            Flow::Done
        });
        self.reads::<M>();
    }

    /// Declares a message that reads: clients that may only read have it answered too.
    pub fn reads<M: Message>(&mut self) {
        if let Some(entry) = self.by_message.get_mut(M::INFO.name) {
            entry.access = Access::Read;
        }
    }

    /// Declares a message that changes something, but no configuration: it clears, traces, or runs a command.
    pub fn passes<M: Message>(&mut self) {
        if let Some(entry) = self.by_message.get_mut(M::INFO.name) {
            entry.lasts = false;
        }
    }

    /// Declares a message that changes something, and how it is refused to a client that may only read.
    pub fn changes<M: Message, R: Message>(&mut self) {
        if let Some(entry) = self.by_message.get_mut(M::INFO.name) {
            entry.access = Access::Change;
            entry.refuse = Some(refuse::<R>);
        }
    }

    /// Answers a request in a way of its own. Whether it [reads](Self::reads) or [changes](Self::changes) is still to be declared.
    pub fn call<M: Message + 'static>(&mut self, run: impl Fn(&mut Call<'_>, M) -> Flow + 'static) {
        let handler: Handler = Box::new(move |call, reader| {
            let message = M::read(reader)?;
            Ok(run(call, message))
        });
        self.insert(M::INFO.name, handler);
    }

    fn insert(&mut self, name: &'static str, handler: Handler) {
        let entry = Entry { handler, access: Access::Undeclared, lasts: true, refuse: None };
        let before = self.by_message.insert(name, entry);
        debug_assert!(before.is_none(), "{name} is handled twice");
    }
}

/// A message whose type is not said.
pub trait Details {
    /// Appends it, framed.
    fn push(&self, table: &Table, out: &mut Vec<u8>, client: u32, context: u32);
}

impl<M: Message> Details for M {
    fn push(&self, table: &Table, out: &mut Vec<u8>, client: u32, context: u32) {
        table.push(out, client, context, self);
    }
}

/// All messages with their numbers and handlers.
pub struct Table {
    catalog: Catalog,
    handlers: Vec<Option<Entry>>,
    modules: Vec<&'static Module>,
    json: OnceCell<String>,
}

impl Table {
    /// Numbers the messages of those modules that something is handled of.
    pub fn new(mut handlers: Handlers) -> Self {
        let handled = |module: &Module| module.messages.iter().any(|message| handlers.by_message.contains_key(message.name));
        let modules: Vec<_> = MODULES.iter().chain(&handlers.modules).copied().filter(|module| handled(module)).collect();
        let catalog = Catalog::of(modules.iter().copied());
        let handlers = catalog.entries().iter().map(|entry| handlers.by_message.remove(entry.info.name)).collect();
        Self { catalog, handlers, modules, json: OnceCell::new() }
    }

    /// Messages and numbers.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// All definitions, as clients load them.
    pub fn json(&self) -> &str {
        self.json.get_or_init(|| quiver_api::json_of_all(self.modules.iter().copied()).to_string())
    }

    /// The modules that something is handled of.
    pub fn modules(&self) -> &[&'static Module] {
        &self.modules
    }

    /// Whether something answers a message.
    pub fn handles(&self, id: u16) -> bool {
        self.handler(id).is_some()
    }

    /// The messages that something answers, with what each is declared to do.
    pub fn accesses(&self) -> impl Iterator<Item = (&'static str, Access)> {
        let all = self.catalog.entries().iter().zip(&self.handlers);
        all.filter_map(|(entry, handler)| Some((entry.info.name, handler.as_ref()?.access)))
    }

    fn handler(&self, id: u16) -> Option<&Entry> {
        self.handlers.get(self.catalog.position(id)?)?.as_ref()
    }

    /// Appends a message, framed.
    pub fn push<M: Message>(&self, out: &mut Vec<u8>, client: u32, context: u32, message: &M) {
        frame::push(out, |out| {
            self.catalog.id::<M>().put(out);
            match M::INFO.prefix {
                Head::Client => {
                    client.put(out);
                    context.put(out);
                }
                Head::Context => context.put(out),
                Head::Plain => {}
            }
            message.write(out);
        });
    }

    /// Answers a message. One that nothing answers, or that ends too early, is noted and not answered, as in VPP.
    pub fn dispatch(&self, call: &mut Call<'_>, message: &[u8]) -> Flow {
        self.dispatch_as(Access::Change, call, message)
    }

    /// Whether a message changes what is to last: it changes something and is not [declared](Handlers::passes) to do only for now.
    pub fn lasts(&self, message: &[u8]) -> bool {
        let id = message.first_chunk().map(|id| u16::from_be_bytes(*id));
        id.and_then(|id| self.handler(id)).is_some_and(|entry| entry.access == Access::Change && entry.lasts)
    }

    /// Answers a message of a client with these rights.
    pub fn dispatch_as(&self, access: Access, call: &mut Call<'_>, message: &[u8]) -> Flow {
        let mut reader = Reader::new(message);
        let Ok(id) = u16::get(&mut reader) else { return unanswered("no number", 0) };
        let (Some(entry), Some(handler)) = (self.catalog.get(id), self.handler(id)) else {
            return unanswered("nothing answers it", id);
        };
        let head = match entry.info.prefix {
            Head::Client => u32::get(&mut reader).and_then(|_client| u32::get(&mut reader)),
            Head::Context => u32::get(&mut reader),
            Head::Plain => Ok(0),
        };
        let Ok(context) = head else { return unanswered("it is too short", id) };
        call.context = context;
        if !access.allows(handler.access) {
            tracing::debug!(target: "api", "{} is refused: the client may only read", entry.info.name);
            return match handler.refuse {
                Some(refuse) => {
                    refuse(call, retval::NOT_RUNNING_AS_ROOT);
                    Flow::Done
                }
                None => unanswered("the client may only read", id),
            };
        }
        match (handler.handler)(call, &mut reader) {
            Ok(flow) => flow,
            Err(WireError::Short) => unanswered("it is too short", id),
        }
    }
}

/// Refuses a message whose answers are of this type.
fn refuse<R: Message>(call: &mut Call<'_>, code: i32) {
    call.refuse::<R>(code);
}

fn unanswered(why: &str, id: u16) -> Flow {
    tracing::warn!(target: "api", "message {id} is not answered: {why}");
    Flow::Done
}

#[cfg(test)]
mod tests {
    use quiver_api::module::*;

    use super::{Call, Flow, Handlers, Table};
    use crate::testing::Harness;

    quiver_api::module! {
        greeting "1.0.0"
        messages {
            client Greet "greet" -> greet_reply { name: Text<16> }
            context GreetReply "greet_reply" { retval: i32, greeting: Text<32> }
        }
    }

    #[test]
    fn a_plugin_declares_and_answers_messages_of_its_own() {
        let mut handlers = Handlers::default();
        handlers.module(greeting());
        handlers
            .reply::<Greet, GreetReply>(|_, m| Ok(GreetReply { retval: 0, greeting: Text(format!("hello {}", m.name.as_str())) }));
        let table = Table::new(handlers);
        assert_eq!(table.modules().iter().map(|module| module.name).collect::<Vec<_>>(), ["greeting"]);
        assert!(table.json().contains("greet_reply"));

        let (mut h, mut request, mut out) = (Harness::new(), Vec::new(), Vec::new());
        table.push(&mut request, 7, 9, &Greet { name: Text("you".to_owned()) });
        let mut call = Call { router: &mut h.router, table: &table, client: 7, context: 0, out: &mut out };
        assert!(matches!(table.dispatch(&mut call, &request[quiver_api::frame::HEADER..]), Flow::Done));
        let mut reader = Reader::new(&out[quiver_api::frame::HEADER..]);
        assert_eq!(u16::get(&mut reader), Ok(table.catalog().id::<GreetReply>()));
        assert_eq!(u32::get(&mut reader), Ok(9));
        assert_eq!(GreetReply::read(&mut reader), Ok(GreetReply { retval: 0, greeting: Text("hello you".to_owned()) }));
    }
}
