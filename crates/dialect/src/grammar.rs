//! Grammars that let a model write valid calls only.
//!
//! In llguidance's dialect of Lark (its `docs/syntax.md`): fixed text, `%json` for what a schema describes, token
//! ids for markers that are special tokens. What a grammar lets through, the family's parser reads as calls of
//! the chosen functions with arguments of their schemas.

use std::fmt::Write as _;

use thiserror::Error;

use crate::choice::{Must, ToolChoice};
use crate::dialect::Dialect;
use crate::frame::{Arguments, Frame, Piece};
use crate::lark::{Rules, quote};
use crate::schema::{self, Plain, Property};
use crate::tools::{Tool, is_name_char};

/// The longest name of an argument that a parser reads.
const MAX_PROPERTY: usize = 200;

/// What an answer must be, in llguidance's dialect of Lark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grammar(pub(crate) String);

impl Grammar {
    /// The grammar's text.
    #[must_use]
    pub fn as_lark(&self) -> &str {
        &self.0
    }

    /// The grammar's text.
    #[must_use]
    pub fn into_lark(self) -> String {
        self.0
    }
}

/// Why decoding cannot be held to what a client asked for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CannotConstrain {
    /// The model's family has no calls.
    #[error("the model has no format for tool calls: only \"none\" and \"auto\" are allowed")]
    NoCalls,
    /// In the model's family an answer cannot be told from a call by how it begins.
    #[error(
        "function \"{function}\" is strict, which the model's format ({family}) allows only with tool_choice \
         \"required\" or a named function"
    )]
    StrictAuto {
        /// The first such function.
        function: String,
        /// The model's family.
        family: &'static str,
    },
    /// The family writes arguments one by one, and the schema says something about several or what such text
    /// cannot be held to.
    #[error(
        "function \"{function}\" is strict, and its schema's \"{keyword}\" cannot be enforced in the model's format \
         ({family})"
    )]
    Schema {
        /// The function.
        function: String,
        /// The schema's keyword.
        keyword: String,
        /// The model's family.
        family: &'static str,
    },
}

/// What a grammar has to know besides the choice.
pub struct Decoding<'a> {
    /// Whether the prompt ends inside reasoning ([`Dialect::opens_reasoning`]).
    pub reasoning: bool,
    /// Whether several calls may come.
    pub parallel: bool,
    /// The id of the special token of this text, if the model's vocabulary has it. A token that is not special,
    /// whose text is in the answer, has none here.
    pub special: &'a dyn Fn(&str) -> Option<u32>,
}

impl Dialect {
    /// The grammar for a choice: with [`Must::Call`] of calls alone; with [`Must::May`] of any text until a call
    /// begins, and only where one of the functions is strict; otherwise none.
    ///
    /// # Errors
    ///
    /// [`CannotConstrain`] where the family cannot be held to it. The request is refused then.
    pub fn grammar(
        &self,
        choice: &ToolChoice,
        decoding: &Decoding<'_>,
    ) -> Result<Option<Grammar>, CannotConstrain> {
        let strict = choice.tools().iter().find(|tool| tool.strict());
        match (choice.must(), strict) {
            (Must::Never, _) | (Must::May, None) => return Ok(None),
            (Must::May, Some(_)) | (Must::Call, _) => {}
        }
        let family = self.family().ok_or(CannotConstrain::NoCalls)?;
        let optional = choice.must() != Must::Call;
        let mut lark = Lark {
            rules: Rules::new(decoding),
            triggered: optional,
            frame: &family.frame,
            family: family.name,
        };
        for (index, tool) in choice.tools().iter().enumerate() {
            lark.call(index, tool)?;
        }
        let any: Vec<String> = (0..choice.tools().len())
            .map(|index| format!("call_{index}"))
            .collect();
        lark.rule("call", &any.join(" | "));
        let reasoning = lark.rules.reasoning(self.thinking());
        match family.frame.trigger() {
            _ if !optional => lark.required(&reasoning),
            Some(trigger) => lark.optional(&reasoning, trigger),
            None => {
                return Err(CannotConstrain::StrictAuto {
                    function: strict.map_or(String::new(), |tool| tool.name().to_owned()),
                    family: family.name,
                });
            }
        }
        Ok(Some(Grammar(lark.rules.into_text())))
    }
}

