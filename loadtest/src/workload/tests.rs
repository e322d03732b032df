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
        renewed: 0,
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
fn a_renewed_workload_asks_the_same_in_other_words() {
    let workload = synthetic(Some("2x40"), "1");
    let renewed = Workload {
        renewed: 1,
        ..workload.clone()
    };
    let (before, after) = (items(&workload, 20), items(&renewed, 20));
    let begins = |item: &Item| text(&item.turns[0]).split(' ').next().unwrap().to_owned();
    for (a, b) in before.iter().zip(&after) {
        let shape = |item: &Item| {
            let turn = &item.turns[0];
            (
                item.class,
                turn.input_tokens,
                turn.output_tokens,
                turn.think,
            )
        };
        assert_eq!(shape(a), shape(b));
        assert_ne!(text(&a.turns[0]), text(&b.turns[0]));
    }
    let groups: HashSet<String> = after.iter().map(begins).collect();
    assert_eq!(groups.len(), 2, "beginnings are shared as before");
    assert!(groups.is_disjoint(&before.iter().map(begins).collect()));
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
    let begin = |turn| text(turn).split(' ').take(10).collect::<Vec<_>>();
    assert_ne!(begin(&item.turns[0]), begin(&item.turns[1]));
    assert_ne!(begin(&item.turns[1]), begin(&item.turns[2]));
}

#[test]
fn a_shared_prefix_is_a_part_of_the_prompts_length() {
    for item in items(&synthetic(Some("3x30"), "1"), 50) {
        let turn = &item.turns[0];
        let wanted = turn.input_tokens.unwrap();
        assert!(wanted >= 40, "30 of the prefix and 10 of its own at least");
        assert_eq!(text(turn).split(' ').count() as u32, wanted);
    }
}

#[test]
fn the_tokens_of_a_chats_template_are_a_part_of_the_prompts_length() {
    let model = tandem_text::testing::model_file();
    let model = tandem_text::TextModel::load(&model).unwrap();
    let speech = Arc::new(Speech::Vocabulary(Vocabulary::of(&model).unwrap()));
    let around = speech.around(true);
    assert!(around > speech.around(false));
    for (chat, around) in [(true, around), (false, speech.around(false))] {
        let all = Workload {
            speech: Arc::clone(&speech),
            chat,
            ..synthetic(None, "2")
        };
        // The others are shorter than the template.
        for item in items(&all, 40).iter().filter(|item| item.class == 1) {
            let words = |turn| text(turn).split(' ').count() as u32;
            let [first, second] = &item.turns[..] else {
                panic!("{item:?}");
            };
            assert_eq!(words(first) + around, 100);
            assert_eq!(words(second), 100, "the template is counted once");
            let wanted = (first.input_tokens, second.input_tokens);
            assert_eq!(wanted, (Some(100), Some(100)));
        }
    }
}

#[test]
fn a_context_is_left_to_the_answer_up_to_its_half_and_to_the_prompt_for_the_rest() {
    let clip = |input, output| replay(Some(1000)).clip(input, output);
    assert_eq!(clip(400, 600), (400, 500, true));
    assert_eq!(clip(600, 400), (600, 400, false));
    assert_eq!(clip(900, 200), (800, 200, true));
    assert_eq!(clip(900, 900), (500, 500, true));
    assert_eq!(replay(None).clip(900, 900), (900, 900, false));
}

#[test]
fn a_files_prompts_have_answers_of_their_own_length_or_of_one_that_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.jsonl");
    let lines = "{\"prompt\":\"own\",\"output_tokens\":7}\n{\"prompt\":\"drawn\"}\n";
    std::fs::write(&path, lines).unwrap();
    let lengths = "40".parse().unwrap();
    let mut all = Workload {
        source: Arc::new(Source::Prompts(Prompts::read(&path).unwrap(), lengths)),
        ..synthetic(None, "1")
    };
    let found = |all: &Workload| {
        let items = items(all, 2);
        let answers = items.iter().map(|item| {
            let turn = &item.turns[0];
            (text(turn).to_owned(), turn.output_tokens)
        });
        answers.collect::<std::collections::BTreeMap<_, _>>()
    };
    assert_eq!(found(&all).into_values().collect::<Vec<_>>(), [40, 7]);
    all.max_context = Some(32);
    assert_eq!(found(&all).into_values().collect::<Vec<_>>(), [32, 7]);
}

fn replay(max_context: Option<u32>) -> Workload {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/traces/mooncake_conversation.jsonl");
    Workload {
        seed: 1,
        renewed: 0,
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
