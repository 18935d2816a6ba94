use super::*;
use quiver_command::grammar::Command;
use quiver_command::operation::{Invocation, Live, Operation, Registry, retval};
use quiver_graph::clock::Clock;
use quiver_graph::reactor::MainLoop;

/// What ran, in order.
#[derive(Default)]
struct Control {
    ran: Vec<String>,
}

struct Say;
impl Operation<Control> for Say {
    const NAME: &'static str = "say";
    type Request = String;
    type Reply = String;
    fn run(control: &mut Control, text: String) -> Result<Outcome<Control, String>, OpError> {
        if text == "wrong" {
            return Err(OpError::new(retval::BUSY, "cannot say that"));
        }
        control.ran.push(text.clone());
        Ok(Outcome::Done(text))
    }
}

/// Says something in each of three slices.
struct Slow;
struct SlowJob {
    name: String,
    left: u32,
    exclusive: bool,
}

impl Operation<Control> for Slow {
    const NAME: &'static str = "slow";
    type Request = (String, bool);
    type Reply = String;
    fn run(_: &mut Control, (name, exclusive): (String, bool)) -> Result<Outcome<Control, String>, OpError> {
        Ok(Outcome::job(SlowJob { name, left: 3, exclusive }))
    }
}

impl Job<Control, String> for SlowJob {
    fn step(&mut self, control: &mut Control, _: Duration) -> Step<String> {
        if self.left == 0 {
            return Step::Done(Ok(format!("{} done", self.name)));
        }
        self.left -= 1;
        control.ran.push(format!("{} {}", self.name, self.left));
        Step::Sleep(Duration::from_millis(2))
    }
    fn exclusive(&self) -> bool {
        self.exclusive
    }
    fn cancel(&mut self, control: &mut Control) {
        control.ran.push(format!("{} cancelled", self.name));
        self.left = 0;
    }
}

/// Says something in each of so many slices, and yields between them.
struct Script;
struct ScriptJob {
    name: String,
    left: u32,
}

impl Operation<Control> for Script {
    const NAME: &'static str = "script";
    type Request = (String, u32);
    type Reply = String;
    fn run(_: &mut Control, (name, left): (String, u32)) -> Result<Outcome<Control, String>, OpError> {
        Ok(Outcome::job(ScriptJob { name, left }))
    }
}

impl Job<Control, String> for ScriptJob {
    fn step(&mut self, control: &mut Control, _: Duration) -> Step<String> {
        if self.left == 0 {
            return Step::Done(Ok(format!("{} done", self.name)));
        }
        self.left -= 1;
        control.ran.push(format!("{} {}", self.name, self.left));
        Step::Again
    }
    fn exclusive(&self) -> bool {
        true
    }
    fn yields(&self) -> bool {
        true
    }
    fn cancel(&mut self, _: &mut Control) {
        self.left = 0;
    }
}

/// Waits for another thread before each of so many slices, and yields meanwhile. With [`MANY`] it waits without end.
struct Reader;
/// Slices, of which a test sees only the first.
const MANY: u32 = 1000;
struct ReaderJob {
    name: String,
    left: u32,
    task: Option<blocking::Task<()>>,
}

impl Operation<Control> for Reader {
    const NAME: &'static str = "reader";
    type Request = (String, u32);
    type Reply = String;
    fn run(_: &mut Control, (name, left): (String, u32)) -> Result<Outcome<Control, String>, OpError> {
        Ok(Outcome::job(ReaderJob { name, left, task: None }))
    }
}

impl Job<Control, String> for ReaderJob {
    fn step(&mut self, control: &mut Control, _: Duration) -> Step<String> {
        if self.left == 0 {
            return Step::Done(Ok(format!("{} done", self.name)));
        }
        self.left -= 1;
        control.ran.push(format!("{} {}", self.name, self.left));
        let time = if self.left == MANY - 1 { Duration::from_secs(3600) } else { Duration::from_millis(5) };
        self.task = Some(blocking::unblock(move || std::thread::sleep(time)));
        Step::Wait
    }
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(task) = &mut self.task else { return Poll::Ready(()) };
        let polled = Pin::new(task).poll(context);
        if polled.is_ready() {
            self.task = None;
        }
        polled
    }
    fn exclusive(&self) -> bool {
        true
    }
    fn yields(&self) -> bool {
        true
    }
    fn cancel(&mut self, _: &mut Control) {
        self.left = 0;
    }
}

struct Bench {
    main: MainLoop,
    control: Rc<RefCell<Control>>,
    engine: Engine<Control>,
}

