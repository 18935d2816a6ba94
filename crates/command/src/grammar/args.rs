//! The cursor over a command's arguments.

use super::{
    lexer::{self, Word},
    probe::Probe,
    suggest::nearest,
    syntax::Syntax,
    values::{self, Number},
};
use crate::operation::{OpError, retval};
use crate::request::Argument;
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    fmt::{self, Display},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
    str::FromStr,
    sync::LazyLock,
};

/// An interface as it was named: a name, `name.subid`, or an index. The operation resolves it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "NameOrIndex", into = "String")]
pub struct IfRef(pub String);

impl IfRef {
    /// The text as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number, where it is one: then it may be an index. A name that is equal wins.
    pub fn index(&self) -> Option<u32> {
        values::parse_number(&self.0).and_then(|index| u32::try_from(index).ok())
    }
}

impl Display for IfRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<&str> for IfRef {
    fn from(name: &str) -> Self {
        Self(name.to_owned())
    }
}

impl From<u32> for IfRef {
    fn from(index: u32) -> Self {
        Self(index.to_string())
    }
}

impl From<IfRef> for String {
    fn from(interface: IfRef) -> Self {
        interface.0
    }
}

/// JSON clients give a string or a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum NameOrIndex {
    Index(u32),
    Name(String),
}

impl From<NameOrIndex> for IfRef {
    fn from(given: NameOrIndex) -> Self {
        match given {
            NameOrIndex::Index(index) => index.into(),
            NameOrIndex::Name(name) => Self(name),
        }
    }
}

/// A cursor over the text behind a command's words.
///
/// Arguments come in any order, so the usual shape is a loop:
///
/// ```
/// use quiver_command::{grammar::Args, operation::OpError};
///
/// fn parse(args: &mut Args<'_>) -> Result<(Option<u32>, bool), OpError> {
///     let (mut table, mut verbose) = (None, false);
///     while !args.is_empty() {
///         if args.take_keyword("table") {
///             table = Some(args.number("table id")?);
///         } else if args.take_keyword("verbose") {
///             verbose = true;
///         } else {
///             return Err(args.unexpected());
///         }
///     }
///     Ok((table, verbose))
/// }
///
/// assert_eq!(parse(&mut Args::new("verb table 0x10")), Ok((Some(16), true)));
/// let error = parse(&mut Args::new("tabel 7")).unwrap_err().to_string();
/// assert_eq!(error, "unknown input `tabel'; did you mean `table'? expected `table' or `verbose'");
/// ```
///
/// A clone is a look-ahead: take from the clone and assign it back when it fits.
#[derive(Debug, Clone)]
pub struct Args<'a> {
    text: &'a str,
    at: usize,
    /// The word at or after `at`: a parser asks for it once for each keyword that it tries.
    next: Option<Word<'a>>,
    syntax: &'a Syntax,
    /// The words of the command before it.
    command: &'static str,
    tried: Tried,
    /// Where the text ends at a cursor: notes what is tried there.
    probe: Option<&'a Probe>,
    /// The argument that is being read, where it is a declared one.
    argument: Option<&'a Argument>,
}

static NO_SYNTAX: LazyLock<Syntax> = LazyLock::new(Syntax::default);

impl<'a> Args<'a> {
    /// A cursor without a syntax string: keywords can be abbreviated to what they alone begin with.
    pub fn new(text: &'a str) -> Self {
        Self::with_syntax(text, &NO_SYNTAX)
    }

    pub(crate) fn with_syntax(text: &'a str, syntax: &'a Syntax) -> Self {
        let next = lexer::word(text, 0);
        Self { text, at: 0, next, syntax, command: "", tried: Tried::default(), probe: None, argument: None }
    }

    /// A cursor over the arguments of a command with these words.
    pub(crate) fn of_command(command: &'static str, text: &'a str, syntax: &'a Syntax) -> Self {
        Self { command, ..Self::with_syntax(text, syntax) }
    }

