//! `startup.conf`: the configuration a router starts with, typed.
//!
//! [`schema`] says which keys there are, [`StartupConfig::read`] turns a text into values, [`Arguments`] reads the command
//! line. Nothing here does anything: the [daemon](crate::daemon) does.

mod arguments;
pub mod manual;
mod rights;
mod schema;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use quiver_buffer::PageSize;
use quiver_command::config::{Block, Config, ConfigError, Listen, Schema, Source, Value};
use quiver_drivers::memif::Limits;
use quiver_graph::RxMode;
use quiver_graph::topology::{PlacementRequest, SchedulerPolicy};

pub use arguments::{Arguments, ArgumentsError, help, wants_a_check, wants_to_take_over};
pub use rights::Rights;
pub use schema::schema;

use crate::log::Level;

/// Seconds of silence after which a CLI or JSON session ends, where nothing is said. Longer than a working day at a prompt, so that
/// nobody is logged out at work, and what was left behind is gone the next day. It need not be shorter: idle sessions give up their
/// places where those are needed (`server/sessions.rs`).
const IDLE_TIMEOUT: u64 = 12 * 3600;

/// How long another process that takes over may take to make its configuration, where nothing is said.
const WARM_RESTART: Duration = Duration::from_secs(300);

/// Where sockets live unless `unix { runtime-dir }` says otherwise.
pub const RUNTIME_DIR: &str = "/run/quiver";

/// What `startup.conf` says.
#[derive(Debug, Clone)]
pub struct StartupConfig {
    /// `unix { … }`.
    pub unix: Unix,
    /// `cpu { … }`.
    pub cpu: Cpu,
    /// `buffers { … }`.
    pub buffers: Buffers,
    /// `plugins { … }`.
    pub plugins: Plugins,
    /// `api-trace { … }`.
    pub api_trace: ApiTrace,
    /// `logging { … }`.
    pub logging: Logging,
    /// `node { … }`: names with the instruction set that their loops use; `default` is for all others.
    pub node_variants: Vec<(String, Value)>,
    /// `statseg { update-interval }`.
    pub stats_interval: Duration,
    /// `socksvr { … }`: where clients of the binary API connect; nowhere where nothing is said.
    pub api_socket: Option<PathBuf>,
    /// `punt { socket }`: by which programs get punted packets; none where nothing is said.
    pub punt_socket: Option<PathBuf>,
    /// After so much silence a client of the binary API is cut off; none: never.
    pub api_idle_timeout: Option<Duration>,
    /// `statseg { … }`: where readers of the statistics connect; nowhere where nothing is said.
    pub stats_socket: Option<PathBuf>,
    /// `interface { default-rx-mode }`.
    pub rx_mode: RxMode,
    /// `ip { fib-per-numa }`: copies of the forwarding tables on all NUMA nodes.
    pub fib_per_numa: bool,
    /// `files { … }`.
    pub files: FileFolders,
    /// `memif { … }`: what a peer of a memif socket may have mapped, where `create memif socket` says nothing else.
    pub memif: Limits,
    /// What was accepted without effect, a line each.
    pub notices: Vec<String>,
    /// Everything, for the sections that plugins read.
    pub config: Config,
}

