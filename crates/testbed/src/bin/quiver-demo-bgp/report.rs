//! The outcome as a table, and as a page with the topology drawn and the timeline plotted.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::measure::{Outcome, name};
use crate::table::Table;

const TOPOLOGY: &str = "
                    10.0.1.0/24           10.0.2.0/24   upstream: BIRD, the full table
   client ─────────────────────┐         ┌──────────── AS 64513
   10.0.1.2                    ├─ router ┤
                               │         └──────────── peer: FRR, a default route and /26
                     BIRD, AS 64512       10.0.3.0/24   AS 64514

   Quiver forwards by what BIRD writes into Linux' table in a namespace of its own (lcp, linux-nl); or the kernel forwards by it.";
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 280.0;
const COLORS: [&str; 2] = ["#0a6", "#d60"];

fn rows(outcomes: &[Outcome]) -> Vec<(&'static str, Vec<String>)> {
    let each = |of: fn(&Outcome) -> String| outcomes.iter().map(of).collect::<Vec<_>>();
    let megabytes = |bytes: u64| format!("{} MB", bytes >> 20);
    vec![
        ("BIRD has all routes after", each(|o| format!("{:.1} s", o.learned))),
        ("packets are forwarded by all after", each(|o| format!("{:.1} s", o.forwarded))),
        ("probes at the right neighbour", each(|o| format!("{} of {}", o.right, o.right + o.wrong + o.missing))),
        ("link cut: datagrams lost", each(|o| format!("{} of {}", o.lost, o.sent))),
        (
            "a destination goes the other way after (median, last)",
            each(|o| o.converged.map_or_else(|| "not all did".to_owned(), |(middle, last)| format!("{middle:.2} s, {last:.2} s"))),
        ),
        ("routes are withdrawn after", each(|o| format!("{:.1} s", o.withdrawn))),
        ("memory of the router's process", outcomes.iter().map(|o| o.router_memory.map_or("–".into(), megabytes)).collect()),
        ("memory of its BIRD", outcomes.iter().map(|o| megabytes(o.bird_memory)).collect()),
    ]
}

/// Prints it.
pub fn print(table: &Table, outcomes: &[Outcome]) {
    println!("{TOPOLOGY}\n");
    println!(
        "{} {} prefixes of the upstream, {} and a default route of the peer\n",
        table.upstream.len(),
        table.origin,
        table.peer.len()
    );
    print!("{:<56}", "");
    outcomes.iter().for_each(|o| print!("{:<20}", name(o.forwarder)));
    println!();
    for (what, values) in rows(outcomes) {
        print!("{what:<56}");
        values.iter().for_each(|value| print!("{value:<20}"));
        println!();
    }
}

/// Writes the page.
pub fn write(folder: &Path, table: &Table, outcomes: &[Outcome]) -> io::Result<PathBuf> {
    let mut page = String::from(
        "<!doctype html><meta charset=utf-8><title>Quiver: BGP demo</title><style>body{font:15px sans-serif;max-width:960px;margin:2em auto}td,th{padding:.2em 1em;text-align:left}</style><h1>A full BGP table, learned, forwarded by, withdrawn</h1>",
    );
    let _ = write!(
        page,
        "{}<p>{} {} prefixes of the upstream, {} and a default route of the peer.</p><table><tr><th>",
        topology(),
        table.upstream.len(),
        table.origin,
        table.peer.len()
    );
    for outcome in outcomes {
        let _ = write!(page, "<th>{}", name(outcome.forwarder));
    }
    for (what, values) in rows(outcomes) {
        let _ = write!(page, "<tr><td>{what}");
        for value in values {
            let _ = write!(page, "<td>{value}");
        }
    }
    let _ = write!(page, "</table><h2>Prefixes that packets are forwarded by</h2>{}", plot(outcomes));
    fs::create_dir_all(folder)?;
    let file = folder.join("report.html");
    fs::write(&file, page)?;
    Ok(file)
}

