//! How busy workers were.

use std::time::Duration;

/// What the workers of one pool did with their time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Workers.
    pub workers: u32,
    /// From the trace's first request to its last token.
    pub span: Duration,
    /// Time in which a step ran, of all workers together.
    pub busy: Duration,
    /// Steps.
    pub steps: u64,
    /// Prompt tokens that were computed.
    pub prompt_tokens: u64,
    /// Prompt tokens that were found in a cache.
    pub cached_tokens: u64,
    /// Answers' tokens.
    pub generated_tokens: u64,
    /// Sequences in a step, added up over the time of steps: in seconds.
    pub(crate) batch_seconds: f64,
    /// Share of pages that were somebody's, the same.
    pub(crate) pages_seconds: f64,
    /// The largest share of pages that were somebody's, of any worker.
    pub most_pages: f64,
}

impl Usage {
    /// Share of the time in which a step ran.
    #[must_use]
    pub fn busy_share(&self) -> f64 {
        let all = self.span.as_secs_f64() * f64::from(self.workers);
        ratio(self.busy.as_secs_f64(), all)
    }

    /// Sequences that generated in a step, on average over the time of steps.
    #[must_use]
    pub fn mean_batch(&self) -> f64 {
        ratio(self.batch_seconds, self.busy.as_secs_f64())
    }

    /// Share of pages that were somebody's while steps ran.
    #[must_use]
    pub fn mean_pages(&self) -> f64 {
        ratio(self.pages_seconds, self.busy.as_secs_f64())
    }

    /// A step of so many sequences, which takes so long, with this share of the pages in use.
    pub(crate) fn step(&mut self, took: Duration, batch: usize, pages: f64) {
        self.busy += took;
        self.steps += 1;
        self.batch_seconds += took.as_secs_f64() * batch as f64;
        self.pages_seconds += took.as_secs_f64() * pages;
        self.most_pages = self.most_pages.max(pages);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.workers += 1;
        self.busy += other.busy;
        self.steps += other.steps;
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        self.generated_tokens += other.generated_tokens;
        self.batch_seconds += other.batch_seconds;
        self.pages_seconds += other.pages_seconds;
        self.most_pages = self.most_pages.max(other.most_pages);
    }
}

fn ratio(part: f64, all: f64) -> f64 {
    if all > 0.0 { part / all } else { 0.0 }
}
