//! Which sections and keys `startup.conf` has. What VPP's users write there and has no meaning here is accepted with a notice.

use quiver_command::config::{Schema, Section};

const NO_SHARED_API: &str = "the API has no shared memory here";
const NO_HEAP: &str = "memory is taken as it is needed";
const BUILT_IN: &str = "plugins are chosen by name";
const NO_DPDK: &str = "this build drives no devices by DPDK";
const OWN_TABLES: &str = "tables grow as they are filled";
const NO_HOST_STACK: &str = "there is no host stack";

/// The schema of the daemon itself; plugins add their sections to it.
pub fn schema() -> Schema {
    let schema = Schema::new()
        .section(unix())
        .section(cpu())
        .section(buffers())
        .section(plugins())
        .section(api_trace())
        .section(logging())
        .section(Section::new("node").about("How the loops of nodes run").group("default", variant()).any("node", variant()))
        .section(statseg())
        .section(
            Section::new("memif")
                .about("What a peer of a memif socket may have mapped, where `create memif socket` says nothing else")
                .value("max-memory", "size")
                .about("Memory of one peer, 64k to 16G")
                .default_is("256M")
                .value("max-regions", "number")
                .about("Memory regions of one peer")
                .default_is("16")
                .flag("unsealed")
                .about("Also maps memory that the peer can make smaller; for peers that are trusted"),
        )
        .section(
            Section::new("punt")
                .about("Programs that get packets for the router; without this section they cannot register")
                .value("socket", "path")
                .about("Socket by which the router sends packets to programs, and takes theirs"),
        )
        .section(
            Section::new("socksvr")
                .about("The binary API; without this section there is none")
                .value("socket-name", "path")
                .about("Socket of the binary API")
                .flag("default")
                .about("Socket of the binary API: `api.sock` in the runtime folder")
                .value("idle-timeout", "seconds")
                .about("Cuts a client off after so much silence; 0: never")
                .default_is("0"),
        )
        .section(memory())
        .section(
            Section::new("files")
                .about("Where the files lie that commands name")
                .value("folder", "path")
                .about("Folder of files that are named without a path. Without it: `files` in the runtime folder")
                .value("read", "path")
                .about("Files below this folder may be read; may be repeated")
                .value("write", "path")
                .about("Files below this folder may be read and written; may be repeated"),
        )
        .section(
            Section::new("physmem")
                .value("base-addr", "address")
                .without_effect(NO_HEAP)
                .value("max-size", "size")
                .without_effect(NO_HEAP),
        )
        .section(
            Section::new("interface")
                .about("Interfaces that are made")
                .value("default-rx-mode", "mode")
                .about("How their queues are received from: `adaptive`, `polling` or `interrupt`")
                .default_is("adaptive"),
        )
        .section(
            Section::new("ethernet")
                .value("default-mtu", "bytes")
                .without_effect("an interface has the MTU of its device; `set interface mtu' changes it"),
        )
        .section(
            Section::new("ip")
                .about("The forwarding tables of IPv4 and IPv6")
                .flag("fib-per-numa")
                .about("A copy of each forwarding table on each NUMA node with cores that the process may use: a worker reads the one near it. Each copy takes memory and time at each change")
                .value("default-table-name", "name")
                .without_effect("the default table is called default"),
        )
        .section(
            Section::new("ip6")
                .value("default-table-name", "name")
                .without_effect("the default table is called default")
                .value("hash-buckets", "number")
                .without_effect(OWN_TABLES)
                .value("heap-size", "size")
                .without_effect(NO_HEAP),
        );
    let ignored = [
        ("api-segment", NO_SHARED_API),
        ("api-queue", NO_SHARED_API),
        ("api-fuzz", "messages are fuzzed in the tests of their code"),
        ("dpdk", NO_DPDK),
        ("devices", NO_DPDK),
        ("vhost-user", "there are no vhost-user devices here"),
        ("dsa", "there is no DMA engine to drive here"),
        ("mpls", OWN_TABLES),
        ("l3fib", OWN_TABLES),
        ("l2fib", OWN_TABLES),
        ("l2learn", "the limit is set by `set bridge-domain learn-limit'"),
        (
            "acl-plugin",
            "`set acl-plugin session table max-entries' and `set acl-plugin reclassify-sessions' set what has a meaning here",
        ),
        ("ipsec", "the plugin is not built in"),
        ("session", NO_HOST_STACK),
        ("tcp", NO_HOST_STACK),
        ("udp", NO_HOST_STACK),
        ("tls", NO_HOST_STACK),
        ("quic", NO_HOST_STACK),
        ("http", NO_HOST_STACK),
        ("crypto-engines", "the crypto library chooses by itself"),
        ("trace", "traces take memory as they are asked for"),
        ("dns", "the plugin is not built in"),
        ("cnat", "the plugin is not built in"),
        ("nsim", "the plugin is not built in"),
        ("mactime", "the plugin is not built in"),
        ("sfdp", "the plugin is not built in"),
    ];
    ignored.into_iter().fold(schema, |schema, (name, reason)| schema.section_without_effect(name, reason))
}

