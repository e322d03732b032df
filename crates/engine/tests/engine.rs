//! What the engine does with commands, on a tiny random model.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod rig;

use std::sync::Arc;

use rig::{GREEDY, Rig, on, prompt, tiny};
use tandem_core::{PageIndex, SequenceId};
use tandem_engine::testing::TinyLlama;
use tandem_engine::{
    Command, EmbeddedEngine, EmbeddedModel, Engine, EngineOptions, Event, ModelOptions, Sampling,
    StepPlan, StepWatch,
};

#[test]
fn steps_are_announced_and_every_layer_is_counted_once() {
    let mut rig = tiny(64, |options| options.chunk_tokens = 20);
    let (a, b) = (rig.id(), rig.id());
    let progress = rig.engine.progress();
    rig.submit(Command::Prefill {
        sequence: a,
        tokens: prompt(1, 31).into(),
        pages: Rig::pages(0, 2),
        cached: 0,
    });
    rig.submit(Command::Prefill {
        sequence: b,
        tokens: prompt(2, 21).into(),
        pages: Rig::pages(2, 2),
        cached: 0,
    });
    let mut ended = [rig.event(), rig.event()];
    ended.sort_by_key(|e| matches!(e, Event::Prefilled { sequence } if *sequence == b));
    assert_eq!(ended, [a, b].map(|sequence| Event::Prefilled { sequence }));
    let plans: Vec<StepPlan> = rig.plans.try_iter().collect();
    let layers = u64::from(rig.arenas.layout().geometry().layers);
    assert_eq!(progress.layers(), plans.len() as u64 * layers);
    for (index, plan) in plans.iter().enumerate() {
        assert_eq!(plan.first_layer, index as u64 * layers);
        let shares: Vec<u32> = plan.items.iter().map(|i| i.end - i.start).collect();
        assert!(shares.iter().sum::<u32>() <= 20);
        // A step is shared equally, but for what one of them does not need.
        let unequal = shares.len() == 2 && shares[0] != shares[1];
        assert!(!unequal || plan.items.iter().any(|i| i.last), "{plan:?}");
    }
    for (id, end) in [(a, 30), (b, 20)] {
        let items: Vec<_> = plans
            .iter()
            .flat_map(|p| &p.items)
            .filter(|i| i.sequence == id)
            .collect();
        assert_eq!(items[0].start, 0);
        assert!(
            items
                .windows(2)
                .all(|pair| pair[0].end == pair[1].start && !pair[0].last)
        );
        let last = items.last().unwrap();
        assert_eq!((last.end, last.last), (end, true));
    }
    // Decode steps are neither announced nor counted.
    let id = rig.start(&prompt(1, 31), 0, Rig::pages(0, 3), GREEDY, on(4));
    rig.answers(&[id]);
    assert_eq!(progress.layers(), plans.len() as u64 * layers);
    assert_eq!(rig.plans.try_iter().count(), 0);
}

#[test]
#[allow(clippy::too_many_lines, reason = "one case after another")]
fn a_malformed_command_fails_its_sequence_and_nothing_else() {
    let mut rig = tiny(64, |_| ());
    let prefill = |tokens: Vec<u32>, pages: Arc<[PageIndex]>| {
        move |sequence| Command::Prefill {
            sequence,
            tokens: tokens.into(),
            pages,
            cached: 0,
        }
    };
    let admit = |generated: u32, sampling: Sampling, max_tokens: u32, pages: u32| {
        move |sequence| Command::Admit {
            sequence,
            tokens: prompt(1, 16).into(),
            generated,
            pages: Rig::pages(0, pages),
            sampling,
            stop: on(max_tokens),
        }
    };
    let nan = Sampling {
        temperature: f32::NAN,
        ..GREEDY
    };
    let no_mass = Sampling {
        top_p: 0.0,
        ..GREEDY
    };
    type Make = Box<dyn FnOnce(SequenceId) -> Command>;
    let cases: Vec<(&str, Make)> = vec![
        ("no tokens", Box::new(prefill(vec![], Rig::pages(0, 1)))),
        (
            "token 400 at 1 is outside",
            Box::new(prefill(vec![1, 400], Rig::pages(0, 1))),
        ),
        (
            "room for 16 tokens, 17",
            Box::new(prefill(vec![1; 18], Rig::pages(0, 1))),
        ),
        (
            "page 64 is outside",
            Box::new(prefill(vec![1; 4], Rig::pages(64, 1))),
        ),
        (
            "over the context length of 1024",
            Box::new(prefill(vec![1; 1025], Rig::pages(0, 64))),
        ),
        ("room for 0 tokens, 16", Box::new(admit(0, GREEDY, 4, 0))),
        ("leave no prompt", Box::new(admit(16, GREEDY, 40, 2))),
        ("temperature", Box::new(admit(0, nan, 4, 2))),
        ("top_p", Box::new(admit(0, no_mass, 4, 2))),
        ("max_tokens", Box::new(admit(0, GREEDY, 0, 2))),
        (
            "unknown",
            Box::new(|sequence| Command::MakeReady {
                sequence,
                context: true,
            }),
        ),
    ];
    for (want, make) in cases {
        let sequence = rig.id();
        rig.submit(make(sequence));
        let Event::Failed {
            sequence: failed,
            message,
        } = rig.event()
        else {
            panic!("{want}")
        };
        assert_eq!(failed, sequence);
        assert!(message.contains(want), "{message:?} does not say {want:?}");
    }
    let whole = rig.generate(&prompt(1, 16), 0, GREEDY, on(5));
    assert_eq!(whole.tokens.len(), 5);
}

