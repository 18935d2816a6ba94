//! All operations and commands of a running router.

use super::{
    Access, Answer, Dynamic, Invocation, Notes, OpError, Operation, Outcome, View,
    invocation::{Followed, in_command, recorded},
    normal, retval,
};
use crate::change_log::{ChangeLog, Collector};
use crate::configuration::{Collect, Section, Stage};
use crate::contain::contain;
use crate::document::{Book, Normalise, NotNormal, Rank, Shape};
use crate::grammar::{self, Args, Command, CommandHelp, Completion, HelpReply, Parsed, Resolved, Tree, nearest};
use crate::request::{Argument, Declared, Execute};
use serde_json::Value;
use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::{Arc, OnceLock},
};

/// What makes an invocation of a JSON request.
enum FromJson<C> {
    Declared(fn(Value) -> Result<Invocation<C>, OpError>),
    Dynamic(Rc<Dynamic<C>>),
}
type Values<C> = fn(&C) -> Vec<String>;
type FindLog<C> = fn(&C) -> Option<Rc<dyn ChangeLog>>;
type FindCollector<C> = fn(&C) -> Option<Rc<dyn Collector>>;

/// Operations by name, the command tree, and the names that complete values. Each part of the router,
/// and each plugin, adds its own at start.
///
/// ```
/// use quiver_command::grammar::{Args, Command};
/// use quiver_command::operation::{Invocation, OpError, Operation, Outcome, Registry, View};
/// use serde::{Deserialize, Serialize};
///
/// struct Counter(u64);
///
/// #[derive(Serialize, Deserialize)]
/// struct AddRequest { count: u64 }
///
/// struct Add;
/// impl Operation<Counter> for Add {
///     const NAME: &'static str = "counter_add";
///     type Request = AddRequest;
///     type Reply = ();
///     fn run(counter: &mut Counter, request: AddRequest) -> Result<Outcome<Counter, ()>, OpError> {
///         counter.0 += request.count;
///         Ok(Outcome::Done(()))
///     }
/// }
///
/// fn parse_add(args: &mut Args<'_>, _: &Counter) -> Result<Invocation<Counter>, OpError> {
///     let count = args.number("count")?;
///     Ok(Invocation::new::<Add>(AddRequest { count }))
/// }
///
/// let mut registry = Registry::new();
/// registry.operation::<Add>().command(Command {
///     path: "counter add",
///     syntax: "<n>",
///     help: "Adds to the counter",
///     parse: parse_add,
/// });
/// assert!(registry.problems().is_empty());
///
/// let mut counter = Counter(1);
/// registry.execute(&mut counter, "cou ad 0x10", &View::TEXT)?;
/// registry.request("counter_add", serde_json::json!({"count": 1}))?.run(&mut counter, &View::JSON)?;
/// assert_eq!(counter.0, 18);
/// # Ok::<(), OpError>(())
/// ```
pub struct Registry<C> {
    operations: BTreeMap<&'static str, FromJson<C>>,
    pub(super) tree: Tree<C>,
    values: BTreeMap<&'static str, Values<C>>,
    access: BTreeMap<&'static str, Access>,
    absent: &'static [Absent],
    examples: Vec<&'static str>,
    pub(super) notes: Notes,
    sections: Vec<(Stage, Section<C>)>,
    actions: BTreeSet<&'static str>,
    covered: BTreeSet<&'static str>,
    shapes: Vec<(Shape, Rank)>,
    normal: BTreeMap<&'static str, Normalise>,
    book: OnceLock<Arc<Book>>,
    log: Option<FindLog<C>>,
    collector: Option<FindCollector<C>>,
    problems: Vec<String>,
}

/// A command that users of another program know, for something that is not there: its error says so in place of ``unknown input``.
#[derive(Debug, Clone, Copy)]
pub struct Absent {
    /// The words it begins with.
    pub words: &'static str,
    /// What it is about, in the plural: `bonds`.
    pub subject: &'static str,
    /// What does it here, where something does.
    pub instead: Option<&'static str>,
}

impl Absent {
    /// The same with what does it here.
    pub const fn use_instead(self, instead: &'static str) -> Self {
        Self { instead: Some(instead), ..self }
    }

    /// Whether a line begins with these words, each of which may be shortened to three letters; `help` before them does not count.
    fn begins(&self, line: &str) -> bool {
        const SHORTEST: usize = 3;
        let mut typed = line.split_whitespace().skip_while(|word| matches!(*word, "help" | "choices"));
        self.words.split(' ').all(|word| {
            let is = |typed: &str| word.starts_with(typed) && typed.len() >= SHORTEST.min(word.len());
            typed.next().is_some_and(is)
        })
    }

