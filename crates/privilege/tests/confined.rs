//! What a confined process can no longer do, shown by processes that try.
//!
//! This program starts itself once for each case. There is no test harness: its threads would keep their rights.
#![forbid(unsafe_code)]

use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use nix::sys::resource::Resource;
use quiver_privilege::account::Account;
use quiver_privilege::confine::{Plan, confine};
use quiver_privilege::landlock::Allowed;
use quiver_privilege::seccomp::{self, Mode, Who};
use quiver_privilege::{capability, status::Status};

/// Which case this process is.
const CASE: &str = "QUIVER_CONFINED_CASE";
/// Bad system call.
const SIGSYS: i32 = 31;

/// A case: its name, whether it is possible here, and how its process is to end.
type Case<'a> = (&'a str, bool, &'a dyn Fn(ExitStatus) -> bool);

fn calls(who: Who, mode: Mode) -> Plan {
    Plan { calls: Some(seccomp::Plan { who, mode }), ..Plan::default() }
}

fn router() -> Plan {
    calls(Who::Router { libraries: false, loads: false }, Mode::On)
}

fn run_true() -> std::io::Error {
    Command::new("/bin/true").exec()
}

fn child(case: &str) {
    match case {
        "plain work goes on" => {
            confine(&router()).unwrap();
            let thread = std::thread::spawn(|| Status::now().unwrap());
            let status = thread.join().unwrap();
            assert!(status.no_new_privs && status.seccomp == "filter" && status.seccomp_filters >= 2, "{status:?}");
            UdpSocket::bind("127.0.0.1:0").unwrap();
            let file = std::env::temp_dir().join(format!("quiver-confined-{}", std::process::id()));
            std::fs::write(&file, "x").unwrap();
            std::fs::remove_file(&file).unwrap();
        }
        "no program is run" => panic!("still here: {}", confine(&router()).map(|_| run_true()).unwrap()),
        "the helper runs no program either" => {
            panic!("still here: {}", confine(&calls(Who::Helper, Mode::On)).map(|_| run_true()).unwrap())
        }
        "no root folder is changed" => {
            confine(&router()).unwrap();
            panic!("still here: {:?}", std::os::unix::fs::chroot("/"));
        }
        "no process is made" => {
            confine(&router()).unwrap();
            let error = Command::new("/bin/true").spawn().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOSYS), "{error}");
        }
        "other families of sockets are refused" => {
            use rustix::net::{AddressFamily, SocketType, socket};
            confine(&router()).unwrap();
            socket(AddressFamily::INET6, SocketType::DGRAM, None).unwrap();
            for family in [AddressFamily::VSOCK, AddressFamily::BLUETOOTH] {
                assert_eq!(socket(family, SocketType::STREAM, None).unwrap_err(), rustix::io::Errno::NOSYS);
            }
        }
        "users stay what they are" => {
            confine(&router()).unwrap();
            let me = nix::unistd::getuid();
            assert_eq!(nix::unistd::setresuid(me, me, me), Err(nix::Error::ENOSYS));
        }
        "in log mode all is let through" => {
            confine(&calls(Who::Router { libraries: false, loads: false }, Mode::Log)).unwrap();
            panic!("{}", run_true());
        }
        "files outside are closed" => files(),
        "another user with some capabilities" => another_user(),
        "user 0 without capabilities" => {
            let root = Account::find("0").unwrap();
            confine(&Plan { account: Some(root), ..Plan::default() }).unwrap();
            let status = Status::now().unwrap();
            assert!(status.effective.is_empty() && status.permitted.is_empty() && status.bounding.is_empty(), "{status:?}");
        }
        _ => panic!("no case {case}"),
    }
}

