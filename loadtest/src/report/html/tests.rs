//! Whatever a server said, the page is a page of ours.

use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::*;
use crate::assertion::{Unit, Verdict};
use crate::record::{Failure, FailureKind, Outcome, keep_slowest};
use crate::results::LoadPoint;
use crate::server_metrics::{Family, Kind, Series, SeriesFigures, ServerMetrics};
use crate::summary::{Counts, Failures};
use crate::testing::made::{self, Made, results, run, search};

const HOSTILE: &str = "</td></svg></style><script>alert(1)</script><img src=x onerror='alert(2)'>\" onload=\"x {{ 7 * 7 }} {% raw %}";
const MADE: Made = Made {
    requests: 200,
    slower: 1.0,
    failing: 0.05,
};

fn record(index: u64, e2e_us: u64) -> Record {
    Record {
        turn: 1,
        class: HOSTILE.to_owned(),
        request_id: HOSTILE.to_owned(),
        lateness_us: 100,
        connected_us: Some(1_000),
        head_us: Some(40_000),
        ttft_us: Some(50_000),
        tpot_us: Some(20_000.0),
        status: None,
        outcome: Outcome::Failed,
        failure: Some(Failure {
            kind: FailureKind::Garbage,
            message: HOSTILE.to_owned(),
        }),
        finish_reason: Some(HOSTILE.to_owned()),
        ..made::record(index, e2e_us)
    }
}

/// A sweep with everything that a page can show, all words hostile.
fn everything() -> Results {
    let rng = &mut SmallRng::seed_from_u64(1);
    let mut runs = Vec::new();
    for rate in [5.0, 10.0, 20.0, 40.0] {
        for repeat in 1..=2 {
            runs.push(run(rng, LoadPoint::Rate(rate), repeat, MADE));
        }
    }
    let first = &mut runs[0];
    first.invalid.push(HOSTILE.to_owned());
    first.ended = RunEnd::Interrupted;
    let measured = &mut first.phases.measured;
    let failures = Failures {
        count: 3,
        example: HOSTILE.to_owned(),
    };
    measured.failures.insert(FailureKind::StreamError, failures);
    let group = measured.all.clone();
    measured.classes.insert(HOSTILE.to_owned(), group);
    for i in 0..40 {
        keep_slowest(&mut first.slowest, &record(i, 100_000 + i * 10_000));
    }
    first.server.push(hostile_server());
    let mut results = results(runs);
    results.slos.add(&format!("{HOSTILE}:ttft=90ms")).unwrap();
    for text in [&mut results.url, &mut results.model, &mut results.version] {
        HOSTILE.clone_into(text);
    }
    results
        .settings
        .insert(HOSTILE.to_owned(), HOSTILE.to_owned());
    results.assertions.push(Verdict {
        assertion: HOSTILE.to_owned(),
        load: HOSTILE.to_owned(),
        found: Some(5.0),
        unit: Unit::Us,
        holds: false,
    });
    results.search = Some(search(10.0, 20.0));
    results
}

fn hostile_server() -> ServerMetrics {
    let series = Series {
        labels: std::iter::once((HOSTILE.to_owned(), HOSTILE.to_owned())).collect(),
        figures: SeriesFigures::Counter {
            difference: 1234.0,
            per_s: 2.0,
        },
    };
    let family = Family {
        kind: Kind::Counter,
        shown: true,
        series: vec![series],
    };
    ServerMetrics {
        url: HOSTILE.to_owned(),
        span_s: 2.0,
        scrapes: 7,
        failed: 1,
        problem: Some(HOSTILE.to_owned()),
        families: std::iter::once((HOSTILE.to_owned(), family)).collect(),
        ..ServerMetrics::default()
    }
}

const TAGS: [&str; 37] = [
    "a", "body", "caption", "dd", "details", "div", "dl", "dt", "figure", "footer", "g", "h1",
    "h2", "head", "html", "li", "main", "meta", "nav", "p", "path", "rect", "section", "span",
    "style", "summary", "svg", "table", "tbody", "td", "text", "th", "thead", "title", "tr", "ul",
    "!DOCTYPE",
];