/// `unix { … }`.
#[derive(Debug, Clone)]
pub struct Unix {
    /// Stay in the foreground.
    pub nodaemon: bool,
    /// The command language on the terminal; implies `nodaemon`.
    pub interactive: bool,
    /// Log to this file in place of standard error.
    pub log: Option<PathBuf>,
    /// Files of commands to run at start, in order.
    pub exec: Vec<PathBuf>,
    /// Whether those files change all that they change, or nothing.
    pub startup_atomic: bool,
    /// Whether the router goes on where one of those files fails.
    pub startup_lenient: bool,
    /// Where the command language listens; `cli.sock` in the runtime folder where nothing is said.
    pub cli_listen: Vec<(Listen, Value)>,
    /// Folder of sockets.
    pub runtime_dir: PathBuf,
    /// Folder in which the configuration lasts; nothing lasts where nothing is said.
    pub state_dir: Option<PathBuf>,
    /// How long another process that takes over may take to make its configuration; nothing where none may take over.
    pub warm_restart: Option<Duration>,
    /// Whether the working folder stays as it is in a daemon.
    pub use_current_dir: bool,
    /// File for the process id.
    pub pidfile: Option<PathBuf>,
    /// Group that may use the sockets, and the process' own where it becomes a `user`: a name or number.
    pub gid: Option<Value>,
    /// Group whose members may use the sockets to read, a name or number.
    pub read_only_gid: Option<Value>,
    /// What the process may do.
    pub rights: Rights,
    /// The prompt.
    pub prompt: Option<String>,
    /// Lines of history.
    pub history_limit: Option<usize>,
    /// Clients edit their lines themselves.
    pub line_mode: bool,
    /// After so much silence a CLI or JSON session ends; none: never.
    pub idle_timeout: Option<Duration>,
    /// No greeting.
    pub no_banner: bool,
    /// No colours.
    pub no_color: bool,
    /// Long output does not stop at pages.
    pub no_pager: bool,
    /// Output of more lines is not paged.
    pub pager_limit: Option<usize>,
    /// Sleep so long in each turn of the main loop.
    pub poll_sleep: Duration,
    /// Time after which a thread without progress ends the router; nothing where it never does.
    pub watchdog: Option<Duration>,
}

/// `files { … }`: the folders of the files that commands name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileFolders {
    /// Where plain names lie; `files` in the runtime folder where nothing is said.
    pub folder: Option<PathBuf>,
    /// Files below these may be read.
    pub read: Vec<PathBuf>,
    /// Files below these may be read and written.
    pub write: Vec<PathBuf>,
}

impl FileFolders {
    fn read(block: &Block) -> Self {
        let all = |key| block.values(key).map(|value| value.path().to_owned()).collect();
        Self { folder: block.get("folder").map(|value| value.path().to_owned()), read: all("read"), write: all("write") }
    }
}

/// `cpu { … }`.
#[derive(Debug, Clone)]
pub struct Cpu {
    /// Which cores are asked for.
    pub request: PlacementRequest,
    /// Core numbers count among the cores that the process may use.
    pub relative: bool,
    /// Scheduling of all threads.
    pub policy: SchedulerPolicy,
    /// Priority, for `fifo` and `rr`.
    pub priority: u32,
}

/// `buffers { … }`.
#[derive(Debug, Clone)]
pub struct Buffers {
    /// Buffers of each NUMA node; none for the default.
    pub per_numa: Option<u32>,
    /// Bytes of data in a buffer; none for the default.
    pub data_size: Option<u32>,
    /// Pages.
    pub page_size: PageSize,
}

/// Where plugins in shared objects lie where nothing is said.
pub const PLUGIN_DIR: &str = "/usr/lib/quiver/plugins";

/// `plugins { … }`.
#[derive(Debug, Clone, Default)]
pub struct Plugins {
    /// Whether plugins that are not named are on: none leaves that to each plugin.
    pub default: Option<bool>,
    /// Names with what is said about them.
    pub named: Vec<(Value, bool)>,
    /// Where plugins in shared objects lie.
    pub folders: Vec<PathBuf>,
    /// Options of plugins in shared objects: name, key, value.
    pub options: Vec<(Value, String, String)>,
}

/// `api-trace { … }`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ApiTrace {
    /// Whether API messages are recorded from the start.
    pub on: bool,
    /// How many.
    pub items: Option<u32>,
}

/// `logging { … }`.
#[derive(Debug, Clone, Default)]
pub struct Logging {
    /// Lines that `show logging` remembers.
    pub size: Option<usize>,
    /// Seconds until a class that logged too much is heard again.
    pub unthrottle: Option<u32>,
    /// Level of classes that say nothing.
    pub level: Option<Level>,
    /// What clients ask for and changes something is logged.
    pub audit: bool,
    /// Classes with level and lines a second.
    pub classes: Vec<(String, Option<Level>, Option<u32>)>,
}

impl StartupConfig {
    /// Reads a text, held against `schema`.
    ///
    /// # Errors
    /// An unknown section or key, or a value that cannot be used; each with its place.
    pub fn read(schema: &Schema, source: Source) -> Result<Self, ConfigError> {
        Self::from_config(schema.read(source)?)
    }

