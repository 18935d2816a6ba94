//! Secrets are left out of what programs show or collect: what follows a word such as `secret` is replaced, in commands as well as in
//! JSON and YAML.

use std::collections::BTreeMap;

/// Words that a secret follows, in commands, in `startup.conf` and as keys of JSON.
static WORDS: [&str; 11] = [
    "secret",
    "password",
    "passphrase",
    "psk",
    "community",
    "token",
    "auth-key",
    "auth_key",
    "private-key",
    "private_key",
    "shared_secret",
];
/// Keys of JSON that may have one; in commands these words are too common.
static KEYS: [&str; 2] = ["key", "keys"];
/// What stands in the place of a secret.
const MASK: &str = "***";

/// What was masked: how often, by the file that it was in and the word before it.
#[derive(Debug, Default)]
pub struct Masked(pub BTreeMap<(String, &'static str), usize>);

impl Masked {
    /// The text of a file without the secrets.
    pub fn text(&mut self, file: &str, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(word_end) = next_word(rest) {
            let (before, after) = rest.split_at(word_end.end);
            out.push_str(before);
            rest = after;
            let word = &before[word_end.start..];
            let Some((lead, secret)) = secret_after(after, word) else { continue };
            let known = WORDS.iter().chain(&KEYS).find(|known| known.eq_ignore_ascii_case(word));
            let (Some(known), true) = (known, &after[lead..lead + secret] != MASK) else { continue };
            out.push_str(&after[..lead]);
            out.push_str(MASK);
            rest = &after[lead + secret..];
            *self.0.entry((file.to_owned(), *known)).or_default() += 1;
        }
        out.push_str(rest);
        out
    }
}

/// Where the next word is.
fn next_word(text: &str) -> Option<std::ops::Range<usize>> {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let start = text.find(is_of_word)?;
    let length = text[start..].find(|c| !is_of_word(c)).unwrap_or(text.len() - start);
    Some(start..start + length)
}

/// Bytes up to the secret that follows a word, and those of the secret.
fn secret_after(after: &str, word: &str) -> Option<(usize, usize)> {
    let is = |words: &[&str]| words.iter().any(|known| known.eq_ignore_ascii_case(word));
    let (in_commands, in_json) = (is(&WORDS), is(&WORDS) || is(&KEYS));
    // `"secret": "…"`, also within a string of JSON, where quotes are escaped.
    for quote in ["\"", "\\\""] {
        let Some(value) = after.strip_prefix(quote).map(str::trim_start).and_then(|rest| rest.strip_prefix(':')) else { continue };
        let value = value.trim_start();
        let lead = after.len() - value.len();
        return match value.strip_prefix(quote) {
            Some(inner) if in_json => Some((lead + quote.len(), quoted(inner, quote))),
            // A number that is one; of `keys' it is how many there are.
            None if is(&WORDS) && value.starts_with(|c: char| c.is_ascii_digit()) => {
                Some((lead, value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len())))
            }
            _ => None,
        };
    }
    if !in_commands {
        return None;
    }
    let value = after.trim_start_matches([' ', '\t', '=', ':']);
    let lead = after.len() - value.len();
    if lead == 0 || value.is_empty() || value.starts_with(['\n', '\r']) {
        return None;
    }
    for quote in ["\"", "\\\"", "'"] {
        if let Some(inner) = value.strip_prefix(quote) {
            return Some((lead + quote.len(), quoted(inner, quote)));
        }
    }
    Some((lead, value.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\\' | '}')).unwrap_or(value.len())))
}

/// Bytes up to the quote that ends a text.
fn quoted(inner: &str, quote: &str) -> usize {
    let mut at = 0;
    while let Some(found) = inner[at..].find(quote) {
        let end = at + found;
        // In YAML, two of them stand for one.
        if quote == "'" && inner[end + 1..].starts_with('\'') {
            at = end + 2;
            continue;
        }
        let backslashes = inner[..end].bytes().rev().take_while(|byte| *byte == b'\\').count();
        if backslashes % 2 == 0 || quote.len() > 1 {
            return end;
        }
        at = end + quote.len();
    }
    inner.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        Masked::default().text("f", text)
    }

    #[test]
    fn secrets_of_commands_are_masked() {
        for (text, expected) in [
            ("create interface memif id 0 secret sesame mode ip\n", "create interface memif id 0 secret *** mode ip\n"),
            ("memif { secret \"open sesame\" }", "memif { secret \"***\" }"),
            ("memif { secret sesame}", "memif { secret ***}"),
            ("bfd key set conf-key-id 5 type sha1 secret 0a0b0c\nshow", "bfd key set conf-key-id 5 type sha1 secret ***\nshow"),
            ("password=x y", "password=*** y"),
            ("no secrets here, nor a secret\nat the end of a line", "no secrets here, nor a secret\nat the end of a line"),
            ("snmp Community public", "snmp Community ***"),
            ("secret ***", "secret ***"),
            ("secret", "secret"),
            ("memif:\n  secret: sesame\n  id: 1\n", "memif:\n  secret: ***\n  id: 1\n"),
            ("secret: 'it''s open' # yes", "secret: '***' # yes"),
            ("secret:\n  other: 1", "secret:\n  other: 1"),
        ] {
            assert_eq!(masked(text), expected);
        }
    }

    #[test]
    fn secrets_of_json_are_masked() {
        for (text, expected) in [
            (r#"{"secret":"a\"b","mode":"ip"}"#, r#"{"secret":"***","mode":"ip"}"#),
            (r#"{"secret": null, "key": "0a0b"}"#, r#"{"secret": null, "key": "***"}"#),
            (r#"["create interface memif secret sesame"]"#, r#"["create interface memif secret ***"]"#),
            (r#"["memif secret \"open sesame\" x"]"#, r#"["memif secret \"***\" x"]"#),
            (r#"{"text":"{\"secret\":\"x\"}"}"#, r#"{"text":"{\"secret\":\"***\"}"}"#),
            (r#"{"document":"secret: sesame\nid: 1"}"#, r#"{"document":"secret: ***\nid: 1"}"#),
            (r#"{"keys": 2}"#, r#"{"keys": 2}"#),
            (r#"{"conf_key_id": 7, "token": 77}"#, r#"{"conf_key_id": 7, "token": ***}"#),
        ] {
            assert_eq!(masked(text), expected);
        }
    }

    #[test]
    fn what_was_masked_is_counted_by_file_and_word() {
        let mut all = Masked::default();
        all.text("a", "secret x secret y");
        all.text("b", "\u{e9}\u{20ac} password \u{20ac}\u{20ac}");
        let counts: Vec<_> = all.0.iter().map(|((file, word), count)| (file.as_str(), *word, *count)).collect();
        assert_eq!(counts, [("a", "secret", 2), ("b", "password", 1)]);
    }
}
