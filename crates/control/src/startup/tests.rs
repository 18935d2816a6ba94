//! What each key gives, and what is said about wrong ones. What they do is tested with the program itself.

use super::*;

fn read(text: &str) -> StartupConfig {
    StartupConfig::read(&schema(), Source::file("f", text)).unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    StartupConfig::read(&schema(), Source::file("f", text)).err().unwrap_or_else(|| panic!("{text}: no error")).to_string()
}

#[test]
fn nothing_said_gives_the_defaults() {
    let startup = StartupConfig::defaults().unwrap();
    assert!(!startup.unix.nodaemon && !startup.unix.interactive && startup.unix.cli_listen.is_empty());
    assert_eq!(startup.unix.runtime_dir, Path::new("/run/quiver"));
    assert_eq!(startup.cpu.request, PlacementRequest::default());
    assert_eq!((startup.buffers.per_numa, startup.buffers.page_size), (None, PageSize::Default));
    assert_eq!(startup.stats_interval, Duration::from_secs(10));
    assert!(startup.notices.is_empty());
}

#[test]
fn the_usual_file_of_vpp_is_understood() {
    let startup = read(
        "unix {\n  nodaemon\n  log /var/log/vpp/vpp.log\n  full-coredump\n  cli-listen /run/vpp/cli.sock\n  gid vpp\n}\n\
         api-trace {\n## comment\n  on\n}\napi-segment {\n  gid vpp\n}\nsocksvr {\n  default\n}\n\
         cpu {\n\t# main-core 1\n}\nstatseg {\n  size 32M\n}\nplugins {\n  plugin dpdk_plugin.so { disable }\n}\n\
         dpdk { dev 0000:02:00.0 { num-rx-queues 2 } uio-driver vfio-pci }\n",
    );
    assert!(startup.unix.nodaemon && startup.api_trace.on);
    assert_eq!(startup.unix.log.as_deref(), Some(Path::new("/var/log/vpp/vpp.log")));
    assert_eq!(startup.unix.cli_listen[0].0, Listen::Unix("/run/vpp/cli.sock".into()));
    assert_eq!(startup.unix.gid.unwrap().text(), "vpp");
    assert_eq!(startup.notices.len(), 3, "{:?}", startup.notices);
    assert!(startup.unix.rights.core_dump && startup.unix.rights.user.is_none());
}

#[test]
fn interactive_stays_in_the_foreground() {
    let startup = read("unix { interactive cli-listen 127.0.0.1:5002 }");
    assert!(startup.unix.nodaemon);
    assert_eq!(startup.unix.cli_listen[0].0, Listen::Tcp { host: "127.0.0.1".into(), port: 5002 });
}

#[test]
fn workers_are_a_number_a_list_or_a_mask() {
    let workers = |text: &str| read(&format!("cpu {{ {text} }}")).cpu.request;
    assert_eq!(workers("main-core 2 workers 3"), PlacementRequest { main_core: Some(2), workers: Some(3), ..Default::default() });
    let list = PlacementRequest { main_core: Some(1), corelist: Some(vec![4, 6]), ..Default::default() };
    assert_eq!(workers("main-core 1 corelist-workers 4, 6"), list);
    assert_eq!(workers("main-core 1 corelist-workers 4,6"), list);
    assert_eq!(workers("main-core 1 coremask-workers 0x50"), list);
    assert_eq!(workers("skip-cores 4 main-core 5").skip_cores, 4);
    assert!(error("cpu { corelist-workers 1 coremask-workers 2 }").contains("exclude each other"));
    assert!(error("cpu { main-core x }").starts_with("f:1:17: invalid value `x' for `main-core'"));
}

#[test]
fn real_time_policies_have_priorities_and_others_have_none() {
    let cpu = |text: &str| read(&format!("cpu {{ {text} }}")).cpu;
    let fifo = cpu("scheduler-policy fifo scheduler-priority 50");
    assert_eq!((fifo.policy, fifo.priority), (SchedulerPolicy::Fifo, 50));
    assert_eq!((cpu("scheduler-policy rr").priority, cpu("scheduler-policy batch").priority), (1, 0));
    assert!(error("cpu { scheduler-priority 50 }").contains("has no meaning with policy `other'"));
    assert!(error("cpu { scheduler-policy fifo scheduler-priority 100 }").contains("1 to 99"));
    assert!(error("cpu { scheduler-policy fifi }").contains("did you mean `fifo'?"));
}

