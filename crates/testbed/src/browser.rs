//! A headless Chromium, driven by its DevTools protocol over two pipes: what a page looks like, says and does.
//!
//! ```text
//!  test ── named pipe ──► descriptor 3 │ Chromium │ descriptor 4 ── named pipe ──► test
//!            messages of JSON, each ended by a NUL
//! ```

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest wait for what a page should do at once; the machine may be busy.
const SOON: Duration = Duration::from_secs(120);

/// A browser with one page. It ends with the value.
pub struct Browser {
    child: Child,
    folder: PathBuf,
    to: File,
    from: BufReader<File>,
    session: Value,
    id: u64,
    /// What a page should not say: exceptions, errors and warnings of its console, requests that its policy forbids.
    pub complaints: Vec<String>,
}

impl Browser {
    /// Starts one.
    ///
    /// # Errors
    /// There is no Chromium, or it does not answer.
    pub fn start() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("quiver-browser-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let pipe = |name: &str| {
            let path = folder.join(name);
            let made = Command::new("mkfifo").arg(&path).status()?;
            if made.success() { Ok(path) } else { Err(io::Error::other("mkfifo")) }
        };
        let (to, from) = (pipe("to")?, pipe("from")?);
        let script = format!(
            "exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-extensions \
             --remote-debugging-pipe --user-data-dir={0}/profile --window-size=1400,900 about:blank 3<{0}/to 4>{0}/from",
            folder.display()
        );
        let child =
            Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        // Each end waits for the other, in the order of the shell.
        let (to, from) = (File::options().write(true).open(to)?, File::open(from)?);
        let from = BufReader::new(from);
        let mut browser = Self { child, folder, to, from, session: Value::Null, id: 0, complaints: Vec::new() };
        let targets = browser.call("Target.getTargets", json!({}))?;
        let page = targets["targetInfos"].as_array().and_then(|all| all.iter().find(|one| one["type"] == "page"));
        let target = page.map(|page| page["targetId"].clone()).ok_or_else(|| io::Error::other("Chromium shows no page"))?;
        browser.session =
            browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }))?["sessionId"].clone();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method of the protocol.
    ///
    /// # Errors
    /// The browser has ended, or refuses.
    pub fn call(&mut self, method: &str, parameters: Value) -> io::Result<Value> {
        self.id += 1;
        let mut message = json!({ "id": self.id, "method": method, "params": parameters });
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes)?;
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes)?;
            bytes.pop();
            let answer: Value = serde_json::from_slice(&bytes)?;
            if answer["id"] == self.id {
                return match answer.get("error") {
                    Some(error) => Err(io::Error::other(format!("{method}: {error}"))),
                    None => Ok(answer["result"].clone()),
                };
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, event: &Value) {
        let kind = &event["params"]["type"];
        let is_bad = match event["method"].as_str() {
            Some("Runtime.exceptionThrown" | "Log.entryAdded") => true,
            Some("Runtime.consoleAPICalled") => kind == "error" || kind == "warning",
            _ => false,
        };
        if is_bad {
            self.complaints.push(event["params"].to_string());
        }
    }

    /// Opens an address.
    pub fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({ "url": address })).unwrap();
    }

    /// What an expression of the page's language is.
    pub fn value(&mut self, expression: &str) -> Value {
        let answer = self.call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true })).unwrap();
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true; it may be about elements that are not there yet.
    pub fn wait_for(&mut self, expression: &str) {
        let end = Instant::now() + SOON;
        while self.value(&format!("(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()")) != true {
            if Instant::now() > end {
                let text = self.value("document.body?.innerText");
                panic!("not within {SOON:?}: {expression}\n{text}\n{:?}", self.complaints);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Presses and releases a key.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Enter" => 13,
            "Tab" => 9,
            "Escape" => 27,
            "ArrowDown" => 40,
            // Codes of other keys are not those of their letters: that of `.' would be Delete.
            _ => key.bytes().next().filter(u8::is_ascii_alphanumeric).map_or(0, |byte| i32::from(byte.to_ascii_uppercase())),
        };
        let text = match key {
            "Enter" => "\r",
            key if key.len() == 1 => key,
            _ => "",
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code, "text": text });
            self.call("Input.dispatchKeyEvent", event).unwrap();
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its helpers end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
