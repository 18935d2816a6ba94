//! Puts the parts of a daemon together.

use std::cell::{Cell, RefCell};
use std::fs;
use std::future::poll_fn;
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quiver_buffer::RegionConfig;
use quiver_command::change_log::{ChangeLog, Collector, Record};
use quiver_command::config::Listen;
use quiver_command::operation::{Live, Registry, View};
use quiver_command::script::ScriptState;
use quiver_command::session::{Request, Session, SessionOptions};
use quiver_drivers::rights::SharedRights;
use quiver_graph::reactor::MainLoop;
use quiver_graph::{Activity, Pulse};
use quiver_net::Plugin;
use quiver_net::api::{Table, Trace};
use quiver_net::files::{Files, make_private};
use quiver_net::{Router, RouterConfig};
use quiver_plugin_host::{Library, Loaded};
use sd_notify::NotifyState;

use super::group::group_id;
use super::pidfile::PidFile;
use super::privileges::{Wish, give_up};
use super::successor::{Serve, Succession};
use super::{StartError, api, confirm, detach, processes, punt, threads};
use crate::checkpoints::Checkpoints;
use crate::engine::{Engine, command};
use crate::journal::{Journal, Store, replay};
use crate::log::{self, CLASSES, Form, JournalSocket, Log, LogFile, Output, Settings};
use crate::main_loop::Runner;
use crate::ops;
use crate::ops::configuration::CHECKPOINT;
use crate::ops::version::version_line;
use crate::panics;
use crate::plugin::{select, select_found};
use crate::process::{ProcessTable, Processes};
use crate::restart;
use crate::server::{
    Admission, BindError, BoundPath, Face, Owner, Peer, Server, SessionKind, Sessions, StatsListener, Terminal, listen_unix, serve,
    set_mode,
};
use crate::startup::{FileFolders, RUNTIME_DIR, StartupConfig, Unix};
use crate::system::{MainFigures, System};
use crate::watchdog::{self, Settings as WatchdogSettings, Watchdog};

/// After which time a checkpoint that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// The folder of files with plain names, in the runtime folder.
const OWN_FILES: &str = "files";

/// What is not in the configuration.
pub struct Options {
    /// The words that the program was started with.
    pub command_line: Vec<String>,
    /// Somebody waits for word that the router is ready.
    pub detached: bool,
    /// Take over from the router that runs, where one does.
    pub take_over: bool,
    /// Where the machine describes itself, `/sys`.
    pub sysfs: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self { command_line: Vec::new(), detached: false, take_over: false, sysfs: "/sys".into() }
    }
}

/// A router with everything around it, ready to run.
pub struct Daemon {
    runner: Runner,
    router: Rc<RefCell<Router>>,
    engine: Engine<Router>,
    registry: Live<Router>,
    /// What the state folder had at start.
    records: Vec<Record>,
    processes: Processes<Router>,
    startup: Rc<StartupConfig>,
    stop: Rc<Cell<bool>>,
    detached: bool,
    sockets: Vec<Listening>,
    api: Rc<Table>,
    /// Main's.
    pulse: Arc<Pulse>,
    sessions: Sessions,
    admission: Admission,
    pidfile: Option<PidFile>,
    /// What another process gets that takes over from this one, and how that goes.
    succession: Succession,
    /// Why `startup-config` ends the router.
    failed: Rc<RefCell<Option<String>>>,
}

enum Listening {
    Unix(UnixListener, BoundPath, Face),
    Tcp(TcpListener, Face),
    Api(UnixListener, BoundPath),
    Stats(StatsListener),
    Restart(OwnedFd, BoundPath),
    Punt(Arc<UnixDatagram>, BoundPath, PathBuf),
}