struct Lark<'a> {
    rules: Rules<'a>,
    /// Whether the first marker is not part of the calls' rules.
    triggered: bool,
    frame: &'static Frame,
    family: &'static str,
}

impl Lark<'_> {
    fn rule(&mut self, name: &str, body: &str) {
        self.rules.rule(name, body);
    }

    /// Calls alone.
    fn required(&mut self, reasoning: &str) {
        let more = self.more();
        let (before, after) = (
            self.pieces(self.frame.before),
            self.pieces(self.frame.after),
        );
        self.rule(
            "start",
            &format!("{reasoning} {before} call {more} {after}"),
        );
    }

    /// Any text; from the trigger on calls.
    fn optional(&mut self, reasoning: &str, trigger: &str) {
        match (self.rules.decoding.special)(trigger) {
            Some(id) => self.rule("trigger", &format!("TEXT <[{id}]>")),
            None => self.rule("trigger[lazy]", &format!("TEXT {}", quote(trigger))),
        }
        let (more, times) = match (self.rules.decoding.parallel, self.frame.before) {
            // Each call has a trigger of its own.
            (true, []) => (String::new(), "*"),
            (true, _) => (self.more(), "?"),
            (false, _) => (String::new(), "?"),
        };
        let before = self.pieces(self.frame.before.get(1..).unwrap_or_default());
        let after = self.pieces(self.frame.after);
        self.rule(
            "start",
            &format!("{reasoning} (trigger {before} call {more} {after}){times} TEXT"),
        );
    }

    /// All calls but the first.
    fn more(&self) -> String {
        match self.frame.between {
            Some(between) if self.rules.decoding.parallel => {
                format!("({} call)*", self.piece(Piece::Text(between)))
            }
            _ => String::new(),
        }
    }

    /// The rule of one function's call.
    fn call(&mut self, index: usize, tool: &Tool) -> Result<(), CannotConstrain> {
        self.arguments(index, tool)?;
        let mut body = String::new();
        let read = usize::from(self.triggered && self.frame.before.is_empty());
        for piece in &self.frame.call[read..] {
            let _ = match piece {
                Piece::Name => write!(body, "{} ", quote(tool.name())),
                Piece::Arguments => write!(body, "args_{index} "),
                _ => write!(body, "{} ", self.piece(*piece)),
            };
        }
        self.rule(&format!("call_{index}"), &body);
        Ok(())
    }

    fn pieces(&self, pieces: &[Piece]) -> String {
        let all: Vec<String> = pieces.iter().map(|piece| self.piece(*piece)).collect();
        all.join(" ")
    }

    fn piece(&self, piece: Piece) -> String {
        match piece {
            Piece::Text("") => String::new(),
            Piece::Text(text) => quote(text),
            Piece::Marker(marker) => self.rules.marker(marker),
            Piece::Number => "/[0-9]{1,3}/".to_owned(),
            Piece::Name | Piece::Arguments => String::new(),
        }
    }

    fn arguments(&mut self, index: usize, tool: &Tool) -> Result<(), CannotConstrain> {
        let name = format!("args_{index}");
        if matches!(self.frame.arguments, Arguments::Json) {
            let schema = schema::guided(tool.parameters(), tool.strict());
            self.rule(&name, &format!("%json {schema}"));
            return Ok(());
        }
        let (properties, mut keyword) = schema::properties(tool.parameters());
        let mut written = Vec::new();
        for property in &properties {
            let rule = format!("{name}_value_{}", written.len());
            match self.value(&rule, property, tool.strict()) {
                Ok(()) => written.push(property),
                Err(reason) => keyword = keyword.or(Some(reason)),
            }
        }
        if let Some(keyword) = keyword.filter(|_| tool.strict()) {
            return Err(CannotConstrain::Schema {
                function: tool.name().to_owned(),
                keyword: keyword.to_owned(),
                family: self.family,
            });
        }
        match self.frame.arguments {
            Arguments::Tags {
                before,
                between,
                behind,
                ..
            } => self.tags(&name, &written, (before, between, behind)),
            Arguments::Python | Arguments::Json => self.python(&name, &written),
        }
        Ok(())
    }

    /// The rule of an argument's value; for tags with the closing one. An error names the keyword that cannot be
    /// held to, which for a function that is not strict is left out.
    fn value<'p>(
        &mut self,
        name: &str,
        property: &'p Property,
        strict: bool,
    ) -> Result<(), &'p str> {
        let json = schema::guided(&property.schema, strict);
        let Arguments::Tags {
            inside, closing, ..
        } = self.frame.arguments
        else {
            if property.name.is_empty() || !property.name.chars().all(is_name_char) {
                return Err("properties");
            }
            match property.is_boolean() {
                true => self.rule(name, "\"True\" | \"False\""),
                false => self.rule(name, &format!("%json {json}")),
            }
            return Ok(());
        };
        let odd =
            property.name.contains(['<', '>', '\n', '(']) || property.name.trim() != property.name;
        if odd || property.name.is_empty() || property.name.len() > MAX_PROPERTY {
            return Err("properties");
        }
        let plain = match property.plain() {
            Err(keyword) if strict => return Err(keyword),
            Err(_) => Plain::Text,
            Ok(plain) => plain,
        };
        let end = format!(
            "{} {}",
            self.piece(Piece::Text(inside)),
            self.piece(closing)
        );
        match plain {
            Plain::Text => self.text(name, closing),
            Plain::Words(words) => {
                let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
                self.rule(name, &format!("({}) {end}", words.join(" | ")));
            }
            Plain::Json => {
                self.rule(&format!("{name}_json"), &format!("%json {json}"));
                self.rule(name, &format!("{name}_json {end}"));
            }
        }
        Ok(())
    }

    /// A rule of any text up to the closing tag and of the tag.
    fn text(&mut self, name: &str, closing: Piece) {
        match closing {
            Piece::Marker(close) if (self.rules.decoding.special)(close).is_some() => {
                self.rule(name, &format!("TEXT {}", self.rules.marker(close)));
            }
            Piece::Marker(close) | Piece::Text(close) => {
                self.rule(&format!("{name}[lazy]"), &format!("TEXT {}", quote(close)));
            }
            _ => self.rule(name, "TEXT"),
        }
    }

    /// `a=1, b="x"`, in the schema's order.
    fn python(&mut self, name: &str, properties: &[&Property]) {
        // Whether a comma has to go before an argument depends on whether there is one before it.
        for (index, property) in properties.iter().enumerate() {
            let next = index + 1;
            let item = format!(
                "{} {name}_value_{index}",
                quote(&format!("{}=", property.name))
            );
            let (first, more) = if property.required {
                (
                    format!("{item} {name}_more_{next}"),
                    format!("\", \" {item} {name}_more_{next}"),
                )
            } else {
                (
                    format!("{item} {name}_more_{next} | {name}_first_{next}"),
                    format!("(\", \" {item})? {name}_more_{next}"),
                )
            };
            self.rule(&format!("{name}_first_{index}"), &first);
            self.rule(&format!("{name}_more_{index}"), &more);
        }
        let count = properties.len();
        self.rule(&format!("{name}_first_{count}"), "\"\"");
        self.rule(&format!("{name}_more_{count}"), "\"\"");
        self.rule(name, &format!("{name}_first_0"));
    }

    /// One tag after the other, in the schema's order.
    fn tags(
        &mut self,
        name: &str,
        properties: &[&Property],
        tag: (&[Piece], &[Piece], &'static str),
    ) {
        let (before, between) = (self.pieces(tag.0), self.pieces(tag.1));
        let behind = quote(tag.2);
        let mut body = "\"\" ".to_owned();
        for (index, property) in properties.iter().enumerate() {
            let key = quote(&property.name);
            let tag = format!("{before} {key} {between} {name}_value_{index} {behind}");
            let _ = match property.required {
                true => write!(body, "{tag} "),
                false => write!(body, "({tag})? "),
            };
        }
        self.rule(name, &body);
    }
}