    /// The words of the command whose arguments these are.
    pub fn command(&self) -> &'static str {
        self.command
    }

    /// The same, with a word that is being typed behind the text: `probe` notes what is tried in its place.
    pub(crate) fn with_probe(self, probe: &'a Probe) -> Self {
        Self { probe: Some(probe), ..self }
    }

    /// Whether only white space is left.
    pub fn is_empty(&self) -> bool {
        self.next.is_none() && !self.at_cursor().is_some_and(Probe::follows)
    }

    /// The probe, where all words before the cursor are taken.
    pub(crate) fn at_cursor(&self) -> Option<&'a Probe> {
        self.probe.filter(|_| self.next.is_none())
    }

    /// Says which declared argument the next value is of.
    pub(crate) fn begin(&mut self, argument: Option<&'a Argument>) {
        self.argument = argument;
    }

    /// The next word, not taken.
    pub fn peek(&self) -> Option<Cow<'a, str>> {
        self.next.as_ref().map(|word| word.text.clone())
    }

    /// What is left, not taken, without white space around it.
    pub fn peek_rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default().trim()
    }

    /// Takes `keyword`, or at least two letters that begin it and no other keyword of the syntax string.
    pub fn take_keyword(&mut self, keyword: &str) -> bool {
        if let Some(word) = &self.next
            && self.means(&word.text, keyword)
        {
            self.advance(word.end);
            return true;
        }
        self.note_keyword(keyword);
        false
    }

    /// Takes the next word where it is exactly this; for symbols, and for words too short to shorten.
    pub fn take_exact(&mut self, text: &str) -> bool {
        if let Some(word) = &self.next
            && word.text == text
        {
            self.advance(word.end);
            return true;
        }
        self.note_keyword(text);
        false
    }

    /// Takes the first of these keywords that matches and gives its value.
    pub fn take_one_of<T: Clone>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        choices.iter().find(|(keyword, _)| self.take_keyword(keyword)).map(|(_, value)| value.clone())
    }

    /// Takes `keyword` or fails.
    pub fn expect_keyword(&mut self, keyword: &str) -> Result<(), OpError> {
        if self.take_keyword(keyword) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Takes one of these keywords or fails.
    pub fn expect_one_of<T: Clone>(&mut self, choices: &[(&str, T)]) -> Result<T, OpError> {
        self.take_one_of(choices).ok_or_else(|| self.unexpected())
    }

    /// `on`/`off`, `enable`/`disable`, `yes`/`no`, `true`/`false`, `1`/`0`.
    pub fn switch(&mut self, what: &str) -> Result<bool, OpError> {
        let word = self.require(what)?;
        match &*word.text {
            "on" | "enable" | "yes" | "true" | "1" => self.accept(&word),
            "off" | "disable" | "no" | "false" | "0" => {
                self.accept(&word);
                return Ok(false);
            }
            _ => return Err(self.bad(what, &word.text, "expected `on' or `off'")),
        }
        Ok(true)
    }

    /// Takes a word as it is; `what` names it in the error when there is none.
    pub fn word(&mut self, what: &str) -> Result<Cow<'a, str>, OpError> {
        let word = self.require(what)?;
        self.accept(&word);
        Ok(word.text)
    }

    /// Takes a word and parses it.
    pub fn take<T: FromStr<Err: Display>>(&mut self, what: &str) -> Result<T, OpError> {
        let word = self.require(what)?;
        let value = word.text.parse().map_err(|error: T::Err| self.bad(what, &word.text, &error.to_string()))?;
        self.accept(&word);
        Ok(value)
    }

    /// Takes a word where it parses; nothing is taken otherwise.
    pub fn try_take<T: FromStr>(&mut self, what: &str) -> Option<T> {
        let taken = self.next_word().and_then(|word| Some((word.text.parse().ok()?, word)));
        self.taken(taken, what)
    }

    /// A whole number, decimal or `0x`.
    pub fn number<T: Number>(&mut self, what: &str) -> Result<T, OpError> {
        let word = self.require(what)?;
        let number = self.to_number(&word.text, what)?;
        self.accept(&word);
        Ok(number)
    }

    /// Bytes, such as 2048, 64k, 16M or 1G.
    pub fn size(&mut self, what: &str) -> Result<u64, OpError> {
        let word = self.require(what)?;
        let size =
            values::parse_size(&word.text).ok_or_else(|| self.bad(what, &word.text, "not a size such as 2048, 64k, 16M or 1G"))?;
        self.accept(&word);
        Ok(size)
    }

    /// A whole number in a range.
    pub fn number_in<T: Number>(&mut self, what: &str, range: RangeInclusive<T>) -> Result<T, OpError> {
        let word = self.require(what)?;
        let number = self.to_number_in(&word.text, what, |number| range.contains(number), range.start(), range.end())?;
        self.accept(&word);
        Ok(number)
    }

    /// A whole number where the next word is one; nothing is taken otherwise.
    pub fn try_number<T: Number>(&mut self, what: &str) -> Option<T> {
        let taken = self.next_word().and_then(|word| {
            let number = T::try_from(values::parse_number(&word.text)?).ok()?;
            Some((number, word))
        });
        self.taken(taken, what)
    }

    /// `<a>-<b>` or `<a>`, both ends included.
    pub fn range<T: Number>(&mut self, what: &str) -> Result<RangeInclusive<T>, OpError> {
        let word = self.require(what)?;
        let (first, last) = word.text.split_once('-').unwrap_or((&word.text, &word.text));
        let (first, last) = (self.to_number::<T>(first, what)?, self.to_number::<T>(last, what)?);
        if first > last {
            return Err(self.bad(what, &word.text, "its end is before its start"));
        }
        self.accept(&word);
        Ok(first..=last)
    }

    /// An address of either family.
    pub fn ip(&mut self, what: &str) -> Result<IpAddr, OpError> {
        self.address(what, "an IPv4 or IPv6 address")
    }

    /// An IPv4 address.
    pub fn ip4(&mut self, what: &str) -> Result<Ipv4Addr, OpError> {
        self.address(what, "an IPv4 address")
    }

    /// An IPv6 address.
    pub fn ip6(&mut self, what: &str) -> Result<Ipv6Addr, OpError> {
        self.address(what, "an IPv6 address")
    }

    /// An address where the next word is one.
    pub fn try_ip(&mut self) -> Option<IpAddr> {
        self.try_take("an address")
    }

    /// An address and length, `10.0.0.0/8`.
    pub fn prefix(&mut self, what: &str) -> Result<(IpAddr, u8), OpError> {
        let word = self.require(what)?;
        match values::parse_prefix(&word.text)? {
            Some(prefix) => {
                self.accept(&word);
                Ok(prefix)
            }
            None => Err(self.bad(what, &word.text, "expected ADDRESS/LENGTH such as 10.0.0.0/8")),
        }
    }

    /// An address and length where the next word is one; an error where only its length is wrong.
    pub fn try_prefix(&mut self) -> Result<Option<(IpAddr, u8)>, OpError> {
        let taken = match self.next_word() {
            Some(word) => values::parse_prefix(&word.text)?.map(|prefix| (prefix, word)),
            None => None,
        };
        Ok(self.taken(taken, "a prefix"))
    }

    /// An address and length; an address alone stands for the host itself (`/32`, `/128`).
    pub fn prefix_or_host(&mut self, what: &str) -> Result<(IpAddr, u8), OpError> {
        let prefix = self.next.as_ref().is_some_and(|word| word.text.contains('/'));
        match if prefix { None } else { self.try_ip() } {
            Some(host) => Ok((host, if host.is_ipv4() { 32 } else { 128 })),
            None => self.prefix(what),
        }
    }

    /// A MAC address in either notation.
    pub fn mac(&mut self, what: &str) -> Result<[u8; 6], OpError> {
        let word = self.require(what)?;
        let mac = values::parse_mac(&word.text)
            .ok_or_else(|| self.bad(what, &word.text, "expected aa:bb:cc:dd:ee:ff or aabb.ccdd.eeff"))?;
        self.accept(&word);
        Ok(mac)
    }

    /// A MAC address where the next word is one.
    pub fn try_mac(&mut self) -> Option<[u8; 6]> {
        let taken = self.next_word().and_then(|word| Some((values::parse_mac(&word.text)?, word)));
        self.taken(taken, "a MAC address")
    }

    /// The name or index of an interface.
    pub fn interface(&mut self) -> Result<IfRef, OpError> {
        Ok(IfRef(self.word("interface")?.into_owned()))
    }

    /// A `{ … }` group, as a cursor over what is inside; none where the next character is not `{`.
    pub fn group(&mut self) -> Result<Option<Args<'a>>, OpError> {
        let group = lexer::group(self.text, self.at);
        if let (Err(lexer::Unclosed), Some(probe)) = (&group, self.probe) {
            // A word is being typed in it.
            let inner = self.rest().strip_prefix('{').unwrap_or_default();
            return Ok(Some(Args::with_syntax(inner, self.syntax).with_probe(probe)));
        }
        match group {
            Ok(Some((inner, end))) => {
                self.advance(end);
                Ok(Some(Args::with_syntax(inner, self.syntax)))
            }
            Ok(None) => {
                self.note_keyword("{");
                Ok(None)
            }
            Err(lexer::Unclosed) => Err(OpError::unspecified("`{' without `}'").remedy("close the group with `}'")),
        }
    }

    /// A `{ … }` group or an error.
    pub fn expect_group(&mut self) -> Result<Args<'a>, OpError> {
        self.group()?.ok_or_else(|| self.unexpected())
    }

    /// Takes all that is left, without white space around it.
    pub fn rest(&mut self) -> &'a str {
        let rest = self.peek_rest();
        self.advance(self.text.len());
        rest
    }

    /// Fails, naming the first word that is left; succeeds where nothing is.
    pub fn finish(&self) -> Result<(), OpError> {
        if self.is_empty() { Ok(()) } else { Err(self.unexpected()) }
    }

    /// The error for the next word: what it is, what was tried in its place, what it may have meant.
    /// At the end of the text, the error for something missing.
    pub fn unexpected(&self) -> OpError {
        let expected = self.tried.expected();
        let Some(word) = self.next_word() else {
            let error = OpError::new(retval::INVALID_ARGUMENT, "incomplete command");
            return match (expected, self.syntax.text()) {
                (Some(expected), _) => error.remedy(format!("expected {expected}")),
                (None, "") => error,
                (None, syntax) => error.remedy(format!("expected {syntax}")),
            };
        };
        let error = OpError::unknown_input(&word.text);
        let known = self.tried.words();
        let meant = nearest(&word.text, known.chain(self.syntax.keywords().iter().copied()))
            .map(|meant| format!("did you mean `{meant}'?"));
        let expected = expected.map(|expected| format!("expected {expected}"));
        match (meant, expected) {
            (Some(meant), Some(expected)) => error.remedy(format!("{meant} {expected}")),
            (Some(only), None) | (None, Some(only)) => error.remedy(only),
            (None, None) if self.syntax.text().is_empty() => error.remedy("nothing may follow here"),
            (None, None) => error,
        }
    }

    /// The error for a value of this name that is not there.
    pub fn missing(&self, what: &str) -> OpError {
        let error = OpError::new(retval::INVALID_ARGUMENT, format!("missing {what}"));
        match self.syntax.text() {
            "" => error,
            syntax => error.remedy(format!("expected {syntax}")),
        }
    }

    fn next_word(&self) -> Option<Word<'a>> {
        self.next.clone()
    }

    fn require(&self, what: &str) -> Result<Word<'a>, OpError> {
        self.note_value(what);
        self.next_word().ok_or_else(|| self.missing(what))
    }

    fn note_keyword(&mut self, keyword: &str) {
        self.tried.keyword(keyword);
        if let Some(probe) = self.at_cursor() {
            probe.keyword(keyword);
        }
    }

    fn note_value(&self, what: &str) {
        if let Some(probe) = self.at_cursor() {
            probe.value(what, self.argument);
        }
    }

    fn accept(&mut self, word: &Word<'_>) {
        self.advance(word.end);
    }

    /// Goes on behind byte `end`.
    fn advance(&mut self, end: usize) {
        self.at = end;
        self.next = lexer::word(self.text, end);
        self.tried.clear();
    }

    fn taken<T>(&mut self, taken: Option<(T, Word<'_>)>, what: &str) -> Option<T> {
        match taken {
            Some((value, word)) => {
                self.accept(&word);
                Some(value)
            }
            None => {
                self.tried.value(what);
                self.note_value(what);
                None
            }
        }
    }

    /// Whether a typed word stands for `keyword`: equal, or begins it and no other keyword.
    fn means(&self, typed: &str, keyword: &str) -> bool {
        const SHORTEST: usize = 2;
        typed == keyword
            || typed.len() >= SHORTEST
                && keyword.starts_with(typed)
                && !self.syntax.keywords().iter().any(|other| *other != keyword && other.starts_with(typed))
    }

    fn address<T: FromStr>(&mut self, what: &str, kind: &str) -> Result<T, OpError> {
        let word = self.require(what)?;
        let address = word.text.parse().map_err(|_| self.bad(what, &word.text, &format!("expected {kind}")))?;
        self.accept(&word);
        Ok(address)
    }

    fn to_number<T: Number>(&self, text: &str, what: &str) -> Result<T, OpError> {
        self.to_number_in(text, what, |_| true, &0, &T::MAX)
    }

    fn to_number_in<T: Number>(
        &self,
        text: &str,
        what: &str,
        fits: impl Fn(&T) -> bool,
        least: &dyn Display,
        most: &dyn Display,
    ) -> Result<T, OpError> {
        let number = values::parse_number(text);
        if number.is_none() && (text.is_empty() || !text.bytes().all(|digit| digit.is_ascii_digit())) {
            return Err(self.bad(what, text, "expected a number"));
        }
        let fitting = number.and_then(|number| T::try_from(number).ok()).filter(fits);
        fitting.ok_or_else(|| self.out_of_range(what, text, least, most))
    }

    fn out_of_range(&self, what: &str, text: &str, least: &dyn Display, most: &dyn Display) -> OpError {
        self.bad(what, text, &format!("expected {least} to {most}"))
    }

    fn bad(&self, what: &str, text: &str, remedy: &str) -> OpError {
        let shown = crate::operation::excerpt(text);
        OpError::new(retval::INVALID_VALUE, format!("invalid {what} `{shown}'")).key(what).value(text).remedy(remedy)
    }
}