impl Daemon {
    /// Takes threads, memory and sockets. Clients are served as soon as it [runs](Self::run).
    ///
    /// # Errors
    /// What cannot be had; nothing is left behind then.
    pub fn start(startup: StartupConfig, plugins: &[Plugin], options: Options) -> Result<Self, StartError> {
        let startup = Rc::new(startup);
        let wish = Wish::of(&startup)?;
        let log = open_log(&startup, &wish)?;
        let mut succession = Succession::begin(&runtime_dir(&startup.unix), options.take_over)?;
        // Sockets first: a second router on the same ones must fail before it takes memory and cores.
        let admission = admission(&startup, &wish)?;
        let sockets = listen(&startup, &wish, admission, &mut succession)?;
        let files = files(&startup, &wish)?;
        let state = startup.unix.state_dir.as_deref().map(|folder| open_state(folder, &wish, &mut succession)).transpose()?;
        let inherits = succession.predecessor.is_some();
        let mut pidfile = startup.unix.pidfile.as_deref().map(|path| open_pidfile(path, &wish, inherits)).transpose()?;
        let found = quiver_plugin_host::find(&startup.plugins.folders);
        let (chosen, missing) = select(plugins, &startup.plugins, &found);
        // Code cannot be loaded once system calls are limited.
        let objects: Vec<_> = select_found(found, &startup.plugins).iter().map(|found| Library::open(&found.path)).collect();
        // Before there is a second thread, which would keep its rights. Memory, threads and devices need none of them.
        let dpdk = startup.config.has("dpdk") && plugins.iter().any(|plugin| plugin.name().starts_with("dpdk"));
        let mut privileges = give_up(&startup, &wish, dpdk)?;
        privileges.rights = succession.inherit(privileges.rights);
        let thread = |error| StartError::System { doing: "cannot start the log's thread".to_owned(), error };
        log.write_by_thread().map_err(thread)?;

        let topology = threads::topology(&options.sysfs)?;
        let (placement, plans) = threads::place(&topology, &startup.cpu)?;
        threads::settle_main(&placement, &startup.cpu)?;
        let placed = plans.len();
        let mut router = Router::new(&RouterConfig {
            buffers: buffers(&startup, topology.nodes()),
            workers: plans,
            main_numa: threads::numa_place(&topology, placement.main),
            fib_nodes: if startup.fib_per_numa { threads::fib_nodes(&topology) } else { Vec::new() },
        })?;
        succession.hold(&mut router)?;
        router.set_rx_default(startup.rx_mode);
        for socket in &sockets {
            if let Listening::Punt(socket, _, path) = socket {
                let failed = |error| StartError::System { doing: format!("the punt socket {}", path.display()), error };
                router.open_punt_socket(Arc::clone(socket), path).map_err(failed)?;
            }
        }
        if let Some(notice) = router.graph.pools().first().and_then(|pool| pool.region().notice()) {
            tracing::info!(target: "buffer", "{notice}");
        }

        startup.notices.iter().for_each(|notice| tracing::info!(target: "startup", "{notice}"));
        for notice in &missing {
            tracing::warn!(target: "startup", "{notice}");
            // What was asked for is not there, and it may be what keeps packets out: whoever starts the router sees that, too.
            if startup.unix.log.is_some() {
                let _ = writeln!(io::stderr(), "quiver: {notice}");
            }
        }
        chosen.iter().for_each(|plugin| log.declare(plugin.log_classes));
        for class in log.unknown() {
            tracing::warn!(target: "startup", "logging: there is no class `{class}' in the log");
        }
        quiver_plugin_host::Plugins::prepare(&mut router);
        for plugin in &chosen {
            let failed = |text| StartError::Plugin { name: plugin.name(), text };
            (plugin.start)(&mut router, &startup.config).map_err(failed)?;
        }
        let registry = Live::new(Rc::new(registry(&chosen)?));
        for object in objects {
            let started = object.and_then(|library| ops::plugins::start(&mut router, library, &chosen, &startup.plugins));
            match started {
                Ok(with) => registry.set(with),
                Err(refused) => tracing::error!(target: "plugin", "{refused}"),
            }
        }
        set_variants(&mut router, &startup)?;

        let clock = Arc::clone(router.graph.clock());
        panics::know(&mut router.graph);
        let pulse = Arc::clone(&router.graph.pulses().all()[0]);
        let mut tasks = MainLoop::new(Arc::clone(&clock))
            .map_err(|error| StartError::System { doing: "cannot make the main thread's event loop".to_owned(), error })?;
        tasks.set_pulse(Arc::clone(&pulse));
        let (stop, table) = (Rc::new(Cell::new(false)), ProcessTable::default());
        table.set_pulse(Arc::clone(&pulse));
        let sessions = Sessions::default();
        router.add_part(SharedRights(Arc::clone(&privileges.rights)));
        router.add_part(privileges);
        router.add_part(System {
            registry: registry.clone(),
            log,
            processes: table.clone(),
            startup: Rc::clone(&startup),
            command_line: options.command_line,
            sessions: sessions.clone(),
            topology,
            main: MainFigures { cpu: placement.main, loops: 0 },
            workers: placed,
            plugins: chosen.clone(),
            plugin_folders: startup.plugins.folders.clone(),
            recorder: Default::default(),
            perfmon: Default::default(),
            trace: Default::default(),
            samples: Default::default(),
            stop: Rc::clone(&stop),
            started: clock.now(),
            runtime_cleared: clock.now(),
        });

        router.add_part(files);
        router.add_part(succession.began(startup.unix.warm_restart.is_some()));
        let (journal, records) = match state {
            Some((store, records, checkpoints)) => {
                succession.state =
                    Some(store.lock().map_err(|error| StartError::System { doing: "the state folder".to_owned(), error })?);
                let journal = Journal::start(store, registry.get().covered().clone())
                    .map_err(|error| StartError::System { doing: "cannot start the journal".to_owned(), error })?;
                router.add_part(Rc::clone(&journal));
                router.add_part(Rc::clone(&journal) as Rc<dyn ChangeLog>);
                router.add_part(checkpoints);
                (Some(journal), records)
            }
            None => (None, Vec::new()),
        };
        let mut scripts = ScriptState::default();
        startup.unix.exec.iter().for_each(|file| scripts.trust(file.to_string_lossy()));
        router.add_part(scripts);
        let messages = Rc::new(api::table(&chosen));
        quiver_net::api::install(&mut router, &messages, Trace::new(startup.api_trace.on, startup.api_trace.items));
        let router = Rc::new(RefCell::new(router));
        let engine = Engine::new(Rc::clone(&router), registry.clone(), Rc::clone(tasks.reactor())).on_pulse(Arc::clone(&pulse));
        let engine = match &journal {
            Some(journal) => engine.with_journal(Rc::clone(journal)),
            None => engine,
        };
        let engine = engine.audited(startup.logging.audit);
        let processes = Processes::new(&router, table, tasks.handle());
        let runner = Runner::new(tasks, Rc::clone(&router), Rc::clone(&stop), startup.unix.poll_sleep);
        let records = succession.records(records, registry.get().covered());
        if let Some(file) = pidfile.as_mut().filter(|_| !inherits) {
            file.fill().map_err(|error| StartError::System { doing: "cannot write the pidfile".to_owned(), error })?;
        }
        Ok(Self {
            runner,
            router,
            engine,
            registry,
            records,
            processes,
            startup,
            stop,
            detached: options.detached,
            sockets,
            api: messages,
            pulse,
            sessions,
            admission,
            pidfile,
            succession,
            failed: Rc::default(),
        })
    }