fn unix() -> Section {
    Section::new("unix")
        .about("The process: its terminal, log, sockets, files and rights")
        .flag("interactive")
        .about("Reads commands on this terminal and stays in the foreground")
        .flag("nodaemon")
        .about("Stays in the foreground; a supervisor such as systemd needs it")
        .flag("nosyslog")
        .without_effect("logs go to standard error or the file of `log'")
        .flag("nocolor")
        .about("Uses no colours in the command language")
        .flag("nobanner")
        .about("Greets nobody at the prompt")
        .flag("cli-no-banner")
        .about("As `nobanner`")
        .value("log", "file")
        .about("Writes the log to this file instead of standard error")
        .value("exec", "file")
        .about("Runs the commands of this file at start; may be repeated")
        .value("startup-config", "file")
        .about("As `exec`, and runs before its files")
        .flag("startup-atomic")
        .about("With `startup-lenient`: the files of `startup-config` and `exec` together change all that they change, or nothing where a line fails")
        .flag("startup-lenient")
        .about("Where a line of these files fails the router goes on, with what was done before it. Without this it ends with status 78, and keeps nothing of them")
        .value("cli-listen", "path or host:port")
        .about("Where the command language listens; may be repeated. Without it: `cli.sock` in the runtime folder")
        .flag("cli-line-mode")
        .about("Clients edit their lines themselves")
        .value("cli-idle-timeout", "seconds")
        .about("Ends a session of the command language or of JSON after so much silence; 0: never")
        .default_is("43200")
        .value("cli-prompt", "text")
        .about("The prompt")
        .default_is("quiver#")
        .value("cli-history-limit", "number")
        .about("Lines of history that a session keeps; 0: none")
        .default_is("50")
        .flag("cli-no-pager")
        .about("Does not stop long output at each page")
        .value("cli-pager-buffer-limit", "number")
        .about("Output of more lines than this is not stopped at pages")
        .default_is("100000")
        .value("runtime-dir", "folder")
        .about("Folder of sockets and of files that commands write")
        .default_is("/run/quiver")
        .value("state-dir", "folder")
        .about("Folder in which the configuration lasts; without it nothing outlives the router")
        .flag("use-current-dir")
        .about("Does not change the working folder to `/` in the background")
        .value("poll-sleep-usec", "number")
        .about("Microseconds that the main thread sleeps in each iteration of its loop, at most 1000000")
        .default_is("0")
        .value("watchdog", "seconds or off")
        .about("A thread without progress for so long ends the router, 1 to 3600; `off`: never")
        .default_is("5")
        .value("warm-restart", "seconds or off")
        .about("How long a process that takes over (`quiver --take-over`) may take to get ready, 1 to 3600; `off`: none may")
        .default_is("300")
        .value("pidfile", "file")
        .about("Writes the process id to this file")
        .value("gid", "group")
        .about("Group whose members may use the sockets; with `user` also the group of the process")
        .value("read-only-gid", "group")
        .about("Group whose members may use the sockets to read")
        .value("user", "user")
        .about("User to become after start as root, by name or number")
        .value("capability", "name")
        .about(
            "A capability to keep besides the usual ones: `perfmon`, `ipc_lock`, `sys_nice` or `net_bind_service`; may be repeated",
        )
        .value("seccomp", "on, off or log")
        .about(
            "Limits system calls; `log` lets them pass and has the kernel log them. Without it: `on` with `user`, else \
             `off`",
        )
        .value("landlock", "on or off")
        .about("Limits which files can be opened. Without it: `on` with `user`, else `off`")
        .value("allow-path", "file or folder")
        .about("One more file or folder that may be read and written; may be repeated")
        .flag("full-coredump")
        .about("A crash leaves a core dump")
        .value("coredump-size", "size")
        .without_effect("set the limit of core dumps where the router is started (ulimit -c, LimitCORE=)")
}

fn cpu() -> Section {
    Section::new("cpu")
        .about("Cores of the main thread and of the workers, and how they are scheduled")
        .value("main-core", "core")
        .about("Core of the main thread. Without it: the first core that the process may use")
        .list("corelist-workers", "list of cores")
        .about("A worker on each of these cores, `2-4,6`")
        .value("coremask-workers", "mask")
        .about("The same as a mask, `0x5c`; not beside `corelist-workers`")
        .value("workers", "number")
        .about("Number of workers, on cores that are free")
        .value("skip-cores", "number")
        .about("Leaves the first so many cores unused")
        .default_is("0")
        .flag("relative")
        .about("Core numbers count among the cores that the process may use")
        .value("scheduler-policy", "policy")
        .about("Scheduling of all threads: `other`, `batch`, `idle`, `fifo` or `rr`")
        .default_is("other")
        .value("scheduler-priority", "number")
        .about("Priority with `fifo` or `rr`, 1 to 99. Without it: 1")
        .value("thread-prefix", "text")
        .without_effect("threads are called quiver_main and quiver_wk_0, quiver_wk_1, ...")
        .flag("use-pthreads")
        .without_effect("threads are the system's")
        .value("numa-heap-size", "size")
        .without_effect(NO_HEAP)
}

