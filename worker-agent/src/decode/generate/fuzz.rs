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
            min_p: 0.1,
            presence_penalty: 0.5,
            frequency_penalty: -0.5,
            repetition_penalty: Some(1.1),
            logit_bias: vec![proto::LogitBias {
                token: 7,
                bias: -3.0,
            }],
            constraint: Some(proto::Constraint {
                kind: Some(proto::constraint::Kind::Regex("a+".into())),
            }),
        }),
        stop: Some(proto::Stop {
            max_tokens: 5,
            texts: vec!["x".into()],
            ignore_eos: false,
            min_tokens: 2,
            token_ids: vec![9],
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
fn settings_out_of_range_are_refused_by_name() {
    type Spoil = fn(&mut proto::Sampling, &mut proto::Stop);
    let facts = made::facts(WorkerRole::Decode, 4, 8);
    let cases: &[(&str, Spoil)] = &[
        ("temperature", |s, _| s.temperature = f32::INFINITY),
        ("top_p", |s, _| s.top_p = f32::NAN),
        ("min_p", |s, _| s.min_p = -0.1),
        ("presence_penalty", |s, _| s.presence_penalty = 1e9),
        ("frequency_penalty", |s, _| s.frequency_penalty = f32::NAN),
        ("repetition_penalty", |s, _| {
            s.repetition_penalty = Some(0.0);
        }),
        ("logit_bias", |s, _| s.logit_bias[0].token = 300),
        ("logit_bias", |s, _| s.logit_bias[0].bias = f32::NAN),
        ("logprobs", |s, _| s.logprobs = Some(256)),
        ("an empty constraint", |s, _| {
            s.constraint = Some(proto::Constraint::default());
        }),
        ("min_tokens", |_, s| s.min_tokens = 6),
        ("stop_token_ids", |_, s| s.token_ids = vec![1, 300]),
    ];
    for (name, spoil) in cases {
        let mut generate = wish(5);
        spoil(
            generate.sampling.as_mut().unwrap(),
            generate.stop.as_mut().unwrap(),
        );
        let Err(why) = read(&facts, generate) else {
            panic!("{name} was taken");
        };
        assert!(why.to_string().contains(name), "{why}");
    }
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
