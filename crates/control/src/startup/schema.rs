//! Which sections and keys `startup.conf` has. What VPP's users write there and has no meaning here is accepted with a notice.

use quiver_command::config::{Schema, Section};

const NO_SHARED_API: &str = "the API has no shared memory here";
const NO_HEAP: &str = "memory is taken as it is needed";
const BUILT_IN: &str = "plugins are built in";
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
        .section(Section::new("node").group("default", variant()).any("node", variant()))
        .section(statseg())
        .section(Section::new("memif").value("max-memory", "size").value("max-regions", "number").flag("unsealed"))
        .section(Section::new("socksvr").value("socket-name", "path").flag("default").value("idle-timeout", "seconds"))
        .section(memory())
        .section(Section::new("files").value("folder", "path").value("read", "path").value("write", "path"))
        .section(
            Section::new("physmem")
                .value("base-addr", "address")
                .without_effect(NO_HEAP)
                .value("max-size", "size")
                .without_effect(NO_HEAP),
        )
        .section(Section::new("interface").value("default-rx-mode", "mode"))
        .section(Section::new("ethernet").value("default-mtu", "bytes"))
        .section(Section::new("ip").value("default-table-name", "name").without_effect("the default table is called default"))
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
        ("punt", "there is no punt socket here"),
        ("acl-plugin", OWN_TABLES),
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
        .flag("interactive")
        .flag("nodaemon")
        .flag("nosyslog")
        .without_effect("logs go to standard error or the file of `log'")
        .flag("nocolor")
        .flag("nobanner")
        .flag("cli-no-banner")
        .value("log", "file")
        .value("exec", "file")
        .value("startup-config", "file")
        .flag("startup-atomic")
        .value("cli-listen", "path or host:port")
        .flag("cli-line-mode")
        .value("cli-idle-timeout", "seconds")
        .value("cli-prompt", "text")
        .value("cli-history-limit", "number")
        .flag("cli-no-pager")
        .value("cli-pager-buffer-limit", "number")
        .value("runtime-dir", "folder")
        .value("state-dir", "folder")
        .flag("use-current-dir")
        .value("poll-sleep-usec", "number")
        .value("watchdog", "seconds or off")
        .value("pidfile", "file")
        .value("gid", "group")
        .value("read-only-gid", "group")
        .value("user", "user")
        .value("capability", "name")
        .value("seccomp", "on, off or log")
        .value("landlock", "on or off")
        .value("allow-path", "file or folder")
        .flag("full-coredump")
        .value("coredump-size", "size")
        .without_effect("set the limit of core dumps where the router is started (ulimit -c, LimitCORE=)")
}

fn cpu() -> Section {
    Section::new("cpu")
        .value("main-core", "core")
        .list("corelist-workers", "list of cores")
        .value("coremask-workers", "mask")
        .value("workers", "number")
        .value("skip-cores", "number")
        .flag("relative")
        .value("scheduler-policy", "policy")
        .value("scheduler-priority", "number")
        .value("thread-prefix", "text")
        .without_effect("threads are called quiver_main and quiver_wk_0, quiver_wk_1, ...")
        .flag("use-pthreads")
        .without_effect("threads are the system's")
        .value("numa-heap-size", "size")
        .without_effect(NO_HEAP)
}

fn buffers() -> Section {
    Section::new("buffers")
        .value("buffers-per-numa", "number")
        .value("default data-size", "bytes")
        .value("page-size", "size")
        .named("numa", "node", Section::new("numa").value("buffers", "number"))
}

fn plugins() -> Section {
    let plugin = || Section::new("plugin").flag("enable").flag("disable").flag("skip-version-check").without_effect(BUILT_IN);
    Section::new("plugins")
        .value("path", "folders")
        .without_effect(BUILT_IN)
        .value("add-path", "folder")
        .without_effect(BUILT_IN)
        .value("name-filter", "text")
        .without_effect(BUILT_IN)
        .value("vat-path", "folders")
        .without_effect(BUILT_IN)
        .value("vat-name-filter", "text")
        .without_effect(BUILT_IN)
        .named("plugin", "name", plugin())
}

fn api_trace() -> Section {
    Section::new("api-trace").flag("on").flag("enable").flag("off").value("nitems", "number").value("save-api-table", "file")
}

fn logging() -> Section {
    let syslog = "logs go to standard error or the file of `unix { log }'";
    let class = Section::new("class")
        .value("level", "level")
        .value("rate-limit", "number")
        .value("syslog-level", "level")
        .without_effect(syslog)
        .value("kmsg-level", "level")
        .without_effect(syslog);
    Section::new("logging")
        .value("size", "number")
        .value("unthrottle-time", "seconds")
        .value("default-log-level", "level")
        .value("default-syslog-log-level", "level")
        .without_effect(syslog)
        .value("default-kmsg-log-level", "level")
        .without_effect(syslog)
        .flag("add-to-elog")
        .without_effect("the event log has its own events")
        .named("class", "name", class)
}

fn variant() -> Section {
    Section::new("node").value("variant", "name")
}

fn statseg() -> Section {
    Section::new("statseg")
        .value("socket-name", "path")
        .flag("default")
        .value("size", "size")
        .without_effect("the segment is as large as its counters")
        .value("page-size", "size")
        .without_effect("the segment is sparse, on small pages")
        .value("per-node-counters", "on or off")
        .without_effect("nodes are always counted")
        .value("update-interval", "seconds")
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