#[test]
fn buffers_have_a_number_a_size_and_pages() {
    let buffers = |text: &str| read(&format!("buffers {{ {text} }}")).buffers;
    let all = buffers("buffers-per-numa 32000 default data-size 9000 page-size 1G");
    assert_eq!((all.per_numa, all.data_size, all.page_size), (Some(32_000), Some(9000), PageSize::Gb1));
    assert_eq!(buffers("page-size 4K").page_size, PageSize::Kb4);
    assert_eq!(
        (buffers("page-size 2m").page_size, buffers("page-size default-hugepage").page_size),
        (PageSize::Mb2, PageSize::Mb2)
    );
    assert_eq!(buffers("numa 0 { buffers 10 } numa 1 { buffers 70 }").per_numa, Some(70));
    assert!(error("buffers { page-size 3M }").contains("4K, 2M, 1G"));
    assert!(error("buffers { default data-size 20000 }").contains("256 to 16384"));
    assert!(error("buffers { buffers-per-numa 0 }").contains("from 1 to"));
}

#[test]
fn forwarding_tables_have_copies_where_it_is_asked_for() {
    assert!(
        read("ip { fib-per-numa }").fib_per_numa && !read("ip { default-table-name main }").fib_per_numa && !read("").fib_per_numa
    );
    assert!(error("ip { fib-per-node }").contains("did you mean `fib-per-numa'?"));
}

#[test]
fn plugins_are_switched_one_by_one_or_all() {
    let plugins =
        read("plugins { path /usr/lib plugin default { disable } plugin a.so { enable } plugin b.so { disable } }").plugins;
    assert_eq!(plugins.default, Some(false));
    let named: Vec<_> = plugins.named.iter().map(|(name, on)| (name.text(), *on)).collect();
    assert_eq!(named, [("a.so", true), ("b.so", false)]);
}

#[test]
fn the_api_trace_is_on_off_or_left_alone() {
    assert_eq!(read("api-trace { on nitems 100 }").api_trace, ApiTrace { on: true, items: Some(100) });
    assert!(read("api-trace { enable }").api_trace.on);
    assert!(!read("api-trace { on off }").api_trace.on && !read("api-trace { }").api_trace.on);
}

#[test]
fn logging_has_levels_by_class() {
    let logging = read("logging { size 100 default-log-level warn class ip/neighbor { level debug rate-limit 7 } }").logging;
    assert_eq!((logging.size, logging.level), (Some(100), Some(Level::Warn)));
    assert_eq!(logging.classes, [("ip/neighbor".to_owned(), Some(Level::Debug), Some(7))]);
    assert!(error("logging { default-log-level loud }").contains("expected"));
}

#[test]
fn nodes_have_variants() {
    let startup = read("node { default { variant v2 } ip4-lookup { variant v3 } }");
    let variants: Vec<_> = startup.node_variants.iter().map(|(name, value)| (name.as_str(), value.text())).collect();
    assert_eq!(variants, [("default", "v2"), ("ip4-lookup", "v3")]);
}

#[test]
fn an_unknown_word_is_shown_with_its_place_and_a_suggestion() {
    assert_eq!(
        error("unix { }\ncpu {\n  main-cor 1\n}"),
        "f:3:3: unknown key `main-cor' in section `cpu'; did you mean `main-core'?"
    );
    assert!(error("bufers { }").contains("did you mean `buffers'?"));
    assert!(error("unix { poll-sleep-usec 9999999 }").contains("0 to 1000000"));
    assert!(error("statseg { update-interval 0 }").contains("0.001 to 3600"));
}

#[test]
fn folders_of_files_are_listed_and_may_be_several() {
    let conf = read("files { folder /var/lib/q read /a write /b read /c } unix { gid 7 read-only-gid 8 }");
    let paths = |all: &[&str]| all.iter().map(Into::into).collect::<Vec<PathBuf>>();
    assert_eq!(conf.files.folder.as_deref(), Some(Path::new("/var/lib/q")));
    assert_eq!((conf.files.read, conf.files.write), (paths(&["/a", "/c"]), paths(&["/b"])));
    assert_eq!(conf.unix.read_only_gid.unwrap().text(), "8");
    assert_eq!(read("").files, FileFolders::default());
}

