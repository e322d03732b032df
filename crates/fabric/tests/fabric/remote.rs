//! A receiver, here or in a process of its own (`shm` connects only different processes).

use std::sync::Mutex;

use tandem_core::EndpointId;
use tandem_fabric::{Armed, FabricEvent, FabricOptions, Inbox, RegionKey, RemoteRegion, SlotKey};

use crate::child::{Process, hear, say};
use crate::pair::{Side, bytes_of, options, pattern};

const PROVIDER: &str = "TANDEM_FABRIC_TEST_PROVIDER";
const BYTES: &str = "TANDEM_FABRIC_TEST_BYTES";
const NICS: &str = "TANDEM_FABRIC_TEST_NICS";
const ENTRIES: &str = "TANDEM_FABRIC_TEST_ENTRIES";

/// The receiving side of a pair.
pub(crate) enum Receiver {
    Here(Box<Side>),
    There {
        process: Mutex<Process>,
        region: RemoteRegion,
    },
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
        .collect()
}

pub(crate) fn hex_all(addresses: &[Vec<u8>]) -> String {
    let each: Vec<String> = addresses.iter().map(|a| hex(a)).collect();
    each.join(",")
}

pub(crate) fn unhex_all(text: &str) -> Vec<Vec<u8>> {
    text.split(',').map(unhex).collect()
}

/// `LEN BASE KEY BASE KEY …`
pub(crate) fn write_region(region: &RemoteRegion) -> String {
    let mut text = region.len.to_string();
    for name in &region.keys {
        text += &format!(" {} {}", name.base, name.key);
    }
    text
}

pub(crate) fn read_region(text: &str) -> RemoteRegion {
    let n = numbers(text);
    let name = |pair: &[u64]| RegionKey {
        base: pair[0],
        key: pair[1],
    };
    RemoteRegion {
        len: n[0],
        keys: n[1..].chunks(2).map(name).collect(),
    }
}

fn numbers(line: &str) -> Vec<u64> {
    line.split(' ')
        .filter_map(|word| word.parse().ok())
        .collect()
}

impl Receiver {
    pub(crate) fn open(options: &FabricOptions, bytes: usize) -> Self {
        if options.provider == "shm" {
            Self::start(options, bytes)
        } else {
            Self::Here(Box::new(Side::open(options.clone(), bytes)))
        }
    }

    /// In a process of its own.
    pub(crate) fn start(options: &FabricOptions, bytes: usize) -> Self {
        let (bytes, nics) = (bytes.to_string(), options.nics.len().to_string());
        let entries = options.completion_entries;
        let entries = entries.map(|n| n.to_string()).unwrap_or_default();
        let variables = [
            (PROVIDER, options.provider.as_str()),
            (BYTES, bytes.as_str()),
            (NICS, nics.as_str()),
            (ENTRIES, entries.as_str()),
        ];
        let mut process = Process::start("receive", &variables);
        let region = read_region(&process.line());
        Self::There {
            process: Mutex::new(process),
            region,
        }
    }

    pub(crate) fn region(&self) -> RemoteRegion {
        match self {
            Self::Here(side) => side.region(),
            Self::There { region, .. } => region.clone(),
        }
    }

    /// Asks the other process.
    fn ask(&self, question: &str) -> String {
        let Self::There { process, .. } = self else {
            panic!("it is here")
        };
        let mut process = process.lock().unwrap();
        process.tell(question);
        process.line()
    }

    /// The other process.
    pub(crate) fn process(&self) -> u32 {
        let Self::There { process, .. } = self else {
            panic!("it is here")
        };
        process.lock().unwrap().id()
    }

    /// SIGKILL.
    pub(crate) fn kill(&self) {
        let Self::There { process, .. } = self else {
            panic!("it is here")
        };
        process.lock().unwrap().kill();
    }

    pub(crate) async fn open_inbox(&self) -> Inbox {
        if let Self::Here(side) = self {
            return side.fabric.open_inbox().await.unwrap();
        }
        let answer = self.ask("inbox");
        let (id, address) = answer.split_once(' ').unwrap();
        Inbox {
            endpoint: EndpointId(id.parse().unwrap()),
            addresses: unhex_all(address),
        }
    }

    pub(crate) async fn arm(&self, inbox: EndpointId, expected: u64) -> Armed {
        if let Self::Here(side) = self {
            return side.fabric.arm(inbox, expected).await.unwrap();
        }
        let key = numbers(&self.ask(&format!("arm {} {expected}", inbox.0)))[0];
        Armed {
            key: SlotKey::from_bits(key as u32).unwrap(),
        }
    }