/// All tags of a page are known ones, closed in their order, and none has an attribute that could do anything.
fn assert_harmless(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    for (i, after) in page.split('<').skip(1).enumerate() {
        let (tag, _) = after.split_once('>').unwrap_or((after, ""));
        let name = tag
            .trim_start_matches('/')
            .split([' ', '/'])
            .next()
            .unwrap();
        assert!(TAGS.contains(&name), "tag {i}: <{tag}>");
        // What stands outside of quotes is names; a name's value follows it.
        let parts: Vec<&str> = tag.split('"').collect();
        assert_eq!(parts.len() % 2, 1, "<{tag}>");
        for (outside, value) in parts.iter().step_by(2).zip(parts.iter().skip(1).step_by(2)) {
            let name = outside.trim_end_matches('=').rsplit(' ').next().unwrap();
            assert!(
                !name.starts_with("on") && !["src", "style", "xlink:href"].contains(&name),
                "<{tag}>"
            );
            assert!(name != "href" || value.starts_with('#'), "<{tag}>");
        }
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "tag {i}: <{tag}>");
        } else if !tag.ends_with('/') && !["meta", "!DOCTYPE"].contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    for word in ["url(", "@import", "javascript:", ">49<", "<script"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn nothing_that_a_server_or_a_file_said_is_markup_and_nothing_comes_from_elsewhere() {
    let results = everything();
    let test = Shown {
        name: HOSTILE,
        results: &results,
    };
    let records = [record(7, 5_000_000)];
    for page in [
        html(&[test], None),
        html(&[test, test], Some((HOSTILE, &records))),
    ] {
        assert_harmless(&page);
        assert!(
            page.contains("&lt;script&gt;") && page.contains("{{ 7 * 7 }}"),
            "{page}"
        );
        assert!(page.contains("default-src &#39;none&#39;") || page.contains("default-src 'none'"));
    }
}

#[test]
fn a_page_has_every_plot_table_and_alarm() {
    let results = everything();
    let page = html(
        &[Shown {
            name: "a.json",
            results: &results,
        }],
        None,
    );
    for part in [
        ">TTFT by load</text>",
        ">TPOT by load</text>",
        ">Goodput by load</text>",
        ">Within the SLO by load</text>",
        ">wanted</text>",
        ">SLO 100 ms</text>",
        ">Distribution of TTFT</text>",
        ">Distribution of ITL</text>",
        ">Distribution of E2E</text>",
        ">Requests by time</text>",
        ">Output tokens by time</text>",
        ">The slowest requests</text>",
        ">#39.1</text>",
        "<caption>All runs</caption>",
        "<caption>Steps of the search</caption>",
        "<caption>Assertions</caption>",
        "<caption>Failures</caption>",
        "<caption>The client itself</caption>",
        ": 7 readings in 2.00 s; 1 failed: ",
        ">1234<",
        "<p class=\"alarm\">INVALID: 1 of 8 runs.",
        "<p class=\"alarm\">1 of 1 assertions missed.</p>",
        "<td class=\"alarm\">INVALID</td>",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // Of forty requests the slowest twenty.
    assert!(page.contains(">#20.1</text>") && !page.contains(">#19.1</text>"));
    assert_eq!(
        page,
        html(
            &[Shown {
                name: "a.json",
                results: &results
            }],
            None
        )
    );
}

#[test]
fn a_runs_summary_has_goodput_and_attainment_of_all_and_of_each_class() {
    let rng = &mut SmallRng::seed_from_u64(1);
    let mut one = run(rng, LoadPoint::Rate(10.0), 1, MADE);
    let measured = &mut one.phases.measured;
    let mut chat = measured.all.clone();
    (chat.counts, chat.metrics) = (Counts::default(), std::collections::BTreeMap::new());
    (chat.counts.attained, chat.counts.late) = (40, 10);
    let mut batch = chat.clone();
    batch.counts.attained = 30;
    measured.classes.insert("chat".to_owned(), chat);
    measured.classes.insert("batch".to_owned(), batch);
    one.notes.push("mind the cache".to_owned());
    let mut results = results(vec![one]);
    results.slos = crate::slo::Slos::default();
    results.slos.add("chat:ttft=90ms").unwrap();
    let test = Shown {
        name: "x",
        results: &results,
    };
    let page = html(&[test], None).replace("&#x2f;", "/");
    let text = crate::report::text(&results);
    // Over the 20 s of the schedule.
    let of_chat = "40 attained, 10 late, 0 rejected, 0 failed; goodput 2.00 requests/s, attainment 80.0 % (95 %: ";
    assert!(
        page.contains(&format!("<li>class chat: {of_chat}")),
        "{page}"
    );
    assert!(text.contains(&format!("\nchat: {of_chat}")), "{text}");
    assert!(page.contains("<li>class batch: 30 answered, 0 rejected, 0 failed</li>"));
    assert!(page.contains("<li>goodput ") && page.contains("<li>NOTE: mind the cache</li>"));
    assert!(text.contains("NOTE: mind the cache"), "{text}");
}

#[test]
fn a_run_in_which_nothing_was_measured_says_so_and_has_no_table_of_zeros() {
    let rng = &mut SmallRng::seed_from_u64(1);
    let none = Made {
        requests: 0,
        ..MADE
    };
    let mut cut = run(rng, LoadPoint::Rate(10.0), 1, none);
    cut.ended = RunEnd::Interrupted;
    cut.cut = 3;
    let one = results(vec![cut.clone()]);
    let text = crate::report::text(&one);
    assert!(
        text.contains("requests    nothing was measured\n"),
        "{text}"
    );
    assert!(text.contains("INTERRUPTED: 3 requests under way"), "{text}");
    for absent in ["TTFT", "goodput", "0.00"] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
    let test = Shown {
        name: "x",
        results: &one,
    };
    let page = html(&[test], None);
    assert!(page.contains("<li>nothing was measured</li>"), "{page}");
    assert!(!page.contains("<caption>Measured</caption>"), "{page}");
    let whole = run(rng, LoadPoint::Rate(5.0), 1, MADE);
    let text = crate::report::text(&results(vec![whole, cut]));
    let row = text.lines().find(|line| line.starts_with("10 requests/s"));
    assert!(
        row.is_some_and(|row| row.ends_with("nothing was measured")),
        "{text}"
    );
}

#[test]
fn several_tests_stand_in_plots_together() {
    let rng = &mut SmallRng::seed_from_u64(1);
    let (a, b) = (
        results(vec![run(rng, LoadPoint::Rate(5.0), 1, MADE)]),
        everything(),
    );
    let tests = [
        Shown {
            name: "before.json",
            results: &a,
        },
        Shown {
            name: "after.json",
            results: &b,
        },
    ];
    let page = html(&tests, None);
    for part in [
        ">TTFT p99 of all tests</text>",
        ">before.json</text>",
        "href=\"#test-2\"",
        "id=\"test-2\"",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // One load has no curve.
    let alone = html(&tests[..1], None);
    assert!(!alone.contains("by load</text>") && alone.contains("<details open>"));
}

#[test]
fn no_run_or_very_many_make_a_page_too() {
    let page = html(
        &[Shown {
            name: "x",
            results: &results(Vec::new()),
        }],
        None,
    );
    assert!(page.contains("No run was carried out."));
    assert_harmless(&page);
    let rng = &mut SmallRng::seed_from_u64(1);
    let few = Made {
        requests: 3,
        ..MADE
    };
    let many = (1..=200)
        .map(|i| run(rng, LoadPoint::Concurrency(i), 1, few))
        .collect();
    let page = html(
        &[Shown {
            name: "x",
            results: &results(many),
        }],
        None,
    );
    assert!(page.contains("140 more runs are in the results"));
    assert!(page.len() < 2_000_000, "{}", page.len());
}

#[test]
fn a_long_run_has_a_timeline_of_few_steps() {
    let rng = &mut SmallRng::seed_from_u64(1);
    let mut long = run(rng, LoadPoint::Rate(5.0), 1, MADE);
    let second = long.timeline[0];
    long.timeline = vec![second; 86_400];
    let page = html(
        &[Shown {
            name: "x",
            results: &results(vec![long]),
        }],
        None,
    );
    assert!(page.len() < 100_000, "{}", page.len());
    assert!(page.contains(">80k</text>"), "a day has 86400 seconds");
}
