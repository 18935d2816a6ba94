//! `exec`, `define`, `undefine`, `show macro`.

use super::{Line, ScriptHost, ScriptJob, ScriptReply, run::AtomicScript};
use crate::{
    grammar::Command,
    operation::{Access, Invocation, OpError, Operation, Outcome, Registry, Text, View},
};
use serde::{Deserialize, Serialize};
use std::{fmt::Write as _, marker::PhantomData};

/// Adds the operations and commands of this module.
pub fn register<C: 'static, H: ScriptHost<C>>(registry: &mut Registry<C>) {
    registry
        .operation::<Exec<H>>()
        .operation::<ExecLines<H>>()
        .operation::<Define<H>>()
        .operation::<Undefine<H>>()
        .operation::<ShowMacros<H>>()
        .command_of::<Exec<H>>(Command {
            path: "exec",
            syntax: "<file> [atomic]",
            help: "Runs the commands of a file; stops at the first that fails, and with `atomic' goes back to what was configured before",
            parse: |args, _| {
                let file = args.word("file")?.into_owned();
                Ok(Invocation::new::<Exec<H>>(ExecRequest { file, atomic: args.take_keyword("atomic") }))
            },
        })
        .command_of::<Define<H>>(Command {
            path: "define",
            syntax: "<name> <text>",
            help: "Lets $(name) stand for a text in the files that `exec' runs",
            parse: |args, _| {
                let name = args.word("name")?.into_owned();
                let value = args.rest().to_owned();
                Ok(Invocation::new::<Define<H>>(DefineRequest { name, value }))
            },
        })
        .command_of::<Undefine<H>>(Command {
            path: "undefine",
            syntax: "<name>",
            help: "Forgets a name that `define' gave",
            parse: |args, _| Ok(Invocation::new::<Undefine<H>>(UndefineRequest { name: args.word("name")?.into_owned() })),
        })
        .command_of::<ShowMacros<H>>(Command {
            path: "show macro",
            syntax: "",
            help: "Shows the names that `define' gave",
            parse: |_, _| Ok(Invocation::new::<ShowMacros<H>>(ShowMacrosRequest {})),
        });
}

/// Runs a file of commands.
pub struct Exec<H>(PhantomData<fn() -> H>);

/// Which file [`Exec`] runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    /// Its path.
    pub file: String,
    /// All of it or nothing: where a command fails, what was configured before comes back.
    #[serde(default)]
    pub atomic: bool,
}

impl<C: 'static, H: ScriptHost<C>> Operation<C> for Exec<H> {
    const NAME: &'static str = "exec";
    const ACCESS: Access = Access::Change;
    type Request = ExecRequest;
    type Reply = ScriptReply;
    fn run(control: &mut C, request: ExecRequest) -> Result<Outcome<C, ScriptReply>, OpError> {
        let script = ScriptJob::<C, H>::open(control, &request.file)?;
        Ok(if request.atomic { AtomicScript::outcome(control, script.whole()) } else { Outcome::job(script) })
    }
}

/// Runs commands that a client has read from a file of its own, with its own rights: `quiverctl exec FILE`.
pub struct ExecLines<H>(PhantomData<fn() -> H>);

/// The commands that [`ExecLines`] runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecLinesRequest {
    /// What errors call the file.
    pub name: String,
    /// Commands, each with the number of its first line.
    pub lines: Vec<(u64, String)>,
    /// All of them or nothing, as of [`ExecRequest`].
    #[serde(default)]
    pub atomic: bool,
}

impl<C: 'static, H: ScriptHost<C>> Operation<C> for ExecLines<H> {
    const NAME: &'static str = "exec_lines";
    const ACCESS: Access = Access::Change;
    type Request = ExecLinesRequest;
    type Reply = ScriptReply;
    fn run(control: &mut C, request: ExecLinesRequest) -> Result<Outcome<C, ScriptReply>, OpError> {
        let lines = request.lines.into_iter().map(|(number, command)| Line { number, command }).collect();
        let script = ScriptJob::<C, H>::lines(control, &request.name, lines)?;
        Ok(if request.atomic { AtomicScript::outcome(control, script.whole()) } else { Outcome::job(script) })
    }
}

