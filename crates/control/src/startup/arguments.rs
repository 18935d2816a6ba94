//! The daemon's command line.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use quiver_command::config::roff_text;

/// An option of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag {
    /// One letter behind one dash.
    pub short: Option<char>,
    /// The word behind two dashes.
    pub long: &'static str,
    /// What follows: `FILE` or `FOLDER`.
    pub value: Option<&'static str>,
    /// What it does.
    pub help: &'static str,
}

/// All options; help, manual page and completion have them from here.
pub const OPTIONS: &[Flag] = &[
    Flag { short: Some('c'), long: "config", value: Some("FILE"), help: "read the configuration from FILE" },
    Flag {
        short: Some('i'),
        long: "interactive",
        value: None,
        help: "the command language on this terminal; short for unix { interactive }",
    },
    Flag {
        short: None,
        long: "api-json",
        value: Some("FOLDER"),
        help: "write the binary API's definitions (*.api.json) to FOLDER, for clients that load them",
    },
    Flag { short: None, long: "generate", value: Some("FOLDER"), help: "write manual pages and shell completion to FOLDER" },
    Flag {
        short: None,
        long: "take-over",
        value: None,
        help: "take over from the router that runs with this configuration, while packets flow; a cold start where none does",
    },
    Flag {
        short: None,
        long: "check",
        value: None,
        help: "say what is wrong with the configuration and its files of commands, and start nothing",
    },
    Flag { short: Some('v'), long: "version", value: None, help: "say which version this is" },
    Flag { short: Some('h'), long: "help", value: None, help: "say this" },
];

impl Flag {
    /// How it can be written: `-c`, `--config`.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.short.map(|short| format!("-{short}")).into_iter().chain([format!("--{}", self.long)])
    }

    /// Its names and value for a manual page.
    pub fn roff(&self) -> String {
        let names: Vec<_> = self.names().map(|name| format!("\\fB{}\\fR", roff_text(&name))).collect();
        let value = self.value.map(|value| format!(" \\fI{value}\\fR")).unwrap_or_default();
        format!("{}{value}", names.join(", "))
    }
}

/// What `-h` prints.
pub fn help() -> String {
    let mut out = String::from(
        "Usage: quiver [-c FILE] | [-i] [SECTION { KEY VALUE ... } ...]\n\n\
         The packet processing daemon. Its configuration is a file of sections, or the same words on the command line:\n\n  \
         quiver -c /etc/quiver/startup.conf\n  \
         quiver unix { interactive cli-listen 127.0.0.1:5002 } cpu { main-core 1 workers 2 }\n\nOptions:\n",
    );
    for flag in OPTIONS {
        let short = flag.short.map_or_else(|| "    ".to_owned(), |short| format!("-{short}, "));
        let long = format!("--{} {}", flag.long, flag.value.unwrap_or_default());
        let _ = writeln!(out, "  {short}{long:<18} {}", flag.help);
    }
    out
}

/// What the command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arguments {
    /// Print [`help`].
    Help,
    /// Print the version.
    Version,
    /// Write the binary API's definitions to a folder.
    ApiJson(PathBuf),
    /// Write manual pages and completion to a folder.
    Generate(PathBuf),
    /// Start with a file, and `interactive` added.
    File(PathBuf, bool),
    /// Start with these words as the configuration.
    Words(Vec<String>),
}

/// A command line that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentsError {
    /// An option at the end that takes a file or folder.
    #[error("{0} needs a file or folder; try quiver -h")]
    NoFile(String),
    /// A dash and something unknown.
    #[error("unknown option {0}; try quiver -h")]
    Unknown(String),
    /// Configuration words beside a file.
    #[error("`{0}' beside a configuration file: put everything into the file, or everything on the command line")]
    Both(String),
    /// Bytes that are no text.
    #[error("{0:?} is not UTF-8 text")]
    NotText(OsString),
}

/// Whether the words ask to take over from a router that runs.
pub fn wants_to_take_over(words: &[OsString]) -> bool {
    has_option(words, "--take-over")
}

/// Whether the words only ask whether the configuration is right.
pub fn wants_a_check(words: &[OsString]) -> bool {
    has_option(words, "--check")
}

/// Whether an option without a value is there, before the words of a configuration.
fn has_option(words: &[OsString], option: &str) -> bool {
    let mut words = words.iter();
    while let Some(word) = words.next().filter(|word| word.as_encoded_bytes().starts_with(b"-")) {
        match word.to_str() {
            Some(word) if word == option => return true,
            Some("-c" | "--config") => drop(words.next()),
            _ => {}
        }
    }
    false
}

