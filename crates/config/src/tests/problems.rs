//! What is wrong with a file, and where.

use super::*;

#[test]
fn an_unknown_key_is_told_the_nearest_known_one_or_all_of_them() {
    assert_complaint(
        &format!("{GATEWAY}lisen = \"127.0.0.1:1\"\n"),
        "4: unknown key `lisen` in [gateway]; did you mean `listen`?",
    );
    assert_complaint(
        &format!("{GATEWAY}[control]\nzzz = 1\n"),
        "5: unknown key `zzz` in [control]; known: keep_alive_ms, idle_timeout_ms",
    );
    assert_complaint(
        &format!("{GATEWAY}[gatway]\nzzz = 1\n"),
        "4: unknown table `gatway`; did you mean `gateway`?",
    );
    assert_complaint(
        &format!("listen = 1\n{GATEWAY}"),
        "1: unknown key outside a table: `listen`; known: gateway, http, tls, auth, admin, admission, policy, \
         worker, engine, fabric, topology, identity, control, telemetry, log",
    );
}

#[test]
fn a_wrong_type_is_told_what_is_wanted_and_what_is_there() {
    assert_complaint(
        &format!("{GATEWAY}queue_limit = \"many\"\n"),
        "4: [gateway] queue_limit: want a whole number from 1 to 1000000, found the text \"many\"",
    );
    assert_complaint(
        &format!("{GATEWAY}listen = 8080\n"),
        "4: [gateway] listen: want an address and port such as \"127.0.0.1:8080\", found 8080",
    );
    assert_complaint(
        &format!("{WORKER}kv_memory = \"256MB\"\n"),
        "6: [worker] kv_memory: want a size from 64KiB to 16TiB, such as \"64MiB\", found the \
         text \"256MB\"",
    );
    assert_complaint(
        &format!("{GATEWAY}[log]\nformat = \"xml\"\n"),
        "5: [log] format: want one of \"text\", \"json\", found the text \"xml\"",
    );
    assert_complaint(
        &format!("{GATEWAY}control = 1\n"),
        "4: unknown key `control` in [gateway]; known: listen, tokenizer, workers, \
         max_body_bytes, queue_limit, request_timeout_ms, header_timeout_ms, max_connections, \
         tokenizer_threads, default_max_tokens, max_choices, tool_dialect, reasoning_dialect, \
         drain_timeout_ms, drain_pause_ms",
    );
    assert_complaint(
        &format!("control = true\n{GATEWAY}"),
        "1: want a table [control], found true",
    );
}

#[test]
fn a_value_out_of_range_is_told_the_range() {
    assert_complaint(
        &format!("{WORKER}page_tokens = 0\n"),
        "6: [worker] page_tokens: want a whole number from 1 to 1024, found 0",
    );
    assert_complaint(
        &format!("{WORKER}threads = -1\n"),
        "6: [worker] threads: want a whole number from 1 to 1024, found -1",
    );
    assert_complaint(
        &format!("{WORKER}[control]\nkeep_alive_ms = 1000\nidle_timeout_ms = 2000\n"),
        "8: [control] idle_timeout_ms: want more than twice keep_alive_ms (1000), found 2000",
    );
}

#[test]
fn a_word_that_is_nearly_one_of_those_wanted_is_told_which() {
    let level = |word: &str| complaints(&format!("{GATEWAY}[log]\nformat = \"{word}\"\n"));
    assert!(level("jsno")[0].ends_with("found the text \"jsno\"; did you mean \"json\"?"));
    assert!(level("JSON")[0].ends_with("found the text \"JSON\"; did you mean \"json\"?"));
    assert!(level("csv")[0].ends_with("found the text \"csv\""));
}

#[test]
fn two_listeners_on_one_address_are_both_named() {
    let own = GATEWAY.replace("[gateway]\n", "[gateway]\nlisten = \"127.0.0.1:8081\"\n");
    assert_complaint(
        &format!("{own}[admin]\n"),
        "2: [admin] listen: 127.0.0.1:8081 is taken by [gateway] listen, 127.0.0.1:8081: want another port",
    );
    let worker = WORKER.replace("127.0.0.1:0", "0.0.0.0:8080");
    assert_complaint(
        &format!("{GATEWAY}{worker}"),
        "7: [worker] listen: 0.0.0.0:8080 is taken by [gateway] listen, 127.0.0.1:8080: want another port",
    );
    let any = own.replace("8081", "0");
    assert!(parse(&format!("{any}[admin]\nlisten = \"127.0.0.1:0\"\n")).is_ok());
    assert!(parse(&format!("{own}[admin]\nlisten = \"127.0.0.1:8082\"\n")).is_ok());
}

#[test]
fn an_entry_of_a_list_that_is_not_what_is_wanted_is_shown() {
    assert_complaint(
        &GATEWAY.replace("7101\"", "7101\", \"localhost\""),
        "3: [gateway] workers: want a list of addresses such as [\"127.0.0.1:7101\"], found the text \
         \"localhost\" in it",
    );
    assert_complaint(
        &format!("{WORKER}devices = [\"node0\", 1]\n"),
        "6: [worker] devices: want a list of PCI addresses or NUMA nodes, such as [\"0000:17:00.0\"] or \
         [\"node0\"], found 1 in it",
    );
}

#[test]
fn what_is_missing_or_there_twice_is_named() {
    assert_complaint(
        &WORKER.replace("role = \"decode\"\n", ""),
        "1: [worker] needs `role`: one of \"prefill\", \"decode\", \"both\"",
    );
    assert_complaint(
        &format!("{WORKER}kv_pages = 4\nkv_memory = \"1GiB\"\n"),
        "6: [worker] kv_pages and kv_memory are both given: want one of them",
    );
    assert_complaint(
        "[gateway]\ntokenizer = \"t\"\nworkers = [\"127.0.0.1:1\", \"127.0.0.1:1\"]\n",
        "3: [gateway] workers: 127.0.0.1:1 is there twice",
    );
    assert_eq!(
        complaints("[log]\n"),
        ["etc/t.toml: neither [gateway] nor [worker]: nothing to run"]
    );
}

#[test]
fn several_problems_are_reported_at_once_in_the_order_of_lines() {
    let text = format!("{GATEWAY}queue_limit = 0\nlisten = \"x\"\n[log]\nlevle = \"info\"\n");
    let lines: Vec<_> = parse(&text)
        .unwrap_err()
        .list()
        .iter()
        .map(|p| p.line)
        .collect();
    assert_eq!(lines, [Some(4), Some(5), Some(7)]);
}

#[test]
fn text_that_is_no_toml_is_located() {
    let complaint = complaints("[gateway]\nlisten = = 1\n");
    assert!(complaint[0].starts_with("etc/t.toml:2: "), "{complaint:?}");
    let complaint = complaints("[gateway]\nlisten = \"a\"\nlisten = \"b\"\n");
    assert!(
        complaint[0].starts_with("etc/t.toml:3: duplicate key"),
        "{complaint:?}"
    );
}

#[test]
fn what_is_wrong_at_every_step_of_a_line_is_told_once() {
    let nest = format!("{GATEWAY}workers = {}\n", "[".repeat(200_000));
    let problems = Config::parse(&nest, Path::new("t.toml")).unwrap_err();
    assert!(problems.list().len() <= 3, "{problems}");
    assert!(
        problems.list().iter().all(|p| p.line.is_some()),
        "{problems}"
    );
}