/// Gives a name its text.
pub struct Define<H>(PhantomData<fn() -> H>);

/// What [`Define`] defines.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefineRequest {
    /// The name.
    pub name: String,
    /// The text it stands for.
    pub value: String,
}

impl<C: 'static, H: ScriptHost<C>> Operation<C> for Define<H> {
    const NAME: &'static str = "macro_define";
    const ACCESS: Access = Access::Change;
    type Request = DefineRequest;
    type Reply = ();
    fn run(control: &mut C, request: DefineRequest) -> Result<Outcome<C, ()>, OpError> {
        H::script_state(control).macros.define(&request.name, &request.value).map(Outcome::Done)
    }
}

/// Forgets a name.
pub struct Undefine<H>(PhantomData<fn() -> H>);

/// What [`Undefine`] forgets.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UndefineRequest {
    /// The name.
    pub name: String,
}

impl<C: 'static, H: ScriptHost<C>> Operation<C> for Undefine<H> {
    const NAME: &'static str = "macro_undefine";
    const ACCESS: Access = Access::Change;
    type Request = UndefineRequest;
    type Reply = ();
    fn run(control: &mut C, request: UndefineRequest) -> Result<Outcome<C, ()>, OpError> {
        H::script_state(control).macros.undefine(&request.name).map(Outcome::Done)
    }
}

/// Lists all names.
pub struct ShowMacros<H>(PhantomData<fn() -> H>);

/// [`ShowMacros`] needs to know nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowMacrosRequest {}

/// One name and its text.
#[derive(Debug, Clone, Serialize)]
pub struct MacroEntry {
    /// The name.
    pub name: String,
    /// Its text.
    pub value: String,
}

impl Text for MacroEntry {
    fn text(&self, out: &mut String, _view: &View) {
        let _ = writeln!(out, "{} {}", self.name, self.value);
    }
}

