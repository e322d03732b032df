use super::*;

fn excerpt(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/traces")
        .join(name)
}

fn read(name: &str, content: &str) -> Result<Trace, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    Trace::read(&path, Slice::WHOLE).map_err(|error| error.to_string())
}

const QWEN: &str = r#"{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.25, "input_length": 41, "output_length": 7, "type": "text", "turn": 1, "hash_ids": [3, 4, 9]}"#;

#[test]
fn mooncake_rows_have_milliseconds_and_blocks_of_512() {
    let trace = Trace::read(&excerpt("mooncake_conversation.jsonl"), Slice::WHOLE).unwrap();
    assert_eq!((trace.rows.len(), trace.block_tokens), (40, 512));
    assert_eq!(trace.length(), Duration::from_secs(12));
    let first = &trace.rows[0];
    assert_eq!((first.input_tokens, first.output_tokens), (6758, 500));
    assert_eq!(first.blocks.len(), 14);
    assert!(trace.rows.iter().all(|row| row.blocks[0] == 0));
}

#[test]
fn qwen_rows_have_seconds_blocks_of_16_and_types() {
    let later = QWEN.replace("61.25", "63.75");
    let trace = read("qwen.jsonl", &format!("{QWEN}\n{later}\n")).unwrap();
    assert_eq!(trace.block_tokens, 16);
    assert_eq!(trace.length(), Duration::from_millis(2500));
    assert_eq!(trace.rows[0].class.as_deref(), Some("text"));
}

#[test]
fn azure_rows_have_dates() {
    let trace = Trace::read(&excerpt("azure_2023_conv.csv"), Slice::WHOLE).unwrap();
    assert_eq!(trace.rows.len(), 40);
    assert_eq!(trace.rows[0].input_tokens, 374);
    let second = trace.rows[1].at.as_secs_f64();
    assert!((second - 4.314_579).abs() < 1e-5, "{second}");
    let of_2024 = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n\
                   2024-05-10 00:00:01+00:00,2399,6\n";
    let second = read("azure.csv", of_2024).unwrap().length().as_secs_f64();
    assert!((second - 0.990_07).abs() < 1e-6, "{second}");
}

#[test]
fn burst_gpt_rows_have_seconds_and_an_answer_of_nothing_is_one_token() {
    let content = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
                   5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n";
    let trace = read("burst.csv", content).unwrap();
    assert_eq!(trace.rows[1].at, Duration::from_secs(40));
    assert_eq!(trace.rows[1].output_tokens, 1);
    assert_eq!(trace.rows[0].class.as_deref(), Some("Conversation log"));
}

#[test]
fn a_slice_begins_at_its_own_first_row() {
    let slice = "3s..9s".parse().unwrap();
    let trace = Trace::read(&excerpt("mooncake_conversation.jsonl"), slice).unwrap();
    assert_eq!(trace.rows[0].at, Duration::ZERO);
    assert!(trace.length() < Duration::from_secs(6));
    let none = "2h..3h".parse().unwrap();
    let error = Trace::read(&excerpt("mooncake_conversation.jsonl"), none).unwrap_err();
    assert!(
        error.to_string().contains("no request in this part"),
        "{error}"
    );
    for wrong in ["", "5s", "5s..5s", "5..6"] {
        assert!(wrong.parse::<Slice>().is_err(), "{wrong}");
    }
}

#[test]
fn a_broken_line_is_named_by_file_and_number() {
    let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,48,1\n";
    for (name, content, line, says) in [
        ("a.jsonl", format!("{QWEN}\n{{\"timestamp\": 1"), 2, "EOF"),
        (
            "b.jsonl",
            format!("{QWEN}\n\n{}", QWEN.replace("[3, 4, 9]", "[3]")),
            3,
            "1 hash_ids for 41 tokens",
        ),
        (
            "c.jsonl",
            format!("{QWEN}\n{}", QWEN.replace("61.25", "2")),
            2,
            "before",
        ),
        ("d.jsonl", QWEN.replace("41", "-4"), 1, "invalid value"),
        (
            "e.csv",
            format!("{azure}2023-11-16 18:17:04.0,many,1\n"),
            3,
            "\"many\" is no number",
        ),
        (
            "f.csv",
            format!("{azure}yesterday,5,1\n"),
            3,
            "\"yesterday\" is no time",
        ),
        ("g.csv", format!("{azure}1,2\n"), 3, "fields"),
        ("h.csv", "a,b\n".to_owned(), 1, "want TIMESTAMP"),
    ] {
        let error = read(name, &content).unwrap_err();
        assert!(error.contains(&format!("{name}:{line}: ")), "{error}");
        assert!(error.contains(says), "{error}");
        // The line stands there once: what a parser calls the first line is one of many.
        assert!(
            !error.contains("line 1 ") && !error.contains("(line"),
            "{error}"
        );
    }
}

#[test]
fn rows_are_in_the_order_of_their_times_and_no_prompt_is_empty() {
    let content = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
                   5,M,1,1,2,x\n25,M,3,1,4,x\n15,M,0,1,1,x\n";
    let trace = read("burst.csv", content).unwrap();
    let rows: Vec<(u64, u32)> = trace
        .rows
        .iter()
        .map(|row| (row.at.as_secs(), row.input_tokens))
        .collect();
    assert_eq!(rows, [(0, 1), (10, 1), (20, 3)]);
    assert_eq!(trace.mean_rate(None), Some(3.0 / 20.0));
    assert_eq!(trace.mean_rate(Some(100)), Some(3.0 / 20.0));
    let two = trace.rows[1].at.as_secs_f64();
    assert_eq!(trace.mean_rate(Some(2)), (two > 0.0).then(|| 2.0 / two));
    let one = content.lines().take(2).collect::<Vec<_>>().join("\n");
    assert_eq!(read("one.csv", &one).unwrap().mean_rate(None), None);
}