    /// Whether it is one word, and a line begins with the whole of it.
    fn is_written_by(&self, line: &str) -> bool {
        line.split_whitespace().find(|word| !matches!(*word, "help" | "choices")) == Some(self.words)
    }

    fn error(&self) -> OpError {
        let remedy = self.instead.map_or_else(|| "see docs/coming-from-vpp.md".to_owned(), |instead| format!("use {instead}"));
        OpError::unspecified(format!("{} are not built yet", self.subject)).remedy(remedy)
    }
}

impl<C> Default for Registry<C> {
    fn default() -> Self {
        Self {
            operations: BTreeMap::new(),
            tree: Tree::default(),
            values: BTreeMap::new(),
            access: BTreeMap::new(),
            absent: &[],
            examples: Vec::new(),
            notes: Notes::default(),
            sections: Vec::new(),
            actions: BTreeSet::new(),
            covered: BTreeSet::new(),
            shapes: Vec::new(),
            normal: BTreeMap::new(),
            book: OnceLock::new(),
            log: None,
            collector: None,
            problems: Vec::new(),
        }
    }
}

impl<C: 'static> Registry<C> {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an operation for JSON clients.
    pub fn operation<O: Operation<C>>(&mut self) -> &mut Self {
        self.insert_typed(O::NAME, O::ACCESS, normal::of::<O::Request>, from_json::<C, O>)
    }

    fn insert_typed(
        &mut self,
        name: &'static str,
        access: Access,
        normal: Normalise,
        from_json: fn(Value) -> Result<Invocation<C>, OpError>,
    ) -> &mut Self {
        self.access.insert(name, access);
        self.normal.insert(name, normal);
        self.book.take();
        self.insert_operation(name, FromJson::Declared(from_json))
    }

    fn insert_operation(&mut self, name: &'static str, from_json: FromJson<C>) -> &mut Self {
        if self.operations.insert(name, from_json).is_some() {
            self.problems.push(format!("operation `{name}' is declared twice"));
        }
        self
    }

    /// Adds an operation that was declared while the program runs, with its commands.
    pub fn dynamic(&mut self, operation: &Rc<Dynamic<C>>) -> &mut Self {
        let request = &operation.request;
        if request.access != Access::Read {
            // Who declares it says what is configured.
            self.covered.insert(request.name);
        }
        self.access.insert(request.name, request.access);
        self.insert_operation(request.name, FromJson::Dynamic(Rc::clone(operation)));
        for path in &request.commands {
            let command = Command { path, syntax: request.syntax, help: request.help, parse: |args, _| Err(args.unexpected()) };
            match self.tree.insert(command, request.arguments, Some(request.name)) {
                Ok(entry) => entry.dynamic = Some(Rc::clone(operation)),
                Err(problem) => self.problems.push(problem),
            }
        }
        self
    }

    /// Adds a command.
    pub fn command(&mut self, command: Command<C>) -> &mut Self {
        self.insert(command, &[], None)
    }

    /// Adds a command that makes requests of this operation.
    pub fn command_of<O: Operation<C>>(&mut self, command: Command<C>) -> &mut Self {
        self.insert(command, &[], Some(O::NAME))
    }

    fn insert(&mut self, command: Command<C>, arguments: &'static [Argument], operation: Option<&'static str>) -> &mut Self {
        if let Err(problem) = self.tree.insert(command, arguments, operation) {
            self.problems.push(problem);
        }
        self
    }

    /// Adds a declared request: its operation, and the commands that make it.
    pub fn declare<R: Execute<C>>(&mut self) -> &mut Self {
        self.insert_typed(<R as Declared>::NAME, <R as Declared>::ACCESS, normal::of_declared::<R>, from_json::<C, R>);
        for form in R::FORMS {
            let like = Command { path: "", syntax: (form.syntax)(), help: form.help, parse: parsed::<C, R> };
            self.insert_form(<R as Declared>::NAME, (form.commands)(), form.arguments, &like);
        }
        self
    }

    /// Adds commands with the same arguments.
    fn insert_form(
        &mut self,
        operation: &'static str,
        paths: Vec<&'static str>,
        arguments: &'static [Argument],
        like: &Command<C>,
    ) {
        let problems = arguments.iter().filter_map(Argument::problem);
        self.problems.extend(problems.map(|problem| format!("operation `{operation}': {problem}")));
        let help = like.help.trim().trim_end_matches('.');
        for path in paths {
            self.insert(Command { path, help, ..*like }, arguments, Some(operation));
        }
    }

    /// Adds the names that complete values written `<kind>` in syntax strings.
    pub fn values(&mut self, kind: &'static str, names: Values<C>) -> &mut Self {
        self.values.insert(kind, names);
        self
    }

    /// Names the commands that are not there, and where a reader finds what is.
    pub fn absent(&mut self, commands: &'static [Absent]) -> &mut Self {
        self.absent = commands;
        self
    }

    /// Adds lines that `help` and the reference show as examples, each with the command that it runs.
    pub fn examples(&mut self, lines: &[&'static str]) -> &mut Self {
        self.examples.extend(lines);
        self
    }

    /// The examples that are no commands, or whose arguments their commands refuse, each with what is wrong with it.
    pub fn wrong_examples(&self, control: &C) -> Vec<String> {
        let wrong = |line: &&'static str| match self.parse(line, control) {
            Ok(Parsed::Run(..)) => None,
            Ok(Parsed::Nothing | Parsed::Help(_)) => Some(format!("{line}: runs nothing")),
            // A command that sessions answer themselves.
            Err(error) if error.code == retval::UNSUPPORTED => None,
            Err(error) => Some(format!("{line}: {error}")),
        };
        self.examples.iter().filter_map(wrong).collect()
    }

    fn command_words(&self, line: &str) -> Option<&'static str> {
        match self.tree.resolve(line) {
            Ok(Resolved::Command(entry, _)) => Some(entry.command.path),
            _ => None,
        }
    }

    pub(super) fn example(&self, path: &str) -> Option<&'static str> {
        self.examples.iter().find(|line| line.starts_with(path) && self.command_words(line) == Some(path)).copied()
    }

    /// Adds what says a part of the running configuration; see [`configuration`](crate::configuration).
    pub fn configuration(&mut self, stage: Stage, section: Section<C>) -> &mut Self {
        self.sections.push((stage, section));
        self
    }

    /// Names operations that change something, but no configuration: they are not recorded.
    pub fn actions(&mut self, names: &[&'static str]) -> &mut Self {
        self.actions.extend(names);
        self
    }

    /// Names operations whose effect the running configuration has: where that is kept, their records need not be.
    pub fn covers(&mut self, names: &[&'static str]) -> &mut Self {
        self.covered.extend(names);
        self
    }

    /// Says where operations stand in a document, and when what they say there is made. In one stage those of one call are made
    /// before those of the next.
    pub fn shapes(&mut self, stage: Stage, shapes: &'static [Shape]) -> &mut Self {
        // Interfaces are made in the order of the document: some are made on others.
        let place = if stage == Stage::Interfaces { 0 } else { u32::try_from(self.shapes.len()).unwrap_or(u32::MAX) };
        self.book.take();
        self.shapes.extend(shapes.iter().map(|shape| (*shape, (stage, place))));
        self
    }

    /// All shapes, to read and write documents by.
    pub fn book(&self) -> Arc<Book> {
        Arc::clone(self.book.get_or_init(|| Arc::new(self.make_book())))
    }

    fn make_book(&self) -> Book {
        let mut fields: BTreeMap<&'static str, BTreeMap<&'static str, Value>> = BTreeMap::new();
        for entry in self.tree.entries() {
            let Some(operation) = entry.operation else { continue };
            let known = fields.entry(operation).or_default();
            for argument in entry.arguments.iter().filter(|argument| !argument.field.is_empty()) {
                known.entry(argument.field).or_insert_with(|| normal::schema(argument));
            }
        }
        Book::new(&self.shapes, self.normal.clone(), fields)
    }

    /// The operations that [`covers`](Self::covers) has named.
    pub fn covered(&self) -> &BTreeSet<&'static str> {
        &self.covered
    }

    /// The operations that [`actions`](Self::actions) has named.
    pub fn acting(&self) -> &BTreeSet<&'static str> {
        &self.actions
    }

    /// Says where changes of configuration are recorded.
    pub fn record_in(&mut self, log: FindLog<C>) -> &mut Self {
        self.log = Some(log);
        self
    }

    /// Says what collects the changes of whoever asks now, in place of having them run.
    pub fn collect_in(&mut self, collector: FindCollector<C>) -> &mut Self {
        self.collector = Some(collector);
        self
    }

    /// Where changes of configuration are recorded, if they are.
    pub fn change_log(&self, control: &C) -> Option<Rc<dyn ChangeLog>> {
        self.log.and_then(|find| find(control)).filter(|log| log.is_on())
    }

    /// Runs an operation, and has it recorded where it changes configuration.
    ///
    /// # Errors
    /// Its own; or it cannot be recorded, and has not run.
    pub fn run(&self, invocation: Invocation<C>, control: &mut C, view: &View) -> Result<Outcome<C, Answer>, OpError> {
        self.run_line(None, invocation, control, view)
    }

    /// The same, of a command line.
    fn run_line(
        &self,
        line: Option<&str>,
        invocation: Invocation<C>,
        control: &mut C,
        view: &View,
    ) -> Result<Outcome<C, Answer>, OpError> {
        let lasts = invocation.access() != Access::Read && !self.actions.contains(invocation.operation());
        if let Some(collector) = self.collector.filter(|_| lasts).and_then(|find| find(control)) {
            collector.collect(line.map(str::trim), invocation.record()?)?;
            return Ok(Outcome::Done(Answer::render(&(), view)?));
        }
        let log = if lasts { self.change_log(control) } else { None };
        let Some(log) = log else { return invocation.run(control, view) };
        let record = invocation.record()?;
        log.check(&record)?;
        match invocation.run(control, view)? {
            Outcome::Done(answer) => {
                log.append(record);
                Ok(Outcome::Done(answer))
            }
            Outcome::Job(job) => Ok(Outcome::job(Followed { job, follow: recorded(log, record) })),
        }
    }

    /// Begins to collect the running configuration.
    pub fn collect(&self) -> Collect<C> {
        Collect::new(&self.sections)
    }

    /// What is wrong with the declarations (duplicates, bad words). Whoever assembles the router refuses
    /// to start unless this is empty.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The names of all operations, sorted.
    pub fn operations(&self) -> impl Iterator<Item = &'static str> {
        self.operations.keys().copied()
    }

    /// The names of all operations with what each is declared to do, sorted.
    pub fn accesses(&self) -> impl Iterator<Item = (&'static str, Access)> {
        self.access.iter().map(|(name, access)| (*name, *access))
    }

    /// Binds a JSON request to the operation of this name. A request that is missing (`null`) stands for
    /// an empty one.
    pub fn request(&self, operation: &str, request: Value) -> Result<Invocation<C>, OpError> {
        let Some(from_json) = self.operations.get(operation) else {
            let error = OpError::new(retval::UNIMPLEMENTED, "no such operation").key("op").value(operation);
            return Err(match nearest(operation, self.operations()) {
                Some(meant) => error.remedy(format!("did you mean `{meant}'?")),
                None => error,
            });
        };
        match from_json {
            FromJson::Declared(from_json) => from_json(request),
            FromJson::Dynamic(operation) => Ok(Invocation::dynamic(Rc::clone(operation), operation.request.of_json(request)?)),
        }
    }

    /// Reads a command line.
    pub fn parse(&self, line: &str, control: &C) -> Result<Parsed<C>, OpError> {
        // VPP's `app ns add' is not an abbreviation of a command here.
        if let Some(absent) = self.absent.iter().find(|absent| absent.is_written_by(line) && !self.is_word(absent.words)) {
            return Err(absent.error());
        }
        self.read(line, control).map_err(|error| match self.absent.iter().find(|absent| absent.begins(line)) {
            Some(absent) => absent.error(),
            None => error,
        })
    }

    /// Whether a command begins with this word as it is.
    fn is_word(&self, word: &str) -> bool {
        self.commands().any(|command| command.path.split(' ').next() == Some(word))
    }

    fn read(&self, line: &str, control: &C) -> Result<Parsed<C>, OpError> {
        let mut line = Cow::Borrowed(line);
        loop {
            if line.trim().is_empty() {
                return Ok(Parsed::Nothing);
            }
            let (entry, arguments) = match self.tree.resolve(&line)? {
                Resolved::Comment => return Ok(Parsed::Nothing),
                Resolved::Help { node, path, all } => {
                    return Ok(Parsed::Help(HelpReply::new(node, &path, all).with_examples(|path| self.example(path))));
                }
                Resolved::Uncomment { path, text } => {
                    // The text inside is shorter than the line, so this ends.
                    line = Cow::Owned(grammar::join(&path, text.trim()));
                    continue;
                }
                Resolved::Command(entry, arguments) => (entry, arguments),
            };
            let path = entry.command.path;
            let mut args = Args::of_command(path, arguments, &entry.syntax);
            let invocation = contain(|| entry.parse(&mut args, control))?
                .and_then(|invocation| args.finish().map(|()| invocation))
                .map_err(|error| self.hint(error, arguments, path).in_command(path))?;
            return Ok(Parsed::Run(invocation, path));
        }
    }

    /// Reads a command line and runs it.
    pub fn execute(&self, control: &mut C, line: &str, view: &View) -> Result<Outcome<C, Answer>, OpError> {
        self.execute_as(Access::Change, control, line, view)
    }

    /// Reads a command line and runs it for a client with these rights.
    pub fn execute_as(&self, access: Access, control: &mut C, line: &str, view: &View) -> Result<Outcome<C, Answer>, OpError> {
        match self.parse(line, control)? {
            Parsed::Nothing => Ok(Outcome::Done(Answer::render(&(), view)?)),
            Parsed::Help(reply) => Ok(Outcome::Done(Answer::render(&reply, view)?)),
            Parsed::Run(invocation, path) => {
                match access.check(invocation.access()).and_then(|()| self.run_line(Some(line), invocation, control, view)) {
                    Ok(Outcome::Job(job)) => Ok(Outcome::job(Followed { job, follow: in_command(path) })),
                    Ok(done) => Ok(done),
                    Err(error) => Err(error.in_command(path)),
                }
            }
        }
    }

    /// What may stand at byte `cursor` of a line.
    pub fn complete(&self, line: &str, cursor: usize, control: &C) -> Completion {
        grammar::complete(&self.tree, line, cursor, control, |kind| {
            self.values.get(kind).map(|names| names(control)).unwrap_or_default()
        })
    }

    /// All commands, in order of their words.
    pub fn commands(&self) -> impl Iterator<Item = CommandHelp> {
        HelpReply::new(&self.tree, "", true).with_examples(|path| self.example(path)).choices.into_iter()
    }

    /// A command that also leads to longer ones may have got a mistyped word of those.
    fn hint(&self, error: OpError, arguments: &str, path: &str) -> OpError {
        if error.remedy.is_some() {
            return error;
        }
        let node = path.split_ascii_whitespace().try_fold(&self.tree, |node, word| node.children.get(word));
        let typed = arguments.split_whitespace().next();
        match node.zip(typed).and_then(|(node, typed)| node.hint(typed)) {
            Some(meant) => error.remedy(format!("did you mean `{meant}'?")),
            None => error,
        }
    }
}

