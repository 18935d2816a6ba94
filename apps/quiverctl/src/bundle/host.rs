//! What the kernel says of the machine and of the router's process, and what other programs say.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::Collector;
use super::archive::ENTRY;

/// Longest time for one program.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes at the end of a log.
const LOG: u64 = 2 << 20;
/// Threads that are looked at.
const THREADS: usize = 512;

/// Files by subject; `*` stands for all names of a folder.
const MACHINE: [(&str, &[&str]); 5] = [
    (
        "system",
        &[
            "etc/os-release",
            "proc/version",
            "proc/cmdline",
            "proc/uptime",
            "proc/loadavg",
            "proc/modules",
            "sys/class/dmi/id/sys_vendor",
            "sys/class/dmi/id/product_name",
            "sys/kernel/security/lsm",
            "proc/pressure/*",
        ],
    ),
    (
        "memory",
        &[
            "proc/meminfo",
            "sys/kernel/mm/transparent_hugepage/enabled",
            "sys/kernel/mm/hugepages/*/nr_hugepages",
            "sys/kernel/mm/hugepages/*/free_hugepages",
            "sys/kernel/mm/hugepages/*/resv_hugepages",
            "sys/devices/system/node/online",
            "sys/devices/system/node/*/meminfo",
            "sys/devices/system/node/*/cpulist",
            "sys/devices/system/node/*/distance",
        ],
    ),
    (
        "processors",
        &[
            "proc/cpuinfo",
            "sys/devices/system/cpu/online",
            "sys/devices/system/cpu/isolated",
            "sys/devices/system/cpu/nohz_full",
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "sys/devices/system/cpu/vulnerabilities/*",
            "proc/interrupts",
            "proc/softirqs",
            "proc/stat",
        ],
    ),
    ("network", &["proc/net/dev", "proc/net/softnet_stat", "proc/net/protocols", "proc/net/packet"]),
    (
        "limits",
        &["proc/sys/vm/nr_hugepages", "proc/sys/vm/max_map_count", "proc/sys/fs/nr_open", "proc/sys/kernel/perf_event_paranoid"],
    ),
];

/// Of the router's process.
const PROCESS: [&str; 8] = ["status", "limits", "cgroup", "cmdline", "stat", "schedstat", "oom_score_adj", "io"];
const THREAD: [&str; 4] = ["comm", "stat", "schedstat", "wchan"];
const CGROUP: [&str; 9] = [
    "cpu.max",
    "cpu.stat",
    "cpu.weight",
    "cpuset.cpus.effective",
    "memory.max",
    "memory.high",
    "memory.current",
    "memory.events",
    "pids.max",
];

/// Adds the files of the machine below `root`.
pub fn machine(to: &mut Collector, root: &Path) {
    for (name, patterns) in MACHINE {
        let mut text = String::new();
        patterns.iter().for_each(|pattern| sections(&mut text, root, pattern));
        to.add(&format!("host/{name}.txt"), &text);
    }
}

/// Adds what the kernel says of a process, its threads and its limits.
pub fn process(to: &mut Collector, root: &Path, pid: u32) {
    let (folder, mut text) = (format!("proc/{pid}"), String::new());
    PROCESS.iter().for_each(|name| sections(&mut text, root, &format!("{folder}/{name}")));
    let mut threads = names(&root.join(&folder).join("task"));
    threads.truncate(THREADS);
    for thread in threads {
        THREAD.iter().for_each(|name| sections(&mut text, root, &format!("{folder}/task/{thread}/{name}")));
    }
    to.add("router/process.txt", &text);
    let group = fs::read_to_string(root.join(&folder).join("cgroup")).unwrap_or_default();
    let Some(group) = group.lines().find_map(|line| line.strip_prefix("0::/")) else { return };
    let mut text = String::new();
    // Limits of the groups above hold too.
    let mut path = PathBuf::from("sys/fs/cgroup").join(group);
    while path.starts_with("sys/fs/cgroup") {
        CGROUP.iter().for_each(|name| sections(&mut text, root, &path.join(name).to_string_lossy()));
        path.pop();
    }
    to.add("router/cgroup.txt", &text);
}