fn files() {
    let folder = std::env::temp_dir().join(format!("quiver-files-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("in")).unwrap();
    for file in ["in/a", "out"] {
        std::fs::write(folder.join(file), "text").unwrap();
    }
    let listed = vec![Allowed::write(folder.join("in")), Allowed::read("/proc/self"), Allowed::read(folder.join("is-not-there"))];
    let done = confine(&Plan { files: Some(listed), ..Plan::default() }).unwrap();
    let outcome = std::panic::catch_unwind(|| {
        std::fs::read(folder.join("in/a")).unwrap();
        std::fs::write(folder.join("in/b"), "new").unwrap();
        std::fs::remove_file(folder.join("in/b")).unwrap();
        Status::now().unwrap();
        let Some(version) = done.landlock else {
            println!("    not shown: {}", done.notices.join("; "));
            return;
        };
        let refused = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        refused(std::fs::read(folder.join("out")).unwrap_err());
        refused(std::fs::write(folder.join("new"), "x").unwrap_err());
        refused(std::fs::read("/etc/passwd").unwrap_err());
        refused(std::fs::read_dir("/").map(drop).unwrap_err());
        std::thread::spawn(|| std::fs::read("/etc/passwd").unwrap_err()).join().map(refused).unwrap();
        if version >= 4 {
            refused(TcpListener::bind("127.0.0.1:0").map(drop).unwrap_err());
            // For routing daemons; somebody else's may be there.
            if let Err(error) = TcpListener::bind("127.0.0.1:2620") {
                assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
            }
        }
    });
    // Its parent removes the folder: it is closed to us.
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

fn another_user() {
    let secret = PathBuf::from(std::env::var_os("QUIVER_SECRET").unwrap());
    std::fs::read(&secret).unwrap();
    let account = Account { name: "other".into(), uid: 65_534, gid: 65_534 };
    let plan = Plan { account: Some(account), groups: vec![987_654], keep: capability::ROUTER, priority: 50, ..router() };
    let done = confine(&plan).unwrap();
    assert_eq!(done.notices, [""; 0]);
    let status = std::thread::spawn(|| Status::now().unwrap()).join().unwrap();
    assert_eq!((status.uid, status.gid, status.groups.as_slice()), (65_534, 65_534, &["987654".to_owned()][..]));
    // Where the machine does not let limits be raised, their capabilities stay.
    let limit = |which| nix::sys::resource::getrlimit(which).unwrap().0;
    let mut expected = vec!["net_admin", "net_raw"];
    if limit(Resource::RLIMIT_MEMLOCK) != nix::sys::resource::RLIM_INFINITY {
        expected.push("ipc_lock");
    }
    if limit(Resource::RLIMIT_RTPRIO) < 50 {
        expected.push("sys_nice");
    }
    for set in [&status.effective, &status.permitted, &status.bounding] {
        assert_eq!(*set, expected, "{status:?}");
    }
    assert!(status.ambient.is_empty() && status.no_new_privs);
    assert_eq!(std::fs::read(&secret).unwrap_err().kind(), ErrorKind::PermissionDenied);
}

/// Runs a case and says how it ended.
fn try_case(case: &str, secret: &Path) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(CASE, case).env("QUIVER_SECRET", secret).status().unwrap()
}

fn main() -> ExitCode {
    if let Ok(case) = std::env::var(CASE) {
        child(&case);
        return ExitCode::SUCCESS;
    }
    // What cargo asks a harness for: there is nothing to list, and no name that leaves any case out.
    if std::env::args().any(|word| word == "--list") {
        return ExitCode::SUCCESS;
    }
    let secret = std::env::temp_dir().join(format!("quiver-secret-{}", std::process::id()));
    std::fs::write(&secret, "secret").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (ends, killed) = (|status: ExitStatus| status.success(), |status: ExitStatus| status.signal() == Some(SIGSYS));
    let root = rustix::process::geteuid().is_root();
    let cases: [Case<'_>; 11] = [
        ("plain work goes on", true, &ends),
        ("no program is run", true, &killed),
        ("the helper runs no program either", true, &killed),
        ("no root folder is changed", true, &killed),
        ("no process is made", true, &ends),
        ("other families of sockets are refused", true, &ends),
        ("users stay what they are", true, &ends),
        ("in log mode all is let through", true, &ends),
        ("files outside are closed", true, &ends),
        ("another user with some capabilities", root, &ends),
        ("user 0 without capabilities", root, &ends),
    ];
    let mut failed = 0;
    for (case, possible, expected) in cases {
        if !possible {
            println!("test {case} ... SKIPPED: needs root");
            continue;
        }
        let status = try_case(case, &secret);
        let good = expected(status);
        println!("test {case} ... {}", if good { "ok".to_owned() } else { format!("FAILED: {status}") });
        failed += u8::from(!good);
    }
    std::fs::remove_file(&secret).unwrap();
    for entry in std::fs::read_dir(std::env::temp_dir()).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("quiver-files-") {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