    /// What holds when nothing is said.
    ///
    /// # Errors
    /// None in practice: an empty text is a good one.
    pub fn defaults() -> Result<Self, ConfigError> {
        Self::from_config(schema().defaults())
    }

    fn from_config(config: Config) -> Result<Self, ConfigError> {
        Ok(Self {
            unix: Unix::read(config.section("unix"))?,
            cpu: Cpu::read(config.section("cpu"))?,
            buffers: Buffers::read(config.section("buffers"))?,
            plugins: Plugins::read(config.section("plugins"))?,
            api_trace: ApiTrace::read(config.section("api-trace"))?,
            logging: Logging::read(config.section("logging"))?,
            node_variants: node_variants(config.section("node")),
            api_socket: socket(config.section("socksvr"), "api.sock"),
            punt_socket: config.section("punt").get("socket").map(|value| value.path().to_owned()),
            api_idle_timeout: idle_timeout(config.section("socksvr"), "idle-timeout", 0)?,
            stats_socket: socket(config.section("statseg"), "stats.sock"),
            stats_interval: stats_interval(config.section("statseg"))?,
            rx_mode: rx_mode(config.section("interface"))?,
            fib_per_numa: config.section("ip").flag("fib-per-numa"),
            files: FileFolders::read(config.section("files")),
            memif: memif_limits(config.section("memif"))?,
            notices: config.notices().iter().map(ToString::to_string).collect(),
            config,
        })
    }
}

/// A socket by path, or by `default` as `name` in the runtime folder.
fn socket(block: &Block, name: &str) -> Option<PathBuf> {
    let path = block.get("socket-name").map(|value| value.path().to_owned());
    path.or_else(|| block.flag("default").then(|| name.into()))
}

/// `memif { … }`.
fn memif_limits(block: &Block) -> Result<Limits, ConfigError> {
    let memory = block.get("max-memory").map(|value| match value.size()? {
        bytes if (Limits::LEAST.memory..=Limits::MOST.memory).contains(&bytes) => Ok(bytes),
        _ => Err(value.bad("64k to 16G")),
    });
    let range = Limits::LEAST.regions..=Limits::MOST.regions;
    let regions = block.get("max-regions").map(|value| value.number_in(range)).transpose()?;
    let default = Limits::DEFAULT;
    Ok(Limits {
        memory: memory.transpose()?.unwrap_or(default.memory),
        regions: regions.unwrap_or(default.regions),
        unsealed: block.flag("unsealed"),
    })
}

/// Seconds of silence after which a session ends; 0: never.
fn idle_timeout(block: &Block, key: &str, default: u64) -> Result<Option<Duration>, ConfigError> {
    let seconds = block.get(key).map(|value| value.number_in(0..=31_536_000_u64)).transpose()?.unwrap_or(default);
    Ok((seconds > 0).then(|| Duration::from_secs(seconds)))
}

/// `interface { default-rx-mode }`.
fn rx_mode(block: &Block) -> Result<RxMode, ConfigError> {
    let modes = RxMode::ALL.map(|mode| (mode.name(), mode));
    Ok(block.get("default-rx-mode").map(|value| value.one_of(&modes)).transpose()?.unwrap_or_default())
}