/// The network, drawn.
fn topology() -> String {
    let mut svg = String::from("<svg width='900' height='230' font-size='13' xmlns='http://www.w3.org/2000/svg'>");
    // Left edge, top, name, what is there.
    let boxes = [
        (10, 75, "client", "10.0.1.2"),
        (340, 75, "router", "Quiver, or the Linux kernel"),
        (340, 165, "its Linux side", "BIRD, AS 64512"),
        (670, 15, "upstream", "BIRD, AS 64513: the full table"),
        (670, 135, "peer", "FRR, AS 64514: default route, /26"),
    ];
    // From, to, network, its place.
    let links = [
        ((220, 100), (340, 100), "10.0.1.0/24", (240, 92)),
        ((550, 90), (670, 40), "10.0.2.0/24: is cut", (560, 48)),
        ((550, 110), (670, 160), "10.0.3.0/24", (565, 155)),
        ((445, 125), (445, 165), "TAP devices: packets; netlink: routes", (453, 149)),
    ];
    for ((x1, y1), (x2, y2), text, (x, y)) in links {
        let _ = write!(
            svg,
            "<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' stroke='#555'/><text x='{x}' y='{y}' fill='#555'>{text}</text>"
        );
    }
    for (x, y, name, what) in boxes {
        let _ = write!(
            svg,
            "<rect x='{x}' y='{y}' width='210' height='50' rx='6' fill='#f4f7fa' stroke='#357'/>\
             <text x='{}' y='{}' font-weight='bold'>{name}</text><text x='{}' y='{}'>{what}</text>",
            x + 10,
            y + 20,
            x + 10,
            y + 40
        );
    }
    svg + "</svg>"
}

fn plot(outcomes: &[Outcome]) -> String {
    let all = || outcomes.iter().flat_map(|o| o.timeline.iter());
    let (seconds, routes) = all().fold((1.0_f64, 1_u64), |(s, r), (at, n)| (s.max(*at), r.max(*n)));
    let x = |at: f64| 60.0 + at / seconds * (WIDTH - 80.0);
    let y = |n: f64| HEIGHT - 30.0 - n / routes as f64 * (HEIGHT - 60.0);
    let mut svg = format!("<svg width={WIDTH} height={HEIGHT} font-size=12 xmlns='http://www.w3.org/2000/svg'>");
    let line = |svg: &mut String, from: (f64, f64), to: (f64, f64), style: &str| {
        let _ = write!(svg, "<line x1='{}' y1='{}' x2='{}' y2='{}' {style}/>", from.0, from.1, to.0, to.1);
    };
    for part in 0..=4 {
        let (at, n) = (seconds * f64::from(part) / 4.0, routes as f64 * f64::from(part) / 4.0);
        line(&mut svg, (x(0.0), y(n)), (x(seconds), y(n)), "stroke='#ddd'");
        let _ =
            write!(svg, "<text x='2' y='{}'>{n:.0}</text><text x='{}' y='{}'>{at:.0} s</text>", y(n), x(at) - 10.0, HEIGHT - 8.0);
    }
    for (outcome, color) in outcomes.iter().zip(COLORS) {
        let points: String = outcome.timeline.iter().map(|(at, n)| format!("{:.1},{:.1} ", x(*at), y(*n as f64))).collect();
        let _ = write!(svg, "<polyline points='{points}' fill='none' stroke='{color}' stroke-width='2'/>");
        line(
            &mut svg,
            (x(outcome.cut_at), 20.0),
            (x(outcome.cut_at), HEIGHT - 30.0),
            &format!("stroke='{color}' stroke-dasharray='4'"),
        );
        let _ = write!(
            svg,
            "<text x='{}' y='14' fill='{color}'>{}: link cut</text>",
            x(outcome.cut_at) - 60.0,
            name(outcome.forwarder)
        );
    }
    svg + "</svg>"
}
