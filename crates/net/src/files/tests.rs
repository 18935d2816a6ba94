use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

/// A folder with those of a router in it, gone with the value.
struct Bed {
    root: PathBuf,
    files: Files,
}

impl Bed {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("quiver-confined-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        for folder in ["read", "write", "outside"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let files = Files::open(&root.join("own"), &[root.join("read")], &[root.join("write")], None).unwrap();
        Self { root, files }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn find(&self, name: impl AsRef<Path>, what: Use) -> Result<Place, OpError> {
        self.files.find(name.as_ref(), what, false)
    }

    fn place(&self, name: &str) -> Place {
        self.find(name, Use::Write).unwrap()
    }

    /// Everything in the own folder.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(self.path("own")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[test]
fn plain_names_lie_in_the_own_folder_and_paths_in_those_that_are_allowed() {
    let bed = Bed::new("names");
    assert_eq!(bed.find("a.pcap", Use::Read).unwrap().path(), bed.path("own/a.pcap"));
    assert_eq!(bed.find("./a", Use::Write).unwrap().path(), bed.path("own/a"));
    for (name, read, write) in
        [("own/a", true, true), ("read/a", true, false), ("write/x/a", true, true), ("outside/a", false, false)]
    {
        let path = bed.path(name);
        assert_eq!(bed.find(&path, Use::Read).is_ok(), read, "{name}");
        assert_eq!(bed.find(&path, Use::Write).is_ok(), write, "{name}");
    }
    let error = bed.find("/tmp/x.pcap", Use::Write).unwrap_err().to_string();
    let own = bed.path("own");
    let own = own.display();
    assert_eq!(
        error,
        format!(
            "/tmp/x.pcap is outside of the folders for files; give a plain name, which goes to {own}, \
             or allow the folder in startup.conf: files {{ write /tmp }}"
        )
    );
    assert!(bed.find("/etc/shadow", Use::Read).unwrap_err().to_string().contains("files { read /etc }"));
    assert!(bed.find(bed.path("own"), Use::Write).is_err(), "a folder is no file");
    assert!(bed.find(bed.path("own-not"), Use::Write).is_err(), "whole names are compared");
}

#[test]
fn names_that_lead_elsewhere_or_are_none_are_refused_in_one_short_line() {
    let bed = Bed::new("bad");
    let long = "x".repeat(5000);
    for bad in ["", ".", "..", "../a", "a/../b", "a/", "a/.", "/", "a\0b", "a\nb", "a\x1b[2Jb", long.as_str()] {
        for what in [Use::Read, Use::Write] {
            let error = bed.find(bad, what).unwrap_err().to_string();
            assert!(error.contains("illegal characters") && !error.contains(char::is_control) && error.len() < 300, "{error}");
        }
    }
    // Long, but each part is possible for Linux, or refused by it.
    assert!(bed.place(&"y".repeat(300)).save(b"x").is_err());
    assert!(bed.names().is_empty());
}

#[test]
fn a_saved_file_is_whole_private_and_replaces_what_was_there() {
    let bed = Bed::new("save");
    bed.place("a").save(b"one").unwrap();
    bed.place("a").save(b"two").unwrap();
    let path = bed.path("own/a");
    assert_eq!(fs::read(&path).unwrap(), b"two");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(bed.path("own")).unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(bed.find("a", Use::Read).unwrap().read(3).unwrap(), b"two");
    assert!(bed.place("a").read(2).unwrap_err().to_string().contains("more than"));
    let mut unfinished = bed.place("b").create().unwrap();
    unfinished.write_all(b"x").unwrap();
    drop(unfinished);
    assert_eq!(bed.names(), ["a"]);
    assert!(bed.place("a").check_new().is_err() && bed.place("a").create_new().is_err());
    bed.place("c").create_new().unwrap().write_all(b"new").unwrap();
    assert_eq!(fs::read(bed.path("own/c")).unwrap(), b"new");
    assert_eq!(bed.names(), ["a", "c"]);
}

#[test]
fn who_may_use_the_sockets_may_read_what_commands_write() {
    let bed = Bed::new("group");
    // Our own group: it needs no rights to be given.
    let gid = rustix::process::getegid().as_raw();
    let files = Files::open(&bed.path("grouped"), &[], &[], Some(gid)).unwrap();
    files.find(Path::new("a"), Use::Write, false).unwrap().save(b"x").unwrap();
    let file = fs::metadata(bed.path("grouped/a")).unwrap();
    assert_eq!((file.permissions().mode() & 0o777, file.gid()), (0o640, gid));
}

#[test]
fn pipes_links_devices_sockets_and_folders_are_neither_read_nor_replaced() {
    let bed = Bed::new("odd");
    fs::write(bed.path("outside/secret"), "secret").unwrap();
    symlink(bed.path("outside/secret"), bed.path("own/link")).unwrap();
    symlink(bed.path("outside"), bed.path("own/door")).unwrap();
    assert!(Command::new("mkfifo").arg(bed.path("own/pipe")).status().unwrap().success());
    let _socket = UnixListener::bind(bed.path("own/socket")).unwrap();
    fs::create_dir(bed.path("own/folder")).unwrap();
    for name in ["link", "pipe", "socket", "folder"] {
        let error = bed.find(name, Use::Read).unwrap().open().unwrap_err();
        assert!(error.to_string().contains("is no plain file"), "{name}: {error}");
        let error = bed.place(name).save(b"x").unwrap_err();
        assert!(error.to_string().contains("is no plain file"), "{name}: {error}");
    }
    for what in [Use::Read, Use::Write] {
        let place = bed.find("door/secret", what).unwrap();
        let error = if what == Use::Read { place.open().map(drop) } else { place.save(b"x") }.unwrap_err();
        let text = place.cannot("use", &error).to_string();
        assert!(text.contains("symbolic link") || text.contains("Not a directory"), "{text}");
    }
    assert_eq!(fs::read(bed.path("outside/secret")).unwrap(), b"secret");
    assert_eq!(bed.names(), ["door", "folder", "link", "pipe", "socket"]);
}

#[test]
fn what_comes_to_a_name_while_the_file_is_written_is_replaced_or_refused_never_followed() {
    let bed = Bed::new("swap");
    fs::write(bed.path("outside/secret"), "secret").unwrap();
    let mut file = bed.place("a").create().unwrap();
    file.write_all(b"x").unwrap();
    symlink(bed.path("outside/secret"), bed.path("own/a")).unwrap();
    assert!(file.finish().is_err());
    assert_eq!(bed.names(), ["a"]);
    // A hard link is a plain file: its name is taken, what it is linked to stays as it is.
    fs::remove_file(bed.path("own/a")).unwrap();
    fs::hard_link(bed.path("outside/secret"), bed.path("own/a")).unwrap();
    bed.place("a").save(b"new").unwrap();
    assert_eq!(fs::read(bed.path("outside/secret")).unwrap(), b"secret");
    assert_eq!(fs::read(bed.path("own/a")).unwrap(), b"new");
    // The folder itself is renamed away and a link comes in its place: what is open stays what it is.
    fs::rename(bed.path("own"), bed.path("moved")).unwrap();
    symlink(bed.path("outside"), bed.path("own")).unwrap();
    bed.place("b").save(b"new").unwrap();
    assert!(bed.path("moved/b").exists() && !bed.path("outside/b").exists());
}

#[test]
fn the_operators_own_files_lie_anywhere_and_are_still_plain_files() {
    let bed = Bed::new("operator");
    fs::write(bed.path("outside/script"), "x").unwrap();
    symlink("script", bed.path("outside/current")).unwrap();
    let find = |name: &Path, what| bed.files.find(name, what, true).unwrap();
    assert_eq!(find(&bed.path("outside/current"), Use::Read).read(10).unwrap(), b"x");
    find(&bed.path("outside/made"), Use::Write).save(b"y").unwrap();
    assert_eq!(fs::read(bed.path("outside/made")).unwrap(), b"y");
    assert!(find(Path::new("/dev/null"), Use::Write).save(b"y").is_err());
    assert!(find(Path::new("/dev/zero"), Use::Read).open().is_err());
    assert!(bed.files.find(Path::new("/tmp/../x"), Use::Read, true).is_err());
}

#[test]
fn what_a_killed_router_left_is_gone_after_the_next_start() {
    let bed = Bed::new("left");
    std::mem::forget(bed.place("a").create().unwrap());
    fs::write(bed.path("own/.quiver-mine"), "x").unwrap();
    assert_eq!(bed.names().len(), 2);
    Files::open(&bed.path("own"), &[], &[], None).unwrap();
    assert_eq!(bed.names(), [".quiver-mine"]);
    let (path, _) = Files::open(&bed.path("own"), &[bed.path("missing")], &[], None).unwrap_err();
    assert_eq!(path, bed.path("missing"));
}