fn bench() -> Bench {
    let mut registry = Registry::new();
    registry.operation::<Say>().operation::<Slow>().operation::<Script>().operation::<Reader>().command(Command {
        path: "say",
        syntax: "<text>",
        help: "Says",
        parse: |args, _| Ok(Invocation::new::<Say>(args.rest().to_owned())),
    });
    assert!(registry.problems().is_empty());
    let main = MainLoop::new(Clock::new()).unwrap();
    let control = Rc::new(RefCell::new(Control::default()));
    let engine = Engine::new(Rc::clone(&control), Live::new(Rc::new(registry)), Rc::clone(main.reactor()));
    Bench { main, control, engine }
}

fn slow(name: &str, exclusive: bool) -> Request {
    Request::Operation { name: "slow".into(), request: serde_json::json!([name, exclusive]), view: View::TEXT }
}

impl Bench {
    /// Starts all requests at once, in order, and gives their results and what ran.
    fn run(mut self, requests: Vec<Request>) -> (Vec<Result<String, String>>, Vec<String>) {
        let running: Vec<_> = requests.into_iter().map(|request| self.engine.start(request)).collect();
        let tasks: Vec<_> = running.into_iter().map(|running| self.main.spawn(running.finish(|_| {}))).collect();
        let results = tasks.into_iter().map(|task| self.main.block_on(task));
        let results = results.map(|result| result.map(|answer| answer.text).map_err(|error| error.to_string())).collect();
        (results, std::mem::take(&mut self.control.borrow_mut().ran))
    }
}

#[test]
fn operations_run_in_the_order_of_asking() {
    let (results, ran) = bench().run(vec![command("say a"), command("say wrong"), command("say b"), command("sai c")]);
    assert_eq!(results[0], Ok("a\n".into()));
    assert_eq!(results[1], Err("say: cannot say that".into()));
    assert!(results[3].as_ref().is_err_and(|error| error.contains("unknown input `sai c'")), "{results:?}");
    assert_eq!(ran, ["a", "b"]);
}

#[test]
fn a_long_operation_that_changes_something_keeps_its_turn() {
    let (_, ran) = bench().run(vec![slow("x", true), command("say after"), slow("y", true)]);
    assert_eq!(ran, ["x 2", "x 1", "x 0", "after", "y 2", "y 1", "y 0"]);
}

#[test]
fn a_long_operation_that_only_watches_lets_others_run() {
    let (results, ran) = bench().run(vec![slow("x", false), command("say between")]);
    let place = |text: &str| ran.iter().position(|line| line == text);
    assert!(place("between") < place("x 1"), "{ran:?}");
    assert_eq!(results[0], Ok("x done\n".into()));
}

#[test]
fn what_is_cancelled_before_its_turn_never_begins() {
    let mut bench = bench();
    let first = bench.engine.start(slow("x", true));
    let mut second = bench.engine.start(command("say never"));
    let third = bench.engine.start(command("say last"));
    second.cancel();
    let results = [first, second, third].map(|running| bench.main.spawn(running.finish(|_| {})));
    let results = results.map(|task| bench.main.block_on(task).map(|answer| answer.text));
    assert!(results[1].is_err() && results[2].is_ok());
    assert_eq!(bench.control.borrow().ran, ["x 2", "x 1", "x 0", "last"]);
}

#[test]
fn a_cancelled_operation_ends_early_and_hands_its_turn_on() {
    let mut bench = bench();
    let mut running = bench.engine.start(slow("x", true));
    let next = bench.engine.start(command("say next"));
    while !matches!(running.step(), Progress::Blocked) {}
    assert!(!running.release() && !running.only_watches(), "it keeps its turn");
    running.cancel();
    running.cancel();
    assert!(matches!(running.step(), Progress::Done(Ok(answer)) if answer.text == "x done\n"));
    let next = bench.main.spawn(next.finish(|_| {}));
    assert!(bench.main.block_on(next).is_ok());
    assert_eq!(bench.control.borrow().ran, ["x 2", "x cancelled", "next"]);
}

#[test]
fn an_operation_dropped_in_the_middle_cleans_up() {
    let bench = bench();
    let mut running = bench.engine.start(slow("x", true));
    while !matches!(running.step(), Progress::Blocked) {}
    drop(running);
    assert_eq!(bench.control.borrow().ran, ["x 2", "x cancelled"]);
    // The turn is free again.
    let mut next = bench.engine.start(command("say next"));
    assert!(matches!(next.step(), Progress::Again));
}

fn script(name: &str, lines: u32) -> Request {
    Request::Operation { name: "script".into(), request: serde_json::json!([name, lines]), view: View::TEXT }
}

