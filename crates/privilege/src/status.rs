//! What holds now, as the kernel tells it.

use std::io;
use std::path::Path;

use serde::Serialize;

use crate::{account, capability};

/// A thread's rights, from `/proc/…/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Effective user.
    pub user: String,
    /// Its number.
    pub uid: u32,
    /// Effective group.
    pub group: String,
    /// Its number.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<String>,
    /// Capabilities in force.
    pub effective: Vec<String>,
    /// Those that may be put in force.
    pub permitted: Vec<String>,
    /// Those that a program that is run could have.
    pub bounding: Vec<String>,
    /// Those that a program that is run would have.
    pub ambient: Vec<String>,
    /// No program that is run gains rights.
    pub no_new_privs: bool,
    /// `disabled`, `strict` or `filter`.
    pub seccomp: &'static str,
    /// How many filters are in force.
    pub seccomp_filters: u32,
}

impl Status {
    /// Of the calling process' first thread.
    ///
    /// # Errors
    /// No `/proc`.
    pub fn now() -> io::Result<Self> {
        Self::read(Path::new("/proc/self/status"))
    }

    /// Of a process or thread whose status file this is.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read_to_string(path)?))
    }

    fn parse(text: &str) -> Self {
        let field = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.map(str::trim).unwrap_or_default()
        };
        let number = |key, place: usize| field(key).split_whitespace().nth(place).and_then(|word| word.parse().ok()).unwrap_or(0);
        let set = |key| capability::names(u64::from_str_radix(field(key), 16).unwrap_or(0));
        // Real, effective, saved, of files.
        let (uid, gid) = (number("Uid", 1), number("Gid", 1));
        let groups = field("Groups").split_whitespace().filter_map(|word| word.parse().ok()).map(account::group_name);
        Self {
            user: account::user_name(uid),
            uid,
            group: account::group_name(gid),
            gid,
            groups: groups.collect(),
            effective: set("CapEff"),
            permitted: set("CapPrm"),
            bounding: set("CapBnd"),
            ambient: set("CapAmb"),
            no_new_privs: number("NoNewPrivs", 0) == 1,
            seccomp: match number("Seccomp", 0) {
                0 => "disabled",
                1 => "strict",
                _ => "filter",
            },
            seccomp_filters: number("Seccomp_filters", 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        let text = "Name:\tquiver\nUid:\t0\t987654\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t987655 987656 \nCapInh:\t0\n\
                    CapPrm:\t0000000000003000\nCapEff:\t0000000000002000\nCapBnd:\t0000000000003000\nCapAmb:\t0000000000000000\n\
                    NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        let status = Status::parse(text);
        assert_eq!((status.user.as_str(), status.uid, status.group.as_str()), ("987654", 987_654, "root"));
        assert_eq!(status.groups, ["987655", "987656"]);
        assert_eq!((status.permitted.len(), status.effective.as_slice()), (2, &["net_raw".to_owned()][..]));
        assert!(status.no_new_privs && status.ambient.is_empty());
        assert_eq!((status.seccomp, status.seccomp_filters), ("filter", 3));
        assert_eq!(Status::parse("").uid, 0);
    }

    #[test]
    fn this_process_is_read() {
        let status = Status::now().unwrap();
        assert_eq!(status.uid, rustix::process::geteuid().as_raw());
    }
}
