//! Any text as metrics: samples, or one line that is wrong. Never a panic, and figures that JSON can say.

use std::time::Duration;

use super::exposition::parse;
use super::figures::ServerMetrics;
use super::gathered::Gathered;

const VALID: &str = "# HELP h A histogram.\n# TYPE h histogram\nh_bucket{le=\"0.5\",m=\"a\\\\b\\\"\"} 1\n\
    h_bucket{le=\"+Inf\",m=\"x\"} 2 1700000000\nh_sum{m=\"x\"} 3.5\nh_count{m=\"x\"} 2\n# TYPE c counter\n\
    c_total{a=\"1\",} 5 # {t=\"y\"} 1\n# TYPE g gauge\ng -1e3\nuntyped NaN\n# EOF\n";

fn gather(texts: &[&str]) {
    let mut gathered = Gathered::default();
    for (second, text) in texts.iter().enumerate() {
        match parse(text) {
            Ok(samples) => gathered.observe(Duration::from_secs(second as u64), samples),
            Err(error) => {
                assert!(error.line >= 1 && error.line <= text.lines().count());
                gathered.failed(error.to_string());
            }
        }
    }
    let metrics = gathered.finish("u".to_owned(), |_| true);
    assert_eq!(metrics.scrapes, texts.len() as u64);
    let json = serde_json::to_string(&metrics).unwrap();
    let _: ServerMetrics = serde_json::from_str(&json).unwrap();
}

#[test]
fn metrics_of_any_bytes() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        gather(&[VALID, &text]);
    });
}

#[test]
fn metrics_with_a_few_other_bytes() {
    assert!(parse(VALID).is_ok());
    bolero::check!()
        .with_type::<Vec<(u16, u8)>>()
        .for_each(|edits| {
            let mut bytes = VALID.as_bytes().to_vec();
            for (at, byte) in edits.iter().take(5) {
                let at = usize::from(*at) % bytes.len();
                bytes[at] = *byte;
            }
            let text = String::from_utf8_lossy(&bytes);
            gather(&[VALID, &text, VALID]);
        });
}