impl Unix {
    fn read(block: &Block) -> Result<Self, ConfigError> {
        let path = |key| block.get(key).map(|value: &Value| value.path().to_owned());
        let size = |key| block.get(key).map(|value| value.number_in(0..=10_000_000_usize)).transpose();
        let exec = block.values("startup-config").chain(block.values("exec"));
        let poll_sleep = block.get("poll-sleep-usec").map(|value| value.number_in(0..=1_000_000_u64)).transpose()?;
        Ok(Self {
            nodaemon: block.flag("nodaemon") || block.flag("interactive"),
            interactive: block.flag("interactive"),
            log: path("log"),
            exec: exec.map(|value| value.path().to_owned()).collect(),
            startup_atomic: block.flag("startup-atomic"),
            startup_lenient: block.flag("startup-lenient"),
            cli_listen: block.values("cli-listen").map(|value| Ok((value.listen()?, value.clone()))).collect::<Result<_, _>>()?,
            runtime_dir: path("runtime-dir").unwrap_or_else(|| RUNTIME_DIR.into()),
            state_dir: path("state-dir"),
            warm_restart: match block.get("warm-restart") {
                None => Some(WARM_RESTART),
                Some(value) if value.text() == "off" => None,
                Some(value) => {
                    let seconds: u64 = value.number_in(1..=3600).map_err(|error| error.help("or `off'"))?;
                    Some(Duration::from_secs(seconds))
                }
            },
            use_current_dir: block.flag("use-current-dir"),
            pidfile: path("pidfile"),
            gid: block.get("gid").cloned(),
            read_only_gid: block.get("read-only-gid").cloned(),
            rights: Rights::read(block)?,
            prompt: block.get("cli-prompt").map(|value| value.text().to_owned()),
            history_limit: block.get("cli-history-limit").map(|value| value.number_in(0..=100_000_usize)).transpose()?,
            line_mode: block.flag("cli-line-mode"),
            idle_timeout: idle_timeout(block, "cli-idle-timeout", IDLE_TIMEOUT)?,
            no_banner: block.flag("cli-no-banner") || block.flag("nobanner"),
            no_color: block.flag("nocolor"),
            no_pager: block.flag("cli-no-pager"),
            pager_limit: size("cli-pager-buffer-limit")?,
            poll_sleep: Duration::from_micros(poll_sleep.unwrap_or(0)),
            watchdog: match block.get("watchdog") {
                None => Some(crate::watchdog::DEFAULT),
                Some(value) if value.text() == "off" => None,
                Some(value) => {
                    let seconds: u64 = value.number_in(1..=3600).map_err(|error| error.help("or `off'"))?;
                    Some(Duration::from_secs(seconds))
                }
            },
        })
    }

    /// A path of the runtime folder.
    pub fn in_runtime_dir(&self, name: impl AsRef<Path>) -> PathBuf {
        self.runtime_dir.join(name)
    }
}

impl Cpu {
    fn read(block: &Block) -> Result<Self, ConfigError> {
        let number = |key| block.get(key).map(Value::u32).transpose();
        let list = block.get("corelist-workers").map(Value::cpu_list).transpose()?;
        let mask = block.get("coremask-workers").map(Value::cpu_mask).transpose()?;
        if let (Some(_), Some(_), Some(value)) = (&list, &mask, block.get("coremask-workers")) {
            return Err(value.error("coremask-workers and corelist-workers exclude each other").help("keep one of them"));
        }
        let policies = [
            SchedulerPolicy::Other,
            SchedulerPolicy::Batch,
            SchedulerPolicy::Idle,
            SchedulerPolicy::Fifo,
            SchedulerPolicy::RoundRobin,
        ];
        let policies = policies.map(|policy| (policy.name(), policy));
        let policy = block.get("scheduler-policy").map(|value| value.one_of(&policies)).transpose()?;
        let policy = policy.unwrap_or(SchedulerPolicy::Other);
        let real_time = matches!(policy, SchedulerPolicy::Fifo | SchedulerPolicy::RoundRobin);
        let priority = match block.get("scheduler-priority") {
            Some(value) if real_time => value.number_in(1..=99)?,
            Some(value) => {
                let error = value.error(format!("scheduler-priority has no meaning with policy `{}'", policy.name()));
                return Err(error.help("set scheduler-policy to fifo or rr"));
            }
            None => u32::from(real_time),
        };
        Ok(Self {
            request: PlacementRequest {
                main_core: number("main-core")?,
                workers: number("workers")?,
                corelist: list.or(mask),
                skip_cores: number("skip-cores")?.unwrap_or(0),
            },
            relative: block.flag("relative"),
            policy,
            priority,
        })
    }
}

