//! Operations and commands: each subject's stand in its folder, as `ops`.
//!
//! To add one: declare the request by [`request!`](quiver_command::request!) in `<subject>/ops`, or by
//! [`commands!`](quiver_command::commands!) where several commands make it; write what it does as
//! [`Execute`](quiver_command::request::Execute), and name it in that file's `register`.
//! [`path_mtu`](crate::fib::ops::path_mtu) is a short example. A plugin does the same in its own crate and names its function in its
//! [`Plugin`](crate::Plugin).
//!
//! The rules: `execute` validates first and changes nothing on an error; a reply is a struct that serialises to what a program
//! wants to know and renders as VPP's text; parsing only makes requests.

use quiver_command::operation::{OpError, Outcome, Registry, retval};
use quiver_graph::GraphError;

use crate::Router;
use crate::{fib, group, icmp, interface, ip, l2, mfib, nd, neighbor, pg, punt, rss};

/// Declares the operations and commands of all subjects of this crate.
pub fn register(registry: &mut Registry<Router>) {
    interface::ops::register(registry);
    l2::ops::register(registry);
    ip::ops::register(registry);
    fib::ops::register(registry);
    mfib::ops::register(registry);
    neighbor::ops::register(registry);
    nd::ops::register(registry);
    group::ops::register(registry);
    icmp::ops::register(registry);
    rss::ops::register(registry);
    pg::ops::register(registry);
    punt::ops::register(registry);
}

/// A graph's refusal as an operation's error.
pub fn graph_error(error: &GraphError) -> OpError {
    let (code, key) = match error {
        GraphError::NoSuchNode(_) | GraphError::UnknownNode { .. } => (retval::NO_SUCH_NODE, "node"),
        GraphError::NoSuchArc(_) => (retval::NO_SUCH_ENTRY, "arc"),
        GraphError::NoSuchFeature { .. } => (retval::NO_SUCH_ENTRY, "feature"),
        GraphError::Range { what, .. } => (retval::INVALID_VALUE, *what),
        GraphError::Variant(_) => (retval::UNSUPPORTED, "variant"),
        GraphError::NoSetting { .. } => (retval::UNSUPPORTED, "node"),
        GraphError::Full => (retval::LIMIT_EXCEEDED, "nodes"),
        GraphError::Thread { .. } => (retval::SYSCALL_ERROR_1, "worker"),
        _ => (retval::UNSPECIFIED, "graph"),
    };
    OpError::new(code, error.to_string()).key(key)
}

/// The only reply of an operation that is done at once.
///
/// # Errors
/// The operation has become a job.
pub fn done<R>(outcome: Outcome<Router, R>) -> Result<R, OpError> {
    match outcome {
        Outcome::Done(reply) => Ok(reply),
        Outcome::Job(_) => Err(OpError::new(retval::UNSUPPORTED, "the operation takes its time")),
    }
}