    /// The control state, for tests.
    pub fn router(&self) -> &Rc<RefCell<Router>> {
        &self.router
    }

    /// Serves until the router is told to stop.
    ///
    /// # Errors
    /// A socket that cannot be watched; a line of `startup-config` that failed.
    pub fn run(mut self) -> Result<ExitCode, StartError> {
        let watch = |error| StartError::System { doing: "cannot watch a socket".to_owned(), error };
        processes::start(&self.processes, &self.startup);
        processes::stop_on_signals(&self.processes, &self.stop).map_err(watch)?;
        let scheduler = (self.startup.cpu.policy, self.startup.cpu.priority);
        let mut settings = WatchdogSettings::new(self.startup.unix.watchdog, scheduler);
        settings.supervisor = settings.supervisor.or(self.succession.predecessor.as_ref().and_then(|old| old.watchdog));
        // It takes its place in the order of operations here, before any client can.
        let serve = self.server(settings.supervisor);
        let serve = match &self.succession.predecessor {
            // Its clients are the other process's until that has ended.
            Some(_) => Some(serve),
            None => {
                serve().map_err(watch)?;
                None
            }
        };
        self.start_up_commands(serve);
        self.keep_checkpoints();
        confirm::watch(&self.engine, &self.processes);
        if self.startup.unix.interactive {
            self.serve_terminal();
        }
        self.pulse.begin();
        let watchdog = {
            let mut router = self.router.borrow_mut();
            let watchdog = Watchdog::start(Arc::clone(router.graph.pulses()), settings)
                .map_err(|error| StartError::System { doing: "cannot start the watchdog".to_owned(), error })?;
            let watchdog = Rc::new(watchdog);
            router.add_part(Rc::clone(&watchdog));
            watchdog
        };
        tracing::info!(target: "startup", "{} is running", version_line());
        // What was said at the start is there before a client is served.
        log::flush(super::LAST_WORDS);
        self.runner.run();
        self.succession.end()?;
        // Workers are watched to their end. Main is not: it gives memory back and waits for them.
        self.pulse.set(Activity::Waits);
        let _ = sd_notify::notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
        quiver_plugin_host::Plugins::stop_all(&mut self.router.borrow_mut());
        self.router.borrow_mut().say_last_words();
        tracing::info!(target: "startup", "stopped");
        let failed = self.failed.take();
        drop(self);
        drop(watchdog);
        failed.map_or(Ok(ExitCode::SUCCESS), |text| Err(StartError::StartUp(text)))
    }

