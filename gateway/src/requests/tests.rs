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
    tracked.stage(Stage::Queue);
    assert_eq!(requests.json()[0]["stage"], "queue");
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
    // The prompt is there, and the prefill worker has nothing to do any more.
    tracked.started();
    assert_eq!(requests.json()[0]["stage"], "first_token");
    assert_eq!(requests.by_worker(), [(worker("d1"), 1)].into());
    assert_eq!(requests.on(&worker("p")), 0);
    tracked.token();
    assert_eq!(requests.json()[0]["stage"], "decode");
    // The answer goes on on another pair, which computes its prompt anew.
    tracked.asked(&pair("d2"));
    tracked.reserved(6);
    assert_eq!(requests.on(&worker("p")), 1);
    tracked.started();
    assert_eq!(requests.json()[0]["stage"], "decode");
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

#[tokio::test]
async fn an_ended_request_took_in_each_stage_what_its_log_says() {
    let requests = Arc::new(Requests::default());
    let tracked = requests.enter(RequestId(1), "mine".into(), "chat", Caller::of("t"));
    let begin = std::time::Instant::now();
    let at = |ms| begin + Duration::from_millis(ms);
    let mut times = RequestTimes::new(begin);
    times.submitted(at(1));
    times.paired(at(31));
    times.reserved(at(35));
    times.started(at(85));
    times.prompt(tandem_telemetry::PromptTimes {
        compute: Duration::from_millis(30),
        exposed: Duration::from_millis(5),
    });
    times.tokens_came(at(90), 1);
    times.tokens_came(at(188), 1);
    times.ended(at(190));
    tracked.asked(&pair("d1"));
    tracked.token();
    tracked.token();
    tracked.ended("stop");
    tracked.took(&times);
    drop(tracked);
    let row = &requests.recent(5)[0];
    let want = json!({"read": 1.0, "queue": 30.0, "lease": 4.0, "prefill_queue": 15.0, "prefill": 30.0,
        "transfer": 5.0, "first_token": 5.0, "decode": 98.0, "end": 2.0});
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