/// Adds what other programs say, as far as they are there.
pub fn programs(to: &mut Collector, statistics: Option<&Path>) {
    let journal: &[&str] = &["-u", "quiver", "-u", "quiver-metrics", "-n", "5000", "--no-pager", "-o", "short-iso-precise"];
    let mut programs: Vec<(&str, PathBuf, Vec<String>)> = Vec::new();
    let mut program = |file, name: &str, words: &[&str]| {
        programs.push((file, name.into(), words.iter().map(|word| (*word).to_owned()).collect()));
    };
    program("router/journal.txt", "journalctl", journal);
    program("router/service.txt", "systemctl", &["show", "quiver", "--no-pager"]);
    program("host/links.txt", "ip", &["-s", "-d", "link"]);
    program("host/devices.txt", "lspci", &["-nnk"]);
    if let Some(socket) = statistics {
        let beside = std::env::current_exe().ok().map(|this| this.with_file_name("quiver-metrics")).filter(|file| file.exists());
        let words = vec!["--once".to_owned(), "--socket".to_owned(), socket.to_string_lossy().into_owned()];
        programs.push(("router/statistics.txt", beside.unwrap_or_else(|| "quiver-metrics".into()), words));
    }
    for (file, program, words) in programs {
        let Some(patience) = to.left(PATIENCE) else { return to.problem(format!("{file}: no time was left")) };
        match run(&program, &words, patience) {
            Ok(text) => to.add(file, &text),
            Err(error) => to.problem(format!("{file}: {}: {error}", program.display())),
        }
    }
}

/// Adds `startup.conf`, and the end of the log file that it names.
pub fn configuration(to: &mut Collector, startup: &Path) {
    let text = match fs::read_to_string(startup) {
        Ok(text) => text,
        Err(error) => return to.problem(format!("startup.conf: {}: {error}", startup.display())),
    };
    to.add("router/startup.conf", &text);
    let words: Vec<_> = text.lines().flat_map(|line| line.split('#').next().unwrap_or_default().split_whitespace()).collect();
    for pair in words.windows(2) {
        let [key, file] = pair else { continue };
        if *key != "log" || !file.starts_with('/') {
            continue;
        }
        match tail(Path::new(file)) {
            Ok(text) => to.add("router/log.txt", &text),
            Err(error) => to.problem(format!("log: {file}: {error}")),
        }
    }
}

/// Adds the files of a pattern, each under its name. What cannot be read is left out.
fn sections(text: &mut String, root: &Path, pattern: &str) {
    let Some((folder, rest)) = pattern.split_once('*') else { return section(text, root, pattern) };
    for name in names(&root.join(folder)) {
        section(text, root, &format!("{folder}{name}{rest}"));
    }
}

fn section(text: &mut String, root: &Path, path: &str) {
    let mut bytes = Vec::new();
    let is_read = File::open(root.join(path)).and_then(|file| file.take(ENTRY as u64).read_to_end(&mut bytes));
    if is_read.is_err() || bytes.is_empty() || text.len() > ENTRY {
        return;
    }
    let content = String::from_utf8_lossy(&bytes).replace('\0', " ");
    let _ = writeln!(text, "== /{path}\n{}\n", content.trim_end());
}

/// Names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn tail(file: &Path) -> std::io::Result<String> {
    let mut file = File::open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG)))?;
    let mut bytes = Vec::new();
    file.take(LOG).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What a program prints, if it ends in time.
fn run(program: &Path, words: &[String], patience: Duration) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let Some(out) = child.stdout.take() else { return Err("no output".to_owned()) };
    let (send, receive) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = out.take(ENTRY as u64).read_to_end(&mut bytes);
        let _ = send.send(bytes);
    });
    let end = Instant::now() + patience;
    let bytes = receive.recv_timeout(patience);
    // It has closed its output, or says too much, or takes too long.
    while bytes.is_ok() && Instant::now() < end && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(Duration::from_millis(5));
    }
    let ended = child.try_wait();
    if !matches!(ended, Ok(Some(_))) {
        let _ = child.kill();
        let _ = child.wait();
    }
    match bytes {
        Ok(bytes) if !bytes.is_empty() => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Ok(_) => match ended {
            Ok(Some(status)) if status.success() => Ok(String::new()),
            Ok(Some(status)) => Err(status.to_string()),
            _ => Err("it says nothing".to_owned()),
        },
        Err(_) => Err(format!("it does not end within {} s", patience.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_run_for_a_time_and_no_longer() {
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let long = Duration::from_secs(120);
        assert_eq!(run(Path::new("echo"), &words(&["a", "b"]), long).unwrap(), "a b\n");
        assert!(run(Path::new("/nonexistent"), &[], long).is_err());
        assert!(run(Path::new("false"), &[], long).unwrap_err().contains("exit status"));
        let error = run(Path::new("sleep"), &words(&["1000"]), Duration::from_millis(20)).unwrap_err();
        assert!(error.contains("does not end"), "{error}");
    }

    #[test]
    fn files_of_a_pattern_have_their_names_in_front() {
        let root = std::env::temp_dir().join(format!("quiverctl-host-{}", std::process::id()));
        for (name, text) in [("sys/a/x", "1\n"), ("sys/b/x", "2\0three"), ("sys/b/y", "no")] {
            let file = root.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let mut text = String::new();
        sections(&mut text, &root, "sys/*/x");
        sections(&mut text, &root, "sys/missing");
        assert_eq!(text, "== /sys/a/x\n1\n\n== /sys/b/x\n2 three\n\n");
        fs::remove_dir_all(root).unwrap();
    }
}