impl Buffers {
    fn read(block: &Block) -> Result<Self, ConfigError> {
        let mut per_numa = block.get("buffers-per-numa").map(|value| value.number_in(1..=1_u32 << 28)).transpose()?;
        for (_, numa) in block.named("numa") {
            // One region serves all nodes alike: the largest wish counts.
            let wish = numa.get("buffers").map(|value| value.number_in(1..=1_u32 << 28)).transpose()?;
            per_numa = per_numa.max(wish);
        }
        let data_size = block.get("default data-size").map(|value| match value.size()? {
            bytes @ 256..=16_384 => Ok(bytes as u32),
            _ => Err(value.bad("256 to 16384 bytes")),
        });
        let page_size = block.get("page-size").map(page_size).transpose()?;
        Ok(Self { per_numa, data_size: data_size.transpose()?, page_size: page_size.unwrap_or(PageSize::Default) })
    }
}

fn page_size(value: &Value) -> Result<PageSize, ConfigError> {
    let expected = "4K, 2M, 1G, default or default-hugepage";
    match value.text() {
        "default" => return Ok(PageSize::Default),
        "default-hugepage" => return Ok(PageSize::Mb2),
        _ => {}
    }
    match value.size().map_err(|_| value.bad(expected))? {
        0x1000 => Ok(PageSize::Kb4),
        0x20_0000 => Ok(PageSize::Mb2),
        0x4000_0000 => Ok(PageSize::Gb1),
        _ => Err(value.bad(expected)),
    }
}

impl Plugins {
    fn read(block: &Block) -> Result<Self, ConfigError> {
        let mut plugins = Self { folders: vec![PathBuf::from(PLUGIN_DIR)], ..Self::default() };
        let folders =
            |value: &Value| value.text().split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect::<Vec<_>>();
        if let Some(path) = block.get("path") {
            plugins.folders = folders(path);
        }
        plugins.folders.extend(block.values("add-path").flat_map(folders));
        for (name, group) in block.named("plugin") {
            for option in group.values("option") {
                let (key, value) = option.text().split_once('=').ok_or_else(|| option.bad("KEY=VALUE"))?;
                plugins.options.push((name.clone(), key.to_owned(), value.to_owned()));
            }
            let said = group.keys().filter(|key| matches!(*key, "enable" | "disable")).last();
            let Some(on) = said.map(|key| key == "enable") else { continue };
            match name.text() {
                "default" => plugins.default = Some(on),
                _ => plugins.named.push((name.clone(), on)),
            }
        }
        Ok(plugins)
    }
}

impl ApiTrace {
    fn read(block: &Block) -> Result<Self, ConfigError> {
        let last = block.keys().filter(|key| matches!(*key, "on" | "enable" | "off")).last();
        let items = block.get("nitems").map(Value::u32).transpose()?;
        Ok(Self { on: last.is_some_and(|key| key != "off"), items })
    }
}

impl Logging {
    fn read(block: &Block) -> Result<Self, ConfigError> {
        let mut classes = Vec::new();
        for (name, class) in block.named("class") {
            let limit = class.get("rate-limit").map(Value::u32).transpose()?;
            classes.push((name.text().to_owned(), level(class.get("level"))?, limit));
        }
        Ok(Self {
            size: block.get("size").map(|value| value.number_in(1..=1_000_000_usize)).transpose()?,
            unthrottle: block.get("unthrottle-time").map(Value::u32).transpose()?,
            level: level(block.get("default-log-level"))?,
            audit: block.flag("audit"),
            classes,
        })
    }
}

fn level(value: Option<&Value>) -> Result<Option<Level>, ConfigError> {
    value.map(|value| value.one_of(&Level::NAMES)).transpose()
}

fn node_variants(block: &Block) -> Vec<(String, Value)> {
    let default = block.group("default").map(|group| ("default".to_owned(), group));
    let named = block.any().map(|(name, group)| (name.text().to_owned(), group));
    let all = default.into_iter().chain(named);
    all.filter_map(|(name, group)| Some((name, group.get("variant")?.clone()))).collect()
}

fn stats_interval(block: &Block) -> Result<Duration, ConfigError> {
    let seconds = block.get("update-interval").map(|value| match value.decimal()? {
        seconds if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err(value.bad("seconds from 0.001 to 3600")),
    });
    Ok(Duration::from_secs_f64(seconds.transpose()?.unwrap_or(10.0)))
}
