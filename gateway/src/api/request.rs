//! What a client asks for, of whatever API, read from its request and checked; nothing of a worker
//! is known here.

use std::sync::Arc;

use tandem_dialect::Dialect;
use tandem_text::TextModel;
use tandem_wire::proto;

use super::constraint::Held;
use super::error::ApiError;
use super::form::Form;
use super::params::Params;
use super::tools::Parsing;
use super::{anthropic, openai};

/// Which endpoint, and so which shape of request and answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
    /// `/v1/responses`.
    Responses,
    /// `/v1/messages`.
    Messages,
}

impl Endpoint {
    /// In metrics and logs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }

    /// The field of a tool that holds the schema of its arguments.
    pub(crate) const fn parameters_field(self) -> &'static str {
        match self {
            Self::Chat | Self::Completions => "function.parameters",
            Self::Responses => "parameters",
            Self::Messages => "input_schema",
        }
    }

    /// The field that holds the prompt.
    pub(crate) const fn prompt_param(self) -> &'static str {
        match self {
            Self::Chat | Self::Messages => "messages",
            Self::Completions => "prompt",
            Self::Responses => "input",
        }
    }
}

/// What the gateway knows of the model that a request may name.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The names under which it is served; empty while that is not known.
    pub(crate) names: Vec<String>,
    /// Tokens of prompt and answer together.
    pub(crate) context: u32,
    /// The longest text, in bytes, that may fit the context; a longer one is not tokenised.
    pub(crate) longest_text: usize,
    /// `default_max_tokens` of the configuration.
    pub(crate) default_max_tokens: Option<u32>,
    /// `max_choices` of the configuration.
    pub(crate) max_choices: usize,
    /// How the model marks what it thinks and calls.
    pub(crate) dialect: Dialect,
}

impl Known {
    /// Whether the model that is asked for is served.
    pub(crate) fn check(&self, model: &str) -> Result<(), ApiError> {
        if self.names.is_empty() || self.names.iter().any(|name| name == model) {
            return Ok(());
        }
        Err(ApiError::no_model(model))
    }

    /// The same, of a request's field.
    pub(crate) fn check_named(&self, params: &mut Params) -> Result<(), ApiError> {
        let model = params.needed_text("model")?;
        self.check(&model)
    }
}

/// How many tokens the client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputLength {
    pub(crate) asked: Option<u64>,
    /// The field it came from, or would have.
    pub(crate) param: &'static str,
    /// Where the client does not say; `None`: the rest of the context.
    pub(crate) default: Option<u32>,
}

/// What a request says of its place among others. It changes no answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Routing {
    /// vLLM's: among the caller's requests of a class a lower number is served first.
    pub(crate) priority: i32,
    /// Requests with the same key may share a cache.
    pub(crate) affinity: Option<Arc<str>>,
}

/// How the answers of one request are drawn.
#[derive(Clone, Debug)]
pub(crate) struct Drawing {
    /// Answers for each prompt.
    pub(crate) answers: usize,
    /// Its seed and its constraint are not set.
    pub(crate) sampling: proto::Sampling,
    /// What answers are held to.
    pub(crate) held: Option<Held>,
    /// The client's; without one each answer gets a random one.
    pub(crate) seed: Option<u64>,
    /// `max_tokens` is not set.
    pub(crate) stop: proto::Stop,
}

/// A checked and tokenised request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) prompts: Vec<Arc<[u32]>>,
    pub(crate) drawing: Drawing,
    pub(crate) output: OutputLength,
    pub(crate) stream: bool,
    pub(crate) form: Form,
    /// `None`: answers are nothing but text.
    pub(crate) parsing: Option<Parsing>,
    pub(crate) routing: Routing,
}

/// What one generation asks of a decode worker.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) tokens: Arc<[u32]>,
    pub(crate) sampling: proto::Sampling,
    /// `max_tokens` is not set.
    pub(crate) stop: proto::Stop,
    /// See [`Routing`].
    pub(crate) priority: i32,
    /// See [`Routing`].
    pub(crate) affinity: Option<Arc<str>>,
}

impl Request {
    /// Reads a body. Costs time in proportion to it: not for an I/O thread.
    pub(crate) fn read(
        endpoint: Endpoint,
        body: &[u8],
        text: &TextModel,
        known: &Known,
    ) -> Result<Self, ApiError> {
        let mut params = Params::parse(body)?;
        known.check_named(&mut params)?;
        match endpoint {
            Endpoint::Chat => openai::chat::read(params, text, known),
            Endpoint::Completions => openai::completions::read(params, text, known),
            Endpoint::Responses => openai::responses::read(params, text, known),
            Endpoint::Messages => anthropic::request::read(params, text, known),
        }
    }

    /// Answers of all prompts.
    pub(crate) const fn choices(&self) -> usize {
        self.prompts.len() * self.drawing.answers
    }

    /// What choice `index` asks for: answer `index % n` of prompt `index / n`.
    pub(crate) fn ask(&self, index: usize) -> Ask {
        let Drawing {
            answers,
            sampling,
            held,
            seed,
            stop,
        } = &self.drawing;
        let seed = match seed {
            Some(seed) => nth_seed(*seed, (index % answers) as u64),
            None => rand::random(),
        };
        Ask {
            tokens: Arc::clone(&self.prompts[index / answers]),
            sampling: proto::Sampling {
                seed,
                constraint: held.as_ref().map(Held::told),
                ..sampling.clone()
            },
            stop: stop.clone(),
            priority: self.routing.priority,
            affinity: self.routing.affinity.clone(),
        }
    }
}

/// The first answer has the client's seed itself, the others seeds drawn from it (SplitMix64).
const fn nth_seed(seed: u64, n: u64) -> u64 {
    if n == 0 {
        return seed;
    }
    let mut mixed = seed.wrapping_add(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_seeds_of_their_own_and_the_first_has_the_clients() {
        let seeds: std::collections::BTreeSet<u64> = (0..1000).map(|n| nth_seed(5, n)).collect();
        assert_eq!(seeds.len(), 1000);
        assert_eq!(nth_seed(5, 0), 5);
        assert_eq!(nth_seed(5, 7), nth_seed(5, 7));
    }
}