#[test]
fn an_engine_holds_no_more_sequences_than_it_may() {
    let mut rig = tiny(8, |options| options.max_sequences = 3);
    let admit = |sequence| Command::Admit {
        sequence,
        tokens: prompt(1, 16).into(),
        generated: 0,
        pages: Rig::pages(0, 2),
        sampling: GREEDY,
        stop: on(4),
    };
    let held: Vec<_> = (0..3).map(|_| rig.id()).collect();
    for id in &held {
        rig.submit(admit(*id));
    }
    let one_too_many = rig.id();
    rig.submit(admit(one_too_many));
    let Event::Failed { sequence, message } = rig.event() else {
        panic!("it was taken")
    };
    assert_eq!(
        (sequence, message.contains("holds 3")),
        (one_too_many, true)
    );
    for sequence in held {
        rig.submit(Command::Cancel { sequence });
        assert_eq!(rig.event(), Event::Cancelled { sequence });
    }
}

#[test]
fn cancelling_ends_a_sequence_at_every_stage_and_only_once() {
    let mut rig = tiny(64, |options| options.chunk_tokens = 1);
    let prefilling = rig.id();
    let tokens: Arc<[u32]> = prompt(1, 900).into();
    let pages = Rig::pages(0, 57);
    rig.submit(Command::Prefill {
        sequence: prefilling,
        tokens,
        pages,
        cached: 0,
    });
    rig.plans.recv().unwrap();
    rig.submit(Command::Cancel {
        sequence: prefilling,
    });
    assert_eq!(
        rig.event(),
        Event::Cancelled {
            sequence: prefilling
        }
    );
    let decoding = rig.start(&prompt(1, 1), 0, Rig::pages(0, 60), GREEDY, on(900));
    assert!(matches!(rig.event(), Event::Token { sequence, .. } if sequence == decoding));
    rig.submit(Command::Cancel { sequence: decoding });
    while let Event::Token { .. } = rig.event() {}
    // Ended and unknown sequences are ignored: the next event is another one's.
    rig.submit(Command::Cancel { sequence: decoding });
    rig.submit(Command::Cancel {
        sequence: SequenceId(99),
    });
    let one = rig.id();
    let tokens = prompt(1, 1).into();
    rig.submit(Command::Prefill {
        sequence: one,
        tokens,
        pages: Rig::pages(0, 0),
        cached: 0,
    });
    assert_eq!(rig.event(), Event::Prefilled { sequence: one });
    assert_eq!(
        rig.engine.progress().layers() % 3,
        0,
        "a step that was announced counts all its layers"
    );
}

struct Broken;

impl StepWatch for Broken {
    fn step_planned(&mut self, _: StepPlan) {
        panic!("the watch is broken, as this test wants it");
    }
}

#[test]
fn a_dead_engine_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    TinyLlama::default().write_gguf(&path).unwrap();
    let rig = Rig::new(&path, 8, |_| ());
    let model = EmbeddedModel::load(&path, ModelOptions::default()).unwrap();
    let options = EngineOptions::new(rig.arenas.clone(), rig.text.clone());
    let (sender, mut events) = tokio::sync::mpsc::channel(8);
    let engine = EmbeddedEngine::start(model, options, Box::new(Broken), sender).unwrap();
    let command = Command::Prefill {
        sequence: SequenceId(1),
        tokens: prompt(1, 9).into(),
        pages: Rig::pages(0, 1),
        cached: 0,
    };
    assert!(engine.submit(command.clone()).is_ok());
    assert_eq!(events.blocking_recv(), None);
    // The dying thread drops its queue just after its events.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while engine.submit(command.clone()).is_ok() {
        assert!(std::time::Instant::now() < deadline, "it takes no commands");
        std::thread::yield_now();
    }
}

#[test]
fn a_dropped_engine_ends_its_thread() {
    let rig = tiny(8, |_| ());
    let Rig {
        engine, mut events, ..
    } = rig;
    drop(engine);
    assert_eq!(events.blocking_recv(), None);
}
