//! Filter expressions of `pcap …`, `trace add` and `capture`: they are compiled here, by `tcpdump`, and the router gets a program of classic BPF, which
//! it checks. So the router needs no compiler of expressions, and runs none.

use crate::Failure;
use quiver_command::grammar::{Args, quote};
use std::{borrow::Cow, io, process::Command};

/// Compiles an expression for Ethernet frames; gives the program in one line.
///
/// # Errors
/// It is wrong, or there is no tcpdump.
pub fn compile(expression: &str) -> Result<String, Failure> {
    match tcpdump(expression) {
        Ok(Ok(program)) => Ok(program),
        Ok(Err(said)) => {
            let reason = said.trim().trim_start_matches("tcpdump: ").lines().last().unwrap_or_default().to_owned();
            let good = readable(expression);
            let place =
                if good == 0 { "from its beginning".to_owned() } else { format!("behind `{}'", expression[..good].trim_end()) };
            Err(Failure::Command(format!("filter `{expression}': wrong {place}: {reason}")))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text =
                "filter: `tcpdump' compiles expressions, and is not on this machine; install it (Debian: apt-get install tcpdump)";
            Err(Failure::Command(text.to_owned()))
        }
        Err(error) => Err(Failure::Command(format!("filter: cannot run tcpdump: {error}"))),
    }
}

/// What tcpdump makes of an expression, or says of it.
fn tcpdump(expression: &str) -> io::Result<Result<String, String>> {
    let output = Command::new("tcpdump").args(["-ddd", "-y", "EN10MB", "--", expression]).output()?;
    if output.status.success() {
        return Ok(Ok(String::from_utf8_lossy(&output.stdout).trim().replace('\n', ",")));
    }
    Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// How many bytes of a wrong expression can be read: tcpdump does not say where an error is.
fn readable(expression: &str) -> usize {
    let ends = expression.char_indices().filter(|(_, letter)| letter.is_whitespace()).map(|(at, _)| at);
    let mut ends: Vec<usize> = ends.collect();
    ends.reverse();
    ends.into_iter().take(64).find(|end| matches!(tcpdump(&expression[..*end]), Ok(Ok(_)))).unwrap_or(0)
}

/// The line as the router takes it: of `pcap trace … filter <expression>` and the like, with the expression compiled. What is behind
/// `filter` is the expression, to the end of the line.
///
/// # Errors
/// The expression is wrong.
pub fn compiled(line: &str) -> Result<Cow<'_, str>, Failure> {
    let Some((before, expression)) = split(line) else { return Ok(Cow::Borrowed(line)) };
    Ok(Cow::Owned(format!("{before}bpf {}", quote(&compile(&expression)?))))
}

/// Commands that take filters.
const COMMANDS: [&[&str]; 4] = [&["pcap", "trace"], &["pcap", "stream"], &["pcap", "dispatch", "trace", "on"], &["trace", "add"]];

/// What is before the word `filter` of a command that takes filters, and the expression behind it.
fn split(line: &str) -> Option<(&str, Cow<'_, str>)> {
    let begins = |command: &&[&str]| {
        let mut args = Args::new(line);
        command.iter().all(|expected| args.word("command").is_ok_and(|word| word == *expected))
    };
    COMMANDS.iter().find(|command| begins(command))?;
    let at = line.find(" filter ")? + 1;
    let expression = line[at + "filter ".len()..].trim();
    if expression.is_empty() {
        return None;
    }
    // A shell's quotes have become ours.
    let mut whole = Args::new(expression);
    let one = whole.word("expression").ok().filter(|_| expression.starts_with('"') && whole.is_empty());
    Some((&line[..at], one.map_or(Cow::Borrowed(expression), |word| Cow::Owned(word.into_owned()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_behind_filter_is_the_expression() {
        assert_eq!(split("pcap trace rx filter tcp port 80"), Some(("pcap trace rx ", Cow::Borrowed("tcp port 80"))));
        assert_eq!(split("pcap trace rx filter \"tcp port 80\""), Some(("pcap trace rx ", Cow::Borrowed("tcp port 80"))));
        assert_eq!(split("pcap trace rx filter"), None);
        assert_eq!(split("pcap trace rx"), None);
        assert_eq!(split("show log filter x"), None);
        assert_eq!(split("trace filter include ip4-input 5"), None);
        assert_eq!(split("trace add pg-input 5 filter udp"), Some(("trace add pg-input 5 ", Cow::Borrowed("udp"))));
        assert_eq!(split("pcap dispatch trace on max 5 filter udp"), Some(("pcap dispatch trace on max 5 ", Cow::Borrowed("udp"))));
    }
}
