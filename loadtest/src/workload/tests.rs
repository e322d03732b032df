use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn class(name: &str, share: f64, input: &str, output: &str) -> Class {
    Class {
        name: name.to_owned(),
        share,
        input: input.parse().unwrap(),
        output: output.parse().unwrap(),
    }
}

fn synthetic(prefix: Option<&str>, turns: &str) -> Workload {
    Workload {
        seed: 11,
        speech: Arc::new(Speech::Words),
        source: Arc::new(Source::Synthetic(Synthetic {
            classes: vec![
                class("chat", 3.0, "uniform:10..20", "5"),
                class("batch", 1.0, "100", "50"),
            ],
            prefix: prefix.map(|text| text.parse().unwrap()),
            turns: turns.parse().unwrap(),
            think: "exp:1s".parse().unwrap(),
        })),
        max_context: None,
        chat: false,
    }
}

fn text(turn: &Turn) -> &str {
    match &turn.prompt {
        Prompt::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

fn items(workload: &Workload, count: u64) -> Vec<Item> {
    let classes = workload.class_names();
    (0..count)
        .filter_map(|index| workload.item(index, &classes))
        .collect()
}

#[test]
fn a_request_depends_on_the_seed_and_its_number_alone() {
    let all = synthetic(Some("3x7"), "2");
    let classes = all.class_names();
    let seventh = all.item(7, &classes).unwrap();
    let again = &items(&all, 9)[7];
    assert_eq!(format!("{seventh:?}"), format!("{again:?}"));
    let other = Workload {
        seed: 12,
        ..synthetic(Some("3x7"), "2")
    };
    assert_ne!(
        text(&seventh.turns[0]),
        text(&other.item(7, &classes).unwrap().turns[0])
    );
}

#[test]
fn classes_have_their_shares_and_lengths() {
    let items = items(&synthetic(None, "1"), 2000);
    let batch: Vec<&Item> = items.iter().filter(|item| item.class == 1).collect();
    assert!((400..600).contains(&batch.len()), "{}", batch.len());
    for item in batch {
        assert_eq!(text(&item.turns[0]).split(' ').count(), 100);
        assert_eq!(item.turns[0].output_tokens, 50);
    }
}

#[test]
fn prompts_of_a_group_begin_alike_and_go_on_differently() {
    let all = synthetic(Some("3x30:1"), "1");
    let items = items(&all, 300);
    let begins: Vec<String> = items
        .iter()
        .map(|item| {
            text(&item.turns[0])
                .split(' ')
                .take(30)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    let groups: HashSet<&String> = begins.iter().collect();
    assert_eq!(groups.len(), 3);
    let wholes: HashSet<&str> = items.iter().map(|item| text(&item.turns[0])).collect();
    assert_eq!(wholes.len(), 300);
    let most = groups
        .iter()
        .map(|g| begins.iter().filter(|b| b == g).count())
        .max();
    assert!(
        most > Some(120),
        "a skewed choice has a favourite: {most:?}"
    );
}

#[test]
fn a_session_has_turns_with_new_words_and_thinks_between_them() {
    let all = synthetic(None, "3");
    let item = &items(&all, 1)[0];
    assert_eq!(item.turns.len(), 3);
    assert_eq!(item.turns[0].think, Duration::ZERO);
    assert!(item.turns[1].think > Duration::ZERO);
    assert_ne!(text(&item.turns[0]), text(&item.turns[1]));
}

fn replay(max_context: Option<u32>) -> Workload {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/traces/mooncake_conversation.jsonl");
    Workload {
        seed: 1,
        speech: Arc::new(Speech::Words),
        source: Arc::new(Source::Trace(
            Trace::read(&path, crate::trace::Slice::WHOLE).unwrap(),
        )),
        max_context,
        chat: false,
    }
}

#[test]
fn equal_hash_ids_become_equal_text() {
    let items = items(&replay(None), 99);
    assert_eq!(items.len(), 40);
    let words = |i: usize| text(&items[i].turns[0]).split(' ').collect::<Vec<_>>();
    let (first, second) = (words(0), words(1));
    assert_eq!(first.len(), 6758);
    assert_eq!(first[..512], second[..512]);
    assert_ne!(first[512..1024], second[512..1024]);
}

#[test]
fn a_trace_is_clipped_to_the_models_context_and_says_so() {
    let tokens = |turn: &Turn| turn.input_tokens.unwrap() + turn.output_tokens;
    let whole = items(&replay(Some(1 << 20)), 40);
    let short = items(&replay(Some(2048)), 40);
    assert!(whole.iter().all(|item| !item.turns[0].clipped));
    for (whole, short) in whole.iter().zip(&short) {
        let (whole, short) = (&whole.turns[0], &short.turns[0]);
        assert!(tokens(short) <= 2048);
        assert_eq!(short.clipped, tokens(whole) > 2048);
        assert_eq!(
            text(short).split(' ').count() as u32,
            short.input_tokens.unwrap()
        );
    }
    assert!(short.iter().any(|item| item.turns[0].clipped));
}

proptest! {
    #[test]
    fn each_round_through_a_file_takes_every_prompt_once(seed: u64, count in 1_u64..200, round in 0_u64..5) {
        let places: HashSet<usize> = (round * count..(round + 1) * count)
            .map(|index| place(seed, index, count))
            .collect();
        prop_assert_eq!(places.len() as u64, count);
    }
}
