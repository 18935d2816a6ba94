//! systemd's journal by its native protocol: a datagram for each line, with fields that `journalctl` can select by.
//!
//! ```text
//!   MESSAGE=interface: link of eth0 is down     what journalctl shows
//!   PRIORITY=5                                  -p notice
//!   SYSLOG_IDENTIFIER=quiver                    -t quiver
//!   QUIVER_CLASS=interface                      the class, as `show logging` has it
//!   INTERFACE=eth0                              an event's field `interface`, named as systemd-networkd has it
//!   QUIVER_STATE=down                           its other fields
//! ```
//!
//! A value is one line here, so the form of the protocol for longer ones is not needed. Unit, process and user are added by the journal, which
//! asks the kernel. The thread of the log sends; whoever logs does not wait. `tracing-journald` would send where the event is, on the main thread.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use super::ring::Fields;

/// Where the journal listens.
const SOCKET: &str = "/run/systemd/journal/socket";
/// Longest value, bytes: an entry with all its fields must fit into a datagram (net.core.wmem_default, 212,992 bytes).
const LONGEST: usize = 32 << 10;

/// A writer that sends each text that it is given as one entry.
pub struct JournalSocket(UnixDatagram);

impl JournalSocket {
    /// Connects to the journal. The socket outlives restarts of journald, since systemd keeps it.
    ///
    /// # Errors
    /// There is no journal.
    pub fn connect() -> io::Result<Self> {
        Self::to(Path::new(SOCKET))
    }

    fn to(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Self(socket))
    }
}

impl Write for JournalSocket {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        self.0.send(entry)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An entry as the journal takes it.
pub fn entry(priority: u8, class: &str, text: &str, fields: &Fields) -> String {
    let mut out = String::with_capacity(text.len() + 128);
    let mut add = |name: &str, value: &str| {
        let end = value.floor_char_boundary(LONGEST);
        out.push_str(name);
        out.push('=');
        out.extend(value[..end].chars().map(|character| if character.is_control() { ' ' } else { character }));
        out.push('\n');
    };
    add("MESSAGE", &format!("{class}: {text}"));
    add("PRIORITY", &priority.to_string());
    add("SYSLOG_IDENTIFIER", "quiver");
    add("QUIVER_CLASS", class);
    for (name, value) in fields {
        match *name {
            "interface" => add("INTERFACE", value),
            // Names of the journal are capital letters, digits and underlines.
            other => {
                add(&format!("QUIVER_{}", other.to_ascii_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_")), value)
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Form, Level, Log};
    use std::time::{Duration, SystemTime};

    #[test]
    fn each_line_is_an_entry_with_its_fields() {
        let folder = std::env::temp_dir().join(format!("quiver-journal-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("socket");
        let journal = UnixDatagram::bind(&path).unwrap();
        let log = Log::default();
        log.set_output(Box::new(JournalSocket::to(&path).unwrap()), Form::Native);
        let fields = [("interface", "eth0".to_owned()), ("vr-id", "7".to_owned())];
        let receive = || {
            let mut buffer = [0; 4096];
            let count = journal.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..count].to_vec()).unwrap()
        };
        let head = "PRIORITY=4\nSYSLOG_IDENTIFIER=quiver\nQUIVER_CLASS=interface\n";
        // By whoever logs, as at the start, and by the thread.
        log.push_with(SystemTime::now(), Level::Warn, "interface", "link of eth0 is down", &fields);
        let expected = format!("MESSAGE=interface: link of eth0 is down\n{head}INTERFACE=eth0\nQUIVER_VR_ID=7\n");
        assert_eq!(receive(), expected);
        log.write_by_thread().unwrap();
        log.push_with(SystemTime::now(), Level::Warn, "interface", "one\nPRIORITY=0", &[("peer", "a\nb".to_owned())]);
        log.push(SystemTime::now(), Level::Error, "x", "another");
        log.flush(Duration::from_secs(600));
        // What is logged cannot make fields of its own.
        assert_eq!(receive(), format!("MESSAGE=interface: one PRIORITY=0\n{head}QUIVER_PEER=a b\n"));
        assert!(receive().starts_with("MESSAGE=x: another\nPRIORITY=3\n"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_entry_fits_into_a_datagram() {
        let text = "ü".repeat(LONGEST);
        let entry = entry(5, "x", &text, &[("interface", text.clone())]);
        assert!(entry.len() < 3 * LONGEST && entry.lines().count() == 5, "{}", entry.len());
    }
}