    /// What takes clients from the moment it is called.
    fn server(&mut self, watchdog: Option<Duration>) -> Box<dyn FnOnce() -> io::Result<()>> {
        let (admission, idle_timeout) = (self.admission, self.startup.unix.idle_timeout);
        let (engine, processes, sessions) = (self.engine.clone(), self.processes.clone(), self.sessions.clone());
        let places = (sessions.clone(), self.startup.api_idle_timeout);
        let table = Rc::clone(&self.api);
        let sockets = std::mem::take(&mut self.sockets);
        let mut offer = self.succession.offer(self.startup.unix.warm_restart, watchdog, &self.stop);
        Box::new(move || {
            let server = Server::new(engine.clone(), processes.clone(), sessions, idle_timeout).with_admission(admission);
            for socket in sockets {
                match socket {
                    Listening::Unix(listener, bound, face) => server.unix(listener, bound, face),
                    Listening::Tcp(listener, face) => server.tcp(listener, face),
                    Listening::Api(listener, bound) => {
                        api::listen(&engine, &processes, Rc::clone(&table), places.clone(), (listener, bound), admission)
                    }
                    Listening::Stats(listener) => api::listen_stats(&processes, &engine, listener),
                    Listening::Punt(socket, bound, _) => punt::serve(&engine, &processes, socket, bound),
                    Listening::Restart(listener, bound) => {
                        if let Some(offer) = offer.take() {
                            restart::old::listen(&engine, &processes, (listener, bound), offer);
                        }
                        Ok(())
                    }
                }?;
            }
            Ok(())
        })
    }

