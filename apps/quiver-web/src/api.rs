//! The questions of the page, and which operation of the router answers each.

use std::collections::BTreeMap;

use quiver_command::secrets::Masked;
use quiver_http::{Request, Response};
use serde_json::{Value, json};

use crate::files;
use crate::guard::{self, Guard};
use crate::live::Live;
use crate::router::{Answer, Router};

const JSON: &str = "application/json; charset=utf-8";
/// Routes of a table that a page lists.
const ROUTES: u64 = 20_000;
/// Sessions that are listed without a filter.
const SESSIONS: u64 = 5_000;
/// Packets of each thread that a trace shows.
const TRACED: u64 = 50;
/// Packets that a page may have traced.
const TRACE: u64 = 100;

/// What is served.
pub struct Site {
    /// Who gets an answer.
    pub guard: Guard,
    /// Counters.
    pub live: Live,
    /// Operations.
    pub router: Router,
    /// Whether readers may start a trace.
    pub may_trace: bool,
}

/// The values behind `?`.
type Values = BTreeMap<String, String>;

impl Site {
    /// The answer to a request.
    pub fn answer(&self, request: &Request<'_>) -> Response {
        let response = self.guard.refusal(request).unwrap_or_else(|| match (request.method, request.path.strip_prefix("/api/")) {
            ("POST", Some(name)) => self.act(name, request.body),
            ("POST", None) => Response::text("405 Method Not Allowed", "GET\n"),
            (_, Some(name)) => {
                let values = form_urlencoded::parse(request.query.as_bytes()).into_owned().collect();
                self.read(name, &values)
            }
            (_, None) => files::at(request.path).unwrap_or_else(|| Response::text("404 Not Found", "there is no such page\n")),
        });
        Response { headers: guard::HEADERS, ..response }
    }

    fn read(&self, name: &str, values: &Values) -> Response {
        let value = |name: &str| values.get(name).filter(|value| !value.is_empty()).map_or(Value::Null, |value| json!(value));
        let ask = |operation: &str, request: Value| self.router.read(operation, &request);
        let answer = match name {
            "live" => self.live.read(),
            "about" => self.about(),
            "graph" => ask("graph_dump", json!({})),
            "drops" => ask("drop_explain", json!({ "reason": value("reason") })),
            "interfaces" => ask("interfaces_show", json!({})),
            "tags" => ask("interfaces_show", json!({ "what": "tags" })),
            "threads" => ask("threads_show", json!({})),
            "tables" => match family(values) {
                Ok(family) => ask("ip_table_dump", json!({ "family": family })),
                Err(error) => Err(error),
            },
            "route" => self.route(values),
            "routes" => self.routes(values),
            "sessions" => self.sessions(values),
            "trace" => ask("trace_dump", json!({ "max": TRACED })),
            "protocols" => self.protocols(),
            "configuration" => ask("configuration_show", json!({})).map(|answer| masked(&answer)),
            "checkpoints" => ask("checkpoint_dump", json!({})),
            "diff" => ask("configuration_diff_show", json!({ "checkpoint": value("checkpoint") })).map(|answer| masked(&answer)),
            "log" => ask("log_dump", json!({})).map(|answer| masked(&answer)),
            _ => return Response::text("404 Not Found", "there is no such question\n"),
        };
        respond(answer)
    }

    fn act(&self, name: &str, body: &[u8]) -> Response {
        if !matches!(name, "trace" | "trace/clear") {
            return Response::text("404 Not Found", "there is nothing to do\n");
        }
        if !self.may_trace {
            return Response::text("403 Forbidden", "this page only reads; quiver-web --allow-trace lets it start a trace\n");
        }
        if name == "trace/clear" {
            return respond(self.router.act("trace_clear", &json!({})));
        }
        let asked: Value = serde_json::from_slice(body).unwrap_or_default();
        match (asked["node"].as_str(), asked["count"].as_u64()) {
            (Some(node), Some(count @ 1..=TRACE)) => {
                respond(self.router.act("trace_add", &json!({ "node": node, "count": count })))
            }
            _ => respond(Err(format!("name a node, and 1 to {TRACE} packets"))),
        }
    }

    fn about(&self) -> Answer {
        let version: Value = serde_json::from_str(&self.router.read("version_show", &json!({}))?).unwrap_or_default();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Ok(json!({ "version": version, "host": host.trim(), "may_trace": self.may_trace }).to_string())
    }

