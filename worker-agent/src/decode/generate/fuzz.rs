//! Whatever a gateway asks: it is refused, or a request that the agent's rules can take.

use std::panic::AssertUnwindSafe;

use prost::Message;
use tandem_core::decode::{DecodeAgent, DecodeLimits, Input};
use tandem_core::{Instant as Moment, WorkerRole};

use super::*;
use crate::start::made;

fn wish(tokens: u32) -> proto::Generate {
    let prefill = made::facts(WorkerRole::Prefill, 2, 16);
    proto::Generate {
        request: vec![3; 16].into(),
        tokens: (0..tokens).collect(),
        generated: 0,
        sampling: Some(proto::Sampling {
            temperature: 0.5,
            top_p: 0.9,
            top_k: 3,
            seed: 1,
            logprobs: Some(2),
            ..proto::Sampling::default()
        }),
        stop: Some(proto::Stop {
            max_tokens: 5,
            texts: vec!["x".into()],
            ignore_eos: false,
            ..proto::Stop::default()
        }),
        prefill: Some(proto::Peer {
            worker: "prefill-0".into(),
            incarnation: 4,
            address: "127.0.0.1:1".into(),
            geometry: Some((&*prefill.layout).into()),
        }),
        time_left_ms: 1000,
        cache_salt: b"salt".to_vec().into(),
        trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into(),
        trace_state: "a=1".into(),
    }
}

/// Whether it was taken.
fn ask(facts: &Facts, bytes: &[u8]) -> bool {
    let Ok(generate) = proto::Generate::decode(bytes) else {
        return false;
    };
    let Ok((asked, _)) = read(facts, generate) else {
        return false;
    };
    let mut agent = DecodeAgent::new(DecodeLimits {
        layout: Arc::clone(&facts.layout),
        requests: 4,
        drain_timeout: Duration::from_secs(1),
    });
    let now = Moment::from_nanos(1);
    agent.handle(now, Input::Reserve(asked.reserve(facts, now)));
    assert!(agent.poll().is_some(), "an answer");
    let pages = agent.pages();
    assert!(pages.free() <= pages.total());
    true
}

#[test]
fn wishes_of_a_gateway() {
    let facts = &AssertUnwindSafe(made::facts(WorkerRole::Decode, 4, 8));
    for tokens in [1, 2, 40, 90] {
        assert!(ask(facts, &wish(tokens).encode_to_vec()));
    }
    bolero::check!()
        .with_type::<(u8, Vec<(u16, u8)>)>()
        .for_each(|(tokens, edits)| {
            ask(
                facts,
                &made::edited(&wish(1 + u32::from(*tokens) % 90), edits),
            );
        });
}
