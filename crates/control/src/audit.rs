//! The audit: a line in the log for each request of a session that changes something, with who asked, what, and what came of it.
//!
//! Lines of a file that is run are not told one by one: the request is `exec FILE`. Values behind `secret` and the like are left out.

use quiver_command::operation::{Answer, OpError};
use quiver_command::session::Request;
use serde_json::Value;

use crate::server::{Peer, SessionKind};

/// What stands in the place of a value that must not be told.
const MASK: &str = "***";
/// Words behind which such a value stands, and names that it has in a request.
const SECRETS: [&str; 4] = ["secret", "password", "token", "passphrase"];
/// Characters of a request that are told.
const MOST: usize = 1000;

fn is_secret(name: &str) -> bool {
    SECRETS.contains(&name.to_ascii_lowercase().as_str())
}

/// What is asked for, without its secrets.
pub fn told(request: &Request) -> String {
    let text = match request {
        Request::Command { line, .. } => masked_line(line),
        Request::Operation { name, request, .. } => {
            let mut request = request.clone();
            mask(&mut request);
            format!("{name} {request}")
        }
        Request::Complete { .. } => "a completion".to_owned(),
    };
    let text = text.replace(char::is_control, " ");
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{} ...", &text[..at]),
        None => text,
    }
}

fn masked_line(line: &str) -> String {
    let mut after = false;
    let words = line.split_whitespace().map(|word| {
        let shown = if after { MASK } else { word };
        after = is_secret(word);
        shown
    });
    words.collect::<Vec<_>>().join(" ")
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if is_secret(name) {
                    *value = MASK.into();
                } else {
                    mask(value);
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(mask),
        _ => {}
    }
}

/// Writes the line.
pub fn tell(who: (SessionKind, Peer), what: &str, result: &Result<Answer, OpError>) {
    let (kind, peer) = (who.0.name(), who.1);
    match result {
        Ok(_) => tracing::info!(target: "audit", "{kind}, {peer}: {what}: done"),
        Err(error) => tracing::info!(target: "audit", "{kind}, {peer}: {what}: failed: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_command::operation::View;

    #[test]
    fn secrets_are_not_told() {
        let line = |line: &str| told(&Request::Command { line: line.to_owned(), view: View::TEXT });
        assert_eq!(
            line("bfd key set conf-key-id 1 type keyed-sha1 secret 0011 \n"),
            "bfd key set conf-key-id 1 type keyed-sha1 secret ***"
        );
        assert_eq!(line("set interface state eth0 up"), "set interface state eth0 up");
        let request = serde_json::json!({"keys": [{"id": 1, "Secret": "0011"}], "name": "x"});
        let told = told(&Request::Operation { name: "bfd_auth_key_set".to_owned(), request, view: View::JSON });
        assert_eq!(told, r#"bfd_auth_key_set {"keys":[{"Secret":"***","id":1}],"name":"x"}"#);
        assert_eq!(line(&"é".repeat(2000)).chars().count(), MOST + 4, "not all of a long one");
    }
}