fn buffers() -> Section {
    Section::new("buffers")
        .about("Packet memory")
        .value("buffers-per-numa", "number")
        .about("Buffers on each NUMA node")
        .default_is("16384")
        .value("default data-size", "bytes")
        .about("Bytes of data that a buffer holds, 256 to 16384")
        .default_is("2048")
        .value("page-size", "size")
        .about("Pages: `4K`, `2M`, `1G`, `default-hugepage` (2M), or `default`: 2M where there are some, else 4K")
        .default_is("default")
        .named(
            "numa",
            "node",
            Section::new("numa").value("buffers", "number").about("Buffers of one node. The largest number counts for all nodes"),
        )
}

fn plugins() -> Section {
    let plugin = || {
        Section::new("plugin")
            .flag("enable")
            .about("Switches a plugin on; all others by the name `default`")
            .flag("disable")
            .about("Switches a plugin off; all others by the name `default`")
            .value("option", "KEY=VALUE")
            .about("An option of a plugin in a shared object; may be repeated")
            .flag("skip-version-check")
            .without_effect("versions are always compared")
    };
    Section::new("plugins")
        .about("Which plugins are on, and where those in shared objects lie; `show plugins` lists them")
        .value("path", "folders")
        .about("Folders of plugins, with colons between; every shared object in them is loaded unless it is disabled")
        .default_is(super::PLUGIN_DIR)
        .value("add-path", "folder")
        .about("Another folder of plugins; may be repeated")
        .value("name-filter", "text")
        .without_effect(BUILT_IN)
        .value("vat-path", "folders")
        .without_effect(BUILT_IN)
        .value("vat-name-filter", "text")
        .without_effect(BUILT_IN)
        .named("plugin", "name", plugin())
}

fn api_trace() -> Section {
    Section::new("api-trace")
        .about("Recording of the messages of API clients")
        .flag("on")
        .about("Records from the start")
        .flag("enable")
        .about("As `on`")
        .flag("off")
        .about("Does not record")
        .value("nitems", "number")
        .about("Messages that are kept")
        .default_is("262144")
        .value("save-api-table", "file")
        .without_effect("`show api clients' and the clients themselves list messages")
}

fn logging() -> Section {
    let syslog = "logs go to standard error or the file of `unix { log }'";
    let class = Section::new("class")
        .value("level", "level")
        .about("Level of this class")
        .value("rate-limit", "number")
        .about("Lines a second of this class")
        .default_is("50")
        .value("syslog-level", "level")
        .without_effect(syslog)
        .value("kmsg-level", "level")
        .without_effect(syslog);
    Section::new("logging")
        .about("What is logged")
        .value("size", "number")
        .about("Lines that `show logging` remembers")
        .default_is("512")
        .value("unthrottle-time", "seconds")
        .about("Seconds until a class that logged too much is heard again")
        .default_is("3")
        .value("default-log-level", "level")
        .about("Level of classes of which nothing else is said")
        .default_is("notice")
        .flag("audit")
        .about("Logs each command and JSON operation that changes something, class `audit`: who asked, what, and what came of it")
        .value("default-syslog-log-level", "level")
        .without_effect(syslog)
        .value("default-kmsg-log-level", "level")
        .without_effect(syslog)
        .flag("add-to-elog")
        .without_effect("the event log has its own events")
        .named("class", "name", class)
}

fn variant() -> Section {
    Section::new("node")
        .value("variant", "name")
        .about("Instruction set of a node's loop, or of all with `default`; `show cpu` lists those of this machine")
}

fn statseg() -> Section {
    Section::new("statseg")
        .about("Statistics as shared memory, for readers of VPP's statistics segment")
        .value("socket-name", "path")
        .about("Socket of the statistics")
        .flag("default")
        .about("Socket of the statistics: `stats.sock` in the runtime folder")
        .value("size", "size")
        .without_effect("the segment is as large as its counters")
        .value("page-size", "size")
        .without_effect("the segment is sparse, on small pages")
        .value("per-node-counters", "on or off")
        .without_effect("nodes are always counted")
        .value("update-interval", "seconds")
        .about("How often rates and pool sizes are brought up to date, 0.001 to 3600")
        .default_is("10")
}

fn memory() -> Section {
    Section::new("memory")
        .value("main-heap-size", "size")
        .without_effect(NO_HEAP)
        .value("main-heap-page-size", "size")
        .without_effect(NO_HEAP)
        .value("default-hugepage-size", "size")
        .without_effect("packet buffers say what they take by `buffers { page-size }'")
}
