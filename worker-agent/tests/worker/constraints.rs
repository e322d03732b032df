//! Constrained answers over real transfers, and constraints that a worker refuses.

use tandem_engine::testing::TinyLlama;
use tandem_wire::proto;
use tandem_wire::proto::constraint::Kind;
use tandem_wire::proto::generate_reply::Kind as Reply;

use crate::fleet::{Fleet, Worker, generate, within};

const SCHEMA: &str = r#"{"type":"array","items":{"type":"integer"},"minItems":3,"maxItems":6}"#;

fn wish(request: u128, constraint: Kind) -> proto::Generate {
    let tokens: Vec<u32> = (0..50).map(|i| (i * i * 7 + i) % 256).collect();
    let mut generate = generate(request, &tokens, 60, None);
    let sampling = generate.sampling.as_mut().unwrap();
    sampling.constraint = Some(proto::Constraint {
        kind: Some(constraint),
    });
    sampling.frequency_penalty = 0.5;
    sampling.temperature = 1.0;
    sampling.seed = 11;
    generate
}

fn text(tokens: &[u32]) -> String {
    tokens.iter().map(|t| char::from(*t as u8)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_constrained_answer_of_a_pair_is_that_of_one_worker() {
    let fleet = Fleet::new(TinyLlama::default());
    let alone = fleet.start("both", "", "").await;
    let prefill = fleet.start("prefill", "", "").await;
    let decode = fleet.start("decode", "", "").await;
    let schema = || Kind::JsonSchema(SCHEMA.into());
    let want = alone.tokens(wish(1, schema())).await.unwrap();
    assert!(text(&want).starts_with('['), "{}", text(&want));
    let mut disaggregated = wish(2, schema());
    disaggregated.prefill = Some(prefill.peer());
    assert_eq!(decode.tokens(disaggregated).await.unwrap(), want);
    // Another worker goes on where the first one stopped.
    let (said, rest) = want.split_at(want.len() / 2);
    let mut resumed = wish(3, schema());
    resumed.tokens.extend(said);
    resumed.generated = said.len() as u32;
    resumed.prefill = Some(prefill.peer());
    assert_eq!(decode.tokens(resumed).await.unwrap(), rest);
    for worker in [alone, prefill, decode] {
        worker.stop().await;
    }
}

/// What a worker says of a wish, first and last.
async fn refused(worker: &Worker, wish: proto::Generate) -> proto::Refusal {
    let mut channel = worker.ask(wish).await;
    let reply: proto::GenerateReply = within(channel.recv.expect()).await.unwrap();
    match reply.kind {
        Some(Reply::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_constraint_that_cannot_be_used_is_refused_before_anything_is_reserved() {
    let fleet = Fleet::new(TinyLlama::default());
    let worker = fleet.start("both", "", "").await;
    let cases = [
        (Kind::JsonSchema("{".into()), "not valid JSON"),
        (Kind::JsonSchema("{\"type\":7}".into()), "JSON schema"),
        (Kind::JsonSchema("x".repeat(1 << 20)), "1048576 bytes long"),
        (Kind::Regex("a(".into()), "regular expression"),
        (Kind::Lark("start: nothing".into()), "nothing"),
    ];
    for (request, (constraint, why)) in (1..).zip(cases) {
        let refusal = refused(&worker, wish(request, constraint)).await;
        assert_eq!(refusal.reason(), proto::refusal::Reason::Invalid);
        assert!(refusal.message.contains(why), "{}", refusal.message);
    }
    worker.at_rest().await;
    worker.stop().await;
}
