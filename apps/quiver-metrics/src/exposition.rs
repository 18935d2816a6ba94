//! Text in the form of OpenMetrics 1.0.

use std::fmt::{Display, Write};

/// What a family of metrics is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only goes up.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// A page that is being written.
#[derive(Default)]
pub struct Page(String);

/// A family of metrics of one name; its samples follow one another.
pub struct Family<'a> {
    page: &'a mut Page,
    name: &'a str,
    suffix: &'static str,
}

impl Page {
    /// Begins a family. Names and units follow the conventions: a unit is the end of the name, `_total` is added to counters.
    pub fn family<'a>(&'a mut self, name: &'a str, kind: Kind, unit: &str, help: &str) -> Family<'a> {
        let (word, suffix) = match kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
        };
        self.line(format_args!("# TYPE {name} {word}"));
        if !unit.is_empty() {
            self.line(format_args!("# UNIT {name} {unit}"));
        }
        self.line(format_args!("# HELP {name} {}", escaped(help)));
        Family { page: self, name, suffix }
    }

    /// The page with its end.
    pub fn finish(mut self) -> String {
        self.line(format_args!("# EOF"));
        self.0
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{line}");
    }
}

impl Family<'_> {
    /// A value of the family, told from others by labels.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let text = &mut self.page.0;
        text.push_str(self.name);
        text.push_str(self.suffix);
        for (place, (label, value)) in labels.iter().enumerate() {
            text.push(if place == 0 { '{' } else { ',' });
            let _ = write!(text, "{label}=\"{}\"", escaped(value));
        }
        if !labels.is_empty() {
            text.push('}');
        }
        let _ = writeln!(text, " {value}");
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_type_unit_help_and_samples() {
        let mut page = Page::default();
        let mut family = page.family("quiver_rx_bytes", Kind::Counter, "bytes", "Received");
        family.sample(&[("interface", "eth0"), ("thread", "1")], 7);
        page.family("quiver_up", Kind::Gauge, "", "Runs").sample(&[], 1);
        let expected = "# TYPE quiver_rx_bytes counter\n# UNIT quiver_rx_bytes bytes\n# HELP quiver_rx_bytes Received\n\
                        quiver_rx_bytes_total{interface=\"eth0\",thread=\"1\"} 7\n# TYPE quiver_up gauge\n\
                        # HELP quiver_up Runs\nquiver_up 1\n# EOF\n";
        assert_eq!(page.finish(), expected);
    }

    #[test]
    fn a_name_cannot_end_its_label() {
        let mut page = Page::default();
        page.family("m", Kind::Gauge, "", "h").sample(&[("l", "a\"} 1\n\\")], 0);
        assert!(page.finish().contains("m{l=\"a\\\"} 1\\n\\\\\"} 0\n"));
    }
}