impl Arguments {
    /// Reads the words behind the program's name.
    ///
    /// # Errors
    /// What is wrong with them, in a line.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self, ArgumentsError> {
        let mut words = words.into_iter();
        let (mut file, mut interactive, mut rest) = (None, false, Vec::new());
        while let Some(word) = words.next() {
            let text = word.into_string().map_err(ArgumentsError::NotText)?;
            if !rest.is_empty() {
                rest.push(text);
                continue;
            }
            match text.as_str() {
                "-h" | "--help" => return Ok(Self::Help),
                "-v" | "-V" | "--version" => return Ok(Self::Version),
                "--api-json" => return Ok(Self::ApiJson(words.next().ok_or(ArgumentsError::NoFile(text))?.into())),
                "--generate" => return Ok(Self::Generate(words.next().ok_or(ArgumentsError::NoFile(text))?.into())),
                "-i" | "--interactive" => interactive = true,
                // Not a part of the configuration: see `wants_to_take_over`, `wants_a_check`.
                "--take-over" | "--check" => {}
                // Only of interest to who brings an allocator of their own.
                "--no-alloc-intercept" => {}
                "-c" | "--config" => file = Some(PathBuf::from(words.next().ok_or(ArgumentsError::NoFile(text))?)),
                _ if text.starts_with("--config=") => file = Some(PathBuf::from(&text["--config=".len()..])),
                _ if text.starts_with('-') => return Err(ArgumentsError::Unknown(text)),
                _ => rest.push(text),
            }
        }
        match (file, rest.first()) {
            (Some(_), Some(word)) => Err(ArgumentsError::Both(word.clone())),
            (Some(file), None) => Ok(Self::File(file, interactive)),
            (None, _) => {
                if interactive {
                    rest.splice(0..0, ["unix", "{", "interactive", "}"].map(String::from));
                }
                Ok(Self::Words(rest))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, ArgumentsError> {
        Arguments::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn a_file_or_words_are_the_configuration() {
        assert_eq!(parse("-c f"), Ok(Arguments::File("f".into(), false)));
        assert_eq!(parse("--config=f -i"), Ok(Arguments::File("f".into(), true)));
        let words = |text: &str| Ok(Arguments::Words(text.split_whitespace().map(String::from).collect()));
        assert_eq!(parse("unix { nodaemon }"), words("unix { nodaemon }"));
        assert_eq!(parse("-i cpu { }"), words("unix { interactive } cpu { }"));
        assert_eq!(parse(""), words(""));
    }

    #[test]
    fn taking_over_is_an_option_and_no_word_of_the_configuration() {
        let wants = |line: &str| wants_to_take_over(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>());
        assert!(wants("--take-over -c f") && wants("-c f --take-over") && wants("--take-over unix { }"));
        assert!(wants_a_check(&["-c", "f", "--check"].map(OsString::from)));
        assert!(!wants("-c --take-over") && !wants("unix { log --take-over }") && !wants(""));
        assert_eq!(parse("-c f --take-over"), Ok(Arguments::File("f".into(), false)));
    }

    #[test]
    fn every_option_of_the_help_is_understood() {
        for flag in OPTIONS {
            for name in flag.names() {
                let line = format!("{name} {}", flag.value.unwrap_or_default());
                assert!(parse(&line).is_ok(), "{line}");
                assert!(flag.value.is_none() || parse(&name) == Err(ArgumentsError::NoFile(name.clone())), "{name}");
            }
        }
        assert!(help().contains("\n  -c, --config FILE      read the configuration from FILE\n"), "{}", help());
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        assert_eq!(parse("-c"), Err(ArgumentsError::NoFile("-c".into())));
        assert_eq!(parse("--api-json"), Err(ArgumentsError::NoFile("--api-json".into())));
        assert_eq!(parse("--api-json d"), Ok(Arguments::ApiJson("d".into())));
        assert_eq!(parse("-x"), Err(ArgumentsError::Unknown("-x".into())));
        assert_eq!(parse("-c f unix { }"), Err(ArgumentsError::Both("unix".into())));
    }

    #[test]
    fn dashes_within_the_configuration_are_its_own() {
        assert_eq!(parse("unix { log -v }").unwrap(), Arguments::Words(["unix", "{", "log", "-v", "}"].map(String::from).into()));
    }
}