#[test]
fn others_run_between_the_lines_of_a_script_and_two_scripts_take_turns() {
    let (results, ran) = bench().run(vec![script("a", 3), script("b", 3), command("say one"), slow("x", true)]);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(ran[..3], ["a 2", "b 2", "one"], "{ran:?}");
    let of = |name: &str| ran.iter().filter(|line| line.starts_with(name)).cloned().collect::<Vec<_>>();
    assert_eq!(
        (of("a "), of("b ")),
        (vec!["a 2".into(), "a 1".into(), "a 0".into()], vec!["b 2".into(), "b 1".into(), "b 0".into()])
    );
    let at = ran.iter().position(|line| line == "x 2").unwrap();
    assert_eq!(ran[at..at + 3], ["x 2", "x 1", "x 0"], "what does not yield is whole");
}

#[test]
fn a_script_that_waits_for_its_reader_is_in_nobodys_way() {
    let mut bench = bench();
    let mut stuck = bench.engine.start(script("stuck", 5));
    while bench.control.borrow().ran.is_empty() {
        stuck.step();
    }
    assert!(stuck.release());
    let other = bench.main.spawn(bench.engine.start(script("other", 2)).finish(|_| {}));
    assert!(bench.main.block_on(other).is_ok());
    // It stands in the queue when it is let go, and not before: also there it can be held.
    assert!(stuck.release());
    let last = bench.main.spawn(bench.engine.start(command("say last")).finish(|_| {}));
    assert!(bench.main.block_on(last).is_ok());
    let rest = bench.main.spawn(stuck.finish(|_| {}));
    assert!(bench.main.block_on(rest).is_ok());
    assert_eq!(bench.control.borrow().ran, ["stuck 4", "other 1", "other 0", "last", "stuck 3", "stuck 2", "stuck 1", "stuck 0"]);
}

#[test]
fn a_script_that_is_cancelled_between_lines_runs_no_other_and_a_whole_one_lets_none_in() {
    let mut bench = bench();
    let mut script_a = bench.engine.start(script("a", 5));
    let mut say = bench.engine.start(command("say between"));
    while bench.control.borrow().ran.is_empty() {
        script_a.step();
    }
    script_a.cancel();
    while !matches!(say.step(), Progress::Done(_)) {}
    let ended = bench.main.spawn(script_a.finish(|_| {}));
    assert!(bench.main.block_on(ended).is_ok());
    let whole = bench.engine.start(script("w", 2)).whole();
    let after = bench.engine.start(command("say after"));
    let tasks = [whole, after].map(|running| bench.main.spawn(running.finish(|_| {})));
    let _ = tasks.map(|task| bench.main.block_on(task).is_ok());
    assert_eq!(bench.control.borrow().ran, ["a 4", "between", "w 1", "w 0", "after"]);
}

fn reader(name: &str, slices: u32) -> Request {
    Request::Operation { name: "reader".into(), request: serde_json::json!([name, slices]), view: View::TEXT }
}

#[test]
fn others_run_while_a_script_waits_for_another_thread_and_it_goes_on_by_itself() {
    let (results, ran) = bench().run(vec![reader("x", 3), command("say a"), command("say b")]);
    assert_eq!(results[0], Ok("x done\n".into()));
    assert_eq!(ran, ["x 2", "a", "b", "x 1", "x 0"]);
    // Those that nobody lets in wait as well; those that take turns all come to their end.
    let Bench { mut main, control, engine } = bench();
    let whole = engine.start(reader("x", 2)).whole();
    let tasks = [whole, engine.start(command("say a")), engine.start(reader("y", 2)), engine.start(reader("z", 2))];
    let tasks = tasks.map(|running| main.spawn(running.finish(|_| {})));
    tasks.into_iter().for_each(|task| drop(main.block_on(task).unwrap()));
    assert_eq!(control.borrow().ran[..5], ["x 1", "x 0", "a", "y 1", "z 1"]);
    assert_eq!(control.borrow().ran.len(), 7);
}

#[test]
fn a_script_that_is_cancelled_while_another_thread_works_for_it_does_not_wait() {
    let Bench { mut main, control, engine } = bench();
    let mut waiting = engine.start(reader("x", MANY));
    // Taking the turn, beginning, the first slice; then there is nothing to do.
    while matches!(waiting.step(), Progress::Again) {}
    assert_eq!(engine.order.waiting(), 0);
    waiting.cancel();
    let task = main.spawn(waiting.finish(|_| {}));
    assert_eq!(main.block_on(task).unwrap().text, "x done\n");
    assert_eq!(control.borrow().ran, ["x 999"]);
}