/// Running command lines in tests.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use std::path::PathBuf;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::time::Duration;

    use quiver_command::configuration::{Entry, Restore};
    use quiver_command::grammar::Parsed;
    use quiver_command::operation::{Outcome, Registry, Text, View, run_to_end};

    use crate::Router;
    use crate::files::Files;
    use crate::testing::Harness;

    /// A folder of its own for the files of a test, which goes with it.
    pub struct OwnFolder(pub PathBuf);

    impl OwnFolder {
        /// Gives a router a folder for files.
        ///
        /// # Panics
        /// Where it cannot be made.
        pub fn of(router: &mut Router, name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("quiver-files-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            router
                .add_part(Files::open(&path, &[], &[], None).unwrap_or_else(|(path, error)| panic!("{}: {error}", path.display())));
            Self(path)
        }
    }

    impl Drop for OwnFolder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// All operations of this crate and those that `more` adds.
    ///
    /// # Panics
    /// Where declarations contradict one another.
    pub fn registry(more: &[fn(&mut Registry<Router>)]) -> Registry<Router> {
        let mut registry = Registry::new();
        super::register(&mut registry);
        more.iter().for_each(|register| register(&mut registry));
        assert!(registry.problems().is_empty(), "{:?}", registry.problems());
        registry
    }

    /// Checks that all examples of commands can be read.
    ///
    /// # Panics
    /// Where one cannot be.
    pub fn assert_examples(register: fn(&mut Registry<Router>)) {
        let wrong = registry(&[register]).wrong_examples(&Harness::new().router);
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    /// Runs a command line to its end.
    ///
    /// # Errors
    /// What the command says.
    pub fn execute(registry: &Registry<Router>, router: &mut Router, line: &str) -> Result<String, String> {
        let mut text = String::new();
        let answer = match registry.execute(router, line, &View::TEXT).map_err(|e| e.to_string())? {
            Outcome::Done(answer) => answer,
            Outcome::Job(mut job) => run_to_end(&mut *job, router, &mut text, |_: Duration| ()).map_err(|e| e.to_string())?,
        };
        text.push_str(&answer.text);
        Ok(text)
    }

    /// The running configuration as commands. Each is held against its request: the command makes that one, and so does its JSON.
    ///
    /// # Panics
    /// Where they differ.
    pub fn configuration(registry: &Registry<Router>, router: &Router) -> String {
        let configuration = registry.collect().all(router);
        for entry in configuration.entries() {
            // Otherwise a checkpoint would keep its old records beside it.
            assert!(registry.covered().contains(&*entry.operation), "{}: name it in Registry::covers", entry.operation);
            let json: serde_json::Value = serde_json::from_str(entry.request.get()).unwrap();
            let by_json = registry.request(&entry.operation, json).unwrap_or_else(|e| panic!("{entry:?}: {e}"));
            match registry.parse(&entry.command, router) {
                Ok(Parsed::Run(invocation, _)) => {
                    assert_eq!(invocation.operation(), entry.operation, "{entry:?}");
                    assert_eq!(invocation.request_json(), by_json.request_json(), "{entry:?}");
                }
                Ok(_) => panic!("{entry:?}: no operation"),
                Err(error) => panic!("{entry:?}: {error}"),
            }
        }
        let mut text = String::new();
        configuration.text(&mut text, &View::TEXT);
        text
    }

    /// The configuration with how each entry is undone.
    pub fn with_undo(registry: &Registry<Router>, router: &Router) -> Arc<Vec<Entry>> {
        Arc::new(registry.collect().with_undo().all(router).into_entries())
    }

    /// Brings a router to a configuration by what differs, and gives the number of operations.
    ///
    /// # Errors
    /// What cannot be undone, or differs in the end.
    pub fn restore(registry: &Rc<Registry<Router>>, router: &mut Router, target: &Arc<Vec<Entry>>) -> Result<usize, String> {
        let mut restore = Restore::new(Rc::clone(registry), Arc::clone(target));
        run_to_end(&mut restore, router, &mut String::new(), |_: Duration| ()).map_err(|e| e.to_string())
    }

    /// Lines whatever their order: numbers of interfaces depend on which were deleted when.
    pub fn sorted(text: &str) -> Vec<&str> {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines
    }

    /// Runs these lines, has a new router run the configuration that comes of them, and holds both routers' configurations and the
    /// answers of `shows` against each other. Then the second one is brought to the configuration of a new one by what differs, and
    /// back.
    ///
    /// # Panics
    /// Where they differ.
    pub fn assert_rebuilt(more: &[fn(&mut Registry<Router>)], new: fn() -> Harness, lines: &str, shows: &[&str]) {
        let registry = Rc::new(registry(more));
        let made = |lines: &str| {
            let mut harness = new();
            for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
                execute(&registry, &mut harness.router, line).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
            harness
        };
        let mut first = made(lines);
        let said = configuration(&registry, &first.router);
        let mut second = made(&said);
        assert_eq!(configuration(&registry, &second.router), said);
        for show in shows {
            let answers = [&mut first, &mut second].map(|harness| execute(&registry, &mut harness.router, show));
            assert!(answers[0].is_ok(), "{show}: {answers:?}");
            assert_eq!(answers[0], answers[1], "{show}, of\n{said}");
        }
        let (empty, full) = (with_undo(&registry, &new().router), with_undo(&registry, &second.router));
        let router = &mut second.router;
        restore(&registry, router, &empty).unwrap_or_else(|error| panic!("{error}\n{said}"));
        assert_eq!(configuration(&registry, router), configuration(&registry, &new().router), "undone:\n{said}");
        restore(&registry, router, &full).unwrap_or_else(|error| panic!("{error}\n{said}"));
        assert_eq!(sorted(&configuration(&registry, router)), sorted(&said));
        assert_eq!(restore(&registry, router, &full), Ok(0));
        assert_documented(&registry, router, new);
    }

    /// Writes a router's configuration as a document: read again it is the same configuration, applied to the router it changes
    /// nothing, and a new router becomes the same by it.
    ///
    /// # Panics
    /// Where they differ.
    pub fn assert_documented(registry: &Rc<Registry<Router>>, router: &Router, new: impl FnOnce() -> Harness) -> String {
        let running = with_undo(registry, router);
        let book = registry.book();
        let text = book.write(&running);
        let read = || book.read("document", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let requests = |entries: &mut dyn Iterator<Item = &Entry>| {
            let mut all: Vec<String> = entries.map(|entry| format!("{} {}", entry.operation, entry.request.get())).collect();
            all.sort();
            all
        };
        let wish = read();
        assert_eq!(requests(&mut wish.wanted.iter().map(|wanted| &wanted.entry)), requests(&mut running.iter()), "{text}");
        let plan = book.plan("document", &running, read(), &[]).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(plan.changes.total(), 0, "{:?}\n{text}", plan.changes);
        let mut other = new();
        let plan =
            book.plan("document", &with_undo(registry, &other.router), wish, &[]).unwrap_or_else(|error| panic!("{error}\n{text}"));
        restore(registry, &mut other.router, &Arc::new(plan.target)).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(requests(&mut with_undo(registry, &other.router).iter()), requests(&mut running.iter()), "{text}");
        text
    }

    /// The text that a command of this crate answers with.
    ///
    /// # Panics
    /// Where it fails.
    pub fn run(router: &mut Router, line: &str) -> String {
        execute(&registry(&[]), router, line).unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    /// The error of a command of this crate that must fail.
    ///
    /// # Panics
    /// Where it does not.
    pub fn error(router: &mut Router, line: &str) -> String {
        execute(&registry(&[]), router, line).err().unwrap_or_else(|| panic!("{line}: no error"))
    }
}