    pub(crate) async fn release(&self, armed: Armed) {
        match self {
            Self::Here(side) => side.fabric.release(armed).unwrap(),
            Self::There { .. } => drop(self.ask(&format!("release {}", armed.key.to_bits()))),
        }
    }

    pub(crate) async fn close(&self, inbox: EndpointId) {
        match self {
            Self::Here(side) => side.fabric.close(inbox).await.unwrap(),
            Self::There { .. } => assert_eq!(self.ask(&format!("close {}", inbox.0)), "closed"),
        }
    }

    /// The next event, which must be this slot's.
    pub(crate) async fn full(&mut self, armed: Armed) {
        assert_eq!(self.event().await, format!("full {}", armed.key.to_bits()));
    }

    pub(crate) async fn event(&mut self) -> String {
        match self {
            Self::Here(side) => describe(&side.event().await),
            Self::There { .. } => self.ask("event"),
        }
    }

    /// Whether the memory holds the pattern of a seed, from an offset on.
    pub(crate) fn holds_pattern(&self, seed: u64, offset: usize, len: usize) -> bool {
        match self {
            Self::Here(side) => bytes_of(&side.memory, offset, len) == pattern(seed, len),
            Self::There { .. } => self.ask(&format!("pattern {seed} {offset} {len}")) == "true",
        }
    }

    /// Whether the memory holds one byte, over and over.
    pub(crate) fn holds(&self, byte: u8, offset: usize, len: usize) -> bool {
        match self {
            Self::Here(side) => bytes_of(&side.memory, offset, len)
                .iter()
                .all(|b| *b == byte),
            Self::There { .. } => self.ask(&format!("holds {byte} {offset} {len}")) == "true",
        }
    }

    /// Fills the whole memory.
    pub(crate) fn fill(&self, byte: u8) {
        match self {
            Self::Here(side) => side
                .memory
                .write(0, &vec![byte; side.region().len as usize]),
            Self::There { .. } => drop(self.ask(&format!("fill {byte}"))),
        }
    }

    /// Immediates that counted, and stale ones.
    pub(crate) fn immediates(&self) -> (u64, u64) {
        match self {
            Self::Here(side) => {
                let stats = side.fabric.stats();
                (stats.immediates.get(), stats.immediates_stale.get())
            }
            Self::There { .. } => {
                let answer = numbers(&self.ask("immediates"));
                (answer[0], answer[1])
            }
        }
    }
}

fn describe(event: &FabricEvent) -> String {
    match event {
        FabricEvent::Full { armed, .. } => format!("full {}", armed.to_bits()),
        FabricEvent::Overfull {
            armed, expected, ..
        } => {
            format!("overfull {} {expected}", armed.to_bits())
        }
        other => format!("{other:?}"),
    }
}

/// The child's part: does as it is told.
pub(crate) fn receive() {
    let provider = std::env::var(PROVIDER).unwrap();
    let bytes = std::env::var(BYTES).unwrap().parse().unwrap();
    let nics = std::env::var(NICS).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let options = FabricOptions {
            nics: vec![None; nics],
            completion_entries: std::env::var(ENTRIES).unwrap().parse().ok(),
            ..options(&provider)
        };
        let mut receiver = Receiver::Here(Box::new(Side::open(options, bytes)));
        say(&write_region(&receiver.region()));
        loop {
            let question = hear();
            if question.is_empty() {
                return;
            }
            say(&obey(&mut receiver, &question).await);
        }
    });
}

async fn obey(receiver: &mut Receiver, question: &str) -> String {
    let n = numbers(question);
    let slot = || Armed {
        key: SlotKey::from_bits(n[0] as u32).unwrap(),
    };
    match question.split(' ').next().unwrap() {
        "inbox" => {
            let inbox = receiver.open_inbox().await;
            format!("{} {}", inbox.endpoint.0, hex_all(&inbox.addresses))
        }
        "arm" => {
            let armed = receiver.arm(EndpointId(n[0]), n[1]).await;
            armed.key.to_bits().to_string()
        }
        "release" => {
            receiver.release(slot()).await;
            "released".into()
        }
        "close" => {
            receiver.close(EndpointId(n[0])).await;
            "closed".into()
        }
        "event" => receiver.event().await,
        "pattern" => receiver
            .holds_pattern(n[0], n[1] as usize, n[2] as usize)
            .to_string(),
        "holds" => receiver
            .holds(n[0] as u8, n[1] as usize, n[2] as usize)
            .to_string(),
        "fill" => {
            receiver.fill(n[0] as u8);
            "filled".into()
        }
        "immediates" => {
            let (counted, stale) = receiver.immediates();
            format!("{counted} {stale}")
        }
        other => panic!("what is {other}?"),
    }
}
