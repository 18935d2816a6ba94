use super::*;
use quiver_wire::pcapfile::{LinkType, Writer};

/// Opens what it is told.
struct Anywhere;

impl CaptureFiles for Anywhere {
    fn open(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        File::create(path)
    }
}

fn file(name: &str, link_type: LinkType, packets: usize) -> PathBuf {
    let path = std::env::temp_dir().join(format!("quiver-pcap-port-{}-{name}.pcap", std::process::id()));
    let mut writer = Writer::new(File::create(&path).unwrap(), link_type).unwrap();
    (0..packets).for_each(|i| writer.write(i as u64 * 1000, &[i as u8; 60], 60).unwrap());
    path
}

#[test]
fn files_that_cannot_be_are_named() {
    let raw = file("raw", LinkType::RAW_IP, 3);
    let empty = file("empty", LinkType::ETHERNET, 0);
    let good = file("good", LinkType::ETHERNET, 3);
    let text = std::env::temp_dir().join(format!("quiver-pcap-port-{}-text", std::process::id()));
    std::fs::write(&text, "this is no capture file at all").unwrap();
    let of = |rx: &PathBuf| PcapPortConfig { rx: Some(rx.clone()), rounds: 1, ..Default::default() };
    let to = |tx: &PathBuf| PcapPortConfig { tx: Some(tx.clone()), ..Default::default() };
    for (config, expected) in [
        (PcapPortConfig::default(), "needs `rx FILE'"),
        (of(&raw), "link type 101"),
        (of(&empty), "holds no packets"),
        (of(&text), "-text: "),
        (of(&"/nonexistent.pcap".into()), "/nonexistent.pcap: "),
        (PcapPortConfig { tx: Some(good.clone()), ..of(&good) }, "at once"),
        (PcapPortConfig { timing: Timing::Rate(0), ..of(&good) }, "rate 0"),
        (to(&"/nonexistent/x".into()), "/nonexistent/x"),
    ] {
        let Err(error) = PcapPort::open(config, &Anywhere) else { panic!("{expected}: was opened") };
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(std::fs::metadata(&good).unwrap().len() > 24, "not truncated");
    [raw, empty, good, text].iter().for_each(|f| drop(std::fs::remove_file(f)));
}
