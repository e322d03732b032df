//! Made-up requests: classes with their own lengths, shared prefixes, sessions.

use std::str::FromStr;
use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Zipf};

use super::{Item, Prompt, Think, Turn, Workload};
use crate::lengths::Lengths;
use crate::seed::{Purpose, stream};
use crate::units::UnitError;

/// One kind of request.
#[derive(Clone, Debug)]
pub struct Class {
    /// Its name in results.
    pub name: String,
    /// Its share among the others', above 0.
    pub share: f64,
    /// Tokens of its prompts, without a shared prefix.
    pub input: Lengths,
    /// Tokens of its answers.
    pub output: Lengths,
}

/// Prompts that begin alike: each request belongs to one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefixGroups {
    /// How many different beginnings there are.
    pub groups: u32,
    /// Tokens of each, before the request's own.
    pub tokens: u32,
    /// 0: all groups alike; above: the first ones are asked more often.
    pub skew: f64,
}

/// What made-up requests are.
#[derive(Clone, Debug)]
pub struct Synthetic {
    /// One at least.
    pub classes: Vec<Class>,
    /// Shared beginnings, where wanted.
    pub prefix: Option<PrefixGroups>,
    /// Requests of a session.
    pub turns: Lengths,
    /// Time between its turns.
    pub think: Think,
}

/// A conversation of more turns is a mistake.
const MOST_TURNS: u32 = 1024;

impl Synthetic {
    pub(super) fn item(&self, all: &Workload, index: u64, rng: &mut ChaCha8Rng) -> Item {
        let class = self.class(rng);
        let group = self.prefix.map(|prefix| (prefix.draw(rng), prefix.tokens));
        let turns = self.turns.draw(rng).min(MOST_TURNS);
        let turns = (0..turns).map(|turn| {
            let group = group.filter(|_| turn == 0);
            self.turn(all, index, turn, (class, group), rng)
        });
        Item {
            index,
            class,
            session: Some(index),
            turns: turns.collect(),
        }
    }

    fn turn(
        &self,
        all: &Workload,
        index: u64,
        turn: u32,
        (class, group): (usize, Option<(u64, u32)>),
        rng: &mut ChaCha8Rng,
    ) -> Turn {
        let class = &self.classes[class];
        let shared = group.map_or(0, |(_, tokens)| tokens);
        let input = class.input.draw(rng).saturating_add(shared);
        let (input, output, clipped) = all.clip(input, class.output.draw(rng));
        let said = if turn == 0 { all.said(input) } else { input };
        let mut prompt: Prompt = all.speech.empty();
        if let Some((group, tokens)) = group {
            let mut words = stream(all.said_by(), Purpose::Prefix, group);
            all.speech.say(&mut prompt, tokens.min(said), &mut words);
        }
        let own = said.saturating_sub(shared);
        all.unique(&mut prompt, own, index, turn.into());
        Turn {
            think: match turn {
                0 => Duration::ZERO,
                _ => self.think.draw(rng),
            },
            prompt,
            input_tokens: Some(input),
            output_tokens: output,
            clipped,
        }
    }

    fn class(&self, rng: &mut ChaCha8Rng) -> usize {
        let all: f64 = self.classes.iter().map(|class| class.share).sum();
        let mut drawn = rng.random::<f64>() * all;
        for (i, class) in self.classes.iter().enumerate() {
            drawn -= class.share;
            if drawn < 0.0 {
                return i;
            }
        }
        self.classes.len() - 1
    }
}

impl PrefixGroups {
    fn draw(&self, rng: &mut ChaCha8Rng) -> u64 {
        match Zipf::new(f64::from(self.groups), self.skew) {
            Ok(zipf) => zipf.sample(rng) as u64 - 1,
            // Cannot be: what is parsed has groups and a skew that is no negative number.
            Err(_) => 0,
        }
    }
}

const PREFIX: &str =
    "GROUPSxTOKENS such as 8x1024, or 8x1024:1.2 where the first groups are asked more often";

impl FromStr for PrefixGroups {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::new(text, PREFIX);
        let (size, skew) = text.split_once(':').unwrap_or((text, "0"));
        let (groups, tokens) = size.split_once('x').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n > 0);
        let skew: f64 = skew.parse().map_err(|_| wrong())?;
        if !(0.0..=10.0).contains(&skew) {
            return Err(wrong());
        }
        Ok(Self {
            groups: number(groups).ok_or_else(wrong)?,
            tokens: number(tokens).ok_or_else(wrong)?,
            skew,
        })
    }
}
