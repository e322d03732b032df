//! From the command line to what is asked, and of whom.

use std::sync::Arc;

use tandem_loadtest::Target;
use tandem_loadtest::trace::{Slice, Trace};
use tandem_loadtest::workload::{
    Class, DEFAULT_CLASS, Prompts, SMALLEST_VOCABULARY, Source, Speech, Synthetic, Think,
    Vocabulary, Workload,
};
use tandem_text::TextModel;

use super::args::{ApiName, LoadtestArgs};
use crate::failure::Failure;

/// Reads a flag's value; what is wrong names the flag.
pub(super) fn flag<T: std::str::FromStr<Err: std::fmt::Display>>(
    name: &'static str,
    text: &str,
) -> Result<T, Failure> {
    text.parse().map_err(|error| wrong(name, error))
}

pub(super) fn wrong(name: &'static str, error: impl std::fmt::Display) -> Failure {
    Failure::mendable(format!("{name} {error}")).about(name)
}

const INPUT: &str = "256";
const OUTPUT: &str = "64";

/// The server.
pub(super) fn target(args: &LoadtestArgs) -> Result<Target, Failure> {
    let environment = || {
        std::env::var("OPENAI_API_KEY")
            .ok()
            .filter(|key| !key.is_empty())
    };
    let header = |text: &String| {
        let pair = text
            .split_once(':')
            .filter(|(name, _)| !name.trim().is_empty());
        let (name, value) =
            pair.ok_or_else(|| wrong("--header", format!("{text:?}: want \"name: value\"")))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    Ok(Target {
        url: flag("--url", &args.url)?,
        key: args.key.clone().or_else(environment),
        headers: args
            .header
            .iter()
            .map(header)
            .collect::<Result<_, Failure>>()?,
        http2: args.http2,
        ca: args.ca.clone(),
    })
}

/// The requests, without the server's limit of context.
pub(super) fn workload(args: &LoadtestArgs) -> Result<Workload, Failure> {
    let source = source(args)?;
    let speech = speech(args)?;
    let (ids, chat) = (matches!(speech, Speech::Ids(_)), args.api == ApiName::Chat);
    if ids && chat {
        return Err(wrong(
            "--token-ids",
            "is for completions: add --api completions",
        ));
    }
    if ids && (args.turns.is_some() || args.prompts.is_some()) {
        let other = if args.turns.is_some() {
            "--turns"
        } else {
            "--prompts"
        };
        return Err(wrong(
            "--token-ids",
            format!("and {other} cannot be together: that one is text"),
        ));
    }
    if let Source::Prompts(own, _) = &source
        && own.has_messages()
        && !chat
    {
        return Err(wrong(
            "--prompts",
            "holds messages, which are for --api chat",
        ));
    }
    Ok(Workload {
        seed: args.seed,
        renewed: 0,
        speech: Arc::new(speech),
        source: Arc::new(source),
        max_context: args.max_context,
        chat,
    })
}

fn source(args: &LoadtestArgs) -> Result<Source, Failure> {
    if let Some(path) = &args.trace {
        let slice = args
            .trace_slice
            .as_deref()
            .map(|text| flag("--trace-slice", text));
        let slice = slice.transpose()?.unwrap_or(Slice::WHOLE);
        let trace = Trace::read(path, slice).map_err(|error| wrong("--trace", error))?;
        return Ok(Source::Trace(trace));
    }
    let output = args.output.as_deref().unwrap_or(OUTPUT);
    if let Some(path) = &args.prompts {
        let own = Prompts::read(path).map_err(|error| wrong("--prompts", error))?;
        return Ok(Source::Prompts(own, flag("--output", output)?));
    }
    let mut classes: Vec<Class> = Vec::new();
    for text in &args.class {
        let class = class(text)?;
        if classes.iter().any(|known| known.name == class.name) {
            return Err(wrong(
                "--class",
                format!("{}: it is there twice", class.name),
            ));
        }
        classes.push(class);
    }
    if classes.is_empty() {
        classes.push(Class {
            name: DEFAULT_CLASS.to_owned(),
            share: 1.0,
            input: flag("--input", args.input.as_deref().unwrap_or(INPUT))?,
            output: flag("--output", output)?,
        });
    }
    let prefix = args.prefix.as_deref().map(|text| flag("--prefix", text));
    let think = args
        .think
        .as_deref()
        .map(|text| flag::<Think>("--think", text));
    Ok(Source::Synthetic(Synthetic {
        classes,
        prefix: prefix.transpose()?,
        turns: flag("--turns", args.turns.as_deref().unwrap_or("1"))?,
        think: think
            .transpose()?
            .unwrap_or(Think::Fixed(std::time::Duration::ZERO)),
    }))
}

/// `NAME SHARE INPUT OUTPUT`.
fn class(text: &str) -> Result<Class, Failure> {
    let parts: Vec<&str> = text.split_whitespace().collect();
    let want = || {
        wrong(
            "--class",
            format!("{text:?}: want \"NAME SHARE INPUT OUTPUT\""),
        )
    };
    let [name, share, input, output] = parts[..] else {
        return Err(want());
    };
    let share: f64 = share.parse().map_err(|_| want())?;
    if !(share > 0.0 && share.is_finite()) {
        return Err(want());
    }
    Ok(Class {
        name: name.to_owned(),
        share,
        input: flag("--class", input)?,
        output: flag("--class", output)?,
    })
}

fn speech(args: &LoadtestArgs) -> Result<Speech, Failure> {
    if let Some(vocabulary) = args.token_ids {
        if vocabulary < SMALLEST_VOCABULARY {
            let want = format!("{vocabulary}: want {SMALLEST_VOCABULARY} at least");
            return Err(wrong("--token-ids", want));
        }
        return Ok(Speech::Ids(vocabulary));
    }
    let Some(path) = &args.tokenizer else {
        return Ok(Speech::Words);
    };
    let model = TextModel::load(path).map_err(|error| wrong("--tokenizer", error))?;
    let vocabulary = Vocabulary::of(&model).map_err(|error| wrong("--tokenizer", error))?;
    Ok(Speech::Vocabulary(vocabulary))
}