    /// The route that decides about an address, or that of a prefix.
    fn route(&self, values: &Values) -> Answer {
        let text = values.get("text").map_or("", |text| text.trim());
        let mut request = json!({ "family": family(values)?, "table": table(values)?, "detail": true });
        let field = if text.contains('/') { "prefix" } else { "address" };
        request[field] = json!(text);
        self.router.read("ip_route_dump", &request)
    }

    /// All routes of a table, where these are few enough for a page.
    fn routes(&self, values: &Values) -> Answer {
        let (family, table) = (family(values)?, table(values)?);
        let tables: Value =
            serde_json::from_str(&self.router.read("ip_table_dump", &json!({ "family": family }))?).unwrap_or_default();
        let row = tables.as_array().and_then(|rows| rows.iter().find(|row| row["table_id"] == table));
        let routes = row.and_then(|row| row["routes"].as_u64()).ok_or_else(|| format!("there is no table {table}"))?;
        if routes > ROUTES {
            return Err(format!(
                "the table has {routes} routes, and a page lists at most {ROUTES}; search for an address or a prefix"
            ));
        }
        self.router.read("ip_route_dump", &json!({ "family": family, "table": table }))
    }

    fn sessions(&self, values: &Values) -> Answer {
        let mut request = json!({ "outside": false });
        for name in ["saddr", "daddr"] {
            if let Some(value) = values.get(name).filter(|value| !value.is_empty()) {
                request[name] = json!(value.trim());
            }
        }
        for name in ["sport", "dport", "proto"] {
            if let Some(value) = values.get(name).filter(|value| !value.is_empty()) {
                request[name] = json!(value.trim().parse::<u16>().map_err(|_| format!("{name}: {value} is no number"))?);
            }
        }
        let summary: Value = serde_json::from_str(&self.router.read("nat44_summary_show", &json!({}))?).unwrap_or_default();
        let total = summary["total"].as_u64().unwrap_or(0);
        if total > SESSIONS && request.as_object().is_some_and(|fields| fields.len() == 1) {
            return Ok(json!({ "summary": summary, "sessions": null }).to_string());
        }
        let sessions: Value = serde_json::from_str(&self.router.read("nat44_sessions_show", &request)?).unwrap_or_default();
        Ok(json!({ "summary": summary, "sessions": sessions["sessions"] }).to_string())
    }

    /// Sessions and links that are watched; those of a plugin that is off are null.
    fn protocols(&self) -> Answer {
        let mut all = json!({});
        for (name, operation, request) in [
            ("bfd", "bfd_sessions_show", json!({})),
            ("vrrp", "vrrp_vr_show", json!({})),
            ("bonds", "bonds_show", json!({ "details": true })),
            ("lacp", "lacp_show", json!({ "details": true })),
        ] {
            let answer = self.router.read(operation, &request);
            all[name] = answer.ok().and_then(|answer| serde_json::from_str(&answer).ok()).unwrap_or_default();
        }
        Ok(all.to_string())
    }
}

fn family(values: &Values) -> Result<&'static str, String> {
    match values.get("family").map_or("ip4", String::as_str) {
        "ip4" => Ok("ip4"),
        "ip6" => Ok("ip6"),
        _ => Err("the family is ip4 or ip6".to_owned()),
    }
}

fn table(values: &Values) -> Result<u32, String> {
    let text = values.get("table").map_or("0", |text| text.trim());
    text.parse().map_err(|_| format!("`{text}' is no number of a table"))
}

fn masked(answer: &str) -> String {
    Masked::default().text("", answer)
}

