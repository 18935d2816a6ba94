//! YAML that people can read: a line for each key of a stream, short values in one line.

use serde_json::Value;

use crate::profile::on_one_line;

/// A value in one line.
fn flow(value: &Value, out: &mut String) {
    match value {
        Value::Object(keys) => {
            out.push('{');
            for (n, (key, value)) in keys.iter().enumerate() {
                out.push_str(if n == 0 { " " } else { ", " });
                out.push_str(key);
                out.push_str(": ");
                flow(value, out);
            }
            out.push_str(if keys.is_empty() { "}" } else { " }" });
        }
        Value::Array(values) => {
            out.push('[');
            for (n, value) in values.iter().enumerate() {
                out.push_str(if n == 0 { "" } else { ", " });
                flow(value, out);
            }
            out.push(']');
        }
        // Colons would make keys of IPv6 and Ethernet addresses, and some numbers of base 60.
        Value::String(text) if is_plain(text) => out.push_str(text),
        _ => out.push_str(&value.to_string()),
    }
}

/// Whether YAML reads a text as that text without quotes.
fn is_plain(text: &str) -> bool {
    let word =
        text.starts_with(|c: char| c.is_ascii_alphabetic()) && !["true", "false", "null", "yes", "no", "on", "off"].contains(&text);
    let address = text.parse::<std::net::Ipv4Addr>().is_ok();
    address || (word && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'))
}

/// A profile: comments, name, streams with their keys in this order.
pub(super) fn profile(comments: &[String], name: &str, streams: &[Vec<(&str, Value)>]) -> String {
    let mut out = String::new();
    for comment in comments {
        // A line of a comment stays one.
        out.push_str(format!("# {}", on_one_line(comment)).trim_end());
        out.push('\n');
    }
    out.push_str("schema: quiver-profile/1\nname: ");
    flow(&Value::String(name.to_owned()), &mut out);
    out.push_str("\nstreams:\n");
    for stream in streams {
        for (n, (key, value)) in stream.iter().enumerate() {
            out.push_str(if n == 0 { "  - " } else { "    " });
            out.push_str(key);
            out.push_str(": ");
            flow(value, &mut out);
            out.push('\n');
        }
    }
    out
}
