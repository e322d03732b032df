//! What is told of requests, in flight and after.

use super::*;

fn pair(decode: &str) -> Pair {
    Pair {
        decode: WorkerId::new(decode).unwrap(),
        prefill: Some(WorkerId::new("p").unwrap()),
        local: None,
        cached_tokens: 0,
        why: Arc::default(),
    }
}

#[tokio::test]
async fn a_requests_way_is_told_while_it_is_in_flight_and_after() {
    let requests = Arc::new(Requests::default());
    let id = RequestId(7);
    let tracked = requests.enter(id, "mine".into(), "chat", Caller::of("acme"));
    tracked.stage(Stage::Queued);
    assert_eq!(requests.json()[0]["stage"], "queued");
    tracked.asked(&pair("d0"));
    tracked.not_taken("no room");
    tracked.asked(&pair("d1"));
    tracked.reserved(5);
    let worker = |name: &str| WorkerId::new(name).unwrap();
    assert_eq!(requests.on(&worker("d1")), 1);
    assert_eq!(requests.on(&worker("d0")), 0);
    assert_eq!(requests.on(&worker("p")), 1);
    assert_eq!(
        requests.by_worker(),
        [("d1", 1), ("p", 1)].map(|(w, n)| (worker(w), n)).into()
    );
    assert_eq!(requests.leases()[0]["pages"], 5);
    tracked.ended("stop");
    let open = requests.explain("mine").unwrap();
    drop(tracked);
    assert!(requests.json().is_empty() && requests.leases().is_empty());
    let ended = requests.explain(&id.to_string()).unwrap();
    assert_eq!(ended["steps"], open["steps"]);
    let whys: Vec<_> = ended["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["why"].clone())
        .collect();
    let chosen = pair("d0").why.to_string();
    let want = [&chosen, "no room", &chosen].map(Value::from);
    assert_eq!(whys[..3], want);
    assert_eq!(requests.explain("other"), None);
}

#[tokio::test(start_paused = true)]
async fn an_ended_request_tells_how_long_each_stage_took() {
    let requests = Arc::new(Requests::default());
    let wait = |ms| tokio::time::advance(Duration::from_millis(ms));
    let tracked = requests.enter(RequestId(1), "mine".into(), "chat", Caller::of("t"));
    wait(1).await;
    tracked.stage(Stage::Queued);
    wait(10).await;
    tracked.asked(&pair("d0"));
    wait(2).await;
    tracked.not_taken("no room");
    wait(20).await;
    tracked.asked(&pair("d1"));
    wait(2).await;
    tracked.reserved(1);
    wait(50).await;
    tracked.stage(Stage::Decoding);
    wait(5).await;
    tracked.token();
    tracked.token();
    wait(100).await;
    tracked.ended("stop");
    drop(tracked);
    let row = &requests.recent(5)[0];
    let want = json!({"read": 1.0, "queue": 30.0, "lease": 4.0, "prefill": 50.0, "decode": 105.0});
    assert_eq!(row["stages"], want);
    assert_eq!(
        (&row["ttft_ms"], &row["total_ms"]),
        (&json!(90.0), &json!(190.0))
    );
    assert_eq!((&row["failed"], &row["tokens"]), (&json!(false), &json!(2)));
    assert_eq!(row["decode"], "d1");
}

#[tokio::test]
async fn only_so_many_ways_and_steps_are_kept() {
    let requests = Arc::new(Requests::default());
    for n in 0..REMEMBERED as u128 + 3 {
        let tracked = requests.enter(RequestId(n), n.to_string(), "chat", Caller::of("t"));
        for _ in 0..40 {
            tracked.not_taken("full");
        }
        tracked.ended("timeout");
    }
    assert_eq!(requests.explain("2"), None);
    let kept = requests.explain("3").unwrap();
    let steps = kept["steps"].as_array().unwrap();
    assert_eq!(steps.len(), STEPS);
    assert_eq!(steps[STEPS - 1]["why"], "timeout");
}
