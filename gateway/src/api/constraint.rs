//! What an answer must be: `response_format`, and vLLM's structured outputs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tandem_constraint::{Constraint, ConstraintError, Grammars};
use tandem_dialect::{Decoding, Dialect, Shape};
use tandem_wire::proto;
use tandem_wire::proto::constraint::Kind;

use super::error::ApiError;
use super::params::Params;

/// Bytes of a schema, a pattern or a grammar.
const MAX_BYTES: usize = 256 << 10;
/// Texts to choose from.
const MAX_CHOICES: usize = 1024;
/// Characters of a schema's name.
const MAX_NAME: usize = 64;

/// For so long it is looked for the function whose schema is at fault.
const BLAME: Duration = Duration::from_millis(250);

/// What answers are held to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// As the decode worker is told.
    kind: Kind,
    /// The field that says so.
    param: String,
    /// What the client wrote, where the worker is told more.
    own: Option<Kind>,
    /// Schemas of functions in it, each with its field.
    functions: Vec<(String, Kind)>,
}

impl Held {
    fn new(param: impl Into<String>, kind: Kind) -> Self {
        Self {
            kind,
            param: param.into(),
            own: None,
            functions: Vec::new(),
        }
    }

    /// To calls of these functions, each with the field and the schema of its arguments.
    pub(crate) fn to_calls(lark: String, functions: Vec<(String, Value)>) -> Self {
        let function =
            |(param, schema): (String, Value)| (param, Kind::JsonSchema(schema.to_string()));
        Self {
            functions: functions.into_iter().map(function).collect(),
            ..Self::new("tools", Kind::Lark(lark))
        }
    }

    /// Holds only what follows the model's reasoning, where it marks that.
    pub(crate) fn behind_reasoning(self, dialect: Dialect, decoding: &Decoding<'_>) -> Self {
        let shape = match &self.kind {
            Kind::JsonSchema(schema) => Shape::Json(schema),
            Kind::Regex(regex) => Shape::Regex(regex),
            Kind::Lark(grammar) => Shape::Lark(grammar),
        };
        match dialect.behind_reasoning(shape, decoding) {
            None => self,
            Some(grammar) => Self {
                own: Some(self.kind),
                kind: Kind::Lark(grammar.into_lark()),
                ..self
            },
        }
    }

    /// As the decode worker is told.
    pub(crate) fn told(&self) -> proto::Constraint {
        let kind = Some(self.kind.clone());
        proto::Constraint { kind }
    }

    /// Refuses what cannot be followed. Takes up to seconds.
    pub(crate) fn check(&self, grammars: &Grammars) -> Result<(), ApiError> {
        let check = |kind: &Kind| grammars.check(&constraint(kind));
        if let Some(own) = &self.own {
            check(own).map_err(|error| refused(&self.param, &error))?;
        }
        let Err(error) = check(&self.kind) else {
            return Ok(());
        };
        let until = Instant::now() + BLAME;
        let in_time = self.functions.iter().take_while(|_| Instant::now() < until);
        let mut at_fault =
            in_time.filter_map(|(param, kind)| Some(refused(param, &check(kind).err()?)));
        Err(at_fault
            .next()
            .unwrap_or_else(|| refused(&self.param, &error)))
    }
}

fn constraint(kind: &Kind) -> Constraint {
    match kind {
        Kind::JsonSchema(schema) => Constraint::JsonSchema(schema.clone()),
        Kind::Regex(regex) => Constraint::Regex(regex.clone()),
        Kind::Lark(grammar) => Constraint::Lark(grammar.clone()),
    }
}

fn refused(param: &str, error: &ConstraintError) -> ApiError {
    ApiError::value(param, format!("Invalid '{param}': {error}."))
}