#[test]
fn a_user_brings_limits_that_can_be_switched_off_one_by_one() {
    use quiver_privilege::seccomp::Mode;
    let rights = |text: &str| read(&format!("unix {{ {text} }}")).unix.rights;
    let none = rights("");
    assert!(none.user.is_none() && none.seccomp.is_none() && !none.landlock && none.capabilities.is_empty());
    let usual = rights("user quiver gid quiver allow-path /a allow-path /b capability perfmon capability sys_nice");
    assert_eq!(usual.user.as_ref().map(|user| user.text()), Some("quiver"));
    assert_eq!((usual.seccomp, usual.landlock, usual.capabilities.as_slice()), (Some(Mode::On), true, &[0, 2][..]));
    assert_eq!(usual.paths, [Path::new("/a"), Path::new("/b")]);
    let bare = rights("user 998 seccomp off landlock off");
    assert!(bare.seccomp.is_none() && !bare.landlock);
    assert_eq!(rights("seccomp log").seccomp, Some(Mode::Log));
    assert!(error("unix { seccomp maybe }").contains("`maybe'"));
    assert!(error("unix { capability sys_admin }").contains("`sys_admin'"));
}

/// What of a configuration has a default in the reference, with those that others fill in.
fn with_defaults(startup: &StartupConfig) -> String {
    let session = quiver_command::session::SessionOptions::default();
    let region = quiver_buffer::RegionConfig::default();
    let log = crate::log::Settings::default();
    let (unix, cpu, buffers, logging) = (&startup.unix, &startup.cpu, &startup.buffers, &startup.logging);
    let rate = logging.classes.first().and_then(|(_, _, rate)| *rate);
    let parts = [
        format!("{:?} {:?} {:?} {:?}", unix.idle_timeout, unix.poll_sleep, unix.watchdog, unix.runtime_dir),
        format!("{:?}", unix.warm_restart),
        unix.prompt.clone().unwrap_or(session.prompt).trim_end().to_owned(),
        format!("{:?}", unix.history_limit.unwrap_or(session.history_limit)),
        format!("{:?}", unix.pager_limit.unwrap_or(session.pager_limit)),
        format!("{:?} {:?}", cpu.request.skip_cores, cpu.policy),
        format!("{:?}", buffers.per_numa.unwrap_or(region.buffers_per_numa)),
        format!("{:?} {:?}", buffers.data_size.unwrap_or(region.data_size), buffers.page_size),
        format!("{:?}", logging.size.unwrap_or(log.size)),
        format!("{:?} {:?}", logging.unthrottle.unwrap_or(log.unthrottle), logging.level.unwrap_or(log.level)),
        format!("{:?}", rate.unwrap_or(log.rate_limit)),
        format!("{:?}", startup.api_trace.items.unwrap_or(quiver_net::api::MESSAGES as u32)),
        format!("{:?} {:?}", startup.stats_interval, startup.api_idle_timeout),
        format!("{:?} {:?}", startup.rx_mode, startup.memif),
    ];
    parts.join("\n")
}

#[test]
fn a_default_in_the_reference_is_what_holds_where_nothing_is_said() {
    let nothing = with_defaults(&StartupConfig::defaults().unwrap());
    let reference = schema().reference();
    let mut seen = 0;
    for section in &reference.sections {
        for key in section.effective() {
            let Some(default) = key.default else { continue };
            // `class <name> { rate-limit <number> }`: one group, and the last value is the key's.
            let line = |value: &str| {
                let place = key.written.rfind('<').unwrap_or(key.written.len());
                let after = key.written[place..].find('>').map_or("", |end| &key.written[place + end + 1..]);
                format!("{} {{ {}{value}{after} }}", section.name, key.written[..place].replace("<name>", "x"))
            };
            assert_eq!(with_defaults(&read(&line(default))), nothing, "{}", line(default));
            // The comparison is of what the key sets: another value differs.
            if let Ok(number) = default.parse::<u64>() {
                let other = line(&(number + 1).to_string());
                assert_ne!(with_defaults(&read(&other)), nothing, "{other}");
            }
            seen += 1;
        }
    }
    assert!(seen > 15, "{seen}");
}

#[test]
fn every_section_and_key_says_what_it_does() {
    assert!(schema().reference().undescribed().is_empty(), "{:?}", schema().reference().undescribed());
}
