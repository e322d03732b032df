//! `[telemetry]`.

use super::*;

#[test]
fn telemetry_is_of_every_process_of_the_file() {
    let text = format!(
        "{GATEWAY}{WORKER}[telemetry]\notlp_endpoint = \"http://c:4318\"\nsample = 0.5\n\
         headers = {{ authorization = \"Bearer x\" }}\nresource = {{ \"a.b\" = \"c\" }}\n\
         vllm_names = false\nlog_prefix_hashes = true\nservice_name = \"s\"\n\
         otlp_interval_ms = 100\notlp_timeout_ms = 200\notlp_queue_limit = 7\n"
    );
    let config = parse(&text).unwrap();
    let telemetry = config.gateway.unwrap().telemetry;
    assert_eq!(config.worker.unwrap().telemetry, telemetry);
    assert_eq!(
        telemetry.otlp_endpoint.as_ref().unwrap().as_str(),
        "http://c:4318"
    );
    assert_eq!(telemetry.sample, 0.5);
    assert_eq!(telemetry.headers["authorization"].expose(), "Bearer x");
    assert_eq!(telemetry.resource["a.b"], "c");
    assert!(!telemetry.vllm_names && telemetry.log_prefix_hashes);
    assert_eq!(telemetry.service_name, "s");
    assert_eq!(telemetry.otlp_interval, Duration::from_millis(100));
    assert_eq!(telemetry.otlp_timeout, Duration::from_millis(200));
    assert_eq!(telemetry.otlp_queue_limit, 7);
}

#[test]
fn what_is_wrong_with_a_secret_is_said_without_it() {
    for wrong in [
        "\"hunter2\"",
        "{ \"a b\" = \"hunter2\" }",
        "{ a = [\"hunter2\"] }",
        "{ a = \"hunter2\\n\" }",
    ] {
        let text = format!("{GATEWAY}[telemetry]\nheaders = {wrong}\n");
        let [complaint] = &complaints(&text)[..] else {
            panic!("one complaint");
        };
        assert!(complaint.starts_with("etc/t.toml:5: [telemetry] headers: want"));
        assert!(!complaint.contains("hunter2"), "{complaint}");
    }
}

#[test]
fn a_sample_is_a_part() {
    let text = format!("{GATEWAY}[telemetry]\nsample = 1.5\n");
    assert_complaint(
        &text,
        "5: [telemetry] sample: want a number from 0 to 1, found 1.5",
    );
}
