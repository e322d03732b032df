//! Peers with a certificate and bad intentions: each gets an error, and nothing of others changes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType};
use tandem_core::FlowId;
use tandem_core::immediate::{Immediate, SlotKey};
use tandem_engine::testing::TinyLlama;
use tandem_fabric::{Fabric, FabricOptions, RegionKey, RemoteRegion, Write};
use tandem_memory::HostMemory;
use tandem_wire::proto::dispatch_reply::Kind;
use tandem_wire::{Channel, Connection, ControlOptions, Endpoint, Identity, proto};

use crate::fleet::{Fleet, Worker, generate, within};

fn prompt(seed: u32) -> Vec<u32> {
    (0..60)
        .map(|i| (i * i * 31 + seed * 17 + i) % 256)
        .collect()
}

/// Bytes that pass for a message.
#[derive(Debug, Default)]
struct Raw(Vec<u8>);

impl Message for Raw {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        buf.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        _: u32,
        _: WireType,
        _: &mut impl Buf,
        _: DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {}
}

/// An endpoint with the certificate of one more worker.
fn endpoint(fleet: &Fleet, role: &str) -> (String, Endpoint) {
    let id = fleet.issue(role);
    let identity = Identity::load(&fleet.folder().join("pki"), &id).unwrap();
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let endpoint = Endpoint::bind(local, &identity, ControlOptions::default()).unwrap();
    (id, endpoint)
}

async fn open(connection: &Connection, message: &impl Message) -> Channel {
    let mut channel = within(connection.open()).await.unwrap();
    channel.send.send(message).await.unwrap();
    channel
}

/// A dispatch that a prefill worker would take, from one that says it has the same layout.
fn dispatch(to: &Worker, from: &str) -> proto::Dispatch {
    let target = |slot| proto::Target {
        length: 64 * 3 * 2 * 2 * 16 * 16 * 2 / 2,
        provider: to.welcome.provider.clone().unwrap().wire,
        nics: vec![proto::Nic {
            // Nobody listens there.
            address: vec![2, 0, 0, 1, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0].into(),
            base: 0,
            key: 7,
        }],
        slot_key: slot,
    };
    proto::Dispatch {
        request: vec![7; 16].into(),
        incarnation: to.welcome.incarnation,
        worker: from.into(),
        from_incarnation: 1,
        tokens: prompt(1),
        pages: vec![0, 1, 2, 3],
        geometry: to.welcome.geometry.clone(),
        fingerprint: to.welcome.model.clone().unwrap().fingerprint,
        time_left_ms: 5_000,
        targets: vec![target(1 << 8), target(2 << 8)],
        source_page_tokens: 16,
        ..proto::Dispatch::default()
    }
}