/// Takes the fields that say so. At most one of them may.
pub(crate) fn read(params: &mut Params) -> Result<Option<Held>, ApiError> {
    let mut found = format(params, "response_format")?.map(|kind| ("response_format", kind));
    let mut add = |field: &'static str, kind: Option<Kind>| match (&found, kind) {
        (_, None) => Ok(()),
        (None, Some(kind)) => {
            found = Some((field, kind));
            Ok(())
        }
        (Some((other, _)), Some(_)) => {
            let message = format!("'{field}' and '{other}' both say what the answer must be.");
            Err(ApiError::value(field, message))
        }
    };
    if let Some(mut fields) = params.object("structured_outputs")? {
        for field in ["json", "regex", "choice", "grammar"] {
            let kind = guide(&mut fields, field, field)?;
            add("structured_outputs", kind)?;
        }
        if fields.boolean("json_object")?.unwrap_or(false) {
            add("structured_outputs", Some(any_object()))?;
        }
        fields.finish(&[])?;
    }
    for (field, kind) in [
        ("guided_json", "json"),
        ("guided_regex", "regex"),
        ("guided_choice", "choice"),
        ("guided_grammar", "grammar"),
    ] {
        let kind = guide(params, field, kind)?;
        add(field, kind)?;
    }
    Ok(found.map(|(field, kind)| Held::new(field, kind)))
}

fn any_object() -> Kind {
    Kind::JsonSchema(json!({"type": "object"}).to_string())
}

/// OpenAI's `response_format`: text, any JSON object, or one of a schema.
fn format(params: &mut Params, field: &str) -> Result<Option<Kind>, ApiError> {
    let Some(mut format) = params.object(field)? else {
        return Ok(None);
    };
    let schema = match format.needed_text("type")?.as_str() {
        "json_schema" => {
            let name = format.name("json_schema");
            let schema = format.object("json_schema")?;
            Some(schema.ok_or_else(|| ApiError::missing(&name))?)
        }
        kind => {
            let kind = plain(kind, &format.name("type"))?;
            format.finish(&[])?;
            return Ok(kind);
        }
    };
    format.finish(&[])?;
    schema.map(named_schema).transpose()
}

/// `text.format` of a response, where the schema stands beside its type.
pub(crate) fn text_format(mut format: Params) -> Result<Option<Held>, ApiError> {
    let param = format.name("schema");
    let kind = match format.needed_text("type")?.as_str() {
        "json_schema" => Some(named_schema(format)?),
        kind => {
            let kind = plain(kind, &format.name("type"))?;
            format.finish(&[])?;
            kind
        }
    };
    Ok(kind.map(|kind| Held::new(param, kind)))
}

/// Anthropic's `output_config.format`, which is a schema or nothing.
pub(crate) fn output_format(mut format: Params) -> Result<Held, ApiError> {
    let kind = format.name("type");
    if format.needed_text("type")? != "json_schema" {
        return Err(ApiError::unsupported(kind, " other than 'json_schema'"));
    }
    let field = format.name("schema");
    let schema = schema(&mut format)?.ok_or_else(|| ApiError::missing(&field))?;
    format.finish(&[])?;
    Ok(Held::new(field, schema))
}

fn plain(kind: &str, name: &str) -> Result<Option<Kind>, ApiError> {
    match kind {
        "text" => Ok(None),
        "json_object" => Ok(Some(any_object())),
        other => {
            let shown: String = other.chars().take(32).collect();
            let want = "text, json_object or json_schema";
            let message = format!("Invalid '{name}': expected {want}, but got '{shown}'.");
            Err(ApiError::value(name, message))
        }
    }
}

/// A schema with its name. Decoding is always as strict as the schema: `strict` changes nothing.
fn named_schema(mut fields: Params) -> Result<Kind, ApiError> {
    let name = fields.needed_text("name")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(fits) {
        let field = fields.name("name");
        let message =
            format!("Invalid '{field}': expected 1 to {MAX_NAME} letters, digits, '_' or '-'.");
        return Err(ApiError::value(field, message));
    }
    fields.text("description")?;
    fields.boolean("strict")?;
    let kind = schema(&mut fields)?.unwrap_or_else(any_object);
    fields.finish(&[])?;
    Ok(kind)
}

fn schema(fields: &mut Params) -> Result<Option<Kind>, ApiError> {
    let field = fields.name("schema");
    match fields.take("schema") {
        None => Ok(None),
        Some(schema @ Value::Object(_)) => {
            let text = bounded(&field, schema.to_string())?;
            Ok(Some(Kind::JsonSchema(text)))
        }
        Some(other) => Err(ApiError::kind_of(field, "an object", &other)),
    }
}