fn respond(answer: Answer) -> Response {
    match answer {
        Ok(json) => Response::new("200 OK", JSON, json.into_bytes()),
        Err(error) => Response::new("502 Bad Gateway", JSON, json!({ "error": error }).to_string().into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::tests::made_up;

    fn site(may_trace: bool, answers: impl Fn(&Value) -> Value + Send + 'static) -> Site {
        let (router, _) = made_up(move |call| json!({ "id": 1, "status": "ok", "data": answers(call) }));
        Site { guard: Guard::default(), live: Live::new("/nonexistent/stats.sock".into()), router, may_trace }
    }

    fn ask(site: &Site, method: &str, path: &str, body: &str) -> (&'static str, String) {
        let length = body.len();
        let bytes = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-Quiver: 1\r\nContent-Length: {length}\r\n\r\n{body}");
        let response = quiver_http::answer(bytes.as_bytes(), &|request| site.answer(request)).unwrap();
        assert_eq!(response.headers, guard::HEADERS);
        (response.status, String::from_utf8(response.body.into_owned()).unwrap())
    }

    #[test]
    fn what_a_reader_typed_is_a_value_and_no_command() {
        let site = site(false, |call| json!({ "op": call["op"], "request": call["request"], "command": call["command"] }));
        let (_, body) = ask(&site, "GET", "/api/route?family=ip4&table=7&text=10.0.0.1%3B+show+version%22%7D%0A", "");
        let got: Value = serde_json::from_str(&body).unwrap();
        let request = json!({ "family": "ip4", "table": 7, "detail": true, "address": "10.0.0.1; show version\"}" });
        assert_eq!(got, json!({ "op": "ip_route_dump", "request": request, "command": null }));
        let (_, body) = ask(&site, "GET", "/api/route?family=ip6&text=2001:db8::/32", "");
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["request"]["prefix"], "2001:db8::/32");
        for (path, error) in [
            ("/api/route?family=ip5", "the family is ip4 or ip6"),
            ("/api/route?table=x", "`x' is no number of a table"),
            ("/api/sessions?dport=http", "dport: http is no number"),
        ] {
            let (status, body) = ask(&site, "GET", path, "");
            assert_eq!((status, body), ("502 Bad Gateway", json!({ "error": error }).to_string()), "{path}");
        }
        assert!(ask(&site, "GET", "/api/exec", "").0.starts_with("404"));
        assert!(ask(&site, "GET", "/nothing", "").0.starts_with("404"));
    }

    #[test]
    fn a_page_that_only_reads_starts_no_trace() {
        let body = r#"{"node":"pg-input","count":5}"#;
        let reader = site(false, |_| panic!("the router was asked"));
        for path in ["/api/trace", "/api/trace/clear"] {
            assert!(ask(&reader, "POST", path, body).0.starts_with("403"), "{path}");
        }
        let tracer = site(true, |call| call["request"].clone());
        assert_eq!(ask(&tracer, "POST", "/api/trace", body), ("200 OK", r#"{"count":5,"node":"pg-input"}"#.to_owned()));
        assert!(ask(&tracer, "POST", "/api/trace/clear", "").0.starts_with("200"));
        for wrong in ["", "{}", r#"{"node":"x","count":0}"#, r#"{"node":"x","count":101}"#, r#"{"node":7,"count":1}"#] {
            assert!(ask(&tracer, "POST", "/api/trace", wrong).1.contains("1 to 100 packets"), "{wrong}");
        }
        assert!(ask(&tracer, "POST", "/api/configuration", "{}").0.starts_with("404"));
        assert!(ask(&tracer, "POST", "/", "").0.starts_with("405"));
    }

    #[test]
    fn secrets_of_the_configuration_do_not_reach_the_page() {
        let site =
            site(false, |_| json!([{ "request": { "secret": "sesame" }, "command": "create interface memif secret sesame" }]));
        for path in ["/api/configuration", "/api/diff?checkpoint=1", "/api/log"] {
            let (status, body) = ask(&site, "GET", path, "");
            assert!(status.starts_with("200") && !body.contains("sesame") && body.contains("***"), "{path}: {body}");
        }
    }

    #[test]
    fn tables_that_are_too_long_are_not_asked_for() {
        let site = site(false, |call| match call["op"].as_str() {
            Some("ip_table_dump") => json!([{ "table_id": 0, "routes": 1_000_000 }, { "table_id": 7, "routes": 3 }]),
            Some("nat44_summary_show") => json!({ "total": 100_000 }),
            Some("nat44_sessions_show") => json!({ "sessions": [call["request"]["saddr"]] }),
            Some("ip_route_dump") => json!({ "table": call["request"]["table"] }),
            _ => panic!("{call}"),
        });
        assert!(ask(&site, "GET", "/api/routes", "").1.contains("1000000 routes"));
        assert_eq!(ask(&site, "GET", "/api/routes?table=7", "").1, r#"{"table":7}"#);
        assert!(ask(&site, "GET", "/api/routes?table=8", "").1.contains("no table 8"));
        let sessions =
            |query: &str| serde_json::from_str::<Value>(&ask(&site, "GET", &format!("/api/sessions{query}"), "").1).unwrap();
        assert_eq!(sessions("")["sessions"], Value::Null);
        assert_eq!(sessions("?saddr=10.0.0.1")["sessions"], json!(["10.0.0.1"]));
    }
}