/// The keywords and kinds of value that were tried at one place in vain, for the error: noted with every word that is taken,
/// put into words only where none is. One text, so that noting is copying a few bytes.
#[derive(Debug, Clone, Default)]
struct Tried(String);

impl Tried {
    /// In front of a keyword, and of a kind of value.
    const MARKS: [char; 2] = ['\u{1}', '\u{2}'];

    /// Bytes that most places need, taken at once instead of in steps.
    const USUAL: usize = 120;

    fn keyword(&mut self, keyword: &str) {
        self.note(Self::MARKS[0], keyword);
    }

    fn value(&mut self, what: &str) {
        self.note(Self::MARKS[1], what);
    }

    fn note(&mut self, mark: char, word: &str) {
        if self.0.capacity() == 0 {
            self.0.reserve(Self::USUAL);
        }
        self.0.push(mark);
        self.0.push_str(word);
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.0.split(Self::MARKS).skip(1)
    }

    /// ``a', `b' or `c'``, shortened where there are many.
    fn expected(&self) -> Option<String> {
        const MOST: usize = 8;
        let mut names: Vec<String> = Vec::new();
        let marks = self.0.chars().filter(|character| Self::MARKS.contains(character));
        for (word, mark) in self.words().zip(marks) {
            let name = if mark == Self::MARKS[0] { format!("`{word}'") } else { word.to_owned() };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let (last, before) = names.split_last()?;
        if before.is_empty() {
            return Some(last.clone());
        }
        if names.len() > MOST {
            return Some(format!("one of {}, ...", names[..MOST].join(", ")));
        }
        Some(format!("{} or {last}", before.join(", ")))
    }
}