/// One of vLLM's guides.
fn guide(params: &mut Params, field: &str, kind: &str) -> Result<Option<Kind>, ApiError> {
    let name = params.name(field);
    let Some(value) = params.take(field) else {
        return Ok(None);
    };
    let wrong = |want| Err(ApiError::kind_of(name.clone(), want, &value));
    let kind = match (kind, &value) {
        ("json", Value::Object(_)) => Kind::JsonSchema(bounded(&name, value.to_string())?),
        ("json", Value::String(text)) => {
            let schema: Value = serde_json::from_str(text).map_err(|error| {
                ApiError::value(name.clone(), format!("Invalid '{name}': no JSON: {error}."))
            })?;
            Kind::JsonSchema(bounded(&name, schema.to_string())?)
        }
        ("json", _) => return wrong("an object or a string"),
        ("regex", Value::String(text)) => Kind::Regex(bounded(&name, text.clone())?),
        ("grammar", Value::String(text)) => Kind::Lark(bounded(&name, text.clone())?),
        ("regex" | "grammar", _) => return wrong("a string"),
        (_, Value::Array(texts)) => Kind::Lark(bounded(&name, one_of(&name, texts)?)?),
        (_, _) => return wrong("an array of strings"),
    };
    Ok(Some(kind))
}

/// A grammar of nothing but these texts.
fn one_of(name: &str, texts: &[Value]) -> Result<String, ApiError> {
    if texts.is_empty() || texts.len() > MAX_CHOICES {
        let found = texts.len();
        let message =
            format!("Invalid '{name}': expected 1 to {MAX_CHOICES} texts, but got {found}.");
        return Err(ApiError::value(name, message));
    }
    let quoted = |text: &Value| match text {
        Value::String(text) if !text.is_empty() => Ok(Value::from(text.as_str()).to_string()),
        other => Err(ApiError::kind_of(
            name,
            "an array of strings that are not empty",
            other,
        )),
    };
    let texts: Result<Vec<String>, ApiError> = texts.iter().map(quoted).collect();
    Ok(format!("start: {}", texts?.join(" | ")))
}

fn bounded(name: &str, text: String) -> Result<String, ApiError> {
    if text.len() <= MAX_BYTES {
        return Ok(text);
    }
    let found = text.len();
    let message = format!("Invalid '{name}': at most {MAX_BYTES} bytes, but got {found}.");
    Err(ApiError::value(name, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constraint(json: &str) -> Result<Option<Kind>, ApiError> {
        let mut params = Params::parse(json.as_bytes()).unwrap();
        let constraint = read(&mut params)?;
        params.finish(&[]).unwrap();
        Ok(constraint.map(|held| held.kind))
    }

    fn schema(text: &str) -> Option<Kind> {
        Some(Kind::JsonSchema(text.to_owned()))
    }

    #[test]
    fn each_way_to_say_it_becomes_one_constraint() {
        for (json, want) in [
            ("{}", None),
            (r#"{"response_format":null}"#, None),
            (r#"{"response_format":{"type":"text"}}"#, None),
            (
                r#"{"response_format":{"type":"json_object"}}"#,
                schema(r#"{"type":"object"}"#),
            ),
            (
                r#"{"response_format":{"type":"json_schema","json_schema":
                    {"name":"n","strict":true,"schema":{"b":1,"a":2}}}}"#,
                schema(r#"{"b":1,"a":2}"#),
            ),
            (r#"{"guided_json":"{\"x\":1}"}"#, schema(r#"{"x":1}"#)),
            (
                r#"{"structured_outputs":{"regex":"a+"}}"#,
                Some(Kind::Regex("a+".into())),
            ),
            (
                r#"{"guided_choice":["yes","n\"o"]}"#,
                Some(Kind::Lark(r#"start: "yes" | "n\"o""#.into())),
            ),
        ] {
            assert_eq!(constraint(json).unwrap(), want, "{json}");
        }
    }

    #[test]
    fn two_ways_at_once_contradict_each_other() {
        let json = r#"{"response_format":{"type":"json_object"},"guided_regex":"a"}"#;
        assert_eq!(
            constraint(json).unwrap_err().param.as_deref(),
            Some("guided_regex")
        );
        let json = r#"{"structured_outputs":{"regex":"a","choice":["b"]}}"#;
        assert_eq!(
            constraint(json).unwrap_err().param.as_deref(),
            Some("structured_outputs")
        );
    }
}