impl<C: 'static, H: ScriptHost<C>> Operation<C> for ShowMacros<H> {
    const NAME: &'static str = "macro_dump";
    const ACCESS: Access = Access::Read;
    type Request = ShowMacrosRequest;
    type Reply = Vec<MacroEntry>;
    fn run(control: &mut C, _: ShowMacrosRequest) -> Result<Outcome<C, Vec<MacroEntry>>, OpError> {
        let entry = |(name, value): (&str, &str)| MacroEntry { name: name.to_owned(), value: value.to_owned() };
        Ok(Outcome::Done(H::script_state(control).macros.iter().map(entry).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        change_log::{ChangeLog, Record},
        configuration::{Configuration, Stage, whole},
        operation::{Answer, Job, Step, retval, run_to_end},
        script::{Opening, ScriptState},
    };
    use std::{
        cell::RefCell,
        collections::BTreeMap,
        io::{self, BufRead, Cursor},
        rc::Rc,
        time::Duration,
    };

    struct Host {
        registry: Rc<Registry<Host>>,
        scripts: ScriptState,
        files: BTreeMap<&'static str, String>,
        said: Vec<String>,
        opened: Vec<(String, bool)>,
        log: Rc<Log>,
    }

    enum Scripts {}
    impl ScriptHost<Host> for Scripts {
        fn registry(host: &Host) -> Rc<Registry<Host>> {
            Rc::clone(&host.registry)
        }
        fn script_state(host: &mut Host) -> &mut ScriptState {
            &mut host.scripts
        }
        fn open_script(host: &mut Host, path: &str, operator: bool) -> Result<Opening, OpError> {
            host.opened.push((path.to_owned(), operator));
            let text = host.files.get(path).cloned();
            // Slow files are read by another thread.
            let mut slow = path.starts_with("slow");
            Ok(Box::pin(std::future::poll_fn(move |context| {
                if std::mem::take(&mut slow) {
                    let waker = context.waker().clone();
                    std::thread::spawn(move || waker.wake());
                    slow = false;
                    return std::task::Poll::Pending;
                }
                let reader = text.clone().map(|text| Box::new(Cursor::new(text)) as Box<dyn BufRead>);
                std::task::Poll::Ready(reader.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)))
            })))
        }
    }

    struct Say;
    impl Operation<Host> for Say {
        const NAME: &'static str = "say";
        type Request = String;
        type Reply = String;
        fn run(host: &mut Host, text: String) -> Result<Outcome<Host, String>, OpError> {
            if text == "wrong" {
                return Err(OpError::new(retval::BUSY, "cannot say that"));
            }
            host.said.push(text.clone());
            Ok(Outcome::Done(text))
        }
    }

    fn host(files: &[(&'static str, &str)]) -> Host {
        let mut registry = Registry::new();
        register::<Host, Scripts>(&mut registry);
        registry.operation::<Say>().command(Command {
            path: "say",
            syntax: "<text>",
            help: "Says",
            parse: |args, _| Ok(Invocation::new::<Say>(args.rest().to_owned())),
        });
        assert!(registry.problems().is_empty());
        let files = files.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        Host {
            registry: Rc::new(registry),
            scripts: ScriptState::default(),
            files,
            said: Vec::new(),
            opened: Vec::new(),
            log: Rc::default(),
        }
    }

    fn job(host: &mut Host, line: &str) -> Box<dyn Job<Host, Answer>> {
        match Rc::clone(&host.registry).execute(host, line, &View::BOTH) {
            Ok(Outcome::Job(job)) => job,
            Ok(Outcome::Done(_)) => panic!("not a job"),
            Err(error) => panic!("{error}"),
        }
    }

    fn exec(host: &mut Host, file: &str) -> (String, Result<Answer, OpError>) {
        let mut printed = String::new();
        let mut job = job(host, &format!("exec {file}"));
        let result = run_to_end(&mut *job, host, &mut printed, |_| {});
        (printed, result)
    }

    #[test]
    fn a_file_runs_in_order_with_macros_and_other_files() {
        let mut host = host(&[
            ("main", "define WHO you\nsay hello $(WHO)\nexec other\nsay \\\n   bye\n"),
            ("other", "say within $(WHO)\nshow macro"),
        ]);
        let (printed, result) = exec(&mut host, "main");
        assert_eq!(printed, "hello you\nwithin you\nWHO you\nbye\n");
        assert_eq!(result.unwrap().json.as_deref(), Some("{\"commands\":4}"));
        assert_eq!(host.scripts.running_scripts(), 0);
    }

    #[test]
    fn the_first_failure_stops_and_names_file_and_line() {
        let mut host = host(&[("main", "say a\n\nexec sub\nsay never\n"), ("sub", "# x\nsay wrong\nsay never")]);
        let (printed, result) = exec(&mut host, "main");
        let error = result.unwrap_err();
        let expected =
            "exec: CLI line error: main:3: exec: CLI line error: sub:2: say: cannot say that; what stands before it took effect";
        assert_eq!(error.to_string(), expected);
        assert_eq!((error.code, printed.as_str()), (retval::BUSY, "a\n"));
        assert_eq!(host.said, ["a"]);
        assert_eq!(host.scripts.running_scripts(), 0);
    }

    #[test]
    fn a_file_that_runs_itself_ends_with_an_error() {
        let mut host = host(&[("main", "exec main")]);
        let (_, result) = exec(&mut host, "main");
        assert_eq!(result.unwrap_err().code, retval::LIMIT_EXCEEDED);
        assert_eq!(host.scripts.running_scripts(), 0);
    }

    /// Counts holds, and says what became of the last one.
    #[derive(Default)]
    struct Log {
        lines: RefCell<Vec<String>>,
    }

    impl ChangeLog for Log {
        fn is_on(&self) -> bool {
            true
        }
        fn check(&self, _: &Record) -> Result<(), OpError> {
            Ok(())
        }
        fn append(&self, record: Record) {
            self.lines.borrow_mut().push(record.operation);
        }
        fn unrecorded(&self) {
            self.lines.borrow_mut().push("unrecorded".to_owned());
        }
        fn hold(&self) {
            self.lines.borrow_mut().push("hold".to_owned());
        }
        fn release(&self, keep: bool) {
            self.lines.borrow_mut().push(if keep { "keep" } else { "forget" }.to_owned());
        }
    }

    #[test]
    fn what_runs_as_a_whole_changes_all_or_nothing() {
        let mut host = host(&[
            ("good", "define A a\nexec sub atomic\n"),
            ("sub", "define B b\n"),
            ("bad", "define A x\nundefine B\nexec sub\ndefine C c\nsay wrong\n"),
            ("first", "say wrong\n"),
        ]);
        let registry = Rc::get_mut(&mut host.registry).unwrap();
        registry.record_in(|host| Some(Rc::clone(&host.log) as Rc<dyn ChangeLog>)).actions(&["exec", "say"]);
        registry.configuration(Stage::System, |_| {
            whole(|host: &Host, out: &mut Configuration<Host>| {
                for (name, value) in host.scripts.macros.iter() {
                    let request = DefineRequest { name: name.to_owned(), value: value.to_owned() };
                    let undo = UndefineRequest { name: name.to_owned() };
                    let pushed = out.push_as::<Define<Scripts>>(&request, format!("define {name} {value}"));
                    pushed.undo_as::<Host, Undefine<Scripts>>(&undo).replaced();
                }
            })
        });
        let macros = |host: &Host| host.scripts.macros.iter().map(|(a, b)| format!("{a} {b}")).collect::<Vec<_>>();
        let logged = |host: &Host| host.log.lines.take();
        assert_eq!(exec(&mut host, "good atomic").1.unwrap().json.as_deref(), Some("{\"commands\":2}"));
        assert_eq!(logged(&host), ["hold", "macro_define", "hold", "macro_define", "keep", "keep"]);
        assert_eq!(macros(&host), ["A a", "B b"]);
        let error = exec(&mut host, "bad atomic").1.unwrap_err();
        assert_eq!(error.to_string(), "exec: CLI line error: bad:5: say: cannot say that; all is as before");
        assert_eq!(macros(&host), ["A a", "B b"]);
        let lines = logged(&host);
        assert_eq!((lines.first().map(String::as_str), lines.last().map(String::as_str)), (Some("hold"), Some("forget")));
        assert_eq!(host.scripts.running_scripts(), 0);
        let error = exec(&mut host, "first atomic").1.unwrap_err();
        assert!(error.to_string().ends_with("cannot say that; nothing has changed"), "{error}");
        // The same without the word.
        let error = exec(&mut host, "bad").1.unwrap_err().to_string();
        assert!(error.ends_with("cannot say that; what stands before it took effect"), "{error}");
        assert_eq!(macros(&host), ["A x", "B b", "C c"]);

        // Stopped in the middle, it goes back as well.
        let mut job = job(&mut host, "exec good atomic");
        while macros(&host)[0] != "A a" {
            assert!(!job.yields() && job.exclusive());
            assert!(matches!(job.step(&mut host, Duration::ZERO), Step::Again));
        }
        job.cancel(&mut host);
        let error = run_to_end(&mut *job, &mut host, &mut String::new(), |_| {}).unwrap_err();
        assert!(error.to_string().contains("stopped after 1 commands; all is as before"), "{error}");
        assert_eq!(macros(&host)[0], "A x");
    }

    #[test]
    fn many_files_run_side_by_side_and_each_counts_its_own_depth() {
        let mut host = host(&[("main", "exec sub\nsay a\n"), ("sub", "say b\nsay c\n")]);
        let mut jobs: Vec<_> = (0..100).map(|_| job(&mut host, "exec main")).collect();
        let mut ended = 0;
        while ended < jobs.len() {
            ended = 0;
            for job in &mut jobs {
                assert!(job.yields(), "a line that is done leaves room for others");
                match job.step(&mut host, Duration::ZERO) {
                    Step::Done(result) => {
                        assert_eq!(result.unwrap().json.as_deref(), Some("{\"commands\":2}"));
                        ended += 1;
                    }
                    _ => continue,
                }
            }
            if ended > 0 {
                assert_eq!(ended, jobs.len(), "all go on at the same pace");
            }
        }
        assert_eq!(host.said.len(), 300);
    }

    #[test]
    fn a_missing_file_is_named() {
        let mut host = host(&[]);
        let error = Rc::clone(&host.registry).execute(&mut host, "exec nowhere", &View::TEXT).err().unwrap();
        assert!(error.to_string().starts_with("exec: cannot read nowhere: "), "{error}");
    }

    #[test]
    fn slices_end_with_the_budget_and_cancelling_stops() {
        let mut host = host(&[("main", &"say x\n".repeat(100))]);
        let mut job = job(&mut host, "exec main");
        for said in 1..=5 {
            assert!(matches!(job.step(&mut host, Duration::ZERO), Step::Print(text) if text == "x\n"));
            assert_eq!(host.said.len(), said);
        }
        assert!(job.exclusive());
        job.cancel(&mut host);
        let Step::Done(Err(error)) = job.step(&mut host, Duration::ZERO) else { panic!() };
        assert_eq!(error.to_string(), "exec: main: stopped after 5 commands");
        assert_eq!(host.said.len(), 5);
    }

    #[test]
    fn a_file_that_is_read_elsewhere_is_waited_for() {
        let mut host = host(&[("slow", "say a\nexec slow2\n"), ("slow2", "say b\n")]);
        let (printed, result) = exec(&mut host, "slow");
        assert_eq!((printed.as_str(), result.is_ok()), ("a\nb\n", true));
        let (_, result) = exec(&mut host, "slow3");
        assert!(result.unwrap_err().to_string().starts_with("exec: cannot read slow3: "));
        assert_eq!(host.scripts.running_scripts(), 0);
    }

    #[test]
    fn files_named_by_the_operators_files_are_the_operators_too_and_no_others() {
        let mut host = host(&[("own", "exec sub\n"), ("sub", "say x\n"), ("other", "exec sub\n")]);
        host.scripts.trust("own");
        exec(&mut host, "own").1.unwrap();
        exec(&mut host, "other").1.unwrap();
        let of = |name: &str, operator| (name.to_owned(), operator);
        assert_eq!(host.opened, [of("own", true), of("sub", true), of("other", false), of("sub", false)]);
        assert!(!host.scripts.is_operator());
    }

    #[test]
    fn a_line_that_is_no_command_is_shown_only_where_the_file_is_the_askers_or_the_operators() {
        let mut host = host(&[("shadow", "root:secret:1\n"), ("own", "rot:secret:1\n")]);
        host.scripts.trust("own");
        let error = exec(&mut host, "shadow").1.unwrap_err().to_string();
        assert_eq!(error, "exec: CLI line error: shadow:1: no such command");
        assert!(exec(&mut host, "own").1.unwrap_err().to_string().contains("rot:secret"));
        let request = serde_json::json!({"name": "mine", "lines": [[1, "say a"], [4, "root:mine"]]});
        let invocation = Rc::clone(&host.registry).request("exec_lines", request).unwrap();
        let Ok(Outcome::Job(mut job)) = invocation.run(&mut host, &View::TEXT) else { panic!("not a job") };
        let mut printed = String::new();
        let error = run_to_end(&mut *job, &mut host, &mut printed, |_| {}).unwrap_err().to_string();
        assert!(printed == "a\n" && error.contains("mine:4: unknown input `root:mine'"), "{printed} {error}");
    }
}