    /// Runs the files of `startup-config`, then says that the router is ready.
    ///
    /// Where the state folder has a configuration, that is made again instead: the files have had their effect on it.
    ///
    /// A file that fails ends the router, and nothing of any is kept, unless `startup-lenient` says otherwise.
    ///
    /// Where another process forwards, its configuration is made here, and then it is taken over from; `serve` takes clients from then on.
    fn start_up_commands(&mut self, serve: Option<Serve>) {
        let (mut files, detached) = (self.startup.unix.exec.clone(), self.detached);
        let records = std::mem::take(&mut self.records);
        let taking = serve.map(|serve| self.succession.taking(serve, self.pidfile.take(), &self.stop));
        if taking.is_some() {
            files.clear();
        }
        if !records.is_empty() && !files.is_empty() {
            tracing::info!(target: "startup", "startup-config is not run: the state folder has a configuration");
            files.clear();
        }
        let entry = (!records.is_empty() || taking.is_some()).then(|| self.engine.enter());
        let journal = self.engine.journal().cloned();
        if let (Some(journal), None) = (&journal, &entry) {
            journal.record_from_now(Vec::new());
        }
        let lenient = self.startup.unix.startup_lenient;
        // What the files do is on the disk when all of them have done it.
        let held = journal.clone().filter(|_| !lenient && !files.is_empty());
        held.iter().for_each(|journal| journal.hold());
        let (failed_for, stop) = (Rc::clone(&self.failed), Rc::clone(&self.stop));
        let (router, registry, reactor) = (Rc::clone(&self.router), self.registry.clone(), Rc::clone(self.engine.reactor()));
        if !files.is_empty() {
            let _ = sd_notify::notify(&[NotifyState::Status("running the commands of startup-config")]);
        }
        // No client sees a router that is half configured.
        let running: Vec<_> = start_up_requests(&files, self.startup.unix.startup_atomic)
            .into_iter()
            .map(|(name, request)| (name, self.engine.start(request).whole()))
            .collect();
        // Nobody may read it: the main thread does not wait for that.
        let mut stdout =
            if running.is_empty() || detached { None } else { Output::start(Box::new(io::stdout()), Form::Plain).ok() };
        let keep_stderr = self.startup.unix.nodaemon;
        let runtime_dir = (!self.startup.unix.use_current_dir && detached).then(|| runtime_dir(&self.startup.unix));
        self.processes.account("startup-config-process", async move {
            if let Some(entry) = entry {
                let turn = entry.await;
                let count = records.len();
                let mut failed = replay(&router, &registry, &reactor, records).await;
                if let Some(taking) = taking {
                    failed = match taking.run(&router, &registry, &reactor, failed, journal.as_deref()).await {
                        Some(failed) => failed,
                        // The other process goes on, and this one ends.
                        None => return,
                    };
                }
                tracing::info!(target: "startup", "{} of {count} operations of the configuration made again", count - failed.len());
                journal.iter().for_each(|journal| journal.record_from_now(failed.clone()));
                drop(turn);
            }
            for (name, running) in running {
                let print = |text: &str| match &mut stdout {
                    // Nobody reads the output of a router in the background.
                    None => text.lines().for_each(|line| tracing::debug!(target: "startup", "{line}")),
                    Some(stdout) => stdout.push(text.to_owned()),
                };
                if let Err(error) = running.finish(print).await {
                    tracing::error!(target: "startup", "{name}: {error}");
                    if !lenient {
                        failed_for.replace(Some(error.to_string()));
                        break;
                    }
                }
            }
            if let Some(stdout) = stdout {
                stdout.flush(super::LAST_WORDS);
            }
            if failed_for.borrow().is_some() {
                // What is held back is never written.
                stop.set(true);
                return;
            }
            if let Some(journal) = held {
                journal.release(true);
                let stored = poll_fn(|context| journal.poll_durable(journal.sequence(), context)).await;
                if let Err(error) = stored {
                    tracing::error!(target: "startup", "startup-config: {error}");
                }
            }
            if let Some(folder) = runtime_dir {
                let _ = std::env::set_current_dir(folder);
            }
            let status = format!("{}, forwarding", version_line());
            let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
            if detached && let Err(error) = detach::ready(keep_stderr) {
                tracing::error!(target: "startup", "cannot let go of the terminal: {error}");
            }
        });
    }

    /// Writes a checkpoint whenever one is due.
    fn keep_checkpoints(&self) {
        let Some(journal) = self.engine.journal().cloned() else { return };
        let engine = self.engine.clone();
        self.processes.account("configuration-process", async move {
            loop {
                poll_fn(|context| journal.poll_due(context)).await;
                let request =
                    Request::Operation { name: CHECKPOINT.to_owned(), request: serde_json::Value::Null, view: View::JSON };
                if let Err(error) = engine.start(request).finish(|_| ()).await {
                    tracing::debug!(target: "startup", "no checkpoint: {error}");
                    engine.reactor().sleep(AGAIN).await;
                }
            }
        });
    }

    /// The terminal is a client too; when it ends, the router does.
    fn serve_terminal(&self) {
        let terminal = Terminal::new(self.engine.reactor());
        let mut options = session_options(&self.startup.unix);
        if !terminal.is_terminal() {
            options = SessionOptions { banner: String::new(), prompt: String::new(), ..options };
        }
        let mut session = Session::cli(Rc::new(options));
        if !terminal.is_terminal() {
            session.terminal_type_timeout();
        }
        let (engine, stop) = (self.engine.clone(), Rc::clone(&self.stop));
        let peer = Peer::Local { uid: rustix::process::getuid().as_raw(), pid: rustix::process::getpid().as_raw_nonzero().get() };
        // It has a place of its own, and ends when the router does.
        let Ok(handle) = self.sessions.admit(SessionKind::Terminal, peer, None) else { return };
        self.processes.session("unix-cli-stdin", async move {
            serve(engine, terminal, session, handle).await;
            stop.set(true);
        });
    }
}

