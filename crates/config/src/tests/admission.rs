//! `[admission]` and its tables.

use super::*;

#[test]
fn without_an_admission_table_there_is_one_class_as_long_as_the_queue() {
    let gateway = parse(&format!("{GATEWAY}queue_limit = 7\n"))
        .unwrap()
        .gateway
        .unwrap();
    let mut want = AdmissionSettings::one_class(7);
    assert_eq!(gateway.admission, want);
    // The defaults that the documentation tells.
    assert_eq!(
        (want.retries, want.migrations, want.early_rejection),
        (2, 2, true)
    );
    assert_eq!(want.aging, Duration::from_secs(10));
    want.breaker.seed = 0;
    assert_eq!(want.breaker.failures, 5);
}

#[test]
fn admission_has_classes_and_tenants_of_its_own() {
    let admission = "[admission]\ndefault_class = \"chat\"\nretries = 0\n\
        [admission.class.chat]\nttft_ms = 500\nqueue_deadline_ms = 400\nqueue = 9\n\
        [admission.class.batch]\npriority = 10\nweight = 3\n\
        [admission.tenant.acme]\nweight = 4\ntokens_per_minute = 1000\n\
        [admission.any_tenant]\nconcurrency = 2\n";
    let gateway = parse(&format!("{GATEWAY}{admission}"))
        .unwrap()
        .gateway
        .unwrap();
    let settings = gateway.admission;
    let chat = settings.class(settings.default_class);
    assert_eq!(
        (chat.name.as_str(), chat.queue, chat.tenant_queue),
        ("chat", 9, 9)
    );
    assert_eq!(chat.targets.ttft, Some(Duration::from_millis(500)));
    let batch = settings.class(settings.class_named("batch").unwrap());
    assert_eq!((batch.priority, batch.weight, batch.queue), (10, 3, 1024));
    assert_eq!(
        settings.tenants["acme"].limits.tokens_per_minute,
        Some(1000)
    );
    assert_eq!(settings.other_tenants.limits.concurrency, Some(2));
    assert_eq!(settings.retries, 0);
}

#[test]
fn what_is_wrong_with_admission_is_told_with_its_place() {
    let complaint = |text: &str, want: &str| assert_complaint(&format!("{GATEWAY}{text}"), want);
    complaint(
        "[admission.class.a]\n[admission.class.b]\n",
        "4: [admission] needs `default_class`, the class of requests that name none: one of a, b",
    );
    complaint(
        "[admission]\ndefault_class = \"c\"\n",
        "5: [admission] default_class: no class \"c\"; there are default",
    );
    complaint(
        "[admission.class.a]\nttft_m = 5\n",
        "5: unknown key `ttft_m` in [admission.class.a]; did you mean `ttft_ms`?",
    );
    complaint(
        "[admission]\nclass = 5\n",
        "5: want a table [admission.class], found 5",
    );
    complaint(
        "[admission.tenant.a]\nconcurrency = 0\n",
        "5: [admission.tenant.a] concurrency: want a whole number from 1 to 1000000, found 0",
    );
    complaint(
        "[admission.class.\"a b\"]\n",
        "4: [admission] class \"a b\": want 1 to 63 letters, digits, '-', '_' or '.'",
    );
    complaint(
        "[admission]\nbreaker_open_most_ms = 10\n",
        "5: [admission] breaker_open_most_ms: 10 is below breaker_open_ms, 1000",
    );
}