const SHARDS: &str = "tensor_parallel = 2\nkv_pages = 64";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::too_many_lines, reason = "one lie after another")]
async fn a_dispatch_that_lies_is_refused_with_what_is_wrong() {
    let fleet = Fleet::new(TinyLlama::default());
    let prefill = fleet.start("prefill", SHARDS, "").await;
    let (id, liar) = endpoint(&fleet, "decode");
    let connection = within(liar.connect(prefill.address)).await.unwrap();
    type Spoil = fn(&mut proto::Dispatch);
    let lies: &[(&str, Spoil)] = &[
        ("request id", |d| d.request = vec![1; 3].into()),
        ("earlier life", |d| d.incarnation += 1),
        ("certificate is not decode-77", |d| {
            d.worker = "decode-77".into()
        }),
        ("no geometry", |d| d.geometry = None),
        ("layout", |d| {
            d.geometry.as_mut().unwrap().shards.truncate(1)
        }),
        ("heads 4294967295", |d| {
            d.geometry.as_mut().unwrap().shards[0].heads = u32::MAX
        }),
        ("head_dim is 16 here and 8 there", |d| {
            d.geometry.as_mut().unwrap().head_dim = 8;
            d.targets.iter_mut().for_each(|t| t.length /= 2);
        }),
        ("a layer's name", |d| {
            d.geometry.as_mut().unwrap().layer_names[1] = "mtp.0".into()
        }),
        ("fingerprint", |d| d.fingerprint = "other".into()),
        ("page_tokens of this worker is 16 here and 32", |d| {
            d.source_page_tokens = 32
        }),
        ("1 targets for 2 shards", |d| d.targets.truncate(1)),
        ("a prompt of 1 tokens", |d| d.tokens.truncate(1)),
        ("token 4000000", |d| d.tokens[3] = 4_000_000),
        ("3 pages", |d| d.pages.truncate(3)),
        ("page 64 of 64", |d| d.pages[2] = 64),
        ("15 tokens held", |d| d.held_tokens = 15),
        ("64 tokens held", |d| d.held_tokens = 64),
        ("bytes for 64 pages", |d| d.targets[1].length += 4096),
        ("a shard of 0 NICs", |d| d.targets[1].nics.clear()),
        ("a shard of 9 NICs", |d| {
            let nic = d.targets[0].nics[0].clone();
            d.targets[0].nics = vec![nic; 9];
        }),
        ("no slot", |d| d.targets[0].slot_key = u32::MAX),
        ("provider", |d| d.targets[0].provider = "verbs".into()),
    ];
    for (what, spoil) in lies {
        let mut message = dispatch(&prefill, &id);
        spoil(&mut message);
        let kind = Some(proto::open::Kind::Dispatch(message));
        let mut channel = open(&connection, &proto::Open { kind }).await;
        let reply: proto::DispatchReply = within(channel.recv.expect()).await.unwrap();
        let Some(Kind::Refused(refusal)) = reply.kind else {
            panic!("{what}: {reply:?}")
        };
        assert!(
            refusal.message.contains(what),
            "{what}: {}",
            refusal.message
        );
    }
    // What cannot be told from the truth fails where it is wrong: nobody listens at that inbox.
    let kind = Some(proto::open::Kind::Dispatch(dispatch(&prefill, &id)));
    let mut channel = open(&connection, &proto::Open { kind }).await;
    loop {
        let reply: proto::DispatchReply = within(channel.recv.expect()).await.unwrap();
        match reply.kind.unwrap() {
            Kind::Accepted(_) | Kind::Began(_) => {}
            Kind::Failed(_) | Kind::Unsettled(_) => break,
            other => panic!("{other:?}"),
        }
    }
    channel.send.finish();
    let decode = fleet.start("decode", SHARDS, "").await;
    let answer = decode
        .tokens(generate(9, &prompt(1), 4, Some(prefill.peer())))
        .await;
    assert_eq!(answer.unwrap().len(), 4);
    prefill.at_rest().await;
    decode.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_opens_what_its_role_does_and_nothing_else() {
    let fleet = Fleet::new(TinyLlama::default());
    let decode = fleet.start("decode", SHARDS, "").await;
    let prefill = fleet.start("prefill", SHARDS, "").await;
    let (_, worker) = endpoint(&fleet, "decode");
    // A worker is no gateway: neither answers nor reports are for it.
    let hello = proto::Hello {
        version: tandem_wire::PROTOCOL_VERSION,
        name: "gateway".into(),
        incarnation: 1,
    };
    let asks = [
        proto::open::Kind::Generate(generate(9, &prompt(1), 4, None)),
        proto::open::Kind::Control(hello),
    ];
    let connection = within(worker.connect(decode.address)).await.unwrap();
    for kind in asks {
        let open_message = proto::Open { kind: Some(kind) };
        let mut channel = open(&connection, &open_message).await;
        let answer = within(channel.recv.expect::<proto::Welcome>()).await;
        assert!(answer.is_err(), "{answer:?}");
    }
    // A gateway is no worker: it dispatches in nobody's name.
    let identity = Identity::load(&fleet.folder().join("pki"), "gateway").unwrap();
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let gateway = Endpoint::bind(local, &identity, ControlOptions::default()).unwrap();
    let connection = within(gateway.connect(prefill.address)).await.unwrap();
    let kind = proto::open::Kind::Dispatch(dispatch(&prefill, &decode.id));
    let mut channel = open(&connection, &proto::Open { kind: Some(kind) }).await;
    let reply: proto::DispatchReply = within(channel.recv.expect()).await.unwrap();
    let said = format!("{reply:?}");
    assert!(said.contains("certificate is not"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_bytes_on_control_streams_harm_nobody() {
    let fleet = Fleet::new(TinyLlama::default());
    let prefill = fleet.start("prefill", SHARDS, "").await;
    let decode = fleet.start("decode", SHARDS, "").await;
    let (id, liar) = endpoint(&fleet, "decode");
    let kind = Some(proto::open::Kind::Dispatch(dispatch(&prefill, &id)));
    let good = proto::Open { kind }.encode_to_vec();
    let mut state = 88_172_645_463_325_252u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize % below
    };
    for worker in [&prefill, &decode] {
        let connection = within(liar.connect(worker.address)).await.unwrap();
        let mut channels = Vec::new();
        for _ in 0..150 {
            let mut bytes = good.clone();
            for _ in 0..1 + random(12) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            if random(4) == 0 {
                bytes.truncate(random(bytes.len()));
            }
            channels.push(open(&connection, &Raw(bytes)).await);
            if channels.len() > 20 {
                channels.remove(0);
            }
        }
    }
    let answer = decode
        .tokens(generate(9, &prompt(2), 4, Some(prefill.peer())))
        .await;
    assert_eq!(answer.unwrap().len(), 4);
    prefill.at_rest().await;
    decode.at_rest().await;
}

/// A prefill worker that takes one dispatch, says so, and does what it likes.
struct Impostor {
    peer: proto::Peer,
    endpoint: Endpoint,
}

impl Impostor {
    fn new(fleet: &Fleet, like: &Worker) -> Self {
        let (id, endpoint) = endpoint(fleet, "prefill");
        let peer = proto::Peer {
            worker: id,
            incarnation: 5,
            address: endpoint.address().to_string(),
            geometry: like.welcome.geometry.clone(),
        };
        Self { peer, endpoint }
    }

    async fn dispatched(&self) -> (Connection, Channel, proto::Dispatch) {
        let incoming = within(self.endpoint.accept()).await.unwrap();
        let connection = within(incoming.accept()).await.unwrap();
        let mut channel = within(connection.accept()).await.unwrap();
        let open: proto::Open = within(channel.recv.expect()).await.unwrap();
        let Some(proto::open::Kind::Dispatch(dispatch)) = open.kind else {
            panic!("{open:?}")
        };
        (connection, channel, dispatch)
    }
}

async fn say(channel: &mut Channel, kind: Kind) {
    let reply = proto::DispatchReply { kind: Some(kind) };
    channel.send.send(&reply).await.unwrap();
}

/// Writes one byte into a target with an immediate of one's own making.
async fn write(fabric: &Fabric, target: &proto::Target, flow: u64, immediate: Immediate) {
    let nics = &target.nics;
    let addresses: Vec<Vec<u8>> = nics.iter().map(|n| n.address.to_vec()).collect();
    let outbox = within(fabric.open_outbox(&addresses)).await.unwrap();
    let region = RemoteRegion {
        len: target.length,
        keys: nics
            .iter()
            .map(|n| RegionKey {
                base: n.base,
                key: n.key,
            })
            .collect(),
    };
    let flow = FlowId(flow);
    within(fabric.open_flow(flow, outbox, region))
        .await
        .unwrap();
    let write = Write {
        flow,
        local_offset: 0,
        remote_offset: 0,
        len: 1,
        immediate,
    };
    fabric.pusher().post(write).unwrap();
    within(fabric.seal(flow)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefill_worker_that_lies_fails_its_own_request_and_no_other() {
    let fleet = Fleet::new(TinyLlama::default());
    let honest = fleet.start("prefill", SHARDS, "").await;
    let decode = fleet
        .start("decode", &format!("{SHARDS}\ndrain_timeout_ms = 500"), "")
        .await;
    let memory = Arc::new(HostMemory::create("liar", 4096).unwrap());
    let (fabric, _events) = Fabric::open(FabricOptions::default(), memory).unwrap();
    let ask = |n: u128, peer: &proto::Peer| proto::Generate {
        time_left_ms: 3_000,
        ..generate(n, &prompt(n as u32), 4, Some(peer.clone()))
    };
    // It says that it is done and has written nothing.
    let idle = Impostor::new(&fleet, &honest);
    let (answer, ()) = tokio::join!(decode.answer(ask(1, &idle.peer)), async {
        let (_connection, mut channel, _) = idle.dispatched().await;
        say(&mut channel, Kind::Accepted(proto::Accepted {})).await;
        say(&mut channel, Kind::Done(proto::Done::default())).await;
        tokio::time::sleep(Duration::from_secs(4)).await;
    });
    assert!(answer.unwrap_err().contains("deadline"));
    decode.at_rest().await;
    // It counts more than there is, and for slots that are not its own.
    let loud = Impostor::new(&fleet, &honest);
    let (answer, ()) = tokio::join!(decode.answer(ask(2, &loud.peer)), async {
        let (_connection, mut channel, dispatch) = loud.dispatched().await;
        say(&mut channel, Kind::Accepted(proto::Accepted {})).await;
        let target = &dispatch.targets[0];
        let own = SlotKey::from_bits(target.slot_key).unwrap();
        let other = SlotKey::new(own.slot() + 1, own.generation());
        write(&fabric, target, 1, Immediate::new(other, 9)).await;
        write(&fabric, target, 2, Immediate::new(own, 4000)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    });
    let error = answer.unwrap_err();
    assert!(
        error.contains("more pieces arrived than there are"),
        "{error}"
    );
    // Somebody else's answers are as ever, and all pages come back after the fence.
    let want = decode.tokens(ask(3, &honest.peer())).await;
    assert_eq!(want.unwrap().len(), 4);
    decode.at_rest().await;
    let figures = decode.load().await.figures.unwrap();
    assert_eq!(figures.immediates_stale, 1);
    assert!(figures.fences >= 1);
}