/// What runs the files of `startup-config`, and what errors call it: each by itself, or all as a whole.
fn start_up_requests(files: &[PathBuf], atomic: bool) -> Vec<(String, Request)> {
    let line = |file: &PathBuf| format!("exec {}", quiver_command::grammar::quote(&file.to_string_lossy()));
    if !atomic || files.is_empty() {
        return files.iter().map(|file| (file.display().to_string(), command(line(file)))).collect();
    }
    let name = "startup-config";
    let lines: Vec<(u64, String)> = (1..).zip(files.iter().map(line)).collect();
    let request = serde_json::json!({ "name": name, "lines": lines, "atomic": true });
    vec![(name.to_owned(), Request::Operation { name: "exec_lines".to_owned(), request, view: View::TEXT })]
}

/// The state folder, which becomes the user's, and what it has.
fn open_state(folder: &Path, wish: &Wish, succession: &mut Succession) -> Result<(Store, Vec<Record>, Checkpoints), StartError> {
    let failed = |error| {
        let doing = format!("cannot use the folder {} of unix {{ state-dir }}", folder.display());
        StartError::System { doing, error }
    };
    let (store, records) = match succession.lock() {
        Some(lock) => Store::inherit(folder, wish.owner.gid, lock),
        None => Store::open(folder, wish.owner.gid),
    }
    .map_err(failed)?;
    let checkpoints = Checkpoints::open(folder, wish.owner.gid).map_err(failed)?;
    for entry in fs::read_dir(folder).map_err(failed)? {
        wish.hand_over(&entry.map_err(failed)?.path()).map_err(failed)?;
    }
    wish.hand_over(folder).map_err(failed)?;
    Ok((store, records, checkpoints))
}

/// All operations and commands: the daemon's and those of the linked plugins that are on.
pub fn registry(plugins: &[Plugin]) -> Result<Registry<Router>, StartError> {
    registry_with(plugins, &[])
}

/// The same, with those of plugins in shared objects.
pub(crate) fn registry_with(plugins: &[Plugin], loaded: &[Rc<Loaded>]) -> Result<Registry<Router>, StartError> {
    let mut registry = Registry::new();
    ops::register(&mut registry);
    registry.record_in(|router| router.part::<Rc<dyn ChangeLog>>().cloned());
    registry.collect_in(|router| ops::candidate::own(router).map(|candidate| candidate as Rc<dyn Collector>));
    for plugin in plugins {
        (plugin.register)(&mut registry);
    }
    for operation in loaded.iter().flat_map(|loaded| loaded.operations()) {
        registry.dynamic(operation);
    }
    match registry.problems() {
        [] => {
            // Its templates are read now, and not by the first command that needs them.
            drop(registry.book());
            Ok(registry)
        }
        problems => Err(StartError::Declarations(problems.to_vec())),
    }
}

fn open_log(startup: &StartupConfig, user: &Wish) -> Result<Log, StartError> {
    let wish = &startup.logging;
    let mut settings = Settings::default();
    settings.size = wish.size.unwrap_or(settings.size);
    settings.unthrottle = wish.unthrottle.unwrap_or(settings.unthrottle);
    settings.level = wish.level.unwrap_or(settings.level);
    let log = Log::new(settings);
    log.declare(CLASSES);
    if wish.audit {
        // None is left out for being one of many, unless somebody says so.
        log.set_class("audit", None, Some(u32::MAX));
    }
    for (class, level, limit) in &wish.classes {
        log.set_class(class, *level, *limit);
    }
    let (output, form): (Box<dyn Write + Send>, _) = match &startup.unix.log {
        None => {
            let stream = std::env::var("JOURNAL_STREAM").ok();
            let is_journal = log::is_journal(io::stderr(), stream.as_deref());
            match is_journal.then(JournalSocket::connect) {
                Some(Ok(socket)) => (Box::new(socket), Form::Native),
                Some(Err(_)) => (Box::new(io::stderr()), Form::Journal),
                None => (Box::new(io::stderr()), Form::Plain),
            }
        }
        Some(path) => {
            // The user's own, so that a start without root can go on with it. Not what is no file, such as a terminal.
            let file = LogFile::open(path).and_then(|file| match file.is_file()? {
                true => user.hand_over(path).map(|()| file),
                false => Ok(file),
            });
            let doing = || format!("cannot write the log {}", path.display());
            (Box::new(file.map_err(|error| StartError::System { doing: doing(), error })?), Form::Plain)
        }
    };
    watchdog::log_is_stderr(startup.unix.log.is_none());
    log.set_output(output, form);
    log::install(&log);
    Ok(log)
}

