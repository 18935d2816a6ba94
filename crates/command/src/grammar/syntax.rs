//! What a syntax string says about keywords and values.

/// One element of a syntax string, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Keyword(&'static str),
    Value(&'static str),
    /// A bar between alternatives.
    Or,
    /// Brackets, braces, dots: what separates without saying more.
    Mark,
}

/// A syntax string such as `[del] <if> <addr>/<len>`, taken apart.
///
/// This is a help for people who type, not the parser: it knows which keywords there are and which
/// values follow which keyword, not which combinations are allowed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Syntax {
    text: &'static str,
    tokens: Vec<Token>,
    keywords: Vec<&'static str>,
}

impl Syntax {
    pub(crate) fn new(text: &'static str) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let length = match first {
                '<' => {
                    let length = rest.find('>').map_or(rest.len(), |end| end + 1);
                    let name = rest[..length].trim_start_matches('<').trim_end_matches('>');
                    tokens.push(Token::Value(name));
                    length
                }
                _ if is_keyword_character(first) => {
                    let length = rest.find(|c: char| !is_keyword_character(c)).unwrap_or(rest.len());
                    tokens.push(Token::Keyword(&rest[..length]));
                    length
                }
                '|' => {
                    tokens.push(Token::Or);
                    1
                }
                _ => {
                    if !first.is_whitespace() {
                        tokens.push(Token::Mark);
                    }
                    first.len_utf8()
                }
            };
            rest = &rest[length..];
        }
        let mut keywords: Vec<&'static str> = tokens
            .iter()
            .filter_map(|token| match token {
                Token::Keyword(word) => Some(*word),
                _ => None,
            })
            .collect();
        keywords.sort_unstable();
        keywords.dedup();
        Self { text, tokens, keywords }
    }

    /// The string itself.
    pub(crate) fn text(&self) -> &'static str {
        self.text
    }

    /// All keywords, sorted, each once.
    pub(crate) fn keywords(&self) -> &[&'static str] {
        &self.keywords
    }

    /// The keyword that a typed word means: the word itself or the only keyword that it begins.
    pub(crate) fn keyword(&self, typed: &str) -> Option<&'static str> {
        if let Ok(exact) = self.keywords.binary_search(&typed) {
            return Some(self.keywords[exact]);
        }
        let mut matching = self.keywords.iter().filter(|keyword| keyword.starts_with(typed));
        match (matching.next(), matching.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        }
    }

    /// The kinds of value that follow a keyword directly (`<a>|<if>` gives both); empty where none does.
    pub(crate) fn values_after(&self, keyword: &str) -> Vec<&'static str> {
        let is_it = |token: &Token| matches!(token, Token::Keyword(word) if *word == keyword);
        let places = self.tokens.iter().enumerate().filter(|(_, token)| is_it(token));
        places.flat_map(|(at, _)| self.values_at(at + 1)).collect()
    }

    /// The kinds of value that stand alone, not behind a keyword of their own. In `off|strict <if>` the
    /// interface stands alone.
    pub(crate) fn free_values(&self) -> Vec<&'static str> {
        let places = self.tokens.iter().enumerate();
        places
            .filter_map(|(at, token)| match token {
                Token::Value(name) if !self.behind_keyword(at) => Some(*name),
                _ => None,
            })
            .collect()
    }

    fn behind_keyword(&self, at: usize) -> bool {
        let before = |steps: usize| at.checked_sub(steps).and_then(|place| self.tokens.get(place));
        match (before(1), before(2)) {
            (Some(Token::Keyword(_)), Some(Token::Or)) => false,
            (Some(Token::Keyword(_)), _) => true,
            (Some(Token::Or), Some(Token::Value(_))) => self.behind_keyword(at - 2),
            _ => false,
        }
    }

    fn values_at(&self, mut at: usize) -> Vec<&'static str> {
        let mut values = Vec::new();
        while let Some(Token::Value(name)) = self.tokens.get(at) {
            values.push(*name);
            if self.tokens.get(at + 1) != Some(&Token::Or) {
                break;
            }
            at += 2;
        }
        values
    }
}

fn is_keyword_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '+')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_keywords_and_the_values_behind_them() {
        let syntax = Syntax::new("[add|del] <prefix> [table <id>] via <nh>|<if> [weight <n>] ...");
        assert_eq!(syntax.keywords(), ["add", "del", "table", "via", "weight"]);
        assert_eq!(syntax.values_after("table"), ["id"]);
        assert_eq!(syntax.values_after("via"), ["nh", "if"]);
        assert!(syntax.values_after("del").is_empty());
        assert!(syntax.free_values().contains(&"prefix"));
        assert!(!syntax.free_values().contains(&"id") && !syntax.free_values().contains(&"if"));
    }

    #[test]
    fn a_value_behind_a_bracket_or_alternatives_is_free() {
        assert_eq!(Syntax::new("off|strict|loose <if>").free_values(), ["if"]);
        assert_eq!(Syntax::new("[del] <if> up|down").free_values(), ["if"]);
    }

    #[test]
    fn a_typed_word_means_the_only_keyword_it_begins() {
        let syntax = Syntax::new("[ip4|ip6] [verbose] [ip]");
        assert_eq!(syntax.keyword("verb"), Some("verbose"));
        assert_eq!(syntax.keyword("ip"), Some("ip"));
        assert_eq!(syntax.keyword("i"), None);
        assert_eq!(syntax.keyword("x"), None);
    }

    #[test]
    fn odd_strings_do_no_harm() {
        for text in ["", "<", "<a", ">", "|", "é<ü>", "a|", "{ ... }"] {
            let syntax = Syntax::new(text);
            let _ = (syntax.free_values(), syntax.values_after("a"));
        }
    }
}