/// The operations and commands that there are now: a plugin that is loaded or unloaded makes them others. Clones are handles of the same.
pub struct Live<C>(Rc<RefCell<Rc<Registry<C>>>>);

impl<C> Clone for Live<C> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<C> Live<C> {
    /// These, until others are [set](Self::set).
    pub fn new(registry: Rc<Registry<C>>) -> Self {
        Self(Rc::new(RefCell::new(registry)))
    }

    /// Those that there are now. What holds on to them has them as they were.
    pub fn get(&self) -> Rc<Registry<C>> {
        Rc::clone(&self.0.borrow())
    }

    /// Others take their place.
    pub fn set(&self, registry: Rc<Registry<C>>) {
        self.0.replace(registry);
    }
}

fn parsed<C: 'static, R: Execute<C>>(args: &mut Args<'_>, _: &C) -> Result<Invocation<C>, OpError> {
    let command = args.command();
    let form = R::FORMS.iter().find(|form| (form.commands)().contains(&command)).ok_or_else(|| args.unexpected())?;
    (form.parse)(args).map(Invocation::new::<R>)
}

fn from_json<C: 'static, O: Operation<C>>(request: Value) -> Result<Invocation<C>, OpError> {
    of_json(O::NAME, request, |request| normal::read(request).map(Invocation::new::<O>))
}

/// The same for all operations.
fn of_json<C>(name: &str, request: Value, read: fn(Value) -> Result<Invocation<C>, NotNormal>) -> Result<Invocation<C>, OpError> {
    let empty = matches!(&request, Value::Null) || request.as_object().is_some_and(serde_json::Map::is_empty);
    let read = read(request).or_else(|error| {
        if !empty {
            return Err(error);
        }
        // A request without fields is `{}` for a struct and `null` for `()`: take either for either.
        read(Value::Null).or_else(|_| read(Value::Object(serde_json::Map::new()))).map_err(|_| error)
    });
    read.map_err(|error| OpError::new(retval::INVALID_ARGUMENT, format!("request of {name}: {}", error.message)).key("request"))
}
