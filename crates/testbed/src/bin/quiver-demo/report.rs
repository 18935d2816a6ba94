//! What the demo has seen, as a small table and the router's own words.

use std::fs;
use std::path::Path;

/// Figures and texts in the order in which they were taken.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
    sections: Vec<(String, String)>,
}

#[derive(Debug)]
struct Row {
    what: String,
    ipv4: String,
    ipv6: String,
    well: bool,
}

impl Report {
    /// Adds a row; `well` says whether both figures are as they should be.
    pub fn row(&mut self, what: &str, ipv4: String, ipv6: String, well: bool) {
        println!("  {what}: {ipv4} (IPv4), {ipv6} (IPv6)");
        self.rows.push(Row { what: what.into(), ipv4, ipv6, well });
    }

    /// Adds what the router answered to a command.
    pub fn section(&mut self, title: &str, text: String) {
        self.sections.push((title.into(), text));
    }

    /// Keeps the drawing of the active graph in a folder, or says why it is left out: the folder may be another user's.
    pub fn drawing(&mut self, folder: &Path, svg: &str) {
        let file = folder.join("graph.svg");
        let text = match fs::create_dir_all(folder).and_then(|()| fs::write(&file, svg)) {
            Ok(()) => format!("drawn to {}", file.display()),
            Err(error) => format!("left out: {}: {error}", file.display()),
        };
        self.section("Active graph", text);
    }

    /// Whether every row was.
    pub fn all_well(&self) -> bool {
        self.rows.iter().all(|r| r.well)
    }

    /// Prints it all.
    pub fn print(&self) {
        for (title, text) in &self.sections {
            println!("\n── {title} ──\n{}", text.trim_end());
        }
        if self.rows.is_empty() {
            return;
        }
        println!("\n── Summary ──");
        println!("{:<26} {:<38} {:<38}", "", "IPv4", "IPv6");
        for row in &self.rows {
            let mark = if row.well { "" } else { "  <== not as it should be" };
            println!("{:<26} {:<38} {:<38}{mark}", row.what, row.ipv4, row.ipv6);
        }
    }
}

/// The first number behind `key` in a text: for the outputs of `ping` and `iperf3`'s JSON.
pub fn number_after(text: &str, key: &str) -> Option<f64> {
    let rest = &text[text.find(key)? + key.len()..];
    let start = rest.find(|c: char| c.is_ascii_digit() || c == '-')?;
    let end = rest[start..].find(|c: char| !(c.is_ascii_digit() || ".-+eE".contains(c)));
    rest[start..end.map_or(rest.len(), |e| start + e)].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_behind_their_key() {
        let text =
            "5 packets transmitted, 5 received, 0% packet loss, time 804ms\nrtt min/avg/max/mdev = 0.041/0.052/0.066/0.009 ms";
        assert_eq!(number_after(text, "received,"), Some(0.0));
        assert_eq!(number_after(text, "mdev ="), Some(0.041));
        assert_eq!(number_after("\"bits_per_second\":\t1.5e+09,", "bits_per_second"), Some(1.5e9));
        assert_eq!(number_after(text, "nothing"), None);
    }
}