fn buffers(startup: &StartupConfig, numa_nodes: &[u32]) -> RegionConfig {
    let mut config = RegionConfig {
        numa_nodes: u32::try_from(numa_nodes.len()).unwrap_or(1).max(1),
        numa_numbers: numa_nodes.to_vec(),
        page_size: startup.buffers.page_size,
        ..RegionConfig::default()
    };
    config.buffers_per_numa = startup.buffers.per_numa.unwrap_or(config.buffers_per_numa);
    config.data_size = startup.buffers.data_size.unwrap_or(config.data_size);
    config
}

fn set_variants(router: &mut Router, startup: &StartupConfig) -> Result<(), StartError> {
    let variants = quiver_graph::Level::ALL.map(|level| (level.name(), level));
    for (name, value) in &startup.node_variants {
        let level = value.one_of(&variants)?;
        let nodes = match name.as_str() {
            "default" => router.graph.nodes().into_iter().filter(|node| node.multi_loop.is_some()).map(|node| node.name).collect(),
            name => vec![name.to_owned()],
        };
        for node in nodes {
            router.graph.set_loop(&node, None, None, Some(level)).map_err(|error| value.error(error.to_string()))?;
        }
    }
    Ok(())
}

/// The runtime folder; where nothing was said, a plain user gets one of their own.
pub(crate) fn runtime_dir(unix: &Unix) -> PathBuf {
    if unix.runtime_dir == Path::new(RUNTIME_DIR) && !rustix::process::geteuid().is_root() {
        let own = PathBuf::from(format!("/run/user/{}", rustix::process::geteuid().as_raw()));
        if own.is_dir() {
            return own.join("quiver");
        }
    }
    unix.runtime_dir.clone()
}

fn listen(
    startup: &StartupConfig,
    wish: &Wish,
    admission: Admission,
    succession: &mut Succession,
) -> Result<Vec<Listening>, StartError> {
    let (unix, owner) = (&startup.unix, wish.owner);
    let folder = runtime_dir(unix);
    let failed = |error| {
        let doing = format!("cannot make the runtime folder {} (choose another by unix {{ runtime-dir }})", folder.display());
        StartError::System { doing, error }
    };
    make_folder(&folder, wish, admission).map_err(failed)?;
    let mut sockets = Vec::new();
    let json = folder.join("json.sock");
    let (listener, bound) = succession.unix(&json, || listen_as(&json, owner, admission))?;
    sockets.push(Listening::Unix(listener, bound, Face::Json));
    // A bare name is one of the runtime folder.
    let place = |path: &Path| if path.components().count() == 1 { folder.join(path) } else { path.to_owned() };
    if let Some(path) = &startup.api_socket {
        let path = place(path);
        let (listener, bound) = succession.unix(&path, || listen_as(&path, owner, admission))?;
        sockets.push(Listening::Api(listener, bound));
    }
    if let Some(path) = &startup.stats_socket {
        sockets.push(Listening::Stats(succession.stats(&place(path), owner, admission)?));
    }
    if let Some(path) = &startup.punt_socket {
        let path = place(path);
        let (socket, bound) = succession.datagram(&path, || punt::bind(&path, owner))?;
        sockets.push(Listening::Punt(Arc::new(socket), bound, path));
    }
    if startup.unix.warm_restart.is_some() {
        let (listener, bound) = succession.restart(&folder, wish)?;
        sockets.push(Listening::Restart(listener, bound));
    }
    // The sockets of commands come last: a client that finds one finds the others.
    let face = Face::Cli(Rc::new(session_options(unix)));
    let mut wishes: Vec<Listen> = unix.cli_listen.iter().map(|(listen, _)| listen.clone()).collect();
    if wishes.is_empty() {
        wishes.push(Listen::Unix("cli.sock".into()));
    }
    for wish in wishes {
        sockets.push(match wish {
            Listen::Unix(path) => {
                let path = place(&path);
                let (listener, bound) = succession.unix(&path, || listen_as(&path, owner, admission))?;
                Listening::Unix(listener, bound, face.clone())
            }
            Listen::Tcp { host, port } => Listening::Tcp(succession.tcp(&host, port)?, face.clone()),
        });
    }
    Ok(sockets)
}

