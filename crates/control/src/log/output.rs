//! Where lines are written. Whoever logs does not wait for a terminal, a disk, or a pipe that nobody reads: a thread writes, and what it
//! has no room for is left out and counted.
//!
//! ```text
//!  main, workers ──► queue of 1,024 lines ──► quiver_log ──► standard error, a file
//!                       └─ full: counted; one line says how many, as soon as there is room again
//! ```

use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::Form;

/// Whether a file is the stream to systemd's journal that `JOURNAL_STREAM` names: its device and inode (systemd.exec(5)).
pub fn is_journal(file: impl AsFd, journal_stream: Option<&str>) -> bool {
    let of_file = rustix::fs::fstat(file).map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
    of_file.is_ok_and(|of_file| journal_stream == Some(&of_file))
}

/// Lines that may wait to be written.
const WAITING: usize = 1024;

/// What lines are written to. Clones are handles of the same thread.
#[derive(Clone)]
pub struct Output {
    to: Sender<Item>,
    /// Lines for which there was no room since the last one that had some.
    missed: u64,
    form: Form,
}

enum Item {
    Text(String),
    /// Answered when all before it is written.
    Flush(Sender<()>),
}

impl Output {
    /// Starts the thread that writes to `writer`, each text by one `write_all`. It ends with the last handle.
    ///
    /// # Errors
    /// There can be no more threads.
    pub fn start(writer: Box<dyn Write + Send>, form: Form) -> std::io::Result<Self> {
        let (to, from) = bounded(WAITING);
        std::thread::Builder::new().name("quiver_log".to_owned()).spawn(move || write(writer, &from))?;
        Ok(Self { to, missed: 0, form })
    }

    /// Has a text written, unless too much waits already.
    pub fn push(&mut self, text: String) {
        if self.missed > 0 && self.to.try_send(Item::Text(self.form.missed(self.missed))).is_ok() {
            self.missed = 0;
        }
        if let Err(TrySendError::Full(_)) = self.to.try_send(Item::Text(text)) {
            self.missed += 1;
        }
    }

    /// Waits until what was said before is written, for `patience` at most; says whether it is.
    pub fn flush(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let (done, written) = bounded(1);
        self.to.send_deadline(Item::Flush(done), deadline).is_ok() && written.recv_deadline(deadline).is_ok()
    }
}

fn write(mut writer: Box<dyn Write + Send>, from: &Receiver<Item>) {
    while let Ok(first) = from.recv() {
        let mut flushed = Vec::new();
        for item in std::iter::once(first).chain(from.try_iter()) {
            match item {
                // A log that cannot be written has nobody to tell.
                Item::Text(text) => drop(writer.write_all(text.as_bytes())),
                Item::Flush(done) => flushed.push(done),
            }
        }
        let _ = writer.flush();
        for done in flushed {
            let _ = done.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Says that something is to be written, and keeps it as soon as it may.
    struct Gate {
        asked: Sender<()>,
        open: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.asked.try_send(());
            let _ = self.open.recv();
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_file_is_the_journal_where_the_environment_names_it() {
        let (one, other) = (std::fs::File::open("/dev/null").unwrap(), std::fs::File::open("/dev/zero").unwrap());
        let stat = rustix::fs::fstat(&one).unwrap();
        let name = format!("{}:{}", stat.st_dev, stat.st_ino);
        assert!(is_journal(&one, Some(&name)) && !is_journal(&other, Some(&name)));
        assert!(!is_journal(&one, None) && !is_journal(&one, Some("0")));
    }

    #[test]
    fn nobody_waits_for_an_output_that_is_not_read_and_what_is_left_out_is_counted() {
        let ((asked, is_asked), (open, opened)) = (bounded(1), bounded(0));
        let written = Arc::default();
        let mut output = Output::start(Box::new(Gate { asked, open: opened, written: Arc::clone(&written) }), Form::Plain).unwrap();
        output.push("0\n".to_owned());
        is_asked.recv().unwrap();
        // The thread has this line and takes no other: a line that were waited for would hang here.
        let said = WAITING as u64 * 3;
        (1..said).for_each(|n| output.push(format!("{n}\n")));
        let missed = output.missed;
        assert_eq!(missed, said - 1 - WAITING as u64);
        assert!(!output.flush(Duration::ZERO));
        drop(open);
        assert!(output.flush(Duration::from_secs(600)));
        output.push("the last\n".to_owned());
        assert!(output.flush(Duration::from_secs(600)));
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len() as u64, said - missed + 2);
        assert_eq!(lines[lines.len() - 2], format!("--- {missed} line(s) were not written: nobody takes the output ---"));
        assert_eq!(lines[lines.len() - 1], "the last");
    }
}