/// Who may do what on the sockets.
fn admission(startup: &StartupConfig, wish: &Wish) -> Result<Admission, StartError> {
    let read_only = startup.unix.read_only_gid.as_ref().map(group_id).transpose()?;
    Ok(Admission { gid: wish.owner.gid, read_only })
}

fn listen_as(path: &Path, owner: Owner, admission: Admission) -> Result<(UnixListener, BoundPath), BindError> {
    let listening = listen_unix(path, owner)?;
    set_mode(path, admission.mode())?;
    Ok(listening)
}

/// Where files with plain names lie.
pub(super) fn own_files(startup: &StartupConfig) -> PathBuf {
    startup.files.folder.clone().unwrap_or_else(|| runtime_dir(&startup.unix).join(OWN_FILES))
}

/// The folders of files that commands name. The router's own becomes the user's, where it is root's.
fn files(startup: &StartupConfig, wish: &Wish) -> Result<Files, StartError> {
    let FileFolders { read, write, .. } = &startup.files;
    let own = own_files(startup);
    let failed = |(path, error): (PathBuf, io::Error)| {
        let doing = format!("cannot open the folder {} of files {{ }} in startup.conf", path.display());
        StartError::System { doing, error }
    };
    let files = Files::open(&own, read, write, wish.owner.gid).map_err(failed)?;
    match fs::symlink_metadata(&own) {
        Ok(data) if data.is_dir() && data.uid() == 0 => wish.hand_over(&own).map_err(|error| failed((own, error)))?,
        _ => {}
    }
    Ok(files)
}

fn session_options(unix: &Unix) -> SessionOptions {
    let defaults = SessionOptions::default();
    let banner = if unix.no_banner { String::new() } else { format!("{}\n\n", version_line()) };
    SessionOptions {
        banner,
        prompt: unix.prompt.as_ref().map_or(defaults.prompt, |prompt| format!("{} ", prompt.trim_end())),
        history_limit: unix.history_limit.unwrap_or(defaults.history_limit),
        pager: !unix.no_pager,
        pager_limit: unix.pager_limit.unwrap_or(defaults.pager_limit),
        line_mode: unix.line_mode,
        ansi: !unix.no_color,
    }
}

fn open_pidfile(path: &Path, wish: &Wish, inherits: bool) -> Result<PidFile, StartError> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    let file = folder.and_then(|()| if inherits { PidFile::inherit(path) } else { PidFile::create(path) });
    let file = file.and_then(|file| wish.hand_over(path).map(|()| file));
    file.map_err(|error| StartError::System { doing: format!("cannot write the pidfile {}", path.display()), error })
}

/// The runtime folder. One that is made here, and one of root's with nothing but a router's in it, becomes the user's; any other is
/// somebody's already.
fn make_folder(folder: &Path, wish: &Wish, admission: Admission) -> io::Result<()> {
    let new = !folder.exists();
    make_private(folder, wish.owner.gid, admission.folder_mode())?;
    if wish.owner.uid.is_none() {
        return Ok(());
    }
    let is_ours = |entry: fs::DirEntry| entry.file_name() == OWN_FILES || entry.file_type().is_ok_and(|kind| kind.is_socket());
    let only_ours = || Ok::<_, io::Error>(fs::read_dir(folder)?.all(|entry| entry.is_ok_and(is_ours)));
    let data = fs::symlink_metadata(folder)?;
    if new || (data.is_dir() && data.uid() == 0 && data.mode() & 0o1022 == 0 && only_ours()?) {
        wish.hand_over(folder)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(admission.folder_mode()))?;
    }
    Ok(())
}
